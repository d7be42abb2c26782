// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

func TestAWorkerWaitsForItsMachinesWithoutHoldingAWorkerOfTheController(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker())

	result := c.mustReconcile()
	g.Expect(result.RequeueAfter).To(Equal(time.Minute), "the watch is what wakes it")
	g.Expect(c.outcome()).To(Equal("Processing: waiting for machines: machine deployment shoot--local--foo-a-z1 has no machine set with its machine class yet; " +
		"machine deployment shoot--local--foo-a-z2 has no machine set with its machine class yet; machine deployment shoot--local--foo-b-z1 has no machine set with its machine class yet"))
	g.Expect(c.worker().Finalizers).To(ConsistOf("extensions.gardener.cloud/worker"))
	g.Expect(c.replicas()).To(Equal(map[string]int32{"a-z1": 2, "a-z2": 1, "b-z1": 1}))
	g.Expect(c.worker().Status.MachineDeployments).To(HaveLen(3), "gardenlet deploys cluster-autoscaler meanwhile")
	g.Expect(c.worker().Status.LastError).To(BeNil())

	c.finish()
	c.changeDeployment("a-z1", func(d *machinev1alpha1.MachineDeployment) {
		d.Status.AvailableReplicas, d.Status.UnavailableReplicas = 1, 1
	})
	c.mustReconcile()
	g.Expect(c.outcome()).To(Equal("Processing: waiting for machines: machine deployment shoot--local--foo-a-z1 has 1 of 2 machines available, 2 of 2 are up to date"))

	c.finish()
	g.Expect(c.mustReconcile().RequeueAfter).To(BeZero())
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	g.Expect(string(c.worker().Status.ProviderStatus.Raw)).To(And(ContainSubstring("registry.local/machine:1"), Not(ContainSubstring("machine:2"))))
}

func TestWaitingWritesTheStatusOnce(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker())
	c.mustReconcile()
	for range 3 {
		c.mustReconcile()
		g.Expect(c.requests).To(BeEmpty(), "not even user data is read again")
	}
}

func TestAReconcileThatChangesNothingCostsLittle(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	c.restart()
	c.clock.Step(time.Minute)
	before := c.worker().Status.MachineDeploymentsLastUpdateTime.Time

	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	g.Expect(c.requests).To(ConsistOf(
		"apply RoleBinding",
		// The user data of each pool and the Secret of each class, which are three.
		"get Secret", "get Secret", "get Secret", "get Secret", "get Secret",
		// Are there Secrets of classes that are not wanted any more?
		"live list *v1.PartialObjectMetadataList",
		// The status with the time at which the deployments were deployed, and the annotation.
		"status Worker", "patch Worker",
	))
	g.Expect(c.worker().Status.MachineDeploymentsLastUpdateTime.Time).To(BeTemporally(">", before), "gardenlet waits for this")
	g.Expect(c.worker().Annotations).NotTo(HaveKey("gardener.cloud/operation"))
}

func TestTheMachineDriverMayMakeMachinesBeforeThereAreAny(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker())
	c.fail = func(verb string, obj client.Object) error {
		if _, isClass := obj.(*machinev1alpha1.MachineClass); isClass && verb == "create" {
			return errors.New("stopped")
		}
		return nil
	}
	_, err := c.reconcile()
	g.Expect(err).To(HaveOccurred())

	binding := &rbacv1.RoleBinding{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: DriverRole}, binding)).To(Succeed())
	g.Expect(binding.RoleRef).To(Equal(rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: DriverRole}))
	g.Expect(binding.Subjects).To(ConsistOf(rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "machine-controller-manager"}))
	g.Expect(binding.OwnerReferences).To(ConsistOf(HaveField("UID", c.worker().UID)), "it goes with the Worker")
}

