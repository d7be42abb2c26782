// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package etcd holds the webhook that mounts the folder of a bucket into etcd-backup-restore (the seed document on
// provider-local, "ETCD Backups").
//
// etcd-druid does that itself: v0.38.1, which belongs to the Gardener that this extension is built against, mounts the
// folder in the StatefulSet of an Etcd and in the Jobs that compact and copy backups, by the hostPath in the Secret
// etcd-backup. What it has done is left alone. Without the mount etcd-backup-restore writes to a folder of that name in its
// own container without any complaint, and the backups are gone with the container; so here is who puts it in if another
// version of etcd-druid leaves it out.
package etcd

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
)

const (
	// Name is the name of the webhook.
	Name = "etcd"

	// labelManagedBy and managedByDruid are on everything that etcd-druid makes.
	labelManagedBy, managedByDruid = "app.kubernetes.io/managed-by", "etcd-druid"

	// maxContainers and maxVolumes are many times what a pod of etcd-druid has. Each container is looked at with each volume.
	maxContainers, maxVolumes = 50, 500

	timeoutSeconds int32 = 5
)

// Options are what the webhook needs.
type Options struct {
	// HostPath is the folder of all buckets on the nodes, an absolute path.
	HostPath string
}

// New returns the webhook. It is for namespaces of shoots whose backups are of this extension's type. As etcd-druid can do
// without it, it is ignored while it is down: an etcd must not wait for this extension.
func New(mgr manager.Manager, opts Options) (*extensionswebhook.Webhook, error) {
	if !path.IsAbs(opts.HostPath) {
		return nil, errors.New("the folder of all buckets on the nodes (backup.hostPath) must be an absolute path")
	}

	webhook, err := extensionswebhook.New(mgr, extensionswebhook.Args{
		Name:   Name,
		Path:   Name,
		Target: extensionswebhook.TargetSeed,
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
			v1beta1constants.GardenRole:          v1beta1constants.GardenRoleShoot,
			v1beta1constants.LabelBackupProvider: localv1alpha1.Type,
		}},
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{labelManagedBy: managedByDruid}},
		Mutators: map[extensionswebhook.Mutator][]extensionswebhook.Type{
			&mutator{hostPath: opts.HostPath}: {{Obj: &appsv1.StatefulSet{}}, {Obj: &batchv1.Job{}}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making webhook %s: %w", Name, err)
	}
	webhook.Webhook.Handler = limits.Quantities(webhook.Webhook.Handler, &appsv1.StatefulSet{}, &batchv1.Job{})
	webhook.FailurePolicy = new(admissionregistrationv1.Ignore)
	webhook.TimeoutSeconds = new(timeoutSeconds)
	return webhook, nil
}

type mutator struct {
	hostPath string
}

// Mutate implements extensionswebhook.Mutator. It never returns an error, which would refuse the object.
func (m *mutator) Mutate(ctx context.Context, newObj, oldObj client.Object) error {
	if newObj.GetDeletionTimestamp() != nil || newObj.GetLabels()[labelManagedBy] != managedByDruid {
		return nil
	}
	switch obj := newObj.(type) {
	case *appsv1.StatefulSet:
		m.mount(ctx, &obj.Spec.Template.Spec)
	case *batchv1.Job:
		// The template of a Job cannot be changed any more.
		if oldObj == nil {
			m.mount(ctx, &obj.Spec.Template.Spec)
		}
	}
	return nil
}

// stores are the object stores that a container of etcd-backup-restore may have: its own and, if it copies, the one to
// copy from. Each is told by a prefix of its flags and its environment variable.
func stores() []store {
	return []store{
		{volume: "provider-local-backup"},
		{volume: "provider-local-source-backup", flagPrefix: "source-", envPrefix: "SOURCE_"},
	}
}

type store struct {
	volume, flagPrefix, envPrefix string
}

func (m *mutator) mount(ctx context.Context, pod *corev1.PodSpec) {
	if len(pod.Containers) > maxContainers || len(pod.Volumes) > maxVolumes {
		logf.FromContext(ctx).Info("Not mounting buckets into a pod with that many containers or volumes", "containers", len(pod.Containers), "volumes", len(pod.Volumes))
		return
	}
	for i := range pod.Containers {
		container := &pod.Containers[i]
		for _, store := range stores() {
			bucket := store.bucket(container)
			if bucket == "" {
				continue
			}
			if err := backup.CheckBucketName(bucket); err != nil {
				logf.FromContext(ctx).Info("Not mounting a bucket", "container", container.Name, "reason", err.Error())
				continue
			}
			mountPath := path.Join(home(pod, container), bucket)
			if isMounted(container, mountPath) {
				continue
			}
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{
				Name:      volumeFor(pod, store.volume, path.Join(m.hostPath, bucket)),
				MountPath: mountPath,
			})
		}
	}
}

// bucket returns the name of the bucket if the store is of the provider that etcd-backup-restore and etcd-druid call
// Local, and else the empty string. It is in the flag store-container or in the variable STORAGE_CONTAINER.
func (s store) bucket(container *corev1.Container) string {
	if provider := flag(container, s.flagPrefix+"storage-provider"); !strings.EqualFold(provider, "Local") {
		return ""
	}
	if bucket := flag(container, s.flagPrefix+"store-container"); bucket != "" {
		return bucket
	}
	for _, env := range container.Env {
		if env.Name == s.envPrefix+"STORAGE_CONTAINER" {
			return env.Value
		}
	}
	return ""
}

func flag(container *corev1.Container, name string) string {
	for _, args := range [][]string{container.Command, container.Args} {
		for _, arg := range args {
			if value, ok := strings.CutPrefix(arg, "--"+name+"="); ok {
				return value
			}
		}
	}
	return ""
}

// home returns the folder below which etcd-backup-restore looks for a bucket: that of its user, which is root only where
// etcd-druid is asked to run it as such.
func home(pod *corev1.PodSpec, container *corev1.Container) string {
	var user *int64
	if pod.SecurityContext != nil {
		user = pod.SecurityContext.RunAsUser
	}
	if container.SecurityContext != nil && container.SecurityContext.RunAsUser != nil {
		user = container.SecurityContext.RunAsUser
	}
	if user != nil && *user == 0 {
		return "/root"
	}
	return "/home/nonroot"
}

// isMounted tells whether something is mounted there, or at a folder above.
func isMounted(container *corev1.Container, mountPath string) bool {
	for _, mount := range container.VolumeMounts {
		if mounted := path.Clean(mount.MountPath); mounted == mountPath || strings.HasPrefix(mountPath, strings.TrimSuffix(mounted, "/")+"/") {
			return true
		}
	}
	return false
}

// volumeFor returns the name of the pod's volume with that folder of the node. If there is none, it is the volume of the
// given name that gets it.
func volumeFor(pod *corev1.PodSpec, name, hostPath string) string {
	for _, volume := range pod.Volumes {
		if volume.HostPath != nil && path.Clean(volume.HostPath.Path) == hostPath {
			return volume.Name
		}
	}

	source := corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: hostPath, Type: new(corev1.HostPathDirectoryOrCreate)}}
	for i := range pod.Volumes {
		if pod.Volumes[i].Name == name {
			pod.Volumes[i].VolumeSource = source
			return name
		}
	}
	pod.Volumes = append(pod.Volumes, corev1.Volume{Name: name, VolumeSource: source})
	return name
}
