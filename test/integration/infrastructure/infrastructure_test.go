// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/infrastructure"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// shoot is a shoot as gardenlet has it in the seed.
type shoot struct {
	namespace string
	infra     *extensionsv1alpha1.Infrastructure
	shoot     *gardencorev1beta1.Shoot
}

// newShoot creates a shoot but for its Infrastructure.
func newShoot(ctx context.Context, name string, data map[string][]byte, change ...func(*gardencorev1beta1.Shoot)) *shoot {
	GinkgoHelper()
	s := &shoot{namespace: "shoot--local--" + name}
	s.shoot = &gardencorev1beta1.Shoot{
		TypeMeta:   metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden-local", Name: name},
		Spec: gardencorev1beta1.ShootSpec{Networking: &gardencorev1beta1.Networking{
			Nodes: new("10.0.0.0/16"), Pods: new("10.3.0.0/16"), Services: new("10.4.0.0/16"),
			IPFamilies: []gardencorev1beta1.IPFamily{gardencorev1beta1.IPFamilyIPv4},
		}},
	}
	for _, change := range change {
		change(s.shoot)
	}
	Expect(seed.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.namespace, Labels: map[string]string{"gardener.cloud/role": "shoot"}}})).To(Succeed())
	Expect(seed.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "cloudprovider"}, Data: data})).To(Succeed())
	Expect(seed.Create(ctx, s.cluster())).To(Succeed())
	s.infra = &extensionsv1alpha1.Infrastructure{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Annotations: map[string]string{"gardener.cloud/operation": "reconcile"}},
		Spec: extensionsv1alpha1.InfrastructureSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
			Region:      "local",
			SecretRef:   corev1.SecretReference{Namespace: s.namespace, Name: "cloudprovider"},
		},
	}
	return s
}

func (s *shoot) cluster() *extensionsv1alpha1.Cluster {
	GinkgoHelper()
	seedObject := raw(&gardencorev1beta1.Seed{
		TypeMeta:   metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Seed"},
		ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Spec:       gardencorev1beta1.SeedSpec{Networks: gardencorev1beta1.SeedNetworks{Nodes: new("172.18.0.0/24"), Pods: "10.1.0.0/16", Services: "10.2.0.0/16"}},
	})
	profile := raw(&gardencorev1beta1.CloudProfile{TypeMeta: metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "CloudProfile"}})
	return &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec:       extensionsv1alpha1.ClusterSpec{CloudProfile: profile, Seed: &seedObject, Shoot: raw(s.shoot)},
	}
}

func raw(obj any) runtime.RawExtension {
	GinkgoHelper()
	data, err := json.Marshal(obj)
	Expect(err).NotTo(HaveOccurred())
	return runtime.RawExtension{Raw: data}
}

// create creates the Infrastructure and waits until it is there.
func (s *shoot) create(ctx context.Context) {
	GinkgoHelper()
	Expect(seed.Create(ctx, s.infra)).To(Succeed())
	s.succeeds(ctx, gardencorev1beta1.LastOperationTypeCreate)
}

// succeeds waits until an operation has, given its type or a matcher for that.
func (s *shoot) succeeds(ctx context.Context, operation any) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(seed.Get(ctx, client.ObjectKeyFromObject(s.infra), s.infra)).To(Succeed())
		g.Expect(s.infra.Annotations).NotTo(HaveKey("gardener.cloud/operation"))
		g.Expect(s.infra.Status.LastError).To(BeNil())
		g.Expect(s.infra.Status.LastOperation).To(And(HaveField("Type", operation), HaveField("State", gardencorev1beta1.LastOperationStateSucceeded)))
	}).Should(Succeed())
}

// isRestored waits until a restore has succeeded. The library's own writes before it takes the annotation off may have it
// reconcile once more.
func (s *shoot) isRestored(ctx context.Context) {
	GinkgoHelper()
	s.succeeds(ctx, Or(Equal(gardencorev1beta1.LastOperationTypeRestore), Equal(gardencorev1beta1.LastOperationTypeReconcile)))
}

// ask asks for an operation.
func (s *shoot) ask(ctx context.Context, operation string) {
	GinkgoHelper()
	before := s.infra.DeepCopy()
	s.infra.Annotations = map[string]string{"gardener.cloud/operation": operation}
	Expect(seed.Patch(ctx, s.infra, client.MergeFrom(before))).To(Succeed())
}

