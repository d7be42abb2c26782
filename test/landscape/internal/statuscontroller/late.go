// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package statuscontroller

import (
	"context"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// object names an object of any kind.
type object struct {
	kind schema.GroupVersionKind
	key  client.ObjectKey
}

// late has a controller watch kinds whose CRDs come with Garden and seed: it watches the CRDs, and each kind as soon as it
// is there.
type late struct {
	// kinds maps the names of the CRDs to their kinds.
	kinds map[string]schema.GroupVersionKind
	start func(source.TypedSource[object]) error
	mgr   manager.Manager

	mu      sync.Mutex
	watched map[schema.GroupVersionKind]bool
}

// addLate builds the controller of these kinds, which has one queue for all of them.
func addLate(mgr manager.Manager, name string, kinds map[string]schema.GroupVersionKind, reconciler reconcile.TypedReconciler[object]) (controller.TypedController[object], error) {
	objects, err := controller.NewTyped(name, mgr, controller.TypedOptions[object]{Reconciler: reconciler})
	if err != nil {
		return nil, fmt.Errorf("adding the controller %s: %w", name, err)
	}
	l := &late{kinds: kinds, start: objects.Watch, mgr: mgr, watched: map[schema.GroupVersionKind]bool{}}
	ofInterest := predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, found := kinds[o.GetName()]
		return found
	})
	err = builder.ControllerManagedBy(mgr).Named(name+"-crds").For(&apiextensionsv1.CustomResourceDefinition{}, builder.WithPredicates(ofInterest)).
		Complete(reconcile.AsReconciler(mgr.GetClient(), objectFunc[*apiextensionsv1.CustomResourceDefinition](l.watch)))
	if err != nil {
		return nil, fmt.Errorf("adding the controller %s-crds: %w", name, err)
	}
	return objects, nil
}

func (l *late) watch(_ context.Context, crd *apiextensionsv1.CustomResourceDefinition) (ctrl.Result, error) {
	established := false
	for _, condition := range crd.Status.Conditions {
		established = established || condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue
	}
	kind := l.kinds[crd.Name]
	l.mu.Lock()
	defer l.mu.Unlock()
	if !established || l.watched[kind] {
		return ctrl.Result{}, nil
	}
	example := &unstructured.Unstructured{}
	example.SetGroupVersionKind(kind)
	enqueue := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, u *unstructured.Unstructured) []object {
		return []object{{kind: kind, key: client.ObjectKeyFromObject(u)}}
	})
	if err := l.start(source.TypedKind(l.mgr.GetCache(), example, enqueue)); err != nil {
		return ctrl.Result{}, fmt.Errorf("watching %s: %w", crd.Name, err)
	}
	l.watched[kind] = true
	return ctrl.Result{}, nil
}
