// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupbucket

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gardener/gardener/extensions/pkg/controller/backupbucket"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

// Options are what the controller needs.
type Options struct {
	// Controller are the options of the controller itself, such as its concurrency.
	Controller controller.Options
	// IgnoreOperationAnnotation has every change of a spec reconciled.
	IgnoreOperationAnnotation bool
	// Classes are the classes of BackupBuckets to serve.
	Classes class.Set
	// Store is where the buckets are.
	Store Store
	// HostPath is the folder of all buckets as the nodes see it.
	HostPath string
	// SecretNamespaces are where generated Secrets are watched, and healed if somebody deletes or changes them. Default:
	// garden. Gardener can ask for a Secret elsewhere; that one is healed at the next reconcile.
	SecretNamespaces []string
	// NewCache makes the cache of generated Secrets. Default: cache.New.
	NewCache cache.NewCacheFunc
}

// AddToManager adds the controller for BackupBuckets of type local. The cluster-wide watch on Secrets that the library
// sets up where the operation annotation is ignored is missing on purpose: what the Secret of spec.secretRef holds does
// not matter to the type local.
func AddToManager(mgr manager.Manager, opts Options) error {
	classes, ok := opts.Classes.Only(extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot)
	if !ok {
		return errors.New("adding the BackupBucket controller: no extension class given, name at least one")
	}
	if opts.NewCache == nil {
		opts.NewCache = cache.New
	}
	if len(opts.SecretNamespaces) == 0 {
		opts.SecretNamespaces = []string{v1beta1constants.GardenNamespace}
	}
	if opts.Controller.ReconciliationTimeout == 0 {
		opts.Controller.ReconciliationTimeout = controllerutils.DefaultReconciliationTimeout
	}

	secretCache, err := newSecretCache(mgr, opts.NewCache, opts.SecretNamespaces)
	if err != nil {
		return fmt.Errorf("making the cache of generated Secrets: %w", err)
	}
	if err := mgr.Add(cacheRunnable{secretCache}); err != nil {
		return err
	}

	secrets := &generatedSecrets{client: mgr.GetClient(), cached: secretCache, namespaces: opts.SecretNamespaces, hostPath: opts.HostPath}
	events := &events{client: mgr.GetClient(), secrets: secrets, classes: classes}

	predicates := classes.Predicates(
		[]predicate.Predicate{predicate.Or(
			predicate.And(backupbucket.DefaultPredicates(opts.IgnoreOperationAnnotation)...),
			events.lostSecret(),
		)},
		localv1alpha1.Type,
	)

	c, err := builder.ControllerManagedBy(mgr).
		Named(backupbucket.ControllerName).
		WithOptions(opts.Controller).
		Watches(&extensionsv1alpha1.BackupBucket{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicates...)).
		Build(newReconciler(
			common.OnlyOwn[*extensionsv1alpha1.BackupBucket](mgr, localv1alpha1.Type, classes),
			&actuator{client: mgr.GetClient(), store: opts.Store, secrets: secrets, hostPath: opts.HostPath},
		))
	if err != nil {
		return err
	}

	if err := c.Watch(source.Kind[client.Object](secretCache, &corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(events.bucketOfSecret), events.changedSecret())); err != nil {
		return err
	}
	return c.Watch(source.Kind[client.Object](mgr.GetCache(), &extensionsv1alpha1.BackupEntry{}, handler.EnqueueRequestsFromMapFunc(events.bucketOfEntry), onlyDeletions()))
}

// newReconciler returns the library's reconciler for the actuator behind a check.
func newReconciler(mgr manager.Manager, actuator backupbucket.Actuator) reconcile.Reconciler {
	return common.WithCheck(
		mgr.GetClient(),
		func() *extensionsv1alpha1.BackupBucket { return &extensionsv1alpha1.BackupBucket{} },
		func(ctx context.Context, bucket *extensionsv1alpha1.BackupBucket, operation gardencorev1beta1.LastOperationType) error {
			if operation == gardencorev1beta1.LastOperationTypeDelete {
				// Whatever is wrong with a bucket, one can get rid of it.
				return nil
			}
			if err := backup.CheckBucketName(bucket.Name); err != nil {
				return common.ConfigurationProblem(err, common.RetryMistake)
			}
			return common.CheckSecret(ctx, mgr.GetClient(), bucket.Spec.SecretRef)
		},
		backupbucket.NewReconciler(mgr, actuator),
	)
}
