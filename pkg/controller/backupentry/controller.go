// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupentry

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/backupentry"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

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
		client:  c,
		secrets: &etcdSecrets{client: c, hostPath: opts.HostPath, made: lru.New(madeMax)},
		store:   opts.Store,
	}
	r := reconciler.New(reconciler.Options[*extensionsv1alpha1.BackupEntry]{
		Shared:          opts.Shared,
		Client:          c,
		ExistsFor:       class.All(),
		Finalizer:       backupentry.FinalizerName,
		WithoutClusters: true,
		Check:           actuator.check,
		Actuator:        actuator,
	})
	actuator.credentials = r.Credentials(func(entry *extensionsv1alpha1.BackupEntry) corev1.SecretReference { return entry.Spec.SecretRef })
	return r
}
