// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	predicateutils "github.com/gardener/gardener/pkg/controllerutils/predicate"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

func TestSpendsFewWritesOnAnObject(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	e.do = func(_ context.Context, op *Operation[infrastructureType]) error {
		op.Object.Status.EgressCIDRs = []string{"192.0.2.1/32"}
		return nil
	}

	e.Expect(e.reconcile(infra)).To(BeZero())
	e.Expect(health.CheckExtensionObject(infra)).To(Succeed())
	e.Expect(stateName(infra)).To(Equal("Create Succeeded"))
	e.Expect(infra.Status.LastOperation.Description).To(Equal("Successfully reconciled Infrastructure"))
	e.Expect(infra.Status.EgressCIDRs).To(HaveExactElements("192.0.2.1/32"))
	e.Expect(infra.Finalizers).To(HaveExactElements(finalizer))
	e.Expect(e.requests).To(HaveExactElements("patch", "patch status"), "creation")

	e.requests, e.calls = nil, nil
	e.Expect(e.reconcile(infra)).To(BeZero())
	e.Expect(e.requests).To(BeEmpty(), "nothing is asked for")
	e.Expect(e.calls).To(BeEmpty())

	e.pass(time.Minute)
	e.annotate(infra, "reconcile")
	e.Expect(e.reconcile(infra)).To(BeZero())
	e.Expect(health.CheckExtensionObject(infra)).To(Succeed())
	e.Expect(stateName(infra)).To(Equal("Reconcile Succeeded"))
	e.Expect(e.requests).To(HaveExactElements("patch", "patch status"), "reconcile")

	e.requests, e.calls = nil, nil
	e.delete(infra)
	e.Expect(e.reconcile(infra)).To(BeZero())
	e.Expect(infra.UID).To(BeEmpty(), "it is gone")
	e.Expect(e.requests).To(HaveExactElements("patch"), "deletion")
	e.Expect(e.calls).To(HaveExactElements("delete"))
	e.Expect(e.reconcile(infra)).To(BeZero())
	e.Expect(e.gone).To(HaveExactElements("a"))
}

func TestIsReadyForGardenerThoughItsClockIsAhead(t *testing.T) {
	infra := newInfrastructure()
	infra.Annotations["gardener.cloud/timestamp"] = start.Add(time.Hour).Format(time.RFC3339Nano)
	e := newEnv(t, newCluster(nil), infra)
	e.reconcile(infra)
	e.Expect(health.CheckExtensionObject(infra)).To(Succeed())
}

func TestMigratesAndRestoresTwice(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	e.reconcile(infra)

	for range 2 {
		e.annotate(infra, "migrate")
		e.Expect(e.reconcile(infra)).To(BeZero())
		e.Expect(stateName(infra)).To(Equal("Migrate Succeeded"))
		e.Expect(infra.Finalizers).To(BeEmpty())
		e.Expect(infra.Annotations).NotTo(HaveKey("gardener.cloud/operation"))
	}
	e.annotate(infra, "reconcile")
	e.calls = nil
	e.Expect(e.reconcile(infra)).To(BeZero())
	e.Expect(e.calls).To(BeEmpty(), "what is migrated is not brought to life again")
	e.Expect(infra.Annotations).NotTo(HaveKey("gardener.cloud/operation"))
	e.delete(infra)
	e.Expect(infra.UID).To(BeEmpty())

	restored := newInfrastructure()
	e.Expect(e.client.Create(e.ctx, restored)).To(Succeed())
	e.annotate(restored, "wait-for-state")
	e.Expect(e.reconcile(restored)).To(BeZero())
	e.Expect(e.calls).To(BeEmpty(), "its state is not there yet")
	for range 2 {
		e.annotate(restored, "restore")
		e.Expect(e.reconcile(restored)).To(BeZero())
		e.Expect(stateName(restored)).To(Equal("Restore Succeeded"))
		e.Expect(health.CheckExtensionObject(restored)).To(Succeed())
		e.Expect(restored.Finalizers).To(HaveExactElements(finalizer))
	}
	e.Expect(e.calls).To(HaveExactElements("reconcile", "reconcile"), "a restoration is a reconcile of its own type")
}