// reconcile asks for a reconcile and waits for it.
func (s *shoot) reconcile(ctx context.Context) {
	GinkgoHelper()
	s.ask(ctx, "reconcile")
	Eventually(ctx, func(g Gomega) {
		g.Expect(seed.Get(ctx, client.ObjectKeyFromObject(s.infra), s.infra)).To(Succeed())
		g.Expect(s.infra.Annotations).NotTo(HaveKey("gardener.cloud/operation"))
		g.Expect(s.infra.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	}).Should(Succeed())
}

// isGone waits until the Infrastructure is.
// fails waits until an operation has, with this code alone.
func (s *shoot) fails(ctx context.Context, code gardencorev1beta1.ErrorCode) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(seed.Get(ctx, client.ObjectKeyFromObject(s.infra), s.infra)).To(Succeed())
		g.Expect(s.infra.Status.LastError).NotTo(BeNil())
		g.Expect(s.infra.Status.LastError.Codes).To(ConsistOf(code))
	}).Should(Succeed())
}

func (s *shoot) isGone(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func() bool { return apierrors.IsNotFound(seed.Get(ctx, client.ObjectKeyFromObject(s.infra), s.infra)) }).Should(BeTrue())
}

func (s *shoot) delete(ctx context.Context) {
	GinkgoHelper()
	Expect(seed.Delete(ctx, s.infra)).To(Succeed())
}

// setCluster writes the shoot into the Cluster.
func (s *shoot) setCluster(ctx context.Context) {
	GinkgoHelper()
	current := &extensionsv1alpha1.Cluster{}
	Expect(seed.Get(ctx, client.ObjectKey{Name: s.namespace}, current)).To(Succeed())
	current.Spec = s.cluster().Spec
	Expect(seed.Update(ctx, current)).To(Succeed())
}

func (s *shoot) status() localv1alpha1.InfrastructureStatus {
	GinkgoHelper()
	status := localv1alpha1.InfrastructureStatus{}
	Expect(json.Unmarshal(s.infra.Status.ProviderStatus.Raw, &status)).To(Succeed())
	return status
}

func (s *shoot) poolName(family gardencorev1beta1.IPFamily) string {
	return machine.IPPoolName(s.namespace, family)
}

func (s *shoot) remoteNamespace() string { return machine.RemoteNamespace(s.namespace) }

// pool reads an IPPool; nil if there is none.
func pool(ctx context.Context, c client.Client, name string) map[string]any {
	GinkgoHelper()
	obj := newPool(name)
	err := c.Get(ctx, client.ObjectKey{Name: name}, obj)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return nil
	}
	Expect(err).NotTo(HaveOccurred())
	return obj.Object["spec"].(map[string]any)
}

func newPool(name string) *unstructured.Unstructured {
	obj := &unstructured.Unstructured{}
	obj.SetGroupVersionKind(schema.GroupVersionKind{Group: "crd.projectcalico.org", Version: "v1", Kind: "IPPool"})
	obj.SetName(name)
	return obj
}

func hasPolicy(ctx context.Context, c client.Client, namespace, name string) bool {
	GinkgoHelper()
	err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &networkingv1.NetworkPolicy{})
	Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
	return err == nil
}

func isThere(ctx context.Context, c client.Client, namespace string) bool {
	GinkgoHelper()
	err := c.Get(ctx, client.ObjectKey{Name: namespace}, &corev1.Namespace{})
	Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
	return err == nil
}

