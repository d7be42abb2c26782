// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package validator

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"
	"github.com/gardener/gardener/pkg/client/kubernetes"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/apis/local/validation"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
)

// hostPathKey is the key of a Secret for backups that says where the buckets are.
const hostPathKey = "hostPath"

// NewSecret returns the validator for Secrets that bindings of type local refer to; Gardener labels them. A kubeconfig in
// one tells where machines are: it must be usable, and it must not lead to another API server later.
func NewSecret() extensionswebhook.Validator {
	return &rules[*corev1.Secret]{check: func(_ context.Context, secret, old *corev1.Secret) (field.ErrorList, error) {
		var before map[string][]byte
		if old != nil {
			before = old.Data
		}
		return checkChangedData(secret.Data, before, old != nil), nil
	}}
}

// NewInternalSecret returns the validator for InternalSecrets that bindings of type local refer to, with the rules for
// Secrets.
func NewInternalSecret() extensionswebhook.Validator {
	return &rules[*gardencorev1beta1.InternalSecret]{check: func(_ context.Context, secret, old *gardencorev1beta1.InternalSecret) (field.ErrorList, error) {
		var before map[string][]byte
		if old != nil {
			before = old.Data
		}
		return checkChangedData(secret.Data, before, old != nil), nil
	}}
}

func checkChangedData(data, before map[string][]byte, update bool) field.ErrorList {
	if update && equality.Semantic.DeepEqual(data, before) {
		return nil
	}
	path := field.NewPath("data")
	errs := checkCredentials(data, path)
	if len(errs) == 0 && update {
		errs = append(errs, checkSameServer(data, before, path)...)
	}
	return errs
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
		case strings.EqualFold(strings.NewReplacer("-", "", "_", "", ".", "").Replace(key), kubernetes.KubeConfig):
			errs = append(errs, field.Forbidden(path.Key(key), "it would not be looked at: call it "+kubernetes.KubeConfig+", or take it out if machines are to be in the seed"))
		}
	}
	return errs
}

// checkSameServer refuses a kubeconfig of another cluster: nobody would ever find the machines in the first one again.
func checkSameServer(data, before map[string][]byte, path *field.Path) field.ErrorList {
	now, err := cluster.Parse(data[kubernetes.KubeConfig])
	if err != nil {
		return nil // There is none, or there was none that could be used.
	}
	was, err := cluster.Parse(before[kubernetes.KubeConfig])
	if err != nil || was.Host == now.Host {
		return nil
	}
	return field.ErrorList{field.Forbidden(path.Key(kubernetes.KubeConfig),
		"its server must stay the same, as machines of shoots may be there: make another Secret and another binding for another cluster")}
}

// NewWorkloadIdentity returns the validator for WorkloadIdentities of type local, which have nothing to configure.
func NewWorkloadIdentity() extensionswebhook.Validator {
	return &rules[*securityv1alpha1.WorkloadIdentity]{check: func(_ context.Context, identity, old *securityv1alpha1.WorkloadIdentity) (field.ErrorList, error) {
		if identity.Spec.TargetSystem.Type != localv1alpha1.Type || old != nil && equality.Semantic.DeepEqual(identity.Spec, old.Spec) {
			return nil, nil
		}
		return validation.Empty(identity.Spec.TargetSystem.ProviderConfig, field.NewPath("spec", "targetSystem", "providerConfig")), nil
	}}
}

// credentials finds what bindings refer to.
type credentials struct {
	reader client.Reader
}

// NewCredentialsBinding returns the validator for CredentialsBindings of type local: the Secret must be one that machines
// can use. From then on Gardener labels the Secret, so that NewSecret checks it.
//
// reader reads from the API server. Needed permissions: get on Secrets, InternalSecrets and WorkloadIdentities.
func NewCredentialsBinding(reader client.Reader) extensionswebhook.Validator {
	v := &credentials{reader: reader}
	return &rules[*securityv1alpha1.CredentialsBinding]{check: func(ctx context.Context, binding, old *securityv1alpha1.CredentialsBinding) (field.ErrorList, error) {
		if binding.Provider.Type != localv1alpha1.Type || old != nil && equality.Semantic.DeepEqual(binding.CredentialsRef, old.CredentialsRef) {
			return nil, nil
		}
		return v.checkReference(ctx, binding.CredentialsRef, field.NewPath("credentialsRef"))
	}}
}

