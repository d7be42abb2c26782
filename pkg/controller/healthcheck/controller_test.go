// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	library "github.com/gardener/gardener/extensions/pkg/controller/healthcheck"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

func TestTable(t *testing.T) {
	t.Run("a healthy shoot has all documented conditions", func(t *testing.T) {
		f := newFixture(t, append(healthyWorker(),
			newControlPlane(), newNetwork(),
			newManagedResource("extension-controlplane-shoot-webhooks", gardencorev1beta1.ConditionTrue),
			newManagedResource("extension-networking-local", gardencorev1beta1.ConditionTrue))...)

		for _, kind := range []string{"controlplane", "network", "worker"} {
			f.Expect(f.reconcile(kind)).To(Equal(reconcile.Result{RequeueAfter: syncPeriod}))
		}

		healthy := func(conditionType gardencorev1beta1.ConditionType) gardencorev1beta1.Condition {
			return gardencorev1beta1.Condition{
				Type: conditionType, Status: "True", Reason: "HealthCheckSuccessful", Message: "All health checks successful",
				LastTransitionTime: metav1.NewTime(start.Local()), LastUpdateTime: metav1.NewTime(start.Local()),
			}
		}
		f.Expect(f.conditions(&extensionsv1alpha1.ControlPlane{})).To(ConsistOf(healthy("SystemComponentsHealthy")))
		f.Expect(f.conditions(&extensionsv1alpha1.Network{})).To(ConsistOf(healthy("SystemComponentsHealthy")))
		f.Expect(f.conditions(&extensionsv1alpha1.Worker{})).To(ConsistOf(healthy("SystemComponentsHealthy"), healthy("ControlPlaneHealthy"), healthy("EveryNodeReady")))
	})

	t.Run("what is missing is unhealthy, and says what", func(t *testing.T) {
		f := newFixture(t, newControlPlane(), newNetwork(), newWorker(), newCluster(false))
		for _, kind := range []string{"controlplane", "network", "worker"} {
			f.reconcile(kind)
		}

		missing := func(conditionType gardencorev1beta1.ConditionType, message string) any {
			return gstruct.MatchFields(gstruct.IgnoreExtras, gstruct.Fields{
				"Type": Equal(conditionType), "Status": Equal(gardencorev1beta1.ConditionFalse),
				"Reason": Equal("HealthCheckUnsuccessful"), "Message": Equal(message),
			})
		}
		f.Expect(f.conditions(&extensionsv1alpha1.ControlPlane{})).To(ConsistOf(
			missing(systemComponents, "ManagedResource shoot--dev--test/extension-controlplane-shoot-webhooks does not exist")))
		f.Expect(f.conditions(&extensionsv1alpha1.Network{})).To(ConsistOf(
			missing(systemComponents, "ManagedResource shoot--dev--test/extension-networking-local does not exist: this extension has no controller for Networks, choose another networking type")))
		f.Expect(f.conditions(&extensionsv1alpha1.Worker{})).To(ContainElements(
			missing(systemComponents, "ManagedResource shoot--dev--test/extension-worker-mcm-shoot does not exist"),
			missing(controlPlane, "Deployment shoot--dev--test/machine-controller-manager does not exist")))
	})

	t.Run("extension-worker-mcm-shoot counts before the ManagedResource of gardenlet", func(t *testing.T) {
		f := newFixture(t, append(healthyWorker(), newManagedResource("extension-worker-mcm-shoot", gardencorev1beta1.ConditionFalse))...)
		f.reconcile("worker")
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, systemComponents).Message).To(ContainSubstring("/extension-worker-mcm-shoot is unhealthy"))
	})

	t.Run("a text of a webhook in the shoot gets no longer than others in a status", func(t *testing.T) {
		mr := newManagedResource("extension-controlplane-shoot-webhooks", gardencorev1beta1.ConditionFalse)
		mr.Status.Conditions[1].Message = strings.Repeat("x", 1<<20)
		f := newFixture(t, newControlPlane(), newCluster(false), mr)
		f.reconcile("controlplane")
		f.Expect(len(f.condition(&extensionsv1alpha1.ControlPlane{}, systemComponents).Message)).To(And(BeNumerically("<=", 2<<10), BeNumerically(">", 1<<10)))
	})

	t.Run("without webhooks in shoots, ControlPlanes lose the condition for them and keep the others", func(t *testing.T) {
		cp := newControlPlane()
		cp.Status.Conditions = []gardencorev1beta1.Condition{{Type: systemComponents, Status: "False"}, {Type: "Other", Status: "False"}}
		f := newFixture(t, cp, newCluster(false))
		f.withoutShootWebhooks = true

		f.Expect(f.reconcile("controlplane")).To(Equal(reconcile.Result{}))
		f.Expect(f.conditions(&extensionsv1alpha1.ControlPlane{})).To(ConsistOf(HaveField("Type", gardencorev1beta1.ConditionType("Other"))))
		f.Expect(f.reconcile("controlplane")).To(Equal(reconcile.Result{}))
		f.Expect(f.writes).To(HaveLen(1))
	})
}