// versions returns the resource versions of the NetworkPolicies in a namespace.
func versions(ctx context.Context, namespace string) map[string]string {
	GinkgoHelper()
	list := &networkingv1.NetworkPolicyList{}
	Expect(seed.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
	out := map[string]string{}
	for _, policy := range list.Items {
		out[policy.Name] = policy.ResourceVersion
	}
	return out
}

var _ = Describe("machines in the seed", Ordered, func() {
	It("do without IPPools until there is the API, without a restart", func(ctx SpecContext) {
		s := newShoot(ctx, "seed", nil)
		s.create(ctx)
		Expect(s.status().Message).To(HavePrefix("The cluster of the machines has no IPPools of Calico"))
		Expect(s.status().MachineNamespace).To(Equal(s.namespace))
		Expect(s.infra.Status.Networking.Nodes).To(Equal([]string{"10.0.0.0/16"}))
		Expect(s.infra.Status.EgressCIDRs).To(Equal([]string{"10.0.0.0/16"}))
		Expect(hasPolicy(ctx, seed, s.namespace, infrastructure.MachinesPolicy)).To(BeTrue())
		Expect(hasPolicy(ctx, seed, s.namespace, infrastructure.ControlPlanePolicy)).To(BeTrue())

		By("installing Calico's CRD")
		_, err := envtest.InstallCRDs(seedEnv.Config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{ipPools()}})
		Expect(err).NotTo(HaveOccurred())
		s.reconcile(ctx)
		Expect(s.status().Message).To(BeEmpty())
		Expect(s.status().IPPools).To(ConsistOf(localv1alpha1.MachineIPPool{IPFamily: "IPv4", Name: s.poolName("IPv4"), CIDR: "10.0.0.0/16"}))
		Expect(pool(ctx, seed, s.poolName("IPv4"))).To(HaveKeyWithValue("cidr", "10.0.0.0/16"))

		By("reconciling once more")
		before := versions(ctx, s.namespace)
		requests.Reset()
		s.reconcile(ctx)
		Expect(requests.Writes()).To(HaveEach(HaveField("Path", Or(ContainSubstring("/infrastructures/"), ContainSubstring("/networkpolicies/")))))
		Expect(readsOf("/networkpolicies", "/ippools", "/secrets", "/namespaces/"+s.namespace+" ")).To(Equal(2), "the pools, the Secret")
		Expect(versions(ctx, s.namespace)).To(Equal(before), "nothing has changed")

		s.delete(ctx)
		s.isGone(ctx)
		Expect(hasPolicy(ctx, seed, s.namespace, infrastructure.MachinesPolicy)).To(BeFalse())
		Expect(hasPolicy(ctx, seed, s.namespace, infrastructure.ControlPlanePolicy)).To(BeFalse())
		Expect(pool(ctx, seed, s.poolName("IPv4"))).To(BeNil())
		Expect(isThere(ctx, seed, s.namespace)).To(BeTrue())
	})

	It("have pools of both families, and no shoot's deletion takes away another's", func(ctx SpecContext) {
		dual := func(s *gardencorev1beta1.Shoot) {
			s.Spec.Networking.IPFamilies = []gardencorev1beta1.IPFamily{"IPv4", "IPv6"}
			s.Status.Networking = &gardencorev1beta1.NetworkingStatus{Nodes: []string{"10.0.0.0/16", "fd00:10:1:100::/56"}}
		}
		first, second := newShoot(ctx, "first", nil, dual), newShoot(ctx, "second", nil, dual)
		first.create(ctx)
		second.create(ctx)
		first.delete(ctx)
		first.isGone(ctx)
		for family, cidr := range map[gardencorev1beta1.IPFamily]string{"IPv4": "10.0.0.0/16", "IPv6": "fd00:10:1:100::/56"} {
			Expect(pool(ctx, seed, first.poolName(family))).To(BeNil())
			Expect(pool(ctx, seed, second.poolName(family))).To(HaveKeyWithValue("cidr", cidr))
		}
		second.delete(ctx)
		second.isGone(ctx)
	})

	It("keep what they have when the shoot is migrated, and find it when it is restored", func(ctx SpecContext) {
		s := newShoot(ctx, "migrate", nil)
		s.create(ctx)
		s.ask(ctx, "migrate")
		s.succeeds(ctx, gardencorev1beta1.LastOperationTypeMigrate)
		Eventually(ctx, func() ([]string, error) {
			err := seed.Get(ctx, client.ObjectKeyFromObject(s.infra), s.infra)
			return s.infra.Finalizers, err
		}).Should(BeEmpty())

		By("deleting it as gardenlet does after a migration, and creating it where the shoot goes")
		s.delete(ctx)
		s.isGone(ctx)
		Consistently(ctx, func(g Gomega) {
			g.Expect(hasPolicy(ctx, seed, s.namespace, infrastructure.MachinesPolicy)).To(BeTrue())
			g.Expect(pool(ctx, seed, s.poolName("IPv4"))).NotTo(BeNil())
		}, time.Second).Should(Succeed(), "the machines still run")

		s.infra.ResourceVersion = ""
		s.infra.UID = ""
		s.infra.Annotations = map[string]string{"gardener.cloud/operation": "restore"}
		Expect(seed.Create(ctx, s.infra)).To(Succeed())
		s.isRestored(ctx)
		Expect(s.infra.Finalizers).NotTo(BeEmpty())
		s.delete(ctx)
		s.isGone(ctx)
		Expect(pool(ctx, seed, s.poolName("IPv4"))).To(BeNil())
	})

	It("are waited for with their deletion until somebody has corrected a mistake, or not at all if forced", func(ctx SpecContext) {
		s := newShoot(ctx, "mistake", nil)
		s.create(ctx)
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "cloudprovider"}, Data: map[string][]byte{"kubeconfig": []byte("nonsense")}}
		Expect(seed.Update(ctx, secret)).To(Succeed())
		s.ask(ctx, "reconcile")
		hasCode := func(g Gomega) {
			g.Expect(seed.Get(ctx, client.ObjectKeyFromObject(s.infra), s.infra)).To(Succeed())
			g.Expect(s.infra.Status.LastError).NotTo(BeNil())
			g.Expect(s.infra.Status.LastError.Codes).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
			g.Expect(s.infra.Status.LastError.Description).To(ContainSubstring("kubeconfig in the Secret"))
		}
		Eventually(ctx, hasCode).Should(Succeed())
		requests.Reset()
		Consistently(ctx, func() int { return readsOf("/secrets") }, time.Second).Should(BeZero(), "it is not tried hot")

		s.delete(ctx)
		Eventually(ctx, func(g Gomega) {
			hasCode(g)
			g.Expect(s.infra.Status.LastOperation.Type).To(Equal(gardencorev1beta1.LastOperationTypeDelete))
		}).Should(Succeed())
		s.shoot.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
		s.setCluster(ctx)
		// gardenlet asks for it again.
		Eventually(ctx, func(g Gomega) {
			err := seed.Get(ctx, client.ObjectKeyFromObject(s.infra), s.infra)
			if err == nil {
				s.ask(ctx, "reconcile")
			}
			g.Expect(apierrors.IsNotFound(err)).To(BeTrue())
		}).WithPolling(500 * time.Millisecond).Should(Succeed())
	})

	It("hold nothing up that never came to be for a mistake", func(ctx SpecContext) {
		s := newShoot(ctx, "unmade", map[string][]byte{"kubeconfig": []byte("nonsense")})
		Expect(seed.Create(ctx, s.infra)).To(Succeed())
		s.fails(ctx, gardencorev1beta1.ErrorConfigurationProblem)
		Expect(s.infra.Finalizers).To(BeEmpty())
		s.delete(ctx)
		s.isGone(ctx)
	})
})

