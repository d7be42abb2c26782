// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager/fake"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

const (
	namespace = "shoot--project--name"
	image     = "registry.example.com/gardenlet-extension:v1"
	sidecar   = "machine-controller-manager-local"
)

// fakeManager is as much of a manager as New asks for.
type fakeManager struct {
	manager.Manager
	client client.Client
	mapper meta.RESTMapper
}

func (m fakeManager) GetScheme() *runtime.Scheme     { return kubernetes.SeedScheme }
func (m fakeManager) GetClient() client.Client       { return m.client }
func (m fakeManager) GetRESTMapper() meta.RESTMapper { return m.mapper }

func clusterOf(t *testing.T, shoot *gardencorev1beta1.Shoot) *extensionsv1alpha1.Cluster {
	t.Helper()
	raw, err := json.Marshal(shoot)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec:       extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Raw: raw}, Seed: &runtime.RawExtension{Raw: []byte("{}")}, CloudProfile: runtime.RawExtension{Raw: []byte("{}")}},
	}
}

func shoot(workers ...gardencorev1beta1.Worker) *gardencorev1beta1.Shoot {
	return &gardencorev1beta1.Shoot{
		TypeMeta: metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"},
		Spec:     gardencorev1beta1.ShootSpec{Provider: gardencorev1beta1.Provider{Type: "local", Workers: workers}},
	}
}

func newMutator(t testing.TB, mirrors []configv1alpha1.RegistryMirror, objects ...client.Object) *mutator {
	t.Helper()
	return &mutator{
		Options: Options{ControllerImage: image, RegistryMirrors: mirrors},
		client:  fake.NewClientBuilder().WithScheme(kubernetes.SeedScheme).WithObjects(objects...).Build(),
	}
}

// gardeners reads an object of machine-controller-manager as gardenlet writes it.
func gardeners[T client.Object](t *testing.T, name string, obj T) T {
	t.Helper()
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithScheme(kubernetes.SeedScheme).WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "generic-token-kubeconfig"}},
	).Build()
	g.Expect(machinecontrollermanager.New(c, namespace, secretsmanager.New(c, namespace), machinecontrollermanager.Values{Image: "mcm", Replicas: 1}).Deploy(t.Context())).To(Succeed())
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, obj)).To(Succeed())
	return obj
}

func mcmDeployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	return gardeners(t, "machine-controller-manager", &appsv1.Deployment{})
}

func mcmVPA(t *testing.T) *vpaautoscalingv1.VerticalPodAutoscaler {
	t.Helper()
	return gardeners(t, "machine-controller-manager-vpa", &vpaautoscalingv1.VerticalPodAutoscaler{})
}

func container(deployment *appsv1.Deployment, name string) *corev1.Container {
	containers := deployment.Spec.Template.Spec.Containers
	for i := range containers {
		if containers[i].Name == name {
			return &containers[i]
		}
	}
	return nil
}

