// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package limits bounds what a request to a webhook may cost: its length, the time it takes, how many requests are served
// at a time, and the quantities in its objects. Callers of webhooks are not authenticated, and users write much of what is
// in the objects. The webhooks of a seed and those of the virtual garden share this package.
package limits

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gardener/gardener-extension-provider-local/pkg/bounds"
)

const (
	// SmallObject is the limit of a request about an object of a few kilobytes. The request has the old object as well.
	SmallObject = 1 << 20
	// LargeObject is the limit of a request about an object that holds files or tables. etcd takes 1.5 MiB of each, and some of
	// them are shorter there than as JSON.
	LargeObject = 6 << 20

	// bytesInFlight is how many bytes the requests may have that a webhook serves at a time. Decoded, they take several times
	// as much.
	bytesInFlight = 16 << 20
	// elementsInFlight is how many list elements and fields the requests may have that the webhooks of one Server serve at a time. Each
	// may be empty, and takes a kilobyte and more in memory.
	elementsInFlight = 128 << 10
	// minBytes is what a request counts at least: a webhook serves at most bytesInFlight/minBytes requests at a time.
	minBytes = 128 << 10

	maxQuantityLength = 32
	maxExponentDigits = 2
)

// Server has the limits that some webhooks share.
type Server struct{ elements *semaphore.Weighted }

// NewServer returns limits that nobody uses yet.
func NewServer() *Server { return &Server{elements: semaphore.NewWeighted(elementsInFlight)} }

// Handler serves a webhook within limits. A request is refused with 413 if it is longer than maxBytes or has too many elements, and
// with 503 while the webhook serves as many bytes as it may, or all of the Server as many elements. Requests have a deadline, in their
// context and for their body: timeout, or less if the API server says so. The webhook is next.
func (s *Server) Handler(next http.Handler, maxBytes int64, timeout time.Duration) http.Handler {
	inFlight := semaphore.NewWeighted(bytesInFlight)
	refuse := func(w http.ResponseWriter) {
		// API servers try again after this time, within their timeout.
		w.Header().Set("Retry-After", "1")
		http.Error(w, "the webhook serves too many requests at the moment", http.StatusServiceUnavailable)
	}

	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		length := r.ContentLength
		if length > maxBytes {
			http.Error(w, fmt.Sprintf("the request has %d bytes, at most %d are allowed", length, maxBytes), http.StatusRequestEntityTooLarge)
			return
		}
		if length < 0 { // unknown
			length = maxBytes
		}

		weight := max(length, minBytes)
		if !inFlight.TryAcquire(weight) {
			refuse(w)
			return
		}
		defer inFlight.Release(weight)

		left := timeout
		if asked, err := time.ParseDuration(r.URL.Query().Get("timeout")); err == nil && asked > 0 {
			left = min(asked, timeout)
		}
		deadline := time.Now().Add(left)
		// Who sends a body byte by byte must not keep others out for longer. A writer without deadlines is that of a test.
		_ = http.NewResponseController(w).SetReadDeadline(deadline)
		ctx, cancel := context.WithDeadline(r.Context(), deadline)
		defer cancel()
		r = r.WithContext(ctx)

		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBytes))
		if err != nil {
			code := http.StatusBadRequest
			if errors.As(err, new(*http.MaxBytesError)) {
				code = http.StatusRequestEntityTooLarge
			}
			http.Error(w, "reading the request: "+err.Error(), code)
			return
		}
		elements := int64(bounds.Elements(body))
		if elements > elementsInFlight {
			http.Error(w, fmt.Sprintf("the request has %d list elements and fields, at most %d are allowed", elements, elementsInFlight), http.StatusRequestEntityTooLarge)
			return
		}
		if !s.elements.TryAcquire(elements) {
			refuse(w)
			return
		}
		defer s.elements.Release(elements)
		r.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, r)
	})
}

// IsQuantity reports whether the text of a quantity is short and its exponent small. resource.Quantity takes exponents of
// up to nine digits and writes the power of ten out, digit by digit, when it compares, adds or only parses such a number:
// that takes minutes. Text that is not a quantity at all is cheap to refuse.
func IsQuantity(text string) bool {
	if len(text) > maxQuantityLength {
		return false
	}
	i := strings.IndexAny(text, "eE")
	return i < 0 || len(strings.TrimLeft(text[i+1:], "+-")) <= maxExponentDigits
}

