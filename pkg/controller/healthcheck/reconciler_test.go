// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/gstruct"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

func TestTable(t *testing.T) {
	t.Run("a healthy shoot has all conditions of the seed document", func(t *testing.T) {
		f := newFixture(t, append(healthyWorker(),
			newControlPlane(), newNetwork(),
			newManagedResource("extension-controlplane-shoot-webhooks", gardencorev1beta1.ConditionTrue),
			newManagedResource("extension-networking-local", gardencorev1beta1.ConditionTrue))...)
		f.setNodes(newNodeObject("node", corev1.ConditionTrue))

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

	t.Run("the name that the seed document has for the Worker's ManagedResource counts before gardenlet's", func(t *testing.T) {
		f := newFixture(t, append(healthyWorker(), newManagedResource(ManagedResourceWorker, gardencorev1beta1.ConditionFalse))...)
		f.reconcile("worker")
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, systemComponents).Message).To(ContainSubstring("/extension-worker-mcm-shoot is unhealthy"))
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
			f.Expect(f.asked).To(BeZero())
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
	f.Expect(f.asked).To(BeZero(), "there is no API server to ask")

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

	_, err := f.reconciler("worker").Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "it"}})
	f.Expect(err).To(HaveOccurred())
	f.Expect(f.writes).To(BeEmpty())
}

func TestWrites(t *testing.T) {
	t.Run("nothing is written while nothing changes, however long", func(t *testing.T) {
		f := newFixture(t, healthyWorker()...)
		f.setNodes(newNodeObject("node", corev1.ConditionTrue))
		for range 10 {
			f.Expect(f.reconcile("worker")).To(Equal(reconcile.Result{RequeueAfter: syncPeriod}))
			f.clock.Step(syncPeriod)
		}
		f.Expect(f.writes).To(HaveLen(1))
		f.Expect(f.asked).To(Equal(10))
		f.Expect(f.opened).To(Equal(1))
	})

	t.Run("a change of one condition leaves the others, those of others and lastOperation as they are", func(t *testing.T) {
		worker := newWorker()
		worker.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Reconcile", State: "Succeeded", Progress: 100}
		worker.Status.Conditions = []gardencorev1beta1.Condition{{Type: "Other", Status: "False", Message: "of somebody else"}}
		f := newFixture(t, append(healthyWorker()[1:], worker)...)
		f.setNodes(newNodeObject("node", corev1.ConditionTrue))
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
		_, err := f.reconciler("controlplane").Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "it"}})
		f.Expect(err).To(MatchError(errDown))
	})
}

func TestCheckThatCannotBeMade(t *testing.T) {
	t.Run("a condition is Unknown if the cache cannot be read, and the check is made again soon", func(t *testing.T) {
		f := newFixture(t, newControlPlane(), newCluster(false))
		f.reconciler("controlplane").kind.checks[0].run = func(context.Context, string) (result, error) { return result{}, errDown }

		f.Expect(f.reconcile("controlplane")).To(Equal(reconcile.Result{RequeueAfter: time.Minute}))
		f.Expect(f.condition(&extensionsv1alpha1.ControlPlane{}, systemComponents)).To(And(
			HaveField("Status", gardencorev1beta1.ConditionUnknown), HaveField("Reason", "ConditionCheckError"), HaveField("Message", errDown.Error())))
	})

	t.Run("a seed without the machine API has Workers whose Nodes are unknown", func(t *testing.T) {
		f := newFixture(t, healthyWorker()...)
		f.watchErr = noMatch()
		f.seed = fakeclient.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(healthyWorker()...).
			WithStatusSubresource(&extensionsv1alpha1.Worker{}).
			WithInterceptorFuncs(interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return noMatch()
			}}).
			Build()

		f.Expect(f.reconcile("worker")).To(Equal(reconcile.Result{RequeueAfter: time.Minute}))
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, everyNode)).To(And(
			HaveField("Status", gardencorev1beta1.ConditionUnknown), HaveField("Message", ContainSubstring("does not know machine.sapcloud.io/v1alpha1"))))
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, controlPlane).Status).To(Equal(gardencorev1beta1.ConditionTrue))
	})

	t.Run("a shoot whose API server is down has Nodes that are unknown, and no hot retries", func(t *testing.T) {
		f := newFixture(t, healthyWorker()...)
		f.setNodes(newNodeObject("node", corev1.ConditionTrue))
		f.reconcile("worker")

		f.askErr = errors.New(`Get "https://api/api/v1/nodes": read tcp 10.0.0.1:4711->10.0.0.2:443: connection reset by peer`)
		for port := range 3 {
			f.Expect(f.reconcile("worker")).To(Equal(reconcile.Result{RequeueAfter: time.Minute}))
			f.askErr = errors.New(`Get "https://api/api/v1/nodes": read tcp 10.0.0.1:` + string(rune('1'+port)) + `->10.0.0.2:443: connection reset by peer`)
			f.clock.Step(time.Minute)
		}
		f.Expect(f.writes).To(HaveLen(2), "it is the same error although the port differs")
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, everyNode)).To(And(
			HaveField("Status", gardencorev1beta1.ConditionUnknown),
			HaveField("Message", `asking the shoot's API server for its Nodes: Get "https://api/api/v1/nodes": read tcp 10.0.0.2:443: connection reset by peer`)))

		f.askErr = nil
		f.Expect(f.reconcile("worker")).To(Equal(reconcile.Result{RequeueAfter: syncPeriod}))
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, everyNode).Status).To(Equal(gardencorev1beta1.ConditionTrue))
	})
}