func TestNothingIsMadeThatTheMachineDriverMayNotWorkOn(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker())
	c.fail = func(verb string, _ client.Object) error {
		if verb == "apply" {
			return apierrors.NewForbidden(schema.GroupResource{Resource: "rolebindings"}, DriverRole, errors.New("not allowed"))
		}
		return nil
	}
	_, err := c.reconcile()
	g.Expect(err).To(MatchError(ContainSubstring("applying RoleBinding shoot--local--foo/" + DriverRole)))
	g.Expect(c.classSecrets()).To(BeEmpty())
	g.Expect(c.replicas()).To(BeEmpty())

	c.fail = nil
	c.succeed()
}

func TestACreationAndADeletionCostLittle(t *testing.T) {
	g := NewWithT(t)
	w := newWorker()
	w.Spec.Pools = w.Spec.Pools[1:]
	w.Annotations = map[string]string{"gardener.cloud/operation": "reconcile"}
	c := newSeed(t, w)
	var requests []string
	reconcile := func() {
		c.mustReconcile()
		requests = append(requests, c.requests...)
	}
	reconcile()
	c.finish()
	reconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	g.Expect(requests).To(ConsistOf(
		// The finalizer and the annotation.
		"patch Worker",
		"apply RoleBinding",
		// The user data.
		"get Secret",
		"create Secret", "create MachineClass", "create MachineDeployment",
		// That machines are awaited, with the deployments, and that they are there.
		"status Worker", "status Worker",
	))

	requests = nil
	c.delete()
	c.clock.SetTime(c.worker().DeletionTimestamp.Time)
	for range 4 {
		reconcile()
	}
	secret := c.credentials()
	secret.Finalizers = nil
	c.update(secret)
	reconcile()
	g.Expect(c.isGone()).To(BeTrue())
	g.Expect(requests).To(ConsistOf(
		// Does machine-controller-manager have the credentials? And after that, has it let go of them?
		"live Secret", "live Secret", "live Secret", "live Secret",
		"apply RoleBinding",
		"delete all MachineDeployment", "delete all MachineSet", "delete all MachineClass",
		"list Secret", "delete all Secret",
		"patch Worker",
	))
}

func TestTheTimeOfTheDeploymentsGrowsEvenWithinASecondAndIfGardenletIsAhead(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	first := c.worker().Status.MachineDeploymentsLastUpdateTime.Time
	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.worker().Status.MachineDeploymentsLastUpdateTime.Time).To(BeTemporally("==", first.Add(time.Second)))

	c.clock.Step(time.Hour)
	c.ask("restore")
	c.clock.Step(-10 * time.Second)
	w := c.worker()
	g.Expect(isStart(w, false)).To(BeTrue())
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	w.Status = c.worker().Status
	w.Status.LastOperation.State = gardencorev1beta1.LastOperationStateProcessing
	g.Expect(isStart(w, false)).To(BeFalse(), "else a restoration would wake itself without end")
}

func TestMachinesThatHaveFailedAreAnErrorWithCodes(t *testing.T) {
	failed := func(name, description string) *machinev1alpha1.MachineSummary {
		return &machinev1alpha1.MachineSummary{Name: name, LastOperation: machinev1alpha1.LastOperation{Description: description}}
	}
	for name, test := range map[string]struct {
		description string
		codes       []gardencorev1beta1.ErrorCode
	}{
		"no room left":        {"machine codes error: code = [ResourceExhausted] message = [Insufficient memory]", []gardencorev1beta1.ErrorCode{"ERR_INFRA_RESOURCES_DEPLETED"}},
		"a quota":             {"machine codes error: code = [ResourceExhausted] message = [pods \"a\" is forbidden: exceeded quota: x]", []gardencorev1beta1.ErrorCode{"ERR_INFRA_QUOTA_EXCEEDED"}},
		"a wrong class":       {"machine codes error: code = [InvalidArgument] message = [providerSpec.image]", []gardencorev1beta1.ErrorCode{"ERR_CONFIGURATION_PROBLEM"}},
		"missing permissions": {"machine codes error: code = [PermissionDenied] message = [forbidden]", []gardencorev1beta1.ErrorCode{"ERR_INFRA_UNAUTHORIZED"}},
		"something else":      {"machine codes error: code = [Internal] message = [boom]", nil},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newSeed(t, newWorker())
			c.mustReconcile()
			c.changeDeployment("b-z1", func(d *machinev1alpha1.MachineDeployment) {
				d.Status.FailedMachines = []*machinev1alpha1.MachineSummary{failed("m2", "zzz"), failed("m1", test.description)}
			})
			c.mustReconcile()
			lastError := c.worker().Status.LastError
			g.Expect(lastError.Codes).To(Equal(test.codes))
			g.Expect(lastError.Description).To(And(ContainSubstring("m1"), ContainSubstring(test.description), ContainSubstring("m2")))
			for range 5 {
				c.mustReconcile()
				g.Expect(c.requests).To(BeEmpty(), "the text is always the same, so it is not written again")
			}

			c.finish()
			c.mustReconcile()
			g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
			g.Expect(c.worker().Status.LastError).To(BeNil())
		})
	}
}