func TestWhatIsLeftAlone(t *testing.T) {
	garden := extensionsv1alpha1.ExtensionClassGarden
	for _, test := range []struct {
		name   string
		change func(*extensionsv1alpha1.Worker)
	}{
		{"an object of another type", func(w *extensionsv1alpha1.Worker) { w.Spec.Type = "aws" }},
		{"an object of another class", func(w *extensionsv1alpha1.Worker) { w.Spec.Class = &garden }},
		{"an object in deletion", func(w *extensionsv1alpha1.Worker) {
			w.DeletionTimestamp, w.Finalizers = new(metav1.NewTime(start)), []string{"somebody/else"}
		}},
		{"an object that is to be migrated", func(w *extensionsv1alpha1.Worker) {
			w.Annotations = map[string]string{"gardener.cloud/operation": "migrate"}
		}},
		{"an object that has been migrated", func(w *extensionsv1alpha1.Worker) {
			w.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Migrate", State: "Succeeded"}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			worker := newWorker()
			test.change(worker)
			f := newFixture(t, append(healthyWorker()[1:], worker)...)

			f.Expect(f.reconcile("worker")).To(Equal(reconcile.Result{}))
			f.Expect(f.conditions(&extensionsv1alpha1.Worker{})).To(BeEmpty())
		})
	}

	t.Run("an object without a Cluster, until there is one", func(t *testing.T) {
		f := newFixture(t, newWorker())
		f.Expect(f.reconcile("worker")).To(Equal(reconcile.Result{}))
		f.Expect(f.writes).To(BeEmpty())
	})

	t.Run("an object that is gone", func(t *testing.T) {
		f := newFixture(t)
		f.Expect(f.reconcile("worker")).To(Equal(reconcile.Result{}))
	})

	t.Run("but not one whose last operation has failed or is under way", func(t *testing.T) {
		for _, state := range []gardencorev1beta1.LastOperationState{"Error", "Processing"} {
			worker := newWorker()
			worker.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Reconcile", State: state}
			f := newFixture(t, append(healthyWorker()[1:], worker)...)
			f.reconcile("worker")
			f.Expect(f.conditions(&extensionsv1alpha1.Worker{})).To(HaveLen(3))
		}
	})
}

func TestHibernation(t *testing.T) {
	f := newFixture(t, newWorker(), newCluster(true))

	f.Expect(f.reconcile("worker")).To(Equal(reconcile.Result{}), "the Cluster makes an event when the shoot wakes up")
	f.Expect(f.conditions(&extensionsv1alpha1.Worker{})).To(And(HaveLen(3), HaveEach(And(
		HaveField("Status", gardencorev1beta1.ConditionTrue), HaveField("Message", "Shoot is hibernated")))))

	cluster := &extensionsv1alpha1.Cluster{}
	f.Expect(f.seed.Get(t.Context(), client.ObjectKey{Name: namespace}, cluster)).To(Succeed())
	cluster.Spec = newCluster(false).Spec
	f.update(cluster)
	f.reconcile("worker")
	f.Expect(f.condition(&extensionsv1alpha1.Worker{}, controlPlane).Status).To(Equal(gardencorev1beta1.ConditionFalse))
}

