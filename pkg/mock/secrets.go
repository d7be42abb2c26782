// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/gardener/gardener/extensions/pkg/controller/backupentry"
	"github.com/gardener/gardener/extensions/pkg/controller/backupentry/genericactuator"
	"github.com/gardener/gardener/extensions/pkg/controller/operatingsystemconfig"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
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
func applyOperatingSystemConfig(ctx context.Context, p *provider, o *operation, osc *extensionsv1alpha1.OperatingSystemConfig) error {
	if osc.Spec.Purpose != extensionsv1alpha1.OperatingSystemConfigPurposeProvision {
		osc.Status.InPlaceUpdates = nil
		if updates := osc.Spec.InPlaceUpdates; updates != nil {
			osc.Status.InPlaceUpdates = &extensionsv1alpha1.InPlaceUpdatesStatus{OSUpdate: &extensionsv1alpha1.OSUpdate{Command: "true", Args: []string{updates.OperatingSystemVersion}}}
		}
		return nil
	}

	secret := &corev1.Secret{
		ObjectMeta: operatingsystemconfig.SecretObjectMetaForConfig(osc),
		Data:       map[string][]byte{extensionsv1alpha1.OperatingSystemConfigSecretDataKey: []byte(userData)},
	}
	metav1.SetMetaDataLabel(&secret.ObjectMeta, LabelGenerated, "true")
	// It goes with its owner.
	if err := controllerutil.SetControllerReference(osc, secret, p.client.Scheme()); err != nil {
		return err
	}
	if err := o.Apply(ctx, reconciler.Target{Client: p.client, Unread: true}, secret); err != nil {
		return fmt.Errorf("writing the Secret %s/%s with the cloud config: %w", secret.Namespace, secret.Name, err)
	}
	osc.Status.CloudConfig = &extensionsv1alpha1.CloudConfig{SecretRef: corev1.SecretReference{Namespace: secret.Namespace, Name: secret.Name}}
	return nil
}

// applyBackupEntry makes the Secret that etcd-druid mounts, with what a store of type local takes, in the namespace of the
// shoot or of the garden; nothing if there is no such namespace, or no more.
func applyBackupEntry(ctx context.Context, p *provider, _ *operation, entry *extensionsv1alpha1.BackupEntry) error {
	secret := backupSecret(entry)
	err := p.writeBackupSecret(ctx, entry, secret)
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing the Secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

// writeBackupSecret writes the Secret unless it is there and as it should be. Usually that is one request: what is more likely is
// tried first. There may be another entry for the same namespace: the Secret of another mock stays, and that of a real one must
// not be lost to a mock.
func (p *provider) writeBackupSecret(ctx context.Context, entry *extensionsv1alpha1.BackupEntry, secret *corev1.Secret) error {
	fill := func() {
		metav1.SetMetaDataLabel(&secret.ObjectMeta, LabelGenerated, "true")
		metav1.SetMetaDataAnnotation(&secret.ObjectMeta, genericactuator.AnnotationKeyCreatedByBackupEntry, entry.Name)
		secret.Data = map[string][]byte{
			dataKeyHostPath:                          []byte(p.hostPath),
			v1beta1constants.DataKeyBackupBucketName: []byte(entry.Spec.BucketName),
		}
	}
	key := client.ObjectKeyFromObject(secret)
	if entry.Status.ObservedGeneration == 0 {
		fill()
		if err := p.client.Create(ctx, secret); !apierrors.IsAlreadyExists(err) {
			return err
		}
		secret = backupSecret(entry)
	}
	if err := p.client.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		fill()
		return p.client.Create(ctx, secret)
	} else if err != nil {
		return err
	}

	creator := secret.Annotations[genericactuator.AnnotationKeyCreatedByBackupEntry]
	switch {
	case creator == entry.Name:
	case secret.Labels[LabelGenerated] != "":
		return nil
	default:
		err := fmt.Errorf("it is not of the mock provider, but of %q: delete one of the two BackupEntries", creator)
		return v1beta1helper.NewErrorWithCodes(err, gardencorev1beta1.ErrorConfigurationProblem)
	}
	before := secret.DeepCopy()
	if fill(); apiequality.Semantic.DeepEqual(before, secret) {
		return nil
	}
	return p.client.Patch(ctx, secret, client.MergeFrom(before))
}

// removeBackupEntry deletes the Secret unless it is of another entry.
func removeBackupEntry(ctx context.Context, p *provider, _ *operation, entry *extensionsv1alpha1.BackupEntry) error {
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
	namespace, _ := backupentry.ExtractShootDetailsFromBackupEntryName(entry.Name)
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}