func TestADeletionOfAMachineThatIsTriedAgainIsNoError(t *testing.T) {
	const description = "Drain failed due to failure in update of node conditions. Will retry in next sync."
	g := NewWithT(t)
	c := newSeed(t, newWorker())
	c.mustReconcile()
	c.changeDeployment("b-z1", func(d *machinev1alpha1.MachineDeployment) {
		d.Status.FailedMachines = []*machinev1alpha1.MachineSummary{{Name: "m1", LastOperation: machinev1alpha1.LastOperation{
			Description: description, State: machinev1alpha1.MachineStateFailed, Type: machinev1alpha1.MachineOperationDelete,
		}}}
	})
	c.mustReconcile()
	g.Expect(c.worker().Status.LastError).To(BeNil())

	c.clock.Step(waitMax + time.Minute)
	c.mustReconcile()
	g.Expect(c.worker().Status.LastError).NotTo(BeNil(), "it goes on for too long")
	g.Expect(c.worker().Status.LastError.Description).To(And(ContainSubstring("machine m1 is not gone yet"), ContainSubstring(description)))

	c.finish()
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
}

func TestWhatTakesTooLongIsAnErrorAndAStuckManagerIsReplaced(t *testing.T) {
	pod := func(name string, created time.Time) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, CreationTimestamp: metav1.NewTime(created), Labels: map[string]string{"role": "machine-controller-manager"}}}
	}
	g := NewWithT(t)
	c := newSeed(t, newWorker())
	begin := c.clock.Now()
	c.create(pod("old", begin))
	c.create(pod("new", begin.Add(4*time.Minute)))
	c.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}})
	c.mustReconcile()
	for _, d := range c.deployments() {
		d.Finalizers = []string{mcmFinalizer}
		c.update(&d)
	}

	c.clock.Step(5 * time.Minute)
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Error: "))
	g.Expect(c.worker().Status.LastError.Description).To(ContainSubstring("this takes more than 5m0s: waiting for machines"))
	names := list(c, &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items }, func(p corev1.Pod) string { return p.Name })
	g.Expect(names).To(And(HaveLen(2), HaveKey("new"), HaveKey("other")))

	c.finish()
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "), "it is woken nevertheless")
}

func TestReplicas(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*extensionsv1alpha1.Worker)
		scaled int32
		want   int32
	}{
		"are left to cluster-autoscaler":                        {func(*extensionsv1alpha1.Worker) {}, 3, 3},
		"grow with the minimum":                                 {func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[0].Minimum = 5 }, 2, 3},
		"shrink with the maximum":                               {func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[0].Minimum, w.Spec.Pools[0].Maximum = 1, 3 }, 3, 2},
		"are the minimum without cluster-autoscaler":            {func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[0].Maximum = 3 }, 3, 2},
		"are the minimum if all machines had been put to sleep": {func(*extensionsv1alpha1.Worker) {}, 0, 2},
		"are zero for a pool that is scaled to zero":            {func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[0].Minimum, w.Spec.Pools[0].Maximum = 0, 0 }, 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newSeed(t, newWorker()).succeed()
			for name, d := range c.deployments() {
				if strings.HasSuffix(name, "a-z1") || test.scaled == 0 {
					d.Spec.Replicas = test.scaled
					c.update(&d)
				}
			}
			c.change(test.change)
			c.ask("reconcile")
			c.mustReconcile()
			g.Expect(c.replicas()).To(HaveKeyWithValue("a-z1", test.want))
		})
	}
}

