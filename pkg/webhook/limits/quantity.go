// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

const (
	maxQuantityLength = 32
	maxExponentDigits = 2
)

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
	schemas := map[string]*schema{}
	for _, obj := range objects {
		t := reflect.TypeOf(obj).Elem()
		schemas[t.Name()] = schemaOf(t, map[reflect.Type]*schema{})
	}
	return admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		for _, raw := range [][]byte{request.Object.Raw, request.OldObject.Raw} {
			if len(raw) == 0 {
				continue
			}
			if err := check(raw, request.Kind, schemas[request.Kind.Kind]); err != nil {
				return admission.Errored(http.StatusBadRequest, err)
			}
		}
		return next.Handle(ctx, request)
	})
}

func check(raw []byte, kind metav1.GroupVersionKind, s *schema) error {
	var own metav1.TypeMeta
	if err := json.Unmarshal(raw, &own); err != nil {
		return fmt.Errorf("decoding the kind of an object: %w", err)
	}
	version := metav1.GroupVersion{Group: kind.Group, Version: kind.Version}
	if own != (metav1.TypeMeta{}) && own != (metav1.TypeMeta{APIVersion: version.String(), Kind: kind.Kind}) {
		return fmt.Errorf("the object is of kind %s of %s, but the request is about %s of %s", own.Kind, own.APIVersion, kind.Kind, version)
	}
	if s == nil {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	return s.check(decoder)
}

// schema says where in a JSON document there are quantities. It is nil where there are none.
type schema struct {
	isQuantity bool
	// fields are those of an object, elements are those of a list or of a map.
	fields   map[string]*schema
	elements *schema
}

// schemaOf returns the schema of a type. known has the structs above it, which may be part of themselves.
func schemaOf(t reflect.Type, known map[reflect.Type]*schema) *schema {
	switch {
	case t == reflect.TypeFor[resource.Quantity]():
		return &schema{isQuantity: true}
	case t.Kind() == reflect.Pointer:
		return schemaOf(t.Elem(), known)
	case t.Kind() == reflect.Slice, t.Kind() == reflect.Array, t.Kind() == reflect.Map:
		if elements := schemaOf(t.Elem(), known); elements != nil {
			return &schema{elements: elements}
		}
	case t.Kind() == reflect.Struct:
		if s, ok := known[t]; ok {
			return s
		}
		s := &schema{fields: map[string]*schema{}}
		known[t] = s
		for i := range t.NumField() {
			field := t.Field(i)
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			switch child := schemaOf(field.Type, known); {
			case child == nil || name == "-":
			case name != "":
				s.fields[name] = child
			case field.Anonymous:
				for name, child := range child.fields {
					s.fields[name] = child
				}
			}
		}
		if len(s.fields) > 0 {
			return s
		}
		known[t] = nil
	}
	return nil
}

// check reads one value. It returns an error for the first quantity that is out of bounds.
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
	case string:
		return s.checkText(token)
	case json.Number:
		return s.checkText(token.String())
	}
	return nil
}

func (s *schema) checkText(text string) error {
	if s.isQuantity && !IsQuantity(strings.TrimSpace(text)) {
		return errors.New("a quantity is longer than 32 characters, or its exponent has more than 2 digits")
	}
	return nil
}
