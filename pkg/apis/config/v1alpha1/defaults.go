// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	componentbaseconfigv1alpha1 "k8s.io/component-base/config/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// gateway is the name of all ingress gateways.
const gateway = "istio-ingressgateway"

// Defaults that others need to know as well.
const (
	// DefaultZone is the domain of a local Gardener, as in Gardener's docs/extensions/provider-local.md.
	DefaultZone = "local.gardener.cloud"
	// DefaultCoreDNSNamespace is the namespace of CoreDNS.
	DefaultCoreDNSNamespace = "gardener-extension-provider-local-coredns"
	// DefaultBackupHostPath is where the nodes of a local Gardener have their buckets.
	DefaultBackupHostPath = "/etc/gardener/local-backupbuckets"
	// DefaultBackupDirectory is where an instance mounts the folder of all buckets.
	DefaultBackupDirectory = "/var/lib/gardener/backupbuckets"
	// DefaultChartCacheDirectory is where an instance keeps the charts that it has pulled.
	DefaultChartCacheDirectory = "/var/cache/provider-local/charts"
)

// SetDefaults fills in what the user left out. It never fills in ExtensionClasses.
func SetDefaults(config *ExtensionConfiguration) {
	qps := float32(500)
	if config.Mock.Enabled {
		qps = -1
	}
	setConnectionDefaults(&config.ClientConnection, qps, 1000)
	setLeaderElectionDefaults(&config.LeaderElection)
	setLoggingDefaults(&config.Logging)
	setServerDefaults(&config.Server)

	setPointerDefault(&config.Controllers.DNSRecord.ConcurrentSyncs, 50)
	for _, controller := range config.Controllers.byName() {
		setPointerDefault(&controller.ConcurrentSyncs, 5)
	}
	setPointerDefault(&config.Controllers.HealthCheck.SyncPeriod, metav1.Duration{Duration: 5 * time.Minute})
	setPointerDefault(&config.Webhooks.ServicePort, 443)

	setDefault(&config.Charts.Cache.Directory, DefaultChartCacheDirectory)
	setPointerDefault(&config.Charts.Cache.MaxBytes, resource.MustParse("64Mi"))
	setDNSDefaults(&config.DNS)
	setLoadBalancerDefaults(&config.LoadBalancers, config.DNS.CoreDNS.Namespace)
	if len(config.Ingress.Gateways) == 0 {
		config.Ingress.Gateways = []ServiceReference{
			{Namespace: "garden", Name: "nginx-ingress-controller"},
			{Namespace: "istio-ingress", Name: "istio-ingressgateway"},
		}
	}
	setPointerDefault(&config.ControlPlane.CloudController.Deploy, false)
	setPointerDefault(&config.Nodes.Capacity.CPU, resource.MustParse("100"))
	setPointerDefault(&config.Nodes.Capacity.Memory, resource.MustParse("100Gi"))
	setDefault(&config.Machines.Sizing, localv1alpha1.MachineSizingExact)
	if len(config.Machines.AllowedSizings) == 0 {
		config.Machines.AllowedSizings = localv1alpha1.DefaultAllowedSizings(config.Machines.Sizing)
	}
	setDefault(&config.Machines.GPUResourceName, "nvidia.com/gpu")
	for i := range config.Machines.RegistryMirrors {
		mirror := &config.Machines.RegistryMirrors[i]
		setDefault(&mirror.Server, "https://"+mirror.Upstream)
	}

	setDefault(&config.Backup.Directory, DefaultBackupDirectory)
	setDefault(&config.Backup.HostPath, DefaultBackupHostPath)
	setMockDefaults(&config.Mock)
}

// SetAdmissionDefaults fills in what the user left out.
func SetAdmissionDefaults(config *AdmissionConfiguration) {
	setConnectionDefaults(&config.ClientConnection, 100, 200)
	setLeaderElectionDefaults(&config.LeaderElection)
	setLoggingDefaults(&config.Logging)
	setServerDefaults(&config.Server)
	setPointerDefault(&config.Webhooks.ServicePort, 443)
}

// SetCloudControllerDefaults fills in what the user left out.
func SetCloudControllerDefaults(config *CloudControllerConfiguration) {
	setLoggingDefaults(&config.Logging)
	setDefault(&config.Server.Port, 10258)
}

func setMockDefaults(mock *MockConfiguration) {
	setPointerDefault(&mock.ConcurrentSyncs, 20)
	setPointerDefault(&mock.Nodes.KubeletPort, 10250)
	for i := range mock.Behaviours {
		setPointerDefault(&mock.Behaviours[i].RetryAfter, metav1.Duration{Duration: 5 * time.Second})
		setDefault(&mock.Behaviours[i].Error.Message, "failure injected by the configuration of the mock provider")
	}
}

func setConnectionDefaults(connection *componentbaseconfigv1alpha1.ClientConnectionConfiguration, qps float32, burst int32) {
	setDefault(&connection.QPS, qps)
	setDefault(&connection.Burst, burst)
}

func setLeaderElectionDefaults(leaderElection *componentbaseconfigv1alpha1.LeaderElectionConfiguration) {
	// The recommended default is the lock that client-go does not have any more.
	setDefault(&leaderElection.ResourceLock, resourcelock.LeasesResourceLock)
	componentbaseconfigv1alpha1.RecommendedDefaultLeaderElectionConfiguration(leaderElection)
}

func setLoggingDefaults(logging *Logging) {
	setDefault(&logging.LogLevel, "info")
	setDefault(&logging.LogFormat, "json")
}

