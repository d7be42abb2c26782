// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck_test

import (
	"context"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
)

const (
	systemComponents = gardencorev1beta1.ShootSystemComponentsHealthy
	controlPlane     = gardencorev1beta1.ShootControlPlaneHealthy
	everyNode        = gardencorev1beta1.ShootEveryNodeReady
)

func is(status gardencorev1beta1.ConditionStatus, message string) types.GomegaMatcher {
	return And(HaveField("Status", status), HaveField("Message", ContainSubstring(message)))
}

var _ = Describe("Health checks", Ordered, func() {
	const (
		namespace = "shoot--dev--test"
		foreign   = "shoot--dev--foreign"
	)

	var (
		cp      = newControlPlane(namespace, "local")
		network = newNetwork(namespace, "local")
		worker  = newWorker(namespace, "local")
		strange = []extensionsv1alpha1.Object{newControlPlane(foreign, "aws"), newNetwork(foreign, "calico"), newWorker(foreign, "aws")}
		machine = newMachine(namespace, "node")
		mcm     = newDeployment(namespace, "machine-controller-manager")
	)

	BeforeAll(func(ctx SpecContext) {
		Expect(env.CreateNamespaces(ctx, namespace, foreign)).To(Succeed())
		for _, obj := range append(strange, cp, network, worker) {
			Expect(seed.Create(ctx, obj)).To(Succeed())
		}
		Expect(seed.Create(ctx, newCluster(foreign, false))).To(Succeed())
		Expect(seed.Create(ctx, newCluster(namespace, false))).To(Succeed())
	})

	It("say what is missing", func(ctx SpecContext) {
		Eventually(condition(ctx, cp, systemComponents)).Should(is("False", "extension-controlplane-shoot-webhooks does not exist"))
		Eventually(condition(ctx, network, systemComponents)).Should(is("False", "extension-networking-local does not exist"))
		Eventually(condition(ctx, worker, systemComponents)).Should(is("False", "extension-worker-mcm-shoot does not exist"))
		Eventually(condition(ctx, worker, controlPlane)).Should(is("False", "machine-controller-manager does not exist"))
	})

	It("watch Machines", func(ctx SpecContext) {
		create(ctx, seed, newMachineDeployment(namespace, 1))
		create(ctx, seed, machine)
		Eventually(condition(ctx, worker, everyNode)).Should(is("True", "All health checks successful"))
	})

	It("see at once that something has become healthy, or unhealthy, or is gone", func(ctx SpecContext) {
		soon := func(condition func() (gardencorev1beta1.Condition, error), matcher types.GomegaMatcher) {
			GinkgoHelper()
			Eventually(condition).WithTimeout(syncPeriod-time.Second).Should(matcher, "well before the next resync")
		}
		// Each event starts a new period, so that what is seen soon after one is not the resync's merit.
		for _, check := range []struct {
			name string
			obj  extensionsv1alpha1.Object
		}{
			{"extension-controlplane-shoot-webhooks", cp},
			{"extension-networking-local", network},
			{"extension-worker-mcm-shoot", worker},
		} {
			applied(ctx, namespace, check.name, "True")
			soon(condition(ctx, check.obj, systemComponents), is("True", "All health checks successful"))
			applied(ctx, namespace, check.name, "Unknown")
			soon(condition(ctx, check.obj, systemComponents), is("Progressing", "ResourcesHealthy"))
			applied(ctx, namespace, check.name, "False")
			soon(condition(ctx, check.obj, systemComponents), is("False", "checked"))
			applied(ctx, namespace, check.name, "True")
			soon(condition(ctx, check.obj, systemComponents), is("True", "All health checks successful"))
		}

		create(ctx, seed, mcm)
		soon(condition(ctx, worker, controlPlane), is("True", "All health checks successful"))
		change(ctx, seed, mcm, true, func(mcm *appsv1.Deployment) { mcm.Status.Conditions[0].Status = corev1.ConditionFalse })
		soon(condition(ctx, worker, controlPlane), is("False", "machine-controller-manager is unhealthy"))
		Expect(seed.Delete(ctx, mcm)).To(Succeed())
		soon(condition(ctx, worker, controlPlane), is("False", "machine-controller-manager does not exist"))
		mcm = create(ctx, seed, newDeployment(namespace, "machine-controller-manager"))
		soon(condition(ctx, worker, controlPlane), is("True", "All health checks successful"))

		copied(ctx, machine, corev1.ConditionUnknown)
		soon(condition(ctx, worker, everyNode), is("False", "not ready: Node node"))
		copied(ctx, machine, corev1.ConditionTrue)
		soon(condition(ctx, worker, everyNode), is("True", "All health checks successful"))
	})

	It("cost nothing while nothing happens", func(ctx SpecContext) {
		versions := func() []string {
			GinkgoHelper()
			var out []string
			for _, obj := range []extensionsv1alpha1.Object{cp, network, worker} {
				Expect(seed.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
				out = append(out, obj.GetResourceVersion())
			}
			return out
		}
		elapse(ctx, 2*time.Second)
		before := versions()
		requests.Reset()

		elapse(ctx, 3*syncPeriod)

		Expect(requests.List()).To(BeEmpty())
		Expect(versions()).To(Equal(before), "a resync that finds nothing new writes nothing")
	})

	It("keep nothing of what others have in the seed", func(ctx SpecContext) {
		Expect(seed.Create(ctx, newDeployment(namespace, "kube-apiserver"))).To(Succeed())
		change(ctx, seed, mcm, false, func(mcm *appsv1.Deployment) { mcm.Annotations = map[string]string{"a": "b"} })
		cached := &appsv1.DeploymentList{}
		Eventually(func() ([]appsv1.Deployment, error) { return cached.Items, mgr.GetCache().List(ctx, cached) }).Should(ConsistOf(
			And(HaveField("Name", "machine-controller-manager"), HaveField("Spec.Template.Spec.Containers", BeEmpty()), HaveField("Annotations", BeEmpty()))))
	})

	It("never undo what others write at the same time", func(ctx SpecContext) {
		now := metav1.Now()
		for i := range 30 {
			applied(ctx, namespace, "extension-controlplane-shoot-webhooks", []gardencorev1beta1.ConditionStatus{"False", "True"}[i%2])
			// As another controller would: a condition of its own beside those that are there, and its operation.
			Eventually(func(ctx context.Context) error {
				Expect(seed.Get(ctx, client.ObjectKeyFromObject(cp), cp)).To(Succeed())
				patch := client.MergeFromWithOptions(cp.DeepCopy(), client.MergeFromWithOptimisticLock{})
				others := make([]gardencorev1beta1.Condition, 0, 2)
				for _, condition := range cp.Status.Conditions {
					if condition.Type != "Other" {
						others = append(others, condition)
					}
				}
				cp.Status.Conditions = append(others, gardencorev1beta1.Condition{
					Type: "Other", Status: "True", Reason: "Other", Message: fmt.Sprint(i), LastTransitionTime: now, LastUpdateTime: now})
				cp.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Reconcile", State: "Processing", Progress: int32(i), LastUpdateTime: now}
				return seed.Status().Patch(ctx, cp, patch)
			}).WithContext(ctx).Should(Succeed())
			elapse(ctx, 100*time.Millisecond)
		}
		Eventually(condition(ctx, cp, systemComponents)).Should(is("True", "All health checks successful"))
		Expect(condition(ctx, cp, "Other")()).To(is("True", "29"))
		Expect(cp.Status.LastOperation.Progress).To(Equal(int32(29)))
	})

	It("rest while a shoot is hibernated, and begin again when it wakes up", func(ctx SpecContext) {
		cluster := newCluster(namespace, true)
		change(ctx, seed, cluster, false, func(cluster *extensionsv1alpha1.Cluster) { cluster.Spec = newCluster(namespace, true).Spec })
		for _, conditionType := range []gardencorev1beta1.ConditionType{systemComponents, controlPlane, everyNode} {
			Eventually(condition(ctx, worker, conditionType)).Should(is("True", "Shoot is hibernated"))
		}
		Expect(seed.Delete(ctx, mcm)).To(Succeed())
		Consistently(condition(ctx, worker, controlPlane)).WithTimeout(3 * time.Second).Should(is("True", "Shoot is hibernated"))

		change(ctx, seed, cluster, false, func(cluster *extensionsv1alpha1.Cluster) { cluster.Spec = newCluster(namespace, false).Spec })
		Eventually(condition(ctx, worker, controlPlane)).Should(is("False", "does not exist"))
		Eventually(condition(ctx, worker, everyNode)).Should(is("True", "All health checks successful"))
	})

	It("leave alone what is being migrated or deleted", func(ctx SpecContext) {
		change(ctx, seed, cp, false, func(cp *extensionsv1alpha1.ControlPlane) {
			cp.Annotations = map[string]string{"gardener.cloud/operation": "migrate"}
		})
		change(ctx, seed, network, false, func(network *extensionsv1alpha1.Network) { network.Finalizers = []string{"test/hold"} })
		Expect(seed.Delete(ctx, network)).To(Succeed())
		elapse(ctx, 500*time.Millisecond)

		for _, name := range []string{"extension-controlplane-shoot-webhooks", "extension-networking-local"} {
			Expect(seed.Delete(ctx, &resourcesv1alpha1.ManagedResource{ObjectMeta: meta(namespace, name)})).To(Succeed())
		}
		Consistently(condition(ctx, cp, systemComponents)).WithTimeout(3 * time.Second).Should(is("True", ""))
		Expect(condition(ctx, network, systemComponents)()).To(is("True", ""))
		change(ctx, seed, network, false, func(network *extensionsv1alpha1.Network) { network.Finalizers = nil })
	})

	It("have never touched objects of another type", func(ctx SpecContext) {
		for _, obj := range strange {
			Expect(seed.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
			Expect(obj.GetExtensionStatus().GetConditions()).To(BeEmpty())
			Expect(obj.GetManagedFields()).To(HaveLen(1), "only the test has written %T", obj)
		}
	})
})
