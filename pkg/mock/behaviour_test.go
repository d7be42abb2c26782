// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func TestADelayHoldsNoWorkerAndSurvivesARestart(t *testing.T) {
	for _, operation := range []string{"reconcile", "restore", "migrate"} {
		t.Run(operation, func(t *testing.T) {
			infra := newInfrastructure()
			e := newEnv(t, []configv1alpha1.MockBehaviour{{Kind: "Infrastructure", Delay: duration(10 * time.Second)}}, newCluster(nil), infra)
			e.annotate(infra, operation)

			e.Expect(e.reconcile(infra)).To(Equal(10 * time.Second))
			e.Expect(infra.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateProcessing))
			e.Expect(infra.Status.LastOperation.Description).To(ContainSubstring("takes 10s"))
			e.Expect(isReady(infra)).NotTo(Succeed())

			e.requests = nil
			e.pass(4 * time.Second)
			e.Expect(e.reconcile(infra)).To(Equal(6 * time.Second))
			e.restart()
			e.Expect(e.reconcile(infra)).To(BeNumerically("~", 6*time.Second, time.Second), "times in a status are of whole seconds")
			e.Expect(e.requests).To(BeEmpty())
			e.pass(6 * time.Second)
			e.Expect(e.reconcile(infra)).To(BeZero())
			e.Expect(infra.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
			e.Expect(infra.Annotations).NotTo(HaveKey("gardener.cloud/operation"))
		})
	}
}

func TestAShortDelayIsNotCutShort(t *testing.T) {
	bucket := newBucket()
	e := newEnv(t, []configv1alpha1.MockBehaviour{{Delay: duration(300 * time.Millisecond)}}, bucket)
	e.reconcile(bucket)
	e.pass(200 * time.Millisecond)
	e.Expect(e.reconcile(bucket)).To(Equal(100 * time.Millisecond))
}

func TestWhoAsksAgainGetsWhatIsUnderWay(t *testing.T) {
	bucket := newBucket()
	e := newEnv(t, []configv1alpha1.MockBehaviour{{Delay: duration(10 * time.Second)}}, bucket)
	e.reconcile(bucket)
	e.pass(6 * time.Second)
	e.annotate(bucket, "reconcile")
	e.Expect(e.reconcile(bucket)).To(Equal(4 * time.Second))
	e.Expect(bucket.Annotations).NotTo(HaveKey("gardener.cloud/operation"))
	e.pass(4 * time.Second)
	e.Expect(e.reconcile(bucket)).To(BeZero())
	e.Expect(isReady(bucket)).To(Succeed())
}

func TestTheFirstAttemptsFailAsOftenAsConfigured(t *testing.T) {
	bucket := newBucket()
	e := newEnv(t, []configv1alpha1.MockBehaviour{{
		Operation: configv1alpha1.MockOperationCreate, Failures: 2, RetryAfter: duration(time.Second),
		Error: configv1alpha1.MockError{Message: "no quota", Codes: []gardencorev1beta1.ErrorCode{gardencorev1beta1.ErrorInfraQuotaExceeded}},
	}}, bucket)

	for range 2 {
		e.Expect(e.reconcile(bucket)).To(Equal(time.Second))
		e.Expect(state(bucket)).To(Equal("Create Error"))
		e.Expect(bucket.Status.LastError.Description).To(Equal("No quota"), "as Gardener writes errors")
		e.Expect(bucket.Status.LastError.Codes).To(HaveExactElements(gardencorev1beta1.ErrorInfraQuotaExceeded))
		e.Expect(bucket.Status.ObservedGeneration).To(Equal(bucket.Generation))
		e.requests = nil
		e.pass(999 * time.Millisecond)
		e.Expect(e.reconcile(bucket)).To(Equal(time.Millisecond))
		e.Expect(e.requests).To(BeEmpty())
		e.pass(time.Millisecond)
	}
	e.Expect(e.reconcile(bucket)).To(BeZero())
	e.Expect(isReady(bucket)).To(Succeed())
	e.pass(time.Minute)
	e.annotate(bucket, "reconcile")
	e.Expect(e.reconcile(bucket)).To(BeZero())
	e.Expect(state(bucket)).To(Equal("Reconcile Succeeded"))
}

