// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbaseconfigv1alpha1 "k8s.io/component-base/config/v1alpha1"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true

// ExtensionConfiguration is the configuration of one instance of this extension, be it operator-extension (class
// garden) or gardenlet-extension (classes seed and shoot).
type ExtensionConfiguration struct {
	metav1.TypeMeta `json:",inline"`
	Logging         `json:",inline"`

	// ClientConnection configures the client of the cluster in which the instance runs. Default: 500 requests a second and
	// bursts of 1000; with the mock provider, which is there to be fast, no limit (-1). Every object costs several requests,
	// so a lower limit is what many of them wait for; that nobody gets too much is what the API server's priority and
	// fairness sees to.
	ClientConnection componentbaseconfigv1alpha1.ClientConnectionConfiguration `json:"clientConnection"`
	// LeaderElection configures which replica of the instance works.
	LeaderElection componentbaseconfigv1alpha1.LeaderElectionConfiguration `json:"leaderElection"`
	// Server configures what the instance listens on.
	Server ServerConfiguration `json:"server"`
	// ExtensionClasses are the classes of extension objects that the instance serves. There is no default, as an empty
	// set means class shoot to Gardener's extension library: an instance refuses to start without one.
	ExtensionClasses []extensionsv1alpha1.ExtensionClass `json:"extensionClasses"`
	// SelfHostedShootCluster says that the cluster is a Shoot whose control plane is on its own machines: the webhooks of shoots are
	// registered in it. The chart takes it from gardenlet or gardenadm.
	// +optional
	SelfHostedShootCluster bool `json:"selfHostedShootCluster,omitempty"`
	// Controllers configures the controllers.
	Controllers ControllersConfiguration `json:"controllers"`
	// Webhooks configures the webhooks, which only gardenlet-extension has.
	Webhooks WebhooksConfiguration `json:"webhooks"`
	// Charts configures where the charts of components come from. The default is the program itself.
	Charts ChartsConfiguration `json:"charts"`
	// DNS configures how DNSRecords are served.
	DNS DNSConfiguration `json:"dns"`
	// LoadBalancers configures the Services of type LoadBalancer. The instances of a garden and of a seed in one cluster need the same.
	LoadBalancers LoadBalancersConfiguration `json:"loadBalancers"`
	// Ingress configures the DNSRecords of Ingresses in a seed.
	Ingress IngressConfiguration `json:"ingress"`
	// Backup configures where buckets are.
	Backup BackupConfiguration `json:"backup"`
	// ControlPlane configures what is deployed for the control plane of a shoot.
	ControlPlane ControlPlaneConfiguration `json:"controlPlane"`
	// Machines configures the machines of shoots.
	Machines MachinesConfiguration `json:"machines"`
	// Nodes configures what Nodes report.
	Nodes NodesConfiguration `json:"nodes"`
	// Mock configures the mock provider.
	Mock MockConfiguration `json:"mock"`
}

