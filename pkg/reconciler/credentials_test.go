// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

const testFinalizer = "extensions.gardener.cloud/test"

var sharedRef = corev1.SecretReference{Namespace: "garden", Name: "backup"}

func newShared() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "backup", Finalizers: []string{"others.example.com/finalizer"}}}
}

func finalizersOf(t *testing.T, c client.Client) []string {
	t.Helper()
	secret := &corev1.Secret{}
	NewWithT(t).Expect(c.Get(t.Context(), client.ObjectKeyFromObject(newShared()), secret)).To(Succeed())
	return secret.Finalizers
}

func TestCredentialsAreHeldForAUserThatComesWhileAnotherOneGoes(t *testing.T) {
	g := NewWithT(t)
	held := make(chan error, 1)
	secrets, _ := counted(t, newShared())
	var credentials *Credentials
	var once sync.Once
	hold := func() {
		go func() { held <- credentials.Hold(t.Context(), "comes", sharedRef) }()
		g.Consistently(held, "50ms").ShouldNot(Receive(), "it waits")
	}
	c := interceptor.NewClient(secrets, interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
		if data, _ := patch.Data(obj); bytes.Contains(data, []byte("deleteFromPrimitiveList")) {
			once.Do(hold)
		}
		return c.Patch(ctx, obj, patch, opts...)
	}})
	credentials = newCredentials(c, testFinalizer, func(context.Context) (map[string]corev1.SecretReference, error) { return nil, nil })
	g.Expect(credentials.Hold(t.Context(), "goes", sharedRef)).To(Succeed())
	g.Expect(credentials.Release(t.Context(), "goes", sharedRef)).To(BeTrue())
	g.Expect(<-held).To(Succeed())
	g.Expect(finalizersOf(t, c)).To(ContainElement(testFinalizer))
}

func TestCredentialsAreHeldUntilTheLastUserHasGone(t *testing.T) {
	g := NewWithT(t)
	c, requests := counted(t, newShared())
	existing := map[string]corev1.SecretReference{"from before the start": sharedRef}
	credentials := newCredentials(c, testFinalizer, func(context.Context) (map[string]corev1.SecretReference, error) { return existing, nil })

	for _, user := range []string{"a", "b", "a"} {
		g.Expect(credentials.Hold(t.Context(), user, sharedRef)).To(Succeed())
	}
	g.Expect(*requests).To(Equal([]string{"patch"}), "it is asked about once")
	g.Expect(finalizersOf(t, c)).To(ConsistOf("others.example.com/finalizer", testFinalizer))

	*requests = nil
	for _, user := range []string{"a", "b", "b"} {
		g.Expect(credentials.Release(t.Context(), user, sharedRef)).To(BeTrue())
	}
	g.Expect(*requests).To(BeEmpty(), "one still needs it")
	g.Expect(credentials.Release(t.Context(), "from before the start", sharedRef)).To(BeTrue())
	g.Expect(*requests).To(Equal([]string{"patch"}))
	g.Expect(finalizersOf(t, c)).To(ConsistOf("others.example.com/finalizer"))

	g.Expect(credentials.Hold(t.Context(), "c", sharedRef)).To(Succeed())
	g.Expect(finalizersOf(t, c)).To(ContainElement(testFinalizer), "it is not taken for held any more")
}

func TestCredentialsThatAreMissingAreAConfigurationProblem(t *testing.T) {
	g := NewWithT(t)
	c, _ := counted(t)
	credentials := newCredentials(c, testFinalizer, func(context.Context) (map[string]corev1.SecretReference, error) { return nil, nil })
	for _, ref := range []corev1.SecretReference{sharedRef, {}, {Name: "a"}} {
		err := credentials.Hold(t.Context(), "a", ref)
		var requeue *reconcilerutils.RequeueAfterError
		g.Expect(errors.As(err, &requeue)).To(BeTrue())
		g.Expect(v1beta1helper.ExtractErrorCodes(requeue.Cause)).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
		g.Expect(credentials.Release(t.Context(), "a", ref)).To(BeFalse())
	}
}

func TestCredentialsOfUnknownUsersAreNotTouched(t *testing.T) {
	g := NewWithT(t)
	c, requests := counted(t, newShared())
	credentials := newCredentials(c, testFinalizer, func(context.Context) (map[string]corev1.SecretReference, error) { return nil, errors.New("no answer") })
	g.Expect(credentials.Hold(t.Context(), "a", sharedRef)).To(MatchError(ContainSubstring("no answer")))
	_, err := credentials.Release(t.Context(), "a", sharedRef)
	g.Expect(err).To(MatchError(ContainSubstring("no answer")))
	g.Expect(*requests).To(BeEmpty())
}

