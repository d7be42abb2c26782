// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

func TestObjectsOfEachKindLiveAndDieWithFewRequests(t *testing.T) {
	more := map[string]struct{ create, again, remove int }{
		extensionsv1alpha1.OperatingSystemConfigResource: {create: 1, again: 1},
		extensionsv1alpha1.BackupEntryResource:           {create: 1, again: 1, remove: 2},
	}
	for _, kind := range kinds() {
		t.Run(kind.name(), func(t *testing.T) {
			obj := newObjectOf(kind)
			e := newEnv(t, nil, newCluster(nil), obj)

			e.Expect(e.reconcile(obj)).To(BeZero())
			e.Expect(isReady(obj)).To(Succeed())
			e.Expect(state(obj)).To(Equal("Create Succeeded"))
			e.Expect(obj.GetFinalizers()).To(HaveExactElements(FinalizerName))
			e.Expect(e.requests).To(HaveLen(2+more[kind.name()].create), "finalizer and annotation, status, what the kind has")

			e.requests = nil
			e.Expect(e.reconcile(obj)).To(BeZero())
			e.Expect(e.requests).To(BeEmpty(), "nothing is left to do")

			e.pass(time.Minute)
			e.annotate(obj, "reconcile")
			e.Expect(e.reconcile(obj)).To(BeZero())
			e.Expect(isReady(obj)).To(Succeed())
			e.Expect(state(obj)).To(Equal("Reconcile Succeeded"))
			e.Expect(e.requests).To(HaveLen(2 + more[kind.name()].again))

			e.requests = nil
			e.delete(obj)
			e.Expect(e.reconcile(obj)).To(BeZero())
			e.Expect(obj.GetUID()).To(BeEmpty(), "it is gone")
			e.Expect(e.requests).To(HaveLen(1 + more[kind.name()].remove))
			e.Expect(remembered(e.reconcilerFor(obj))).To(BeEmpty(), "nothing of it stays in memory")
		})
	}
}

func TestObjectsOfEachKindAreMigratedAndRestored(t *testing.T) {
	for _, kind := range kinds() {
		t.Run(kind.name(), func(t *testing.T) {
			obj := newObjectOf(kind)
			e := newEnv(t, nil, newCluster(nil), obj)
			e.reconcile(obj)

			e.annotate(obj, "migrate")
			e.Expect(e.reconcile(obj)).To(BeZero())
			e.Expect(state(obj)).To(Equal("Migrate Succeeded"))
			e.Expect(obj.GetFinalizers()).To(BeEmpty())
			e.Expect(obj.GetAnnotations()).NotTo(HaveKey("gardener.cloud/operation"))

			e.requests = nil
			e.annotate(obj, "reconcile")
			e.Expect(e.reconcile(obj)).To(BeZero())
			e.Expect(state(obj)).To(Equal("Migrate Succeeded"), "what is migrated stays so")
			e.Expect(obj.GetFinalizers()).To(BeEmpty())
			e.Expect(obj.GetAnnotations()).NotTo(HaveKey("gardener.cloud/operation"))
			e.Expect(e.requests).To(HaveLen(1))
			e.delete(obj)
			e.Expect(obj.GetUID()).To(BeEmpty())

			restored := newObjectOf(kind)
			e.Expect(e.client.Create(e.ctx, restored)).To(Succeed())
			e.annotate(restored, "wait-for-state")
			e.requests = nil
			e.Expect(e.reconcile(restored)).To(BeZero())
			e.Expect(e.requests).To(BeEmpty(), "its state is not there yet")
			e.annotate(restored, "restore")
			e.Expect(e.reconcile(restored)).To(BeZero())
			e.Expect(state(restored)).To(Equal("Restore Succeeded"))
			e.Expect(isReady(restored)).To(Succeed())
			e.Expect(restored.GetFinalizers()).To(HaveExactElements(FinalizerName))
		})
	}
}

