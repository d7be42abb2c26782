// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package statuscontroller

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
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

// monitoring reports monitoring objects as available.
type monitoring struct {
	client client.Client
}

func addMonitoring(mgr manager.Manager, _ Options) error {
	_, err := addLate(mgr, "monitoring", kinds(), &monitoring{client: mgr.GetClient()})
	return err
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