func TestCredentialsThatAreNotReferredToAnyMoreAreReleased(t *testing.T) {
	newRef := corev1.SecretReference{Namespace: "garden", Name: "rotated"}
	rotated := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: newRef.Namespace, Name: newRef.Name}}
	for name, test := range map[string]struct {
		// other tells that another object has the same ones, missing that the new ones are not there at first, and delete
		// that the object goes then.
		other, missing, delete bool
	}{
		"no other object has them":                      {},
		"another object has them":                       {other: true},
		"the new ones are there later":                  {missing: true},
		"the object goes before the new ones come":      {missing: true, delete: true},
		"the object goes without having been looked at": {delete: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c, _ := counted(t, newShared())
			credentials := newCredentials(c, testFinalizer, func(context.Context) (map[string]corev1.SecretReference, error) {
				return map[string]corev1.SecretReference{"a": sharedRef}, nil
			})
			g.Expect(credentials.Start(t.Context())).To(Succeed())
			g.Expect(credentials.Hold(t.Context(), "a", sharedRef)).To(Succeed())
			if test.other {
				g.Expect(credentials.Hold(t.Context(), "b", sharedRef)).To(Succeed())
			}

			if test.missing {
				g.Expect(credentials.Hold(t.Context(), "a", newRef)).NotTo(Succeed())
				g.Expect(finalizersOf(t, c)).To(ContainElement(testFinalizer), "the new ones come first")
			}
			g.Expect(c.Create(t.Context(), rotated.DeepCopy())).To(Succeed())
			if test.delete {
				_, err := credentials.Release(t.Context(), "a", newRef)
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(credentials.Hold(t.Context(), "a", newRef)).To(Succeed())
			}
			if test.other {
				g.Expect(finalizersOf(t, c)).To(ContainElement(testFinalizer))
				g.Expect(credentials.Release(t.Context(), "b", sharedRef)).To(BeTrue())
			}
			g.Expect(finalizersOf(t, c)).To(ConsistOf("others.example.com/finalizer"))
		})
	}
}

func TestCredentialsOfAnObjectThatWasThereBeforeTheStartAreReleased(t *testing.T) {
	g := NewWithT(t)
	shared := newShared()
	shared.Finalizers = append(shared.Finalizers, testFinalizer)
	newRef := corev1.SecretReference{Namespace: "garden", Name: "rotated"}
	c, _ := counted(t, shared, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: newRef.Namespace, Name: newRef.Name}})
	existing := map[string]corev1.SecretReference{"a": sharedRef}
	credentials := newCredentials(c, testFinalizer, func(context.Context) (map[string]corev1.SecretReference, error) { return existing, nil })
	g.Expect(credentials.Start(t.Context())).To(Succeed())

	existing = map[string]corev1.SecretReference{"a": newRef}
	g.Expect(credentials.Hold(t.Context(), "a", newRef)).To(Succeed())
	g.Expect(finalizersOf(t, c)).To(ConsistOf("others.example.com/finalizer"))
}

func TestCredentialsOfAnObjectThatGoesByItselfAreReleased(t *testing.T) {
	g := NewWithT(t)
	bucket := newBucket()
	bucket.Spec.SecretRef, bucket.Finalizers = sharedRef, nil // it goes as soon as it is deleted
	c, requests := counted(t, newShared(), bucket)
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassShoot}, "shoot")
	g.Expect(err).NotTo(HaveOccurred())
	r := New(Options[bucketType]{Shared: Shared{Classes: classes}, ExistsFor: class.All(), Client: c, Types: []string{extensionType}, Finalizer: testFinalizer, WithoutClusters: true})
	credentials := r.Credentials(func(b bucketType) corev1.SecretReference { return b.Spec.SecretRef })
	g.Expect(credentials.Start(t.Context())).To(Succeed())
	g.Expect(credentials.Hold(t.Context(), "another", sharedRef)).To(Succeed())
	g.Expect(credentials.Release(t.Context(), "another", sharedRef)).To(BeTrue())
	g.Expect(finalizersOf(t, c)).To(ContainElement(testFinalizer), "the bucket has it")

	g.Expect(c.Delete(t.Context(), bucket)).To(Succeed())
	g.Expect(predicate.And(r.Predicates()...).Delete(event.DeleteEvent{Object: bucket})).To(BeTrue())
	credentials.client = interceptor.NewClient(c, interceptor.Funcs{
		Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
			return errors.New("no answer")
		},
	})
	_, err = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(bucket)})
	g.Expect(err).To(MatchError(ContainSubstring("no answer")), "it is tried again")
	credentials.client = c
	_, err = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(bucket)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(finalizersOf(t, c)).To(ConsistOf("others.example.com/finalizer"))

	*requests = nil
	_, err = r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(bucket)})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*requests).To(Equal([]string{"get"}), "it is done once; the cache answers the get")
}
