// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machinecontrollermanager

import (
	"encoding/json"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gardener/gardener/pkg/client/kubernetes"
	gardenermcm "github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager/fake"
)

const namespace = "shoot--project--name"

// gardenersRole is the Role as gardenlet writes it.
func gardenersRole(t *testing.T) *rbacv1.Role {
	t.Helper()
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithScheme(kubernetes.SeedScheme).WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "generic-token-kubeconfig"}},
	).Build()
	g.Expect(gardenermcm.New(c, namespace, secretsmanager.New(c, namespace), gardenermcm.Values{Image: "mcm", Replicas: 1}).Deploy(t.Context())).To(Succeed())

	role := &rbacv1.Role{}
	g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: RoleName}, role)).To(Succeed())
	return role
}

func TestMutate(t *testing.T) {
	mutate := func(t *testing.T, obj client.Object) {
		t.Helper()
		NewWithT(t).Expect(mutator{}.Mutate(t.Context(), obj, nil)).To(Succeed())
	}

	t.Run("adds Pods and Services, and nothing else, to the Role that gardenlet writes", func(t *testing.T) {
		g := NewWithT(t)
		role := gardenersRole(t)
		before := role.DeepCopy()
		mutate(t, role)

		g.Expect(role.Rules[:len(before.Rules)]).To(Equal(before.Rules))
		g.Expect(role.Rules[len(before.Rules):]).To(Equal([]rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"create", "delete", "get", "list", "watch"}},
			{APIGroups: []string{""}, Resources: []string{"services"}, Verbs: []string{"create", "delete", "get"}},
		}))
	})

	t.Run("changes nothing the second time", func(t *testing.T) {
		role := gardenersRole(t)
		mutate(t, role)
		once := role.DeepCopy()
		mutate(t, role)
		NewWithT(t).Expect(role).To(Equal(once))
	})

	t.Run("leaves objects alone that are being deleted or are others", func(t *testing.T) {
		deleted := gardenersRole(t)
		deleted.DeletionTimestamp = &metav1.Time{}
		for name, obj := range map[string]client.Object{
			"deleted":      deleted,
			"other role":   &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "prometheus"}},
			"cluster role": &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: RoleName}},
			"other kind":   &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: RoleName}},
		} {
			before := obj.DeepCopyObject()
			mutate(t, obj)
			NewWithT(t).Expect(obj).To(Equal(before), name)
		}
	})
}

func TestWithRules(t *testing.T) {
	other := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get"}}
	driver := driverRules()
	for name, test := range map[string]struct{ rules, expected []rbacv1.PolicyRule }{
		"adds all to no rules":                      {nil, driver},
		"adds what is missing behind the others":    {[]rbacv1.PolicyRule{other, driver[1]}, []rbacv1.PolicyRule{other, driver[1], driver[0]}},
		"adds nothing if all are there":             {[]rbacv1.PolicyRule{driver[1], other, driver[0]}, []rbacv1.PolicyRule{driver[1], other, driver[0]}},
		"does not take a rule for less for its own": {[]rbacv1.PolicyRule{other}, append([]rbacv1.PolicyRule{other}, driver...)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			once := withRules(test.rules)
			g.Expect(once).To(Equal(test.expected))
			g.Expect(withRules(once)).To(Equal(once))
		})
	}
}

// fakeManager is as much of a manager as New asks for.
type fakeManager struct {
	manager.Manager
}

func (fakeManager) GetScheme() *runtime.Scheme { return kubernetesscheme.Scheme }
func (fakeManager) GetClient() client.Client   { return nil }
func (fakeManager) GetLogger() logr.Logger     { return logr.Discard() }

func TestNew(t *testing.T) {
	g := NewWithT(t)
	webhook, err := New(fakeManager{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(*webhook.FailurePolicy).To(Equal(admissionregistrationv1.Ignore))
	g.Expect(webhook.NamespaceSelector.MatchLabels).To(Equal(map[string]string{"shoot.gardener.cloud/provider": "local"}))
	g.Expect(webhook.Types).To(HaveExactElements(HaveField("Obj", BeAssignableToTypeOf(&rbacv1.Role{}))), "no selector applies to what is in no namespace")

	t.Run("answers a request with a patch", func(t *testing.T) {
		g := NewWithT(t)
		response := webhook.Webhook.Handler.Handle(t.Context(), request(t, gardenersRole(t)))
		g.Expect(response.Allowed).To(BeTrue())
		g.Expect(response.Patches).To(HaveLen(2))
		g.Expect(response.Patches).To(HaveEach(HaveField("Path", HavePrefix("/rules/"))))
	})

	t.Run("answers without a patch where nothing is missing", func(t *testing.T) {
		g := NewWithT(t)
		role := gardenersRole(t)
		g.Expect(mutator{}.Mutate(t.Context(), role, nil)).To(Succeed())
		response := webhook.Webhook.Handler.Handle(t.Context(), request(t, role))
		g.Expect(response.Allowed).To(BeTrue())
		g.Expect(response.Patches).To(BeEmpty())
	})
}

func request(t *testing.T, role *rbacv1.Role) admission.Request {
	t.Helper()
	role.TypeMeta = metav1.TypeMeta{APIVersion: "rbac.authorization.k8s.io/v1", Kind: "Role"}
	raw, err := json.Marshal(role)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		Kind:      metav1.GroupVersionKind{Group: "rbac.authorization.k8s.io", Version: "v1", Kind: "Role"},
		Operation: admissionv1.Update,
		Namespace: role.Namespace, Name: role.Name,
		Object: runtime.RawExtension{Raw: raw}, OldObject: runtime.RawExtension{Raw: raw},
	}}
}
