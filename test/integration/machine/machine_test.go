// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// newClass creates a MachineClass and its Secrets.
func newClass(ctx context.Context, name string, change ...func(*localv1alpha1.MachineProviderSpec)) *machinev1alpha1.MachineClass {
	GinkgoHelper()
	spec := &localv1alpha1.MachineProviderSpec{
		TypeMeta: metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.MachineProviderSpecKind},
		Image:    "registry.example.org/" + name,
	}
	for _, change := range change {
		change(spec)
	}
	raw, err := json.Marshal(spec)
	Expect(err).NotTo(HaveOccurred())
	class := &machinev1alpha1.MachineClass{
		ObjectMeta:           metav1.ObjectMeta{Namespace: namespace, Name: name},
		Provider:             machine.Provider,
		ProviderSpec:         runtime.RawExtension{Raw: raw},
		SecretRef:            &corev1.SecretReference{Namespace: namespace, Name: name},
		CredentialsSecretRef: &corev1.SecretReference{Namespace: namespace, Name: "cloudprovider"},
	}
	Expect(client.IgnoreAlreadyExists(seed.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloudprovider"}}))).To(Succeed())
	Expect(seed.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"userData": []byte("token=<<BOOTSTRAP_TOKEN>> name=<<MACHINE_NAME>>")},
	})).To(Succeed())
	Expect(seed.Create(ctx, class)).To(Succeed())
	return class
}

// newOrphan creates the pod of a machine without a Machine.
func newOrphan(ctx context.Context, namespace, name string) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machine.PodName(name), Labels: machine.Labels(name)},
		Spec:       corev1.PodSpec{AutomountServiceAccountToken: new(false), Containers: []corev1.Container{{Name: "machine", Image: "machine"}}},
	}
	Expect(seed.Create(ctx, pod)).To(Succeed())
	return pod
}

// newDeployment creates a MachineDeployment, which is scaled to zero when the spec ends. Whether nothing is left then is looked
// at when the suite ends, as machine-controller-manager takes half a minute for it.
func newDeployment(ctx context.Context, name, class string, replicas int32) *machinev1alpha1.MachineDeployment {
	GinkgoHelper()
	labels := map[string]string{"deployment": name}
	deployment := &machinev1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: machinev1alpha1.MachineDeploymentSpec{
			Replicas: replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: machinev1alpha1.MachineDeploymentStrategy{
				Type: machinev1alpha1.RollingUpdateMachineDeploymentStrategyType,
				RollingUpdate: &machinev1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: machinev1alpha1.UpdateConfiguration{
					MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
				}},
			},
			Template: machinev1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       machinev1alpha1.MachineSpec{Class: machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: class}},
			},
		},
	}
	Expect(seed.Create(ctx, deployment)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { scale(ctx, deployment, 0) })
	return deployment
}

func scale(ctx context.Context, deployment *machinev1alpha1.MachineDeployment, replicas int32) {
	GinkgoHelper()
	before := deployment.DeepCopy()
	deployment.Spec.Replicas = replicas
	Expect(seed.Patch(ctx, deployment, client.MergeFrom(before))).To(Succeed())
}

// expectNothing waits until nothing is left of all machines, in all namespaces.
func expectNothing(ctx SpecContext) {
	Eventually(ctx, left("")).Should(BeEmpty())
	list := &machinev1alpha1.MachineList{}
	Eventually(ctx, func() ([]machinev1alpha1.Machine, error) {
		return list.Items, seed.List(ctx, list)
	}).Should(BeEmpty())
	nodes := &corev1.NodeList{}
	Expect(shoot.List(ctx, nodes)).To(Succeed())
	Expect(nodes.Items).To(BeEmpty())
}

// left reads what is there of the machines of a MachineDeployment, or of all if it has no name, in all namespaces.
func left(deployment string) func(context.Context) ([]string, error) {
	return func(ctx context.Context) ([]string, error) {
		var out []string
		for _, kind := range []string{"Pod", "Service", "Secret"} {
			list := &metav1.PartialObjectMetadataList{}
			list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind + "List"))
			if err := seed.List(ctx, list, client.MatchingLabels(machine.Selector())); err != nil {
				return nil, err
			}
			for _, obj := range list.Items {
				if deployment == "" || isOf(deployment, &obj) {
					out = append(out, kind+" "+obj.Namespace+"/"+obj.Name)
				}
			}
		}
		return out, nil
	}
}