func TestSaysWhatItWaitsForOnlyIfThatTakesLong(t *testing.T) {
	for operation, want := range map[string]struct{ before, after string }{
		"create": {"", "Create Processing"}, "migrate": {"Create Succeeded", "Migrate Processing"},
		"restore": {"Create Succeeded", "Restore Processing"}, "delete": {"Create Succeeded", "Delete Processing"},
	} {
		t.Run(operation, func(t *testing.T) {
			infra := newInfrastructure()
			e := newEnv(t, newCluster(nil), infra)
			e.annotate(infra, "reconcile")
			if operation != "create" {
				e.reconcile(infra)
				e.pass(time.Hour)
			}
			switch operation {
			case "create":
			case "delete":
				e.delete(infra)
				e.clock.SetTime(infra.DeletionTimestamp.Time)
			default:
				e.annotate(infra, operation)
			}
			e.opts.Quiet = DefaultQuiet
			e.do = func(context.Context, *Operation[infrastructureType]) error {
				return Waiting(errors.New("machines are on their way"), time.Hour)
			}
			e.requests = nil
			for range 2 {
				e.Expect(e.reconcile(infra)).To(BeNumerically("~", DefaultQuiet, time.Second), "it is looked at again when it is time to say something")
				e.Expect(stateName(infra)).To(Equal(want.before))
				e.Expect(e.requests).NotTo(ContainElement("patch status"))
			}
			e.Expect(New(e.opts).IsDue(infra)).To(BeTrue(), "another instance would go on with it")

			e.pass(DefaultQuiet)
			for range 2 {
				e.Expect(e.reconcile(infra)).To(Equal(time.Hour))
				e.Expect(stateName(infra)).To(Equal(want.after))
				e.Expect(infra.Status.LastOperation.Description).To(Equal("machines are on their way"))
			}
			e.Expect(slices.DeleteFunc(e.requests, func(request string) bool { return request != "patch status" })).To(HaveLen(1), "it is said once")
		})
	}
}

func TestSaysAtOnceWhatItWaitsForIfTheStatusWouldBeMistaken(t *testing.T) {
	wait := func(context.Context, *Operation[infrastructureType]) error {
		return Waiting(errors.New("machines are on their way"), time.Hour)
	}
	for name, prepare := range map[string]func(*env, infrastructureType){
		"the last one has succeeded": func(e *env, infra infrastructureType) {
			e.reconcile(infra)
			e.annotate(infra, "reconcile")
		},
		"the last one has failed": func(e *env, infra infrastructureType) {
			e.do = func(context.Context, *Operation[infrastructureType]) error { return errors.New("out of machines") }
			_, err := e.tryReconcile(infra)
			e.Expect(err).To(HaveOccurred())
		},
		"nothing tells when it was asked for": func(e *env, infra infrastructureType) {
			e.read(infra)
			infra.Annotations = nil
			e.Expect(e.client.Update(e.ctx, infra)).To(Succeed())
		},
	} {
		t.Run(name, func(t *testing.T) {
			infra := newInfrastructure()
			e := newEnv(t, newCluster(nil), infra)
			e.annotate(infra, "reconcile")
			prepare(e, infra)
			e.opts.Quiet = DefaultQuiet
			e.do = wait
			e.Expect(e.reconcile(infra)).To(Equal(time.Hour))
			e.Expect(stateName(infra)).To(HaveSuffix(" Processing"))
			e.Expect(infra.Status.LastError).To(BeNil())
		})
	}
}

func TestWaitsWithoutHoldingAWorkerOrSayingItTwice(t *testing.T) {
	for _, operation := range []string{"", "reconcile", "migrate", "restore", "delete"} {
		t.Run(operation, func(t *testing.T) {
			infra := newInfrastructure()
			e := newEnv(t, newCluster(nil), infra)
			if operation != "" {
				e.reconcile(infra)
			}
			if operation == "delete" {
				e.delete(infra)
			} else if operation != "" {
				e.annotate(infra, operation)
			}
			e.do = func(_ context.Context, op *Operation[infrastructureType]) error {
				op.Object.Status.EgressCIDRs = []string{"192.0.2.1/32"}
				return Waiting(errors.New("machines are on their way"), time.Hour)
			}
			e.Expect(e.reconcile(infra)).To(Equal(time.Hour))
			e.Expect(stateName(infra)).To(HaveSuffix(" Processing"))
			e.Expect(infra.Status.LastOperation.Description).To(Equal("machines are on their way"))
			e.Expect(infra.Status.LastError).To(BeNil())
			e.Expect(infra.Status.EgressCIDRs).NotTo(BeEmpty(), "what is known already is told")
			if operation == "" || operation == "reconcile" {
				e.Expect(infra.Annotations).NotTo(HaveKey("gardener.cloud/operation"), "it is taken up")
			}

			e.requests = nil
			e.Expect(e.reconcile(infra)).To(Equal(time.Hour))
			e.Expect(e.requests).To(BeEmpty(), "it is said already")

			e.do = nil
			e.Expect(e.reconcile(infra)).To(BeZero())
			switch operation {
			case "delete":
				e.Expect(infra.UID).To(BeEmpty())
			case "migrate":
				e.Expect(infra.Finalizers).To(BeEmpty())
			default:
				e.Expect(health.CheckExtensionObject(infra)).To(Succeed())
			}
		})
	}
}