// ControllersConfiguration are the controllers of an instance.
type ControllersConfiguration struct {
	// IgnoreOperationAnnotation makes the controllers reconcile on any change of an object's spec and not only when
	// Gardener asks for it by the annotation gardener.cloud/operation.
	// +optional
	IgnoreOperationAnnotation bool `json:"ignoreOperationAnnotation,omitempty"`
	// ForceDeleteTest lets Shoots with the annotation test-force-delete=true leave NetworkPolicies with a finalizer in the seed,
	// which only a forced deletion takes away: Gardener's end-to-end test of forced deletions needs it. Never set it where
	// others than testers have Shoots.
	// +optional
	ForceDeleteTest bool `json:"forceDeleteTest,omitempty"`
	// BackupBucket configures the controller for BackupBuckets.
	// +optional
	BackupBucket ControllerConfiguration `json:"backupBucket,omitempty"`
	// BackupEntry configures the controller for BackupEntries.
	// +optional
	BackupEntry ControllerConfiguration `json:"backupEntry,omitempty"`
	// DNSRecord configures the controller for DNSRecords.
	// +optional
	DNSRecord ControllerConfiguration `json:"dnsRecord,omitempty"`
	// Extension configures the controllers for Extensions.
	// +optional
	Extension ControllerConfiguration `json:"extension,omitempty"`
	// Bastion configures the controller for Bastions.
	// +optional
	Bastion ControllerConfiguration `json:"bastion,omitempty"`
	// ControlPlane configures the controller for ControlPlanes.
	// +optional
	ControlPlane ControllerConfiguration `json:"controlPlane,omitempty"`
	// Infrastructure configures the controller for Infrastructures.
	// +optional
	Infrastructure ControllerConfiguration `json:"infrastructure,omitempty"`
	// OperatingSystemConfig configures the controller for OperatingSystemConfigs.
	// +optional
	OperatingSystemConfig ControllerConfiguration `json:"operatingSystemConfig,omitempty"`
	// SelfHostedShootExposure configures the controller for SelfHostedShootExposures.
	// +optional
	SelfHostedShootExposure ControllerConfiguration `json:"selfHostedShootExposure,omitempty"`
	// Worker configures the controller for Workers.
	// +optional
	Worker ControllerConfiguration `json:"worker,omitempty"`
	// Ingress configures the controller that makes DNSRecords for the Ingresses of shoots.
	// +optional
	Ingress ControllerConfiguration `json:"ingress,omitempty"`
	// Service configures the controller for Services of type LoadBalancer.
	// +optional
	Service ControllerConfiguration `json:"service,omitempty"`
	// HealthCheck configures the controllers that write the health conditions of ControlPlanes, Networks and Workers.
	// +optional
	HealthCheck HealthCheckConfiguration `json:"healthCheck,omitempty"`
}

// ControllerConfiguration is what every controller has.
type ControllerConfiguration struct {
	// Disabled switches the controller off.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// ConcurrentSyncs is how many objects are reconciled at a time. Default 5; 50 for DNSRecords, whose writes are
	// batched.
	// +optional
	ConcurrentSyncs *int `json:"concurrentSyncs,omitempty"`
}

// HealthCheckConfiguration is what the health check controllers have.
type HealthCheckConfiguration struct {
	ControllerConfiguration `json:",inline"`

	// SyncPeriod is how often health is looked at if no watch has told of a change before. Default 5m.
	// +optional
	SyncPeriod *metav1.Duration `json:"syncPeriod,omitempty"`
}

// WebhooksConfiguration are the webhooks of an instance.
type WebhooksConfiguration struct {
	// ServicePort is the port of the Service before the webhook server. Default 443.
	// +optional
	ServicePort *int `json:"servicePort,omitempty"`
	// ControlPlane mutates OperatingSystemConfigs and the machine-controller-manager of shoots.
	// +optional
	ControlPlane WebhookConfiguration `json:"controlPlane,omitempty"`
	// DNSConfig lets pods that dial shoots ask our CoreDNS.
	// +optional
	DNSConfig WebhookConfiguration `json:"dnsConfig,omitempty"`
	// Node sets capacity and allocatable of Nodes.
	// +optional
	Node WebhookConfiguration `json:"node,omitempty"`
	// Shoot mutates the configuration of kube-proxy in shoots.
	// +optional
	Shoot WebhookConfiguration `json:"shoot,omitempty"`
}

// WebhookConfiguration is what every webhook has.
type WebhookConfiguration struct {
	// Disabled switches the webhook off.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
}

// ChartsConfiguration is where the charts of components come from.
type ChartsConfiguration struct {
	// Sources are the charts that are pulled from a registry, by the name of the component (coredns,
	// local-path-provisioner, cloud-controller). All others are those in the program.
	// +optional
	Sources map[string]OCIChart `json:"sources,omitempty"`
	// Cache is where pulled charts are kept.
	// +optional
	Cache ChartCacheConfiguration `json:"cache,omitempty"`
}

