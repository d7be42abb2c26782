// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package statuscontroller

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// late adds the controllers of kinds whose CRDs come with Garden and seed, each once its CRD is there.
type late struct {
	// add adds a controller, by the name of the CRD.
	add   map[string]func() error
	added map[string]bool
}

func addLate(mgr manager.Manager, opts Options) error {
	l := &late{added: map[string]bool{}, add: lateKinds(mgr, opts)}
	ofInterest := predicate.NewPredicateFuncs(func(crd client.Object) bool { return l.add[crd.GetName()] != nil })
	return builder.ControllerManagedBy(mgr).Named("late").For(&apiextensionsv1.CustomResourceDefinition{}, builder.WithPredicates(ofInterest)).
		Complete(reconcile.AsReconciler(mgr.GetClient(), objectFunc[*apiextensionsv1.CustomResourceDefinition](l.reconcile)))
}

func lateKinds(mgr manager.Manager, opts Options) map[string]func() error {
	answer := func(group, version, kind string, set func(*unstructured.Unstructured) error) func() error {
		return func() error {
			o := &operator{client: mgr.GetClient(), kind: schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, set: set}
			return builder.ControllerManagedBy(mgr).For(objectOf(o.kind)).Complete(o)
		}
	}
	kinds := map[string]func() error{
		"clusters.extensions.gardener.cloud":       func() error { return addShoots(mgr, opts) },
		"opentelemetrycollectors.opentelemetry.io": answer("opentelemetry.io", "v1beta1", "OpenTelemetryCollector", setScale),
	}
	if !opts.Observability {
		kinds["prometheuses.monitoring.coreos.com"] = answer("monitoring.coreos.com", "v1", "Prometheus", setAvailable)
		kinds["alertmanagers.monitoring.coreos.com"] = answer("monitoring.coreos.com", "v1", "Alertmanager", setAvailable)
	}
	return kinds
}

func (l *late) reconcile(_ context.Context, crd *apiextensionsv1.CustomResourceDefinition) (ctrl.Result, error) {
	if l.added[crd.Name] || !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) {
		return ctrl.Result{}, nil
	}
	if err := l.add[crd.Name](); err != nil {
		return ctrl.Result{}, fmt.Errorf("adding the controller of %s: %w", crd.Name, err)
	}
	l.added[crd.Name] = true
	return ctrl.Result{}, nil
}

// operator writes the status of objects of a kind as their operator would.
type operator struct {
	client client.Client
	kind   schema.GroupVersionKind
	// set changes the status, unless it is as it should be.
	set func(*unstructured.Unstructured) error
}

func objectOf(kind schema.GroupVersionKind) *unstructured.Unstructured {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kind)
	return u
}

// Reconcile writes the status for the present generation.
func (o *operator) Reconcile(ctx context.Context, request reconcile.Request) (ctrl.Result, error) {
	u := objectOf(o.kind)
	if err := o.client.Get(ctx, request.NamespacedName, u); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if u.GetDeletionTimestamp() != nil {
		return ctrl.Result{}, nil
	}
	before := u.DeepCopy()
	if err := o.set(u); err != nil {
		return ctrl.Result{}, fmt.Errorf("writing the status of %s %s: %w", o.kind.Kind, request, err)
	}
	if apiequality.Semantic.DeepEqual(before, u) {
		return ctrl.Result{}, nil
	}
	if err := o.client.Status().Patch(ctx, u, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("writing the status of %s %s: %w", o.kind.Kind, request, err)
	}
	return ctrl.Result{}, nil
}

// setScale sets a selector of pods, of which there are none: VerticalPodAutoscaler reports an error without it.
func setScale(u *unstructured.Unstructured) error {
	return unstructured.SetNestedField(u.Object, "app.kubernetes.io/component=opentelemetry-collector", "status", "scale", "selector")
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

// setAvailable reports a monitoring object as available.
func setAvailable(u *unstructured.Unstructured) error {
	if upToDate(u) {
		return nil
	}
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
			"type": kind, "status": "True", "observedGeneration": u.GetGeneration(), "lastTransitionTime": metav1.Now().UTC().Format("2006-01-02T15:04:05Z"),
		})
	}
	return unstructured.SetNestedMap(u.Object, map[string]any{
		"paused": false, "replicas": replicas, "availableReplicas": replicas, "updatedReplicas": replicas, "unavailableReplicas": int64(0),
		"conditions": conditions, "selector": "app.kubernetes.io/managed-by=prometheus-operator",
	}, "status")
}

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
	opts   Options
}

