// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

const (
	resourceManagerFinalizer = "resources.gardener.cloud/test"
	resourceManagerOwner     = client.FieldOwner("test-resource-manager")
)

// RunResourceManager does, until ctx ends, what gardener-resource-manager does with ManagedResources of class seed as far
// as the suites need it: it applies what is in their secrets and deletes it when they go. It is no stand-in for the
// product, which meets the real one in test/e2e.
func (e *Environment) RunResourceManager(ctx context.Context) error {
	mgr, err := manager.New(e.Config, manager.Options{
		Scheme:  e.scheme,
		Metrics: metricsserver.Options{BindAddress: "0"},
		Client:  client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	if err != nil {
		return err
	}

	if err := ctrl.NewControllerManagedBy(mgr).
		Named("test-resource-manager").
		For(&resourcesv1alpha1.ManagedResource{}).
		WithOptions(controller.Options{SkipNameValidation: ptr.To(true)}).
		Complete(&resourceManager{Client: mgr.GetClient()}); err != nil {
		return err
	}
	return mgr.Start(ctx)
}

type resourceManager struct {
	client.Client
}

// Reconcile applies or deletes the objects of one ManagedResource.
func (r *resourceManager) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	mr := &resourcesv1alpha1.ManagedResource{}
	if err := r.Get(ctx, request.NamespacedName, mr); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if ptr.Deref(mr.Spec.Class, "") != "seed" {
		return reconcile.Result{}, nil
	}

	objects, err := r.objects(ctx, mr)
	if err != nil {
		return reconcile.Result{}, err
	}

	if mr.DeletionTimestamp != nil {
		for _, obj := range objects {
			if err := client.IgnoreNotFound(r.Delete(ctx, obj)); err != nil {
				return reconcile.Result{}, err
			}
		}
		if controllerutil.RemoveFinalizer(mr, resourceManagerFinalizer) {
			return reconcile.Result{}, client.IgnoreNotFound(r.Update(ctx, mr))
		}
		return reconcile.Result{}, nil
	}

	if controllerutil.AddFinalizer(mr, resourceManagerFinalizer) {
		if err := r.Update(ctx, mr); err != nil {
			return reconcile.Result{}, err
		}
	}
	var missing bool
	for _, obj := range objects {
		//nolint:staticcheck // client.Apply takes any object, the typed Apply only apply configurations.
		if err := r.Patch(ctx, obj, client.Apply, resourceManagerOwner, client.ForceOwnership); apierrors.IsNotFound(err) {
			missing = true // its namespace is yet to come
		} else if meta.IsNoMatchError(err) {
			continue // a kind that this API server does not have, such as a VerticalPodAutoscaler
		} else if err != nil {
			return reconcile.Result{}, fmt.Errorf("applying %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
		}
	}
	if missing {
		return reconcile.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	return reconcile.Result{}, nil
}

func (r *resourceManager) objects(ctx context.Context, mr *resourcesv1alpha1.ManagedResource) ([]client.Object, error) {
	var all []client.Object
	for _, ref := range mr.Spec.SecretRefs {
		secret := &corev1.Secret{}
		if err := r.Get(ctx, client.ObjectKey{Namespace: mr.Namespace, Name: ref.Name}, secret); err != nil {
			if mr.DeletionTimestamp != nil && apierrors.IsNotFound(err) {
				continue
			}
			return nil, err
		}
		objects, err := resources.Objects(secret.Data)
		if err != nil {
			return nil, fmt.Errorf("reading secret %s of ManagedResource %s: %w", ref.Name, client.ObjectKeyFromObject(mr), err)
		}
		all = append(all, objects...)
	}
	return all, nil
}