var _ = Describe("machines in another cluster", Ordered, func() {
	credentials := func() map[string][]byte { return map[string][]byte{"kubeconfig": kubeconfig} }

	It("have a namespace of their own, which is waited for when it is deleted", func(ctx SpecContext) {
		s := newShoot(ctx, "other", credentials())
		s.create(ctx)
		Expect(s.status().MachineNamespace).To(Equal("infra-shoot--local--other"))
		namespace := &corev1.Namespace{}
		Expect(other.Get(ctx, client.ObjectKey{Name: s.remoteNamespace()}, namespace)).To(Succeed())
		Expect(namespace.Labels).To(And(HaveKeyWithValue("gardener.cloud/role", "infra"), HaveKeyWithValue("pod-security.kubernetes.io/enforce", "privileged")))
		Expect(hasPolicy(ctx, other, s.remoteNamespace(), infrastructure.MachinesPolicy)).To(BeTrue())
		Expect(hasPolicy(ctx, seed, s.namespace, infrastructure.MachinesPolicy)).To(BeFalse())
		Expect(hasPolicy(ctx, seed, s.namespace, infrastructure.ControlPlanePolicy)).To(BeTrue())
		Expect(pool(ctx, other, s.poolName("IPv4"))).To(HaveKeyWithValue("cidr", "10.0.0.0/16"))
		Expect(pool(ctx, seed, s.poolName("IPv4"))).To(BeNil())

		s.delete(ctx)
		Eventually(ctx, func(g Gomega) {
			g.Expect(seed.Get(ctx, client.ObjectKeyFromObject(s.infra), s.infra)).To(Succeed())
			g.Expect(s.infra.Status.LastOperation.Description).To(ContainSubstring("is still being deleted"))
			g.Expect(s.infra.Status.LastError).To(BeNil())
		}).Should(Succeed())
		finish(ctx, other, s.remoteNamespace())
		s.isGone(ctx)
		Expect(pool(ctx, other, s.poolName("IPv4"))).To(BeNil())
		Expect(hasPolicy(ctx, seed, s.namespace, infrastructure.ControlPlanePolicy)).To(BeFalse())
	})

	It("are not made where somebody else's namespace is, and that stays", func(ctx SpecContext) {
		s := newShoot(ctx, "taken", credentials())
		Expect(otherEnv.CreateNamespaces(ctx, s.remoteNamespace())).To(Succeed())
		Expect(seed.Create(ctx, s.infra)).To(Succeed())
		Eventually(ctx, func(g Gomega) {
			g.Expect(seed.Get(ctx, client.ObjectKeyFromObject(s.infra), s.infra)).To(Succeed())
			g.Expect(s.infra.Status.LastError).NotTo(BeNil())
			g.Expect(s.infra.Status.LastError.Description).To(ContainSubstring("not labelled gardener.cloud/role=infra"))
		}).Should(Succeed())
		s.delete(ctx)
		s.isGone(ctx)
		Expect(isThere(ctx, other, s.remoteNamespace())).To(BeTrue())
	})

	It("are gone on with where an instance stopped, and deleted before they were ever complete", func(ctx SpecContext) {
		// The user of this kubeconfig may make namespaces, but no policies.
		suiteUser := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "kube-system:provider-local"}}
		Expect(other.Get(ctx, client.ObjectKeyFromObject(suiteUser), suiteUser)).To(Succeed())
		before := suiteUser.DeepCopy()
		suiteUser.Rules = suiteUser.Rules[1:]
		Expect(other.Update(ctx, suiteUser)).To(Succeed())

		half, never := newShoot(ctx, "half", credentials()), newShoot(ctx, "never", credentials())
		for _, s := range []*shoot{half, never} {
			Expect(seed.Create(ctx, s.infra)).To(Succeed())
			s.fails(ctx, gardencorev1beta1.ErrorInfraUnauthorized)
			Expect(isThere(ctx, other, s.remoteNamespace())).To(BeTrue())
		}
		instance.Stop()
		suiteUser.Rules = before.Rules
		Expect(other.Update(ctx, suiteUser)).To(Succeed())
		never.delete(ctx)
		start()

		never.deleted(ctx)
		half.reconcile(ctx)
		Expect(hasPolicy(ctx, other, half.remoteNamespace(), infrastructure.MachinesPolicy)).To(BeTrue())
		half.delete(ctx)
		half.deleted(ctx)
	})

	It("stay for the next seed when the shoot is migrated", func(ctx SpecContext) {
		s := newShoot(ctx, "moves", credentials())
		s.create(ctx)
		s.ask(ctx, "migrate")
		s.succeeds(ctx, gardencorev1beta1.LastOperationTypeMigrate)
		Expect(isThere(ctx, other, s.remoteNamespace())).To(BeTrue())
		Expect(hasPolicy(ctx, other, s.remoteNamespace(), infrastructure.MachinesPolicy)).To(BeTrue())
		Expect(pool(ctx, other, s.poolName("IPv4"))).NotTo(BeNil())
		s.ask(ctx, "restore")
		s.isRestored(ctx)

		By("forcing the deletion, for which a namespace need not be gone")
		s.shoot.Annotations = map[string]string{"confirmation.gardener.cloud/force-deletion": "true"}
		s.setCluster(ctx)
		s.delete(ctx)
		s.isGone(ctx)
		finish(ctx, other, s.remoteNamespace())
		Expect(pool(ctx, other, s.poolName("IPv4"))).To(BeNil())
	})

	It("are somebody else's if the class of the object is not shoot", func(ctx SpecContext) {
		s := newShoot(ctx, "class", credentials())
		s.infra.Spec.Class = new(extensionsv1alpha1.ExtensionClassSeed)
		Expect(seed.Create(ctx, s.infra)).To(Succeed())
		Consistently(ctx, func() bool { return isThere(ctx, other, s.remoteNamespace()) }, time.Second).Should(BeFalse())
	})
})

// deleted waits until the namespace is being deleted, lets it go, and waits until the Infrastructure is gone.
func (s *shoot) deleted(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		namespace := &corev1.Namespace{}
		g.Expect(other.Get(ctx, client.ObjectKey{Name: s.remoteNamespace()}, namespace)).To(Succeed())
		g.Expect(namespace.DeletionTimestamp).NotTo(BeNil())
	}).Should(Succeed())
	finish(ctx, other, s.remoteNamespace())
	s.isGone(ctx)
}

// readsOf counts the reads that were recorded whose path has one of these parts. A part that ends with a blank is the end
// of a path.
func readsOf(parts ...string) int {
	count := 0
	for _, request := range requests.List() {
		for _, part := range parts {
			if request.Method == http.MethodGet && strings.Contains(fmt.Sprint(request.Path, " "), part) {
				count++
				break
			}
		}
	}
	return count
}
