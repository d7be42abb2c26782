// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// hostile returns a client for a server that answers requests by handle.
func hostile(t *testing.T, handle http.HandlerFunc) client.WithWatch {
	t.Helper()
	server := httptest.NewUnstartedServer(handle)
	server.Config.ErrorLog = nil
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)

	var reads atomic.Int32
	found, err := newClusters(seed(&reads, remoteCredentials("cloudprovider", server.URL)), nil, 1, guard{loopback: true}).Get(t.Context(), ref, technicalID)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return found.Client.(client.WithWatch)
}

func writeJSON(w http.ResponseWriter, code int, content string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, content)
}

func TestAnAnswerWithoutEndIsNotRead(t *testing.T) {
	for name, head := range map[string]string{"an object": `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"`, "no object": " "} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var sent atomic.Int64
			c := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
				writeJSON(w, http.StatusOK, head)
				chunk := bytes.Repeat([]byte("x"), 64<<10)
				for {
					n, err := w.Write(chunk)
					if sent.Add(int64(n)); err != nil || sent.Load() > 64<<20 {
						return
					}
				}
			})
			err := c.Get(t.Context(), client.ObjectKey{Name: "any"}, &corev1.Namespace{})
			g.Expect(err).To(MatchError(ContainSubstring("the server's answer is larger than 8 MiB")))
			g.Expect(sent.Load()).To(BeNumerically("<", 32<<20), "the rest is not taken off the server")
		})
	}
}

// TestQuantitiesThatTakeHoursAreNotParsed has a server send what resource.Quantity writes out, digit by digit.
func TestQuantitiesThatTakeHoursAreNotParsed(t *testing.T) {
	for quantity, isRefused := range map[string]bool{
		`"1e-999999999"`: true, `1e-999999999`: true, "\"\u00a0 -.1E-0300000\u2003\"": true, `"123456789012345678901e+999999999"`: true, `"1e99999"`: true,
		"\n1e-999999999\n": true, `"` + strings.Repeat("1", 1<<20) + `"`: true, `{"a": -.` + strings.Repeat("1", 1<<20) + `}`: true,
		`"` + strings.Repeat("1", 64) + `"`: false,
		`"1e-99"`:                           false, `"1e9999"`: false, `"110Mi"`: false, `"1234567e-4123-4123-8123-123456789012"`: false,
	} {
		t.Run(quantity, func(t *testing.T) {
			g := NewWithT(t)
			c := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
				writeJSON(w, http.StatusOK, `{"kind":"Pod","apiVersion":"v1","metadata":{"name":"any"},"spec":{"overhead":{"cpu": `+quantity+`}}}`)
			})
			ended := make(chan error, 1)
			go func() { ended <- c.Get(t.Context(), client.ObjectKey{Namespace: "any", Name: "any"}, &corev1.Pod{}) }()
			refused := MatchError(ContainSubstring("a number that is too long, or whose exponent is too large"))
			if !isRefused {
				refused = Or(BeNil(), Not(refused))
			}
			g.Eventually(ended, "10s").Should(Receive(refused))
		})
	}
}

func TestEmptyElementsAreNotDecoded(t *testing.T) {
	for name, elements := range map[string]string{
		"on one line": strings.Repeat("{},", 1<<18), "on lines of their own": strings.Repeat("null,\n", 1<<18),
		"one within the other": strings.Repeat(strings.Repeat(`{"a":`, 9000)+"1"+strings.Repeat("}", 9000)+",", 20),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
				writeJSON(w, http.StatusOK, `{"kind":"PodList","apiVersion":"v1","items":[`+elements+`{}]}`)
			})
			pods := &corev1.PodList{}
			g.Expect(c.List(t.Context(), pods)).To(MatchError(ContainSubstring("more than 131072 elements")))
			g.Expect(pods.Items).To(BeEmpty())
		})
	}
}