func TestDeployment(t *testing.T) {
	t.Run("gets a container that runs our driver with Gardener's arguments", func(t *testing.T) {
		g := NewWithT(t)
		deployment := mcmDeployment(t)
		before := deployment.DeepCopy()
		g.Expect(newMutator(t, nil, clusterOf(t, shoot())).Mutate(t.Context(), deployment, nil)).To(Succeed())

		c := container(deployment, sidecar)
		g.Expect(c).NotTo(BeNil())
		g.Expect(c.Image).To(Equal(image))
		g.Expect(c.Command).To(Equal([]string{"/gardenlet-extension", "machine-controller"}))
		g.Expect(c.Args).To(ContainElements("--namespace="+namespace, "--control-kubeconfig=inClusterConfig", "--target-kubeconfig=/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/kubeconfig"))
		for _, mount := range c.VolumeMounts {
			g.Expect(deployment.Spec.Template.Spec.Volumes).To(ContainElement(HaveField("Name", mount.Name)))
		}

		deployment.Spec.Template.Spec.Containers = extensionswebhook.EnsureNoContainerWithName(deployment.Spec.Template.Spec.Containers, sidecar)
		g.Expect(deployment).To(Equal(before), "nothing else changes")
	})

	t.Run("tells the driver which addresses the operator allows", func(t *testing.T) {
		g := NewWithT(t)
		deployment := mcmDeployment(t)
		m := newMutator(t, nil, clusterOf(t, shoot()))
		m.AllowedCIDRs = []string{"192.0.2.0/24", "2001:db8::/32"}
		g.Expect(m.Mutate(t.Context(), deployment, nil)).To(Succeed())
		g.Expect(container(deployment, sidecar).Command).To(Equal([]string{"/gardenlet-extension", "machine-controller", "--remote-allowed-cidrs=192.0.2.0/24,2001:db8::/32"}))
	})

	t.Run("does not change the second time, and gets a new image", func(t *testing.T) {
		g := NewWithT(t)
		deployment := mcmDeployment(t)
		m := newMutator(t, nil, clusterOf(t, shoot()))
		g.Expect(m.Mutate(t.Context(), deployment, nil)).To(Succeed())
		once := deployment.DeepCopy()
		g.Expect(m.Mutate(t.Context(), deployment, once)).To(Succeed())
		g.Expect(deployment).To(Equal(once))

		m.ControllerImage = "registry.example.com/gardenlet-extension:v2"
		g.Expect(m.Mutate(t.Context(), deployment, once)).To(Succeed())
		g.Expect(container(deployment, sidecar).Image).To(Equal(m.ControllerImage))
		g.Expect(deployment.Spec.Template.Spec.Containers).To(HaveLen(2))
	})

	t.Run("follows a shoot that hosts itself", func(t *testing.T) {
		g := NewWithT(t)
		deployment := mcmDeployment(t)
		selfHosted := shoot(gardencorev1beta1.Worker{Name: "control-plane", ControlPlane: &gardencorev1beta1.WorkerControlPlane{}})
		g.Expect(newMutator(t, nil, clusterOf(t, selfHosted)).Mutate(t.Context(), deployment, nil)).To(Succeed())
		g.Expect(container(deployment, sidecar).VolumeMounts).To(BeEmpty())
	})

	t.Run("is that of an ordinary shoot without a Cluster, or without a Shoot in it", func(t *testing.T) {
		g := NewWithT(t)
		noShoot := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		for _, m := range []*mutator{newMutator(t, nil), newMutator(t, nil, noShoot)} {
			deployment := mcmDeployment(t)
			g.Expect(m.Mutate(t.Context(), deployment, nil)).To(Succeed())
			g.Expect(container(deployment, sidecar).VolumeMounts).To(HaveLen(1))
		}
	})

	t.Run("is refused if the Cluster cannot be read", func(t *testing.T) {
		m := newMutator(t, nil)
		m.client = fake.NewClientBuilder().WithScheme(kubernetes.SeedScheme).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return errors.New("connection refused")
			},
		}).Build()
		NewWithT(t).Expect(m.Mutate(t.Context(), mcmDeployment(t), nil)).To(MatchError(And(ContainSubstring("Cluster "+namespace), ContainSubstring("connection refused"))))
	})
}

func TestVPA(t *testing.T) {
	t.Run("looks after the driver's container too", func(t *testing.T) {
		g := NewWithT(t)
		vpa := mcmVPA(t)
		before := vpa.DeepCopy()
		m := newMutator(t, nil)
		g.Expect(m.Mutate(t.Context(), vpa, nil)).To(Succeed())

		policies := vpa.Spec.ResourcePolicy.ContainerPolicies
		g.Expect(policies[:len(policies)-1]).To(Equal(before.Spec.ResourcePolicy.ContainerPolicies))
		g.Expect(policies[len(policies)-1].ContainerName).To(Equal(sidecar))

		once := vpa.DeepCopy()
		g.Expect(m.Mutate(t.Context(), vpa, before)).To(Succeed())
		g.Expect(vpa).To(Equal(once))
	})

	t.Run("gets a policy if it has none", func(t *testing.T) {
		g := NewWithT(t)
		vpa := mcmVPA(t)
		vpa.Spec.ResourcePolicy = nil
		g.Expect(newMutator(t, nil).Mutate(t.Context(), vpa, nil)).To(Succeed())
		g.Expect(vpa.Spec.ResourcePolicy.ContainerPolicies).To(HaveLen(1))
	})
}