func TestLeavesAloneWhatIsNotItsOwn(t *testing.T) {
	garden := extensionsv1alpha1.ExtensionClassGarden
	failed := newCluster(func(shoot *gardencorev1beta1.Shoot) {
		shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateFailed}
	})
	for name, tc := range map[string]struct {
		cluster *extensionsv1alpha1.Cluster
		change  func(*extensionsv1alpha1.Infrastructure)
	}{
		"another type":            {newCluster(nil), func(infra *extensionsv1alpha1.Infrastructure) { infra.Spec.Type = "local" }},
		"the type of an OS":       {newCluster(nil), func(infra *extensionsv1alpha1.Infrastructure) { infra.Spec.Type = TypeOS }},
		"another class":           {newCluster(nil), func(infra *extensionsv1alpha1.Infrastructure) { infra.Spec.Class = &garden }},
		"of a shoot that failed":  {failed, func(*extensionsv1alpha1.Infrastructure) {}},
		"deleted, never finished": {newCluster(nil), func(infra *extensionsv1alpha1.Infrastructure) { infra.Finalizers = []string{"others"} }},
	} {
		t.Run(name, func(t *testing.T) {
			infra := newInfrastructure()
			tc.change(infra)
			e := newEnv(t, nil, tc.cluster, infra)
			if len(infra.Finalizers) > 0 {
				e.delete(infra)
			}
			e.Expect(e.reconcile(infra)).To(BeZero())
			e.Expect(e.requests).To(BeEmpty())
		})
	}
}

func TestServesOperatingSystemConfigsOfBothTypes(t *testing.T) {
	for _, extensionType := range []string{Type, TypeOS} {
		osc := newObjectOf(kinds()[9]).(*extensionsv1alpha1.OperatingSystemConfig)
		osc.Spec.Type = extensionType
		e := newEnv(t, nil, newCluster(nil), osc)
		e.reconcile(osc)
		e.Expect(isReady(osc)).To(Succeed(), extensionType)
	}
}

func TestGoesOnWhereItWasStopped(t *testing.T) {
	for name, tc := range map[string]struct {
		operation, request string
	}{
		"before the finalizer of a creation":                {"", "patch Infrastructure"},
		"between finalizer and status of a creation":        {"", "patch status"},
		"before the status of a reconcile":                  {"reconcile", "patch status"},
		"between status and annotation of a reconcile":      {"reconcile", "patch Infrastructure"},
		"before the status of a migration":                  {"migrate", "patch status"},
		"between status and annotation of a migration":      {"migrate", "patch Infrastructure"},
		"before the status of a restoration":                {"restore", "patch status"},
		"between status and annotation of a restoration":    {"restore", "patch Infrastructure"},
		"before the finalizer is taken away for a deletion": {"delete", "patch Infrastructure"},
	} {
		t.Run(name, func(t *testing.T) {
			infra := newInfrastructure()
			e := newEnv(t, nil, newCluster(nil), infra)
			if tc.operation != "" {
				e.reconcile(infra)
				e.pass(time.Minute)
			}
			if tc.operation == "delete" {
				e.delete(infra)
			} else if tc.operation != "" {
				e.annotate(infra, tc.operation)
			}

			e.fail = failOn(tc.request)
			_, err := e.tryReconcile(infra)
			e.Expect(err).To(MatchError(ContainSubstring("no answer")), "the queue tries again")
			if tc.operation != "migrate" && tc.operation != "delete" {
				e.Expect(isReady(infra)).NotTo(Succeed(), "Gardener does not go on")
			}

			e.fail = nil
			e.restart()
			e.Expect(e.reconcilerFor(infra).IsDue(infra)).To(BeTrue(), "the next instance takes it up")
			e.Expect(e.reconcile(infra)).To(BeZero())
			switch tc.operation {
			case "delete":
				e.Expect(infra.UID).To(BeEmpty())
			case "migrate":
				e.Expect(infra.Finalizers).To(BeEmpty())
				e.Expect(state(infra)).To(Equal("Migrate Succeeded"))
			default:
				e.Expect(isReady(infra)).To(Succeed())
				e.Expect(e.reconcilerFor(infra).IsDue(infra)).To(BeFalse())
			}
		})
	}
}

func TestNeverTakesAwayWhatWasAskedForMeanwhile(t *testing.T) {
	for _, request := range []string{"patch status", "patch Infrastructure"} {
		t.Run(request, func(t *testing.T) {
			infra := newInfrastructure()
			e := newEnv(t, nil, newCluster(nil), infra)
			e.reconcile(infra)
			e.annotate(infra, "reconcile")
			e.fail = func(sent string) error {
				if sent == request || sent == request+" of Infrastructure" {
					e.fail = nil
					e.pass(time.Second)
					e.annotate(newInfrastructure(), "restore")
				}
				return nil
			}
			e.Expect(e.reconcile(infra)).To(Equal(reconciler.RetryConflict))
			e.Expect(infra.Annotations).To(HaveKeyWithValue("gardener.cloud/operation", "restore"))
			e.Expect(e.reconcile(infra)).To(BeZero())
			e.Expect(state(infra)).To(Equal("Restore Succeeded"))
		})
	}
}