func TestAMistakeOfAUserIsToldOnceAndNotRetriedHot(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	mistake := v1beta1helper.NewErrorWithCodes(errors.New("no such region"), gardencorev1beta1.ErrorConfigurationProblem)
	e.do = func(context.Context, *Operation[infrastructureType]) error {
		return fmt.Errorf("checking: %w", &reconcilerutils.RequeueAfterError{Cause: mistake, RequeueAfter: time.Hour})
	}
	e.Expect(e.reconcile(infra)).To(Equal(time.Hour))
	e.Expect(stateName(infra)).To(Equal("Create Error"))
	e.Expect(infra.Status.LastError.Codes).To(HaveExactElements(gardencorev1beta1.ErrorConfigurationProblem))
	e.Expect(infra.Status.LastError.Description).To(ContainSubstring("no such region"))
	e.Expect(infra.Status.ObservedGeneration).To(Equal(int64(1)))
	e.Expect(infra.Annotations).NotTo(HaveKey("gardener.cloud/operation"))

	e.requests = nil
	e.Expect(e.reconcile(infra)).To(Equal(time.Hour))
	e.Expect(e.requests).To(BeEmpty())

	e.pass(time.Minute)
	e.annotate(infra, "reconcile")
	e.Expect(e.reconcile(infra)).To(Equal(time.Hour))
	e.Expect(infra.Status.LastOperation.LastUpdateTime.Time).To(BeTemporally("==", start.Add(time.Minute).Truncate(time.Second)), "who asks gets a new answer")

	e.do = func(context.Context, *Operation[infrastructureType]) error {
		return Waiting(errors.New("nearly there"), time.Hour)
	}
	e.reconcile(infra)
	e.Expect(infra.Status.LastError).To(BeNil(), "nothing is wrong any more")
	e.do = nil
	e.reconcile(infra)
	e.Expect(health.CheckExtensionObject(infra)).To(Succeed())
}

func TestAnActuatorThatAsksUsersLeavesRoomForOthers(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	e.opts.AsksUsers = true
	e.do = func(ctx context.Context, _ *Operation[infrastructureType]) error {
		deadline, ok := ctx.Deadline()
		e.Expect(ok).To(BeTrue())
		e.Expect(time.Until(deadline)).To(BeNumerically("<=", 20*time.Second))
		return Waiting(errors.New("namespace a is being deleted"), 2*time.Second)
	}
	e.annotate(infra, "reconcile")
	r := New(e.opts)
	attempt := func() time.Duration {
		result, err := r.Reconcile(e.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(infra)})
		e.Expect(err).NotTo(HaveOccurred())
		return result.RequeueAfter
	}
	e.Expect(attempt()).To(Equal(2 * time.Second))
	e.pass(time.Minute)
	e.Expect(attempt()).To(And(BeNumerically(">=", 15*time.Second), BeNumerically("<", 16*time.Second)))
	e.pass(24 * time.Hour)
	e.Expect(attempt()).To(Equal(10 * time.Minute))
}

func TestAPauseIsNotLongBecauseTheRequestIsOld(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	e.opts.AsksUsers = true
	e.annotate(infra, "reconcile")
	e.reconcile(infra)
	e.pass(24 * time.Hour)
	e.opts.IsAmiss = func(context.Context, infrastructureType) bool { return true }
	e.do = func(context.Context, *Operation[infrastructureType]) error {
		return Waiting(errors.New("its pod starts"), 2*time.Second)
	}
	e.Expect(e.reconcile(infra)).To(Equal(2 * time.Second))
}

func TestAnyOtherErrorIsTriedAgainByTheQueue(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	// Not one of the object itself, whatever it looks like.
	missing := apierrors.NewNotFound(extensionsv1alpha1.Resource("infrastructures"), "a")
	e.do = func(context.Context, *Operation[infrastructureType]) error { return missing }
	_, err := e.tryReconcile(infra)
	e.Expect(err).To(MatchError(missing))
	e.Expect(stateName(infra)).To(Equal("Create Error"))
	e.Expect(e.gone).To(BeEmpty())
	e.Expect(e.reported).To(HaveExactElements(MatchError(missing)))
}

func TestAnAttemptThatIsTooEarlySaysNothing(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	e.reconcile(infra)
	e.pass(time.Minute)
	e.annotate(infra, "reconcile")
	e.requests = nil
	e.do = func(context.Context, *Operation[infrastructureType]) error { return Later(time.Hour) }
	e.Expect(e.reconcile(infra)).To(Equal(time.Hour))
	e.Expect(e.requests).To(HaveExactElements("patch"))
}

func TestARequestWithoutATimeIsNotLostWhereverItIsStopped(t *testing.T) {
	for stopped := 1; stopped <= 3; stopped++ {
		t.Run(fmt.Sprintf("at write %d", stopped), func(t *testing.T) {
			infra := newInfrastructure()
			e := newEnv(t, newCluster(nil), infra)
			e.reconcile(infra)
			e.pass(time.Minute)
			infra.Annotations = map[string]string{"gardener.cloud/operation": "reconcile"}
			e.Expect(e.client.Update(e.ctx, infra)).To(Succeed())

			e.requests = nil
			e.fail = func(string) error {
				if len(e.requests) == stopped {
					return apierrors.NewInternalError(errors.New("no answer"))
				}
				return nil
			}
			_, err := e.tryReconcile(infra)
			e.Expect(err).To(MatchError(ContainSubstring("no answer")))
			e.Expect(health.CheckExtensionObject(infra)).NotTo(Succeed(), "Gardener does not go on")

			e.fail = nil
			e.Expect(New(e.opts).IsDue(infra)).To(BeTrue(), "the next instance takes it up")
			e.Expect(e.reconcile(infra)).To(BeZero())
			e.Expect(health.CheckExtensionObject(infra)).To(Succeed())
			e.Expect(New(e.opts).IsDue(infra)).To(BeFalse())
		})
	}
}

