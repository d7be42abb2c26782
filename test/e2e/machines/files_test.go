// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines_test

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"io"
	"text/template"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:embed files
var files embed.FS

// file is one of the files, rendered if it is a template.
func file(name string, values any) string {
	GinkgoHelper()
	content, err := files.ReadFile("files/" + name)
	Expect(err).NotTo(HaveOccurred())
	parsed, err := template.New(name).Option("missingkey=error").Parse(string(content))
	Expect(err).NotTo(HaveOccurred())
	var out bytes.Buffer
	Expect(parsed.Execute(&out, values)).To(Succeed())
	return out.String()
}

// render reads the objects of a file.
func render(name string, values any) []*unstructured.Unstructured {
	GinkgoHelper()
	var objects []*unstructured.Unstructured
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewBufferString(file(name, values)), 4096)
	for {
		obj := &unstructured.Unstructured{}
		err := decoder.Decode(obj)
		if errors.Is(err, io.EOF) {
			return objects
		}
		Expect(err).NotTo(HaveOccurred(), name)
		if len(obj.Object) > 0 {
			objects = append(objects, obj)
		}
	}
}

// apply creates objects, in a namespace unless it is empty. They go with the namespace or the cluster.
func apply(ctx context.Context, c client.Client, namespace string, objects []*unstructured.Unstructured) {
	GinkgoHelper()
	for _, obj := range objects {
		obj.SetNamespace(namespace)
		Expect(c.Create(ctx, obj)).To(Succeed(), "%s %s", obj.GetKind(), obj.GetName())
	}
}

// eachItem calls visit for each object of a list.
func eachItem(list client.ObjectList, visit func(client.Object)) error {
	return meta.EachListItem(list, func(obj runtime.Object) error {
		visit(obj.(client.Object))
		return nil
	})
}
