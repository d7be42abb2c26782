// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

func meta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func spec(extensionType string) extensionsv1alpha1.DefaultSpec {
	return extensionsv1alpha1.DefaultSpec{Type: extensionType}
}

func newControlPlane(namespace, extensionType string) *extensionsv1alpha1.ControlPlane {
	return &extensionsv1alpha1.ControlPlane{ObjectMeta: meta(namespace, "it"), Spec: extensionsv1alpha1.ControlPlaneSpec{
		DefaultSpec: spec(extensionType), Region: "local", SecretRef: corev1.SecretReference{Name: "none"},
	}}
}

func newNetwork(namespace, extensionType string) *extensionsv1alpha1.Network {
	return &extensionsv1alpha1.Network{ObjectMeta: meta(namespace, "it"), Spec: extensionsv1alpha1.NetworkSpec{
		DefaultSpec: spec(extensionType), PodCIDR: "10.0.0.0/16", ServiceCIDR: "10.1.0.0/16",
	}}
}

func newWorker(namespace, extensionType string) *extensionsv1alpha1.Worker {
	return &extensionsv1alpha1.Worker{ObjectMeta: meta(namespace, "it"), Spec: extensionsv1alpha1.WorkerSpec{
		DefaultSpec: spec(extensionType), Region: "local", SecretRef: corev1.SecretReference{Name: "none"}, Pools: []extensionsv1alpha1.WorkerPool{},
	}}
}

func newCluster(name string, hibernated bool) *extensionsv1alpha1.Cluster {
	raw := func(obj any) runtime.RawExtension {
		data, err := json.Marshal(obj)
		Expect(err).NotTo(HaveOccurred())
		return runtime.RawExtension{Raw: data}
	}
	of := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: kind}
	}
	return &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: extensionsv1alpha1.ClusterSpec{
			CloudProfile: raw(gardencorev1beta1.CloudProfile{TypeMeta: of("CloudProfile")}),
			Shoot: raw(gardencorev1beta1.Shoot{TypeMeta: of("Shoot"), Spec: gardencorev1beta1.ShootSpec{
				Hibernation: &gardencorev1beta1.Hibernation{Enabled: &hibernated},
			}}),
		},
	}
}

// create creates an object and, where it has a status of its own, writes that too.
func create[T client.Object](ctx context.Context, c client.Client, obj T) T {
	GinkgoHelper()
	want, ok := obj.DeepCopyObject().(T)
	Expect(ok).To(BeTrue())
	Expect(c.Create(ctx, obj)).To(Succeed())
	switch got := any(obj).(type) {
	case *corev1.Node:
		got.Status = any(want).(*corev1.Node).Status
	case *appsv1.Deployment:
		got.Status = any(want).(*appsv1.Deployment).Status
	case *machinev1alpha1.MachineDeployment:
		got.Status = any(want).(*machinev1alpha1.MachineDeployment).Status
		got.Status.ObservedGeneration = got.Generation
	default:
		return obj
	}
	Expect(c.Status().Update(ctx, obj)).To(Succeed())
	return obj
}

// change changes an object, or its status.
func change[T client.Object](ctx context.Context, c client.Client, obj T, status bool, change func(T)) {
	GinkgoHelper()
	Expect(c.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
	before, ok := obj.DeepCopyObject().(client.Object)
	Expect(ok).To(BeTrue())
	change(obj)
	if status {
		Expect(c.Status().Patch(ctx, obj, client.MergeFrom(before))).To(Succeed())
	} else {
		Expect(c.Patch(ctx, obj, client.MergeFrom(before))).To(Succeed())
	}
}

// applied is gardener-resource-manager's hand on a ManagedResource.
func applied(ctx context.Context, namespace, name string, healthy gardencorev1beta1.ConditionStatus) {
	GinkgoHelper()
	mr := &resourcesv1alpha1.ManagedResource{ObjectMeta: meta(namespace, name), Spec: resourcesv1alpha1.ManagedResourceSpec{SecretRefs: []corev1.LocalObjectReference{}}}
	Expect(client.IgnoreAlreadyExists(seed.Create(ctx, mr))).To(Succeed())
	change(ctx, seed, mr, true, func(mr *resourcesv1alpha1.ManagedResource) {
		now := metav1.Now()
		mr.Status.ObservedGeneration = mr.Generation
		mr.Status.Conditions = []gardencorev1beta1.Condition{
			{Type: resourcesv1alpha1.ResourcesApplied, Status: gardencorev1beta1.ConditionTrue, Reason: "Applied", LastTransitionTime: now, LastUpdateTime: now},
			{Type: resourcesv1alpha1.ResourcesHealthy, Status: healthy, Reason: "Checked", Message: "checked", LastTransitionTime: now, LastUpdateTime: now},
		}
	})
}

func newDeployment(namespace, name string) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: meta(namespace, name),
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "it", Image: "it"}}}},
		},
		Status: appsv1.DeploymentStatus{ObservedGeneration: 1, Conditions: []appsv1.DeploymentCondition{
			{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue},
			{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable"},
		}},
	}
}

