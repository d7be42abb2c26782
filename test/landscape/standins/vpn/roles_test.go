// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/program"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/relay"
)

func environment(pairs map[string]string) func(string) string {
	return func(name string) string { return pairs[name] }
}

func TestRun(t *testing.T) {
	for _, test := range []struct {
		name, args  string
		environment map[string]string
		expected    string
	}{
		{"has nothing to set up in the server", "/bin/vpn-server setup", nil, ""},
		{"has nothing to set up in the client", "/bin/vpn-client setup", map[string]string{"IS_SHOOT_CLIENT": "true"}, ""},
		{"refuses high availability", "/bin/vpn-client", map[string]string{"IS_HA": "true"}, "highly available"},
		{"refuses other commands", "/bin/vpn-client tunnel-controller", nil, "not stood in for"},
		{"refuses to be somebody else", "/vpn", nil, "not stood in for"},
		{"needs Envoy's configuration", "envoy -c", nil, "no configuration"},
		{"needs Envoy's configuration to be there", "envoy -c /does/not/exist", nil, "no such file"},
		{"needs the server's certificate", "/bin/vpn-server", nil, "certificate"},
		{"needs the client's certificate", "/bin/vpn-client", nil, "certificate"},
		{"needs an address", "/apiserver-proxy --ip-address= --daemon=false --interface=x", nil, "reading the address"},
		{"needs arguments that it knows", "/apiserver-proxy --setup-iptables", nil, "not defined"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			err := run(t.Context(), strings.Split(test.args, " "), environment(test.environment))
			if test.expected == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(test.expected)))
		})
	}
}

// passOnConfig has the shape of the configuration of apiserver-proxy.
const passOnConfig = `
static_resources:
  listeners:
  - name: kube_apiserver
    address: {socket_address: {address: 10.4.0.1, port_value: 443}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.tcp_proxy
        typed_config:
          cluster: kube_apiserver
          tunneling_config:
            hostname: "api.local:443"
            headers_to_add:
            - header: {key: X-Gardener-Destination, value: "shoot--a--b--kube-apiserver-socket"}
  - name: metrics
    address: {socket_address: {address: 0.0.0.0, port_value: 16910}}
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config: {stat_prefix: ingress_http}
  clusters:
  - name: kube_apiserver
    load_assignment:
      endpoints:
      - lb_endpoints:
        - endpoint: {address: {socket_address: {address: api.local, port_value: 8443}}}
`

func parse(t *testing.T, content string) *envoyConfig {
	t.Helper()
	config := &envoyConfig{}
	NewWithT(t).Expect(yaml.Unmarshal([]byte(content), config)).To(Succeed())
	return config
}

func TestEnvoyPassesOn(t *testing.T) {
	g := NewWithT(t)
	gateway := serve(t, func(_ context.Context, conn net.Conn) {
		request, conn, err := relay.ReadRequest(conn)
		if err != nil || request.Host != "api.local:443" || request.Header.Get("X-Gardener-Destination") != "shoot--a--b--kube-apiserver-socket" {
			relay.Answer(conn, http.StatusForbidden)
			return
		}
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\nkube-apiserver")
	})
	config := parse(t, passOnConfig)
	listeners := config.StaticResources.Listeners
	g.Expect(listeners[0].Address.String()).To(Equal("10.4.0.1:443"))
	handle, err := config.handler(listeners[0], func(ctx context.Context, network, address string) (net.Conn, error) {
		if address != "api.local:8443" {
			return nil, fmt.Errorf("unexpected %s", address)
		}
		return dial(ctx, network, gateway)
	}, "")
	g.Expect(err).NotTo(HaveOccurred())
	conn, err := dial(t.Context(), "tcp", serve(t, handle))
	g.Expect(err).NotTo(HaveOccurred())
	defer conn.Close()
	g.Expect(io.ReadAll(conn)).To(BeEquivalentTo("kube-apiserver"))

	config.StaticResources.Clusters = nil
	_, err = config.handler(listeners[0], dial, "")
	g.Expect(err).To(MatchError(ContainSubstring(`cluster "kube_apiserver" has no endpoint`)))
}

func TestEnvoyTellsThatAllIsWell(t *testing.T) {
	g := NewWithT(t)
	config := parse(t, passOnConfig)
	handle, err := config.handler(config.StaticResources.Listeners[1], dial, "")
	g.Expect(err).NotTo(HaveOccurred())
	address := serve(t, handle)
	g.Expect(program.Ask(t.Context(), "tcp", address, "/ready")).To(Succeed())
	g.Expect(program.Ask(t.Context(), "tcp", address, "/metrics")).To(Succeed())
	g.Expect(program.Ask(t.Context(), "tcp", address, "/quitquitquit")).To(MatchError(ContainSubstring("404")))
}

func TestEnvoyReadsWhoMayEnterTheVPN(t *testing.T) {
	g := NewWithT(t)
	dir := newAuthority(t).issue(t, serverName, x509.ExtKeyUsageServerAuth)
	content := strings.ReplaceAll(`
static_resources:
  listeners:
  - name: listener_0
    address: {socket_address: {address: 127.0.0.1, port_value: 0}}
    filter_chains:
    - transport_socket:
        typed_config:
          common_tls_context:
            tls_certificates:
            - certificate_chain: { filename: DIR/tls.crt }
              private_key: { filename: DIR/tls.key }
            validation_context: {trusted_ca: { filename: DIR/ca.crt }}
      filters:
      - typed_config: {stat_prefix: ingress_http}
`, "DIR", dir)
	file := filepath.Join(dir, "envoy.yaml")
	g.Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- runEnvoy(ctx, []string{"--concurrency", "2", "-c", file}) }()
	g.Consistently(ended, "100ms").ShouldNot(Receive())
	cancel()
	g.Eventually(ended).Should(Receive(BeNil()))

	g.Expect(os.Remove(filepath.Join(dir, "ca.crt"))).To(Succeed())
	g.Expect(runEnvoy(t.Context(), []string{"-c", file})).To(MatchError(ContainSubstring("listener listener_0: reading the authorities")))
	g.Expect(os.WriteFile(filepath.Join(dir, "ca.crt"), nil, 0o600)).To(Succeed())
	g.Expect(runEnvoy(t.Context(), []string{"-c", file})).To(MatchError(ContainSubstring("reading the authorities")))
}

func TestSidecarPutsTheAddressOnTheNode(t *testing.T) {
	g := NewWithT(t)
	// The thread is not unlocked, so that it ends with this test, and the namespace with it.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); errors.Is(err, unix.EPERM) {
		t.Skip("needs a network namespace of its own, and so the right to make one")
	} else {
		g.Expect(err).NotTo(HaveOccurred())
	}
	for range 2 {
		g.Expect(runSidecar(t.Context(), []string{"--ip-address=10.4.0.1", "--daemon=false", "--interface=apiserver-proxy"})).To(Succeed())
	}
	loopback, err := netlink.LinkByName("lo")
	g.Expect(err).NotTo(HaveOccurred())
	addresses, err := netlink.AddrList(loopback, netlink.FAMILY_V4)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(addresses).To(HaveLen(1))
	g.Expect(addresses[0].IPNet.String()).To(Equal("10.4.0.1/32"))
}
