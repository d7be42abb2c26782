// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/relay"
)

// What Gardener makes for a shoot's kube-apiserver, with TLS passed through or ended at the gateway, and for a dashboard.
const (
	passthrough = `
apiVersion: networking.istio.io/v1beta1
kind: Gateway
metadata: {name: kube-apiserver, namespace: shoot--local--one}
spec:
  selector: {app: istio-ingressgateway, istio: ingressgateway}
  servers:
  - hosts: [api.one.local.gardener.cloud, "*.one.wild.card"]
    port: {name: tls, number: 443, protocol: TLS}
    tls: {} # The API server leaves out PASSTHROUGH, the default.
---
apiVersion: networking.istio.io/v1beta1
kind: VirtualService
metadata: {name: kube-apiserver, namespace: shoot--local--one, creationTimestamp: "2026-01-01T00:00:00Z"}
spec:
  exportTo: [istio-ingress]
  gateways: [kube-apiserver]
  hosts: [api.one.local.gardener.cloud, "*.one.wild.card"]
  tls:
  - match:
    - port: 443
      sniHosts: [api.one.local.gardener.cloud, "*.one.wild.card"]
    route:
    - destination: {host: kube-apiserver.shoot--local--one.svc.cluster.local, port: {number: 443}}
`
	termination = `
apiVersion: networking.istio.io/v1beta1
kind: Gateway
metadata: {name: virtual-garden-kube-apiserver, namespace: garden}
spec:
  selector: {istio: ingressgateway}
  servers:
  - hosts: [api.virtual-garden.local]
    port: {name: tls, number: 443, protocol: HTTPS}
    tls: {mode: OPTIONAL_MUTUAL, credentialName: some}
---
apiVersion: networking.istio.io/v1beta1
kind: VirtualService
metadata: {name: virtual-garden-kube-apiserver, namespace: garden}
spec:
  gateways: [virtual-garden-kube-apiserver]
  hosts: [api.virtual-garden.local]
  http:
  - match: [{headers: {Upgrade: {}}}]
    route: [{destination: {host: upgrade.garden.svc.cluster.local, port: {number: 443}}}]
  - route: [{destination: {host: virtual-garden-kube-apiserver.garden.svc.cluster.local, port: {number: 443}}}]
---
apiVersion: networking.istio.io/v1beta1
kind: Gateway
metadata: {name: plutono, namespace: garden}
spec:
  selector: {istio: ingressgateway}
  servers:
  - hosts: [plutono.local]
    port: {name: tls, number: 443, protocol: HTTPS}
    tls: {mode: SIMPLE, credentialName: some}
---
apiVersion: networking.istio.io/v1beta1
kind: VirtualService
metadata: {name: plutono, namespace: garden, labels: {reference.gardener.cloud/basic-auth-server-name: auth}}
spec:
  gateways: [plutono]
  hosts: [plutono.local]
  http:
  - match: [{uri: {prefix: /api/admin/}}, {uri: {prefix: /quit}}]
    directResponse: {status: 403}
  - match: [{headers: {Upgrade: {}}}]
    directResponse: {status: 418}
  - match: [{uri: {prefix: /away}}]
    route: [{destination: {host: www.example.com, port: {number: 443}}}]
  - route: [{destination: {host: plutono.garden.svc.cluster.local, port: {number: 3000}}}]
`
	httpProxy = `
apiVersion: networking.istio.io/v1beta1
kind: Gateway
metadata: {name: http-proxy, namespace: istio-ingress}
spec:
  selector: {istio: ingressgateway}
  servers:
  - hosts: [non-existing-blackhole.garden.svc.cluster.local]
    port: {name: http-proxy, number: 8443, protocol: HTTP}
`
	service = `
apiVersion: v1
kind: Service
metadata:
  name: kube-apiserver
  namespace: shoot--local--one
  annotations: {networking.istio.io/exportTo: "istio-ingress,istio-ingress--0"}
spec:
  clusterIP: 10.96.0.7
  ports: [{port: 443}]
`
)

