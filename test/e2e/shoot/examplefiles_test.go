// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	operationsv1alpha1 "github.com/gardener/gardener/pkg/apis/operations/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

const (
	exampleHibernated  = "92-shoot-hibernated.yaml"
	exampleBastion     = "96-bastion.yaml"
	exampleShootOfSeed = "97-shoot-managedseed.yaml"

	// examplesOwner is who applies the examples here.
	examplesOwner = client.FieldOwner("e2e-examples")
	// strict has an API server refuse a field that it does not know, where it would drop it otherwise.
	strict = client.FieldValidation(metav1.FieldValidationStrict)
)

// exampleFile is a file of the folder example.
type exampleFile struct {
	// name is relative to the folder.
	name    string
	content []byte
}

// readExample reads an example as it is for the landscape's network.
func readExample(name string) exampleFile {
	GinkgoHelper()
	content, err := os.ReadFile(filepath.Join("..", "..", "..", "example", name)) // #nosec G304 -- an example
	Expect(err).NotTo(HaveOccurred())
	return exampleFile{name: name, content: []byte(landscape.CurrentNetwork().Translate(string(content)))}
}

// exampleFiles are all of them, in the order in which they are applied: those of the mock provider after the others.
func exampleFiles() []exampleFile {
	GinkgoHelper()
	var all []exampleFile
	for _, pattern := range []string{"*.yaml", "mock/*.yaml"} {
		folder := filepath.Join("..", "..", "..", "example")
		paths, err := filepath.Glob(filepath.Join(folder, pattern))
		Expect(err).NotTo(HaveOccurred())
		for _, path := range paths {
			name, err := filepath.Rel(folder, path)
			Expect(err).NotTo(HaveOccurred())
			all = append(all, readExample(name))
		}
	}
	Expect(len(all)).To(BeNumerically(">", 20))
	return all
}

// cluster is the client of the cluster that the file says it is for.
func (f exampleFile) cluster() client.Client {
	GinkgoHelper()
	_, text, _ := strings.Cut(string(f.content), "# Cluster: ")
	name, _, _ := strings.Cut(text, "\n")
	switch name {
	case "garden runtime cluster":
		return l.Client
	case "virtual garden":
		return g.Client
	}
	Fail(f.name + " does not say in which cluster it belongs")
	return nil
}

// objects are those in the file, as they stand.
func (f exampleFile) objects() []*unstructured.Unstructured {
	GinkgoHelper()
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(string(f.content), "\n---\n") {
		object := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal([]byte(document), &object.Object)).To(Succeed(), f.name)
		objects = append(objects, object)
	}
	return objects
}

// exampleFileSpecs apply every example, as it stands, to the cluster that it names. What costs nothing and what others
// refer to is really made; of the rest, the API server is asked whether it would take it.
func exampleFileSpecs() {
	BeforeAll(func(ctx SpecContext) { wakeExamples(ctx) })

	It("are taken by the clusters for which they are", specPatience, func(ctx SpecContext) {
		for _, file := range exampleFiles() {
			By(file.name)
			if strings.HasSuffix(file.name, ".patch.yaml") {
				dryRunPatch(ctx, file)
				continue
			}
			for _, object := range file.objects() {
				tryExample(ctx, file, object)
			}
		}
	})

	It("have a bastion that gets ready", specPatience, func(ctx SpecContext) {
		eventuallyReady(ctx, exampleOfBastion())
	})
}

func exampleOfBastion() *operationsv1alpha1.Bastion {
	GinkgoHelper()
	bastion := &operationsv1alpha1.Bastion{}
	Expect(yaml.UnmarshalStrict(readExample(exampleBastion).content, bastion)).To(Succeed())
	return bastion
}

// eventuallyReady creates a Bastion and waits until it has an address and is ready.
func eventuallyReady(ctx context.Context, bastion *operationsv1alpha1.Bastion) {
	GinkgoHelper()
	landscape.Create(ctx, g.Client, bastion)
	Eventually(landscape.Get(ctx, g.Client, bastion)).WithContext(ctx).WithTimeout(patience).Should(And(
		HaveField("Status.Ingress", Not(BeNil())),
		HaveField("Status.Conditions", ContainElement(And(
			HaveField("Type", operationsv1alpha1.BastionReady), HaveField("Status", gardencorev1beta1.ConditionTrue))))))
}

// sleepingSpecs make the example that begins asleep.
func sleepingSpecs() {
	It("is healthy without ever having been awake", specPatience, func(ctx SpecContext) {
		makeRoom(ctx)
		shoot := example(exampleHibernated)
		DeferCleanup(remove, shoot)
		createHealthy(ctx, shoot)
		Expect(shoot.Status.IsHibernated).To(BeTrue())
		expectNoControlPlane(ctx, shoot)
		timed(shoot.Name, "delete", func() { remove(ctx, shoot) })
	})
}

