// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	mcmdriver "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

func TestDeleteMachine(t *testing.T) {
	userData := func() client.Object { return newUserData(namespace, name, []byte("a")) }
	for name, objects := range map[string][]client.Object{
		"deletes all that a machine has":                           {userData(), podOf("a", run), newService(namespace, name)},
		"deletes what is left of a half-made machine":              {userData()},
		"deletes what is left of a machine whose pod has vanished": {userData(), newService(namespace, name)},
		"deletes a pod that has failed":                            {podOf("a", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })},
		"is content with nothing":                                  nil,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(nil, objects...)
			for range 2 {
				g.Expect(newDriver(c).DeleteMachine(t.Context(), deleteRequest())).To(Equal(&mcmdriver.DeleteMachineResponse{}))
				g.Expect(left(t, c)).To(BeEmpty())
			}
		})
	}

	t.Run("deletes with a class with which no machine can be made", func(t *testing.T) {
		g := NewWithT(t)
		c := newClient(nil, podOf("a", run))
		request := deleteRequest()
		request.MachineClass.ProviderSpec.Raw = []byte(`{"image": 1, "namespace": "elsewhere"}`)
		_, err := newDriver(c).DeleteMachine(t.Context(), request)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(left(t, c)).To(BeEmpty())
	})

	t.Run("does not go by a class of another provider", func(t *testing.T) {
		g := NewWithT(t)
		c := newClient(nil, podOf("a", run))
		request := deleteRequest()
		request.MachineClass.Provider = "aws"
		_, err := newDriver(c).DeleteMachine(t.Context(), request)
		g.Expect(err).To(haveCode(codes.InvalidArgument))
		g.Expect(left(t, c)).To(HaveLen(1))
	})
}

func TestDeleteMachineWaitsForItsPod(t *testing.T) {
	held := func(pod *corev1.Pod) { pod.Finalizers = []string{"example.org/held"} }

	t.Run("until it is gone", func(t *testing.T) {
		g := NewWithT(t)
		c := newClient(nil, podOf("a", held))
		done := make(chan error, 1)
		go func() {
			_, err := newDriver(c).DeleteMachine(t.Context(), deleteRequest())
			done <- err
		}()
		g.Eventually(func() bool { return getPod(t, c).DeletionTimestamp != nil }).Should(BeTrue())
		g.Consistently(done, 100*time.Millisecond).ShouldNot(Receive())
		pod := getPod(t, c)
		pod.Finalizers = nil
		g.Expect(c.Update(t.Context(), pod)).To(Succeed())
		g.Eventually(done, 10*time.Second).Should(Receive(BeNil()))
	})

	t.Run("again after a restart", func(t *testing.T) {
		g := NewWithT(t)
		c := newClient(nil, podOf("a", held, func(pod *corev1.Pod) { pod.Spec.NodeName = "node-1" }), newUserData(namespace, name, nil))
		for range 2 {
			_, err := newDriver(c, func(d *driver) { d.deleteTimeout = 100 * time.Millisecond }).DeleteMachine(t.Context(), deleteRequest())
			g.Expect(err).To(And(haveCode(codes.DeadlineExceeded), MatchError(ContainSubstring(`on node "node-1" has not gone in time`))))
		}
		g.Expect(left(t, c)).To(ConsistOf("pod machine-"+name), "nothing but the pod has to wait")
	})
}

func TestGetMachineStatus(t *testing.T) {
	deleted := func(pod *corev1.Pod) {
		run(pod)
		pod.Finalizers = []string{"example.org/held"}
	}
	ctx := t.Context()
	for _, test := range []struct {
		name     string
		pod      *corev1.Pod
		expected string
	}{
		{"runs", podOf("a", run), ""},
		{"is not there", nil, "there is no pod"},
		{"is another's", podOf("a", run, func(pod *corev1.Pod) { pod.Labels = nil }), "there is no pod"},
		{"is not scheduled", podOf("a", notScheduled("0/1 nodes")), "does not run: it is unschedulable: 0/1 nodes"},
		{"waits for its image", podOf("a", waitsFor("ErrImagePull", "not found")), "does not run: ErrImagePull: not found"},
		{"has no status yet", podOf("a"), "does not run: its phase is "},
		{"has failed", podOf("a", func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed }), "does not run: its phase is Failed"},
		{"is being deleted", podOf("a", deleted), "is being deleted"},
	} {
		t.Run("of a machine whose pod "+test.name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClient(nil)
			if test.pod != nil {
				c = newClient(nil, test.pod)
				if len(test.pod.Finalizers) > 0 {
					g.Expect(c.Delete(ctx, test.pod)).To(Succeed())
				}
			}
			response, err := newDriver(c).GetMachineStatus(ctx, &mcmdriver.GetMachineStatusRequest{Machine: newMachine(), MachineClass: newClass()})
			if test.expected != "" {
				g.Expect(err).To(And(haveCode(codes.NotFound), MatchError(ContainSubstring(test.expected))))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(response).To(And(HaveField("ProviderID", machine.PodName(name)), HaveField("NodeName", machine.PodName(name)), HaveField("Addresses", HaveLen(2))))
		})
	}
}

func TestListMachines(t *testing.T) {
	g := NewWithT(t)
	long := "shoot--a-project--a-long-name-pool-with-long-z1-abcde-12345"
	elsewhere := newPod("shoot--local--other", "other-shoots", &localv1alpha1.MachineProviderSpec{})
	unlabelled, bastion := podOf("a"), podOf("b")
	unlabelled.Name, unlabelled.Labels = "unlabelled", nil
	bastion.Name, bastion.Labels = "bastion", map[string]string{machine.LabelApp: machine.AppBastion}
	pretender := newPod(namespace, "pretender", &localv1alpha1.MachineProviderSpec{})
	pretender.Name = "something"
	c := newClient(nil,
		podOf("c"), newUserData(namespace, name, nil), newService(namespace, name),
		newPod(namespace, long, &localv1alpha1.MachineProviderSpec{}), newUserData(namespace, long, nil),
		newPod(namespace, "without-user-data", &localv1alpha1.MachineProviderSpec{}),
		elsewhere, unlabelled, bastion, pretender,
		&corev1.Secret{ObjectMeta: objectMeta(namespace, "cloudprovider", "not-user-data")},
	)
	list := func(c client.Client) (*mcmdriver.ListMachinesResponse, error) {
		return newDriver(c).ListMachines(t.Context(), &mcmdriver.ListMachinesRequest{MachineClass: newClass()})
	}
	response, err := list(c)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(response.MachineList).To(Equal(map[string]string{
		"machine-" + name: name, machine.PodName(long): long, "machine-without-user-data": "without-user-data",
	}))

	_, err = list(interceptor.NewClient(c, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
		return apierrors.NewServiceUnavailable("starting")
	}}))
	g.Expect(err).To(And(haveCode(codes.Unavailable), MatchError(ContainSubstring("listing machines of MachineClass class: starting"))))
}

func TestInitializeMachineAndVolumes(t *testing.T) {
	g := NewWithT(t)
	d := newDriver(newClient(nil))
	_, err := d.InitializeMachine(t.Context(), &mcmdriver.InitializeMachineRequest{})
	g.Expect(err).To(haveCode(codes.Unimplemented))
	g.Expect(d.GetVolumeIDs(t.Context(), &mcmdriver.GetVolumeIDsRequest{PVSpecs: []*corev1.PersistentVolumeSpec{{}}})).To(HaveField("VolumeIDs", BeEmpty()))
}
