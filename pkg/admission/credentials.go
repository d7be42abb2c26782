// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"
	"github.com/gardener/gardener/pkg/client/kubernetes"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/apis/local/validation"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
)

// hostPathKey is the key of a Secret for backups that says where the buckets are.
const hostPathKey = "hostPath"

// NewSecret returns the validator for Secrets that bindings of type local refer to; Gardener labels them. A kubeconfig in
// one tells where machines are: it must be usable, and it must not lead to another API server later.
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

// NewCredentialsBinding returns the validator for CredentialsBindings of type local: the Secret must be one that machines
// can use. From then on Gardener labels the Secret, so that NewSecret checks it.
//
// reader reads from the API server. Needed permissions: get on Secrets, InternalSecrets and WorkloadIdentities.
func NewCredentialsBinding(reader client.Reader) extensionswebhook.Validator {
	return &validator[securityv1alpha1.CredentialsBinding]{func(ctx context.Context, binding, old *securityv1alpha1.CredentialsBinding) (field.ErrorList, error) {
		if binding.Provider.Type != localv1alpha1.Type || equality.Semantic.DeepEqual(binding.CredentialsRef, old.CredentialsRef) {
			return nil, nil
		}
		return checkReference(ctx, reader, binding.CredentialsRef, field.NewPath("credentialsRef"))
	}}
}

// NewSecretBinding returns the validator for SecretBindings of type local, with the rules for CredentialsBindings.
//
// reader reads from the API server. Needed permissions: get on Secrets.
func NewSecretBinding(reader client.Reader) extensionswebhook.Validator {
	return &validator[gardencorev1beta1.SecretBinding]{func(ctx context.Context, binding, old *gardencorev1beta1.SecretBinding) (field.ErrorList, error) {
		if !v1beta1helper.SecretBindingHasType(binding, localv1alpha1.Type) || old.SecretRef.Name != "" && binding.SecretRef == old.SecretRef {
			return nil, nil
		}
		return checkReference(ctx, reader, secretReference(binding), field.NewPath("secretRef"))
	}}
}

func secretReference(binding *gardencorev1beta1.SecretBinding) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: binding.SecretRef.Namespace, Name: binding.SecretRef.Name}
}

// checkReference checks what a binding refers to.
func checkReference(ctx context.Context, reader client.Reader, ref corev1.ObjectReference, path *field.Path) (field.ErrorList, error) {
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	if ref.Kind == "WorkloadIdentity" {
		identity := &securityv1alpha1.WorkloadIdentity{}
		errs, err := get(ctx, reader, key, identity, ref.Kind, path)
		if typ := identity.Spec.TargetSystem.Type; errs == nil && err == nil && typ != localv1alpha1.Type {
			errs = append(errs, field.Invalid(path, key.String(), fmt.Sprintf("spec.targetSystem.type of the WorkloadIdentity is %q: refer to one of type %s", typ, localv1alpha1.Type)))
		}
		return errs, err
	}
	data, errs, err := dataOf(ctx, reader, ref, path)
	for _, problem := range checkCredentials(data, field.NewPath("data")) {
		errs = append(errs, field.Invalid(path, key.String(), fmt.Sprintf("%s of the %s: %s", problem.Field, ref.Kind, problem.Detail)))
	}
	return errs, err
}

// dataOf returns what is in a Secret or InternalSecret.
func dataOf(ctx context.Context, reader client.Reader, ref corev1.ObjectReference, path *field.Path) (map[string][]byte, field.ErrorList, error) {
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	switch ref.Kind {
	case "Secret":
		secret := &corev1.Secret{}
		missing, err := get(ctx, reader, key, secret, ref.Kind, path)
		return secret.Data, missing, err
	case "InternalSecret":
		secret := &gardencorev1beta1.InternalSecret{}
		missing, err := get(ctx, reader, key, secret, ref.Kind, path)
		return secret.Data, missing, err
	}
	return nil, nil, nil
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
		ref = secretReference(binding)
	}
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	data, _, err := dataOf(ctx, reader, ref, field.NewPath("spec", "credentialsBindingName"))
	return data[kubernetes.KubeConfig], err
}

// NewSeed returns the validator for Seeds of type local, and for Seeds whose backups are: there is nothing to configure,
// credentials of backups name a folder or none, and a local seed says where its nodes are, as machines reach load
// balancers and registries there.
//
// reader reads from the API server. Needed permissions: get on Secrets.
func NewSeed(reader client.Reader) extensionswebhook.Validator {
	return &validator[gardencorev1beta1.Seed]{func(ctx context.Context, seed, old *gardencorev1beta1.Seed) (field.ErrorList, error) {
		var (
			errs              field.ErrorList
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
			found, err := checkBackup(ctx, reader, backup, spec.Child("backup"))
			return append(errs, found...), err
		}
		return errs, nil
	}}
}

func checkBackup(ctx context.Context, reader client.Reader, backup *gardencorev1beta1.Backup, at *field.Path) (field.ErrorList, error) {
	errs := validation.Empty(backup.ProviderConfig, at.Child("providerConfig"))
	ref := backup.CredentialsRef
	if ref == nil {
		return errs, nil
	}
	at = at.Child("credentialsRef")
	data, missing, err := dataOf(ctx, reader, *ref, at)
	errs = append(errs, missing...)
	if value, ok := data[hostPathKey]; ok {
		if p := string(value); !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
			errs = append(errs, field.Invalid(at, ref.Namespace+"/"+ref.Name, fmt.Sprintf(
				"data[%s] of the Secret is no absolute path below /: write that of backup.hostPath in the values of the extension, or take it out", hostPathKey)))
		}
	}
	return errs, err
}