// tryExample applies an object.
func tryExample(ctx context.Context, file exampleFile, object *unstructured.Unstructured) {
	GinkgoHelper()
	c := file.cluster()
	what := object.GetKind() + " " + client.ObjectKeyFromObject(object).String()
	switch object.GetKind() {
	case "Garden":
		// Another cannot be made, and of the one that there is the ranges cannot be changed.
		Expect(c.Create(ctx, object.DeepCopy(), client.DryRunAll, strict)).To(MatchError(ContainSubstring("there can be only one")), what)
		return
	case "CloudProfile", "ControllerDeployment", "CredentialsBinding", "Namespace", "Project", "Secret":
		there := object.DeepCopy()
		err := c.Get(ctx, client.ObjectKeyFromObject(there), there)
		if apierrors.IsNotFound(err) {
			Expect(c.Create(ctx, object.DeepCopy(), strict)).To(Succeed(), what)
			DeferCleanup(func(ctx SpecContext) { landscape.DeleteAndWait(ctx, c, object) })
			return
		}
		Expect(err).NotTo(HaveOccurred(), what)
	case "ManagedSeed":
		ignoredShoot(ctx)
	}

	// Gardener reads from caches, which may not have what has just been made.
	Eventually(func() error {
		err := apply(ctx, c, object)
		if reason := mockReason(file, err); reason != "" {
			AddReportEntry(what+": "+reason, err.Error())
			return nil
		}
		return err
	}).WithContext(ctx).WithTimeout(20*time.Second).Should(Succeed(), what)
}

// mockReason tells why an example of the mock provider is refused in this landscape, if that is no fault of the example.
func mockReason(file exampleFile, err error) string {
	switch {
	case err == nil || !strings.HasPrefix(file.name, "mock/"):
		return ""
	case strings.Contains(err.Error(), "non-registered"):
		return "the mock provider is switched off"
	case strings.Contains(err.Error(), "another ControllerRegistration resource already exists"):
		return "the mock provider is switched on already"
	default:
		return ""
	}
}

// apply asks the API server whether it would take an object.
func apply(ctx context.Context, c client.Client, object *unstructured.Unstructured) error {
	return c.Patch(ctx, object.DeepCopy(), client.Apply, client.ForceOwnership, examplesOwner, client.DryRunAll, strict) //nolint:staticcheck // The other way takes no options of strictness.
}

const (
	mockSwitchedOn  = "mock/20-operator-extension.patch.yaml"
	mockSwitchedOff = "mock/99-operator-extension.patch.yaml"
)

// dryRunPatch asks whether the Extension would take a patch. One that switches the mock provider on or off is taken only while it
// is not so yet; else the other comes first, in the same request.
func dryRunPatch(ctx context.Context, file exampleFile) {
	GinkgoHelper()
	extension := &unstructured.Unstructured{}
	extension.SetAPIVersion("operator.gardener.cloud/v1alpha1")
	extension.SetKind("Extension")
	c := file.cluster()
	Expect(c.Get(ctx, client.ObjectKey{Name: registration}, extension)).To(Succeed())
	served, _, err := unstructured.NestedSlice(extension.Object, "spec", "resources")
	Expect(err).NotTo(HaveOccurred())
	isOn := slices.ContainsFunc(served, func(resource any) bool { return resource.(map[string]any)["type"] == "mock" })

	files := []exampleFile{file}
	switch {
	case file.name == mockSwitchedOn && isOn:
		files = []exampleFile{readExample(mockSwitchedOff), file}
	case file.name == mockSwitchedOff && !isOn:
		files = []exampleFile{readExample(mockSwitchedOn), file}
	}
	var operations []any
	for _, f := range files {
		var some []any
		Expect(yaml.Unmarshal(f.content, &some)).To(Succeed(), f.name)
		operations = append(operations, some...)
	}
	patch, err := json.Marshal(operations)
	Expect(err).NotTo(HaveOccurred())
	Expect(c.Patch(ctx, extension, client.RawPatch(types.JSONPatchType, patch), client.DryRunAll, strict)).To(Succeed(), file.name)
}

// ignoredShoot makes the Shoot that a ManagedSeed needs before it is taken, without gardenlet creating a cluster.
func ignoredShoot(ctx context.Context) {
	GinkgoHelper()
	objects := readExample(exampleShootOfSeed).objects()
	shoot := &gardencorev1beta1.Shoot{}
	content, err := objects[len(objects)-1].MarshalJSON()
	Expect(err).NotTo(HaveOccurred())
	Expect(yaml.UnmarshalStrict(content, shoot)).To(Succeed())
	if err := g.Client.Get(ctx, client.ObjectKeyFromObject(shoot), &gardencorev1beta1.Shoot{}); err == nil {
		return
	}
	metav1.SetMetaDataAnnotation(&shoot.ObjectMeta, v1beta1constants.ShootIgnore, "true")
	// From the seed it has its domain.
	shoot.Spec.SeedName = new(seedName)
	Expect(g.Client.Create(ctx, shoot)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		g.Delete(ctx, shoot)
		patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1beta1constants.ShootIgnore+`":null}}}`))
		Expect(client.IgnoreNotFound(g.Client.Patch(ctx, shoot, patch))).To(Succeed())
		g.EventuallyDeleted(ctx, shoot, patience)
	})
	Expect(shoot.Spec.DNS).To(HaveValue(HaveField("Domain", Not(BeNil()))))
}