func objects(t *testing.T, documents ...string) []*unstructured.Unstructured {
	t.Helper()
	var all []*unstructured.Unstructured
	for _, document := range strings.Split(strings.Join(documents, "---"), "---") {
		u := &unstructured.Unstructured{}
		NewWithT(t).Expect(yaml.Unmarshal([]byte(document), &u.Object)).To(Succeed())
		all = append(all, u)
	}
	return all
}

func tableOf(t *testing.T, self identity, documents ...string) *table {
	t.Helper()
	g := NewWithT(t)
	var (
		gateways        []gateway
		virtualServices []virtualService
	)
	for _, u := range objects(t, documents...) {
		if u.GetKind() == "Gateway" {
			var item gateway
			g.Expect(convert(u, &item)).To(Succeed())
			gateways = append(gateways, item)
		} else {
			var item virtualService
			g.Expect(convert(u, &item)).To(Succeed())
			virtualServices = append(virtualServices, item)
		}
	}
	return buildTable(self, gateways, virtualServices)
}

func seedGateway() identity {
	return identity{namespace: "istio-ingress", labels: map[string]string{"app": "istio-ingressgateway", "istio": "ingressgateway", "more": "x"}}
}

func TestTable(t *testing.T) {
	kubeAPIServer := backend{namespace: "shoot--local--one", name: "kube-apiserver", port: 443}
	replace := func(old, with string) string { return strings.ReplaceAll(passthrough, old, with) }
	for _, test := range []struct {
		name     string
		self     identity
		document string
		host     string
		expected backend
	}{
		{"passes TLS through", seedGateway(), passthrough, "api.one.local.gardener.cloud", kubeAPIServer},
		{"knows wildcards", seedGateway(), passthrough, "a.b.one.wild.card", kubeAPIServer},
		{"does not take a wildcard's own domain", seedGateway(), passthrough, "one.wild.card", backend{}},
		{"does not know others", seedGateway(), passthrough, "api.two.local.gardener.cloud", backend{}},
		{"serves nobody without a server name", seedGateway(), passthrough, "", backend{}},
		{"leaves Gateways to whom they select", identity{namespace: "istio-ingress", labels: map[string]string{"istio": "ingressgateway--zone--0"}}, passthrough, "api.one.local.gardener.cloud", backend{}},
		{"leaves what is exported to others", identity{namespace: "istio-ingress--0", labels: seedGateway().labels}, passthrough, "api.one.local.gardener.cloud", backend{}},
		{"takes what is exported to all", seedGateway(), replace("exportTo: [istio-ingress]", `exportTo: ["*"]`), "api.one.local.gardener.cloud", kubeAPIServer},
		{"leaves what is exported to its own namespace", seedGateway(), replace("exportTo: [istio-ingress]", `exportTo: ["."]`), "api.one.local.gardener.cloud", backend{}},
		{"follows a Gateway of another namespace", seedGateway(), replace("gateways: [kube-apiserver]", "gateways: [shoot--local--one/kube-apiserver]"), "api.one.local.gardener.cloud", kubeAPIServer},
		{"ignores a Gateway that isn't there", seedGateway(), replace("gateways: [kube-apiserver]", "gateways: [other/kube-apiserver]"), "api.one.local.gardener.cloud", backend{}},
		{"serves no more than the Gateway's hosts", seedGateway(), replace("hosts: [api.one.local.gardener.cloud, \"*.one.wild.card\"]\n    port", "hosts: [x.one.wild.card]\n    port"), "y.one.wild.card", backend{}},
		{"serves a host of a wider pattern", seedGateway(), replace("hosts: [api.one.local.gardener.cloud, \"*.one.wild.card\"]\n    port", "hosts: [x.one.wild.card]\n    port"), "x.one.wild.card", kubeAPIServer},
		{"serves all hosts of a Gateway for all", seedGateway(), replace("hosts: [api.one.local.gardener.cloud, \"*.one.wild.card\"]\n    port", "hosts: [\"*\"]\n    port"), "api.one.local.gardener.cloud", kubeAPIServer},
		{"has no route for another port", seedGateway(), replace("- port: 443\n", "- port: 8443\n"), "api.one.local.gardener.cloud", backend{}},
		{"completes a destination's short name", seedGateway(), replace("kube-apiserver.shoot--local--one.svc.cluster.local", "kube-apiserver"), "api.one.local.gardener.cloud", kubeAPIServer},
		{"knows no destination outside of the cluster", seedGateway(), replace("kube-apiserver.shoot--local--one.svc.cluster.local", "www.example.com"), "api.one.local.gardener.cloud", backend{}},
		{"has no route without a destination", seedGateway(), replace("- destination: {host: kube-apiserver.shoot--local--one.svc.cluster.local, port: {number: 443}}", ""), "api.one.local.gardener.cloud", backend{}},
		{"passes through to a kube-apiserver where TLS with client certificates ends", seedGateway(), termination, "api.virtual-garden.local", backend{namespace: "garden", name: "virtual-garden-kube-apiserver", port: 443}},
		{"lets the older of two have the host", seedGateway(), passthrough + "---" + strings.NewReplacer("--one", "--two", "2026", "2025").Replace(passthrough), "api.one.local.gardener.cloud", backend{namespace: "shoot--local--two", name: "kube-apiserver", port: 443}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			to, found := tableOf(t, test.self, test.document).lookup(test.host)
			g.Expect(to).To(Equal(test.expected))
			g.Expect(found).To(Equal(test.expected != backend{}))
		})
	}
}