func TestAShootIsHibernatedAndWokenUp(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	c.create(&machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m"}})

	c.shoot(hibernate)
	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.outcome()).To(ContainSubstring("machine deployment shoot--local--foo-a-z1 has 2 machines that are to be hibernated"))
	g.Expect(c.replicas()).To(Equal(map[string]int32{"a-z1": 0, "a-z2": 0, "b-z1": 0}))
	g.Expect(c.machines()["m"].Labels).To(HaveKeyWithValue("force-deletion", "True"))
	g.Expect(c.requests).NotTo(ContainElement("scale Deployment"), "somebody has to delete the machines first")

	c.finish()
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	g.Expect(c.requests).To(ContainElement("scale Deployment"))

	c.shoot(func(*gardencorev1beta1.Shoot) {})
	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.replicas()).To(Equal(map[string]int32{"a-z1": 2, "a-z2": 1, "b-z1": 1}))
	c.finish()
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
}

func TestAManagerThatHasJustBeenGivenWorkIsNotTakenForStuckThoughMachinesHaveFailed(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	c.create(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "manager", CreationTimestamp: metav1.NewTime(c.clock.Now()), Labels: map[string]string{"role": "machine-controller-manager"},
	}})
	for _, d := range c.deployments() {
		d.Finalizers = []string{mcmFinalizer}
		c.update(&d)
	}
	c.changeDeployment("b-z1", func(d *machinev1alpha1.MachineDeployment) {
		d.Status.FailedMachines = []*machinev1alpha1.MachineSummary{{Name: "m", LastOperation: machinev1alpha1.LastOperation{Description: "boom"}}}
	})
	pods := func() map[string]corev1.Pod {
		return list(c, &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items }, func(p corev1.Pod) string { return p.Name })
	}

	c.clock.Step(time.Hour)
	c.change(func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[1].MachineType = "small" })
	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Error: "), "the status is of before the change")
	g.Expect(pods()).To(HaveKey("manager"))

	c.clock.Step(stuckAfter)
	c.mustReconcile()
	g.Expect(pods()).To(BeEmpty())
}

func TestAMachineTypeThatChangesRolls(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	old := c.deployments()[namespace+"-b-z1"].Spec.Template.Spec.Class.Name
	c.change(func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[1].MachineType = "small" })
	c.ask("reconcile")
	c.mustReconcile()
	d := c.deployments()[namespace+"-b-z1"]
	class := d.Spec.Template.Spec.Class.Name
	g.Expect(class).NotTo(Equal(old))
	g.Expect(c.classes()).To(And(HaveKey(old), HaveKey(class)), "the old machines need their class until they are gone")
	g.Expect(c.outcome()).To(ContainSubstring("has no machine set with its machine class yet"))

	c.ensureSet(d, class)
	c.changeDeployment("b-z1", func(d *machinev1alpha1.MachineDeployment) { d.Status.Replicas, d.Status.UpdatedReplicas = 2, 1 })
	c.mustReconcile()
	g.Expect(c.outcome()).To(ContainSubstring("1 of 2 are up to date"))

	c.finish()
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	g.Expect(c.classes()).To(And(HaveLen(3), Not(HaveKey(old))))
	g.Expect(c.classSecrets()).To(And(HaveLen(3), Not(HaveKey(old))))
}