// machines reads the phases of the Machines of a MachineDeployment by name.
func machines(deployment string) func(context.Context) (map[string]machinev1alpha1.MachinePhase, error) {
	return func(ctx context.Context) (map[string]machinev1alpha1.MachinePhase, error) {
		list := &machinev1alpha1.MachineList{}
		err := seed.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"deployment": deployment})
		out := map[string]machinev1alpha1.MachinePhase{}
		for _, m := range list.Items {
			out[m.Name] = m.Status.CurrentStatus.Phase
		}
		return out, err
	}
}

// phases reads the phases of the Machines of a MachineDeployment.
func phases(deployment string) func(context.Context) ([]machinev1alpha1.MachinePhase, error) {
	return func(ctx context.Context) ([]machinev1alpha1.MachinePhase, error) {
		all, err := machines(deployment)(ctx)
		return slices.Collect(maps.Values(all)), err
	}
}

// onlyMachine returns the Machine of a MachineDeployment, once there is one.
func onlyMachine(ctx context.Context, deployment string) *machinev1alpha1.Machine {
	GinkgoHelper()
	list := &machinev1alpha1.MachineList{}
	Eventually(ctx, func() (int, error) {
		err := seed.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{"deployment": deployment})
		return len(list.Items), err
	}).Should(Equal(1))
	return &list.Items[0]
}

// lastError returns the code and the text of a Machine's last error.
func lastError(ctx context.Context, m *machinev1alpha1.Machine) func() (string, error) {
	return func() (string, error) {
		current := &machinev1alpha1.Machine{}
		err := seed.Get(ctx, client.ObjectKeyFromObject(m), current)
		return current.Status.LastOperation.ErrorCode + ": " + current.Status.LastOperation.Description, err
	}
}

// podOf returns the pod of a Machine once it is on a node.
func podOf(ctx context.Context, m *machinev1alpha1.Machine) *corev1.Pod {
	GinkgoHelper()
	pod := &corev1.Pod{}
	Eventually(ctx, func() (string, error) {
		err := seed.Get(ctx, client.ObjectKey{Namespace: namespace, Name: machine.PodName(m.Name)}, pod)
		return pod.Spec.NodeName, err
	}).Should(Equal("seed-node"))
	return pod
}

const running = machinev1alpha1.MachineRunning