// TestDiscoveryIsNotAskedFor has a server that names versions without end, each of which a client would keep.
func TestDiscoveryIsNotAskedFor(t *testing.T) {
	g := NewWithT(t)
	var paths []string
	c := hostile(t, func(w http.ResponseWriter, request *http.Request) {
		paths = append(paths, request.URL.Path)
		writeJSON(w, http.StatusNotFound, `{}`)
	})
	pools := &unstructured.UnstructuredList{}
	pools.SetGroupVersionKind(machine.IPPoolKind.GroupVersion().WithKind(machine.IPPoolKind.Kind + "List"))
	for _, list := range []client.ObjectList{
		&corev1.NamespaceList{}, &corev1.PodList{}, &corev1.SecretList{}, &corev1.ServiceList{}, &networkingv1.NetworkPolicyList{}, &discoveryv1.EndpointSliceList{}, pools,
	} {
		g.Expect(c.List(t.Context(), list)).To(Satisfy(apierrors.IsNotFound))
	}
	g.Expect(paths).To(HaveExactElements(
		"/api/v1/namespaces", "/api/v1/pods", "/api/v1/secrets", "/api/v1/services", "/apis/networking.k8s.io/v1/networkpolicies",
		"/apis/discovery.k8s.io/v1/endpointslices", "/apis/crd.projectcalico.org/v1/ippools",
	))
}

// TestMetadataIsAskedForInJSON has a server that answers as an API server does, in what the client likes best.
func TestMetadataIsAskedForInJSON(t *testing.T) {
	g := NewWithT(t)
	c := hostile(t, func(w http.ResponseWriter, request *http.Request) {
		if strings.Contains(request.Header.Get("Accept"), "protobuf") {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf")
			return
		}
		writeJSON(w, http.StatusOK, `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","items":[{"metadata":{"name":"any"}}]}`)
	})
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	g.Expect(c.List(t.Context(), list)).To(Succeed())
	g.Expect(list.Items).To(HaveLen(1))
}

func TestQuantitiesThatTakeHoursAreNotParsedOfAWatch(t *testing.T) {
	g := NewWithT(t)
	c := hostile(t, func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json;stream=watch")
		for _, quantity := range []string{"1", "1e-99", "1e-999999999"} {
			for _, part := range []string{`{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":"x"},"spec":{"overhead":{"cpu":"`, quantity, `"}}}}`, "\n"} {
				_, _ = io.WriteString(w, part)
				_ = http.NewResponseController(w).Flush()
			}
		}
		<-request.Context().Done()
	})
	watcher, err := c.Watch(t.Context(), &corev1.PodList{})
	g.Expect(err).NotTo(HaveOccurred())
	defer watcher.Stop()
	added := HaveField("Type", watch.Added)
	g.Eventually(watcher.ResultChan(), "10s").Should(Receive(added))
	g.Eventually(watcher.ResultChan(), "10s").Should(Receive(added))
	g.Eventually(watcher.ResultChan(), "10s").Should(BeClosed())
}

func TestAWatchEndsWhenItHasSentTooMuch(t *testing.T) {
	g := NewWithT(t)
	c := hostile(t, func(w http.ResponseWriter, request *http.Request) {
		w.Header().Set("Content-Type", "application/json;stream=watch")
		for request.Context().Err() == nil {
			if _, err := fmt.Fprintf(w, `{"type":"ADDED","object":{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"x","annotations":{"a":%q}}}}`, strings.Repeat("x", 1<<20)); err != nil {
				return
			}
		}
	})
	watcher, err := c.Watch(t.Context(), &corev1.NamespaceList{})
	g.Expect(err).NotTo(HaveOccurred())
	defer watcher.Stop()
	events := 0
	for range watcher.ResultChan() {
		events++
	}
	g.Expect(events).To(BeNumerically("~", 7, 2))
}