func TestOthersAreLeftAlone(t *testing.T) {
	g := NewWithT(t)
	m := newMutator(t, testMirrors(), clusterOf(t, shoot()))

	deletedDeployment, deletedOSC := mcmDeployment(t), reconcileOSC(t, "")
	deletedDeployment.DeletionTimestamp, deletedOSC.DeletionTimestamp = &metav1.Time{}, &metav1.Time{}
	otherOSC := reconcileOSC(t, "")
	otherOSC.Spec.Purpose = "unknown"

	for name, obj := range map[string]client.Object{
		"deployment that is being deleted":            deletedDeployment,
		"OperatingSystemConfig that is being deleted": deletedOSC,
		"OperatingSystemConfig of another purpose":    otherOSC,
		"other deployment":                            &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-apiserver"}},
		"other VPA":                                   &vpaautoscalingv1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "kube-apiserver-vpa"}},
		"other kind":                                  &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-controller-manager"}},
	} {
		before := obj.DeepCopyObject()
		g.Expect(m.Mutate(t.Context(), obj, nil)).To(Succeed(), name)
		g.Expect(obj).To(Equal(before), name)
	}
}

func TestNew(t *testing.T) {
	t.Run("asks for the image without which no machine would come", func(t *testing.T) {
		_, err := New(fakeManager{}, Options{})
		NewWithT(t).Expect(err).To(MatchError(ContainSubstring("set machines.controllerImage")))
	})

	t.Run("gets only what Gardener hands to it, of shoots of this provider, and insists on it", func(t *testing.T) {
		g := NewWithT(t)
		webhook := newWebhook(t)
		g.Expect(webhook.Target).To(Equal(extensionswebhook.TargetSeed))
		g.Expect(*webhook.FailurePolicy).To(Equal(admissionregistrationv1.Fail))

		namespaces, err := metav1.LabelSelectorAsSelector(webhook.NamespaceSelector)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(namespaces.String()).To(Equal("shoot.gardener.cloud/provider in (local)"))
		objects, err := metav1.LabelSelectorAsSelector(webhook.ObjectSelector)
		g.Expect(err).NotTo(HaveOccurred())
		for _, obj := range []client.Object{mcmDeployment(t), mcmVPA(t)} {
			g.Expect(objects.Matches(labelsOf(obj))).To(BeTrue(), "Gardener labels %T", obj)
		}
	})

	t.Run("leaves VerticalPodAutoscalers to a seed that has them", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(newWebhook(t).Types).To(HaveLen(3))
		without, err := New(fakeManager{client: newMutator(t, nil).client.(client.Client), mapper: meta.NewDefaultRESTMapper(nil)}, Options{ControllerImage: image})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(without.Types).To(HaveLen(2))
	})

	t.Run("answers with a patch, and says what is wrong", func(t *testing.T) {
		g := NewWithT(t)
		webhook := newWebhook(t)

		response := webhook.Webhook.Handler.Handle(t.Context(), request(t, reconcileOSC(t, "")))
		g.Expect(response.Allowed).To(BeTrue())
		g.Expect(response.Patches).NotTo(BeEmpty())

		broken := reconcileOSC(t, "")
		broken.Spec.Files[0].Content.Inline.Data = "- no: [configuration"
		response = webhook.Webhook.Handler.Handle(t.Context(), request(t, broken))
		g.Expect(response.Allowed).To(BeFalse())
		g.Expect(response.Result.Code).To(Equal(int32(http.StatusForbidden)))
		g.Expect(response.Result.Message).To(And(ContainSubstring(namespace+"/gardener-node-agent-worker"), ContainSubstring("kubelet configuration in /var/lib/kubelet/config/kubelet")))
	})
}

func newWebhook(t testing.TB) *extensionswebhook.Webhook {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{vpaautoscalingv1.SchemeGroupVersion})
	mapper.Add(vpaautoscalingv1.SchemeGroupVersion.WithKind("VerticalPodAutoscaler"), meta.RESTScopeNamespace)
	webhook, err := New(fakeManager{client: newMutator(t, nil).client.(client.Client), mapper: mapper}, Options{ControllerImage: image, RegistryMirrors: testMirrors()})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return webhook
}

func request(t *testing.T, osc *extensionsv1alpha1.OperatingSystemConfig) admission.Request {
	t.Helper()
	osc.TypeMeta = metav1.TypeMeta{APIVersion: "extensions.gardener.cloud/v1alpha1", Kind: "OperatingSystemConfig"}
	raw, err := json.Marshal(osc)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Kind:      metav1.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "OperatingSystemConfig"},
		Operation: admissionv1.Create,
		Namespace: osc.Namespace, Name: osc.Name,
		Object: runtime.RawExtension{Raw: raw},
	}}
}
