// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"bytes"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var update = flag.Bool("update", false, "write golden files")

func serviceAccount(name string) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "kube-system"}}
}

func customObject() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.org/v1",
		"kind":       "Widget",
		"metadata":   map[string]any{"name": "w", "namespace": "a"},
		"spec":       map[string]any{"size": int64(1000000), "text": "first\n---\nsecond\n"},
		"status":     map[string]any{},
	}}
}

func testObjects() []client.Object {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "d", Namespace: "b"}}
	return []client.Object{
		serviceAccount("b"),
		customObject(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "z"}, Data: map[string]string{"b": "2", "a": "---\n1: \"x\"\n"}},
		deployment,
		serviceAccount("a"),
	}
}

func text(t *testing.T, objects ...client.Object) []byte {
	t.Helper()
	g := NewWithT(t)
	docs, err := newDocuments(objects, fake.NewClientBuilder().Build())
	g.Expect(err).NotTo(HaveOccurred())
	out, err := docs.yaml()
	g.Expect(err).NotTo(HaveOccurred())
	return out
}

func TestObjectsAreSortedAndWrittenAsYAMLDocuments(t *testing.T) {
	g := NewWithT(t)
	golden := filepath.Join("testdata", "objects.yaml")
	actual := text(t, testObjects()...)

	if *update {
		g.Expect(os.WriteFile(golden, actual, 0o600)).To(Succeed())
	}
	expected, err := os.ReadFile(golden) // #nosec G304 -- a constant
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(actual)).To(Equal(string(expected)))
}

func TestTheSameObjectsInAnyOrderGiveTheSameBytes(t *testing.T) {
	g := NewWithT(t)
	expected := text(t, testObjects()...)

	objects := testObjects()
	for range len(objects) {
		objects = append(objects[1:], objects[0])
		g.Expect(text(t, objects...)).To(Equal(expected))
	}
	slices.Reverse(objects)
	g.Expect(text(t, objects...)).To(Equal(expected))
}

func TestATypedObjectAndItsUnstructuredTwinGiveTheSameBytes(t *testing.T) {
	g := NewWithT(t)
	twin := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ServiceAccount",
		"metadata": map[string]any{"namespace": "kube-system", "name": "a"},
	}}
	g.Expect(text(t, twin)).To(Equal(text(t, serviceAccount("a"))))
}

func TestSerializingChangesNoObject(t *testing.T) {
	g := NewWithT(t)
	objects, untouched := testObjects(), testObjects()
	text(t, objects...)
	g.Expect(objects).To(Equal(untouched))
}

func TestWhatIsWrittenIsReadByTheDecoderOfTheResourceManager(t *testing.T) {
	g := NewWithT(t)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text(t, testObjects()...)), 1024)

	var kinds []string
	for range testObjects() {
		obj := map[string]any{}
		g.Expect(decoder.Decode(&obj)).To(Succeed())
		kinds = append(kinds, obj["kind"].(string))
	}
	g.Expect(kinds).To(Equal([]string{"ConfigMap", "ServiceAccount", "ServiceAccount", "Deployment", "Widget"}))
	g.Expect(decoder.Decode(&map[string]any{})).To(MatchError("EOF"))
}

func TestObjectsThatCannotBeAppliedAreRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		objects []client.Object
		message string
	}{
		"an object that is nil":         {[]client.Object{serviceAccount("a"), nil}, "object 2 of 2: it is nil"},
		"an object without name":        {[]client.Object{serviceAccount("")}, "has no name"},
		"an object given twice":         {[]client.Object{serviceAccount("a"), serviceAccount("a")}, "ServiceAccount kube-system/a is given twice"},
		"a type no scheme knows":        {[]client.Object{&unknown{ObjectMeta: metav1.ObjectMeta{Name: "x"}}}, "is not known, set it or add it to the scheme"},
		"an unstructured without kind":  {[]client.Object{&unstructured.Unstructured{Object: map[string]any{}}}, "is not known"},
		"a value that JSON cannot hold": {[]client.Object{&unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "X", "metadata": map[string]any{"name": "x"}, "f": func() {}}}}, "unsupported type"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newDocuments(tt.objects, fake.NewClientBuilder().Build())
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tt.message)))
		})
	}
}

type unknown struct {
	metav1.TypeMeta
	metav1.ObjectMeta
}

func (u *unknown) DeepCopyObject() runtime.Object { return u }

func TestTheHashChangesWithTheObjects(t *testing.T) {
	g := NewWithT(t)
	hash := func(objects ...client.Object) string {
		docs, err := newDocuments(objects, fake.NewClientBuilder().Build())
		g.Expect(err).NotTo(HaveOccurred())
		return docs.hash()
	}

	g.Expect(hash(serviceAccount("a"))).To(Equal(hash(serviceAccount("a"))))
	g.Expect(hash(serviceAccount("a"))).NotTo(Equal(hash(serviceAccount("b"))))
	g.Expect(hash(serviceAccount("a"))).NotTo(Equal(hash()))
	g.Expect(hash()).To(HaveLen(16))
}