var _ = Describe("machines", func() {
	It("come and go as a MachineDeployment is scaled and updated", func(ctx SpecContext) {
		newClass(ctx, "old")
		newClass(ctx, "new")
		deployment := newDeployment(ctx, "scaled", "old", 2)
		Eventually(ctx, phases("scaled")).Should(HaveExactElements(running, running))
		all, err := machines("scaled")(ctx)
		Expect(err).NotTo(HaveOccurred())
		for name := range all {
			m := &machinev1alpha1.Machine{}
			Expect(seed.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, m)).To(Succeed())
			Expect(m.Spec.ProviderID).To(Equal(machine.PodName(name)))
			Expect(m.Labels).To(HaveKeyWithValue("node", machine.PodName(name)))
			secret := &corev1.Secret{}
			Expect(seed.Get(ctx, client.ObjectKey{Namespace: namespace, Name: machine.PodName(name) + "-userdata"}, secret)).To(Succeed())
			Expect(string(secret.Data["userdata"])).To(MatchRegexp(`^token=[a-z0-9]{6}\.[a-z0-9]{16} name=` + name + `$`))
		}
		Expect(left("scaled")(ctx)).To(HaveLen(6))

		By("updating it")
		before := deployment.DeepCopy()
		deployment.Spec.Template.Spec.Class.Name = "new"
		Expect(seed.Patch(ctx, deployment, client.MergeFrom(before))).To(Succeed())
		Eventually(ctx, func() ([]string, error) {
			pods := &corev1.PodList{}
			err := seed.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels(machine.Selector()))
			var images []string
			for _, pod := range pods.Items {
				if isOf("scaled", &pod) {
					images = append(images, pod.Spec.Containers[0].Image)
				}
			}
			return images, err
		}).WithTimeout(4 * time.Minute).Should(HaveExactElements("registry.example.org/new", "registry.example.org/new"))
		Eventually(ctx, phases("scaled")).Should(HaveExactElements(running, running))

		By("scaling it to zero")
		scale(ctx, deployment, 0)
		Eventually(ctx, left("scaled")).Should(BeEmpty())
	})

	It("say that their image is missing", func(ctx SpecContext) {
		kubelet.starts("image", waitingFor("ImagePullBackOff", `Back-off pulling image: "not found"`))
		newClass(ctx, "image")
		newDeployment(ctx, "image", "image", 1)
		m := onlyMachine(ctx, "image")
		Eventually(ctx, lastError(ctx, m)).Should(And(
			HavePrefix("FailedPrecondition: "), ContainSubstring("image registry.example.org/image of pod "), ContainSubstring(`ImagePullBackOff: Back-off pulling image: "not found"`),
		))
		kubelet.starts("image", nil)
	})

	It("say that a quota is used up", func(ctx SpecContext) {
		quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machines"}}
		quota.Spec.Hard = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
		Expect(seed.Create(ctx, quota)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(seed.Delete(ctx, quota))).To(Succeed()) })
		quota.Status.Hard = quota.Spec.Hard
		quota.Status.Used = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("0")}
		Expect(seed.Status().Update(ctx, quota)).To(Succeed())

		newClass(ctx, "quota")
		newDeployment(ctx, "quota", "quota", 1)
		m := onlyMachine(ctx, "quota")
		Eventually(ctx, lastError(ctx, m)).Should(And(HavePrefix("ResourceExhausted: "), ContainSubstring("exceeded quota: machines")))
		Expect(left("quota")(ctx)).To(BeEmpty())
	})

	It("are made to the end by a driver that was killed half-way", func(ctx SpecContext) {
		kubelet.starts("restart", waitingFor("ContainerCreating", ""))
		newClass(ctx, "restart")
		newDeployment(ctx, "restart", "restart", 1)
		pod := podOf(ctx, onlyMachine(ctx, "restart"))
		driver.kill()
		driver.start()
		kubelet.starts("restart", nil)
		Eventually(ctx, phases("restart")).Should(HaveExactElements(running))
		Expect(podOf(ctx, onlyMachine(ctx, "restart")).UID).To(Equal(pod.UID))
		Expect(left("restart")(ctx)).To(HaveLen(3))
	})

	It("are deleted at once although they are still being made", func(ctx SpecContext) {
		kubelet.starts("early", waitingFor("ContainerCreating", ""))
		newClass(ctx, "early")
		deployment := newDeployment(ctx, "early", "early", 1)
		podOf(ctx, onlyMachine(ctx, "early"))
		start := time.Now()
		scale(ctx, deployment, 0)
		Eventually(ctx, left("early")).Should(BeEmpty())
		Eventually(ctx, machines("early")).Should(BeEmpty())
		AddReportEntry(fmt.Sprintf("gone after %s", time.Since(start).Round(time.Second)))
	})

	It("get another pod if theirs vanishes before it runs", func(ctx SpecContext) {
		kubelet.starts("vanished", waitingFor("ContainerCreating", ""))
		newClass(ctx, "vanished")
		newDeployment(ctx, "vanished", "vanished", 1)
		m := onlyMachine(ctx, "vanished")
		pod := podOf(ctx, m)
		Expect(seed.Delete(ctx, pod.DeepCopy(), client.GracePeriodSeconds(0))).To(Succeed())
		Eventually(ctx, lastError(ctx, m)).Should(And(HavePrefix("Aborted: "), ContainSubstring("was deleted before it ran")))
		kubelet.starts("vanished", nil)
		Eventually(ctx, phases("vanished")).Should(HaveExactElements(running))
		Expect(podOf(ctx, m).UID).NotTo(Equal(pod.UID))
	})

	It("are replaced if their pod vanishes when it was a Node", func(ctx SpecContext) {
		newClass(ctx, "gone")
		newDeployment(ctx, "gone", "gone", 1)
		Eventually(ctx, phases("gone")).Should(HaveExactElements(running))
		m := onlyMachine(ctx, "gone")
		Expect(seed.Delete(ctx, podOf(ctx, m), client.GracePeriodSeconds(0))).To(Succeed())
		Expect(join(ctx, machine.PodName(m.Name), corev1.ConditionUnknown)).To(Succeed())
		Eventually(ctx, func() ([]string, error) {
			all, err := machines("gone")(ctx)
			var names []string
			for name, phase := range all {
				names = append(names, name+" "+string(phase))
			}
			return names, err
		}).WithTimeout(4 * time.Minute).Should(And(HaveLen(1), HaveEach(And(HaveSuffix(" Running"), Not(HavePrefix(m.Name))))))
		Expect(left("gone")(ctx)).To(HaveLen(3), "the Secret and the Service of the first are gone")
	})

	It("do not take what has their name", func(ctx SpecContext) {
		class := newClass(ctx, "name")
		other := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-named"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "other", Image: "other"}}}}
		Expect(seed.Create(ctx, other)).To(Succeed())
		m := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "named"}, Spec: machinev1alpha1.MachineSpec{Class: machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: class.Name}}}
		Expect(seed.Create(ctx, m)).To(Succeed())
		Eventually(ctx, lastError(ctx, m)).Should(And(HavePrefix("AlreadyExists: "), ContainSubstring("machine-named is there already and not part of machine named")))
		Expect(seed.Delete(ctx, m)).To(Succeed())
		Eventually(ctx, func() bool { return apierrors.IsNotFound(seed.Get(ctx, client.ObjectKeyFromObject(m), m)) }).Should(BeTrue())
		Expect(seed.Get(ctx, client.ObjectKeyFromObject(other), other)).To(Succeed())
		Expect(other.DeletionTimestamp).To(BeNil())
		Expect(seed.Delete(ctx, other, client.GracePeriodSeconds(0))).To(Succeed())
	})

	It("are in the cluster of the credentials", func(ctx SpecContext) {
		remote := machine.RemoteNamespace(namespace)
		class := newRemoteClass(ctx, "remote-class")
		newDeployment(ctx, "remote", class.Name, 1)
		Eventually(ctx, phases("remote")).Should(HaveExactElements(running))
		name := machine.PodName(onlyMachine(ctx, "remote").Name)
		Expect(left("remote")(ctx)).To(ConsistOf("Pod "+remote+"/"+name, "Service "+remote+"/"+name, "Secret "+remote+"/"+name+"-userdata"))
	})

	It("stay in that cluster when the control plane moves to another seed", func(ctx SpecContext) {
		remote := machine.RemoteNamespace(namespace)
		class := newRemoteClass(ctx, "moves")
		newDeployment(ctx, "moves", class.Name, 1)
		Eventually(ctx, phases("moves")).Should(HaveExactElements(running))
		m := onlyMachine(ctx, "moves")
		pod := &corev1.Pod{}
		Expect(seed.Get(ctx, client.ObjectKey{Namespace: remote, Name: machine.PodName(m.Name)}, pod)).To(Succeed())
		before := *pod.DeepCopy()

		By("taking away what the other seed has to restore, as gardenlet does while machine-controller-manager is gone")
		mcm.stop()
		driver.stop()
		var restored []client.Object
		for _, list := range []client.ObjectList{&machinev1alpha1.MachineSetList{}, &machinev1alpha1.MachineList{}, &machinev1alpha1.MachineDeploymentList{}} {
			Expect(seed.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
			Expect(meta.EachListItem(list, func(item runtime.Object) error {
				obj := item.(client.Object)
				if obj.GetName() == "moves" || obj.GetLabels()["deployment"] == "moves" {
					restored = append(restored, takeAway(ctx, obj))
				}
				return nil
			})).To(Succeed())
		}
		Expect(restored).To(HaveLen(3))

		By("restoring it, as the Worker controller does before machine-controller-manager runs again")
		for _, obj := range restored {
			Expect(seed.Create(ctx, obj)).To(Succeed())
		}
		orphan := newOrphan(ctx, remote, "left")
		mcm.start()
		driver.start()
		Eventually(ctx, phases("moves")).Should(HaveExactElements(running))
		Eventually(ctx, func() bool { return apierrors.IsNotFound(seed.Get(ctx, client.ObjectKeyFromObject(orphan), orphan)) }).Should(BeTrue(),
			"machines without an object have been looked for")
		Expect(onlyMachine(ctx, "moves").Name).To(Equal(m.Name))
		Expect(seed.Get(ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
		Expect(pod.UID).To(Equal(before.UID))
		Expect(pod.DeletionTimestamp).To(BeNil())
		Expect(left("moves")(ctx)).To(HaveLen(3))
	})

	It("are refused where the server of the credentials is not one that the operator allows", func(ctx SpecContext) {
		kubeconfig := "{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: \"https://192.0.2.1\"}}], " +
			"contexts: [{name: c, context: {cluster: c, user: u}}], users: [{name: u, user: {token: t}}]}"
		Expect(seed.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "refused-credentials"}, StringData: map[string]string{"kubeconfig": kubeconfig}})).To(Succeed())
		class := newClass(ctx, "refused", func(spec *localv1alpha1.MachineProviderSpec) { spec.Namespace = machine.RemoteNamespace(namespace) })
		before := class.DeepCopy()
		class.CredentialsSecretRef.Name = "refused-credentials"
		Expect(seed.Patch(ctx, class, client.MergeFrom(before))).To(Succeed())
		deployment := newDeployment(ctx, "refused", class.Name, 1)
		m := onlyMachine(ctx, "refused")
		Eventually(ctx, lastError(ctx, m)).Should(ContainSubstring("the address 192.0.2.1 is in none of the ranges that the operator allows"))

		// Otherwise the machine could not be deleted.
		Expect(seed.Get(ctx, client.ObjectKeyFromObject(class), class)).To(Succeed())
		before = class.DeepCopy()
		class.CredentialsSecretRef.Name = remoteCredentials(ctx)
		Expect(seed.Patch(ctx, class, client.MergeFrom(before))).To(Succeed())
		scale(ctx, deployment, 0)
		Eventually(ctx, machines("refused")).Should(BeEmpty())
	})

	It("that nobody wants any more are found, but those of other shoots are not", func(ctx SpecContext) {
		newClass(ctx, "orphans")
		mine, theirs := newOrphan(ctx, namespace, "orphan"), newOrphan(ctx, "shoot--local--other", "orphan")
		Eventually(ctx, func() bool { return apierrors.IsNotFound(seed.Get(ctx, client.ObjectKeyFromObject(mine), mine)) }).Should(BeTrue())
		Expect(seed.Get(ctx, client.ObjectKeyFromObject(theirs), theirs)).To(Succeed())
		Expect(seed.Delete(ctx, theirs)).To(Succeed())
	})
})

