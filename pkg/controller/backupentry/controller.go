// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupentry

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener/extensions/pkg/controller/backupentry"
	"github.com/gardener/gardener/extensions/pkg/controller/backupentry/genericactuator"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
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

	predicates := classes.Predicates(
		backupentry.DefaultPredicates(opts.IgnoreOperationAnnotation),
		localv1alpha1.Type,
	)

	return builder.ControllerManagedBy(mgr).
		Named(backupentry.ControllerName).
		WithOptions(opts.Controller).
		Watches(&extensionsv1alpha1.BackupEntry{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicates...)).
		Complete(newReconciler(
			common.OnlyOwn[*extensionsv1alpha1.BackupEntry](mgr, localv1alpha1.Type, classes),
			&delegate{client: mgr.GetClient(), store: opts.Store, hostPath: opts.HostPath},
		))
}

// newReconciler returns the library's reconciler with the generic actuator for the delegate, behind a check.
func newReconciler(mgr manager.Manager, delegate genericactuator.BackupEntryDelegate) reconcile.Reconciler {
	actuator := genericactuator.NewActuator(liveNamespaces{mgr}, delegate)
	checker := &checker{client: mgr.GetClient(), actuator: actuator}

	return common.WithCheck(
		mgr.GetClient(),
		func() *extensionsv1alpha1.BackupEntry { return &extensionsv1alpha1.BackupEntry{} },
		checker.check,
		backupentry.NewReconciler(mgr, actuator),
	)
}

type checker struct {
	client   client.Client
	actuator backupentry.Actuator
}

func (c *checker) check(ctx context.Context, entry *extensionsv1alpha1.BackupEntry, operation gardencorev1beta1.LastOperationType) error {
	switch operation {
	case gardencorev1beta1.LastOperationTypeDelete:
		return c.deleteWithoutSecret(ctx, entry)
	case gardencorev1beta1.LastOperationTypeMigrate:
		// Migrating leaves the data where it is, hence no name matters.
	default:
		if err := checkNames(entry); err != nil {
			return err
		}
	}
	return common.CheckSecret(ctx, c.client, entry.Spec.SecretRef)
}

// deleteWithoutSecret deletes the entry if its Secret is gone, as after somebody cleaned up by hand. The library lets
// such an entry go without asking the actuator, as most providers cannot reach the data without credentials. This one
// can, and otherwise nobody would ever remove the folder.
func (c *checker) deleteWithoutSecret(ctx context.Context, entry *extensionsv1alpha1.BackupEntry) error {
	if !controllerutil.ContainsFinalizer(entry, backupentry.FinalizerName) {
		return nil
	}

	ref := entry.Spec.SecretRef
	_, err := kubernetesutils.GetSecretMetadataByReference(ctx, c.client, &ref)
	if err == nil {
		return nil
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("reading the Secret %s/%s which spec.secretRef names: %w", ref.Namespace, ref.Name, err)
	}
	return c.actuator.Delete(ctx, logf.FromContext(ctx), entry)
}
