// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machinecontrollermanager

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func shootNamespace(name, provider string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"shoot.gardener.cloud/provider": provider}}}
}

func TestReconcile(t *testing.T) {
	for name, test := range map[string]struct {
		role     func(*rbacv1.Role)
		provider string
		fail     error
		patched  bool
		err      string
	}{
		"adds the rules that are missing":           {provider: "local", patched: true},
		"writes nothing if none is missing":         {provider: "local", role: func(r *rbacv1.Role) { r.Rules = withRules(r.Rules) }},
		"leaves the Roles of other providers alone": {provider: "other"},
		"leaves the Roles of no shoot alone":        {},
		"leaves a Role alone that is being deleted": {provider: "local", role: func(r *rbacv1.Role) {
			r.DeletionTimestamp, r.Finalizers = &metav1.Time{Time: time.Now()}, []string{"f"}
		}},
		"waits for the watch if the Role has changed":    {provider: "local", patched: true, fail: apierrors.NewConflict(schema.GroupResource{}, RoleName, nil)},
		"does not mind if the Role is gone":              {provider: "local", patched: true, fail: apierrors.NewNotFound(schema.GroupResource{}, RoleName)},
		"tells which Role it is that it must not change": {provider: "local", patched: true, fail: errors.New("forbidden"), err: namespace + "/" + RoleName + ": forbidden"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			role := gardenersRole(t)
			role.ResourceVersion = ""
			if test.role != nil {
				test.role(role)
			}
			before, patched := role.DeepCopy(), false
			c := fake.NewClientBuilder().WithScheme(kubernetesscheme.Scheme).WithObjects(role, shootNamespace(namespace, test.provider)).WithInterceptorFuncs(interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
					patched = true
					data, err := patch.Data(obj)
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(string(data)).To(ContainSubstring(`"resourceVersion"`), "or it would undo what gardenlet has written meanwhile")
					if test.fail != nil {
						return test.fail
					}
					return c.Patch(ctx, obj, patch, opts...)
				},
			}).Build()

			_, err := (&mender{client: c, reader: c}).Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(role)})
			if test.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
			}
			g.Expect(patched).To(Equal(test.patched))
			g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(role), role)).To(Succeed())
			if test.patched && test.fail == nil {
				g.Expect(role.Rules).To(Equal(withRules(before.Rules)))
			} else {
				g.Expect(role.Rules).To(Equal(before.Rules))
			}
		})
	}

	t.Run("does not mind a Role, or a namespace, that is gone", func(t *testing.T) {
		g := NewWithT(t)
		c := fake.NewClientBuilder().WithScheme(kubernetesscheme.Scheme).Build()
		request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: RoleName}}
		g.Expect((&mender{client: c, reader: c}).Reconcile(t.Context(), request)).To(BeZero())
		g.Expect(c.Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: RoleName}})).To(Succeed())
		g.Expect((&mender{client: c, reader: c}).Reconcile(t.Context(), request)).To(BeZero())
	})
}

// TestRolesAreMendedByAWatch has no webhook at all: each write goes past it.
func TestRolesAreMendedByAWatch(t *testing.T) {
	if os.Getenv("TEST_ASSET_KUBE_APISERVER") == "" || os.Getenv("TEST_ASSET_ETCD") == "" {
		t.Skip("TEST_ASSET_KUBE_APISERVER and TEST_ASSET_ETCD name no API server and etcd; `make test` does")
	}
	const user, timeout = "restricted", "30s"
	g := NewWithT(t)
	env := &envtest.Environment{}
	config, err := env.Start()
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { NewWithT(t).Expect(env.Stop()).To(Succeed()) })
	admin, err := client.New(config, client.Options{Scheme: kubernetesscheme.Scheme})
	g.Expect(err).NotTo(HaveOccurred())

	grant := func(name string, rules ...rbacv1.PolicyRule) {
		g.Expect(admin.Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules})).To(Succeed())
		g.Expect(admin.Create(t.Context(), &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: user}},
		})).To(Succeed())
	}
	roles := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{rbacv1.GroupName}, Resources: []string{"roles"}, ResourceNames: []string{RoleName}, Verbs: verbs}
	}
	grant("restricted", roles("list", "watch", "patch"), rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}})

	written := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "list", "watch"}}
	role := func(namespace, name string) *rbacv1.Role {
		return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: []rbacv1.PolicyRule{written}}
	}
	ours, anothers, unrelated := role("shoot--a--ours", RoleName), role("shoot--a--other", RoleName), role("shoot--a--ours", "prometheus")
	for _, obj := range []client.Object{shootNamespace("shoot--a--ours", "local"), shootNamespace("shoot--a--other", "other"), ours, anothers, unrelated} {
		g.Expect(admin.Create(t.Context(), obj)).To(Succeed())
	}
	rulesOf := func(role *rbacv1.Role) []rbacv1.PolicyRule {
		g.Expect(admin.Get(t.Context(), client.ObjectKeyFromObject(role), role)).To(Succeed())
		return role.Rules
	}

	restricted := rest.CopyConfig(config)
	restricted.Impersonate = rest.ImpersonationConfig{UserName: user}
	mgr, err := manager.New(restricted, manager.Options{
		Logger: logr.Discard(), Scheme: kubernetesscheme.Scheme, Metrics: metricsserver.Options{BindAddress: "0"}, Cache: cache.Options{ByObject: CacheOptions()},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(AddToManager(mgr, controller.Options{SkipNameValidation: new(true)})).To(Succeed())
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Eventually(done, timeout).Should(Receive(BeNil()), "the manager stops")
	})

	g.Consistently(func() []rbacv1.PolicyRule { return rulesOf(ours) }, "1s").Should(HaveLen(1), "who may not escalate may not add rules")
	grant("escalate", roles("escalate"))
	g.Eventually(func() []rbacv1.PolicyRule { return rulesOf(ours) }, timeout).Should(Equal(append([]rbacv1.PolicyRule{written}, driverRules()...)), "it is tried again")

	ours.Rules = []rbacv1.PolicyRule{written}
	g.Expect(admin.Update(t.Context(), ours)).To(Succeed())
	g.Eventually(func() []rbacv1.PolicyRule { return rulesOf(ours) }, timeout).Should(HaveLen(3), "gardenlet has taken them out")
	version := ours.ResourceVersion
	g.Consistently(func() string { rulesOf(ours); return ours.ResourceVersion }, "1s").Should(Equal(version), "nothing is written any more")
	g.Expect(rulesOf(anothers)).To(HaveLen(1), "of another provider")
	g.Expect(rulesOf(unrelated)).To(HaveLen(1))

	list := &rbacv1.RoleList{}
	g.Expect(mgr.GetCache().List(t.Context(), list)).To(Succeed())
	g.Expect(list.Items).To(HaveEach(HaveField("Name", RoleName)), "memory does not grow with other Roles")
	g.Expect(list.Items).To(HaveLen(2))
}
