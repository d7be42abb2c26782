// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupbucket

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/backupbucket"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Store is where the buckets are.
	Store Store
	// HostPath is the folder of all buckets as the nodes see it.
	HostPath string
}

// AddToManager adds the controller for BackupBuckets of type local. The manager has to cache Secrets as CacheOptions says. The cluster-wide watch on Secrets that the library
// sets up where the operation annotation is ignored is missing on purpose: what the Secret of spec.secretRef holds does
// not matter to the type local.
func AddToManager(mgr manager.Manager, opts Options) error {
	secrets := &generatedSecrets{client: mgr.GetClient(), cached: mgr.GetCache(), hostPath: opts.HostPath}
	events := &events{client: mgr.GetClient(), secrets: secrets, classes: opts.Classes}
	r := newReconciler(mgr.GetClient(), opts.Shared, events, &actuator{
		client: mgr.GetClient(), store: opts.Store, secrets: secrets, hostPath: opts.HostPath,
	})
	if err := mgr.Add(r.Actuator.(*actuator).credentials); err != nil {
		return err
	}
	return r.AddToManager(mgr, backupbucket.ControllerName, func(b *builder.Builder) {
		b.Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(events.bucketOfSecret), builder.WithPredicates(events.changedSecret())).
			Watches(&extensionsv1alpha1.BackupEntry{}, handler.EnqueueRequestsFromMapFunc(events.bucketOfEntry), builder.WithPredicates(onlyDeletions()))
	})
}

func newReconciler(c client.Client, shared reconciler.Shared, events *events, actuator *actuator) *reconciler.Reconciler[*extensionsv1alpha1.BackupBucket] {
	r := reconciler.New(reconciler.Options[*extensionsv1alpha1.BackupBucket]{
		Shared:          shared,
		Client:          c,
		ExistsFor:       class.All(),
		Finalizer:       backupbucket.FinalizerName,
		WithoutClusters: true,
		Actuator:        actuator,
		Check: func(_ context.Context, op *attempt) error {
			if err := backup.CheckBucketName(op.Object.Name); err != nil {
				return reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
			}
			return nil
		},
		IsAmiss: events.lostSecret,
	})
	actuator.credentials = r.Credentials(func(bucket *extensionsv1alpha1.BackupBucket) corev1.SecretReference { return bucket.Spec.SecretRef })
	return r
}