func TestSavesTheStatusBeforeTheEnd(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	e.do = func(ctx context.Context, op *Operation[infrastructureType]) error {
		e.Expect(op.SaveStatus(ctx)).To(Succeed(), "nothing has changed")
		op.Object.Status.EgressCIDRs = []string{"192.0.2.1/32"}
		e.Expect(op.SaveStatus(ctx)).To(Succeed())
		saved := newInfrastructure()
		e.read(saved)
		e.Expect(saved.Status.EgressCIDRs).NotTo(BeEmpty())
		op.Object.Status.EgressCIDRs = nil
		return nil
	}
	e.reconcile(infra)
	e.Expect(infra.Status.EgressCIDRs).To(BeEmpty())
	e.Expect(e.requests).To(HaveExactElements("patch", "patch status", "patch status"))
	e.Expect(health.CheckExtensionObject(infra)).To(Succeed())
}

func TestLeavesAloneWhatIsNotItsOwn(t *testing.T) {
	garden := extensionsv1alpha1.ExtensionClassGarden
	failed := newCluster(func(shoot *gardencorev1beta1.Shoot) {
		shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateFailed}
	})
	for name, tc := range map[string]struct {
		cluster *extensionsv1alpha1.Cluster
		change  func(infrastructureType)
	}{
		"another type":            {newCluster(nil), func(infra infrastructureType) { infra.Spec.Type = "mock" }},
		"another class":           {newCluster(nil), func(infra infrastructureType) { infra.Spec.Class = &garden }},
		"of a shoot that failed":  {failed, func(infrastructureType) {}},
		"deleted, never finished": {newCluster(nil), func(infra infrastructureType) { infra.Finalizers = []string{"others"} }},
	} {
		t.Run(name, func(t *testing.T) {
			infra := newInfrastructure()
			tc.change(infra)
			e := newEnv(t, tc.cluster, infra)
			if len(infra.Finalizers) > 0 {
				e.delete(infra)
			}
			e.Expect(e.reconcile(infra)).To(BeZero())
			e.Expect(e.requests).To(BeEmpty())
			e.Expect(e.calls).To(BeEmpty())
		})
	}
}

func TestWhatIsAskedForWhileTheShootIsFailedIsDoneOnceItIsNot(t *testing.T) {
	failed := newCluster(func(shoot *gardencorev1beta1.Shoot) {
		shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateFailed}
	})
	for name, test := range map[string]struct {
		ask   func(*env, infrastructureType)
		calls string
	}{
		"a creation": {func(*env, infrastructureType) {}, "reconcile"},
		"a deletion": {func(e *env, infra infrastructureType) {
			infra.Finalizers = []string{finalizer}
			e.Expect(e.client.Update(e.ctx, infra)).To(Succeed())
			e.delete(infra)
		}, "delete"},
	} {
		t.Run(name, func(t *testing.T) {
			infra := newInfrastructure()
			e := newEnv(t, failed.DeepCopy(), infra)
			test.ask(e, infra)
			e.Expect(e.reconcile(infra)).To(BeZero())
			e.Expect(e.calls).To(BeEmpty())

			repaired := newCluster(nil)
			e.Expect(e.client.Update(e.ctx, repaired)).To(Succeed())
			r := New(e.opts)
			e.Expect(r.clusterPredicate().Update(event.UpdateEvent{ObjectOld: failed, ObjectNew: repaired})).To(BeTrue())
			for _, request := range r.OfCluster(e.ctx, repaired) {
				_, err := r.Reconcile(e.ctx, request)
				e.Expect(err).NotTo(HaveOccurred())
			}
			e.Expect(e.calls).To(HaveExactElements(test.calls))
		})
	}
}

func TestOnlyTheEndOfAFailureWakesTheObjectsOfACluster(t *testing.T) {
	inState := func(state gardencorev1beta1.LastOperationState) *extensionsv1alpha1.Cluster {
		return newCluster(func(shoot *gardencorev1beta1.Shoot) {
			shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{State: state}
		})
	}
	healthy, failed := inState(gardencorev1beta1.LastOperationStateSucceeded), inState(gardencorev1beta1.LastOperationStateFailed)
	named := newCluster(func(shoot *gardencorev1beta1.Shoot) { shoot.Annotations = map[string]string{"state": "Failed"} })

	e := newEnv(t)
	wakes := New(e.opts).clusterPredicate()
	for name, test := range map[string]struct {
		before, after *extensionsv1alpha1.Cluster
		wakes         bool
	}{
		"it fails":                      {healthy, failed, false},
		"it has failed":                 {failed, failed, false},
		"it is repaired":                {failed, healthy, true},
		"it has not failed":             {healthy, inState(gardencorev1beta1.LastOperationStateProcessing), false},
		"the word is somewhere else":    {named, healthy, false},
		"it is repaired, with the word": {failed, named, true},
	} {
		e.Expect(wakes.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after})).To(Equal(test.wakes), name)
	}
	e.Expect(wakes.Create(event.CreateEvent{Object: failed})).To(BeFalse())
	e.Expect(wakes.Delete(event.DeleteEvent{Object: failed})).To(BeTrue(), "without a Cluster it counts as one that has not failed")
	e.Expect(wakes.Delete(event.DeleteEvent{Object: healthy})).To(BeFalse())

	e.opts.IgnoreOperationAnnotation = true
	e.Expect(New(e.opts).clusterPredicate().Update(event.UpdateEvent{ObjectOld: healthy, ObjectNew: healthy})).To(BeTrue())
}