func setServerDefaults(server *ServerConfiguration) {
	setPointerDefault(&server.HealthProbes, Server{Port: 8081})
	setPointerDefault(&server.Metrics, Server{Port: 8080})
	setPointerDefault(&server.Webhooks, Server{Port: 10443})
}

func setDNSDefaults(dns *DNSConfiguration) {
	if len(dns.Zones) == 0 {
		dns.Zones = []string{DefaultZone}
	}
	setPointerDefault(&dns.DefaultTTL, 120)
	setDefault(&dns.Provider, DNSProviderCoreDNS)
	if len(dns.RFC2136.Zones) == 0 {
		dns.RFC2136.Zones = slices.Clone(dns.Zones)
	}
	setPointerDefault(&dns.RFC2136.Timeout, metav1.Duration{Duration: 5 * time.Second})

	setDefault(&dns.CoreDNS.Namespace, DefaultCoreDNSNamespace)
	setDefault(&dns.CoreDNS.ClusterDomain, "cluster.local")
	setPointerDefault(&dns.CoreDNS.Deploy, true)
	setPointerDefault(&dns.CoreDNS.Replicas, 1)
	setPointerDefault(&dns.CoreDNS.BatchWindow, metav1.Duration{Duration: 50 * time.Millisecond})
	setPointerDefault(&dns.CoreDNS.ConfirmTimeout, metav1.Duration{Duration: 10 * time.Second})
}

func setLoadBalancerDefaults(loadBalancers *LoadBalancersConfiguration, coreDNSNamespace string) {
	if len(loadBalancers.HostAddresses) == 0 {
		loadBalancers.HostAddresses = []string{"172.18.255.1", "fd00:ff::1"}
	}
	if len(loadBalancers.ZoneAddresses) == 0 {
		loadBalancers.ZoneAddresses = map[string][]string{
			"0": {"172.18.255.10", "fd00:ff::10"},
			"1": {"172.18.255.11", "fd00:ff::11"},
			"2": {"172.18.255.12", "fd00:ff::12"},
		}
	}
	if len(loadBalancers.Pools) == 0 {
		// 172.18.255.255 is the broadcast address of the network that Docker gives to kind, 172.18.0.0/16.
		loadBalancers.Pools = []string{"172.18.255.128-172.18.255.254", "fd00:ff::1:0/120"}
	}

	for _, service := range wellKnownServices(coreDNSNamespace) {
		if !slices.ContainsFunc(loadBalancers.Services, func(own LoadBalancerService) bool {
			return own.Namespace == service.Namespace && own.Name == service.Name
		}) {
			loadBalancers.Services = append(loadBalancers.Services, service)
		}
	}
}

// wellKnownServices have the node ports of Gardener's provider-local and of the kind configurations made for it.
func wellKnownServices(coreDNSNamespace string) []LoadBalancerService {
	vip := corev1.LoadBalancerIPModeVIP
	return append([]LoadBalancerService{
		{Namespace: "istio-ingress", Name: gateway, IPMode: &vip, NodePorts: https(30433)},
		{Namespace: "istio-ingress--0", Name: gateway, NodePorts: https(30434)},
		{Namespace: "istio-ingress--1", Name: gateway, NodePorts: https(30435)},
		{Namespace: "istio-ingress--2", Name: gateway, NodePorts: https(30436)},
	}, GardenServices(coreDNSNamespace)...)
}

// GardenServices returns those well-known Services that a garden runtime cluster has even if it is no seed.
func GardenServices(coreDNSNamespace string) []LoadBalancerService {
	return []LoadBalancerService{
		{Namespace: "virtual-garden-istio-ingress", Name: gateway, Addresses: []string{"172.18.255.3", "fd00:ff::3"}, NodePorts: https(31433)},
		{Namespace: "garden", Name: "nginx-ingress-controller", Addresses: []string{"172.18.255.4", "fd00:ff::4"}, NodePorts: https(30448)},
		{
			Namespace: coreDNSNamespace, Name: "coredns-host", Addresses: []string{"172.18.255.53", "fd00:ff::53"},
			NodePorts: []LoadBalancerNodePort{{Port: 53, NodePort: 30053}},
		},
	}
}

// https fixes the node port of port 443.
func https(nodePort int32) []LoadBalancerNodePort {
	return []LoadBalancerNodePort{{Port: 443, NodePort: nodePort}}
}

func setDefault[T comparable](field *T, value T) { *field = cmp.Or(*field, value) }

func setPointerDefault[T any](field **T, value T) { *field = cmp.Or(*field, &value) }

// byName returns the controllers by the names of their fields.
func (c *ControllersConfiguration) byName() map[string]*ControllerConfiguration {
	return map[string]*ControllerConfiguration{
		"backupBucket":            &c.BackupBucket,
		"backupEntry":             &c.BackupEntry,
		"dnsRecord":               &c.DNSRecord,
		"extension":               &c.Extension,
		"bastion":                 &c.Bastion,
		"controlPlane":            &c.ControlPlane,
		"infrastructure":          &c.Infrastructure,
		"operatingSystemConfig":   &c.OperatingSystemConfig,
		"selfHostedShootExposure": &c.SelfHostedShootExposure,
		"worker":                  &c.Worker,
		"healthCheck":             &c.HealthCheck.ControllerConfiguration,
		"ingress":                 &c.Ingress,
		"service":                 &c.Service,
	}
}
