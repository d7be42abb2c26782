// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
)

func handlerFor(t *testing.T, webhooks ...*extensionswebhook.Webhook) http.Handler {
	t.Helper()
	handler, err := newHandler(webhooks, logr.Discard())
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return handler
}

func review(t *testing.T) []byte {
	t.Helper()
	review := admissionv1.AdmissionReview{Request: &admissionv1.AdmissionRequest{UID: types.UID("1")}}
	review.SetGroupVersionKind(admissionv1.SchemeGroupVersion.WithKind("AdmissionReview"))
	body, err := json.Marshal(review)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return body
}

func call(t *testing.T, handler http.Handler, method, path string, body io.Reader) *http.Response {
	t.Helper()
	request := httptest.NewRequest(method, path, body)
	request.Header.Set("Content-Type", "application/json")
	recorder := httptest.NewRecorder()
	handler.ServeHTTP(recorder, request)
	return recorder.Result()
}

func answer(t *testing.T, response *http.Response) *admissionv1.AdmissionResponse {
	t.Helper()
	answer := admissionv1.AdmissionReview{}
	NewWithT(t).Expect(json.NewDecoder(response.Body).Decode(&answer)).To(Succeed())
	return answer.Response
}

func TestRoutes(t *testing.T) {
	handler := handlerFor(t, seedWebhook(), shootWebhook(), shootWebhook(func(w *extensionswebhook.Webhook) {
		w.Name, w.Path, w.Webhook = "pods", "pods", &admission.Webhook{Handler: note("pods")}
	}))

	for name, test := range map[string]struct {
		method, path string
		code         int
		message      string
	}{
		"the seed calls":                                  {path: "/pods", message: "pods for "},
		"a shoot calls":                                   {path: "/shoot-nodes/" + shootNamespace, message: "nodes for " + shootNamespace},
		"a shoot calls what the seed calls, too":          {path: "/pods/" + shootNamespace, message: "pods for " + shootNamespace},
		"a shoot does not say which":                      {path: "/shoot-nodes", code: http.StatusNotFound},
		"a shoot says nothing where its namespace is due": {path: "/shoot-nodes/", code: http.StatusNotFound},
		"a namespace that is none":                        {path: "/shoot-nodes/Shoot_One", code: http.StatusBadRequest},
		"a namespace with a slash in it":                  {path: "/shoot-nodes/a%2Fb", code: http.StatusBadRequest},
		"a namespace that goes up":                        {path: "/shoot-nodes/%2e%2e", code: http.StatusBadRequest},
		"a namespace that is too long":                    {path: "/shoot-nodes/" + strings.Repeat("a", 64), code: http.StatusBadRequest},
		"more than a namespace":                           {path: "/shoot-nodes/a/b", code: http.StatusNotFound},
		"a path that nobody has":                          {path: "/other", code: http.StatusNotFound},
		"a request that is no review":                     {method: http.MethodGet, path: "/pods", code: http.StatusMethodNotAllowed},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			method := test.method
			if method == "" {
				method = http.MethodPost
			}
			response := call(t, handler, method, test.path, bytes.NewReader(review(t)))
			if test.code != 0 {
				g.Expect(response.StatusCode).To(Equal(test.code))
				return
			}
			g.Expect(response.StatusCode).To(Equal(http.StatusOK))
			answer := answer(t, response)
			g.Expect(answer.Allowed).To(BeTrue())
			g.Expect(answer.UID).To(BeEquivalentTo("1"))
			g.Expect(answer.Result.Message).To(Equal(test.message))
		})
	}
}

func TestPanicIsAnAnswer(t *testing.T) {
	g := NewWithT(t)
	webhook := shootWebhook()
	webhook.Webhook = &admission.Webhook{
		// Even if a mutator wants it otherwise.
		RecoverPanic: new(false),
		Handler:      admission.HandlerFunc(func(context.Context, admission.Request) admission.Response { panic("nil map") }),
	}

	answer := answer(t, call(t, handlerFor(t, webhook), http.MethodPost, "/shoot-nodes/"+shootNamespace, bytes.NewReader(review(t))))
	g.Expect(answer.Allowed).To(BeFalse())
	g.Expect(answer.UID).To(BeEquivalentTo("1"))
	g.Expect(answer.Result.Code).To(BeEquivalentTo(http.StatusInternalServerError))
}

// endless is a body that never ends.
type endless struct{ read int }

func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	return len(p), nil
}

func TestBodyIsBounded(t *testing.T) {
	g := NewWithT(t)
	body := &endless{}
	g.Expect(call(t, handlerFor(t, seedWebhook()), http.MethodPost, "/pods", body).StatusCode).To(Equal(http.StatusRequestEntityTooLarge))
	g.Expect(body.read).To(BeNumerically("<", 3<<20))

	long := bytes.NewReader(make([]byte, 2<<20))
	g.Expect(call(t, handlerFor(t, seedWebhook()), http.MethodPost, "/pods", long).StatusCode).To(Equal(http.StatusRequestEntityTooLarge))
	large := seedWebhook(ofTypes(&extensionsv1alpha1.OperatingSystemConfig{}))
	g.Expect(call(t, handlerFor(t, large), http.MethodPost, "/pods", long).StatusCode).To(Equal(http.StatusOK), "it holds the files of a machine")
}

