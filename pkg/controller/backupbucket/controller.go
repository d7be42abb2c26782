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
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gardener/gardener/extensions/pkg/controller/backupbucket"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
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

	credentials := newCredentials(mgr.GetClient(), classes)
	if err := mgr.Add(credentials); err != nil {
		return err
	}
	r := newReconciler(mgr.GetClient(), opts, classes, events, &actuator{
		client: mgr.GetClient(), credentials: credentials, store: opts.Store, secrets: secrets, hostPath: opts.HostPath,
	})
	c, err := builder.ControllerManagedBy(mgr).
		Named(backupbucket.ControllerName).
		WithOptions(opts.Controller).
		Watches(&extensionsv1alpha1.BackupBucket{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(r.Predicates()...)).
		Build(r)
	if err != nil {
		return err
	}

	if err := c.Watch(source.Kind[client.Object](secretCache, &corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(events.bucketOfSecret), events.changedSecret())); err != nil {
		return err
	}
	return c.Watch(source.Kind[client.Object](mgr.GetCache(), &extensionsv1alpha1.BackupEntry{}, handler.EnqueueRequestsFromMapFunc(events.bucketOfEntry), onlyDeletions()))
}

func newReconciler(c client.Client, opts Options, classes class.Set, events *events, actuator *actuator) *reconciler.Reconciler[*extensionsv1alpha1.BackupBucket] {
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.BackupBucket]{
		Client:                    c,
		Kind:                      extensionsv1alpha1.BackupBucketResource,
		NewObject:                 func() *extensionsv1alpha1.BackupBucket { return &extensionsv1alpha1.BackupBucket{} },
		Types:                     []string{localv1alpha1.Type},
		Classes:                   classes,
		Finalizer:                 backupbucket.FinalizerName,
		IgnoreOperationAnnotation: opts.IgnoreOperationAnnotation,
		Actuator:                  actuator,
		Check: func(_ context.Context, op *attempt) error {
			if err := backup.CheckBucketName(op.Object.Name); err != nil {
				return common.ConfigurationProblem(err, common.RetryMistake)
			}
			return nil
		},
		IsAmiss: events.lostSecret,
	})
}

func newCredentials(c client.Client, classes class.Set) *common.Credentials {
	return common.NewCredentials(c, backupbucket.FinalizerName, func(ctx context.Context) (map[string]corev1.SecretReference, error) {
		list := &extensionsv1alpha1.BackupBucketList{}
		if err := c.List(ctx, list); err != nil {
			return nil, err
		}
		out := map[string]corev1.SecretReference{}
		for _, bucket := range list.Items {
			if bucket.Spec.Type == localv1alpha1.Type && classes.Has(&bucket) {
				out[bucket.Name] = bucket.Spec.SecretRef
			}
		}
		return out, nil
	})
}
