// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mocknodes_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/mock"
	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const version = "1.36.3"

// newFleet returns a Fleet that runs until the spec ends or it is stopped.
func newFleet(change ...func(*nodes.Options)) (*nodes.Fleet, *suite.Running) {
	GinkgoHelper()
	opts := nodes.Options{
		Connect: func(context.Context, string) (*rest.Config, error) { return access, nil },
		Kubelet: nodes.KubeletEndpoint{Host: kubeletHost, Port: int32(kubeletPort)},
		Log:     logf.Log,
	}
	for _, c := range change {
		c(&opts)
	}
	fleet := nodes.New(opts)
	return fleet, suite.Background("the fleet", fleet.Start)
}

func newCluster() *extensionscontroller.Cluster {
	return &extensionscontroller.Cluster{
		Shoot: &gardencorev1beta1.Shoot{Spec: gardencorev1beta1.ShootSpec{
			Kubernetes: gardencorev1beta1.Kubernetes{Version: version},
			Networking: &gardencorev1beta1.Networking{Nodes: new("10.250.0.0/16")},
		}},
		CloudProfile: &gardencorev1beta1.CloudProfile{Spec: gardencorev1beta1.CloudProfileSpec{MachineTypes: []gardencorev1beta1.MachineType{
			{Name: "small", CPU: resource.MustParse("2"), Memory: resource.MustParse("4Gi")},
			{Name: "large", CPU: resource.MustParse("8"), Memory: resource.MustParse("16Gi")},
		}}},
	}
}

func cluster() *extensioncluster.Cluster { return extensioncluster.From(newCluster()) }

// newWorker returns a Worker with one pool; its name is that of the spec's own Nodes.
func newWorker(name string, minimum int32) *extensionsv1alpha1.Worker {
	return &extensionsv1alpha1.Worker{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--foo--" + name, Name: name},
		Spec: extensionsv1alpha1.WorkerSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: mock.Type},
			Region:      "mock",
			Pools: []extensionsv1alpha1.WorkerPool{{
				Name: name, MachineType: "small", Minimum: minimum, Maximum: minimum + 10, MaxSurge: intstr.FromInt32(1),
				Zones: []string{"a", "b"}, KubernetesVersion: new(version), NodeAgentSecretName: new("gardener-node-agent-" + name + "-1"),
				Labels:       map[string]string{"worker.gardener.cloud/pool": name, "example.org/own": "yes"},
				MachineImage: extensionsv1alpha1.MachineImage{Name: "mock", Version: "1.0.0"},
			}},
		},
	}
}

// apply applies a Worker and has its Nodes deleted at the end of the spec.
func apply(ctx context.Context, fleet *nodes.Fleet, w *extensionsv1alpha1.Worker) {
	GinkgoHelper()
	Expect(fleet.Apply(ctx, logf.Log, w, cluster())).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		Expect(fleet.Delete(ctx, logf.Log, w, false)).To(Succeed())
	})
}

func nodesOf(ctx context.Context, name string) []corev1.Node {
	GinkgoHelper()
	list := &corev1.NodeList{}
	Expect(env.Client.List(ctx, list, client.MatchingLabels{"worker.gardener.cloud/pool": name})).To(Succeed())
	return list.Items
}

// eventuallyReady waits until there are so many Nodes, all healthy in Gardener's eyes, on which pods may run.
func eventuallyReady(ctx context.Context, name string, count int) []corev1.Node {
	GinkgoHelper()
	var out []corev1.Node
	Eventually(ctx, func(g Gomega) {
		out = nodesOf(ctx, name)
		g.Expect(out).To(HaveLen(count))
		for _, node := range out {
			g.Expect(health.CheckNode(&node)).To(Succeed())
			g.Expect(node.Spec.Taints).To(BeEmpty(), "kube-controller-manager has seen that the Node is ready")
		}
	}).Should(Succeed())
	return out
}

func leasesOf(ctx context.Context, name string) []coordinationv1.Lease {
	GinkgoHelper()
	list := &coordinationv1.LeaseList{}
	Expect(env.Client.List(ctx, list, client.InNamespace(corev1.NamespaceNodeLease), client.MatchingLabels{nodes.LabelWorker: name})).To(Succeed())
	return list.Items
}

func podsOf(ctx context.Context, name string) []corev1.Pod {
	GinkgoHelper()
	list := &corev1.PodList{}
	Expect(env.Client.List(ctx, list, client.InNamespace("default"), client.MatchingLabels{"app": name})).To(Succeed())
	return list.Items
}

// template is of pods that run on the Nodes of one spec only.
func template(pool, app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			NodeSelector:   map[string]string{"worker.gardener.cloud/pool": pool},
			InitContainers: []corev1.Container{{Name: "init", Image: "init:1"}, {Name: "sidecar", Image: "sidecar:1", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
			Containers:     []corev1.Container{{Name: "app", Image: "app:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}}}},
		},
	}
}

func deployment(pool, app string, replicas int32) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Template: template(pool, app)},
	}
}

func daemonSet(pool, app string) *appsv1.DaemonSet {
	d := &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app},
		Spec:       appsv1.DaemonSetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}, Template: template(pool, app)},
	}
	d.Spec.Template.Spec.HostNetwork = true
	return d
}

func job(pool, app string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: app}, Spec: batchv1.JobSpec{Completions: new(int32(5)), Parallelism: new(int32(5)), Template: template(pool, app)}}
	j.Spec.Template.Spec.RestartPolicy = corev1.RestartPolicyNever
	j.Spec.Template.Spec.InitContainers = j.Spec.Template.Spec.InitContainers[:1]
	return j
}

// create creates objects and deletes them, with what they own, at the end of the spec.
func create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		Expect(env.Client.Create(ctx, object)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) {
			Expect(client.IgnoreNotFound(env.Client.Delete(ctx, object, client.PropagationPolicy(metav1.DeletePropagationBackground)))).To(Succeed())
		})
	}
}

// bound is a pod that needs no scheduler.
func bound(node, name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "app", Image: "app:1"}}},
	}
}

func beHealthy[T any](check func(*T) error) types.GomegaMatcher {
	return WithTransform(func(obj *T) string {
		if err := check(obj); err != nil {
			return fmt.Sprint(err)
		}
		return ""
	}, BeEmpty())
}
