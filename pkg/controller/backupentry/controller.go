// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupentry

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/backupentry"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
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
	// Classes are the classes of BackupEntries to serve.
	Classes class.Set
	// Store is where the entries are.
	Store Store
	// HostPath is the folder of all buckets as the nodes see it.
	HostPath string
}

// AddToManager adds the controller for BackupEntries of type local. The cluster-wide watches on Namespaces and Secrets
// that the library sets up where the operation annotation is ignored are missing on purpose: gardenlet makes the
// namespace before the entry, and what the Secret of spec.secretRef holds does not matter to the type local.
func AddToManager(mgr manager.Manager, opts Options) error {
	classes, ok := opts.Classes.Only(extensionsv1alpha1.ExtensionClassGarden, extensionsv1alpha1.ExtensionClassSeed, extensionsv1alpha1.ExtensionClassShoot)
	if !ok {
		return errors.New("adding the BackupEntry controller: no extension class given, name at least one")
	}
	if opts.Controller.ReconciliationTimeout == 0 {
		opts.Controller.ReconciliationTimeout = controllerutils.DefaultReconciliationTimeout
	}

	r := newReconciler(mgr.GetClient(), opts, classes)
	if err := mgr.Add(r.Actuator.(*actuator).credentials); err != nil {
		return err
	}
	return builder.ControllerManagedBy(mgr).
		Named(backupentry.ControllerName).
		WithOptions(opts.Controller).
		Watches(&extensionsv1alpha1.BackupEntry{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(r.Predicates()...)).
		Complete(r)
}

// newReconciler has no Clusters: an entry goes on when its shoot has failed, and outlives it.
func newReconciler(c client.Client, opts Options, classes class.Set) *reconciler.Reconciler[*extensionsv1alpha1.BackupEntry] {
	actuator := &actuator{
		client:      c,
		credentials: newCredentials(c, classes),
		secrets:     &etcdSecrets{client: c, hostPath: opts.HostPath, made: lru.New(madeMax)},
		store:       opts.Store,
	}
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.BackupEntry]{
		Client:                    c,
		Kind:                      extensionsv1alpha1.BackupEntryResource,
		NewObject:                 func() *extensionsv1alpha1.BackupEntry { return &extensionsv1alpha1.BackupEntry{} },
		Types:                     []string{localv1alpha1.Type},
		Classes:                   classes,
		Finalizer:                 backupentry.FinalizerName,
		IgnoreOperationAnnotation: opts.IgnoreOperationAnnotation,
		Check:                     actuator.check,
		Actuator:                  actuator,
	})
}

func newCredentials(c client.Client, classes class.Set) *common.Credentials {
	return common.NewCredentials(c, backupentry.FinalizerName, func(ctx context.Context) (map[string]corev1.SecretReference, error) {
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
