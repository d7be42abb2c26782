// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package statuscontroller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	// shootResource is the name of the ManagedResource in the namespace of each shoot, and shootSecret that of its content.
	shootResource = "landscape-shoot"
	shootSecret   = "managedresource-" + shootResource
	fieldOwner    = client.FieldOwner("landscape-status-controller")
)

func clusterKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: "Cluster"}
}

// shoots brings the policies that make room for stand-ins into each shoot, as a ManagedResource. It is there before the
// shoot's gardener-resource-manager is, which therefore applies it among the first objects; nothing makes Pods until
// gardenlet deploys kube-controller-manager, for which it waits until gardener-resource-manager is ready.
//
// By its label the ManagedResource takes part in what gardenlet does with its own: it deletes them once a shoot's machines
// are gone, and lets their objects stay when a control plane migrates. All there is to do here is not to bring it back.
type shoots struct {
	client client.Client
	// manifest are the objects for the shoot, as YAML.
	manifest []byte
}

func addShoots(mgr manager.Manager, opts Options) error {
	s := &shoots{client: mgr.GetClient(), manifest: opts.ShootManifest}
	clusters, err := addLate(mgr, "shoots", map[string]schema.GroupVersionKind{"clusters.extensions.gardener.cloud": clusterKind()}, s)
	if err != nil {
		return err
	}
	// The Cluster comes first, its namespace later.
	namespaces := handler.TypedEnqueueRequestsFromMapFunc(func(_ context.Context, namespace *corev1.Namespace) []object {
		if namespace.Labels["gardener.cloud/role"] != "shoot" {
			return nil
		}
		return []object{{kind: clusterKind(), key: client.ObjectKey{Name: namespace.Name}}}
	})
	if err := clusters.Watch(source.TypedKind(mgr.GetCache(), &corev1.Namespace{}, namespaces)); err != nil {
		return fmt.Errorf("watching the namespaces of shoots: %w", err)
	}
	return nil
}

// Reconcile applies the ManagedResource of a shoot that is not on its way out of this seed.
func (s *shoots) Reconcile(ctx context.Context, o object) (ctrl.Result, error) {
	namespace := &corev1.Namespace{}
	if err := s.client.Get(ctx, o.key, namespace); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if namespace.DeletionTimestamp != nil || namespace.Labels["gardener.cloud/role"] != "shoot" {
		return ctrl.Result{}, nil
	}
	// Not from a cache, so that a shoot's deletion is not missed.
	cluster := &unstructured.Unstructured{}
	cluster.SetGroupVersionKind(clusterKind())
	if err := s.client.Get(ctx, o.key, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !stays(cluster) {
		return ctrl.Result{}, nil
	}
	if err := s.apply(ctx, namespace.Name); err != nil {
		return ctrl.Result{}, fmt.Errorf("bringing the policies into shoot %s: %w", namespace.Name, err)
	}
	return ctrl.Result{}, nil
}

// stays reports whether gardenlet creates or reconciles the shoot of a Cluster. It writes the operation into the Cluster
// before each; Clusters that others made for tests have none.
func stays(cluster *unstructured.Unstructured) bool {
	shoot := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(cluster.Object, append([]string{"spec", "shoot"}, fields...)...)
		return value
	}
	if cluster.GetDeletionTimestamp() != nil || shoot("metadata", "deletionTimestamp") != "" {
		return false
	}
	switch shoot("status", "lastOperation", "type") {
	case "Create", "Reconcile", "Restore":
		return true
	default:
		return false
	}
}

func (s *shoots) apply(ctx context.Context, namespace string) error {
	secret := applycorev1.Secret(shootSecret, namespace).WithType(corev1.SecretTypeOpaque).WithData(map[string][]byte{"policies.yaml": s.manifest})
	if err := s.client.Apply(ctx, secret, fieldOwner, client.ForceOwnership); err != nil {
		return err
	}
	managedResource := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "resources.gardener.cloud/v1alpha1",
		"kind":       "ManagedResource",
		"metadata": map[string]any{
			"name": shootResource, "namespace": namespace, "labels": map[string]any{"origin": "gardener"},
		},
		"spec": map[string]any{"secretRefs": []any{map[string]any{"name": shootSecret}}},
	}}
	return s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(managedResource), fieldOwner, client.ForceOwnership)
}