func TestUnreadableCluster(t *testing.T) {
	cluster := newCluster(false)
	cluster.Spec.Shoot = runtime.RawExtension{Raw: []byte(`"nonsense"`)}
	f := newFixture(t, newWorker(), cluster)

	_, err := f.checker("worker").Reconcile(t.Context(), request)
	f.Expect(err).To(HaveOccurred())
	f.Expect(f.writes).To(BeEmpty())
}

func TestWrites(t *testing.T) {
	t.Run("nothing is written while nothing changes, however long", func(t *testing.T) {
		f := newFixture(t, healthyWorker()...)
		for range 10 {
			f.Expect(f.reconcile("worker")).To(Equal(reconcile.Result{RequeueAfter: syncPeriod}))
			f.clock.Step(syncPeriod)
		}
		f.Expect(f.writes).To(HaveLen(1))
	})

	t.Run("a change of one condition leaves the others, those of others and lastOperation as they are", func(t *testing.T) {
		worker := newWorker()
		worker.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Reconcile", State: "Succeeded", Progress: 100}
		worker.Status.Conditions = []gardencorev1beta1.Condition{{Type: "Other", Status: "False", Message: "of somebody else"}}
		f := newFixture(t, append(healthyWorker()[1:], worker)...)
		f.reconcile("worker")
		before := f.conditions(&extensionsv1alpha1.Worker{})

		f.clock.Step(time.Hour)
		f.remove(newDeployment(""))
		f.reconcile("worker")

		got := &extensionsv1alpha1.Worker{}
		after := f.conditions(got)
		f.Expect(got.Status.LastOperation.Progress).To(Equal(int32(100)))
		f.Expect(after).To(HaveLen(4))
		for i := range after {
			if after[i].Type == controlPlane {
				f.Expect(after[i].Status).To(Equal(gardencorev1beta1.ConditionFalse))
				f.Expect(after[i].LastTransitionTime.Time).To(BeTemporally("==", start.Add(time.Hour)))
			} else {
				f.Expect(after[i]).To(Equal(before[i]))
			}
		}
		f.Expect(f.writes[1]).To(MatchRegexp(`^\{"metadata":\{"resourceVersion":"\d+"\},"status":\{"conditions":\[.*\]\}\}$`))
	})

	t.Run("a write that another one has overtaken is not forced but done again", func(t *testing.T) {
		f := newFixture(t, newControlPlane(), newCluster(false))
		f.writeErr = apierrors.NewConflict(schema.GroupResource{}, "it", errors.New("changed"))

		f.Expect(f.reconcile("controlplane")).To(Equal(reconcile.Result{RequeueAfter: time.Second}))
		f.Expect(f.conditions(&extensionsv1alpha1.ControlPlane{})).To(BeEmpty())
		f.reconcile("controlplane")
		f.Expect(f.conditions(&extensionsv1alpha1.ControlPlane{})).To(HaveLen(1))
	})

	t.Run("an object that goes away meanwhile is no error", func(t *testing.T) {
		f := newFixture(t, newControlPlane(), newCluster(false))
		f.writeErr = apierrors.NewNotFound(schema.GroupResource{}, "it")
		f.Expect(f.reconcile("controlplane")).To(Equal(reconcile.Result{}))
	})

	t.Run("any other error is left to the queue", func(t *testing.T) {
		f := newFixture(t, newControlPlane(), newCluster(false))
		f.writeErr = errDown
		_, err := f.checker("controlplane").Reconcile(t.Context(), request)
		f.Expect(err).To(MatchError(errDown))
	})
}