func TestAPoolThatIsNotWantedAnyMoreIsDeleted(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker()).succeed()
	gone := c.deployments()[namespace+"-b-z1"]
	gone.Finalizers = []string{mcmFinalizer}
	c.update(&gone)
	c.change(func(w *extensionsv1alpha1.Worker) { w.Spec.Pools = w.Spec.Pools[:1] })
	c.ask("reconcile")
	c.mustReconcile()
	c.mustReconcile()
	g.Expect(c.outcome()).To(Equal("Processing: waiting for the deletion of 1 machine deployments: shoot--local--foo-b-z1"))
	g.Expect(c.classes()).To(HaveLen(2))

	gone = c.deployments()[namespace+"-b-z1"]
	gone.Finalizers = nil
	c.update(&gone)
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	g.Expect(c.worker().Status.MachineDeployments).To(HaveLen(2))

	t.Run("and with the last one nothing is left", func(t *testing.T) {
		g := NewWithT(t)
		c.change(func(w *extensionsv1alpha1.Worker) { w.Spec.Pools = nil })
		c.ask("reconcile")
		c.mustReconcile()
		c.mustReconcile()
		g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
		g.Expect(c.deployments()).To(BeEmpty())
		g.Expect(c.classes()).To(BeEmpty())
		g.Expect(c.classSecrets()).To(BeEmpty())
		g.Expect(c.worker().Status.MachineDeployments).To(BeEmpty())
	})
}

func TestAConflictIsNoErrorAndTriedAgain(t *testing.T) {
	for name, conflict := range map[string]error{
		"somebody was faster":    apierrors.NewConflict(schema.GroupResource{Resource: "machinedeployments"}, "a", errors.New("changed")),
		"the cache did not know": apierrors.NewAlreadyExists(schema.GroupResource{Resource: "machinedeployments"}, "a"),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newSeed(t, newWorker())
			c.fail = func(verb string, obj client.Object) error {
				if _, ok := obj.(*machinev1alpha1.MachineDeployment); ok && verb == "create" {
					return conflict
				}
				return nil
			}
			g.Expect(c.mustReconcile().RequeueAfter).To(Equal(time.Second))
			g.Expect(c.outcome()).To(HavePrefix("Processing: trying again"))
			g.Expect(c.worker().Status.LastError).To(BeNil())
			c.fail = nil
			c.succeed()
		})
	}
}

func TestARestartHalfWayGoesOn(t *testing.T) {
	for _, stop := range []string{"get Secret", "create Secret", "create MachineClass", "create MachineDeployment"} {
		t.Run("at "+stop, func(t *testing.T) {
			g := NewWithT(t)
			c := newSeed(t, newWorker())
			down, seen := errors.New("connection refused"), 0
			c.fail = func(string, client.Object) error {
				c.lock.Lock()
				defer c.lock.Unlock()
				if n := len(c.requests); n > 0 && c.requests[n-1] == stop {
					seen++
				}
				if seen > 1 {
					return down
				}
				return nil
			}
			_, err := c.reconcile()
			g.Expect(err).To(MatchError(ContainSubstring("connection refused")))
			c.fail = nil
			c.restart()
			c.succeed()
			g.Expect(c.classSecrets()).To(HaveLen(3))
			g.Expect(c.replicas()).To(Equal(map[string]int32{"a-z1": 2, "a-z2": 1, "b-z1": 1}))
		})
	}
}

func TestWithoutAClusterNothingIsTouched(t *testing.T) {
	for name, cluster := range map[string]*extensionsv1alpha1.Cluster{
		"no Cluster":      nil,
		"no shoot":        newCluster(t, nil, newCloudProfile()),
		"no CloudProfile": newCluster(t, newShoot(), nil),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newSeed(t, newWorker())
			g.Expect(c.Delete(t.Context(), newCluster(t, nil, nil))).To(Succeed())
			if cluster != nil {
				c.create(cluster)
			}
			g.Expect(c.mustReconcile().RequeueAfter).To(Equal(reconciler.RetryCluster))
			g.Expect(c.outcome()).To(ContainSubstring("there is no Cluster shoot--local--foo with a shoot and a CloudProfile"))
			g.Expect(c.deployments()).To(BeEmpty())

			c.delete()
			secret := c.credentials()
			secret.Finalizers = nil
			c.update(secret)
			c.mustReconcile()
			g.Expect(c.isGone()).To(BeTrue(), "what never had a machine needs none of it to go")
		})
	}
}

func TestAShootThatHasFailedIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	c := newSeed(t, newWorker())
	c.shoot(func(shoot *gardencorev1beta1.Shoot) {
		shoot.Generation, shoot.Status.ObservedGeneration = 1, 1
		shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateFailed}
	})
	c.mustReconcile()
	g.Expect(c.requests).To(BeEmpty())
}

func TestUpdatesInPlace(t *testing.T) {
	g := NewWithT(t)
	w := newWorker()
	w.Spec.Pools[0].UpdateStrategy = new(gardencorev1beta1.AutoInPlaceUpdate)
	w.Spec.Pools[1].UpdateStrategy = new(gardencorev1beta1.ManualInPlaceUpdate)
	c := newSeed(t, w).succeed()
	hashes := c.worker().Status.InPlaceUpdates.WorkerPoolToHashMap
	g.Expect(hashes).To(And(HaveKey("a"), HaveKey("b")))
	d := c.deployments()[namespace+"-b-z1"]
	g.Expect(d.Spec.Strategy.InPlaceUpdate.OrchestrationType).To(Equal(machinev1alpha1.OrchestrationTypeManual))
	g.Expect(d.Spec.Template.Labels).To(HaveKeyWithValue("worker.gardener.cloud/name", "foo"), "machines wake their Worker")

	// The old machine waits for somebody to select it.
	old := c.sets()[d.Spec.Template.Spec.Class.Name]
	c.change(func(w *extensionsv1alpha1.Worker) {
		for i := range w.Spec.Pools {
			w.Spec.Pools[i].MachineImage.Version = "2.0.0"
		}
	})
	c.ask("reconcile")
	c.mustReconcile()
	d = c.deployments()[namespace+"-b-z1"]
	c.finish()
	old.ResourceVersion = ""
	c.create(&old)
	old.Status.Replicas = 1
	g.Expect(c.Status().Update(t.Context(), &old)).To(Succeed())
	machine := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "m", OwnerReferences: []metav1.OwnerReference{{Kind: "MachineSet", Name: old.Name}}}}
	c.create(machine)
	setReason := func(reason string) {
		machine.Status.Conditions = []corev1.NodeCondition{{Type: machinev1alpha1.NodeInPlaceUpdate, Reason: reason}}
		g.Expect(c.Status().Update(t.Context(), machine)).To(Succeed())
	}
	c.changeDeployment("b-z1", func(d *machinev1alpha1.MachineDeployment) { d.Status.UpdatedReplicas = 0 })
	setReason(machinev1alpha1.CandidateForUpdate)

	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "), "the operation does not wait for people")
	after := c.worker().Status.InPlaceUpdates.WorkerPoolToHashMap
	g.Expect(after["a"]).NotTo(Equal(hashes["a"]))
	g.Expect(after["b"]).To(Equal(hashes["b"]), "it has not been updated yet")

	setReason(machinev1alpha1.SelectedForUpdate)
	c.mustReconcile()
	g.Expect(c.outcome()).To(ContainSubstring("machine deployment shoot--local--foo-b-z1 has 1 machines that are being updated in place"))

	g.Expect(c.Delete(t.Context(), &old)).To(Succeed())
	c.finish()
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	g.Expect(c.worker().Status.InPlaceUpdates.WorkerPoolToHashMap["b"]).NotTo(Equal(hashes["b"]))

	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(machine), machine)).To(Succeed())
	setReason(machinev1alpha1.UpdateSuccessful)
	c.restart()
	c.mustReconcile()
	g.Expect(c.requests).To(BeEmpty(), "machines keep the condition of their update")
}

