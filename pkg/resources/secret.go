// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/resourcemanager/controller/garbagecollector/references"
)

// ensureSecret creates the Secret unless it is there. Where it probably is, a look at its metadata saves the compression
// and the request with all the data. It reports whether the Secret had to be created.
func (w *Writer) ensureSecret(ctx context.Context, want *plan, probablyThere bool) (bool, error) {
	if probablyThere {
		if found, err := w.checkSecret(ctx, want); found || err != nil {
			return false, err
		}
	}

	err := w.createSecret(ctx, want)
	if !apierrors.IsAlreadyExists(err) {
		return err == nil, err
	}

	// Left by a run that ended half-way, or by a former state of the ManagedResource to which it now returns.
	found, err := w.checkSecret(ctx, want)
	if err == nil && !found {
		return false, fmt.Errorf("secret %s/%s was deleted just now: %w", want.Namespace, want.secretName, ErrDeleting)
	}
	return false, err
}

// checkSecret reports whether the Secret is there. Its data is not read: it is immutable, and its name tells which it is.
func (w *Writer) checkSecret(ctx context.Context, want *plan) (bool, error) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))

	key := client.ObjectKey{Namespace: want.Namespace, Name: want.secretName}
	if err := w.client.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading metadata of secret %s: %w", key, err)
	}

	if secret.DeletionTimestamp != nil {
		return false, fmt.Errorf("secret %s: %w", key, ErrDeleting)
	}
	if secret.Labels[references.LabelKeyGarbageCollectable] == references.LabelValueGarbageCollectable {
		return true, nil
	}

	// Without the label it would stay forever once it is not used any more.
	data := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, references.LabelKeyGarbageCollectable, references.LabelValueGarbageCollectable)
	if err := w.client.Patch(ctx, secret, client.RawPatch(types.MergePatchType, data)); err != nil {
		return false, fmt.Errorf("labelling secret %s as garbage-collectable: %w", key, err)
	}
	return true, nil
}

func (w *Writer) createSecret(ctx context.Context, want *plan) error {
	text, err := want.documents.yaml()
	if err != nil {
		return err
	}
	data, err := w.compressor.compress(text)
	if err != nil {
		return err
	}
	if len(data) > corev1.MaxSecretSize {
		return fmt.Errorf("%d objects take %d bytes: %w", len(want.documents), len(data), ErrTooLarge)
	}

	immutable := true
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: want.Namespace,
			Name:      want.secretName,
			Labels: map[string]string{
				LabelOrigin:                           Origin,
				references.LabelKeyGarbageCollectable: references.LabelValueGarbageCollectable,
			},
		},
		Type:      corev1.SecretTypeOpaque,
		Immutable: &immutable,
		Data:      map[string][]byte{resourcesv1alpha1.CompressedDataKey: data},
	}

	if err := w.client.Create(ctx, secret); err != nil {
		return fmt.Errorf("creating secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	w.metrics.Compressed(len(text), len(data))
	return nil
}