func TestCheckThatCannotBeMade(t *testing.T) {
	t.Run("a condition is Unknown if the cache cannot be read, and the check is made again soon", func(t *testing.T) {
		f := newFixture(t, newControlPlane(), newCluster(false))
		f.checker("controlplane").checks[0].run = func(context.Context, string) (library.SingleCheckResult, error) {
			return library.SingleCheckResult{}, errDown
		}

		f.Expect(f.reconcile("controlplane")).To(Equal(reconcile.Result{RequeueAfter: time.Minute}))
		f.Expect(f.condition(&extensionsv1alpha1.ControlPlane{}, systemComponents)).To(And(
			HaveField("Status", gardencorev1beta1.ConditionUnknown), HaveField("Reason", "ConditionCheckError"), HaveField("Message", errDown.Error())))
	})
}

func TestWake(t *testing.T) {
	f := newFixture(t)
	queue := workqueue.NewTypedRateLimitingQueueWithConfig(nil, workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Clock: f.clock})
	defer queue.ShutDown()
	wake := reconciler.WakeAfter(settle, shootOf)
	for _, obj := range []client.Object{newMachine("machine", "node"), newCluster(false), newWorker()} {
		for range 3 {
			wake.Create(t.Context(), event.CreateEvent{Object: obj}, queue)
			wake.Update(t.Context(), event.UpdateEvent{ObjectNew: obj}, queue)
			wake.Delete(t.Context(), event.DeleteEvent{Object: obj}, queue)
		}
		f.Eventually(f.clock.HasWaiters).Should(BeTrue())
		f.Consistently(queue.Len, "20ms").Should(BeZero(), "%T", obj)
		f.clock.Step(settle)
		f.Eventually(queue.Len).Should(Equal(1), "a burst of events is one check")
		got, _ := queue.Get()
		f.Expect(got).To(Equal(request))
		queue.Done(got)
	}
}