func TestReconcilesWithoutACluster(t *testing.T) {
	seed := extensionsv1alpha1.ExtensionClassSeed
	for name, change := range map[string]func(*env, infrastructureType){
		"that is not there":    func(*env, infrastructureType) {},
		"of an object of seed": func(_ *env, infra infrastructureType) { infra.Spec.Class = &seed },
		"that is not asked for": func(e *env, _ infrastructureType) {
			e.Expect(e.client.Create(e.ctx, newUnversionedCluster())).To(Succeed())
			e.opts.WithoutClusters = true
		},
	} {
		t.Run(name, func(t *testing.T) {
			infra := newInfrastructure()
			e := newEnv(t)
			change(e, infra)
			e.Expect(e.client.Create(e.ctx, infra)).To(Succeed())
			e.do = func(_ context.Context, op *Operation[infrastructureType]) error {
				e.Expect(op.Cluster.Shoot()).To(BeNil())
				e.Expect(op.Force).To(BeFalse())
				return nil
			}
			e.Expect(e.reconcile(infra)).To(BeZero())
			e.annotate(infra, "migrate")
			e.Expect(e.reconcile(infra)).To(BeZero())
			e.Expect(e.calls).To(HaveExactElements("reconcile", "migrate"))
		})
	}
}

func newUnversionedCluster() *extensionsv1alpha1.Cluster {
	cluster := newCluster(nil)
	cluster.ResourceVersion = ""
	return cluster
}

func TestADeletionIsForcedByTheShootOrTheObject(t *testing.T) {
	forced := newCluster(func(shoot *gardencorev1beta1.Shoot) {
		now := metav1.Now()
		shoot.DeletionTimestamp = &now
		shoot.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
	})
	for _, byShoot := range []bool{true, false} {
		infra, cluster := newInfrastructure(), newCluster(nil)
		if byShoot {
			cluster = forced
		} else {
			infra.Annotations["confirmation.gardener.cloud/force-deletion"] = "true"
		}
		e := newEnv(t, cluster, infra)
		e.reconcile(infra)
		e.delete(infra)
		e.Expect(e.reconcile(infra)).To(BeZero())
		e.Expect(infra.UID).To(BeEmpty())
		e.Expect(e.calls).To(HaveExactElements("reconcile", "force-delete"))
	}
}

func TestWhatHasBegunEndsWhenTheProgramIsToEndAndNothingMoreBegins(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	e.opts.Working = &sync.RWMutex{}
	ended := make(chan struct{})
	e.do = func(context.Context, *Operation[infrastructureType]) error {
		go func() {
			e.opts.Working.Lock()
			close(ended)
		}()
		e.Consistently(ended, "100ms").ShouldNot(BeClosed(), "a reconcile has begun")
		return nil
	}
	e.Expect(e.reconcile(infra)).To(BeZero())
	e.Expect(stateName(infra)).To(Equal("Create Succeeded"))
	e.Eventually(ended).Should(BeClosed(), "the reconcile has ended")

	e.annotate(infra, "reconcile")
	e.calls, e.requests = nil, nil
	e.Expect(e.reconcile(infra)).To(BeZero())
	e.Expect(e.calls).To(BeEmpty())
	e.Expect(e.requests).To(BeEmpty())
}

