// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package limits_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	. "github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
	"github.com/gardener/gardener-extension-provider-local/test/limitstest"
)

func TestWhatIsAQuantity(t *testing.T) {
	g := NewWithT(t)
	for _, text := range []string{"", "0", "100m", "1Ei", "1E", "12e6", "1e99", "1E-09", "-1e+12", "18446744073709551616", "many"} {
		g.Expect(IsQuantity(text)).To(BeTrue(), text)
	}
	for _, text := range []string{"1e100", "1E-100", "1e+0000000001", "1e30000000", strings.Repeat("1", 33), "1e9e99"} {
		g.Expect(IsQuantity(text)).To(BeFalse(), text)
	}
}

// What is taken for a quantity is compared, added and parsed at once.
func FuzzWhatIsAQuantityIsCheap(f *testing.F) {
	for _, text := range append(limitstest.Quantities(), "1e99", "1e-99", "9999999999999999999999999999e99", "0.0000000000000000000000000001") {
		f.Add(strings.Trim(text, `"`))
	}
	f.Fuzz(func(t *testing.T, text string) {
		if !IsQuantity(text) {
			t.Skip()
		}
		begin := time.Now()
		quantity, err := resource.ParseQuantity(text)
		if err != nil {
			t.Skip()
		}
		quantity.Add(resource.MustParse("1"))
		_ = quantity.Cmp(resource.MustParse("1Gi"))
		_ = quantity.String()
		NewWithT(t).Expect(time.Since(begin)).To(BeNumerically("<", time.Second))
	})
}

func TestRequestsWithQuantitiesOutOfBoundsAreRefusedBeforeTheyAreDecoded(t *testing.T) {
	decoded := false
	handler := Quantities(admission.HandlerFunc(func(context.Context, admission.Request) admission.Response {
		decoded = true
		return admission.Allowed("")
	}), &corev1.Pod{}, &appsv1.StatefulSet{})

	ask := func(kind, raw string) admission.Response {
		decoded = false
		request := admissionv1.AdmissionRequest{Kind: metav1.GroupVersionKind{Version: "v1", Kind: kind}, Object: runtime.RawExtension{Raw: []byte(raw)}}
		if kind == "StatefulSet" {
			request.Kind.Group = "apps"
		}
		return handler.Handle(t.Context(), admission.Request{AdmissionRequest: request})
	}

	for name, test := range map[string]struct{ kind, raw, refused string }{
		"what a kubelet or a scheduler writes":              {"Pod", `{"apiVersion":"v1","kind":"Pod","spec":{"containers":[{"resources":{"limits":{"cpu":"100m","memory":"1Gi"}}}],"overhead":{"cpu":1}}}`, ""},
		"a label that looks like a large number":            {"Pod", `{"metadata":{"labels":{"commit":"12e345678"}}}`, ""},
		"a field that the kind does not have":               {"Pod", `{"spec":{"other":{"cpu":"1e1000"}}}`, ""},
		"something else where a quantity is due":            {"Pod", `{"spec":{"overhead":{"cpu":{"a":["1e1000"]}}}}`, ""},
		"null":                                              {"Pod", `{"spec":{"overhead":null,"containers":[null]}}`, ""},
		"a quantity in a map":                               {"Pod", `{"spec":{"overhead":{"cpu":"1e1000"}}}`, "a quantity"},
		"a quantity before one of the same name":            {"Pod", `{"spec":{"overhead":{"cpu":"1e1000","cpu":"1"}}}`, "a quantity"},
		"a quantity with spaces around it":                  {"Pod", `{"spec":{"overhead":{"cpu":" 1e1000 "}}}`, "a quantity"},
		"a quantity that is a number":                       {"Pod", `{"spec":{"overhead":{"cpu":1e1000}}}`, "a quantity"},
		"a quantity in a struct within a list":              {"Pod", `{"spec":{"volumes":[{"name":"a","emptyDir":{"sizeLimit":"1e1000"}}]}}`, "a quantity"},
		"a quantity in the template of a pod":               {"StatefulSet", `{"spec":{"template":{"spec":{"containers":[{"resources":{"requests":{"cpu":"1e1000"}}}]}}}}`, "a quantity"},
		"a quantity in the template of a volume":            {"StatefulSet", `{"spec":{"volumeClaimTemplates":[{"spec":{"resources":{"requests":{"storage":"1e1000"}}}}]}}`, "a quantity"},
		"another kind than the request's":                   {"Pod", `{"apiVersion":"apps/v1","kind":"StatefulSet"}`, "the object is of kind StatefulSet of apps/v1, but the request is about Pod of v1"},
		"a kind twice, of which the decoder takes the last": {"Pod", `{"apiVersion":"v1","kind":"Pod","Kind":"Node"}`, "the object is of kind Node"},
		"no object":                    {"Pod", `[]`, "decoding the kind"},
		"a kind without quantities":    {"Secret", `{"apiVersion":"v1","kind":"Secret","data":{"cpu":"1e1000"}}`, ""},
		"what the decoder may not get": {"Secret", `{"apiVersion":"v1","kind":"Pod"}`, "the object is of kind Pod"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			response := ask(test.kind, test.raw)
			g.Expect(decoded).To(Equal(test.refused == ""))
			g.Expect(response.Allowed).To(Equal(test.refused == ""))
			if test.refused != "" {
				g.Expect(response.Result.Message).To(ContainSubstring(test.refused))
				g.Expect(response.Result.Code).To(BeEquivalentTo(http.StatusBadRequest))
			}
		})
	}

	t.Run("the old object too", func(t *testing.T) {
		request := admissionv1.AdmissionRequest{Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"},
			Object: runtime.RawExtension{Raw: []byte("{}")}, OldObject: runtime.RawExtension{Raw: []byte(`{"spec":{"overhead":{"cpu":"1e1000"}}}`)}}
		NewWithT(t).Expect(handler.Handle(t.Context(), admission.Request{AdmissionRequest: request}).Allowed).To(BeFalse())
	})
}