func TestWatched(t *testing.T) {
	machine := func(change func(*machinev1alpha1.Machine)) client.Object {
		m := newMachine("machine", "node")
		change(m)
		return m
	}
	managedResource := func(change func(*resourcesv1alpha1.ManagedResource)) client.Object {
		mr := newManagedResource("extension-worker-mcm-shoot", gardencorev1beta1.ConditionTrue)
		change(mr)
		return mr
	}
	deployment := func(change func(*appsv1.Deployment)) client.Object {
		d := newDeployment(corev1.ConditionTrue)
		change(d)
		return d
	}
	machineDeployment := func(change func(*machinev1alpha1.MachineDeployment)) client.Object {
		d := newMachineDeployment(1)
		change(d)
		return d
	}

	for _, test := range []struct {
		name   string
		after  client.Object
		before client.Object
		passes bool
	}{
		{"a Node that is no longer ready", machine(func(m *machinev1alpha1.Machine) { m.Status.Conditions[0].Status = corev1.ConditionUnknown }), machine(func(*machinev1alpha1.Machine) {}), true},
		{"a Node that has registered", machine(func(*machinev1alpha1.Machine) {}), machine(func(m *machinev1alpha1.Machine) { m.Labels = nil }), true},
		{"a Node that has registered and is not ready", machine(func(m *machinev1alpha1.Machine) { m.Status.Conditions[0].Status = corev1.ConditionFalse }), machine(func(m *machinev1alpha1.Machine) { m.Status.Conditions = nil }), true},
		{"a Node that has gone", machine(func(m *machinev1alpha1.Machine) { m.Status.CurrentStatus.Phase = machinev1alpha1.MachineUnknown }), machine(func(*machinev1alpha1.Machine) {}), true},
		{"a Machine that leaves", machine(func(m *machinev1alpha1.Machine) { m.DeletionTimestamp = new(metav1.NewTime(start)) }), machine(func(*machinev1alpha1.Machine) {}), true},
		{"a heartbeat", machine(func(m *machinev1alpha1.Machine) { m.Status.Conditions[0].LastHeartbeatTime = metav1.NewTime(start) }), machine(func(*machinev1alpha1.Machine) {}), false},
		{"a pool that grows", machineDeployment(func(d *machinev1alpha1.MachineDeployment) { d.Spec.Replicas = 2 }), machineDeployment(func(*machinev1alpha1.MachineDeployment) {}), true},
		{"a pool with a failed machine", machineDeployment(func(d *machinev1alpha1.MachineDeployment) {
			d.Status.FailedMachines = []*machinev1alpha1.MachineSummary{{Name: "a"}}
		}), machineDeployment(func(*machinev1alpha1.MachineDeployment) {}), true},
		{"a count in the status of a pool", machineDeployment(func(d *machinev1alpha1.MachineDeployment) { d.Status.Replicas = 7 }), machineDeployment(func(*machinev1alpha1.MachineDeployment) {}), false},
		{"a ManagedResource that is unhealthy", managedResource(func(mr *resourcesv1alpha1.ManagedResource) { mr.Status.Conditions[1].Status = "False" }), managedResource(func(*resourcesv1alpha1.ManagedResource) {}), true},
		{"a ManagedResource whose condition has a new time", managedResource(func(mr *resourcesv1alpha1.ManagedResource) {
			mr.Status.Conditions[1].LastUpdateTime = metav1.NewTime(start)
		}), managedResource(func(*resourcesv1alpha1.ManagedResource) {}), false},
		{"a ManagedResource of somebody else", managedResource(func(mr *resourcesv1alpha1.ManagedResource) { mr.Name, mr.Generation = "other", 2 }), managedResource(func(mr *resourcesv1alpha1.ManagedResource) { mr.Name = "other" }), false},
		{"a Deployment that is not available", deployment(func(d *appsv1.Deployment) { d.Status.Conditions[1].Status = corev1.ConditionFalse }), deployment(func(*appsv1.Deployment) {}), true},
		{"a count in the status of a Deployment", deployment(func(d *appsv1.Deployment) { d.Status.ReadyReplicas = 7 }), deployment(func(*appsv1.Deployment) {}), false},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			var passes []bool
			for _, check := range f.checker("worker").checks {
				for _, watched := range check.watches {
					if typeOf(watched) != typeOf(test.after) {
						continue
					}
					p := changed(check.names)
					passes = append(passes, p.Update(event.UpdateEvent{ObjectOld: test.before, ObjectNew: test.after}))
					isNamed := test.after.GetName() != "other"
					f.Expect(p.Create(event.CreateEvent{Object: test.after})).To(Equal(isNamed))
					f.Expect(p.Delete(event.DeleteEvent{Object: test.after})).To(Equal(isNamed))
				}
			}
			f.Expect(passes).To(HaveExactElements(test.passes))
		})
	}
}

func TestObjectChanged(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*extensionsv1alpha1.Worker)
		passes bool
	}{
		{"our own condition does not", func(w *extensionsv1alpha1.Worker) {
			w.Status.Conditions = []gardencorev1beta1.Condition{{Type: everyNode}}
		}, false},
		{"a new spec does", func(w *extensionsv1alpha1.Worker) { w.Generation++ }, true},
		{"an operation that is asked for does", func(w *extensionsv1alpha1.Worker) {
			w.Annotations = map[string]string{"gardener.cloud/operation": "restore"}
		}, true},
		{"an operation that has ended does", func(w *extensionsv1alpha1.Worker) {
			w.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Restore", State: "Succeeded"}
		}, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			after := newWorker()
			test.change(after)
			NewWithT(t).Expect(changed(nil).Update(event.UpdateEvent{ObjectOld: newWorker(), ObjectNew: after})).To(Equal(test.passes))
		})
	}
}

