// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machinecontrollermanager

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
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

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

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
	if err := m.client.Get(ctx, request.NamespacedName, role); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if !lacksRules(role) {
		return reconcile.Result{}, nil
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := m.reader.Get(ctx, client.ObjectKey{Name: role.Namespace}, namespace); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if namespace.DeletionTimestamp != nil || namespace.Labels[v1beta1constants.LabelShootProvider] != localv1alpha1.Type {
		return reconcile.Result{}, nil
	}

	patch := client.MergeFromWithOptions(role.DeepCopy(), client.MergeFromWithOptimisticLock{})
	role.Rules = withRules(role.Rules, driverRules())
	switch err := m.client.Patch(ctx, role, patch); {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		// The watch tells of the version that is there now.
		return reconcile.Result{}, nil
	case err != nil:
		return reconcile.Result{}, fmt.Errorf("adding the rules of the machine driver to Role %s: %w", request, err)
	}
	return reconcile.Result{}, nil
}

// lacksRules reports whether an object is a Role to which rules of the driver have to be added, if it is in the namespace of a
// shoot of this provider.
func lacksRules(obj client.Object) bool {
	role, ok := obj.(*rbacv1.Role)
	return ok && role.Name == RoleName && role.DeletionTimestamp == nil && len(withRules(role.Rules, driverRules())) > len(role.Rules)
}
