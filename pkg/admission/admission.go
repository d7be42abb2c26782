// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package admission serves the admission webhooks of the virtual garden: operator-extension admission adds it to a manager.
// They check what of type local a CloudProfile, NamespacedCloudProfile, Shoot, Seed, binding, Secret or WorkloadIdentity
// says. The rules for what is in a providerConfig are in pkg/apis/local/validation.
//
// Two clusters are at work. Objects and registrations are in the virtual garden, to which the manager belongs; the program,
// its Lease and its certificates are in the garden runtime cluster, whose Service the virtual garden's API server calls.
//
// The webhooks fail closed: without them, what nobody can make a machine of would get in. They are narrow instead. Each is
// called for one kind only, and only for objects that Gardener has labelled as those of type local.
//
// Objects that are being deleted are let through, and so are those of other types and those whose spec does not change:
// nothing must be stuck because a rule is younger than an object. What cannot be decided for want of an answer from the API
// server is refused, and can be tried again.
//
// Package pkg/webhook serves and registers them. The certificates have a namespace of their own, so that the program may not
// read the Secrets of the namespace in which it runs: that is the one of the Garden.
package admission

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
)

const (
	// Name is the name of the deployment, its Service, its ServiceAccount in the garden runtime cluster and its registrations
	// in the virtual garden, as charts/admission-local has it.
	Name = "gardener-extension-admission-local"
	// LabelProvider is what Gardener's API server puts on objects of type local, whoever writes them.
	LabelProvider = v1beta1constants.LabelExtensionProviderTypePrefix + localv1alpha1.Type
	// LabelCredentials is what Gardener puts on Secrets that a binding of type local refers to.
	LabelCredentials = v1beta1constants.LabelShootProviderPrefix + localv1alpha1.Type

	// maxErrors is how many mistakes a user is told of at once. The text of an aggregate takes the square of their number.
	maxErrors = 50
)

// AddToManager adds the webhooks to a manager of the virtual garden. The options need no webhooks and no names, and their
// URL defaults to the Service: the virtual garden knows no Services of the garden runtime cluster. Shoots may have nodes in
// nodeRanges besides private ranges.
//
// Needed permissions beside those of webhook.AddToManager: get on CloudProfiles, NamespacedCloudProfiles, Seeds,
// CredentialsBindings, SecretBindings, Secrets, InternalSecrets and WorkloadIdentities of the virtual garden.
func AddToManager(mgr manager.Manager, opts webhook.Options, nodeRanges ...netip.Prefix) error {
	opts, err := complete(mgr, opts, nodeRanges...)
	if err != nil {
		return err
	}
	_, err = webhook.AddToManager(mgr, opts)
	return err
}

func complete(mgr manager.Manager, opts webhook.Options, nodeRanges ...netip.Prefix) (_ webhook.Options, err error) {
	opts.Name, opts.Identity = Name, Name
	if opts.URL == "" {
		opts.URL = net.JoinHostPort(Name+"."+opts.Namespace+".svc", strconv.Itoa(opts.ServicePort))
	}
	opts.Webhooks, err = newWebhooks(mgr, mgr.GetAPIReader(), nodeRanges...)
	return opts, err
}

// NewRESTMapper returns a mapper for all kinds that the webhooks and their registration need. They are known; whether Gardener's
// API server is up at the moment must not decide whether the webhooks are.
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
	for _, args := range []extensionswebhook.Args{
		validating("cloudprofiles", &gardencorev1beta1.CloudProfile{}, LabelProvider, NewCloudProfile()),
		validating("namespacedcloudprofiles", &gardencorev1beta1.NamespacedCloudProfile{}, LabelProvider, NewNamespacedCloudProfile(reader)),
		// A scheduler and a migration choose the Seed by the subresource.
		validating("shoots", &gardencorev1beta1.Shoot{}, LabelProvider, NewShoot(reader, nodeRanges...), "binding"),
		validating("seeds", &gardencorev1beta1.Seed{}, LabelProvider, NewSeed(reader)),
		validating("workloadidentities", &securityv1alpha1.WorkloadIdentity{}, LabelProvider, NewWorkloadIdentity()),
		validating("secrets", &corev1.Secret{}, LabelCredentials, NewSecret()),
		validating("internalsecrets", &gardencorev1beta1.InternalSecret{}, LabelCredentials, NewInternalSecret()),
		{
			Name:           "mutation.namespacedcloudprofiles",
			Path:           "mutate/namespacedcloudprofiles",
			ObjectSelector: labelled(LabelProvider),
			Mutators: map[extensionswebhook.Mutator][]extensionswebhook.Type{
				NewImageMerger(): {{Obj: &gardencorev1beta1.NamespacedCloudProfile{}, Subresource: new("status")}},
			},
		},
	} {
		args.Target = extensionswebhook.TargetSeed
		webhook, err := extensionswebhook.New(mgr, args)
		if err != nil {
			return nil, fmt.Errorf("making the webhook %s: %w", args.Name, err)
		}
		webhook.Webhook.Handler = limits.Quantities(webhook.Webhook.Handler,
			&gardencorev1beta1.CloudProfile{}, &gardencorev1beta1.NamespacedCloudProfile{}, &gardencorev1beta1.Shoot{}, &gardencorev1beta1.Seed{})
		webhooks = append(webhooks, webhook)
	}
	return webhooks, nil
}

func validating(resource string, obj client.Object, label string, validator extensionswebhook.Validator, subresources ...string) extensionswebhook.Args {
	types := []extensionswebhook.Type{{Obj: obj}}
	for _, subresource := range subresources {
		types = append(types, extensionswebhook.Type{Obj: obj, Subresource: &subresource})
	}
	return extensionswebhook.Args{
		Name:           "validation." + resource,
		Path:           "validate/" + resource,
		ObjectSelector: labelled(label),
		Validators:     map[extensionswebhook.Validator][]extensionswebhook.Type{validator: types},
	}
}

func labelled(label string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{label: "true"}}
}

// validator checks objects of type O.
type validator[O any] struct {
	// check returns what is wrong with an object. old is the object as it was, an empty one if it is being created. An error
	// means that it could not be found out.
	check func(ctx context.Context, obj, old *O) (field.ErrorList, error)
}

// Validate implements extensionswebhook.Validator. The library gives it nothing but objects of the type with which it is registered.
func (v *validator[O]) Validate(ctx context.Context, newObj, oldObj client.Object) error {
	if newObj.GetDeletionTimestamp() != nil {
		return nil
	}
	old := new(O)
	if oldObj != nil {
		old = any(oldObj).(*O)
	}
	errs, err := v.check(ctx, any(newObj).(*O), old)
	if err != nil {
		return err
	}
	if len(errs) > maxErrors {
		return fmt.Errorf("%w, and %d more", errs[:maxErrors].ToAggregate(), len(errs)-maxErrors)
	}
	return errs.ToAggregate()
}