func TestTableKnowsWhereTLSEnds(t *testing.T) {
	g := NewWithT(t)
	to, found := tableOf(t, seedGateway(), termination).lookup("plutono.local")
	g.Expect(found).To(BeTrue())
	g.Expect(to).To(Equal(backend{site: &site{
		credential: "some",
		auth:       backend{namespace: "garden", name: "auth", port: 10000},
		rules: []rule{
			{prefixes: []string{"/api/admin/", "/quit"}, status: http.StatusForbidden},
			{to: backend{namespace: "garden", name: "plutono", port: 3000}},
		},
	}}))
	public, _ := tableOf(t, seedGateway(), strings.ReplaceAll(termination, "basic-auth-server-name", "other")).lookup("plutono.local")
	g.Expect(public.site.auth).To(Equal(backend{}))
}

func TestSiteFindsTheFirstRuleForAPath(t *testing.T) {
	g := NewWithT(t)
	s := &site{rules: []rule{{prefixes: []string{"/a", "/b"}, status: 403}, {prefixes: []string{"/c"}, status: 404}}}
	for path, expected := range map[string]int{"/a": 403, "/bc": 403, "/c/a": 404, "/d": 0, "": 0} {
		found, ok := s.find(path)
		g.Expect(found.status).To(Equal(expected), path)
		g.Expect(ok).To(Equal(expected != 0), path)
	}
}

func TestTableOpensPortsOfHTTP(t *testing.T) {
	g := NewWithT(t)
	g.Expect(tableOf(t, seedGateway(), httpProxy).ports).To(Equal(map[int]bool{8443: true}))
	g.Expect(tableOf(t, identity{}, httpProxy).ports).To(BeEmpty())
}