func TestClusterChanged(t *testing.T) {
	g := NewWithT(t)
	labelled := newCluster(false)
	labelled.Labels = map[string]string{"a": "b"}
	g.Expect(changed(nil).Update(event.UpdateEvent{ObjectOld: newCluster(false), ObjectNew: labelled})).To(BeFalse())
	g.Expect(changed(nil).Update(event.UpdateEvent{ObjectOld: newCluster(false), ObjectNew: newCluster(true)})).To(BeTrue())
	g.Expect(changed(nil).Create(event.CreateEvent{Object: newCluster(false)})).To(BeTrue())
}

func TestCacheOptions(t *testing.T) {
	g := NewWithT(t)
	transforms := map[string]cache.ByObject{}
	for obj, options := range CacheOptions() {
		transforms[typeOf(obj)] = options
	}
	g.Expect(transforms).To(HaveLen(3))
	g.Expect(transforms["*v1.Deployment"].Field.String()).To(Equal("metadata.name=machine-controller-manager"))

	deployment := newDeployment(corev1.ConditionTrue)
	deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "large"}}
	deployment.Annotations = map[string]string{"large": "too"}
	g.Expect(transforms["*v1.Deployment"].Transform(deployment)).To(And(
		HaveField("Spec.Template.Spec.Containers", BeEmpty()), HaveField("Annotations", BeEmpty()), HaveField("Status", deployment.Status)))

	mr := newManagedResource("name", "True")
	mr.Labels = map[string]string{"kept": "yes"}
	mr.Spec.SecretRefs = []corev1.LocalObjectReference{{Name: "kept"}}
	mr.Status.Resources = []resourcesv1alpha1.ObjectReference{{ObjectReference: corev1.ObjectReference{Name: "large"}}}
	wanted := mr.DeepCopy()
	wanted.Status.Resources = nil
	g.Expect(transforms["*v1alpha1.ManagedResource"].Transform(mr)).To(Equal(wanted))

	machine := &machinev1alpha1.Machine{}
	machine.Labels = map[string]string{machinev1alpha1.NodeLabelKey: "node"}
	machine.Spec.ProviderID = "id"
	machine.Spec.NodeTemplateSpec.Annotations = map[string]string{"large": strings.Repeat("x", 1<<20)}
	machine.Status.Conditions = []corev1.NodeCondition{
		{Type: "Large", Message: strings.Repeat("x", 1<<20)},
		{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Message: strings.Repeat("x", 1<<20)},
		{Type: machinev1alpha1.NodeInPlaceUpdate, Reason: machinev1alpha1.UpdateSuccessful},
	}
	g.Expect(transforms["*v1alpha1.Machine"].Transform(machine)).To(Equal(&machinev1alpha1.Machine{
		ObjectMeta: metav1.ObjectMeta{Labels: machine.Labels},
		Spec:       machinev1alpha1.MachineSpec{ProviderID: "id"},
		Status: machinev1alpha1.MachineStatus{Conditions: []corev1.NodeCondition{
			{}, {Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: machinev1alpha1.NodeInPlaceUpdate, Reason: machinev1alpha1.UpdateSuccessful},
		}},
	}))

	machine.Status.Conditions = []corev1.NodeCondition{{Type: "Large", Message: strings.Repeat("x", 1<<20)}}
	g.Expect(transforms["*v1alpha1.Machine"].Transform(machine)).To(HaveField("Status.Conditions", ConsistOf(corev1.NodeCondition{})), "the Node has registered")

	for _, options := range transforms {
		g.Expect(options.Transform("a tombstone")).To(Equal("a tombstone"))
	}
}

func TestAddToManager(t *testing.T) {
	g := NewWithT(t)
	g.Expect(AddToManager(nil, Options{})).To(MatchError(ContainSubstring("no extension class given")))

	seed, err := class.New([]extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassSeed}, extensionsv1alpha1.ExtensionClassSeed)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(AddToManager(nil, Options{Shared: reconciler.Shared{Classes: seed}})).To(Succeed(), "there is nothing to add, not even to a manager")
}

func typeOf(obj client.Object) string { return fmt.Sprintf("%T", obj) }