func TestGoesOnWhereItWasStopped(t *testing.T) {
	for name, tc := range map[string]struct{ operation, request string }{
		"before the finalizer of a creation":                {"", "patch"},
		"between finalizer and status of a creation":        {"", "patch status"},
		"between annotation and status of a reconcile":      {"reconcile", "patch status"},
		"before the annotation of a reconcile":              {"reconcile", "patch"},
		"before the status of a migration":                  {"migrate", "patch status"},
		"between status and annotation of a migration":      {"migrate", "patch"},
		"before the status of a restoration":                {"restore", "patch status"},
		"between status and annotation of a restoration":    {"restore", "patch"},
		"before the finalizer is taken away for a deletion": {"delete", "patch"},
	} {
		t.Run(name, func(t *testing.T) {
			infra := newInfrastructure()
			e := newEnv(t, newCluster(nil), infra)
			if tc.operation != "" {
				e.reconcile(infra)
				e.pass(time.Minute)
			}
			if tc.operation == "delete" {
				e.delete(infra)
			} else if tc.operation != "" {
				e.annotate(infra, tc.operation)
			}

			e.fail = func(request string) error {
				if request == tc.request {
					return apierrors.NewInternalError(errors.New("no answer"))
				}
				return nil
			}
			_, err := e.tryReconcile(infra)
			e.Expect(err).To(MatchError(ContainSubstring("no answer")), "the queue tries again")
			if tc.operation != "migrate" && tc.operation != "delete" {
				e.Expect(health.CheckExtensionObject(infra)).NotTo(Succeed(), "Gardener does not go on")
			}

			e.fail = nil
			e.Expect(New(e.opts).IsDue(infra)).To(BeTrue(), "the next instance takes it up")
			e.Expect(e.reconcile(infra)).To(BeZero())
			switch tc.operation {
			case "delete":
				e.Expect(infra.UID).To(BeEmpty())
			case "migrate":
				e.Expect(infra.Finalizers).To(BeEmpty())
			default:
				e.Expect(health.CheckExtensionObject(infra)).To(Succeed())
				e.Expect(New(e.opts).IsDue(infra)).To(BeFalse())
			}
		})
	}
}

func TestNeverTakesAwayWhatWasAskedForMeanwhile(t *testing.T) {
	for _, isNew := range []bool{true, false} {
		for _, request := range []string{"patch status", "patch"} {
			t.Run(fmt.Sprintf("%s, new: %t", request, isNew), func(t *testing.T) {
				infra := newInfrastructure()
				e := newEnv(t, newCluster(nil), infra)
				if !isNew {
					e.reconcile(infra)
					e.annotate(infra, "reconcile")
				}
				e.fail = func(sent string) error {
					if sent == request {
						e.fail = nil
						e.pass(time.Second)
						e.annotate(newInfrastructure(), "reconcile")
					}
					return nil
				}
				e.Expect(e.reconcile(infra)).To(Equal(RetryConflict))
				e.Expect(infra.Annotations).To(HaveKeyWithValue("gardener.cloud/operation", "reconcile"))
				e.Expect(e.reconcile(infra)).To(BeZero())
				e.Expect(health.CheckExtensionObject(infra)).To(Succeed())
			})
		}
	}
}

func TestConflictsAreRetriedLessAndLessOften(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	r := New(e.opts)
	attempt := func() time.Duration {
		result, err := r.Reconcile(e.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(infra)})
		e.Expect(err).NotTo(HaveOccurred())
		return result.RequeueAfter
	}
	conflict := func(string) error { return apierrors.NewConflict(schema.GroupResource{}, "a", errors.New("changed")) }

	e.fail = conflict
	for _, delay := range []time.Duration{RetryConflict, 2 * RetryConflict, 4 * RetryConflict} {
		e.Expect(attempt()).To(Equal(delay))
	}
	for range 10 {
		attempt()
	}
	e.Expect(attempt()).To(Equal(MaxRetryConflict))

	e.fail = nil
	e.Expect(attempt()).To(BeZero())
	e.annotate(infra, "reconcile")
	e.fail = conflict
	e.Expect(attempt()).To(Equal(RetryConflict), "success starts anew")
}

func TestGardenletHearsOfTheResultOfEachRequest(t *testing.T) {
	hears := predicateutils.LastOperationChanged(predicateutils.GetExtensionLastOperation)
	for name, result := range map[string]error{"success": nil, "failure": errors.New("not today")} {
		for _, apart := range []time.Duration{0, time.Minute} {
			for _, request := range []string{"none", "patch", "patch status"} {
				t.Run(fmt.Sprintf("%s, %s after the one before, another before the %s", name, apart, request), func(t *testing.T) {
					infra := newInfrastructure()
					e := newEnv(t, newCluster(nil), infra)
					e.do = func(context.Context, *Operation[infrastructureType]) error { return result }
					_, _ = e.tryReconcile(infra)
					e.pass(apart)
					e.annotate(infra, "reconcile")
					e.fail = func(sent string) error {
						if sent == request {
							e.fail = nil
							e.annotate(newInfrastructure(), "reconcile")
						}
						return nil
					}
					events, err := e.client.Watch(e.ctx, &extensionsv1alpha1.InfrastructureList{})
					e.Expect(err).NotTo(HaveOccurred())
					defer events.Stop()
					before, heard := infra.DeepCopy(), false
					for range 3 {
						_, _ = e.tryReconcile(infra)
					}
					for len(events.ResultChan()) > 0 {
						after := (<-events.ResultChan()).Object.(infrastructureType)
						isAnother := after.Annotations["gardener.cloud/operation"] == "reconcile" && before.Annotations["gardener.cloud/operation"] == ""
						heard = heard && !isAnother || hears.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
						before = after
					}
					e.Expect(heard).To(BeTrue())
					e.Expect(before.ResourceVersion).To(Equal(infra.ResourceVersion), "it has seen all")
				})
			}
		}
	}
}

