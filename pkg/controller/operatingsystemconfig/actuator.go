// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/extensions/pkg/controller/operatingsystemconfig"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

// osVersionCommand is a program of the machine image: called with a version, it has /etc/os-release name that one.
const osVersionCommand = "/usr/local/lib/provider-local/os-version"

// kubeletDataVolume is the unit with which Gardener mounts a data volume for the kubelet.
const kubeletDataVolume = "var-lib-kubelet.mount"

type actuator struct {
	// reader reads from the API server: Secrets are not cached.
	reader client.Reader
}

var _ operatingsystemconfig.Actuator = (*actuator)(nil)

// check does all the work once, for the sake of its mistakes. It is little: a provisioning script is of a few kilobytes.
func (a *actuator) check(ctx context.Context, osc *extensionsv1alpha1.OperatingSystemConfig, operation gardencorev1beta1.LastOperationType) error {
	if operation == gardencorev1beta1.LastOperationTypeDelete || operation == gardencorev1beta1.LastOperationTypeMigrate {
		return nil
	}
	_, _, _, _, err := a.Reconcile(ctx, logr.Discard(), osc)
	return err
}

// Reconcile implements operatingsystemconfig.Actuator.
func (a *actuator) Reconcile(ctx context.Context, _ logr.Logger, osc *extensionsv1alpha1.OperatingSystemConfig) ([]byte, []extensionsv1alpha1.Unit, []extensionsv1alpha1.File, *extensionsv1alpha1.InPlaceUpdatesStatus, error) {
	switch osc.Spec.Purpose {
	case extensionsv1alpha1.OperatingSystemConfigPurposeProvision:
		userData, err := a.userData(ctx, osc)
		return userData, nil, nil, nil, err
	case extensionsv1alpha1.OperatingSystemConfigPurposeReconcile:
		inPlaceUpdates, err := reconciled(osc)
		return nil, extensionUnits(), nil, inPlaceUpdates, err
	default:
		err := field.NotSupported(field.NewPath("spec", "purpose"), osc.Spec.Purpose, []extensionsv1alpha1.OperatingSystemConfigPurpose{
			extensionsv1alpha1.OperatingSystemConfigPurposeProvision, extensionsv1alpha1.OperatingSystemConfigPurposeReconcile,
		})
		return nil, nil, nil, nil, common.ConfigurationProblem(err, common.RetryMistake)
	}
}

// Restore implements operatingsystemconfig.Actuator. Everything comes from the spec, so that there is no state to restore.
func (a *actuator) Restore(ctx context.Context, log logr.Logger, osc *extensionsv1alpha1.OperatingSystemConfig) ([]byte, []extensionsv1alpha1.Unit, []extensionsv1alpha1.File, *extensionsv1alpha1.InPlaceUpdatesStatus, error) {
	return a.Reconcile(ctx, log, osc)
}

// Delete implements operatingsystemconfig.Actuator. The Secret with the user data has the object as its owner.
func (*actuator) Delete(context.Context, logr.Logger, *extensionsv1alpha1.OperatingSystemConfig) error {
	return nil
}

// ForceDelete implements operatingsystemconfig.Actuator.
func (*actuator) ForceDelete(context.Context, logr.Logger, *extensionsv1alpha1.OperatingSystemConfig) error {
	return nil
}

// Migrate implements operatingsystemconfig.Actuator.
func (*actuator) Migrate(context.Context, logr.Logger, *extensionsv1alpha1.OperatingSystemConfig) error {
	return nil
}

// userData renders the script of purpose provision.
func (a *actuator) userData(ctx context.Context, osc *extensionsv1alpha1.OperatingSystemConfig) ([]byte, error) {
	if err := validate(&osc.Spec).ToAggregate(); err != nil {
		return nil, common.ConfigurationProblem(err, common.RetryMistake)
	}
	contents, err := readContents(ctx, a.reader, osc.Namespace, osc.Spec.Files)
	if err != nil {
		return nil, err
	}
	userData, err := render(defaultPlaces, osc.Spec.Files, contents, osc.Spec.Units)
	if err != nil {
		return nil, fmt.Errorf("rendering the user data of %s/%s: %w", osc.Namespace, osc.Name, err)
	}
	return userData, nil
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
			return nil, common.ConfigurationProblem(err, common.RetryMistake)
		}
	}
	if osc.Spec.InPlaceUpdates == nil {
		return nil, nil
	}
	version := osc.Spec.InPlaceUpdates.OperatingSystemVersion
	if !versionPattern.MatchString(version) || len(version) > maxVersion {
		err := field.Invalid(field.NewPath("spec", "inPlaceUpdates", "operatingSystemVersion"), version, "use a version such as 1.2.3")
		return nil, common.ConfigurationProblem(err, common.RetryMistake)
	}
	return &extensionsv1alpha1.InPlaceUpdatesStatus{
		OSUpdate: &extensionsv1alpha1.OSUpdate{Command: osVersionCommand, Args: []string{version}},
	}, nil
}