func TestConnectBackend(t *testing.T) {
	for _, test := range []struct {
		cluster  string
		expected backend
	}{
		{"outbound|1194||vpn-seed-server.shoot--a--b.svc.cluster.local", backend{namespace: "shoot--a--b", name: "vpn-seed-server", port: 1194}},
		{"outbound|1194||vpn-seed-server-1.shoot--a--b.svc.cluster.local", backend{namespace: "shoot--a--b", name: "vpn-seed-server-1", port: 1194}},
		{"outbound|443||kube-apiserver.shoot--a--b.svc.cluster.local", backend{namespace: "shoot--a--b", name: "kube-apiserver", port: 443}},
		{"shoot--a--b--kube-apiserver-socket", backend{namespace: "shoot--a--b", name: "kube-apiserver", port: 443}},
		{"shoot-garden-soil--kube-apiserver-socket", backend{namespace: "shoot-garden-soil", name: "kube-apiserver", port: 443}},
	} {
		t.Run("goes to "+test.cluster, func(t *testing.T) {
			g := NewWithT(t)
			to, allowed := connectBackend(test.cluster)
			g.Expect(allowed).To(BeTrue())
			g.Expect(to).To(Equal(test.expected))
		})
	}
	for _, cluster := range []string{
		"", "outbound", "outbound|443||", "outbound|443||kube-apiserver", "outbound|443||kube-apiserver.svc.cluster.local",
		"outbound|9443||vpn-seed-server.shoot--a--b.svc.cluster.local", "outbound|443||gardener-apiserver.garden.svc.cluster.local",
		"outbound|1194||vpn-seed-server-5.shoot--a--b.svc.cluster.local", "outbound|1194||vpn-seed-server-10.shoot--a--b.svc.cluster.local",
		"outbound|443||kube-apiserver.a.b.svc.cluster.local", "outbound|443||kube-apiserver.example.com", "inbound|443||kube-apiserver.a.svc.cluster.local",
		"garden--kube-apiserver-socket", "--kube-apiserver-socket",
	} {
		t.Run("does not go to "+cluster, func(t *testing.T) {
			_, allowed := connectBackend(cluster)
			NewWithT(t).Expect(allowed).To(BeFalse())
		})
	}
}

func resourceOf(kind string) schema.GroupVersionResource {
	if kind == "Service" || kind == "Secret" {
		return schema.GroupVersionResource{Version: "v1", Resource: strings.ToLower(kind) + "s"}
	}
	return schema.GroupVersionResource{Group: "networking.istio.io", Version: "v1beta1", Resource: strings.ToLower(kind) + "s"}
}

func create(t *testing.T, client dynamic.Interface, documents ...string) {
	t.Helper()
	for _, u := range objects(t, documents...) {
		_, err := client.Resource(resourceOf(u.GetKind())).Namespace(u.GetNamespace()).Create(t.Context(), u, metav1.CreateOptions{})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	}
}

