// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupentry

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/backupentry"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Store is where the entries are.
	Store Store
	// HostPath is the folder of all buckets as the nodes see it.
	HostPath string
}

// AddToManager adds the controller for BackupEntries of type local. The cluster-wide watches on Namespaces and Secrets
// that the library sets up where the operation annotation is ignored are missing on purpose: gardenlet makes the
// namespace before the entry, and what the Secret of spec.secretRef holds does not matter to the type local.
func AddToManager(mgr manager.Manager, opts Options) error {
	r := newReconciler(mgr.GetClient(), opts)
	if err := mgr.Add(r.Actuator.(*actuator).credentials); err != nil {
		return err
	}
	return r.AddToManager(mgr, backupentry.ControllerName)
}

func newReconciler(c client.Client, opts Options) *reconciler.Reconciler[*extensionsv1alpha1.BackupEntry] {
	actuator := &actuator{
		client:      c,
		credentials: newCredentials(c, opts.Classes),
		secrets:     &etcdSecrets{client: c, hostPath: opts.HostPath, made: lru.New(madeMax)},
		store:       opts.Store,
	}
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.BackupEntry]{
		Shared:          opts.Shared,
		Client:          c,
		Types:           []string{localv1alpha1.Type},
		ExistsFor:       class.All(),
		Finalizer:       backupentry.FinalizerName,
		WithoutClusters: true,
		Check:           actuator.check,
		Actuator:        actuator,
	})
}

func newCredentials(c client.Client, classes class.Set) *reconciler.Credentials {
	return reconciler.NewCredentials(c, backupentry.FinalizerName, func(ctx context.Context) (map[string]corev1.SecretReference, error) {
		list := &extensionsv1alpha1.BackupEntryList{}
		if err := c.List(ctx, list); err != nil {
			return nil, err
		}
		out := map[string]corev1.SecretReference{}
		for _, entry := range list.Items {
			if entry.Spec.Type == localv1alpha1.Type && classes.Has(&entry) {
				out[entry.Name] = entry.Spec.SecretRef
			}
		}
		return out, nil
	})
}