func TestGardenerNeedNotWaitForTheNextAttempt(t *testing.T) {
	bucket := newBucket()
	e := newEnv(t, []configv1alpha1.MockBehaviour{{Failures: 1, RetryAfter: duration(time.Hour)}}, bucket)
	e.reconcile(bucket)
	e.annotate(bucket, "reconcile")
	e.Expect(e.reconcile(bucket)).To(BeZero())
	e.Expect(isReady(bucket)).To(Succeed())
}

func TestAFailureWaitsForItsRetryAfterARestartToo(t *testing.T) {
	for _, operation := range []string{"reconcile", "migrate", "delete"} {
		bucket := newBucket()
		e := newEnv(t, []configv1alpha1.MockBehaviour{{Operation: "Create"}, {Failures: 1, RetryAfter: duration(time.Hour)}}, bucket)
		e.reconcile(bucket)
		if operation == "delete" {
			e.delete(bucket)
		} else {
			e.annotate(bucket, operation)
		}
		e.Expect(e.reconcile(bucket)).To(Equal(time.Hour), operation)
		e.restart()
		e.requests = nil
		e.Expect(e.reconcile(bucket)).To(BeNumerically("~", time.Hour, time.Second), operation)
		e.Expect(e.requests).To(BeEmpty())
	}
}

func TestASecondFailureOfTheSameKindWaitsAfterARestartToo(t *testing.T) {
	bucket := newBucket()
	e := newEnv(t, []configv1alpha1.MockBehaviour{{Failures: 2, RetryAfter: duration(time.Hour)}}, bucket)
	e.Expect(e.reconcile(bucket)).To(Equal(time.Hour))
	e.pass(time.Hour)
	e.Expect(e.reconcile(bucket)).To(Equal(time.Hour))
	e.restart()
	e.Expect(e.reconcile(bucket)).To(BeNumerically("~", time.Hour, time.Second))
}

func TestAForcedDeletionIsNotHeldUp(t *testing.T) {
	forced := newCluster(func(shoot *gardencorev1beta1.Shoot) {
		now := metav1.Now()
		shoot.DeletionTimestamp = &now
		shoot.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
	})
	rules := []configv1alpha1.MockBehaviour{{Operation: "Delete", ErrorRate: 1}, {Operation: "Create"}, {ErrorRate: 1}}
	t.Run("by the shoot", func(t *testing.T) {
		infra := newInfrastructure()
		e := newEnv(t, rules, newCluster(nil), infra)
		e.reconcile(infra)
		e.delete(infra)
		e.Expect(e.reconcile(infra)).To(Equal(5 * time.Second))
		e.Expect(state(infra)).To(Equal("Delete Error"))

		cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		e.Expect(e.client.Delete(e.ctx, cluster)).To(Succeed())
		forced.ResourceVersion = ""
		e.Expect(e.client.Create(e.ctx, forced)).To(Succeed())
		e.pass(5 * time.Second)
		e.Expect(e.reconcile(infra)).To(BeZero())
		e.Expect(infra.UID).To(BeEmpty())
	})
	t.Run("by the annotation that gardenlet puts on a Bastion", func(t *testing.T) {
		bastion := newObjectOf(kinds()[2])
		bastion.GetAnnotations()["confirmation.gardener.cloud/force-deletion"] = "true"
		e := newEnv(t, rules, newCluster(nil), bastion)
		e.reconcile(bastion)
		e.delete(bastion)
		e.Expect(e.reconcile(bastion)).To(BeZero())
		e.Expect(bastion.GetUID()).To(BeEmpty())
	})
	t.Run("unless that is what is configured to fail", func(t *testing.T) {
		bastion := newObjectOf(kinds()[2])
		bastion.GetAnnotations()["confirmation.gardener.cloud/force-deletion"] = "true"
		e := newEnv(t, append([]configv1alpha1.MockBehaviour{{Operation: "ForceDelete", Failures: 1}}, rules...), newCluster(nil), bastion)
		e.reconcile(bastion)
		e.delete(bastion)
		e.Expect(e.reconcile(bastion)).To(Equal(5 * time.Second))
	})
}