func TestAnUpdateInPlaceGoesOnThoughTheCacheIsBehind(t *testing.T) {
	g := NewWithT(t)
	w := newWorker()
	w.Spec.Pools[0].UpdateStrategy = new(gardencorev1beta1.AutoInPlaceUpdate)
	c := newSeed(t, w).succeed()
	former := slices.Collect(maps.Values(c.deployments()))
	c.change(func(w *extensionsv1alpha1.Worker) { w.Spec.Pools[0].MachineImage.Version = "2.0.0" })
	c.ask("reconcile")
	c.mustReconcile()
	class := c.deployments()[namespace+"-a-z1"].Spec.Template.Spec.Class.Name

	c.former = former
	c.clock.Step(time.Minute)
	c.mustReconcile()
	g.Expect(c.outcome()).NotTo(HavePrefix("Succeeded: "))
	g.Expect(c.classes()).To(HaveKey(class))
	g.Expect(c.classSecrets()).To(HaveKey(class))
	g.Expect(c.deployments()[namespace+"-a-z1"].Spec.Template.Spec.Class.Name).To(Equal(class))

	c.former = nil
	c.finish()
	c.mustReconcile()
	g.Expect(c.outcome()).To(HavePrefix("Succeeded: "))
}

func TestARotationBeginsInPlaceOnlyWhenItIsAskedFor(t *testing.T) {
	rotate := func(shoot *gardencorev1beta1.Shoot) {
		shoot.Status.Credentials = &gardencorev1beta1.ShootCredentials{Rotation: &gardencorev1beta1.ShootCredentialsRotation{
			CertificateAuthorities: &gardencorev1beta1.CARotation{LastInitiationTime: new(metav1.NewTime(time.Unix(1000, 0)))},
		}}
	}
	for _, strategy := range []gardencorev1beta1.MachineUpdateStrategy{gardencorev1beta1.ManualInPlaceUpdate, gardencorev1beta1.AutoInPlaceUpdate} {
		for name, wake := range map[string]func(*seed){
			"a restart": func(c *seed) { c.restart() },
			"a machine that is being updated": func(c *seed) {
				machine := newMachine("m")
				machine.Status.Conditions = []corev1.NodeCondition{{Type: machinev1alpha1.NodeInPlaceUpdate, Reason: machinev1alpha1.SelectedForUpdate}}
				c.create(machine)
			},
			"a retry": func(c *seed) {
				w := c.worker()
				w.Status.LastOperation.State = gardencorev1beta1.LastOperationStateError
				NewWithT(t).Expect(c.Status().Update(t.Context(), w)).To(Succeed())
			},
		} {
			t.Run(string(strategy)+", "+name, func(t *testing.T) {
				g := NewWithT(t)
				w := newWorker()
				w.Spec.Pools[0].UpdateStrategy = new(strategy)
				// Only Workers with such a pool are looked at again.
				w.Spec.Pools[1].UpdateStrategy = new(gardencorev1beta1.ManualInPlaceUpdate)
				c := newSeed(t, w).succeed()
				classes, hashes := c.classes(), c.worker().Status.InPlaceUpdates

				c.shoot(rotate)
				wake(c)
				c.mustReconcile()
				g.Expect(c.classes()).To(HaveLen(len(classes)))
				for name := range c.classes() {
					g.Expect(classes).To(HaveKey(name))
				}
				g.Expect(c.worker().Status.InPlaceUpdates).To(Equal(hashes))

				g.Expect(client.IgnoreNotFound(c.Delete(t.Context(), newMachine("m")))).To(Succeed())
				c.clock.Step(time.Minute)
				c.ask("reconcile")
				c.mustReconcile()
				c.finish()
				c.mustReconcile()
				for name := range c.classes() {
					g.Expect(classes).NotTo(HaveKey(name), "Gardener has asked for it")
				}
				g.Expect(c.worker().Status.InPlaceUpdates).NotTo(Equal(hashes))
			})
		}
	}
}