// OCIChart is a chart in an OCI registry.
type OCIChart struct {
	// Ref is "HOST[:PORT]/REPOSITORY:TAG", "HOST[:PORT]/REPOSITORY@DIGEST", or both tag and digest, where the digest counts.
	Ref string `json:"ref"`
	// PullSecretRef names a Secret of type kubernetes.io/dockerconfigjson in the namespace of the instance.
	// +optional
	PullSecretRef *corev1.LocalObjectReference `json:"pullSecretRef,omitempty"`
	// CABundleSecretRef names a Secret in the namespace of the instance whose key bundle.crt holds PEM certificates that
	// are trusted besides those of the system.
	// +optional
	CABundleSecretRef *corev1.LocalObjectReference `json:"caBundleSecretRef,omitempty"`
	// PlainHTTP allows HTTP without TLS for the registry and its mirrors. On the loopback it is always allowed.
	// +optional
	PlainHTTP bool `json:"plainHTTP,omitempty"`
	// Mirrors are asked in this order before the registry of Ref: each "HOST[:PORT][/PREFIX]".
	// +optional
	Mirrors []string `json:"mirrors,omitempty"`
}

// ChartCacheConfiguration is the cache of pulled charts on the disk.
type ChartCacheConfiguration struct {
	// Directory is where it is. Default: /var/cache/provider-local/charts.
	// +optional
	Directory string `json:"directory,omitempty"`
	// MaxBytes is how large it may become; what was used longest ago goes first. Default 64Mi.
	// +optional
	MaxBytes *resource.Quantity `json:"maxBytes,omitempty"`
}

// DNSConfiguration is how DNSRecords are served.
type DNSConfiguration struct {
	// Zones are the domains below which records may be. Default: local.gardener.cloud.
	// +optional
	Zones []string `json:"zones,omitempty"`
	// ReservedDomains are domains in which shoots may not choose names: those of the garden and of other seeds. The internal
	// domain and the Ingress domain of a shoot's own seed are always reserved. What Gardener itself names for a shoot stays
	// allowed.
	// +optional
	ReservedDomains []string `json:"reservedDomains,omitempty"`
	// DefaultTTL is the TTL in seconds of a record without one. Default 120.
	// +optional
	DefaultTTL *int64 `json:"defaultTTL,omitempty"`
	// Provider serves the DNSRecords whose providerConfig does not name one. Default: coredns.
	// +optional
	Provider DNSProvider `json:"provider,omitempty"`
	// RFC2136 configures the provider rfc2136.
	// +optional
	RFC2136 RFC2136Configuration `json:"rfc2136,omitempty"`
	// CoreDNS configures the CoreDNS provider.
	// +optional
	CoreDNS CoreDNSConfiguration `json:"coreDNS,omitempty"`
}

// DNSProvider is what serves DNSRecords.
type DNSProvider string

const (
	// DNSProviderCoreDNS is the CoreDNS that both instances of a cluster share.
	DNSProviderCoreDNS DNSProvider = "coredns"
	// DNSProviderRFC2136 is any server that takes dynamic updates (RFC 2136), such as BIND 9.
	DNSProviderRFC2136 DNSProvider = "rfc2136"
)