func TestAnObjectThatVanishesIsNoError(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, nil, newCluster(nil), infra)
	e.fail = func(string) error {
		e.fail = nil
		return client.IgnoreAlreadyExists(e.client.Delete(e.ctx, newInfrastructure()))
	}
	e.Expect(e.reconcile(infra)).To(BeZero())
	e.Expect(infra.UID).To(BeEmpty())
	e.Expect(e.reconcile(infra)).To(BeZero())
}

func TestADeletionOvertakesACreationThatIsNotDone(t *testing.T) {
	bucket := newBucket()
	e := newEnv(t, []configv1alpha1.MockBehaviour{{Operation: configv1alpha1.MockOperationCreate, Delay: &metav1.Duration{Duration: time.Hour}}}, bucket)
	e.Expect(e.reconcile(bucket)).To(Equal(time.Hour))
	e.Expect(state(bucket)).To(Equal("Create Processing"))
	e.delete(bucket)
	e.Expect(e.reconcile(bucket)).To(BeZero())
	e.Expect(bucket.UID).To(BeEmpty())
}

func TestAChangedSpecIsReconciledOnlyWhereTheAnnotationIsIgnored(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		bucket := newBucket()
		e := newEnv(t, nil, bucket)
		e.opts.IgnoreOperationAnnotation = ignore
		e.restart()
		e.reconcile(bucket)
		bucket.Generation = 2
		e.Expect(e.client.Update(e.ctx, bucket)).To(Succeed())
		e.reconcile(bucket)
		observed := int64(1)
		if ignore {
			observed = 2
		}
		e.Expect(bucket.Status.ObservedGeneration).To(Equal(observed))
	}
}

func TestTheControllersOfTheGardenAreForItsKinds(t *testing.T) {
	g := NewWithT(t)
	var names []string
	for _, kind := range kinds() {
		if kind.inGarden {
			names = append(names, kind.name())
		}
	}
	g.Expect(names).To(HaveExactElements("BackupBucket", "BackupEntry", "DNSRecord", "Extension"))

	all := map[string]bool{}
	for _, kind := range kinds() {
		all[kind.name()] = true
	}
	for kind := range extensionsv1alpha1.AllExtensionKinds {
		g.Expect(all).To(HaveKey(kind))
	}
	g.Expect(all).To(HaveLen(extensionsv1alpha1.AllExtensionKinds.Len()))
}

func TestAnErrorOfAStepIsPutOnTheObjectAndTriedAgainLater(t *testing.T) {
	osc := newObjectOf(kinds()[9]).(*extensionsv1alpha1.OperatingSystemConfig)
	e := newEnv(t, nil, newCluster(nil), osc)
	e.fail = failOn("apply Secret")
	e.Expect(e.reconcile(osc)).To(Equal(defaultRetry))
	e.Expect(state(osc)).To(Equal("Create Error"))
	e.Expect(osc.Status.LastError.Description).To(ContainSubstring("no answer to apply Secret"))
	e.Expect(osc.Annotations).NotTo(HaveKey("gardener.cloud/operation"))

	e.fail = nil
	e.requests = nil
	e.Expect(e.reconcile(osc)).To(Equal(defaultRetry), "it is not woken by what was written about it")
	e.Expect(e.requests).To(BeEmpty())
	e.pass(defaultRetry)
	e.Expect(e.reconcile(osc)).To(BeZero())
	e.Expect(isReady(osc)).To(Succeed())
}

func TestReadsThatFailAreTriedAgain(t *testing.T) {
	infra := newInfrastructure()
	broken := newCluster(nil)
	broken.Spec.Shoot.Raw = []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","spec":5}`)
	e := newEnv(t, nil, broken, infra)
	_, err := e.tryReconcile(infra)
	e.Expect(err).To(HaveOccurred())
	e.Expect(errors.Unwrap(err)).To(HaveOccurred())
	e.Expect(state(infra)).To(Equal("Create Error"), "it says so")
	e.Expect(infra.Finalizers).To(BeEmpty(), "nothing is done")
}