func TestOthersMayChangeTheStatusMeanwhile(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	e.reconcile(infra)
	e.pass(time.Minute)
	e.annotate(infra, "reconcile")
	e.requests = nil
	e.do = func(ctx context.Context, _ *Operation[infrastructureType]) error {
		other := newInfrastructure()
		e.read(other)
		other.Status.Conditions = []gardencorev1beta1.Condition{{Type: "Healthy", Status: "True"}}
		return e.client.Status().Update(ctx, other)
	}
	e.Expect(e.reconcile(infra)).To(BeZero())
	e.Expect(health.CheckExtensionObject(infra)).To(Succeed())
	e.Expect(infra.Status.Conditions).To(HaveLen(1))
	e.Expect(e.requests).To(HaveExactElements("patch", "patch status"))
}

func TestDoesNotTouchAnotherObjectOfThatName(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	e.do = func(ctx context.Context, _ *Operation[infrastructureType]) error {
		old := newInfrastructure()
		e.read(old)
		old.Finalizers = nil
		e.Expect(e.client.Update(ctx, old)).To(Succeed())
		return e.client.Delete(ctx, old)
	}
	e.Expect(e.reconcile(infra)).To(BeZero(), "an object that vanishes is no error")
	e.Expect(e.gone).To(HaveExactElements("a"))
}

func TestADeletionOvertakesACreationThatIsNotDone(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	e.do = func(context.Context, *Operation[infrastructureType]) error {
		return Waiting(errors.New("not yet"), time.Hour)
	}
	e.reconcile(infra)
	e.delete(infra)
	e.do = nil
	e.Expect(e.reconcile(infra)).To(BeZero())
	e.Expect(infra.UID).To(BeEmpty())
	e.Expect(e.calls).To(HaveExactElements("reconcile", "delete"))
}

func TestAChangedSpecIsReconciledOnlyWhereTheAnnotationIsIgnored(t *testing.T) {
	for _, ignore := range []bool{false, true} {
		infra := newInfrastructure()
		e := newEnv(t, newCluster(nil), infra)
		e.opts.IgnoreOperationAnnotation = ignore
		e.reconcile(infra)
		infra.Generation = 2
		e.Expect(e.client.Update(e.ctx, infra)).To(Succeed())
		e.reconcile(infra)
		observed := int64(1)
		if ignore {
			observed = 2
		}
		e.Expect(infra.Status.ObservedGeneration).To(Equal(observed))
	}
}

func TestASpecPatchedRightAfterItsCreationIsReconciled(t *testing.T) {
	// gardenadm does so with an OperatingSystemConfig. It takes the annotation to be there still, so its patch lacks it.
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	e.reconcile(infra)
	r := New(e.opts)
	old := infra.DeepCopy()
	infra.Generation = 2
	infra.Annotations["gardener.cloud/timestamp"] = e.clock.Now().Add(-time.Second).UTC().Format(time.RFC3339Nano)
	e.Expect(e.client.Update(e.ctx, infra)).To(Succeed())
	e.Expect(predicate.And(r.Predicates()...).Update(event.UpdateEvent{ObjectOld: old, ObjectNew: infra})).To(BeTrue())
	for range 2 {
		_, err := r.Reconcile(e.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(infra)})
		e.Expect(err).NotTo(HaveOccurred())
	}
	e.Expect(e.client.Get(e.ctx, client.ObjectKeyFromObject(infra), infra)).To(Succeed())
	e.Expect(infra.Status.ObservedGeneration).To(BeEquivalentTo(2))
	e.Expect(e.calls).To(HaveExactElements("reconcile", "reconcile"), "once for each")
}

func TestALateAnswerToAnOlderRequestIsFollowedByAnother(t *testing.T) {
	for name, end := range map[string]error{"Succeeded": nil, "Error": errors.New("not today"), "Processing": Waiting(errors.New("something"), time.Hour)} {
		t.Run(name, func(t *testing.T) {
			infra := newInfrastructure()
			e := newEnv(t, newCluster(nil), infra)
			e.reconcile(infra)
			e.pass(time.Minute)
			e.annotate(infra, "reconcile")
			e.do = func(ctx context.Context, op *Operation[infrastructureType]) error {
				if op.Object.Generation != 1 {
					return nil
				}
				// Meanwhile another process, which leads as well, has carried out what was asked for next.
				other := &extensionsv1alpha1.Infrastructure{}
				e.Expect(e.client.Get(ctx, client.ObjectKeyFromObject(infra), other)).To(Succeed())
				other.Generation = 2
				e.Expect(e.client.Update(ctx, other)).To(Succeed())
				other.Status.ObservedGeneration = 2
				e.Expect(e.client.Status().Update(ctx, other)).To(Succeed())
				return end
			}
			_, _ = e.tryReconcile(infra)
			e.Expect(isAskedFor(infra)).To(BeTrue(), "or nobody would come back to it")
			e.Expect(e.reconcile(infra)).To(BeZero())
			e.Expect(health.CheckExtensionObject(infra)).To(Succeed())
			e.Expect(infra.Status.ObservedGeneration).To(Equal(int64(2)))
		})
	}
}

