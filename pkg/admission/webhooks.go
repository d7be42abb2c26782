// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"fmt"
	"net/netip"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/admission/mutator"
	"github.com/gardener/gardener-extension-provider-local/pkg/admission/validator"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
)

const (
	// LabelProvider is what Gardener's API server puts on objects of type local, whoever writes them.
	LabelProvider = v1beta1constants.LabelExtensionProviderTypePrefix + localv1alpha1.Type
	// LabelCredentials is what Gardener puts on Secrets that a binding of type local refers to.
	LabelCredentials = v1beta1constants.LabelShootProviderPrefix + localv1alpha1.Type
)

// AddToScheme adds all kinds that the webhooks and their registration need.
func AddToScheme(scheme *runtime.Scheme) error {
	builder := runtime.NewSchemeBuilder(corev1.AddToScheme, admissionregistrationv1.AddToScheme, gardencorev1beta1.AddToScheme, securityv1alpha1.AddToScheme)
	return builder.AddToScheme(scheme)
}

// NewRESTMapper returns a mapper for these kinds. They are known; whether Gardener's API server is up at the moment must not
// decide whether the webhooks are.
func NewRESTMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{
		corev1.SchemeGroupVersion, admissionregistrationv1.SchemeGroupVersion, gardencorev1beta1.SchemeGroupVersion, securityv1alpha1.SchemeGroupVersion,
	})
	for _, known := range []struct {
		version schema.GroupVersion
		scope   meta.RESTScope
		kinds   []string
	}{
		{corev1.SchemeGroupVersion, meta.RESTScopeRoot, []string{"Namespace"}},
		{corev1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"Secret"}},
		{admissionregistrationv1.SchemeGroupVersion, meta.RESTScopeRoot, []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}},
		{gardencorev1beta1.SchemeGroupVersion, meta.RESTScopeRoot, []string{"CloudProfile", "Seed"}},
		{gardencorev1beta1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"InternalSecret", "NamespacedCloudProfile", "SecretBinding", "Shoot"}},
		{securityv1alpha1.SchemeGroupVersion, meta.RESTScopeNamespace, []string{"CredentialsBinding", "WorkloadIdentity"}},
	} {
		for _, kind := range known.kinds {
			mapper.Add(known.version.WithKind(kind), known.scope)
		}
	}
	return mapper
}

// newWebhooks returns the webhooks in the order in which they are registered. reader reads from the API server: what a user
// has just created counts.
func newWebhooks(mgr manager.Manager, reader client.Reader, nodeRanges ...netip.Prefix) ([]*extensionswebhook.Webhook, error) {
	var webhooks []*extensionswebhook.Webhook
	for _, entry := range []struct {
		name      string
		object    client.Object
		label     string
		validator extensionswebhook.Validator
	}{
		{"cloudprofiles", &gardencorev1beta1.CloudProfile{}, LabelProvider, validator.NewCloudProfile()},
		{"namespacedcloudprofiles", &gardencorev1beta1.NamespacedCloudProfile{}, LabelProvider, validator.NewNamespacedCloudProfile(reader)},
		{"shoots", &gardencorev1beta1.Shoot{}, LabelProvider, validator.NewShoot(reader, nodeRanges...)},
		{"seeds", &gardencorev1beta1.Seed{}, LabelProvider, validator.NewSeed(reader)},
		{"credentialsbindings", &securityv1alpha1.CredentialsBinding{}, LabelProvider, validator.NewCredentialsBinding(reader)},
		{"secretbindings", &gardencorev1beta1.SecretBinding{}, LabelProvider, validator.NewSecretBinding(reader)},
		{"workloadidentities", &securityv1alpha1.WorkloadIdentity{}, LabelProvider, validator.NewWorkloadIdentity()},
		{"secrets", &corev1.Secret{}, LabelCredentials, validator.NewSecret()},
		{"internalsecrets", &gardencorev1beta1.InternalSecret{}, LabelCredentials, validator.NewInternalSecret()},
	} {
		webhook, err := extensionswebhook.New(mgr, extensionswebhook.Args{
			Name:           "validation." + entry.name,
			Path:           "validate/" + entry.name,
			Target:         extensionswebhook.TargetSeed,
			ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{entry.label: "true"}},
			Validators:     map[extensionswebhook.Validator][]extensionswebhook.Type{entry.validator: {{Obj: entry.object}}},
		})
		if err != nil {
			return nil, fmt.Errorf("making the webhook for %s: %w", entry.name, err)
		}
		webhooks = append(webhooks, webhook)
	}

	merge, err := extensionswebhook.New(mgr, extensionswebhook.Args{
		Name:           "mutation.namespacedcloudprofiles",
		Path:           "mutate/namespacedcloudprofiles",
		Target:         extensionswebhook.TargetSeed,
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{LabelProvider: "true"}},
		Mutators: map[extensionswebhook.Mutator][]extensionswebhook.Type{
			mutator.NewNamespacedCloudProfile(): {{Obj: &gardencorev1beta1.NamespacedCloudProfile{}, Subresource: new("status")}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the webhook that merges NamespacedCloudProfiles: %w", err)
	}
	webhooks = append(webhooks, merge)
	for _, webhook := range webhooks {
		webhook.Webhook.Handler = limits.Quantities(webhook.Webhook.Handler,
			&gardencorev1beta1.CloudProfile{}, &gardencorev1beta1.NamespacedCloudProfile{}, &gardencorev1beta1.Shoot{}, &gardencorev1beta1.Seed{})
	}
	return webhooks, nil
}
