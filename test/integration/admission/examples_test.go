// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// The end-to-end tests do the same with all examples and all plugins of gardener-apiserver.
var _ = Describe("The examples", func() {
	const strict = client.FieldValidation(metav1.FieldValidationStrict)
	folder := filepath.Join("..", "..", "..", "example")
	names, _ := filepath.Glob(filepath.Join(folder, "*.yaml"))
	mocks, _ := filepath.Glob(filepath.Join(folder, "mock", "*.yaml"))

	It("are taken as they stand", func(ctx SpecContext) {
		applied := 0
		for _, name := range append(names, mocks...) {
			content, err := os.ReadFile(name) // #nosec G304 -- an example
			Expect(err).NotTo(HaveOccurred())
			if !strings.Contains(string(content), "# Cluster: virtual garden\n") {
				continue
			}
			for document := range strings.SplitSeq(string(content), "\n---\n") {
				object := &unstructured.Unstructured{}
				Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed())
				switch object.GetKind() {
				case "Bastion", "ManagedSeed", "Namespace":
					// Their groups are not served here, which would need a shoot on a seed; namespaces are there.
					continue
				case "CloudProfile", "ControllerDeployment", "CredentialsBinding", "Secret":
					// Others refer to them.
					Expect(c.Create(ctx, object, strict)).To(Succeed(), name)
					DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(c.Delete(ctx, object))).To(Succeed()) })
					continue
				}
				if shootOnSeed(object) {
					unstructured.RemoveNestedField(object.Object, "spec", "seedName")
				}
				//nolint:staticcheck // The other way takes no option of strictness.
				Expect(c.Patch(ctx, object, client.Apply, client.ForceOwnership, client.FieldOwner("examples"), client.DryRunAll, strict)).To(Succeed(), name)
				applied++
			}
		}
		Expect(applied).To(BeNumerically(">", 10))
	})
})

// shootOnSeed reports whether an object is a Shoot that names its seed, which is not here.
func shootOnSeed(object *unstructured.Unstructured) bool {
	_, found, _ := unstructured.NestedString(object.Object, "spec", "seedName")
	return object.GetKind() == "Shoot" && found
}