func TestTheFirstRuleThatFitsCounts(t *testing.T) {
	rules := []configv1alpha1.MockBehaviour{
		{Kind: "Worker", Error: configv1alpha1.MockError{Message: "worker"}},
		{Operation: "Delete", Error: configv1alpha1.MockError{Message: "delete"}},
		{Kind: "BackupBucket", Operation: "Create", Error: configv1alpha1.MockError{Message: "create"}},
		{Kind: "BackupBucket", Error: configv1alpha1.MockError{Message: "bucket"}},
		{Error: configv1alpha1.MockError{Message: "all"}},
	}
	for _, tc := range []struct{ kind, operation, message string }{
		{"Worker", "Create", "worker"}, {"Worker", "Delete", "worker"}, {"BackupBucket", "Delete", "delete"}, {"BackupBucket", "Create", "create"},
		{"BackupBucket", "Restore", "bucket"}, {"Network", "Migrate", "all"}, {"Worker", "ForceDelete", ""},
	} {
		rule := newBehaviours(tc.kind, configv1alpha1.MockConfiguration{Behaviours: rules}).ruleFor(configv1alpha1.MockOperation(tc.operation))
		if tc.message == "" {
			NewWithT(t).Expect(rule).To(BeNil(), "%v", tc)
			continue
		}
		NewWithT(t).Expect(rule.Error.Message).To(Equal(tc.message), "%v", tc)
	}
}

// outcomes lets a number of objects fail or not, with their delays.
func outcomes(seed int64, objects int) ([]string, int) {
	b := newBehaviours("Network", configv1alpha1.MockConfiguration{Seed: seed, Behaviours: []configv1alpha1.MockBehaviour{{
		ErrorRate: 0.2, Delay: duration(time.Second), Jitter: duration(time.Second), RetryAfter: duration(time.Second),
	}}})
	var out []string
	failures := 0
	for i := range objects {
		key := types.NamespacedName{Namespace: namespace, Name: fmt.Sprint(i)}
		for range 2 {
			p := b.plan(key, "Create")
			out = append(out, fmt.Sprint(p.delay, p.failure != nil))
			if p.failure != nil {
				failures++
			}
			if p.delay < time.Second || p.delay >= 2*time.Second {
				panic(p.delay)
			}
			b.ended(key, "Create", p.failure != nil)
		}
	}
	return out, failures
}

func TestChanceDependsOnTheSeedAndNothingElse(t *testing.T) {
	g := NewWithT(t)
	first, failures := outcomes(1, 5000)
	again, _ := outcomes(1, 5000)
	other, _ := outcomes(2, 5000)
	g.Expect(again).To(Equal(first))
	g.Expect(other).NotTo(Equal(first))
	g.Expect(failures).To(BeNumerically("~", 2000, 150), "of 10000 attempts at 20 %%")
	different := map[string]bool{}
	for _, outcome := range first {
		different[outcome] = true
	}
	g.Expect(len(different)).To(BeNumerically(">", 9000))
}

func TestRememberNothingOfObjectsThatJustWait(t *testing.T) {
	bucket := newBucket()
	e := newEnv(t, []configv1alpha1.MockBehaviour{{Delay: duration(time.Second)}}, bucket)
	e.reconcile(bucket)
	e.Expect(remembered(e.reconcilerFor(bucket))).To(HaveLen(1))
	e.pass(time.Second)
	e.reconcile(bucket)
	e.Expect(isReady(bucket)).To(Succeed())
	e.Expect(remembered(e.reconcilerFor(bucket))).To(BeEmpty())
}