func TestWatcherFollowsTheCluster(t *testing.T) {
	g := NewWithT(t)
	kinds := map[schema.GroupVersionResource]string{}
	for _, kind := range []string{"Gateway", "VirtualService", "Service", "Secret"} {
		kinds[resourceOf(kind)] = kind + "List"
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), kinds)
	create(t, client, httpProxy, service)
	w, err := newWatcher(client, seedGateway())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(w.ready()).To(BeFalse())
	ctx, cancel := context.WithCancel(t.Context())
	probe := func() int {
		recorder := httptest.NewRecorder()
		readiness(ctx, w).ServeHTTP(recorder, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/healthz/ready", nil))
		return recorder.Code
	}
	g.Expect(probe()).To(Equal(http.StatusServiceUnavailable))
	ended := make(chan struct{})
	go func() { w.run(ctx); close(ended) }()
	g.Eventually(probe).Should(Equal(http.StatusOK))
	g.Expect(w.open(8443)).To(BeTrue())
	g.Expect(w.open(8132)).To(BeFalse())
	address := func() string {
		to, found := w.byHost("api.one.local.gardener.cloud")
		if !found {
			return "none"
		}
		address, err := w.address(to)
		if err != nil {
			return err.Error()
		}
		return address
	}
	g.Expect(address()).To(Equal("none"))

	create(t, client, passthrough)
	g.Eventually(address).Should(Equal("10.96.0.7:443"))

	services := client.Resource(resourceOf("Service")).Namespace("shoot--local--one")
	for _, change := range []struct{ old, with, expected string }{
		{"clusterIP: 10.96.0.7", "clusterIP: 10.96.0.8", "10.96.0.8:443"},
		{"clusterIP: 10.96.0.7", "clusterIP: None", "shoot--local--one/kube-apiserver has no address"},
		{"port: 443", "port: 444", "shoot--local--one/kube-apiserver has no port 443"},
		{"istio-ingress,", "other,", "shoot--local--one/kube-apiserver is not exported to istio-ingress"},
	} {
		_, err := services.Update(ctx, objects(t, strings.ReplaceAll(service, change.old, change.with))[0], metav1.UpdateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Eventually(address).Should(Equal(change.expected))
	}
	read := func(credential string) func() error {
		return func() error {
			_, err := w.certificate(credential)
			return err
		}
	}
	g.Expect(read("site")()).To(MatchError("no Secret istio-ingress/site"))
	create(t, client, certificateOf(t, "istio-ingress", "site"), certificateOf(t, "garden", "other"), "kind: Secret\nmetadata: {name: broken, namespace: istio-ingress}")
	g.Eventually(read("site")).Should(Succeed())
	g.Eventually(read("broken")).Should(MatchError(ContainSubstring("reading Secret istio-ingress/broken")))
	g.Expect(read("other")()).To(MatchError("no Secret istio-ingress/other"), "it is another namespace's")
	g.Expect(services.Delete(ctx, "kube-apiserver", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(address).Should(Equal("no Service shoot--local--one/kube-apiserver"))
	g.Expect(client.Resource(resourceOf("Gateway")).Namespace("shoot--local--one").Delete(ctx, "kube-apiserver", metav1.DeleteOptions{})).To(Succeed())
	g.Eventually(address).Should(Equal("none"))

	cancel()
	g.Eventually(ended).Should(BeClosed())
	g.Expect(probe()).To(Equal(http.StatusServiceUnavailable), "whoever ends is not ready")
}

// certificateOf returns a Secret with a new certificate.
func certificateOf(t *testing.T, namespace, name string) string {
	t.Helper()
	certificate, key, err := cert.GenerateSelfSignedCertKey("plutono.local", nil, []string{"other.local"})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	encode := base64.StdEncoding.EncodeToString
	return fmt.Sprintf("kind: Secret\nmetadata: {name: %s, namespace: %s}\ndata: {tls.crt: %s, tls.key: %s}", name, namespace, encode(certificate), encode(key))
}

// static is a router that knows one backend.
type static struct {
	host, at string
	ports    []int
}

func (s static) byHost(host string) (backend, bool)           { return backend{name: "some"}, host == s.host }
func (s static) open(port int) bool                           { return len(s.ports) > 0 && s.ports[0] == port }
func (s static) certificate(string) (*tls.Certificate, error) { return nil, errors.New("none") }
func (s static) address(backend) (string, error) {
	if s.at == "" {
		return "", errors.New("not there")
	}
	return s.at, nil
}

func start(t *testing.T, handle func(context.Context, net.Conn)) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	served := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { served <- relay.Serve(ctx, listener, 10, handle) }()
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Eventually(served).Should(Receive(BeNil()))
	})
	return listener.Addr().String()
}

func TestProxyPassesTLSThrough(t *testing.T) {
	api := httptest.NewTLSServer(http.HandlerFunc(func(response http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(response, "ok") }))
	defer api.Close()
	p := &proxy{router: static{host: "example.com", at: api.Listener.Addr().String()}, dial: (&net.Dialer{}).DialContext}
	address := start(t, p.serveTLS)
	get := func(host string) (string, error) {
		transport := api.Client().Transport.(*http.Transport).Clone()
		defer transport.CloseIdleConnections()
		transport.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+host, nil)
		if err != nil {
			return "", err
		}
		response, err := (&http.Client{Transport: transport}).Do(request)
		if err != nil {
			return "", err
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		return string(body), err
	}
	g := NewWithT(t)
	g.Expect(get("example.com")).To(Equal("ok"))
	_, err := get("other.example.com")
	g.Expect(err).To(MatchError(io.EOF))
	p.router = static{host: "example.com"}
	_, err = get("example.com")
	g.Expect(err).To(MatchError(io.EOF))
}

// hosted is a router that knows sites, and where their backends are.
type hosted struct {
	static
	sites     map[string]*site
	addresses map[string]string
	pair      tls.Certificate
}

func (h hosted) byHost(host string) (backend, bool) {
	at, found := h.sites[host]
	return backend{site: at}, found
}