func TestWhatIsAmissIsPutRight(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	e.reconcile(infra)
	amiss := true
	e.opts.IsAmiss = func(context.Context, infrastructureType) bool { return amiss }
	e.reconcile(infra)
	e.Expect(stateName(infra)).To(Equal("Reconcile Succeeded"))
	amiss = false
	e.reconcile(infra)
	e.Expect(e.calls).To(HaveExactElements("reconcile", "reconcile"))
}

func TestAClusterThatCannotBeReadIsReportedAndReadAgain(t *testing.T) {
	infra, broken := newInfrastructure(), newCluster(nil)
	broken.Spec.Shoot.Raw = []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Shoot","spec":5}`)
	e := newEnv(t, broken, infra)
	for range 2 {
		_, err := e.tryReconcile(infra)
		e.Expect(err).To(HaveOccurred())
	}
	e.Expect(infra.Status.LastError.Description).To(ContainSubstring("reading Cluster shoot--local--a"))
	e.Expect(e.calls).To(BeEmpty())
	e.Expect(e.requests).To(HaveExactElements("patch", "patch status"), "once")
}

func TestAClusterWakesWhatIsServedInItsNamespace(t *testing.T) {
	other, elsewhere := newInfrastructure(), newInfrastructure()
	other.Name, other.Spec.Type = "b", "mock"
	elsewhere.Namespace = "shoot--local--b"
	e := newEnv(t, newInfrastructure(), other, elsewhere)
	requests := New(e.opts).OfCluster(e.ctx, newCluster(nil))
	e.Expect(requests).To(HaveExactElements(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(newInfrastructure())}))
}

func TestWhatIsWrongAtFirstSightGetsNoFinalizer(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	mistake := v1beta1helper.NewErrorWithCodes(errors.New("bad name"), gardencorev1beta1.ErrorConfigurationProblem)
	e.opts.Check = func(context.Context, *Operation[infrastructureType]) error {
		return &reconcilerutils.RequeueAfterError{Cause: mistake, RequeueAfter: time.Hour}
	}
	e.Expect(e.reconcile(infra)).To(Equal(time.Hour))
	e.Expect(infra.Finalizers).To(BeEmpty())
	e.Expect(infra.Status.LastError.Codes).To(HaveExactElements(gardencorev1beta1.ErrorConfigurationProblem))
	e.Expect(e.calls).To(BeEmpty())
	e.annotate(infra, "migrate")
	e.Expect(e.reconcile(infra)).To(BeZero(), "nothing keeps it from going")
	e.Expect(e.calls).To(HaveExactElements("migrate"))
}

func TestAnErrorThatStaysTheSameIsWrittenOnce(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	e.do = func(context.Context, *Operation[infrastructureType]) error { return errors.New("no answer") }
	for range 2 {
		_, err := e.tryReconcile(infra)
		e.Expect(err).To(HaveOccurred())
		e.pass(time.Minute)
	}
	e.Expect(infra.Status.LastOperation.LastUpdateTime.Time).To(BeTemporally("==", start.Truncate(time.Second)))
}

func TestAnObjectThatIsGoneIsNotDeletedAgainThoughTheCacheHasIt(t *testing.T) {
	infra := newInfrastructure()
	e := newEnv(t, newCluster(nil), infra)
	stale := false
	deleted := newInfrastructure()
	e.opts.Client = interceptor.NewClient(e.opts.Client.(client.WithWatch), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if cached, ok := obj.(infrastructureType); ok && stale {
				deleted.DeepCopyInto(cached)
				return nil
			}
			return c.Get(ctx, key, obj, opts...)
		},
	})
	r := New(e.opts)
	reconcileOnce := func() {
		result, err := r.Reconcile(e.ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(infra)})
		e.Expect(err).NotTo(HaveOccurred())
		e.Expect(result).To(BeZero())
	}
	reconcileOnce()
	e.read(infra)
	e.delete(infra)
	infra.DeepCopyInto(deleted)
	reconcileOnce()
	e.Expect(e.calls).To(HaveExactElements("reconcile", "delete"))

	stale = true
	reconcileOnce()
	e.Expect(e.calls).To(HaveExactElements("reconcile", "delete"))
}

func TestAKindThatExistsForNoneOfTheClassesHasNoController(t *testing.T) {
	e := newEnv(t)
	seeds, err := class.New([]extensionsv1alpha1.ExtensionClass{"seed"}, "seed")
	e.Expect(err).NotTo(HaveOccurred())
	e.opts.Classes, e.opts.ExistsFor = seeds, nil
	e.Expect(New(e.opts).AddToManager(nil, "test")).To(Succeed(), "by default there are objects of class shoot only")
}

func TestAControllerNeedsAClass(t *testing.T) {
	e := newEnv(t)
	e.opts.Classes = class.Set{}
	e.Expect(New(e.opts).AddToManager(nil, "test")).To(MatchError(ContainSubstring("no extension class given")))
}
