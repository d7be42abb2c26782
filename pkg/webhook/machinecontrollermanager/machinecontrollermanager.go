// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package machinecontrollermanager gives machine-controller-manager the permissions that the machine driver beside it
// needs in the seed. Gardener knows drivers that talk to a cloud; ours makes Pods and Services. Both containers share one
// ServiceAccount, so its Role is what has to grow.
package machinecontrollermanager

import (
	"context"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

const (
	// Name is the name of the webhook, the path below which it is served, and the name of the controller.
	Name = "machinecontrollermanager"
	// RoleName is the name of machine-controller-manager's Role in the namespace of a shoot.
	RoleName = "machine-controller-manager"

	timeoutSeconds = 5
)

// New returns the webhook. It gets the Roles in the namespaces of this provider's shoots. While it cannot be reached, Roles
// are written without the driver's permissions; the controller of AddToManager adds them then.
func New(mgr manager.Manager) (*extensionswebhook.Webhook, error) {
	webhook, err := extensionswebhook.New(mgr, extensionswebhook.Args{
		Name:              Name,
		Path:              Name,
		Target:            extensionswebhook.TargetSeed,
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1beta1constants.LabelShootProvider: localv1alpha1.Type}},
		Mutators:          map[extensionswebhook.Mutator][]extensionswebhook.Type{mutator{}: {{Obj: &rbacv1.Role{}}}},
	})
	if err != nil {
		return nil, err
	}
	webhook.FailurePolicy = new(admissionregistrationv1.Ignore)
	webhook.TimeoutSeconds = new(int32(timeoutSeconds))
	return webhook, nil
}

type mutator struct{}

// Mutate implements extensionswebhook.Mutator.
func (mutator) Mutate(_ context.Context, obj, _ client.Object) error {
	if lacksRules(obj) {
		role := obj.(*rbacv1.Role)
		role.Rules = withRules(role.Rules)
	}
	return nil
}

// CacheOptions returns how a manager has to cache Roles: those of machine-controller-manager alone. There is one for each
// shoot of the seed.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&rbacv1.Role{}: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, RoleName)},
	}
}

// AddToManager adds a controller that adds the driver's rules to a Role that lacks them: gardenlet takes them out whenever it
// writes the Role, and a webhook that cannot be reached does not put them back. The manager must cache Roles by CacheOptions.
//
// Needed permissions: get on Namespaces; list, watch and patch on Roles named RoleName, and escalate, as the API server looks
// at the rules of a Role that is patched as if the caller had written all of them.
func AddToManager(mgr manager.Manager, opts controller.Options) error {
	return builder.ControllerManagedBy(mgr).
		Named(Name).
		For(&rbacv1.Role{}, builder.WithPredicates(predicate.NewPredicateFuncs(lacksRules))).
		WithOptions(opts).
		Complete(&mender{client: mgr.GetClient(), reader: mgr.GetAPIReader()})
}

// mender adds the driver's rules to Roles.
type mender struct {
	client client.Client
	// reader asks the API server: this is needed too seldom to keep Namespaces in memory for it.
	reader client.Reader
}

// Reconcile implements reconcile.Reconciler.
func (m *mender) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	role := &rbacv1.Role{}
	if err := m.client.Get(ctx, request.NamespacedName, role); err != nil || !lacksRules(role) {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	namespace := &corev1.Namespace{}
	if err := m.reader.Get(ctx, client.ObjectKey{Name: role.Namespace}, namespace); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if namespace.DeletionTimestamp != nil || namespace.Labels[v1beta1constants.LabelShootProvider] != localv1alpha1.Type {
		return reconcile.Result{}, nil
	}

	patch := client.MergeFromWithOptions(role.DeepCopy(), client.MergeFromWithOptimisticLock{})
	role.Rules = withRules(role.Rules)
	err := m.client.Patch(ctx, role, patch)
	if err == nil || apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return reconcile.Result{}, nil // The watch tells of the version that is there now.
	}
	return reconcile.Result{}, fmt.Errorf("adding the rules of the machine driver to Role %s: %w", request, err)
}

// lacksRules reports whether an object is a Role to which rules of the driver have to be added, if it is in the namespace of a
// shoot of this provider.
func lacksRules(obj client.Object) bool {
	role, ok := obj.(*rbacv1.Role)
	return ok && role.Name == RoleName && role.DeletionTimestamp == nil && len(withRules(role.Rules)) > len(role.Rules)
}

// driverRules are what the machine driver needs in the namespace of a shoot besides what Gardener's own rules give it, which
// is to write Secrets and to watch Machines: it makes, watches and deletes the Pod of a machine, and makes and deletes the
// headless Service by which it is found. See package driver in pkg/machine.
func driverRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{corev1.GroupName}, Resources: []string{"pods"}, Verbs: []string{"create", "delete", "get", "list", "watch"}},
		{APIGroups: []string{corev1.GroupName}, Resources: []string{"services"}, Verbs: []string{"create", "delete", "get"}},
	}
}

// withRules returns the rules and those of the driver that are missing in them. The rules themselves and their order stay as they
// are, so that doing it twice is the same as doing it once.
func withRules(rules []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	all := slices.Clip(rules)
	for _, wanted := range driverRules() {
		if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return apiequality.Semantic.DeepEqual(r, wanted) }) {
			all = append(all, wanted)
		}
	}
	return all
}