func (h hosted) address(to backend) (string, error) {
	if address := h.addresses[to.name]; address != "" {
		return address, nil
	}
	return "", errors.New("not there")
}

func (h hosted) certificate(string) (*tls.Certificate, error) { return &h.pair, nil }

func TestProxyEndsTLSForSites(t *testing.T) {
	g := NewWithT(t)
	page := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		_, _ = io.WriteString(response, request.Host+request.URL.Path)
	}))
	defer page.Close()
	auth := httptest.NewServer(http.HandlerFunc(func(response http.ResponseWriter, request *http.Request) {
		if user, password, _ := request.BasicAuth(); request.Host != "plutono.local" || user != "admin" || password != "secret" {
			response.WriteHeader(http.StatusUnauthorized)
		}
	}))
	defer auth.Close()
	certificate, key, err := cert.GenerateSelfSignedCertKey("plutono.local", nil, []string{"other.local", "lost.local"})
	g.Expect(err).NotTo(HaveOccurred())
	pair, err := tls.X509KeyPair(certificate, key)
	g.Expect(err).NotTo(HaveOccurred())
	rules := []rule{{prefixes: []string{"/api/admin/"}, status: http.StatusForbidden}, {prefixes: []string{"/lost"}, to: backend{name: "lost"}}, {prefixes: []string{"/p"}, to: backend{name: "page"}}}
	router := hosted{pair: pair, addresses: map[string]string{"page": page.Listener.Addr().String(), "auth": auth.Listener.Addr().String()}, sites: map[string]*site{
		"plutono.local": {auth: backend{name: "auth"}, rules: rules},
		"other.local":   {rules: rules},
		"lost.local":    {auth: backend{name: "lost"}, rules: rules},
	}}
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	server := newSites(router)
	t.Cleanup(func() { _ = server.Close() })
	go func() { _ = server.ServeTLS(listener, "", "") }()
	p := &proxy{router: router, dial: (&net.Dialer{}).DialContext, sites: listener.Addr().String()}
	address := start(t, p.serveTLS)

	roots := x509.NewCertPool()
	g.Expect(roots.AppendCertsFromPEM(certificate)).To(BeTrue())
	for _, test := range []struct {
		name, url, host, password string
		expected                  int
		body                      string
	}{
		{"passes a request on", "https://plutono.local/page", "", "secret", http.StatusOK, "plutono.local/page"},
		{"heeds the port of a host", "https://plutono.local:443/page", "plutono.local:443", "secret", http.StatusOK, "plutono.local:443/page"},
		{"asks for a password", "https://plutono.local/page", "", "", http.StatusUnauthorized, ""},
		{"refuses another password", "https://plutono.local/page", "", "other", http.StatusUnauthorized, ""},
		{"asks for a password before it answers itself", "https://plutono.local/api/admin/", "", "", http.StatusUnauthorized, ""},
		{"answers itself", "https://plutono.local/api/admin/x", "", "secret", http.StatusForbidden, ""},
		{"needs a rule", "https://other.local/else", "", "", http.StatusNotFound, ""},
		{"needs a backend", "https://other.local/lost", "", "", http.StatusServiceUnavailable, ""},
		{"lets all in where nobody knows users", "https://other.local/page", "", "", http.StatusOK, "other.local/page"},
		{"lets nobody in whose server is lost", "https://lost.local/page", "", "secret", http.StatusServiceUnavailable, ""},
		{"serves no other host than TLS was for", "https://other.local/page", "plutono.local", "secret", http.StatusMisdirectedRequest, ""},
		{"serves no host that is no site", "https://other.local/page", "unknown.local", "secret", http.StatusMisdirectedRequest, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}, DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, network, address)
			}}
			defer transport.CloseIdleConnections()
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, test.url, nil)
			g.Expect(err).NotTo(HaveOccurred())
			if test.host != "" {
				request.Host = test.host
			}
			if test.password != "" {
				request.SetBasicAuth("admin", test.password)
			}
			response, err := (&http.Client{Transport: transport}).Do(request)
			g.Expect(err).NotTo(HaveOccurred())
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response.StatusCode).To(Equal(test.expected))
			g.Expect(string(body)).To(Equal(test.body))
		})
	}
}

