// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	"github.com/gardener/gardener/pkg/controllerutils"
	"github.com/gardener/gardener/pkg/utils"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
)

// registrar keeps the certificates, and what the clusters know of them, up to date. It is a reconciler of the leader.
type registrar struct {
	client    client.Client
	authority *certificate.Authority
	store     *certificate.Store
	// name is the name of the registration, and namespace the one that owns it.
	name, namespace string
	// configs are the registration of the cluster itself. If there are neither these nor webhooks for shoots, all is removed.
	configs extensionswebhook.Configs
	shoots  *ShootWebhooks
	// limiter lets the leader revert a change at once, but not fight with another program over it.
	limiter flowcontrol.RateLimiter

	announced sync.Once
}

// newRegistrar needs clients that do not cache: one of the cluster itself, and one of that with the certificates.
func newRegistrar(target, certificates client.Client, opts Options) (*registrar, error) {
	dnsNames, addresses, err := opts.serverNames()
	if err != nil {
		return nil, err
	}
	configs, shoot, err := NewConfigs(target, opts)
	if err != nil {
		return nil, err
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	store := certificate.NewStore(opts.Log)
	return &registrar{
		client: target,
		authority: &certificate.Authority{
			Client:      certificates,
			Clock:       opts.Clock,
			Log:         opts.Log,
			Identity:    opts.Identity,
			Namespace:   opts.CertificateNamespace,
			DNSNames:    dnsNames,
			IPAddresses: addresses,
		},
		store:     store,
		name:      opts.Name,
		namespace: opts.OwnerNamespace,
		configs:   configs,
		shoots:    newShootWebhooks(shoot.MutatingWebhookConfig, opts.Resources, target, store.Bundle),
		limiter:   flowcontrol.NewTokenBucketRateLimiter(1, 10),
	}, nil
}

// addToManager adds a controller that reconciles at the start, when a watch tells of a change, and once per period.
func (r *registrar) addToManager(mgr manager.Manager, watches ...source.Source) error {
	c, err := controller.New("webhooks", mgr, controller.Options{
		Reconciler:         r,
		RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, 5*time.Minute),
		SkipNameValidation: new(true), // tests run several instances in one process
	})
	if err != nil {
		return err
	}
	for _, watch := range append(watches, controllerutils.EnqueueOnce) {
		if err := c.Watch(watch); err != nil {
			return err
		}
	}
	return nil
}

// enqueue maps all events to the one request of the registrar.
func enqueue() handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(context.Context, client.Object) []reconcile.Request { return []reconcile.Request{{}} })
}

// Reconcile implements reconcile.Reconciler.
func (r *registrar) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if err := r.limiter.Wait(ctx); err != nil {
		return reconcile.Result{}, err
	}
	if !r.configs.HasWebhookConfig() && r.shoots.config == nil {
		return reconcile.Result{}, errors.Join(r.publish(ctx, nil), r.authority.Delete(ctx))
	}
	if err := r.authority.Rotate(ctx, r.publish); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: certificate.Period}, nil
}

// publish tells all clusters whom to trust.
func (r *registrar) publish(ctx context.Context, bundle []byte) error {
	err := r.register(ctx, bundle)
	if err == nil && (bundle == nil || r.store.Ready(nil) == nil) {
		r.announced.Do(func() { close(r.shoots.registered) })
	}
	return errors.Join(err, r.shoots.update(ctx, bundle))
}

func (r *registrar) register(ctx context.Context, bundle []byte) error {
	if r.configs.MutatingWebhookConfig == nil {
		config := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: r.name}}
		if err := client.IgnoreNotFound(r.client.Delete(ctx, config)); err != nil {
			return fmt.Errorf("deleting MutatingWebhookConfiguration %s: %w", r.name, err)
		}
	}
	if !r.configs.HasWebhookConfig() {
		return nil
	}

	// A registration that outlived its program would have the API server call a server that is gone.
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.client.Get(ctx, client.ObjectKey{Name: r.namespace}, namespace); err != nil {
		return fmt.Errorf("reading the namespace %s, which owns the registration: %w", r.namespace, err)
	}
	owner := metav1.NewControllerRef(namespace, namespace.GroupVersionKind())
	owner.BlockOwnerDeletion = new(false)

	var errs []error
	for _, want := range r.configs.GetWebhookConfigs() {
		var current client.Object = &admissionregistrationv1.MutatingWebhookConfiguration{}
		if want == client.Object(r.configs.ValidatingWebhookConfig) {
			current = &admissionregistrationv1.ValidatingWebhookConfiguration{}
		}
		current.SetName(want.GetName())
		if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, r.client, current, func() error {
			current.SetLabels(utils.MergeStringMaps(current.GetLabels(), want.GetLabels()))
			current.SetOwnerReferences([]metav1.OwnerReference{*owner})
			return errors.Join(extensionswebhook.OverwriteWebhooks(current, want), extensionswebhook.InjectCABundleIntoWebhookConfig(current, bundle))
		}, controllerutils.SkipEmptyPatch{}); err != nil {
			errs = append(errs, fmt.Errorf("writing the webhook configuration %s: %w", want.GetName(), err))
		}
	}
	return errors.Join(errs...)
}

// NewConfigs returns the registrations for the cluster itself and for shoots. All fields that an API server would default
// are set, so that a comparison with the API server's version reports whether it was changed. The URLs for shoots lack the
// shoot's namespace.
func NewConfigs(c client.Client, opts Options) (seed, shoot extensionswebhook.Configs, err error) {
	mode := extensionswebhook.ModeService
	if opts.URL != "" {
		mode = extensionswebhook.ModeURL
	}
	seed, shoot, err = extensionswebhook.BuildWebhookConfigs(opts.Webhooks, c, opts.Namespace, opts.Name, true, opts.ServicePort, mode, opts.URL, nil, false)
	if err != nil {
		return seed, shoot, err
	}

	complete := func(matchPolicy **admissionregistrationv1.MatchPolicyType, namespaces, objects **metav1.LabelSelector, rules []admissionregistrationv1.RuleWithOperations) {
		// An object may be written in any version of its API. The server gets it in the one that it asked for.
		*matchPolicy = new(admissionregistrationv1.Equivalent)
		*namespaces = ptr.To(ptr.Deref(*namespaces, metav1.LabelSelector{}))
		*objects = ptr.To(ptr.Deref(*objects, metav1.LabelSelector{}))
		for i := range rules {
			rules[i].Scope = new(admissionregistrationv1.AllScopes)
		}
	}
	for _, configs := range []extensionswebhook.Configs{seed, shoot} {
		if configs.MutatingWebhookConfig != nil {
			for i := range configs.MutatingWebhookConfig.Webhooks {
				w := &configs.MutatingWebhookConfig.Webhooks[i]
				complete(&w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, w.Rules)
				// The mutators can be asked twice, so the outcome does not depend on the order of webhooks.
				w.ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy)
			}
		}
		if configs.ValidatingWebhookConfig != nil {
			for i := range configs.ValidatingWebhookConfig.Webhooks {
				w := &configs.ValidatingWebhookConfig.Webhooks[i]
				complete(&w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, w.Rules)
			}
		}
	}
	return seed, shoot, nil
}