func TestAWebhookServesAsManyRequestsAsItMayAndNoMore(t *testing.T) {
	g := NewWithT(t)
	var (
		entered = make(chan struct{})
		leave   = make(chan struct{})
		held    = seedWebhook(func(w *extensionswebhook.Webhook) {
			w.TimeoutSeconds = new(int32(7))
			w.Webhook = &admission.Webhook{Handler: admission.HandlerFunc(func(ctx context.Context, _ admission.Request) admission.Response {
				if _, ok := ctx.Deadline(); !ok {
					return admission.Denied("no deadline")
				}
				entered <- struct{}{}
				<-leave
				return admission.Allowed("")
			})}
		})
		handler = handlerFor(t, held, shootWebhook())
		answers = make(chan *http.Response, 1000)
		body    = review(t)
		served  int
	)
	for full := false; !full; {
		go func() { answers <- call(t, handler, http.MethodPost, "/pods", bytes.NewReader(body)) }()
		select {
		case <-entered:
			served++
		case response := <-answers:
			g.Expect(response.StatusCode).To(Equal(http.StatusServiceUnavailable))
			g.Expect(response.Header.Get("Retry-After")).To(Equal("1"))
			full = true
		}
		g.Expect(served).To(BeNumerically("<=", 128))
	}
	g.Expect(served).To(Equal(128))
	g.Expect(call(t, handler, http.MethodPost, "/shoot-nodes/"+shootNamespace, bytes.NewReader(body)).StatusCode).To(Equal(http.StatusOK), "another webhook is not full")

	close(leave)
	for range served {
		g.Expect((<-answers).StatusCode).To(Equal(http.StatusOK))
	}
	go func() { <-entered }()
	g.Expect(call(t, handler, http.MethodPost, "/pods", bytes.NewReader(body)).StatusCode).To(Equal(http.StatusOK), "there is room again")
}

func TestRequestsAreCounted(t *testing.T) {
	g := NewWithT(t)
	handler := handlerFor(t, shootWebhook(func(w *extensionswebhook.Webhook) { w.Name, w.Path = "counted", "secret" }))
	before := requestsBelow(t, "/counted")
	for _, namespace := range []string{"a", "b", "c"} {
		call(t, handler, http.MethodPost, "/secret/"+namespace, bytes.NewReader(review(t)))
	}
	g.Expect(requestsBelow(t, "/counted")).To(Equal(map[string]float64{"/counted": before["/counted"] + 3}), "one time series for all shoots")
}

// requestsBelow returns how many requests have been counted in this process, by the paths that begin like this.
func requestsBelow(t *testing.T, prefix string) map[string]float64 {
	t.Helper()
	families, err := ctrlmetrics.Registry.Gather()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	counts := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "controller_runtime_webhook_requests_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if strings.HasPrefix(label.GetValue(), prefix) {
					counts[label.GetValue()] += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return counts
}

func TestServerServesAsSoonAsThereIsACertificate(t *testing.T) {
	e := newEnv(t, seedWebhook())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	e.Expect(err).NotTo(HaveOccurred())
	address := listener.Addr().(*net.TCPAddr)
	e.Expect(listener.Close()).To(Succeed())
	server := newServer(Options{BindAddress: "127.0.0.1", Port: address.Port}, handlerFor(t, seedWebhook()), e.store)

	ctx, cancel := context.WithCancel(e.ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- server.Start(ctx) }()
	defer func() {
		cancel()
		e.Eventually(stopped).Should(Receive(BeNil()))
	}()
	e.Expect(e.store.Ready(nil)).To(MatchError(certificate.ErrNone))

	post := func() error {
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(e.store.Bundle())
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: name + "." + namespace + ".svc", Time: now.Now}, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		response, err := (&http.Client{Transport: transport}).Post("https://"+address.String()+"/pods", "application/json", bytes.NewReader(review(t)))
		if err != nil {
			return err
		}
		defer response.Body.Close()
		e.Expect(response.ProtoMajor).To(Equal(2))
		e.Expect(answer(t, response).Allowed).To(BeTrue())
		return nil
	}
	e.Eventually(func() error { return server.StartedChecker()(nil) }).Should(MatchError(ContainSubstring("not reachable: remote error: tls")), "no certificate, no handshake")

	e.round()
	e.Expect(e.store.Ready(nil)).To(Succeed())
	e.Expect(post()).To(Succeed())
	first, err := e.store.GetCertificate(nil)
	e.Expect(err).NotTo(HaveOccurred())

	e.rotate()
	second, err := e.store.GetCertificate(nil)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(second.Leaf.Equal(first.Leaf)).To(BeFalse())
	e.Expect(post()).To(Succeed(), "the new certificate serves without a restart")
}

// deadlines notes the deadlines that are set.
type deadlines struct {
	*httptest.ResponseRecorder
	read, write time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error  { d.read = at; return nil }
func (d *deadlines) SetWriteDeadline(at time.Time) error { d.write = at; return nil }

func TestEveryRequestHasDeadlines(t *testing.T) {
	g := NewWithT(t)
	w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
	withTimeouts(http.NotFoundHandler()).ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/other", nil))
	g.Expect(w.Code).To(Equal(http.StatusNotFound))
	g.Expect(time.Until(w.read)).To(BeNumerically("~", readTimeout, 10*time.Second))
	g.Expect(time.Until(w.write)).To(BeNumerically("~", writeTimeout, 10*time.Second))
}
