// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	namespace  = "shoot--dev--test"
	syncPeriod = 5 * time.Minute

	systemComponents = gardencorev1beta1.ShootSystemComponentsHealthy
	controlPlane     = gardencorev1beta1.ShootControlPlaneHealthy
	everyNode        = gardencorev1beta1.ShootEveryNodeReady
)

// request is that of the namespace.
var request = reconcile.Request{NamespacedName: client.ObjectKey{Name: namespace}}

var start = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// fixture is a seed with one shoot, and the reconcilers.
type fixture struct {
	*WithT
	t     *testing.T
	seed  client.Client
	clock *testclock.FakeClock

	// writes are the patches of a status, writeErr is what the next one says.
	writes   []string
	writeErr error

	withoutShootWebhooks bool
	checkers             map[string]*checker
}

func newFixture(t *testing.T, objects ...client.Object) *fixture {
	t.Helper()
	f := &fixture{WithT: NewWithT(t), t: t, clock: testclock.NewFakeClock(start)}
	f.seed = fakeclient.NewClientBuilder().WithScheme(testScheme(t)).
		WithObjects(objects...).
		WithStatusSubresource(&extensionsv1alpha1.ControlPlane{}, &extensionsv1alpha1.Network{}, &extensionsv1alpha1.Worker{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: f.patch}).
		Build()
	return f
}

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, corev1.AddToScheme, resourcesv1alpha1.AddToScheme, extensionsv1alpha1.AddToScheme, machinev1alpha1.AddToScheme,
	} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	return scheme
}

func (f *fixture) patch(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	data, err := patch.Data(obj)
	f.Expect(err).NotTo(HaveOccurred())
	f.writes = append(f.writes, string(data))
	if err := f.writeErr; err != nil {
		f.writeErr = nil
		return err
	}
	return c.SubResource(subresource).Patch(ctx, obj, patch, opts...)
}

// reconcile runs the checker of a kind.
func (f *fixture) reconcile(kindName string) reconcile.Result {
	f.t.Helper()
	out, err := f.checker(kindName).Reconcile(f.t.Context(), request)
	f.Expect(err).NotTo(HaveOccurred())
	return out
}

func (f *fixture) checker(kindName string) *checker {
	f.t.Helper()
	if f.checkers == nil {
		f.checkers = map[string]*checker{}
		classes, err := class.New([]extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassShoot}, extensionsv1alpha1.ExtensionClassShoot)
		f.Expect(err).NotTo(HaveOccurred())
		for _, kind := range kinds(f.seed, f.withoutShootWebhooks) {
			f.checkers[kind.name] = &checker{
				Options: Options{Shared: reconciler.Shared{Classes: classes, ShootClusters: reconciler.NewClusters(f.seed)}, SyncPeriod: syncPeriod},
				kind:    kind, reader: f.seed, writer: f.seed, clock: f.clock,
			}
		}
	}
	f.Expect(f.checkers).To(HaveKey(kindName))
	return f.checkers[kindName]
}

// conditions returns what is on the object "it".
func (f *fixture) conditions(obj extensionsv1alpha1.Object) []gardencorev1beta1.Condition {
	f.t.Helper()
	f.Expect(f.seed.Get(f.t.Context(), client.ObjectKey{Namespace: namespace, Name: "it"}, obj)).To(Succeed())
	return obj.GetExtensionStatus().GetConditions()
}

func (f *fixture) condition(obj extensionsv1alpha1.Object, conditionType gardencorev1beta1.ConditionType) gardencorev1beta1.Condition {
	f.t.Helper()
	condition := v1beta1helper.GetCondition(f.conditions(obj), conditionType)
	f.Expect(condition).NotTo(BeNil(), "condition %s", conditionType)
	return *condition
}

func (f *fixture) update(obj client.Object) {
	f.t.Helper()
	f.Expect(f.seed.Update(f.t.Context(), obj)).To(Succeed())
}

func (f *fixture) remove(obj client.Object) {
	f.t.Helper()
	f.Expect(f.seed.Delete(f.t.Context(), obj)).To(Succeed())
}

func it() metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: "it", Generation: 1}
}

