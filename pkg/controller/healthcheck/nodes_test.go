// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

func TestNodes(t *testing.T) {
	young := newNodeObject("young", corev1.ConditionFalse)
	young.CreationTimestamp = metav1.NewTime(start.Add(-time.Minute))
	silent := newNodeObject("silent", corev1.ConditionTrue)
	silent.Status.Conditions = nil
	foreign := newNodeObject("foreign", corev1.ConditionFalse)
	foreign.Annotations = map[string]string{"node.machine.sapcloud.io/not-managed-by-mcm": "1"}
	leaving := newMachine("leaving", "leaving")
	leaving.DeletionTimestamp, leaving.Finalizers = new(metav1.NewTime(start)), []string{"machine.sapcloud.io/machine-controller"}
	ready := newNodeObject("node", corev1.ConditionTrue)
	broken := newMachineDeployment(1)
	broken.Status.FailedMachines = []*machinev1alpha1.MachineSummary{{Name: "machine-1", LastOperation: machinev1alpha1.LastOperation{Description: "no room"}}}
	unavailable := newMachineDeployment(1)
	unavailable.Status.Conditions[0] = machinev1alpha1.MachineDeploymentCondition{
		Type: machinev1alpha1.MachineDeploymentAvailable, Status: machinev1alpha1.ConditionFalse, Reason: "Because", Message: "too few"}

	for _, test := range []struct {
		name    string
		seed    []client.Object
		nodes   []client.Object
		status  gardencorev1beta1.ConditionStatus
		message string
	}{
		{"are ready", []client.Object{newMachineDeployment(1)}, []client.Object{ready}, "True", "All health checks successful"},
		{"are ready if none are wanted", nil, nil, "True", "All health checks successful"},
		{"are not ready", []client.Object{newMachineDeployment(1)}, []client.Object{newNodeObject("b", "False")}, "False", "not ready: Node b"},
		{"are not ready if the kubelet is silent", []client.Object{newMachineDeployment(1)}, []client.Object{newNodeObject("b", "Unknown")}, "False", "not ready: Node b"},
		{"are not ready if they have no condition", []client.Object{newMachineDeployment(1)}, []client.Object{silent}, "False", "not ready: Node silent"},
		{"are named, but not all of them", []client.Object{newMachineDeployment(7)}, names(7), "False", "not ready: Node node-0, node-1, node-2, node-3, node-4 and 2 more"},
		{"are starting", []client.Object{newMachineDeployment(2)}, []client.Object{ready, young}, "Progressing", "starting: Node young"},
		{"are coming", []client.Object{newMachineDeployment(3)}, []client.Object{ready}, "Progressing", "1 of 3 Nodes have registered"},
		{"are too many for now", []client.Object{newMachineDeployment(1)}, []client.Object{ready, newNodeObject("b", "True")}, "Progressing", "2 Nodes are registered, 1 are wanted"},
		{"are ready though one leaves", []client.Object{newMachineDeployment(1), leaving}, []client.Object{ready, newNodeObject("leaving", "False")}, "True", "All health checks successful"},
		{"are ready though one that is not the Worker's isn't", []client.Object{newMachineDeployment(1)}, []client.Object{ready, foreign}, "True", "All health checks successful"},
		{"cannot come as a machine has failed", []client.Object{broken}, []client.Object{ready}, "False", "machine machine-1 failed: no room"},
		{"are ready but their MachineDeployment isn't", []client.Object{unavailable}, []client.Object{ready}, "Progressing", "MachineDeployment pool is unhealthy: too few (Because)"},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t, append(test.seed, newWorker(), newCluster(false))...)
			f.setNodes(test.nodes...)
			f.reconcile("worker")
			got := f.condition(&extensionsv1alpha1.Worker{}, everyNode)
			f.Expect(got.Status).To(Equal(test.status))
			f.Expect(got.Message).To(Equal(test.message))
		})
	}

	t.Run("that don't come in time are an error", func(t *testing.T) {
		f := newFixture(t, append(healthyWorker(), newMachine("b", ""))...)
		f.Expect(f.reconcile("worker").RequeueAfter).To(Equal(syncPeriod))
		f.clock.Step(syncPeriod)
		f.reconcile("worker")
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, everyNode)).To(And(
			HaveField("Status", gardencorev1beta1.ConditionFalse), HaveField("Message", "0 of 1 Nodes have registered")))
	})

	t.Run("that don't go have longer", func(t *testing.T) {
		f := newFixture(t, healthyWorker()...)
		f.setNodes(newNodeObject("node", "True"), newNodeObject("other", "True"))
		f.reconcile("worker")
		f.clock.Step(14 * time.Minute)
		f.Expect(f.reconcile("worker").RequeueAfter).To(Equal(time.Minute + time.Second))
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, everyNode).Status).To(Equal(gardencorev1beta1.ConditionProgressing))
		f.clock.Step(time.Minute)
		f.reconcile("worker")
		f.Expect(f.condition(&extensionsv1alpha1.Worker{}, everyNode).Status).To(Equal(gardencorev1beta1.ConditionFalse))
	})
}

func TestListNodes(t *testing.T) {
	g := NewWithT(t)
	pages := map[string]corev1.NodeList{
		"":  {ListMeta: metav1.ListMeta{Continue: "2"}, Items: []corev1.Node{*newNodeObject("a", "True")}},
		"2": {Items: []corev1.Node{*newNodeObject("b", "False")}},
	}
	c := fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			var options client.ListOptions
			options.ApplyOptions(opts)
			g.Expect(options.Limit).To(Equal(int64(100)))
			page := pages[options.Continue]
			page.DeepCopyInto(list.(*corev1.NodeList))
			return nil
		},
	}).Build()

	g.Expect(listNodes(t.Context(), c)).To(HaveExactElements(
		node{name: "a", ready: true, created: start.Add(-time.Hour)}, node{name: "b", created: start.Add(-time.Hour)}))

	pages["2"] = corev1.NodeList{ListMeta: metav1.ListMeta{Continue: "2"}}
	_, err := listNodes(t.Context(), c)
	g.Expect(err).To(MatchError(ContainSubstring("no end")))
}
