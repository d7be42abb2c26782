// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package seed_test

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	extensionsutils "github.com/gardener/gardener/pkg/extensions"

	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

// createShoot creates the namespace of a shoot and its Cluster, as gardenlet does.
func createShoot(ctx context.Context, namespace string) {
	GinkgoHelper()
	Expect(seed.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{
		"gardener.cloud/role":                      "shoot",
		"shoot.gardener.cloud/provider":            "local",
		"backup.gardener.cloud/provider":           "local",
		"extensions.gardener.cloud/local":          "true",
		"seed.gardener.cloud/provider":             "local",
		"networking.shoot.gardener.cloud/provider": "calico",
	}}})).To(Succeed())
	Expect(seed.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloudprovider"}})).To(Succeed())
	Expect(seed.Create(ctx, &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: clusterSpec(namespace, nil)})).To(Succeed())
}

// clusterSpec is what gardenlet writes about a shoot with one pool "small" of machines with 2 CPUs and 4Gi.
func clusterSpec(namespace string, change func(*gardencorev1beta1.Shoot)) extensionsv1alpha1.ClusterSpec {
	GinkgoHelper()
	raw := func(obj runtime.Object) runtime.RawExtension {
		data, err := json.Marshal(obj)
		Expect(err).NotTo(HaveOccurred())
		return runtime.RawExtension{Raw: data}
	}
	typeMeta := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: kind}
	}
	shoot := &gardencorev1beta1.Shoot{
		TypeMeta:   typeMeta("Shoot"),
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden-local", Name: namespace},
		Spec: gardencorev1beta1.ShootSpec{
			Kubernetes: gardencorev1beta1.Kubernetes{Version: "1.36.3"},
			Provider: gardencorev1beta1.Provider{Type: "local", Workers: []gardencorev1beta1.Worker{{
				Name: "small", Machine: gardencorev1beta1.Machine{Type: "small"}, Minimum: 1, Maximum: 1,
			}}},
		},
		Status: gardencorev1beta1.ShootStatus{TechnicalID: namespace},
	}
	if change != nil {
		change(shoot)
	}
	return extensionsv1alpha1.ClusterSpec{
		CloudProfile: raw(&gardencorev1beta1.CloudProfile{
			TypeMeta: typeMeta("CloudProfile"), ObjectMeta: metav1.ObjectMeta{Name: "local"},
			Spec: gardencorev1beta1.CloudProfileSpec{MachineTypes: []gardencorev1beta1.MachineType{
				{Name: "small", CPU: resource.MustParse("2"), Memory: resource.MustParse("4Gi")},
			}},
		}),
		Seed:  new(raw(&gardencorev1beta1.Seed{TypeMeta: typeMeta("Seed"), ObjectMeta: metav1.ObjectMeta{Name: "local"}})),
		Shoot: raw(shoot),
	}
}

// changeShoot writes what changed in a shoot to its Cluster, and back to what it was when the test ends.
func changeShoot(ctx context.Context, namespace string, change func(*gardencorev1beta1.Shoot)) {
	GinkgoHelper()
	write := func(ctx context.Context, change func(*gardencorev1beta1.Shoot)) {
		cluster := &extensionsv1alpha1.Cluster{}
		Expect(seed.Get(ctx, client.ObjectKey{Name: namespace}, cluster)).To(Succeed())
		cluster.Spec = clusterSpec(namespace, change)
		Expect(seed.Update(ctx, cluster)).To(Succeed())
	}
	write(ctx, change)
	DeferCleanup(func(ctx SpecContext) { write(ctx, nil) })
}

func newControlPlane(namespace string) *extensionsv1alpha1.ControlPlane {
	return &extensionsv1alpha1.ControlPlane{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "control-plane"},
		Spec: extensionsv1alpha1.ControlPlaneSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
			Region:      "local",
			SecretRef:   corev1.SecretReference{Namespace: namespace, Name: "cloudprovider"},
		},
	}
}

func newExtension(namespace, extensionType string) *extensionsv1alpha1.Extension {
	return &extensionsv1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: extensionType},
		Spec:       extensionsv1alpha1.ExtensionSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: extensionType}},
	}
}

