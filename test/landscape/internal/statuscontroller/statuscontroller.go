// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package statuscontroller writes what controllers would write that the landscape does without: root certificates of the mesh (no
// istiod), conditions of monitoring objects (no prometheus-operator), the scale of collectors (no opentelemetry-operator), and PersistentVolumes (no CSI driver). It also brings the
// policies for stand-ins into shoots. It runs as a process beside the cluster, with a user of its own that may do just this.
package statuscontroller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
)

// Options configure the controller.
type Options struct {
	// Volumes is the folder below which volumes are made.
	Volumes string
	// Node is the one this runs on, where a cluster has several: volumes are made for claims of Pods on it. Empty for all claims.
	Node string
	// Provisioner is the name under which StorageClasses ask for them.
	Provisioner string
	// Observability tells that there is a prometheus-operator.
	Observability bool
	// ShootManifest are the objects, as YAML, that each shoot is given.
	ShootManifest []byte
	// SeedManifest are those that a shoot is given besides which is to be a seed.
	SeedManifest []byte
	// Health is the address of the health endpoint; empty for none.
	Health string
	// ManagedSeed says that the cluster is a shoot, and a seed. It has volumes of its own.
	ManagedSeed bool
}

// Run runs the controllers until ctx ends.
func Run(ctx context.Context, config *rest.Config, opts Options) error {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		return fmt.Errorf("building the scheme: %w", err)
	}
	mgr, err := manager.New(config, manager.Options{
		Scheme: scheme,
		// The priority queue of controller-runtime before 0.25 may never end when it is shut.
		Controller:             controllerconfig.Controller{UsePriorityQueue: new(false)},
		Metrics:                metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress: opts.Health,
		Cache:                  cache.Options{DefaultTransform: cache.TransformStripManagedFields()},
	})
	if err != nil {
		return fmt.Errorf("building the manager: %w", err)
	}
	controllers := []func(manager.Manager, Options) error{addRootCertificates, addLate}
	if !opts.ManagedSeed {
		controllers = append(controllers, addVolumes)
	}
	for _, add := range controllers {
		if err := add(mgr, opts); err != nil {
			return fmt.Errorf("adding the controllers: %w", err)
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
	return builder.ControllerManagedBy(mgr).Named("root-certificates").For(&corev1.Namespace{}, builder.WithPredicates(gateways)).
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
}

// objectFunc lets a function be a reconciler that is handed the object.
type objectFunc[T client.Object] func(context.Context, T) (ctrl.Result, error)

// Reconcile calls the function.
func (f objectFunc[T]) Reconcile(ctx context.Context, o T) (ctrl.Result, error) { return f(ctx, o) }

// volumes makes a folder on the node for every claim of its StorageClasses, and removes it once the claim is gone.
type volumes struct {
	client client.Client
	opts   Options
}

// provisionedBy is the annotation by which Kubernetes' own volume controller tells who made a volume.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

// selectedNode is the annotation by which Kubernetes' scheduler tells for which node it wants a volume.
const selectedNode = "volume.kubernetes.io/selected-node"

func addVolumes(mgr manager.Manager, opts Options) error {
	v := &volumes{client: mgr.GetClient(), opts: opts}
	if err := builder.ControllerManagedBy(mgr).Named("volume-claims").For(&corev1.PersistentVolumeClaim{}).
		Complete(reconcile.AsReconciler(v.client, objectFunc[*corev1.PersistentVolumeClaim](v.provision))); err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).Named("volumes").For(&corev1.PersistentVolume{}).
		Complete(reconcile.AsReconciler(v.client, objectFunc[*corev1.PersistentVolume](v.reclaim)))
}

// provision makes the volume of an unbound claim; the volume names its claim, so that Kubernetes binds the two.
func (v *volumes) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) (ctrl.Result, error) {
	if claim.Spec.VolumeName != "" || claim.Spec.StorageClassName == nil || claim.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	class := &storagev1.StorageClass{}
	if err := v.client.Get(ctx, client.ObjectKey{Name: *claim.Spec.StorageClassName}, class); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if class.Provisioner != v.opts.Provisioner || claim.Annotations[selectedNode] != v.opts.Node {
		return ctrl.Result{}, nil
	}
	folder := filepath.Join(v.opts.Volumes, claim.Namespace+"_"+claim.Name+"_"+string(claim.UID))
	if err := makeFolder(folder); err != nil {
		return ctrl.Result{}, fmt.Errorf("making the volume of claim %s: %w", client.ObjectKeyFromObject(claim), err)
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "pvc-" + string(claim.UID),
			Annotations: map[string]string{provisionedBy: v.opts.Provisioner},
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			StorageClassName:              class.Name,
			VolumeMode:                    claim.Spec.VolumeMode,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder}},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}
	// A local volume, of which the kubelet has metrics, needs to say where it is.
	where := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists}
	if v.opts.Node != "" {
		volume.Annotations[selectedNode] = v.opts.Node
		where.Operator, where.Values = corev1.NodeSelectorOpIn, []string{v.opts.Node}
	}
	volume.Spec.NodeAffinity = &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchExpressions: []corev1.NodeSelectorRequirement{where},
	}}}}
	if err := v.client.Create(ctx, volume); err != nil && !apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, fmt.Errorf("making the volume of claim %s: %w", client.ObjectKeyFromObject(claim), err)
	}
	return ctrl.Result{}, nil
}

// makeFolder makes a folder that a Pod of any user may write to, also one without fsGroup.
func makeFolder(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil { // #nosec G301 -- opened further below.
		return err
	}
	return os.Chmod(path, 0o777) // #nosec G302 -- see above; only root passes its parent.
}

// reclaim removes a released volume with its folder.
func (v *volumes) reclaim(ctx context.Context, volume *corev1.PersistentVolume) (ctrl.Result, error) {
	if volume.Status.Phase != corev1.VolumeReleased || volume.Annotations[provisionedBy] != v.opts.Provisioner ||
		volume.Annotations[selectedNode] != v.opts.Node || volume.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	if err := v.removeFolder(volume); err != nil {
		return ctrl.Result{}, fmt.Errorf("removing volume %s: %w", volume.Name, err)
	}
	if err := v.client.Delete(ctx, volume); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("removing volume %s: %w", volume.Name, err)
	}
	return ctrl.Result{}, nil
}

func (v *volumes) removeFolder(volume *corev1.PersistentVolume) (err error) {
	if volume.Spec.Local == nil {
		return errors.New("it has no folder")
	}
	root, err := os.OpenRoot(v.opts.Volumes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	// Whatever the object says, only what lies directly below the root is removed.
	return root.RemoveAll(filepath.Base(volume.Spec.Local.Path))
}
