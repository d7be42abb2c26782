// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"net/url"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// parseDeadline is far more than the largest kubeconfig takes.
const parseDeadline = 20 * time.Second

// Whatever a user writes, what is accepted has all that it needs in itself and leads to a server with TLS, and neither takes
// long.
func FuzzParse(f *testing.F) {
	f.Add(kubeconfig("https://example.org"))
	f.Add(kubeconfig("http://example.org"))
	f.Add(kubeconfig("https://example.org", func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
		c.ProxyURL, c.CertificateAuthority, c.TLSServerName = "socks5://example.org", "/etc/passwd", "x"
		u.TokenFile, u.Impersonate = "/var/run/secrets/kubernetes.io/serviceaccount/token", "admin"
		u.Exec = &clientcmdapi.ExecConfig{APIVersion: "client.authentication.k8s.io/v1", Command: "touch"}
	}))
	f.Add([]byte("a: &a [x,x,x,x]\nb: &b [*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b]\nd: [*c,*c,*c,*c]\n"))
	f.Add([]byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: {server: 'https://[::1]%25:443'}}]\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		began := time.Now()
		config, err := Parse(data)
		if took := time.Since(began); took > parseDeadline {
			t.Fatalf("it takes %s", took)
		}
		if err != nil {
			return
		}
		server, err := url.Parse(config.Host)
		if err != nil || server.Scheme != "https" || server.Host == "" {
			t.Errorf("the server %q has no TLS", config.Host)
		}
		if config.Proxy == nil || config.Dial == nil || config.WrapTransport == nil {
			t.Error("its server is trusted")
		}
		if config.BearerTokenFile != "" || config.CAFile != "" || config.CertFile != "" || config.KeyFile != "" || config.ExecProvider != nil ||
			config.AuthProvider != nil || config.Impersonate.UserName != "" || config.Impersonate.UID != "" || len(config.Impersonate.Groups) > 0 {
			t.Errorf("it needs more than itself: %v", config)
		}
	})
}
