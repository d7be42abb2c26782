// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	componentbaseconfigv1alpha1 "k8s.io/component-base/config/v1alpha1"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object

// ExtensionConfiguration is the configuration of one instance of this extension, be it operator-extension (class
// garden) or gardenlet-extension (classes seed and shoot).
type ExtensionConfiguration struct {
	metav1.TypeMeta `json:",inline"`

	// ClientConnection configures the client of the cluster in which the instance runs.
	ClientConnection componentbaseconfigv1alpha1.ClientConnectionConfiguration `json:"clientConnection"`
	// LeaderElection configures which replica of the instance works.
	LeaderElection componentbaseconfigv1alpha1.LeaderElectionConfiguration `json:"leaderElection"`
	// LogLevel is "debug", "info" (default) or "error".
	// +optional
	LogLevel string `json:"logLevel,omitempty"`
	// LogFormat is "json" (default) or "text".
	// +optional
	LogFormat string `json:"logFormat,omitempty"`
	// Server configures what the instance listens on.
	Server ServerConfiguration `json:"server"`
	// ExtensionClasses are the classes of extension objects that the instance serves. There is no default, as an empty
	// set means class shoot to Gardener's extension library: an instance refuses to start without one.
	ExtensionClasses []extensionsv1alpha1.ExtensionClass `json:"extensionClasses"`
	// Controllers configures the controllers.
	Controllers ControllersConfiguration `json:"controllers"`
	// DNS configures how DNSRecords are served.
	DNS DNSConfiguration `json:"dns"`
	// Backup configures where buckets are.
	Backup BackupConfiguration `json:"backup"`
	// Heartbeat configures the Lease by which Gardener sees that the instance is alive.
	Heartbeat HeartbeatConfiguration `json:"heartbeat"`
}

// ServerConfiguration are the servers of an instance.
type ServerConfiguration struct {
	// HealthProbes serves /healthz and /readyz. Default: port 8081 on all addresses.
	// +optional
	HealthProbes *Server `json:"healthProbes,omitempty"`
	// Metrics serves /metrics. Default: port 8080 on all addresses.
	// +optional
	Metrics *Server `json:"metrics,omitempty"`
}

// Server is an address to listen on.
type Server struct {
	// BindAddress is an IP address; empty for all of them.
	// +optional
	BindAddress string `json:"bindAddress,omitempty"`
	// Port is a TCP port, 1 to 65535.
	Port int `json:"port"`
}

// ControllersConfiguration are the controllers of an instance.
type ControllersConfiguration struct {
	// IgnoreOperationAnnotation makes the controllers reconcile on any change of an object's spec and not only when
	// Gardener asks for it by the annotation gardener.cloud/operation.
	// +optional
	IgnoreOperationAnnotation bool `json:"ignoreOperationAnnotation,omitempty"`
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

// DNSConfiguration is how DNSRecords are served.
type DNSConfiguration struct {
	// Zones are the domains below which records may be. Default: local.gardener.cloud.
	// +optional
	Zones []string `json:"zones,omitempty"`
	// DefaultTTL is the TTL in seconds of a record without one. Default 120.
	// +optional
	DefaultTTL *int64 `json:"defaultTTL,omitempty"`
	// CoreDNS configures the CoreDNS provider.
	// +optional
	CoreDNS CoreDNSConfiguration `json:"coreDNS,omitempty"`
}

// CoreDNSConfiguration is how the CoreDNS that both instances of a cluster share is deployed and written to.
type CoreDNSConfiguration struct {
	// Namespace is where CoreDNS and its configuration are. Default: gardener-extension-provider-local-coredns.
	// +optional
	Namespace string `json:"namespace,omitempty"`
	// Deploy tells whether the instance sees to it that CoreDNS is deployed. Default true.
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

// HeartbeatConfiguration is the Lease gardener-extension-heartbeat in the instance's namespace.
type HeartbeatConfiguration struct {
	// RenewIntervalSeconds is how often the Lease is renewed. Default 30.
	// +optional
	RenewIntervalSeconds *int32 `json:"renewIntervalSeconds,omitempty"`
}