func local() extensionsv1alpha1.DefaultSpec { return extensionsv1alpha1.DefaultSpec{Type: "local"} }

func newControlPlane() *extensionsv1alpha1.ControlPlane {
	return &extensionsv1alpha1.ControlPlane{ObjectMeta: it(), Spec: extensionsv1alpha1.ControlPlaneSpec{DefaultSpec: local()}}
}

func newNetwork() *extensionsv1alpha1.Network {
	return &extensionsv1alpha1.Network{ObjectMeta: it(), Spec: extensionsv1alpha1.NetworkSpec{DefaultSpec: local()}}
}

func newWorker() *extensionsv1alpha1.Worker {
	return &extensionsv1alpha1.Worker{ObjectMeta: it(), Spec: extensionsv1alpha1.WorkerSpec{DefaultSpec: local()}}
}

func newCluster(hibernated bool) *extensionsv1alpha1.Cluster {
	shoot, err := json.Marshal(&gardencorev1beta1.Shoot{
		TypeMeta: metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: "Shoot"},
		Spec:     gardencorev1beta1.ShootSpec{Hibernation: &gardencorev1beta1.Hibernation{Enabled: &hibernated}},
	})
	if err != nil {
		panic(err)
	}
	return &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec:       extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Raw: shoot}},
	}
}

func newManagedResource(name string, healthy gardencorev1beta1.ConditionStatus) *resourcesv1alpha1.ManagedResource {
	return &resourcesv1alpha1.ManagedResource{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1},
		Status: resourcesv1alpha1.ManagedResourceStatus{
			ObservedGeneration: 1,
			Conditions: []gardencorev1beta1.Condition{
				{Type: resourcesv1alpha1.ResourcesApplied, Status: gardencorev1beta1.ConditionTrue},
				{Type: resourcesv1alpha1.ResourcesHealthy, Status: healthy, Message: "so it is"},
			},
		},
	}
}

func newDeployment(available corev1.ConditionStatus) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-controller-manager"},
		Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
			{Type: appsv1.DeploymentAvailable, Status: available, Reason: "Because"},
		}},
	}
}

func newMachineDeployment(replicas int32) *machinev1alpha1.MachineDeployment {
	return &machinev1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pool"},
		Spec:       machinev1alpha1.MachineDeploymentSpec{Replicas: replicas},
		Status: machinev1alpha1.MachineDeploymentStatus{Conditions: []machinev1alpha1.MachineDeploymentCondition{
			{Type: machinev1alpha1.MachineDeploymentAvailable, Status: machinev1alpha1.ConditionTrue},
		}},
	}
}

// newMachine returns a running Machine whose Node is ready.
func newMachine(name, nodeName string) *machinev1alpha1.Machine {
	machine := newMachineOf(nodeName, machinev1alpha1.MachineRunning, corev1.ConditionTrue)
	machine.Name = name
	return machine
}

// newMachineOf returns a Machine whose Node has the condition Ready; without a status, the Node has not registered.
func newMachineOf(nodeName string, phase machinev1alpha1.MachinePhase, ready corev1.ConditionStatus) *machinev1alpha1.Machine {
	machine := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: "machine-" + nodeName, Labels: map[string]string{machinev1alpha1.NodeLabelKey: nodeName},
	}}
	machine.Status.CurrentStatus.Phase = phase
	if ready != "" {
		machine.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	}
	return machine
}

// healthyWorker is all that a healthy Worker with one Node needs in the seed.
func healthyWorker() []client.Object {
	return []client.Object{
		newWorker(), newCluster(false), newManagedResource("shoot-core-machine-controller-manager", gardencorev1beta1.ConditionTrue),
		newDeployment(corev1.ConditionTrue), newMachineDeployment(1), newMachine("machine", "node"),
	}
}

func unreadyMachines(n int) []client.Object {
	out := make([]client.Object, 0, n)
	for i := range n {
		out = append(out, newMachineOf(fmt.Sprintf("node-%d", i), machinev1alpha1.MachineRunning, corev1.ConditionFalse))
	}
	return out
}

var errDown = errors.New("connection refused")
