// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package statuscontroller

import (
	"context"
	"fmt"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

const monitoringGroup = "monitoring.coreos.com"

// kinds maps the CRDs of interest to their kinds.
func kinds() map[string]schema.GroupVersionKind {
	version := schema.GroupVersion{Group: monitoringGroup, Version: "v1"}
	return map[string]schema.GroupVersionKind{
		"prometheuses." + monitoringGroup:  version.WithKind("Prometheus"),
		"alertmanagers." + monitoringGroup: version.WithKind("Alertmanager"),
	}
}

// monitoring reports monitoring objects as available. Their CRDs come with the Garden, so that it watches the CRDs first,
// and each kind as soon as it is there.
type monitoring struct {
	client client.Client

	mu      sync.Mutex
	watched map[schema.GroupVersionKind]bool
}

func addMonitoring(mgr manager.Manager, _ Options) error {
	m := &monitoring{client: mgr.GetClient(), watched: map[schema.GroupVersionKind]bool{}}
	objects, err := controller.NewTyped("monitoring", mgr, controller.TypedOptions[object]{Reconciler: m})
	if err != nil {
		return fmt.Errorf("adding the controller of monitoring objects: %w", err)
	}
	ofInterest := predicate.NewPredicateFuncs(func(o client.Object) bool {
		_, found := kinds()[o.GetName()]
		return found
	})
	err = builder.ControllerManagedBy(mgr).Named("monitoring-crds").For(&apiextensionsv1.CustomResourceDefinition{}, builder.WithPredicates(ofInterest)).
		Complete(reconcile.AsReconciler(mgr.GetClient(), objectFunc[*apiextensionsv1.CustomResourceDefinition](
			func(_ context.Context, crd *apiextensionsv1.CustomResourceDefinition) (ctrl.Result, error) {
				return ctrl.Result{}, m.watch(mgr, objects, crd)
			})))
	if err != nil {
		return fmt.Errorf("adding the controller of monitoring CRDs: %w", err)
	}
	return nil
}

// object names a monitoring object; one queue serves both kinds.
type object struct {
	kind schema.GroupVersionKind
	key  client.ObjectKey
}

func (m *monitoring) watch(mgr manager.Manager, objects controller.TypedController[object], crd *apiextensionsv1.CustomResourceDefinition) error {
	established := false
	for _, condition := range crd.Status.Conditions {
		established = established || condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue
	}
	kind := kinds()[crd.Name]
	m.mu.Lock()
	defer m.mu.Unlock()
	if !established || m.watched[kind] {
		return nil
	}
	example := &unstructured.Unstructured{}
	example.SetGroupVersionKind(kind)
	enqueue := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, u *unstructured.Unstructured) []object {
		return []object{{kind: kind, key: client.ObjectKeyFromObject(u)}}
	})
	if err := objects.Watch(source.TypedKind(mgr.GetCache(), example, enqueue)); err != nil {
		return fmt.Errorf("watching %s: %w", crd.Name, err)
	}
	m.watched[kind] = true
	return nil
}

// Reconcile writes the conditions for the present generation.
func (m *monitoring) Reconcile(ctx context.Context, o object) (ctrl.Result, error) {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(o.kind)
	if err := m.client.Get(ctx, o.key, u); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if u.GetDeletionTimestamp() != nil || upToDate(u) {
		return ctrl.Result{}, nil
	}
	patch := client.MergeFrom(u.DeepCopy())
	if err := setAvailable(u, metav1.Now()); err != nil {
		return ctrl.Result{}, fmt.Errorf("reporting %s %s as available: %w", o.kind.Kind, o.key, err)
	}
	if err := m.client.Status().Patch(ctx, u, patch); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("reporting %s %s as available: %w", o.kind.Kind, o.key, err)
	}
	return ctrl.Result{}, nil
}

func upToDate(u *unstructured.Unstructured) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, entry := range conditions {
		condition, _ := entry.(map[string]any)
		if condition["status"] != "True" || condition["observedGeneration"] != u.GetGeneration() {
			return false
		}
	}
	return len(conditions) > 0
}

func setAvailable(u *unstructured.Unstructured, now metav1.Time) error {
	replicas, found, err := unstructured.NestedInt64(u.Object, "spec", "replicas")
	if err != nil {
		return err
	}
	if !found {
		replicas = 1
	}
	var conditions []any
	for _, kind := range []string{"Available", "Reconciled"} {
		conditions = append(conditions, map[string]any{
			"type": kind, "status": "True", "observedGeneration": u.GetGeneration(), "lastTransitionTime": now.UTC().Format("2006-01-02T15:04:05Z"),
		})
	}
	return unstructured.SetNestedMap(u.Object, map[string]any{
		"paused": false, "replicas": replicas, "availableReplicas": replicas, "updatedReplicas": replicas, "unavailableReplicas": int64(0),
		"conditions": conditions,
	}, "status")
}