func TestWhatAServerSaysIsLoggedAndNotRepeated(t *testing.T) {
	const secret = "the metadata of somebody else"
	status := func(code int, reason metav1.StatusReason, message string, causes ...metav1.StatusCause) *metav1.Status {
		return &metav1.Status{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: int32(code), Reason: reason, Message: message, // #nosec G115 -- small
			Details: &metav1.StatusDetails{Name: secret, Causes: causes},
		}
	}
	inJSON := func(status *metav1.Status) string {
		content, err := json.Marshal(status)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return string(content)
	}
	for name, test := range map[string]struct {
		code              int
		contentType, body string
		is                func(error) bool
		message           string
	}{
		"an answer of another server":   {http.StatusUnauthorized, "text/html", secret, apierrors.IsUnauthorized, "401 (Unauthorized)"},
		"one that has no kind":          {http.StatusInternalServerError, "application/json", `{"message":"` + secret + `"}`, apierrors.IsInternalError, "500 (InternalError)"},
		"a code that there is not":      {599, "text/plain", secret, apierrors.IsUnexpectedServerError, "599 (InternalError)"},
		"an API server's":               {http.StatusForbidden, "application/json", inJSON(status(http.StatusForbidden, "Forbidden", secret)), apierrors.IsForbidden, "403 (Forbidden)"},
		"a reason that clients know":    {http.StatusConflict, "application/json", inJSON(status(http.StatusConflict, "AlreadyExists", secret)), apierrors.IsAlreadyExists, "409 (AlreadyExists)"},
		"a reason that there is not":    {http.StatusBadRequest, "application/json", inJSON(status(http.StatusBadRequest, secret, secret)), apierrors.IsBadRequest, "400 (BadRequest)"},
		"broken JSON":                   {http.StatusNotFound, "application/json", "{" + secret, apierrors.IsNotFound, "404 (NotFound)"},
		"a quota that is exceeded":      {http.StatusForbidden, "application/json", inJSON(status(http.StatusForbidden, "Forbidden", secret+" exceeded quota: "+secret)), apierrors.IsForbidden, "exceeded quota"},
		"a namespace that is going":     {http.StatusForbidden, "application/json", inJSON(status(http.StatusForbidden, "Forbidden", secret, metav1.StatusCause{Type: corev1.NamespaceTerminatingCause, Message: secret})), func(err error) bool { return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) }, "403"},
		"more than anybody should send": {http.StatusServiceUnavailable, "text/plain", strings.Repeat(secret, 1<<16), apierrors.IsServiceUnavailable, "503"},
		"Protocol Buffers":              {http.StatusOK, "application/vnd.kubernetes.protobuf", "k8s\x00" + secret, func(error) bool { return true }, "the server is no API server"},
		"no answer of an API server":    {http.StatusOK, "text/html", secret, func(error) bool { return true }, "the server is no API server"},
		"a redirect":                    {http.StatusFound, "text/html", secret, func(error) bool { return true }, "redirect (302)"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := hostile(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", test.contentType)
				w.Header().Set("Retry-After", "1000")
				w.Header().Set("Location", "https://"+strings.ReplaceAll(secret, " ", "."))
				w.WriteHeader(test.code)
				_, _ = io.WriteString(w, test.body)
			})
			var logged atomic.Pointer[string]
			log := funcr.New(func(_, args string) {
				if strings.Contains(args, secret) {
					logged.Store(&args)
				}
			}, funcr.Options{})
			err := c.Get(logr.NewContext(t.Context(), log), client.ObjectKey{Name: "any"}, &corev1.Namespace{})
			g.Expect(err).To(MatchError(And(ContainSubstring(test.message), Not(ContainSubstring("somebody")))))
			g.Expect(test.is(err)).To(BeTrue(), "%v", err)
			if test.code >= http.StatusBadRequest {
				g.Expect(logged.Load()).NotTo(BeNil())
				g.Expect(len(*logged.Load())).To(BeNumerically("<", 2*messageMax))
			}
		})
	}
}

func TestAnErrorOfTheConnectionIsTheSameEachTime(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	defer func() { _ = listener.Close() }()
	var accepted atomic.Int32
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			// It speaks, but nothing that the other side knows.
			_, _ = fmt.Fprintf(connection, "HTTP/1.0 400 %d\r\n\r\nsomebody's secret", accepted.Add(1))
			_ = connection.Close()
		}
	}()
	plain := httptest.NewTLSServer(http.NotFoundHandler())
	defer plain.Close()
	gone := httptest.NewTLSServer(http.NotFoundHandler())
	gone.Close()

	for name, test := range map[string]struct {
		kubeconfig []byte
		message    string
	}{
		"what is no TLS": {kubeconfig("https://" + listener.Addr().String()), "the connection to the server breaks off, or it does not speak HTTP by TLS"},
		"a certificate that nobody trusts": {kubeconfig(plain.URL, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify = false
		}), "the server's certificate is not trusted"},
		"nobody there": {kubeconfig(gone.URL), "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var reads atomic.Int32
			found, err := newClusters(seed(&reads, credentials("cloudprovider", map[string][]byte{"kubeconfig": test.kubeconfig})), nil, 1, guard{loopback: true}).Get(t.Context(), ref, technicalID)
			g.Expect(err).NotTo(HaveOccurred())
			first := found.Client.Get(t.Context(), client.ObjectKey{Name: "any"}, &corev1.Namespace{})
			second := found.Client.Get(t.Context(), client.ObjectKey{Name: "any"}, &corev1.Namespace{})
			g.Expect(first).To(MatchError(And(ContainSubstring(test.message), Not(ContainSubstring("somebody")), Not(ContainSubstring("example.com")))))
			g.Expect(second).To(MatchError(first.Error()))
		})
	}
}

