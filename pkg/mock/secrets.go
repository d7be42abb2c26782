// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"context"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/gardener/gardener/extensions/pkg/controller/backupentry/genericactuator"
	"github.com/gardener/gardener/extensions/pkg/controller/operatingsystemconfig"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

const (
	// LabelGenerated is the label of the Secrets that are made here.
	LabelGenerated = "mock.provider.extensions.gardener.cloud/generated"

	// userData is what a machine would be started with, if there were one.
	userData = "#!/bin/sh\n# The Nodes of the mock provider are not machines: there is nothing to do.\n"
	// dataKeyHostPath is the key under which etcd-druid looks for the folder on the node that has the buckets.
	dataKeyHostPath = "hostPath"
)

// applyOperatingSystemConfig makes the Secret that gardenlet waits for where a machine is to be provisioned.
func applyOperatingSystemConfig(ctx context.Context, p *provider, _ *work, osc *extensionsv1alpha1.OperatingSystemConfig) error {
	if osc.Spec.Purpose != extensionsv1alpha1.OperatingSystemConfigPurposeProvision {
		osc.Status.InPlaceUpdates = nil
		if updates := osc.Spec.InPlaceUpdates; updates != nil {
			osc.Status.InPlaceUpdates = &extensionsv1alpha1.InPlaceUpdatesStatus{OSUpdate: &extensionsv1alpha1.OSUpdate{Command: "true", Args: []string{updates.OperatingSystemVersion}}}
		}
		return nil
	}

	secret := &corev1.Secret{
		ObjectMeta: operatingsystemconfig.SecretObjectMetaForConfig(osc),
		Type:       corev1.SecretTypeOpaque,
		Data:       map[string][]byte{extensionsv1alpha1.OperatingSystemConfigSecretDataKey: []byte(userData)},
	}
	// It goes with its owner.
	if err := controllerutil.SetControllerReference(osc, secret, p.client.Scheme()); err != nil {
		return err
	}
	if err := p.ensureSecret(ctx, secret, osc.Status.CloudConfig != nil, nil); err != nil {
		return fmt.Errorf("writing the Secret %s/%s with the cloud config: %w", secret.Namespace, secret.Name, err)
	}
	osc.Status.CloudConfig = &extensionsv1alpha1.CloudConfig{SecretRef: corev1.SecretReference{Namespace: secret.Namespace, Name: secret.Name}}
	return nil
}

// applyBackupEntry makes the Secret that etcd-druid mounts, with what a store of type local takes, in the namespace of the
// shoot or of the garden; nothing if there is no such namespace, or no more.
func applyBackupEntry(ctx context.Context, p *provider, _ *work, entry *extensionsv1alpha1.BackupEntry) error {
	secret := backupSecret(entry)
	secret.Annotations = map[string]string{genericactuator.AnnotationKeyCreatedByBackupEntry: entry.Name}
	secret.Data = map[string][]byte{
		dataKeyHostPath:                          []byte(p.hostPath),
		v1beta1constants.DataKeyBackupBucketName: []byte(entry.Spec.BucketName),
	}

	// There may be another entry for the same namespace. The Secret of a real one must not be lost to a mock.
	others := func(current *corev1.Secret) (bool, error) {
		creator := current.Annotations[genericactuator.AnnotationKeyCreatedByBackupEntry]
		if creator == entry.Name {
			return false, nil
		}
		if current.Labels[LabelGenerated] == "" {
			err := fmt.Errorf("it is not of the mock provider, but of %q: delete one of the two BackupEntries", creator)
			return true, v1beta1helper.NewErrorWithCodes(err, gardencorev1beta1.ErrorConfigurationProblem)
		}
		return true, nil
	}
	err := p.ensureSecret(ctx, secret, entry.Status.ObservedGeneration > 0, others)
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// removeBackupEntry deletes the Secret unless it is of another entry.
func removeBackupEntry(ctx context.Context, p *provider, _ *work, entry *extensionsv1alpha1.BackupEntry) error {
	secret := backupSecret(entry)
	if err := p.client.Get(ctx, client.ObjectKeyFromObject(secret), secret); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	if secret.Annotations[genericactuator.AnnotationKeyCreatedByBackupEntry] != entry.Name {
		return nil
	}
	asItIs := client.Preconditions{UID: new(secret.UID), ResourceVersion: new(secret.ResourceVersion)}
	if err := p.client.Delete(ctx, secret, asItIs); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("deleting the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// backupSecret names the Secret of an entry. In a migration there is a second entry in the new seed, for the bucket of the
// old one.
func backupSecret(entry *extensionsv1alpha1.BackupEntry) *corev1.Secret {
	name := v1beta1constants.BackupSecretName
	if strings.HasPrefix(entry.Name, v1beta1constants.BackupSourcePrefix+"-") {
		name = v1beta1constants.BackupSourcePrefix + "-" + name
	}
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: technicalID(entry.Name), Name: name}, Type: corev1.SecretTypeOpaque}
}

// ensureSecret writes a Secret unless it is there and as it should be; expected tells that it should be there, so that
// usually one request is enough. isOthers, which may be nil, reports whether a Secret that is there belongs to somebody else,
// and an error if that must not be.
func (p *provider) ensureSecret(ctx context.Context, secret *corev1.Secret, expected bool, isOthers func(*corev1.Secret) (bool, error)) error {
	secret.Labels = map[string]string{LabelGenerated: "true"}
	if !expected {
		if err := p.client.Create(ctx, secret.DeepCopy()); !apierrors.IsAlreadyExists(err) {
			return err
		}
	}

	current := &corev1.Secret{}
	if err := p.client.Get(ctx, client.ObjectKeyFromObject(secret), current); apierrors.IsNotFound(err) {
		return p.client.Create(ctx, secret)
	} else if err != nil {
		return err
	}
	if isOthers != nil {
		if others, err := isOthers(current); others || err != nil {
			return err
		}
	}

	before := current.DeepCopy()
	current.Data = secret.Data
	current.Labels = merged(current.Labels, secret.Labels)
	current.Annotations = merged(current.Annotations, secret.Annotations)
	if len(secret.OwnerReferences) > 0 {
		current.OwnerReferences = secret.OwnerReferences
	}
	if apiequality.Semantic.DeepEqual(before, current) {
		return nil
	}
	return p.client.Patch(ctx, current, client.MergeFrom(before))
}

func merged(current, own map[string]string) map[string]string {
	out := maps.Clone(current)
	for key, value := range own {
		if out == nil {
			out = map[string]string{}
		}
		out[key] = value
	}
	return out
}