// takeAway deletes an object though it has finalizers, and returns it as another seed creates it.
func takeAway(ctx context.Context, obj client.Object) client.Object {
	GinkgoHelper()
	out := obj.DeepCopyObject().(client.Object)
	obj.SetFinalizers(nil)
	Expect(seed.Update(ctx, obj)).To(Succeed())
	Expect(client.IgnoreNotFound(seed.Delete(ctx, obj))).To(Succeed())
	Eventually(ctx, func() bool { return apierrors.IsNotFound(seed.Get(ctx, client.ObjectKeyFromObject(obj), obj)) }).Should(BeTrue(), "nobody holds it")

	out.SetFinalizers(nil)
	out.SetOwnerReferences(nil)
	out.SetResourceVersion("")
	out.SetUID("")
	switch out := out.(type) {
	case *machinev1alpha1.Machine:
		out.Status = machinev1alpha1.MachineStatus{}
	case *machinev1alpha1.MachineSet:
		out.Status = machinev1alpha1.MachineSetStatus{}
	case *machinev1alpha1.MachineDeployment:
		out.Status = machinev1alpha1.MachineDeploymentStatus{}
	}
	return out
}

// newRemoteClass creates a MachineClass for machines in the cluster of the credentials.
func newRemoteClass(ctx context.Context, name string) *machinev1alpha1.MachineClass {
	GinkgoHelper()
	class := newClass(ctx, name, func(spec *localv1alpha1.MachineProviderSpec) { spec.Namespace = machine.RemoteNamespace(namespace) })
	before := class.DeepCopy()
	class.CredentialsSecretRef.Name = remoteCredentials(ctx)
	Expect(seed.Patch(ctx, class, client.MergeFrom(before))).To(Succeed())
	return class
}

