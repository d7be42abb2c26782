// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
)

func TestRequests(t *testing.T) {
	other := newWorker()
	other.Name, other.Spec.Type = "other", "aws"
	elsewhere := newWorker()
	elsewhere.Namespace = "shoot--dev--elsewhere"
	f := newFixture(t, newWorker(), other, elsewhere)
	kind := f.reconciler("worker").kind
	wake := &waker{reader: f.seed, newList: kind.newList, classes: f.reconciler("worker").classes}

	for _, obj := range []client.Object{newMachine("machine", "node"), newCluster(false), newDeployment(corev1.ConditionTrue)} {
		f.Expect(wake.requests(t.Context(), obj)).To(ConsistOf(HaveField("NamespacedName", client.ObjectKey{Namespace: namespace, Name: "it"})), "%T", obj)
	}

	machine := newMachine("machine", "node")
	machine.Namespace = "shoot--dev--of-another-provider"
	f.Expect(wake.requests(t.Context(), machine)).To(BeEmpty())
}

func TestWatched(t *testing.T) {
	machine := func(change func(*machinev1alpha1.Machine)) client.Object {
		m := newMachine("machine", "node")
		m.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		change(m)
		return m
	}
	managedResource := func(change func(*resourcesv1alpha1.ManagedResource)) client.Object {
		mr := newManagedResource(ManagedResourceWorker, gardencorev1beta1.ConditionTrue)
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
			for _, check := range f.reconciler("worker").kind.checks {
				for _, watched := range check.watches {
					if typeOf(watched.object) != typeOf(test.after) {
						continue
					}
					p := watched.changed()
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
			NewWithT(t).Expect(objectChanged().Update(event.UpdateEvent{ObjectOld: newWorker(), ObjectNew: after})).To(Equal(test.passes))
		})
	}
}

func TestClusterChanged(t *testing.T) {
	g := NewWithT(t)
	labelled := newCluster(false)
	labelled.Labels = map[string]string{"a": "b"}
	g.Expect(clusterChanged().Update(event.UpdateEvent{ObjectOld: newCluster(false), ObjectNew: labelled})).To(BeFalse())
	g.Expect(clusterChanged().Update(event.UpdateEvent{ObjectOld: newCluster(false), ObjectNew: newCluster(true)})).To(BeTrue())
	g.Expect(clusterChanged().Create(event.CreateEvent{Object: newCluster(false)})).To(BeTrue())
	g.Expect(clusterChanged().Delete(event.DeleteEvent{Object: newCluster(false)})).To(BeFalse())
}

func TestLateWatches(t *testing.T) {
	g := NewWithT(t)
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{machinev1alpha1.SchemeGroupVersion})
	late := &lateWatches{mapper: mapper, scheme: testScheme(t)}
	var started []string
	fail := errors.New("no luck")
	late.add(&machinev1alpha1.Machine{}, func() error { started = append(started, "Machine"); return nil })
	late.add(&machinev1alpha1.MachineDeployment{}, func() error {
		started = append(started, "MachineDeployment")
		err := fail
		fail = nil
		return err
	})

	g.Expect(meta.IsNoMatchError(late.start())).To(BeTrue(), "the cluster knows neither kind")
	g.Expect(started).To(BeEmpty())

	mapper.Add(machinev1alpha1.SchemeGroupVersion.WithKind("Machine"), meta.RESTScopeNamespace)
	g.Expect(late.start()).NotTo(Succeed())
	g.Expect(started).To(HaveExactElements("Machine"))

	mapper.Add(machinev1alpha1.SchemeGroupVersion.WithKind("MachineDeployment"), meta.RESTScopeNamespace)
	g.Expect(late.start()).To(MatchError(ContainSubstring("watching MachineDeployment: no luck")))
	g.Expect(late.start()).To(Succeed())
	g.Expect(late.start()).To(Succeed())
	g.Expect(started).To(HaveExactElements("Machine", "MachineDeployment", "MachineDeployment"), "none is started twice")
}

func TestCacheOptions(t *testing.T) {
	g := NewWithT(t)
	transforms := map[string]cache.ByObject{}
	for obj, options := range CacheOptions() {
		transforms[typeOf(obj)] = options
	}
	g.Expect(transforms).To(HaveLen(2))
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

	for _, options := range transforms {
		g.Expect(options.Transform("a tombstone")).To(Equal("a tombstone"))
	}
}

func TestAddToManager(t *testing.T) {
	g := NewWithT(t)
	g.Expect(AddToManager(nil, Options{})).To(MatchError(ContainSubstring("no extension class given")))

	seed, err := class.New([]extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassSeed}, extensionsv1alpha1.ExtensionClassSeed)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(AddToManager(nil, Options{Classes: seed})).To(Succeed(), "there is nothing to add, not even to a manager")
}

func typeOf(obj client.Object) string { return fmt.Sprintf("%T", obj) }
