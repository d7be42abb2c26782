// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"
	"github.com/gardener/gardener/pkg/client/kubernetes"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/apis/local/validation"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
)

// NewSecret returns the validator for Secrets that bindings of type local refer to: Gardener labels them, and has a copy of one checked
// before a binding may refer to it. A kubeconfig in one tells where machines are: it must be usable, and it must not lead to another API
// server later.
func NewSecret() extensionswebhook.Validator {
	return &validator[corev1.Secret]{func(_ context.Context, secret, old *corev1.Secret) (field.ErrorList, error) {
		return checkSecret(secret.Data, old.Data), nil
	}}
}

// NewInternalSecret returns the validator for InternalSecrets that bindings of type local refer to, with the rules for
// Secrets.
func NewInternalSecret() extensionswebhook.Validator {
	return &validator[gardencorev1beta1.InternalSecret]{func(_ context.Context, secret, old *gardencorev1beta1.InternalSecret) (field.ErrorList, error) {
		return checkSecret(secret.Data, old.Data), nil
	}}
}

func checkSecret(data, before map[string][]byte) field.ErrorList {
	if equality.Semantic.DeepEqual(data, before) {
		return nil
	}
	path := field.NewPath("data")
	if errs := checkCredentials(data, path); len(errs) > 0 {
		return errs
	}
	if sameServer(data[kubernetes.KubeConfig], before[kubernetes.KubeConfig]) {
		return nil
	}
	return field.ErrorList{field.Forbidden(path.Key(kubernetes.KubeConfig),
		"its server must stay the same, as machines of shoots may be there: make another Secret and another binding for the shoots of another cluster")}
}

// sameServer reports whether two kubeconfigs have the same server, or one of them has none. After a change to another server, nobody would
// ever find the machines at the first one again.
func sameServer(a, b []byte) bool {
	first, firstErr := cluster.Parse(a)
	second, secondErr := cluster.Parse(b)
	return firstErr != nil || secondErr != nil || first.Host == second.Host
}

// checkCredentials checks the data of a Secret. No message has anything of it.
func checkCredentials(data map[string][]byte, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, key := range slices.Sorted(maps.Keys(data)) {
		switch {
		case key == kubernetes.KubeConfig:
			if _, err := cluster.Parse(data[key]); err != nil {
				errs = append(errs, field.Invalid(path.Key(key), field.OmitValueType{}, fmt.Sprintf("it can't be used: %v", err)))
			}
		case key == machine.UserDataKey:
			errs = append(errs, field.Forbidden(path.Key(key), "it would replace what machines run at boot: take it out"))
		case strings.EqualFold(strings.NewReplacer("-", "", "_", "", ".", "").Replace(key), kubernetes.KubeConfig):
			errs = append(errs, field.Forbidden(path.Key(key), "it would not be looked at: call it "+kubernetes.KubeConfig+", or take it out if machines are to be in the seed"))
		}
	}
	return errs
}

// NewWorkloadIdentity returns the validator for WorkloadIdentities of type local, which have nothing to configure.
func NewWorkloadIdentity() extensionswebhook.Validator {
	return &validator[securityv1alpha1.WorkloadIdentity]{func(_ context.Context, identity, old *securityv1alpha1.WorkloadIdentity) (field.ErrorList, error) {
		if identity.Spec.TargetSystem.Type != localv1alpha1.Type || equality.Semantic.DeepEqual(identity.Spec, old.Spec) {
			return nil, nil
		}
		return validation.Empty(identity.Spec.TargetSystem.ProviderConfig, field.NewPath("spec", "targetSystem", "providerConfig")), nil
	}}
}

// kubeconfigOf returns the kubeconfig in the credentials of a shoot, whose machines are in that cluster; without one they are in the seed.
func kubeconfigOf(ctx context.Context, reader client.Reader, shoot *gardencorev1beta1.Shoot) ([]byte, error) {
	var (
		ref corev1.ObjectReference
		err error
	)
	switch {
	case shoot.Spec.CredentialsBindingName != nil:
		binding := &securityv1alpha1.CredentialsBinding{}
		err = reader.Get(ctx, client.ObjectKey{Namespace: shoot.Namespace, Name: *shoot.Spec.CredentialsBindingName}, binding)
		ref = binding.CredentialsRef
	case shoot.Spec.SecretBindingName != nil:
		binding := &gardencorev1beta1.SecretBinding{}
		err = reader.Get(ctx, client.ObjectKey{Namespace: shoot.Namespace, Name: *shoot.Spec.SecretBindingName}, binding)
		ref = corev1.ObjectReference{Kind: "Secret", Namespace: binding.SecretRef.Namespace, Name: binding.SecretRef.Name}
	}
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	switch ref.Kind {
	case "Secret":
		secret := &corev1.Secret{}
		err = client.IgnoreNotFound(reader.Get(ctx, key, secret))
		return secret.Data[kubernetes.KubeConfig], err
	case "InternalSecret":
		secret := &gardencorev1beta1.InternalSecret{}
		err = client.IgnoreNotFound(reader.Get(ctx, key, secret))
		return secret.Data[kubernetes.KubeConfig], err
	}
	return nil, nil
}

// NewSeed returns the validator for Seeds of type local, and for Seeds whose backups are: there is nothing to configure, and a local seed
// says where its nodes are, as machines reach load balancers and registries there. The Secret for backups has to be there: gardenlet would
// report that it is missing in an event only.
//
// reader reads from the API server. Needed permissions: get on Secrets.
func NewSeed(reader client.Reader) extensionswebhook.Validator {
	return &validator[gardencorev1beta1.Seed]{func(ctx context.Context, seed, old *gardencorev1beta1.Seed) (errs field.ErrorList, _ error) {
		var (
			spec              = field.NewPath("spec")
			provider, was     = seed.Spec.Provider, old.Spec.Provider
			noNodes, hadNodes = ptr.Deref(seed.Spec.Networks.Nodes, "") == "", ptr.Deref(old.Spec.Networks.Nodes, "") != ""
		)
		if provider.Type == localv1alpha1.Type {
			if !equality.Semantic.DeepEqual(provider.ProviderConfig, was.ProviderConfig) {
				errs = append(errs, validation.Empty(provider.ProviderConfig, spec.Child("provider", "providerConfig"))...)
			}
			if noNodes && (was.Type == "" || hadNodes) {
				errs = append(errs, field.Required(spec.Child("networks", "nodes"), "write the range of the seed's nodes: machines reach load balancers and registries there"))
			}
		}
		if backup := seed.Spec.Backup; backup != nil && backup.Provider == localv1alpha1.Type && !equality.Semantic.DeepEqual(backup, old.Spec.Backup) {
			errs = append(errs, validation.Empty(backup.ProviderConfig, spec.Child("backup", "providerConfig"))...)
			if ref := backup.CredentialsRef; ref != nil && ref.Kind == "Secret" {
				if err := reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &corev1.Secret{}); err != nil {
					return nil, fmt.Errorf("%s: reading Secret %s/%s: %w", spec.Child("backup", "credentialsRef"), ref.Namespace, ref.Name, err)
				}
			}
		}
		return errs, nil
	}}
}
