// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package validator

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/apis/local/validation"
)

// NewSeed returns the validator for Seeds of type local, and for Seeds whose backups are: there is nothing to configure,
// credentials of backups name a folder or none, and a local seed says where its nodes are, as machines reach load
// balancers and registries there.
//
// reader reads from the API server. Needed permissions: get on Secrets.
func NewSeed(reader client.Reader) extensionswebhook.Validator {
	v := &seed{credentials{reader: reader}}
	return &rules[*gardencorev1beta1.Seed]{check: v.check}
}

type seed struct {
	credentials credentials
}

func (v *seed) check(ctx context.Context, seed, old *gardencorev1beta1.Seed) (field.ErrorList, error) {
	if old != nil && equality.Semantic.DeepEqual(seed.Spec, old.Spec) {
		return nil, nil
	}
	before := gardencorev1beta1.SeedSpec{}
	if old != nil {
		before = old.Spec
	}

	var (
		errs field.ErrorList
		spec = field.NewPath("spec")
	)
	if seed.Spec.Provider.Type == localv1alpha1.Type {
		if !equality.Semantic.DeepEqual(seed.Spec.Provider.ProviderConfig, before.Provider.ProviderConfig) {
			errs = append(errs, validation.Empty(seed.Spec.Provider.ProviderConfig, spec.Child("provider", "providerConfig"))...)
		}
		if ptr.Deref(seed.Spec.Networks.Nodes, "") == "" && (old == nil || ptr.Deref(before.Networks.Nodes, "") != "") {
			errs = append(errs, field.Required(spec.Child("networks", "nodes"), "write the range of the seed's nodes: machines reach load balancers and registries there"))
		}
	}
	if backup := seed.Spec.Backup; backup != nil && backup.Provider == localv1alpha1.Type && !equality.Semantic.DeepEqual(backup, before.Backup) {
		found, err := v.checkBackup(ctx, backup, spec.Child("backup"))
		if err != nil {
			return nil, err
		}
		errs = append(errs, found...)
	}
	return errs, nil
}

func (v *seed) checkBackup(ctx context.Context, backup *gardencorev1beta1.Backup, path *field.Path) (field.ErrorList, error) {
	errs := validation.Empty(backup.ProviderConfig, path.Child("providerConfig"))
	if backup.CredentialsRef == nil {
		return errs, nil
	}
	path = path.Child("credentialsRef")
	data, missing, err := v.credentials.data(ctx, *backup.CredentialsRef, path)
	if missing != nil || err != nil {
		return appendOne(errs, missing), err
	}
	if problem := checkHostPath(data); problem != "" {
		key := client.ObjectKey{Namespace: backup.CredentialsRef.Namespace, Name: backup.CredentialsRef.Name}
		errs = append(errs, field.Invalid(path, key.String(), problem))
	}
	return errs, nil
}
