// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package limitstest fuzzes the handlers of webhooks: none may take long, whatever the object in the request is.
package limitstest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
)

// deadline is for one request. A handler takes milliseconds, and minutes if an object decides how much work it does; the rest
// is for a busy machine and the race detector.
const deadline = 10 * time.Second

// Fuzz sends requests about new objects and about changed ones to a handler. The request names the kind, and what else the
// handler looks at. Seeds are objects, or the JSON of one. The object of a request is as long as the server allows at most.
func Fuzz(f *testing.F, handler admission.Handler, request admissionv1.AdmissionRequest, seeds ...any) {
	f.Helper()
	for _, seed := range seeds {
		raw, isText := seed.(string)
		if !isText {
			data, err := json.Marshal(seed)
			if err != nil {
				f.Fatal(err)
			}
			raw = string(data)
		}
		f.Add(raw)
	}

	f.Fuzz(func(t *testing.T, raw string) {
		if len(raw) > limits.LargeObject || !json.Valid([]byte(raw)) {
			t.Skip("the server takes no such request")
		}
		for _, operation := range []admissionv1.Operation{admissionv1.Create, admissionv1.Update} {
			request := admission.Request{AdmissionRequest: request}
			request.Operation = operation
			request.Object = runtime.RawExtension{Raw: []byte(raw)}
			if operation == admissionv1.Update {
				request.OldObject = request.Object
			}

			answers(t, handler, request)
		}
	})
}

// answers has a request handled within the deadline.
func answers(t *testing.T, handler admission.Handler, request admission.Request) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		// The server makes a panic an answer. Here it is a failure, unless the handler recovers itself.
		handler.Handle(ctx, request)
	}()
	select {
	case <-answered:
	case <-ctx.Done():
		t.Fatalf("no answer to a request about an object of %d bytes within %s", len(request.Object.Raw), deadline)
	}
}

// About returns a request about an object of a kind that API servers know by the given API version.
func About(obj client.Object) admissionv1.AdmissionRequest {
	gvk := obj.GetObjectKind().GroupVersionKind()
	return admissionv1.AdmissionRequest{UID: "1", Kind: metav1.GroupVersionKind(gvk), Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// Quantities are texts that resource.Quantity takes hours for, or more memory than a machine has.
func Quantities() []string {
	return []string{`"1e30000000"`, `"1e-30000000"`, `"-1E+2000000000"`, `1e-30000000`, `" 1e-30000000 "`, `"1` + strings.Repeat("0", 1<<19) + `"`}
}

// PodSpecs are the JSON of specs of pods that are costly: for their quantities or for the length of their lists.
func PodSpecs() []string {
	var specs []string
	for _, quantity := range Quantities() {
		specs = append(specs,
			fmt.Sprintf(`{"containers":[{"name":"a","resources":{"limits":{"cpu":%s},"requests":{"cpu":"1"}}}]}`, quantity),
			fmt.Sprintf(`{"volumes":[{"name":"a","emptyDir":{"sizeLimit":%[1]s}},{"name":"b","ephemeral":{"volumeClaimTemplate":{"spec":{"resources":{"requests":{"storage":%[1]s}}}}}}],"containers":[]}`, quantity),
			fmt.Sprintf(`{"overhead":{"cpu":"1","cpu":%s},"containers":[{"name":"a","env":[{"name":"b","valueFrom":{"resourceFieldRef":{"resource":"limits.cpu","divisor":"1"}}}]}]}`, quantity),
		)
	}
	return append(specs,
		`{"dnsConfig":{"searches":[`+list(40000, `"%d.example"`)+`]},"containers":[]}`,
		`{"dnsConfig":{"options":[`+list(20000, `{"name":"o%d"}`)+`]},"containers":[]}`,
		`{"containers":[`+list(500, `{"name":"c%d","args":["--storage-provider=Local","--store-container=b%[1]d"],"volumeMounts":[{"name":"m","mountPath":"/%[1]d"}]}`)+
			`],"volumes":[`+list(500, `{"name":"v%d","hostPath":{"path":"/a/./b/../%[1]d"}}`)+`]}`,
	)
}

// list returns elements of a JSON list, in which the format gets the number of each.
func list(length int, format string) string {
	elements := make([]string, length)
	for i := range elements {
		elements[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(elements, ",")
}
