// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

// startProxy starts a proxy in a node where every load balancer leads to a server. asked is the address that it connected to last.
func startProxy(t *testing.T, server string) (address string, asked *atomic.Pointer[string]) {
	t.Helper()
	listener, asked := listen(t), &atomic.Pointer[string]{}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() {
		done <- serve(ctx, listener, newProxy([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/24")}, func(ctx context.Context, network, address string) (net.Conn, error) {
			asked.Store(&address)
			return (&net.Dialer{}).DialContext(ctx, network, server)
		}))
	}()
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Expect(<-done).To(Succeed())
	})
	return listener.Addr().String(), asked
}

func service(ip string, protocol corev1.Protocol, port int32) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "server"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Protocol: protocol, Port: port}}},
		Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: ip}}}},
	}
}

func freePort(t *testing.T) int32 {
	t.Helper()
	listener := listen(t)
	defer func() { _ = listener.Close() }()
	return int32(listener.Addr().(*net.TCPAddr).Port) // #nosec G115 -- a port
}

func TestAMachineReachesLoadBalancersAsLongAsTheyAreThere(t *testing.T) {
	g := NewWithT(t)
	server := listen(t)
	go func() {
		for {
			connection, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				// It answers once the client has said all.
				request, _ := io.ReadAll(connection)
				_, _ = fmt.Fprintf(connection, "heard %s", request)
				_ = connection.Close()
			}()
		}
	}()
	proxy, asked := startProxy(t, server.Addr().String())
	added := make(chan string, 10)
	port := freePort(t)
	client := fake.NewClientset(service("127.0.0.7", corev1.ProtocolTCP, port))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() {
		done <- watch(ctx, client, newForwarder(proxy, func(_ context.Context, address string) error {
			added <- address
			return nil
		}))
	}()

	address := fmt.Sprintf("127.0.0.7:%d", port)
	ask := func() (string, error) {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err != nil {
			return "", err
		}
		defer func() { _ = connection.Close() }()
		if _, err := io.WriteString(connection, "hello"); err != nil {
			return "", err
		}
		if err := connection.(*net.TCPConn).CloseWrite(); err != nil {
			return "", err
		}
		answer, err := io.ReadAll(connection)
		return string(answer), err
	}
	g.Eventually(ask).WithTimeout(10*time.Second).Should(Equal("heard hello"), "the watch starts")
	g.Expect(*asked.Load()).To(Equal(address))
	g.Expect(added).To(Receive(Equal("127.0.0.7")))

	g.Expect(client.CoreV1().Services("default").Delete(ctx, "server", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(func() error { _, err := ask(); return err }).WithTimeout(10*time.Second).Should(HaveOccurred(), "the Service is gone")
	cancel()
	g.Expect(<-done).To(Succeed())
}

func TestNamesAreResolvedByUDP(t *testing.T) {
	g := NewWithT(t)
	server := listen(t)
	handler := dns.HandlerFunc(func(w dns.ResponseWriter, request *dns.Msg) {
		answer := new(dns.Msg).SetReply(request)
		record, _ := dns.NewRR(request.Question[0].Name + " A 192.0.2.7")
		answer.Answer = []dns.RR{record}
		_ = w.WriteMsg(answer)
	})
	tcp := &dns.Server{Listener: server, Handler: handler}
	go func() { _ = tcp.ActivateAndServe() }()
	t.Cleanup(func() { _ = tcp.Shutdown() })
	proxy, _ := startProxy(t, server.Addr().String())

	packets, err := (&net.ListenConfig{}).ListenPacket(t.Context(), "udp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = packets.Close() }()
	go newForwarder(proxy, nil).answer(t.Context(), packets, netip.MustParseAddrPort("127.0.0.53:53"))
	answer, _, err := new(dns.Client).ExchangeContext(t.Context(), new(dns.Msg).SetQuestion("a.example.", dns.TypeA), packets.LocalAddr().String())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(answer.Answer).To(HaveLen(1))
	g.Expect(answer.Answer[0].String()).To(HaveSuffix("192.0.2.7"))
}

func TestTheProxyConnectsToLoadBalancersOnly(t *testing.T) {
	proxy, asked := startProxy(t, listen(t).Addr().String())
	f := newForwarder(proxy, nil)
	for _, address := range []string{"127.0.1.1:80", "10.2.0.1:443"} {
		_, err := f.connect(t.Context(), netip.MustParseAddrPort(address))
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("403 Forbidden")), address)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+proxy, nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	request.Host = "127.0.0.7:80"
	response, err := http.DefaultClient.Do(request)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer func() { _ = response.Body.Close() }()
	NewWithT(t).Expect(response.StatusCode).To(Equal(http.StatusForbidden))
	NewWithT(t).Expect(asked.Load()).To(BeNil())
}

func TestWhatIsListenedOn(t *testing.T) {
	g := NewWithT(t)
	clusterIP, byOthers, nameless := service("127.0.0.2", corev1.ProtocolTCP, 443), service("127.0.0.3", corev1.ProtocolTCP, 443), service("", corev1.ProtocolTCP, 443)
	clusterIP.Spec.Type = corev1.ServiceTypeClusterIP
	byOthers.Status.LoadBalancer.Ingress[0].IPMode = new(corev1.LoadBalancerIPModeProxy)
	g.Expect(endpoints([]*corev1.Service{clusterIP, byOthers, nameless, service("fd00:ff::1", corev1.ProtocolUDP, 53)})).To(Equal(map[endpoint]bool{
		{netip.MustParseAddrPort("[fd00:ff::1]:53"), corev1.ProtocolUDP}: true,
	}))

	// Another program may use an address, and end.
	f := newForwarder("", func(context.Context, string) error { return nil })
	other := listen(t)
	wanted := map[endpoint]bool{{netip.MustParseAddrPort(other.Addr().String()), corev1.ProtocolTCP}: true}
	g.Expect(f.sync(t.Context(), wanted)).To(MatchError(ContainSubstring("address already in use")))
	g.Expect(other.Close()).To(Succeed())
	g.Expect(f.sync(t.Context(), wanted)).To(Succeed())
	f.close()
}