// RFC2136Configuration is how dynamic updates are sent. What a DNSRecord's providerConfig or Secret says goes before it.
type RFC2136Configuration struct {
	// Server is the primary server of the zones, HOST[:PORT] with port 53 by default. Updates are sent by TCP.
	// +optional
	Server string `json:"server,omitempty"`
	// Zones are the zones of the server; a record is in the longest that its name ends in. Default: those of the DNS
	// configuration.
	// +optional
	Zones []string `json:"zones,omitempty"`
	// AllowedServers are the servers that a DNSRecord or its Secret may name, beside Server: each an address or a CIDR, with
	// :PORT behind it if that is not 53. What a host name resolves to counts. Default: port 53 of every address that is not one
	// of the machine itself, of its link or for multicast.
	// +optional
	AllowedServers []string `json:"allowedServers,omitempty"`
	// Timeout bounds one exchange with the server; all exchanges for a record together may take four times as long. Default 5s.
	// +optional
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// CoreDNSConfiguration is how the CoreDNS that both instances of a cluster share is deployed and written to.
type CoreDNSConfiguration struct {
	// Namespace is where CoreDNS and its configuration are. Default: gardener-extension-provider-local-coredns.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Deploy reports whether the instance ensures that CoreDNS is deployed. Default true.
	// +optional
	Deploy *bool `json:"deploy,omitempty"`
	// Image is the image of CoreDNS; needed if Deploy is true.
	// +optional
	Image string `json:"image,omitempty"`
	// Replicas is the number of CoreDNS pods. Default 1.
	// +optional
	Replicas *int32 `json:"replicas,omitempty"`
	// PriorityClassName is the priority class of the CoreDNS pods; empty for none.
	// +optional
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// ClusterIP fixes the address of CoreDNS' Service; empty for any.
	// +optional
	ClusterIP string `json:"clusterIP,omitempty"`
	// ServiceNetwork is the range of the cluster's Services, a CIDR, for which ClusterIP is meant: one configuration serves
	// all seeds of a Garden, and where ClusterIP is in another range, the Service gets any address. Default: every range.
	// +optional
	ServiceNetwork string `json:"serviceNetwork,omitempty"`
	// ClientNetworks are the networks, as CIDRs, whose clients may ask CoreDNS for names outside of the zones: pods that have
	// no other name server do. All others get answers for the zones only. Default: the private ranges.
	// +optional
	ClientNetworks []string `json:"clientNetworks,omitempty"`
	// ClusterDomain is the domain of the cluster's Services. Default: cluster.local.
	// +optional
	ClusterDomain string `json:"clusterDomain,omitempty"`
	// Servers are the addresses (host:port) asked whether a record resolves. Default: the ready endpoints of CoreDNS'
	// Service.
	// +optional
	Servers []string `json:"servers,omitempty"`
	// BatchWindow is how long changes are collected before they are written in one go. Default 50ms.
	// +optional
	BatchWindow *metav1.Duration `json:"batchWindow,omitempty"`
	// ConfirmTimeout is how long a reconcile waits until the record resolves before it gives the worker back and tries
	// again later. Default 10s.
	// +optional
	ConfirmTimeout *metav1.Duration `json:"confirmTimeout,omitempty"`
}

// LoadBalancersConfiguration is what Services of type LoadBalancer get. Addresses are IPv4 or IPv6; a Service gets
// one of each family that it has.
type LoadBalancersConfiguration struct {
	// HostAddresses are the addresses of the machine, which well-known Services have that have no other. Default:
	// 172.18.255.1 and fd00:ff::1.
	// +optional
	HostAddresses []string `json:"hostAddresses,omitempty"`
	// ZoneAddresses are the addresses of the gateways of zones by the zones' names: those in the namespaces
	// istio-ingress--ZONE. Default: 172.18.255.10 and fd00:ff::10 for zone 0, and so on up to 12 for zone 2.
	// +optional
	ZoneAddresses map[string][]string `json:"zoneAddresses,omitempty"`
	// Services are the well-known Services. Those of the defaults stay unless an entry has their namespace and name.
	// +optional
	Services []LoadBalancerService `json:"services,omitempty"`
	// Pools are where all others get their addresses from, each a CIDR or FIRST-LAST. Default:
	// 172.18.255.128-172.18.255.254 and fd00:ff::1:0/120.
	// +optional
	Pools []string `json:"pools,omitempty"`
}

// LoadBalancerService is a Service with an address and node ports that others know beforehand.
type LoadBalancerService struct {
	// Namespace and Name are those of the Service.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Addresses are its addresses, at most one of each family. Default: those of its zone, or else of the host.
	// +optional
	Addresses []string `json:"addresses,omitempty"`
	// IPMode is VIP if kube-proxy takes in what is sent to the addresses, and Proxy if something else forwards it to the
	// node ports. Default: VIP for a Service with addresses of its own or of its zone, Proxy for one with the host's.
	// +optional
	IPMode *corev1.LoadBalancerIPMode `json:"ipMode,omitempty"`
	// NodePorts are its node ports that are fixed.
	// +optional
	NodePorts []LoadBalancerNodePort `json:"nodePorts,omitempty"`
}

// LoadBalancerNodePort fixes a node port.
type LoadBalancerNodePort struct {
	// Port is a port of the Service.
	Port int32 `json:"port"`
	// NodePort is the node port of it, for TCP and UDP alike.
	NodePort int32 `json:"nodePort"`
}

// IngressConfiguration is how Ingresses of shoots are found by their hosts.
type IngressConfiguration struct {
	// Gateways are the Services of which the first that has an address serves an Ingress whose status has none. Default:
	// garden/nginx-ingress-controller, istio-ingress/istio-ingressgateway.
	// +optional
	Gateways []ServiceReference `json:"gateways,omitempty"`
}

// ServiceReference names a Service.
type ServiceReference struct {
	// Namespace and Name are those of the Service.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// BackupConfiguration is where buckets are.
type BackupConfiguration struct {
	// Directory is the folder of all buckets as the instance sees it. Default: /var/lib/gardener/backupbuckets.
	// +optional
	Directory string `json:"directory,omitempty"`
	// HostPath is the same folder as the nodes see it; etcd-backup-restore gets it in the Secret etcd-backup. Default:
	// /etc/gardener/local-backupbuckets.
	// +optional
	HostPath string `json:"hostPath,omitempty"`
}

// ControlPlaneConfiguration is what is deployed for the control plane of a shoot.
type ControlPlaneConfiguration struct {
	// LocalPathProvisioner provides the volumes of shoots.
	// +optional
	LocalPathProvisioner LocalPathProvisionerConfiguration `json:"localPathProvisioner,omitempty"`
	// CloudController serves the LoadBalancer Services of shoots.
	// +optional
	CloudController CloudControllerDeployment `json:"cloudController,omitempty"`
}

// LocalPathProvisionerConfiguration is how local-path-provisioner is deployed into shoots.
type LocalPathProvisionerConfiguration struct {
	// Image is the image of local-path-provisioner and of its helper pods. gardenlet-extension needs it unless the
	// controller for ControlPlanes is disabled.
	// +optional
	Image string `json:"image,omitempty"`
}

// CloudControllerDeployment is how cloud-controller is deployed for shoots.
type CloudControllerDeployment struct {
	// Deploy reports whether it is deployed. Default false.
	// +optional
	Deploy *bool `json:"deploy,omitempty"`
	// Image is the image of gardenlet-extension; needed if Deploy is true.
	// +optional
	Image string `json:"image,omitempty"`
}

// MachinesConfiguration is how the machines of shoots are made.
type MachinesConfiguration struct {
	// ControllerImage is the image of the container that is put beside machine-controller-manager: gardenlet-extension's.
	// +optional
	ControllerImage string `json:"controllerImage,omitempty"`
	// RegistryMirrors are written to the containerd configuration of all machines.
	// +optional
	RegistryMirrors []RegistryMirror `json:"registryMirrors,omitempty"`
	// Sizing is how the machine type of a CloudProfile bounds a machine, unless the worker pool's providerConfig says
	// otherwise: Exact (default), Overcommit or Unlimited.
	// +optional
	Sizing localv1alpha1.MachineSizing `json:"sizing,omitempty"`
	// AllowedSizings are what the providerConfig of a worker pool may choose. Default: Exact, Overcommit and Sizing. A machine
	// that is Unlimited may take all of its node, past the quota of its project.
	// +optional
	AllowedSizings []localv1alpha1.MachineSizing `json:"allowedSizings,omitempty"`
	// GPUResourceName is the resource of which a machine gets as many as its machine type has GPUs. Default:
	// nvidia.com/gpu.
	// +optional
	GPUResourceName corev1.ResourceName `json:"gpuResourceName,omitempty"`
	// EgressCIDRs are ranges that machines may reach besides those that every machine reaches: the machines of its shoot,
	// the gateways and DNS servers of the seed, the seed's nodes, and public addresses. They are meant for registries and
	// mirrors in private networks.
	// +optional
	EgressCIDRs []string `json:"egressCIDRs,omitempty"`
	// NodeCIDRs are ranges from which Shoots may have their nodes besides private (RFC 1918), shared (RFC 6598) and unique
	// local ones (RFC 4193). Each node of the seed sends to machines what is for such a range. The admission has the same
	// field.
	// +optional
	NodeCIDRs []string `json:"nodeCIDRs,omitempty"`
	// Remote is about machines in clusters other than the seed, to which kubeconfigs of users lead.
	// +optional
	Remote RemoteMachinesConfiguration `json:"remote,omitempty"`
}

// RemoteMachinesConfiguration is about machines in clusters other than the seed.
type RemoteMachinesConfiguration struct {
	// AllowedCIDRs are the ranges to which the servers of kubeconfigs may resolve. Default: all addresses. Loopback, link-local,
	// multicast and unspecified ones are refused in any case.
	// +optional
	AllowedCIDRs []string `json:"allowedCIDRs,omitempty"`
}

// RegistryMirror is a mirror for the images of one registry.
type RegistryMirror struct {
	// Upstream is the registry as images name it, for example "registry.k8s.io".
	Upstream string `json:"upstream"`
	// Server is the URL of the registry itself, asked if no host has an image. Default: https:// and Upstream.
	// +optional
	Server string `json:"server,omitempty"`
	// Hosts are the URLs of the mirrors, asked in this order.
	Hosts []string `json:"hosts"`
}

// NodesConfiguration is what Nodes report.
type NodesConfiguration struct {
	// Capacity is what a Node has unless its machine type says so. Default: 100 CPUs and 100Gi of memory.
	// +optional
	Capacity NodeCapacity `json:"capacity,omitempty"`
}

// NodeCapacity is what a Node has.
type NodeCapacity struct {
	// CPU is the number of CPUs.
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// Memory is in bytes.
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// MockConfiguration is how the mock provider serves extension objects of type mock (docs/usage/mock.md):
// it makes every one of them ready without any infrastructure, or lets it wait and fail as the behaviours say.
type MockConfiguration struct {
	// Enabled switches the mock provider on. Default false.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// ConcurrentSyncs is how many objects of each kind are reconciled at a time. Default 20.
	// +optional
	ConcurrentSyncs *int `json:"concurrentSyncs,omitempty"`
	// Seed is what all chance is drawn from: the same seed has the same objects wait and fail in the same way.
	// +optional
	Seed int64 `json:"seed,omitempty"`
	// Behaviours say which operations take time and which fail. For each operation on an object the first one counts that
	// fits; an operation that none fits succeeds at once.
	// +optional
	Behaviours []MockBehaviour `json:"behaviours,omitempty"`
	// Nodes configures the fake Nodes of Workers.
	// +optional
	Nodes MockNodes `json:"nodes,omitempty"`
}

// MockNodes are the fake Nodes of Workers.
type MockNodes struct {
	// Disabled has Workers succeed without Nodes, as for objects whose shoot has no API server. Default false.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// KubeletPort is the port on which the seed's instance answers for the kubelets of all fake Nodes, on all addresses.
	// Default 10250.
	// +optional
	KubeletPort *int `json:"kubeletPort,omitempty"`
}

// MockBehaviour is how operations of a kind behave.
type MockBehaviour struct {
	// Kind is the kind of the objects, such as Infrastructure; empty for all.
	// +optional
	Kind string `json:"kind,omitempty"`
	// Operation is the operation; empty for all but ForceDelete.
	// +optional
	Operation MockOperation `json:"operation,omitempty"`
	// Delay is how long each attempt takes.
	// +optional
	Delay *metav1.Duration `json:"delay,omitempty"`
	// Jitter is how much longer an attempt may take, by chance.
	// +optional
	Jitter *metav1.Duration `json:"jitter,omitempty"`
	// Failures is how many attempts of each operation on an object fail before one may succeed.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// ErrorRate is how probable it is that any other attempt fails, from 0 to 1.
	// +optional
	ErrorRate float64 `json:"errorRate,omitempty"`
	// Error is what a failed attempt leaves on the object.
	// +optional
	Error MockError `json:"error,omitempty"`
	// RetryAfter is when a failed attempt is followed by another one, unless Gardener asks before. Default 5s.
	// +optional
	RetryAfter *metav1.Duration `json:"retryAfter,omitempty"`
}

// MockOperation is an operation on an extension object.
type MockOperation string

const (
	// MockOperationCreate is all from the first attempt on until one succeeds.
	MockOperationCreate MockOperation = "Create"
	// MockOperationReconcile is what follows after that.
	MockOperationReconcile MockOperation = "Reconcile"
	// MockOperationDelete is a deletion that nobody forces.
	MockOperationDelete MockOperation = "Delete"
	// MockOperationForceDelete is a deletion that a user has forced.
	MockOperationForceDelete MockOperation = "ForceDelete"
	// MockOperationMigrate is what an object in the old seed undergoes when a control plane is migrated.
	MockOperationMigrate MockOperation = "Migrate"
	// MockOperationRestore is what an object in the new seed undergoes.
	MockOperationRestore MockOperation = "Restore"
)

// MockError is an error that Gardener reads from an extension object.
type MockError struct {
	// Message is its description. Default: "failure injected by the configuration of the mock provider".
	// +optional
	Message string `json:"message,omitempty"`
	// Codes are its error codes, by which Gardener tells what to do about it.
	// +optional
	Codes []gardencorev1beta1.ErrorCode `json:"codes,omitempty"`
}

// Logging is how a program logs.
type Logging struct {
	// LogLevel is "debug", "info" (default) or "error".
	// +optional
	LogLevel string `json:"logLevel,omitempty"`
	// LogFormat is "json" (default) or "text".
	// +optional
	LogFormat string `json:"logFormat,omitempty"`
}

// LogOptions returns the level and the format of the logs.
func (l Logging) LogOptions() (level, format string) { return l.LogLevel, l.LogFormat }

// ServerConfiguration are the servers of an instance.
type ServerConfiguration struct {
	// HealthProbes serves /healthz and /readyz. Default: port 8081 on all addresses.
	// +optional
	HealthProbes *Server `json:"healthProbes,omitempty"`
	// Metrics serves /metrics. Default: port 8080 on all addresses.
	// +optional
	Metrics *Server `json:"metrics,omitempty"`
	// SecureMetrics serves /metrics by TLS, with a certificate that nobody has signed, and only to those who may get the
	// non-resource URL /metrics in the cluster in which the program runs. The program needs to create TokenReviews and
	// SubjectAccessReviews there. Default: false, /metrics is for all who reach the port.
	// +optional
	SecureMetrics bool `json:"secureMetrics,omitempty"`
	// Webhooks serves the webhooks. Default: port 10443 on all addresses.
	// +optional
	Webhooks *Server `json:"webhooks,omitempty"`
}

// Server is an address to listen on.
type Server struct {
	// BindAddress is an IP address; empty for all of them.
	// +optional
	BindAddress string `json:"bindAddress,omitempty"`
	// Port is a TCP port, 1 to 65535.
	Port int `json:"port"`
}
