// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package statuscontroller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// volumes makes a folder on the node for every claim of its StorageClasses, and removes it once the claim is gone.
type volumes struct {
	client client.Client
	opts   Options
}

// provisionedBy is the annotation by which Kubernetes' own volume controller tells who made a volume.
const provisionedBy = "pv.kubernetes.io/provisioned-by"

func addVolumes(mgr manager.Manager, opts Options) error {
	v := &volumes{client: mgr.GetClient(), opts: opts}
	if err := builder.ControllerManagedBy(mgr).Named("volume-claims").For(&corev1.PersistentVolumeClaim{}).
		Complete(reconcile.AsReconciler(v.client, objectFunc[*corev1.PersistentVolumeClaim](v.provision))); err != nil {
		return fmt.Errorf("adding the controller of volume claims: %w", err)
	}
	if err := builder.ControllerManagedBy(mgr).Named("volumes").For(&corev1.PersistentVolume{}).
		Complete(reconcile.AsReconciler(v.client, objectFunc[*corev1.PersistentVolume](v.reclaim))); err != nil {
		return fmt.Errorf("adding the controller of volumes: %w", err)
	}
	return nil
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
	if class.Provisioner != v.opts.Provisioner {
		return ctrl.Result{}, nil
	}
	folder := filepath.Join(v.opts.Volumes, claim.Namespace+"_"+claim.Name+"_"+string(claim.UID))
	if err := makeFolder(folder); err != nil {
		return ctrl.Result{}, fmt.Errorf("making the volume of claim %s: %w", client.ObjectKeyFromObject(claim), err)
	}
	kind := corev1.HostPathDirectory
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
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: folder, Type: &kind}},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
		},
	}
	if err := v.client.Create(ctx, volume); err != nil && !apierrors.IsAlreadyExists(err) {
		return ctrl.Result{}, fmt.Errorf("making the volume of claim %s: %w", client.ObjectKeyFromObject(claim), err)
	}
	return ctrl.Result{}, nil
}

// makeFolder makes a folder that a Pod of any user may write to: the kubelet applies no fsGroup to folders of the node.
func makeFolder(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil { // #nosec G301 -- opened further below.
		return err
	}
	return os.Chmod(path, 0o777) // #nosec G302 -- see above; its parent belongs to root.
}

// reclaim removes a released volume with its folder.
func (v *volumes) reclaim(ctx context.Context, volume *corev1.PersistentVolume) (ctrl.Result, error) {
	if volume.Status.Phase != corev1.VolumeReleased || volume.Annotations[provisionedBy] != v.opts.Provisioner || volume.DeletionTimestamp != nil {
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
	if volume.Spec.HostPath == nil {
		return errors.New("it has no folder")
	}
	root, err := os.OpenRoot(v.opts.Volumes)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, root.Close()) }()
	// Whatever the object says, only what lies directly below the root is removed.
	return root.RemoveAll(filepath.Base(volume.Spec.HostPath.Path))
}
