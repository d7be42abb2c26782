// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	"github.com/gardener/gardener/pkg/utils/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// ForceDelete implements reconciler.Actuator. It deletes all that machines are made of in the seed, whether or not anybody
// wants to take a finalizer off, and then the machines themselves. It waits for nothing. Machines in another cluster that
// does not answer are left there.
func (a *actuator) ForceDelete(ctx context.Context, op *operation) error {
	w, log := op.Object, op.Log
	for _, s := range stages() {
		objects, err := s.list(ctx, a.reader, w.Namespace)
		if err != nil {
			return err
		}
		for _, obj := range objects {
			if err := a.discard(ctx, obj); err != nil {
				return err
			}
		}
	}
	if err := a.releaseCredentials(ctx, w); err != nil {
		return err
	}

	if a.Clusters != nil {
		found, err := a.Clusters.Get(ctx, w.Spec.SecretRef, w.Namespace)
		if err != nil {
			log.Error(err, "Machines are left in the cluster of the credentials, if there is one")
		} else if found.Remote {
			if err := deletePods(ctx, found.Client, found.Client, found.Namespace); err != nil {
				log.Error(err, "Machines are left in the cluster of the credentials")
			}
		}
	}
	return deletePods(ctx, a.reader, a.client, w.Namespace)
}

// discard deletes an object and all its finalizers.
func (a *actuator) discard(ctx context.Context, obj client.Object) error {
	if err := a.deleteObject(ctx, obj); err != nil {
		return err
	}
	if len(obj.GetFinalizers()) == 0 {
		return nil
	}
	patch := client.MergeFrom(obj.DeepCopyObject().(client.Object))
	obj.SetFinalizers(nil)
	if err := client.IgnoreNotFound(a.client.Patch(ctx, obj, patch)); err != nil {
		return fmt.Errorf("taking the finalizers off %s: %w", client.ObjectKeyFromObject(obj), err)
	}
	return nil
}

// releaseCredentials takes the finalizers of machine-controller-manager off the credentials, which are gardenlet's to
// delete.
func (a *actuator) releaseCredentials(ctx context.Context, w *extensionsv1alpha1.Worker) error {
	secret, err := kubernetes.GetSecretMetadataByReference(ctx, a.reader, &w.Spec.SecretRef)
	if err != nil {
		return client.IgnoreNotFound(err)
	}
	if err := client.IgnoreNotFound(controllerutils.RemoveFinalizers(ctx, a.client, secret, mcmFinalizer, driverFinalizer)); err != nil {
		return fmt.Errorf("taking the finalizers of machine-controller-manager off the credentials: %w", err)
	}
	return nil
}

// deletePods deletes the machines that are left in a namespace, at once, with what the machine driver has made for them.
func deletePods(ctx context.Context, reader client.Reader, c client.Client, namespace string) error {
	for _, kind := range []string{"Pod", "Service", "Secret"} {
		machines := stage{name: kind + "s of machines", newList: metadataOf(kind), selector: machine.Selector()}
		objects, err := machines.list(ctx, reader, namespace)
		if err != nil {
			return err
		}
		for _, obj := range objects {
			if err := client.IgnoreNotFound(c.Delete(ctx, obj, client.GracePeriodSeconds(0))); err != nil {
				return fmt.Errorf("deleting what is left of machines: %w", err)
			}
		}
	}
	return nil
}
