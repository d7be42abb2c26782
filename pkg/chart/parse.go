// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

	"helm.sh/helm/v3/pkg/release"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// parse returns the objects of all files and how many bytes of YAML these were.
func parse(files []file) ([]client.Object, int, error) {
	var (
		out  []client.Object
		size int
	)
	for _, file := range files {
		objects, err := parseFile(file.content)
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %w", file.name, err)
		}
		out = append(out, objects...)
		size += len(file.content)
	}
	return out, size, nil
}

func parseFile(content string) ([]client.Object, error) {
	var (
		out    []client.Object
		reader = utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(content)))
	)

	for i := 1; ; i++ {
		raw, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}

		objects, err := parseDocument(raw)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		out = append(out, objects...)
	}
}

// parseDocument returns one object, none if the document is empty, or those of a list. It is strict: a key that is
// there twice is a mistake in a template, and one of the two values would be lost.
func parseDocument(raw []byte) ([]client.Object, error) {
	asJSON, err := yaml.YAMLToJSONStrict(raw)
	if err != nil {
		return nil, err
	}
	if bytes.Equal(asJSON, []byte("null")) {
		return nil, nil
	}

	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(asJSON); err != nil {
		return nil, err
	}
	if !obj.IsList() {
		return []client.Object{obj}, check(obj)
	}

	var out []client.Object
	err = obj.EachListItem(func(item runtime.Object) error {
		object := item.(*unstructured.Unstructured)
		out = append(out, object)
		return check(object)
	})
	return out, err
}

func check(obj *unstructured.Unstructured) error {
	if obj.GetAPIVersion() == "" || obj.GetKind() == "" || obj.GetName() == "" {
		return fmt.Errorf("apiVersion %q, kind %q and metadata.name %q must all be set", obj.GetAPIVersion(), obj.GetKind(), obj.GetName())
	}
	if hook, ok := obj.GetAnnotations()[release.HookAnnotation]; ok {
		return fmt.Errorf("%s %s is a hook (%s), which is not run: take the annotation %s off", obj.GetKind(), obj.GetName(), hook, release.HookAnnotation)
	}
	return nil
}