// remoteCredentials returns the name of the Secret with the kubeconfig of the cluster of machines, which it creates if it is not there.
func remoteCredentials(ctx context.Context) string {
	GinkgoHelper()
	const name = "remote"
	err := seed.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &corev1.Secret{})
	if !apierrors.IsNotFound(err) {
		Expect(err).NotTo(HaveOccurred())
		return name
	}
	remote := machine.RemoteNamespace(namespace)
	kubeconfig, err := env.ServiceAccountKubeconfig(GinkgoT().TempDir(), remote, "user")
	Expect(err).NotTo(HaveOccurred())
	raw, err := os.ReadFile(kubeconfig) // #nosec G304 -- just written
	Expect(err).NotTo(HaveOccurred())
	Expect(seed.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"kubeconfig": raw}})).To(Succeed())
	grantRemote(ctx, remote)
	return name
}

// grantRemote gives the user of a kubeconfig what the driver needs in the cluster of machines.
func grantRemote(ctx context.Context, namespace string) {
	GinkgoHelper()
	objectMeta := metav1.ObjectMeta{Namespace: namespace, Name: "machines"}
	role := &rbacv1.Role{ObjectMeta: objectMeta, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "delete", "get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"create", "delete", "get"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"create", "delete", "get", "list", "patch"}},
	}}
	Expect(seed.Create(ctx, role)).To(Succeed())
	Expect(seed.Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: objectMeta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: "user"}},
	})).To(Succeed())
}