func TestProxyConnects(t *testing.T) {
	const vpn = "outbound|1194||vpn-seed-server.shoot--a--b.svc.cluster.local"
	echo := start(t, func(_ context.Context, conn net.Conn) { _, _ = io.Copy(conn, conn) })
	for _, test := range []struct {
		name, header, destination string
		router                    router
		expected                  int
	}{
		{"a VPN", "X-Gardener-Destination", vpn, static{at: echo, ports: []int{8443}}, http.StatusOK},
		{"nobody by a header of another port", "Reversed-VPN", vpn, static{at: echo, ports: []int{8443}}, http.StatusForbidden},
		{"nobody without leave", "X-Gardener-Destination", "outbound|22||ssh.garden.svc.cluster.local", static{at: echo, ports: []int{8443}}, http.StatusForbidden},
		{"nobody who isn't there", "X-Gardener-Destination", vpn, static{ports: []int{8443}}, http.StatusServiceUnavailable},
		{"nobody at a port that isn't open", "X-Gardener-Destination", vpn, static{at: echo, ports: []int{8132}}, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			p := &proxy{router: test.router, dial: (&net.Dialer{}).DialContext}
			conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", start(t, p.serveConnect(8443, "X-Gardener-Destination")))
			g.Expect(err).NotTo(HaveOccurred())
			defer conn.Close()
			joined, err := relay.Connect(conn, "vpn:1194", http.Header{test.header: {test.destination}})
			if test.expected != http.StatusOK {
				var status *relay.StatusError
				g.Expect(err).To(HaveOccurred())
				if test.expected != 0 {
					g.Expect(errors.As(err, &status)).To(BeTrue())
					g.Expect(status.Code).To(Equal(test.expected))
				}
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			_, err = io.WriteString(joined, "hello")
			g.Expect(err).NotTo(HaveOccurred())
			answer := make([]byte, 5)
			_, err = io.ReadFull(joined, answer)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(answer)).To(Equal("hello"))
		})
	}
}

func TestProxyTurnsToAnotherPodWhereOneIsLost(t *testing.T) {
	g := NewWithT(t)
	ours, theirs := net.Pipe()
	defer ours.Close()
	calls := 0
	p := &proxy{router: static{host: "example.com", at: "192.0.2.1:443"}, dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		if calls++; calls == 1 {
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return theirs, nil
	}}
	conn, err := p.reach(t.Context(), backend{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(conn).To(Equal(theirs))
	g.Expect(calls).To(Equal(2))
}

func TestCounterTellsPrometheusOfConnections(t *testing.T) {
	g := NewWithT(t)
	c := &counter{}
	ask := func() string {
		response := httptest.NewRecorder()
		c.ServeHTTP(response, nil)
		return response.Body.String()
	}
	c.handler(func(context.Context, net.Conn) {
		g.Expect(ask()).To(And(ContainSubstring("istio_tcp_connections_opened_total 1\n"), ContainSubstring("istio_tcp_connections_closed_total 0\n")))
	})(t.Context(), nil)
	g.Expect(ask()).To(ContainSubstring("# TYPE istio_tcp_connections_closed_total counter\nistio_tcp_connections_closed_total 1\n"))
}

func TestParseLabels(t *testing.T) {
	g := NewWithT(t)
	g.Expect(parseLabels("app=\"istio-ingressgateway\"\nempty=\"\"\nbroken\ntopology.kubernetes.io/zone=\"0\"")).To(Equal(map[string]string{
		"app": "istio-ingressgateway", "empty": "", "topology.kubernetes.io/zone": "0",
	}))
}

func TestRunAcceptsTheArgumentsOfTheOriginalOnly(t *testing.T) {
	g := NewWithT(t)
	g.Expect(run(t.Context(), []string{"istio-iptables"})).To(MatchError(ContainSubstring("proxy router")))
	g.Expect(run(t.Context(), nil)).To(MatchError(ContainSubstring("proxy router")))
}