// create creates an object in the seed and ensures that it is gone after the test.
func create[T client.Object](ctx context.Context, obj T) T {
	GinkgoHelper()
	Expect(seed.Create(ctx, obj)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { remove(ctx, obj) })
	return obj
}

// remove deletes an object of the seed and waits until it is gone.
func remove(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(seed.Delete(ctx, obj))).To(Succeed())
	Eventually(isGone(ctx, seed, obj)).Should(BeTrue(), "%T %s goes", obj, obj.GetName())
}

// isGone tells for Eventually whether an object is gone.
func isGone(ctx context.Context, c client.Client, obj client.Object) func() (bool, error) {
	gone := obj.DeepCopyObject().(client.Object)
	return func() (bool, error) {
		err := c.Get(ctx, client.ObjectKeyFromObject(obj), gone)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
}

// noted waits until gardener-resource-manager has noted the objects of a ManagedResource: it deletes those, no others. One that
// is deleted between the creation of its objects and the note leaves them.
func noted(ctx context.Context, name string) {
	GinkgoHelper()
	mr := named[*resourcesv1alpha1.ManagedResource](shootNamespace, name)
	Eventually(get(ctx, seed, mr)).Should(HaveField("Status.Resources", Not(BeEmpty())), "gardener-resource-manager notes what it created")
}

// operate asks for an operation as Gardener does.
func operate(ctx context.Context, obj extensionsv1alpha1.Object, operation string) {
	GinkgoHelper()
	Expect(seed.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
	Expect(extensionsutils.AnnotateObjectWithOperation(ctx, seed, obj, operation)).To(Succeed())
}

// eventuallySucceeded waits until an extension object counts as ready.
func eventuallySucceeded(ctx context.Context, obj extensionsv1alpha1.Object) {
	GinkgoHelper()
	Eventually(get(ctx, seed, obj)).Should(matchers.HaveSucceeded())
}

// eventuallyMigrated waits until an extension object is ready to go. The extension library takes the annotation off last; one
// that comes before would go with it.
func eventuallyMigrated(ctx context.Context, obj extensionsv1alpha1.Object) {
	GinkgoHelper()
	Eventually(get(ctx, seed, obj)).Should(And(matchers.HaveSucceeded(),
		HaveField("GetExtensionStatus().GetLastOperation().Type", gardencorev1beta1.LastOperationTypeMigrate)))
}

// eventuallyRestored waits until a restore has taken place. The extension library then reconciles once more, as its own
// writes wake it while the annotation is there.
func eventuallyRestored(ctx context.Context, obj extensionsv1alpha1.Object) {
	GinkgoHelper()
	Eventually(get(ctx, seed, obj)).Should(And(matchers.HaveSucceeded(), HaveField("GetExtensionStatus().GetLastOperation().Type",
		BeElementOf(gardencorev1beta1.LastOperationTypeRestore, gardencorev1beta1.LastOperationTypeReconcile))))
}

// collectGarbage does what kube-controller-manager would do, of which none runs: it lets go of objects which were deleted in
// the foreground and own nothing.
func collectGarbage(ctx context.Context, c client.WithWatch) error {
	list := &appsv1.DeploymentList{}
	events, err := c.Watch(ctx, list)
	if err != nil {
		return err
	}
	defer events.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case event, ok := <-events.ResultChan():
			if !ok {
				return nil
			}
			deployment, ok := event.Object.(*appsv1.Deployment)
			if !ok || deployment.DeletionTimestamp == nil || len(deployment.Finalizers) == 0 {
				continue
			}
			patch := client.MergeFrom(deployment.DeepCopy())
			deployment.Finalizers = nil
			if err := client.IgnoreNotFound(c.Patch(ctx, deployment, patch)); err != nil {
				return err
			}
		}
	}
}

// get reads an object for Eventually.
func get[T client.Object](ctx context.Context, c client.Client, obj T) func() (T, error) {
	return func() (T, error) {
		return obj, c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	}
}

func named[T interface {
	client.Object
	*O
}, O any](namespace, name string) T {
	obj := T(new(O))
	obj.SetNamespace(namespace)
	obj.SetName(name)
	return obj
}