// What passes is decoded at once.
func FuzzQuantities(f *testing.F) {
	handler := Quantities(admission.HandlerFunc(func(_ context.Context, request admission.Request) admission.Response {
		pod := &corev1.Pod{}
		if err := json.Unmarshal(request.Object.Raw, pod); err != nil {
			return admission.Denied(err.Error())
		}
		return admission.Allowed("")
	}), &corev1.Pod{})
	pod := &corev1.Pod{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	seeds := []any{pod}
	for _, spec := range limitstest.PodSpecs() {
		seeds = append(seeds, `{"spec":`+spec+`}`)
	}
	limitstest.Fuzz(f, handler, limitstest.About(pod), seeds...)
}

func TestRequestsHaveTheDeadlineOfTheAPIServer(t *testing.T) {
	for name, test := range map[string]struct {
		query string
		want  time.Duration
	}{
		"that it says":                        {"?timeout=2s", 2 * time.Second},
		"that of the webhook, which is less":  {"?timeout=30s", 10 * time.Second},
		"that of the webhook, if it is none":  {"?timeout=soon", 10 * time.Second},
		"that of the webhook, if it is ended": {"?timeout=-1s", 10 * time.Second},
		"that of the webhook":                 {"", 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var left time.Duration
			handler := NewServer().Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				deadline, ok := r.Context().Deadline()
				g.Expect(ok).To(BeTrue())
				left = time.Until(deadline)
			}), SmallObject, 10*time.Second)
			handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/"+test.query, strings.NewReader("{}")))
			g.Expect(left).To(And(BeNumerically(">", test.want-time.Second), BeNumerically("<=", test.want)))
		})
	}
}

func TestABodyThatDoesNotComeEndsWithTheDeadline(t *testing.T) {
	g := NewWithT(t)
	served := make(chan struct{}, 1)
	server := httptest.NewServer(NewServer().Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { served <- struct{}{} }), SmallObject, 50*time.Millisecond))
	defer server.Close()

	body, writer := io.Pipe()
	defer func() { _ = writer.Close() }()
	response, err := http.Post(server.URL, "application/json", body)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	g.Expect(response.StatusCode).To(Equal(http.StatusBadRequest))
	g.Expect(io.ReadAll(response.Body)).To(ContainSubstring("timeout"))
	g.Expect(served).NotTo(Receive())
}

func TestAllWebhooksTogetherServeSoManyElements(t *testing.T) {
	const most = 128 << 10
	g := NewWithT(t)
	server := NewServer()
	serve := func(elements int, next http.HandlerFunc) *httptest.ResponseRecorder {
		response := httptest.NewRecorder()
		body := strings.Repeat("1, ", elements) + "1"
		server.Handler(next, LargeObject, time.Second).ServeHTTP(response, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
		return response
	}
	never := func(http.ResponseWriter, *http.Request) { t.Error("it is not served") }

	g.Expect(serve(most+1, never)).To(And(HaveField("Code", http.StatusRequestEntityTooLarge), HaveField("Body.String()", ContainSubstring("list elements"))))
	g.Expect(serve(most-1, func(_ http.ResponseWriter, r *http.Request) {
		g.Expect(io.ReadAll(r.Body)).To(HaveLen(3*most - 2))
		g.Expect(serve(1, func(http.ResponseWriter, *http.Request) {})).To(HaveField("Code", http.StatusOK))
		g.Expect(serve(2, never)).To(And(HaveField("Code", http.StatusServiceUnavailable), HaveField("HeaderMap", HaveKeyWithValue("Retry-After", []string{"1"}))))
	})).To(HaveField("Code", http.StatusOK))
	g.Expect(serve(most, func(http.ResponseWriter, *http.Request) {})).To(HaveField("Code", http.StatusOK), "all are given back")
}
