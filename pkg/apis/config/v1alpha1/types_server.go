// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Logging is how a program logs.
type Logging struct {
	// LogLevel is "debug", "info" (default) or "error".
	// +optional
	LogLevel string `json:"logLevel,omitempty"`
	// LogFormat is "json" (default) or "text".
	// +optional
	LogFormat string `json:"logFormat,omitempty"`
}

// LogOptions returns level and format, for those that know a configuration only by what it has in common with others.
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
