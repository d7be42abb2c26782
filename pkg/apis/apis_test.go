// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package apis_test tests what all kinds of the API packages have in common: that nothing gets lost on the way to JSON or
// YAML and back, that a copy shares nothing, and that a field which does not exist is refused wherever it stands.
package apis_test

import (
	"bytes"
	"encoding/json"
	"math/rand"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/equality"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/randfill"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

const rounds = 200

// api is a group with its kinds.
type api struct {
	version schema.GroupVersion
	scheme  *runtime.Scheme
}

func apis(t *testing.T) []api {
	t.Helper()
	var out []api
	for _, a := range []struct {
		version schema.GroupVersion
		add     func(*runtime.Scheme) error
	}{{configv1alpha1.SchemeGroupVersion, configv1alpha1.AddToScheme}, {localv1alpha1.SchemeGroupVersion, localv1alpha1.AddToScheme}} {
		scheme := runtime.NewScheme()
		NewWithT(t).Expect(a.add(scheme)).To(Succeed())
		out = append(out, api{version: a.version, scheme: scheme})
	}
	return out
}

// forEachKind runs a test for each kind of each group.
func forEachKind(t *testing.T, test func(t *testing.T, a api, kind string)) {
	t.Helper()
	for _, a := range apis(t) {
		kinds := a.scheme.KnownTypes(a.version)
		NewWithT(t).Expect(kinds).NotTo(BeEmpty())
		for kind := range kinds {
			t.Run(a.version.Group+" "+kind, func(t *testing.T) { test(t, a, kind) })
		}
	}
}

// filler puts arbitrary values into objects, the same in each run.
func filler(a api) *randfill.Filler {
	own := func(serializer.CodecFactory) []any {
		return []any{func(raw *runtime.RawExtension, c randfill.Continue) {
			// What is not JSON can't be in a JSON document.
			content, _ := json.Marshal(map[string]string{"a": c.String(10)})
			*raw = runtime.RawExtension{Raw: content}
		}}
	}
	return fuzzer.FuzzerFor(fuzzer.MergeFuzzerFuncs(metafuzzer.Funcs, own), rand.NewSource(1), serializer.NewCodecFactory(a.scheme)) // #nosec G404 -- no secret
}

func newObject(t *testing.T, a api, kind string) runtime.Object {
	t.Helper()
	object, err := a.scheme.New(a.version.WithKind(kind))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return object
}

func TestNothingGetsLostOnTheWayThereAndBack(t *testing.T) {
	forEachKind(t, func(t *testing.T, a api, kind string) {
		g := NewWithT(t)
		fill := filler(a)
		for _, yaml := range []bool{false, true} {
			codec := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, a.scheme, a.scheme, jsonserializer.SerializerOptions{Yaml: yaml, Strict: true})
			for range rounds {
				object := newObject(t, a, kind)
				fill.Fill(object)
				object.GetObjectKind().SetGroupVersionKind(a.version.WithKind(kind))

				var encoded bytes.Buffer
				g.Expect(codec.Encode(object, &encoded)).To(Succeed())
				decoded, _, err := codec.Decode(encoded.Bytes(), nil, newObject(t, a, kind))
				g.Expect(err).NotTo(HaveOccurred(), encoded.String())
				g.Expect(equality.Semantic.DeepEqual(decoded, object)).To(BeTrue(), encoded.String())
			}
		}
	})
}

func TestACopySharesNothing(t *testing.T) {
	forEachKind(t, func(t *testing.T, a api, kind string) {
		g := NewWithT(t)
		fill := filler(a)
		for range rounds {
			object := newObject(t, a, kind)
			fill.Fill(object)
			before, err := json.Marshal(object)
			g.Expect(err).NotTo(HaveOccurred())
			copied := object.DeepCopyObject()
			g.Expect(copied).To(Equal(object))
			overwrite(reflect.ValueOf(copied))
			after, err := json.Marshal(object)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(after)).To(Equal(string(before)))
		}
	})
}

// overwrite clears all that a value leads to.
func overwrite(value reflect.Value) {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			overwrite(value.Elem())
		}
	case reflect.Struct:
		for i := range value.NumField() {
			if value.Type().Field(i).IsExported() {
				overwrite(value.Field(i))
			}
		}
	case reflect.Slice:
		for i := range value.Len() {
			overwrite(value.Index(i))
		}
	case reflect.Map:
		value.Clear()
	default:
		if value.CanSet() {
			value.SetZero()
		}
	}
}

func TestAFieldThatDoesNotExistIsRefused(t *testing.T) {
	forEachKind(t, func(t *testing.T, a api, kind string) {
		g := NewWithT(t)
		strict := serializer.NewCodecFactory(a.scheme, serializer.EnableStrict).UniversalDecoder(a.version)
		paths := structs(reflect.TypeOf(newObject(t, a, kind)).Elem(), nil)
		g.Expect(paths).NotTo(BeEmpty())
		for _, path := range paths {
			document := map[string]any{"imgae": "misspelt"}
			for i := len(path) - 1; i >= 0; i-- {
				if name, isList := strings.CutSuffix(path[i], "[]"); isList {
					document = map[string]any{name: []any{document}}
				} else {
					document = map[string]any{name: document}
				}
			}
			document["apiVersion"], document["kind"] = a.version.String(), kind
			content, err := json.Marshal(document)
			g.Expect(err).NotTo(HaveOccurred())
			_, _, err = strict.Decode(content, nil, nil)
			g.Expect(err).To(MatchError(ContainSubstring("imgae")), string(content))
		}
	})
}

// structs returns the paths to all structs of these packages in a type, itself among them.
func structs(of reflect.Type, path []string) [][]string {
	out := [][]string{path}
	for i := range of.NumField() {
		field := of.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		inner := field.Type
		list := ""
		for inner.Kind() == reflect.Pointer || inner.Kind() == reflect.Slice {
			if inner.Kind() == reflect.Slice {
				list = "[]"
			}
			inner = inner.Elem()
		}
		ours := strings.Contains(inner.PkgPath(), "gardener-extension-provider-local/pkg/apis")
		if inner.Kind() != reflect.Struct || !ours {
			continue
		}
		if name == "" || strings.Contains(options, "inline") {
			out = append(out, structs(inner, path)[1:]...)
			continue
		}
		out = append(out, structs(inner, append(append([]string{}, path...), name+list))...)
	}
	return out
}

func TestDefaultsAreTheSameTheSecondTime(t *testing.T) {
	for _, a := range apis(t) {
		for kind := range a.scheme.KnownTypes(a.version) {
			t.Run(kind, func(t *testing.T) {
				g := NewWithT(t)
				fill := filler(a)
				for round := range rounds {
					object := newObject(t, a, kind)
					if round > 0 {
						fill.Fill(object)
					}
					a.scheme.Default(object)
					once := object.DeepCopyObject()
					a.scheme.Default(object)
					g.Expect(object).To(Equal(once))
				}
			})
		}
	}
}