func TestNoProxyIsUsed(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("HTTPS_PROXY", "http://192.0.2.1:3128")
	config, err := Parse(kubeconfig("https://example.org"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Proxy).NotTo(BeNil(), "client-go takes nil for the proxy that the environment names")
	request := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://example.org", nil)
	g.Expect(config.Proxy(request)).To(BeNil())
}

func TestTheAddressesOfServers(t *testing.T) {
	allowed := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for address, test := range map[string]struct{ any, listed bool }{
		"127.0.0.1":              {false, false},
		"::1":                    {false, false},
		"::ffff:127.0.0.1":       {false, false},
		"169.254.169.254":        {false, false},
		"::ffff:169.254.169.254": {false, false},
		"fe80::1%eth0":           {false, false},
		"0.0.0.0":                {false, false},
		"0.1.2.3":                {false, false},
		"::":                     {false, false},
		"224.0.0.1":              {false, false},
		"ff02::1":                {false, false},
		"255.255.255.255":        {false, false},
		"10.1.2.3":               {true, true},
		"::ffff:10.1.2.3":        {true, true},
		"fd00::1":                {true, true},
		"192.168.1.1":            {true, false},
		"198.51.100.1":           {true, false},
		"2001:db8::1":            {true, false},
	} {
		t.Run(address, func(t *testing.T) {
			g := NewWithT(t)
			for _, test := range []struct {
				guard guard
				ok    bool
			}{{guard{}, test.any}, {guard{allowed: allowed}, test.listed}} {
				err := test.guard.check(netip.MustParseAddr(address))
				g.Expect(err == nil).To(Equal(test.ok), "%v", err)
				if err != nil {
					g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
				}
			}
		})
	}
}

// What counts is the address that a name has when the connection is made.
func TestANameThatLeadsToAForbiddenAddressIsNotDialled(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	var reached atomic.Bool
	server.Config.ConnState = func(net.Conn, http.ConnState) { reached.Store(true) }
	server.StartTLS()
	defer server.Close()
	_, port, err := net.SplitHostPort(server.Listener.Addr().String())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())

	for _, host := range []string{"localhost", "127.0.0.1"} {
		t.Run(host, func(t *testing.T) {
			g := NewWithT(t)
			var reads atomic.Int32
			found, err := New(seed(&reads, remoteCredentials("cloudprovider", "https://"+net.JoinHostPort(host, port))), nil).Get(t.Context(), ref, technicalID)
			g.Expect(err).NotTo(HaveOccurred())
			err = found.Client.Get(t.Context(), client.ObjectKey{Name: "any"}, &corev1.Namespace{})
			g.Expect(err).To(MatchError(ContainSubstring("is a loopback, link-local, multicast or unspecified one")))
			g.Expect(v1beta1helper.ExtractErrorCodes(err)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
			g.Expect(reached.Load()).To(BeFalse())
		})
	}
}

func TestAServerThatDoesNotAnswerIsNotWaitedForLonger(t *testing.T) {
	g := NewWithT(t)
	var deadlines []time.Duration
	transport := &bounded{roundTrip(func(request *http.Request) (*http.Response, error) {
		deadline, _ := request.Context().Deadline()
		deadlines = append(deadlines, time.Until(deadline).Round(time.Second))
		return nil, io.EOF
	})}
	for _, path := range []string{"/api/v1/pods", "/api/v1/pods?watch=true&timeoutSeconds=100000"} {
		_, err := transport.RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		g.Expect(err).To(MatchError(io.EOF))
	}
	g.Expect(deadlines).To(Equal([]time.Duration{requestTimeout, watchTimeout}))
}

type roundTrip func(*http.Request) (*http.Response, error)

func (r roundTrip) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
