// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coredns/caddy"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/rewrite"
	_ "github.com/coredns/coredns/plugin/template"
	_ "github.com/coredns/coredns/plugin/view"
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/gardener/gardener-extension-provider-local/skaffold/images/coredns/custom"
)

const (
	namespace = "coredns-test"
	// corefile has the shape of charts/components/coredns; the plugin hosts stands in for the cluster's name server.
	corefile = `
local.gardener.cloud:0 {
    view external {
        expr proto() == 'tcp'
    }
    loadbalance
    custom literal
}
local.gardener.cloud:0 {
    loadbalance
    custom rewrite
}
local.gardener.cloud:HOST {
    loadbalance
    custom literal
}
.:0 {
    view clients {
        expr incidr(client_ip(), '192.0.2.0/24') || incidr(client_ip(), 'CLIENTS')
    }
    hosts {
        10.4.0.10 istio-ingressgateway.istio-ingress.svc.cluster.local
        fd00::10  istio-ingressgateway.istio-ingress.svc.cluster.local
        192.0.2.7 elsewhere.example.org

    }
    template ANY ANY broken.example.org {
        rcode SERVFAIL
    }
    template ANY ANY none.example.org {
        rcode NXDOMAIN
        authority "none.example.org. 60 IN SOA ns.example.org. mail.example.org. 1 60 60 60 60"
    }
    template ANY ANY nowhere.svc.cluster.local {
        rcode NXDOMAIN
    }
}
`
)

// plugin is registered once for a process, as CoreDNS keeps its plugins in a global table.
var plugin = sync.OnceValues(func() (*custom.Store, error) {
	store := custom.NewStore(prometheus.NewRegistry())
	return store, custom.Register(store)
})

// server is a running CoreDNS.
type server struct {
	store    *custom.Store
	udp, tcp string
	// host is where everybody gets the view from outside.
	host string
}

func start(tb testing.TB) *server {
	tb.Helper()
	return startFor(tb, "127.0.0.0/8")
}

// startFor starts a server that looks up other names for clients of a network only.
func startFor(tb testing.TB, clients string) *server {
	tb.Helper()
	store, err := plugin()
	if err != nil {
		tb.Fatalf("registering the plugin: %v", err)
	}
	store.Reset()

	host := freePort(tb)
	contents := strings.NewReplacer("HOST", host, "CLIENTS", clients).Replace(corefile)
	instance, err := caddy.Start(caddy.CaddyfileInput{Contents: []byte(contents), Filepath: "Corefile", ServerTypeName: "dns"})
	if err != nil {
		tb.Fatalf("starting CoreDNS: %v", err)
	}
	tb.Cleanup(func() {
		if err := instance.Stop(); err != nil {
			tb.Errorf("stopping CoreDNS: %v", err)
		}
	})
	s := &server{store: store, host: net.JoinHostPort("127.0.0.1", host)}
	for _, listener := range instance.Servers() {
		if loopback(listener.Addr()) == s.host {
			continue
		}
		s.udp = loopback(listener.LocalAddr())
		s.tcp = loopback(listener.Addr())
	}
	return s
}

// freePort returns a port that is free for TCP, and for UDP as far as anybody can tell.
func freePort(tb testing.TB) string {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("looking for a free port: %v", err)
	}
	defer func() { _ = listener.Close() }()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port
}

func loopback(address net.Addr) string {
	_, port, _ := net.SplitHostPort(address.String())
	return net.JoinHostPort("127.0.0.1", port)
}

// watch fills the server from a fake API server until the test ends.
func (s *server) watch(tb testing.TB, directory string, objects ...*corev1.ConfigMap) *fake.Clientset {
	tb.Helper()
	client := fake.NewClientset()
	for _, object := range objects {
		if err := client.Tracker().Add(object); err != nil {
			tb.Fatalf("adding a ConfigMap: %v", err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	tb.Cleanup(cancel)
	if err := custom.Watch(ctx, s.store, client, namespace, directory); err != nil {
		tb.Fatalf("watching: %v", err)
	}
	return client
}

// query asks by "udp" or "tcp", or by these at the listener of the host: "host udp" or "host tcp".
func (s *server) query(network, name, rrtype string) (*dns.Msg, error) {
	address := s.udp
	if network == "tcp" {
		address = s.tcp
	}
	if onHost, ok := strings.CutPrefix(network, "host "); ok {
		network, address = onHost, s.host
	}
	client := dns.Client{Net: network, Timeout: 5 * time.Second}
	message := new(dns.Msg)
	message.SetQuestion(dns.Fqdn(name), dns.StringToType[rrtype])
	message.SetEdns0(4096, false)
	answer, _, err := client.Exchange(message, address)
	return answer, err
}

// ask returns the answer in short: the data of the records in the order of the answer, or the code.
func (s *server) ask(tb testing.TB, network, name, rrtype string) string {
	tb.Helper()
	answer, err := s.query(network, name, rrtype)
	if err != nil {
		tb.Fatalf("asking for %s %s by %s: %v", name, rrtype, network, err)
	}
	if len(answer.Answer) == 0 {
		code := dns.RcodeToString[answer.Rcode]
		for _, rr := range answer.Ns {
			code += " " + dns.TypeToString[rr.Header().Rrtype]
		}
		return code
	}
	data := make([]string, 0, len(answer.Answer))
	for _, rr := range answer.Answer {
		data = append(data, strings.TrimPrefix(rr.String(), rr.Header().String()))
	}
	return strings.Join(data, " ")
}

// eventually asks until the answer is the expected one.
func (s *server) eventually(tb testing.TB, network, name, rrtype, expected string) {
	tb.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for {
		answer := s.ask(tb, network, name, rrtype)
		if answer == expected {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("%s %s by %s is %q after 10 seconds, not %q", name, rrtype, network, answer, expected)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func configMap(name string, generation int, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace,
			Labels:      map[string]string{custom.Label: "true"},
			Annotations: map[string]string{custom.AnnotationGeneration: fmt.Sprint(generation)},
		},
		Data: data,
	}
}

func override(name string) string {
	name = strings.ReplaceAll(name, ".", `\.`)
	if rest, ok := strings.CutPrefix(name, `*\.`); ok {
		name = `.+\.` + rest
	}
	return `rewrite stop name regex ^` + name + `\.$ istio-ingressgateway.istio-ingress.svc.cluster.local answer auto` + "\n"
}
