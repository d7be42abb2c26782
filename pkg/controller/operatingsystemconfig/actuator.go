// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package operatingsystemconfig reconciles OperatingSystemConfigs of type local, the operating system of machines that are
// pods of the machine image (skaffold/images/machine). gardenlet has two for each worker pool:
//   - purpose provision: what a machine needs in order to fetch gardener-node-agent becomes a script, the machine's user
//     data, which the image's run-userdata.service executes;
//   - purpose reconcile: what gardener-node-agent brings about later. Nothing is translated; the status adds what these
//     machines need beyond that, and how an in-place update sets their version.
//
// Names and paths of an object never become a part of the script's code: they are checked, and quoted as well.
package operatingsystemconfig

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/operatingsystemconfig"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// AddToManager adds the controller. It does nothing if the classes do not include shoot; it is an error if there are none.
//
// The type of an OperatingSystemConfig is the name of the pool's machine image in the CloudProfile, which hence has to be
// "local".
//
// Needed permissions: get, list, watch and patch on OperatingSystemConfigs, and patch on their status; get,
// list and watch on Clusters; get, create and patch on Secrets.
func AddToManager(mgr manager.Manager, shared reconciler.Shared) error {
	return newReconciler(mgr.GetClient(), shared).AddToManager(mgr, operatingsystemconfig.ControllerName)
}

func newReconciler(c client.Client, shared reconciler.Shared) *reconciler.Reconciler[*extensionsv1alpha1.OperatingSystemConfig] {
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.OperatingSystemConfig]{
		Shared:    shared,
		Client:    c,
		Finalizer: operatingsystemconfig.FinalizerName,
		Actuator:  &actuator{client: c},
	})
}

// osVersionCommand is a program of the machine image: called with a version, it has /etc/os-release name that one.
const osVersionCommand = "/usr/local/lib/provider-local/os-version"

// kubeletDataVolume is the unit with which Gardener mounts a data volume for the kubelet.
const kubeletDataVolume = "var-lib-kubelet.mount"

type actuator struct {
	client client.Client
}

type attempt = reconciler.Operation[*extensionsv1alpha1.OperatingSystemConfig]

// Reconcile implements reconciler.Actuator.
func (a *actuator) Reconcile(ctx context.Context, op *attempt) error {
	osc := op.Object
	if op.Cluster == nil {
		return reconciler.NoCluster(osc.Namespace, "a shoot")
	}

	status := &osc.Status
	switch osc.Spec.Purpose {
	case extensionsv1alpha1.OperatingSystemConfigPurposeProvision:
		userData, err := a.userData(ctx, osc)
		if err != nil {
			return err
		}
		secret := &corev1.Secret{
			ObjectMeta: operatingsystemconfig.SecretObjectMetaForConfig(osc),
			Data:       map[string][]byte{extensionsv1alpha1.OperatingSystemConfigSecretDataKey: userData},
		}
		if err := controllerutil.SetControllerReference(osc, secret, a.client.Scheme()); err != nil {
			return err
		}
		if err := op.Apply(ctx, reconciler.Target{Client: a.client, Unread: true}, secret); err != nil {
			return fmt.Errorf("writing the user data: %w", err)
		}
		status.CloudConfig = &extensionsv1alpha1.CloudConfig{SecretRef: corev1.SecretReference{Namespace: secret.Namespace, Name: secret.Name}}
		status.ExtensionUnits, status.InPlaceUpdates = nil, nil
	case extensionsv1alpha1.OperatingSystemConfigPurposeReconcile:
		inPlaceUpdates, err := reconciled(osc)
		if err != nil {
			return err
		}
		status.ExtensionUnits, status.InPlaceUpdates = extensionUnits(), inPlaceUpdates
	default:
		err := field.NotSupported(field.NewPath("spec", "purpose"), osc.Spec.Purpose, []extensionsv1alpha1.OperatingSystemConfigPurpose{
			extensionsv1alpha1.OperatingSystemConfigPurposeProvision, extensionsv1alpha1.OperatingSystemConfigPurposeReconcile,
		})
		return reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
	}
	status.ExtensionFiles = nil
	return nil
}

// Delete implements reconciler.Actuator. The Secret with the user data has the object as its owner.
func (*actuator) Delete(context.Context, *attempt) error { return nil }

// ForceDelete implements reconciler.Actuator.
func (*actuator) ForceDelete(context.Context, *attempt) error { return nil }

// Migrate implements reconciler.Actuator.
func (*actuator) Migrate(context.Context, *attempt) error { return nil }

// userData renders the script of purpose provision.
func (a *actuator) userData(ctx context.Context, osc *extensionsv1alpha1.OperatingSystemConfig) ([]byte, error) {
	if err := validate(&osc.Spec).ToAggregate(); err != nil {
		return nil, reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
	}
	contents, err := readContents(ctx, a.client, osc.Namespace, osc.Spec.Files)
	if err != nil {
		return nil, err
	}
	return render(defaultPlaces, osc.Spec.Files, contents, osc.Spec.Units), nil
}

// extensionUnits are those that gardener-node-agent is to start in addition. The machine image starts them as well; one
// made of kind's node image with nothing but its own units doesn't, and refuses all logins until then. Unless it is enabled, a
// unit that runs counts as a problem of the Node.
func extensionUnits() []extensionsv1alpha1.Unit {
	return []extensionsv1alpha1.Unit{{Name: "systemd-user-sessions.service", Enable: new(true), Command: new(extensionsv1alpha1.CommandStart)}}
}

// reconciled returns how the version of an operating system is updated in place; nil if the pool isn't updated so.
func reconciled(osc *extensionsv1alpha1.OperatingSystemConfig) (*extensionsv1alpha1.InPlaceUpdatesStatus, error) {
	for i, unit := range osc.Spec.Units {
		if unit.Name == kubeletDataVolume {
			err := field.Forbidden(field.NewPath("spec", "units").Index(i), "machines have no data volumes: take kubeletDataVolumeName and dataVolumes from the worker pool")
			return nil, reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
		}
	}
	if osc.Spec.InPlaceUpdates == nil {
		return nil, nil
	}
	version := osc.Spec.InPlaceUpdates.OperatingSystemVersion
	if !versionPattern.MatchString(version) || len(version) > maxVersion {
		err := field.Invalid(field.NewPath("spec", "inPlaceUpdates", "operatingSystemVersion"), version, "use a version such as 1.2.3")
		return nil, reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
	}
	return &extensionsv1alpha1.InPlaceUpdatesStatus{
		OSUpdate: &extensionsv1alpha1.OSUpdate{Command: osVersionCommand, Args: []string{version}},
	}, nil
}