func addShoots(mgr manager.Manager, opts Options) error {
	// The Cluster comes first, its namespace later.
	return builder.ControllerManagedBy(mgr).Named("shoots").For(objectOf(clusterKind()), builder.OnlyMetadata).
		Watches(&corev1.Namespace{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.NewPredicateFuncs(isShoot))).
		Complete(&shoots{client: mgr.GetClient(), opts: opts})
}

func isShoot(namespace client.Object) bool {
	return namespace.GetLabels()["gardener.cloud/role"] == "shoot"
}

// Reconcile applies the ManagedResource of a shoot that is not on its way out of this seed.
func (s *shoots) Reconcile(ctx context.Context, request reconcile.Request) (ctrl.Result, error) {
	namespace := &corev1.Namespace{}
	if err := s.client.Get(ctx, request.NamespacedName, namespace); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if namespace.DeletionTimestamp != nil || !isShoot(namespace) {
		return ctrl.Result{}, nil
	}
	// Not from a cache, so that a shoot's deletion is not missed.
	cluster := objectOf(clusterKind())
	if err := s.client.Get(ctx, request.NamespacedName, cluster); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !stays(cluster) {
		return ctrl.Result{}, nil
	}
	if err := s.apply(ctx, namespace.Name, manifestFor(cluster, s.opts)); err != nil {
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
	return slices.Contains([]string{"Create", "Reconcile", "Restore"}, shoot("status", "lastOperation", "type"))
}

// manifestFor is the manifest of a shoot, with the version of the policies' API that it serves. See versions.yaml among the files of
// package cluster. Seeds are shoots with machines in the garden's namespace.
func manifestFor(cluster *unstructured.Unstructured, opts Options) []byte {
	manifest := opts.ShootManifest
	namespace, _, _ := unstructured.NestedString(cluster.Object, "spec", "shoot", "metadata", "namespace")
	workers, _, _ := unstructured.NestedSlice(cluster.Object, "spec", "shoot", "spec", "provider", "workers")
	if namespace == "garden" && len(workers) > 0 {
		manifest = slices.Concat(manifest, opts.SeedManifest)
	}
	kubernetes, _, _ := unstructured.NestedString(cluster.Object, "spec", "shoot", "spec", "kubernetes", "version")
	const newest = "admissionregistration.k8s.io/v1\n"
	for minor, version := range map[string]string{"1.33.": "v1alpha1", "1.34.": "v1beta1", "1.35.": "v1beta1"} {
		if strings.HasPrefix(kubernetes, minor) {
			return bytes.ReplaceAll(manifest, []byte(newest), []byte(strings.Replace(newest, "v1", version, 1)))
		}
	}
	return manifest
}

func (s *shoots) apply(ctx context.Context, namespace string, manifest []byte) error {
	secret := applycorev1.Secret(shootSecret, namespace).WithType(corev1.SecretTypeOpaque).WithData(map[string][]byte{"policies.yaml": manifest})
	if err := s.client.Apply(ctx, secret, fieldOwner, client.ForceOwnership); err != nil {
		return err
	}
	managedResource := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "resources.gardener.cloud/v1alpha1",
		"kind":       "ManagedResource",
		"metadata": map[string]any{
			"name": shootResource, "namespace": namespace, "labels": map[string]any{"origin": "gardener"},
		},
		// Without the label, gardenlet would delete the objects of a shoot that is deleted, which come back, for five minutes.
		"spec": map[string]any{"secretRefs": []any{map[string]any{"name": shootSecret}}, "injectLabels": map[string]any{"shoot.gardener.cloud/no-cleanup": "true"}},
	}}
	return s.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(managedResource), fieldOwner, client.ForceOwnership)
}
