// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package statuscontroller writes what controllers would write that the landscape does without: load balancer addresses (no
// cloud, unless there is a seed with the extension), root certificates of the mesh (no istiod), conditions of monitoring
// objects (no prometheus-operator), and PersistentVolumes (no CSI driver). It also brings the policies for stand-ins into
// shoots. It runs as a process beside the cluster, with a user of its own that may do just this.
package statuscontroller

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

// Options configure the controller.
type Options struct {
	// Volumes is the folder below which volumes are made.
	Volumes string
	// Provisioner is the name under which StorageClasses ask for them.
	Provisioner string
	// ShootManifest are the objects, as YAML, that each shoot is given.
	ShootManifest []byte
	// Health is the address of the health endpoint; empty for none.
	Health string
	// ManagedSeed says that the cluster is a shoot, and a seed. It has load balancers and volumes of its own.
	ManagedSeed bool
	// Network is where the landscape's addresses are from.
	Network layout.Network
}

// Run runs the controllers until ctx ends.
func Run(ctx context.Context, config *rest.Config, opts Options) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("building the scheme: %w", err)
		}
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme: scheme,
		// The priority queue of controller-runtime before 0.25 may never end when it is shut.
		Controller:             controllerconfig.Controller{UsePriorityQueue: new(false)},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: opts.Health,
		// The root certificates' ConfigMaps are the only ones of interest, and their content never changes.
		Client: client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.ConfigMap{}}}},
		Cache: cache.Options{
			DefaultTransform: cache.TransformStripManagedFields(),
			ByObject:         map[client.Object]cache.ByObject{&appsv1.Deployment{}: {Field: fields.OneTermEqualSelector("metadata.name", seedInstance)}},
		},
	})
	if err != nil {
		return fmt.Errorf("building the manager: %w", err)
	}
	controllers := []func(manager.Manager, Options) error{addRootCertificates, addMonitoring, addShoots}
	if !opts.ManagedSeed {
		controllers = append(controllers, addLoadBalancers, addVolumes)
	}
	for _, add := range controllers {
		if err := add(mgr, opts); err != nil {
			return err
		}
	}
	if err := mgr.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("adding the health check: %w", err)
	}
	return mgr.Start(ctx)
}

// rootCertificate is the name of the ConfigMap which istiod puts into each namespace of its mesh.
const rootCertificate = "istio-ca-root-cert"

// addRootCertificates makes the ConfigMap without which an ingress gateway's Pod doesn't start.
func addRootCertificates(mgr manager.Manager, _ Options) error {
	c := mgr.GetClient()
	// Gardener sets this label for the gateways of garden, seed, zones and exposure classes alike.
	gateways := predicate.NewPredicateFuncs(func(object client.Object) bool { return object.GetLabels()["istio-operator-managed"] != "" })
	err := builder.ControllerManagedBy(mgr).Named("root-certificates").For(&corev1.Namespace{}, builder.WithPredicates(gateways)).
		Complete(reconcile.AsReconciler(c, objectFunc[*corev1.Namespace](func(ctx context.Context, namespace *corev1.Namespace) (ctrl.Result, error) {
			if namespace.DeletionTimestamp != nil {
				return ctrl.Result{}, nil
			}
			err := c.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Name: rootCertificate, Namespace: namespace.Name},
				Data:       map[string]string{"root-cert.pem": "there is no mesh, so that nothing reads this\n"},
			})
			if err != nil && !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
				return ctrl.Result{}, fmt.Errorf("making ConfigMap %s/%s: %w", namespace.Name, rootCertificate, err)
			}
			return ctrl.Result{}, nil
		})))
	if err != nil {
		return fmt.Errorf("adding the controller of root certificates: %w", err)
	}
	return nil
}

// objectFunc lets a function be a reconciler that is handed the object.
type objectFunc[T client.Object] func(context.Context, T) (ctrl.Result, error)

// Reconcile calls the function.
func (f objectFunc[T]) Reconcile(ctx context.Context, o T) (ctrl.Result, error) { return f(ctx, o) }