// NewSecretBinding returns the validator for SecretBindings of type local, with the rules for CredentialsBindings.
//
// reader reads from the API server. Needed permissions: get on Secrets.
func NewSecretBinding(reader client.Reader) extensionswebhook.Validator {
	v := &credentials{reader: reader}
	return &rules[*gardencorev1beta1.SecretBinding]{check: func(ctx context.Context, binding, old *gardencorev1beta1.SecretBinding) (field.ErrorList, error) {
		if !v1beta1helper.SecretBindingHasType(binding, localv1alpha1.Type) || old != nil && equality.Semantic.DeepEqual(binding.SecretRef, old.SecretRef) {
			return nil, nil
		}
		return v.checkReference(ctx, secretReference(binding), field.NewPath("secretRef"))
	}}
}

func secretReference(binding *gardencorev1beta1.SecretBinding) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: binding.SecretRef.Namespace, Name: binding.SecretRef.Name}
}

func (c *credentials) checkReference(ctx context.Context, ref corev1.ObjectReference, path *field.Path) (field.ErrorList, error) {
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	if ref.Kind == "WorkloadIdentity" {
		identity := &securityv1alpha1.WorkloadIdentity{}
		missing, err := get(ctx, c.reader, key, identity, ref.Kind, path)
		if missing == nil && err == nil && identity.Spec.TargetSystem.Type != localv1alpha1.Type {
			missing = field.Invalid(path, key.String(), fmt.Sprintf("spec.targetSystem.type of the WorkloadIdentity is %q: refer to one of type %s", identity.Spec.TargetSystem.Type, localv1alpha1.Type))
		}
		return appendOne(nil, missing), err
	}
	data, missing, err := c.data(ctx, ref, path)
	if missing != nil || err != nil {
		return appendOne(nil, missing), err
	}
	var errs field.ErrorList
	for _, problem := range checkCredentials(data, field.NewPath("data")) {
		errs = append(errs, field.Invalid(path, key.String(), fmt.Sprintf("%s of the %s: %s", problem.Field, ref.Kind, problem.Detail)))
	}
	return errs, nil
}

// data returns what is in a Secret or InternalSecret.
func (c *credentials) data(ctx context.Context, ref corev1.ObjectReference, path *field.Path) (map[string][]byte, *field.Error, error) {
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	switch ref.Kind {
	case "Secret":
		secret := &corev1.Secret{}
		missing, err := get(ctx, c.reader, key, secret, ref.Kind, path)
		return secret.Data, missing, err
	case "InternalSecret":
		secret := &gardencorev1beta1.InternalSecret{}
		missing, err := get(ctx, c.reader, key, secret, ref.Kind, path)
		return secret.Data, missing, err
	}
	return nil, nil, nil
}

// leadElsewhere reports whether the credentials of a shoot lead to another cluster than its seed.
func (c *credentials) leadElsewhere(ctx context.Context, shoot *gardencorev1beta1.Shoot) (bool, error) {
	var ref corev1.ObjectReference
	switch {
	case shoot.Spec.CredentialsBindingName != nil:
		binding := &securityv1alpha1.CredentialsBinding{}
		if err := c.reader.Get(ctx, client.ObjectKey{Namespace: shoot.Namespace, Name: *shoot.Spec.CredentialsBindingName}, binding); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		ref = binding.CredentialsRef
	case shoot.Spec.SecretBindingName != nil:
		binding := &gardencorev1beta1.SecretBinding{}
		if err := c.reader.Get(ctx, client.ObjectKey{Namespace: shoot.Namespace, Name: *shoot.Spec.SecretBindingName}, binding); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		ref = secretReference(binding)
	}
	data, missing, err := c.data(ctx, ref, field.NewPath("spec", "credentialsBindingName"))
	if missing != nil || apierrors.IsNotFound(err) {
		return false, nil
	}
	_, ok := data[kubernetes.KubeConfig]
	return ok, err
}

// checkHostPath checks the data of a Secret for backups.
func checkHostPath(data map[string][]byte) string {
	value, ok := data[hostPathKey]
	if !ok {
		return ""
	}
	if p := string(value); !path.IsAbs(p) || path.Clean(p) != p || p == "/" {
		return fmt.Sprintf("data[%s] of the Secret is no absolute path below /: write that of backup.hostPath in the values of the extension, or take it out", hostPathKey)
	}
	return ""
}