// Quantities refuses requests whose objects have a quantity that is not one by IsQuantity, before they are decoded. The
// objects are those of all kinds with quantities that the handler decodes. A request must be about an object of the kind
// that it names, as the decoder uses the kind in the object.
func Quantities(next admission.Handler, objects ...client.Object) admission.Handler {
	schemas, known := map[string]*schema{}, map[reflect.Type]*schema{}
	for _, obj := range objects {
		t := reflect.TypeOf(obj).Elem()
		schemas[t.Name()] = schemaOf(t, known)
	}
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		for _, raw := range [][]byte{request.Object.Raw, request.OldObject.Raw} {
			if len(raw) == 0 {
				continue
			}
			err := checkKind(raw, request.Kind)
			if err == nil {
				decoder := json.NewDecoder(bytes.NewReader(raw))
				decoder.UseNumber()
				err = schemas[request.Kind.Kind].check(decoder)
			}
			if err != nil {
				return admission.Errored(http.StatusBadRequest, err)
			}
		}
		return next.Handle(ctx, request)
	})
}

func checkKind(raw []byte, kind metav1.GroupVersionKind) error {
	var own metav1.TypeMeta
	if err := json.Unmarshal(raw, &own); err != nil {
		return fmt.Errorf("decoding the kind of an object: %w", err)
	}
	version := metav1.GroupVersion{Group: kind.Group, Version: kind.Version}
	if own != (metav1.TypeMeta{}) && own != (metav1.TypeMeta{APIVersion: version.String(), Kind: kind.Kind}) {
		return fmt.Errorf("the object is of kind %s of %s, but the request is about %s of %s", own.Kind, own.APIVersion, kind.Kind, version)
	}
	return nil
}

// schema says where in a JSON document there are quantities. It is nil where there are none. A label may look like a
// quantity, so it takes the type of an object to know.
type schema struct {
	isQuantity bool
	// fields are those of an object, elements are those of a list or of a map.
	fields   map[string]*schema
	elements *schema
}

// schemaOf returns the schema of a type. known has the structs that it has seen: they may be part of themselves.
func schemaOf(t reflect.Type, known map[reflect.Type]*schema) *schema {
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem(), known)
	case reflect.Slice, reflect.Array, reflect.Map:
		if elements := schemaOf(t.Elem(), known); elements != nil {
			return &schema{elements: elements}
		}
	case reflect.Struct:
		if s, ok := known[t]; ok {
			return s
		}
		s := &schema{isQuantity: t == reflect.TypeFor[resource.Quantity](), fields: map[string]*schema{}}
		known[t] = s
		for _, field := range reflect.VisibleFields(t) { // with those of embedded structs
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if child := schemaOf(field.Type, known); child != nil && name != "" && name != "-" {
				s.fields[name] = child
			}
		}
		if s.isQuantity || len(s.fields) > 0 {
			return s
		}
		known[t] = nil
	}
	return nil
}

// check reads one value. It returns an error for the first quantity that is out of bounds. It reads token by token, as a map
// would lose the first of two fields of the same name.
func (s *schema) check(decoder *json.Decoder) error {
	if s == nil {
		var skipped json.RawMessage
		return decoder.Decode(&skipped)
	}
	token, err := decoder.Token()
	if err != nil {
		return err
	}
	switch token := token.(type) {
	case json.Delim:
		for decoder.More() {
			child := s.elements
			if token == '{' {
				key, err := decoder.Token()
				if err != nil {
					return err
				}
				if name, _ := key.(string); s.fields[name] != nil {
					child = s.fields[name]
				}
			}
			if err := child.check(decoder); err != nil {
				return err
			}
		}
		_, err = decoder.Token()
		return err
	case string, json.Number:
		if s.isQuantity && !IsQuantity(strings.TrimSpace(fmt.Sprint(token))) {
			return errors.New("a quantity is longer than 32 characters, or its exponent has more than 2 digits")
		}
	}
	return nil
}