func newMachineDeployment(namespace string, replicas int32) *machinev1alpha1.MachineDeployment {
	labels := map[string]string{"pool": "it"}
	return &machinev1alpha1.MachineDeployment{
		ObjectMeta: meta(namespace, "pool"),
		Spec: machinev1alpha1.MachineDeploymentSpec{
			Replicas: replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: machinev1alpha1.MachineTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}},
		},
		Status: machinev1alpha1.MachineDeploymentStatus{Conditions: []machinev1alpha1.MachineDeploymentCondition{
			{Type: machinev1alpha1.MachineDeploymentAvailable, Status: machinev1alpha1.ConditionTrue, LastUpdateTime: metav1.Now(), LastTransitionTime: metav1.Now()},
		}},
	}
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// kubelet writes whether a Node is ready, and machine-controller-manager's hand copies that to its Machine.
func kubelet(ctx context.Context, namespace string, node *corev1.Node, ready corev1.ConditionStatus) {
	GinkgoHelper()
	change(ctx, shoot, node, true, func(node *corev1.Node) { node.Status.Conditions[0].Status = ready })
	machine := &machinev1alpha1.Machine{ObjectMeta: meta(namespace, node.Name)}
	change(ctx, seed, machine, true, func(machine *machinev1alpha1.Machine) { machine.Status.Conditions = node.Status.Conditions })
}

// access writes the Secret with the access to the shoot: that of a new user, who may list Nodes.
func access(ctx context.Context, namespace, user string) {
	GinkgoHelper()
	allow(ctx, user)
	path, err := shootEnv.ServiceAccountKubeconfig(GinkgoT().TempDir(), metav1.NamespaceSystem, user)
	Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	writeAccess(ctx, namespace, kubeconfig)
}

func writeAccess(ctx context.Context, namespace string, kubeconfig []byte) {
	GinkgoHelper()
	secret := &corev1.Secret{ObjectMeta: meta(namespace, "gardener-internal")}
	Expect(client.IgnoreAlreadyExists(seed.Create(ctx, secret))).To(Succeed())
	change(ctx, seed, secret, false, func(secret *corev1.Secret) { secret.Data = map[string][]byte{"kubeconfig": kubeconfig} })
}

func allow(ctx context.Context, user string) {
	GinkgoHelper()
	Expect(shoot.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: user},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "read-nodes"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: user}},
	})).To(Succeed())
}

// condition reads a condition for Eventually; the zero one if there is none.
func condition(ctx context.Context, obj extensionsv1alpha1.Object, conditionType gardencorev1beta1.ConditionType) func() (gardencorev1beta1.Condition, error) {
	return func() (gardencorev1beta1.Condition, error) {
		if err := seed.Get(ctx, client.ObjectKeyFromObject(obj), obj); err != nil {
			return gardencorev1beta1.Condition{}, err
		}
		if condition := v1beta1helper.GetCondition(obj.GetExtensionStatus().GetConditions(), conditionType); condition != nil {
			return *condition, nil
		}
		return gardencorev1beta1.Condition{}, nil
	}
}

// nodeLists is how often the shoot's API server has been asked for Nodes, by its own count.
func nodeLists(ctx context.Context) int {
	GinkgoHelper()
	clientset, err := kubernetes.NewForConfig(shootEnv.Config)
	Expect(err).NotTo(HaveOccurred())
	metrics, err := clientset.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	Expect(err).NotTo(HaveOccurred())

	total := 0
	lines := bufio.NewScanner(strings.NewReader(string(metrics)))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `resource="nodes"`) && strings.Contains(line, `verb="LIST"`) {
			count, err := strconv.Atoi(line[strings.LastIndex(line, " ")+1:])
			Expect(err).NotTo(HaveOccurred())
			total += count
		}
	}
	Expect(lines.Err()).NotTo(HaveOccurred())
	return total
}

// elapse lets time go by in which something is counted.
func elapse(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	select {
	case <-ctx.Done():
		Fail("the suite has ended")
	case <-time.After(d):
	}
}
