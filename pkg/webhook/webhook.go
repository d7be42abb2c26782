// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package webhook serves webhooks, creates their certificates, and registers them: those of the seed instance in the seed and
// in all shoots, those of the admission in the virtual garden. The mutators are in packages below it, the validators in
// package admission.
//
// All replicas serve, the leader alone writes. It keeps a certificate authority in Secrets and registers it as the caBundle
// of every webhook. Replicas follow these Secrets by a watch and hold the serving certificate in memory, so a new one serves
// at once. Package certificate explains the rotation.
//
// A webhook may be down, or not yet up, at any time, and a seed must never wait for this extension to start. So the webhooks of the
// seed instance have failure policy Ignore, but for those that see nothing in the namespaces kube-system and garden.
package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/keymutex"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	"github.com/gardener/gardener/pkg/utils"
	"github.com/gardener/gardener/pkg/utils/flow"

	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
)

const (
	// ManagedResourceName is the name of the ManagedResource with the registration in a shoot. Gardener's documentation of
	// provider-local names it.
	ManagedResourceName = "extension-controlplane-shoot-webhooks"

	// concurrentUpdates is how many shoots are updated at a time when the CA changes.
	concurrentUpdates = 10
	// touchPeriod is the time between two touches. A write that went past the webhooks is mended within it.
	touchPeriod = 5 * time.Minute
)

// Options are the options of AddToManager.
type Options struct {
	// Webhooks are the webhooks to serve. If there are none, the registration of an earlier run is removed. The failure
	// policy defaults to Fail (in shoots: Ignore), the timeout to 10 seconds, as in Gardener's library.
	Webhooks []*extensionswebhook.Webhook
	// Name is the name of the Service and of the registration; that in shoots has the suffix "-shoot".
	Name string
	// Namespace is the namespace of the Service.
	Namespace string
	// OwnerNamespace is the namespace that owns the registration: it is deleted with it.
	OwnerNamespace string
	// BindAddress and Port are what the server listens on.
	BindAddress string
	Port        int
	// ServicePort is the port of the Service.
	ServicePort int
	// URL is the HOST:PORT that API servers call. Default: the Service.
	URL string
	// Certificates is the cluster that holds the certificates. Default: that of the manager.
	Certificates *rest.Config
	// CertificateNamespace is the namespace of the certificates, and Identity tells them from other Secrets in it.
	CertificateNamespace, Identity string
	// NewInformer makes the informers of the certificates and the registration. Default: client-go's.
	NewInformer func(toolscache.ListerWatcher, runtime.Object, time.Duration, toolscache.Indexers) toolscache.SharedIndexInformer
	// Resources writes the ManagedResources of shoots. Without it there are no webhooks for shoots.
	Resources *resources.Writer
	// Log is the logger.
	Log logr.Logger
}

// serverNames returns the names and addresses that API servers call.
func (o Options) serverNames() ([]string, []net.IP, error) {
	if o.URL == "" {
		return []string{o.Name + "." + o.Namespace + ".svc", o.Name + "." + o.Namespace, o.Name}, nil, nil
	}
	host, _, err := net.SplitHostPort(o.URL)
	if err != nil {
		return nil, nil, fmt.Errorf("the URL of the webhooks is not HOST:PORT: %w", err)
	}
	if address := net.ParseIP(host); address != nil {
		return nil, []net.IP{address}, nil
	}
	return []string{host}, nil, nil
}

// AddToManager adds the webhook server, which runs on all replicas, and the controller that keeps certificates and
// registrations, which runs on the leader.
//
// Needed permissions:
//   - in CertificateNamespace: get, list, watch, create, patch, delete on Secrets;
//   - get on the Namespace OwnerNamespace;
//   - MutatingWebhookConfigurations: create; get, list, watch, patch, delete on the one of the instance's name;
//     the same for ValidatingWebhookConfigurations if there are validating webhooks;
//   - with Resources: list on ManagedResources, and get, create, patch, delete on them and on Secrets in the namespaces of
//     shoots, as package resources needs them.
func AddToManager(mgr manager.Manager, opts Options) (_ *ShootWebhooks, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("webhooks: %w", err)
		}
	}()
	target, err := newCluster(mgr, nil, opts)
	if err != nil {
		return nil, err
	}
	certificates, err := newCluster(mgr, opts.Certificates, opts)
	if err != nil {
		return nil, err
	}
	registrar, err := newRegistrar(target.GetClient(), certificates.GetClient(), opts)
	if err != nil {
		return nil, err
	}
	if len(opts.Webhooks) == 0 {
		return registrar.shoots, registrar.addToManager(mgr)
	}

	// All replicas follow the certificates, the leader follows the registration.
	secrets, err := certificates.GetCache().GetInformer(context.Background(), &corev1.Secret{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, err
	}
	if _, err := secrets.AddEventHandler(registrar.store); err != nil {
		return nil, err
	}
	watches := []source.Source{source.Kind[client.Object](certificates.GetCache(), &corev1.Secret{}, controllerutils.EnqueueAnonymously)}
	for _, config := range registrar.configs.GetWebhookConfigs() {
		watches = append(watches, source.Kind(target.GetCache(), config, controllerutils.EnqueueAnonymously))
	}
	handler, err := newHandler(opts.Webhooks, opts.Log)
	if err != nil {
		return nil, err
	}
	return registrar.shoots, errors.Join(
		mgr.Add(certificates),
		mgr.Add(target),
		mgr.Add(newServer(opts, handler, registrar.store)),
		mgr.AddReadyzCheck("webhook-server", registrar.store.Ready),
		registrar.addToManager(mgr, watches...),
	)
}

// newCluster returns a cluster whose cache holds nothing but the certificates and the registration, and whose client does not
// read from the cache: decisions about certificates need the current state. Without config it is that of the manager.
func newCluster(mgr manager.Manager, config *rest.Config, opts Options) (cluster.Cluster, error) {
	var httpClient *http.Client
	if config == nil {
		config, httpClient = mgr.GetConfig(), mgr.GetHTTPClient()
	}
	byName := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, opts.Name)}
	return cluster.New(config, func(o *cluster.Options) {
		o.HTTPClient = httpClient
		o.Scheme = mgr.GetScheme()
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mgr.GetRESTMapper(), nil }
		o.Cache.NewInformer = opts.NewInformer
		o.Cache.DefaultTransform = cache.TransformStripManagedFields()
		o.Cache.ByObject = map[client.Object]cache.ByObject{
			&corev1.Secret{}: {
				Namespaces: map[string]cache.Config{opts.CertificateNamespace: {}},
				Label:      certificate.Selector(opts.Identity),
			},
			&admissionregistrationv1.MutatingWebhookConfiguration{}:   byName,
			&admissionregistrationv1.ValidatingWebhookConfiguration{}: byName,
		}
		o.NewClient = func(config *rest.Config, options client.Options) (client.Client, error) {
			options.Cache = nil
			return client.New(config, options)
		}
	})
}

// AddTouchToManager adds a controller that touches objects when the source says so and every few minutes. To touch an object is
// to send an empty patch, which changes nothing by itself, but has the API server ask the webhooks: one that is ignored while it
// cannot be reached may miss any write, by a timeout as well, and neither the API server nor the writer tells. After an error, it
// is tried again earlier.
func AddTouchToManager(mgr manager.Manager, name string, when source.Source, touch func(context.Context) error) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, touchPeriod)
	return builder.ControllerManagedBy(mgr).
		Named(name).
		WithOptions(controller.Options{RateLimiter: limiter}).
		WatchesRawSource(when).
		Complete(reconcile.Func(func(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
			if err := touch(ctx); err != nil {
				return reconcile.Result{}, err
			}
			return reconcile.Result{RequeueAfter: touchPeriod}, nil
		}))
}

// registrar keeps the certificates, and what the clusters know of them, up to date. It is a reconciler of the leader.
type registrar struct {
	client    client.Client
	authority *certificate.Authority
	store     *certificate.Store
	opts      Options
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
	store := certificate.NewStore(opts.Log)
	return &registrar{
		client: target,
		authority: &certificate.Authority{
			Client:      certificates,
			Log:         opts.Log,
			Identity:    opts.Identity,
			Namespace:   opts.CertificateNamespace,
			DNSNames:    dnsNames,
			IPAddresses: addresses,
		},
		store:   store,
		opts:    opts,
		configs: configs,
		shoots: &ShootWebhooks{
			config:     shoot.MutatingWebhookConfig,
			writer:     opts.Resources,
			client:     target,
			observed:   store.Bundle,
			registered: make(chan struct{}),
			locks:      keymutex.NewHashed(256),
		},
		limiter: flowcontrol.NewTokenBucketRateLimiter(1, 10),
	}, nil
}

// addToManager adds a controller that reconciles at the start, when a watch tells of a change, and once per period.
func (r *registrar) addToManager(mgr manager.Manager, watches ...source.Source) error {
	b := builder.ControllerManagedBy(mgr).Named("webhooks").WithOptions(controller.Options{
		RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Second, 5*time.Minute),
		SkipNameValidation: new(true), // tests run several instances in one process
	})
	for _, watch := range append(watches, controllerutils.EnqueueOnce) {
		b.WatchesRawSource(watch)
	}
	return b.Complete(r)
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
		config := &admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: r.opts.Name}}
		if err := client.IgnoreNotFound(r.client.Delete(ctx, config)); err != nil {
			return fmt.Errorf("deleting MutatingWebhookConfiguration %s: %w", r.opts.Name, err)
		}
	}
	if !r.configs.HasWebhookConfig() {
		return nil
	}

	// A registration that outlived its program would have the API server call a server that is gone.
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	if err := r.client.Get(ctx, client.ObjectKey{Name: r.opts.OwnerNamespace}, namespace); err != nil {
		return fmt.Errorf("reading the namespace %s, which owns the registration: %w", r.opts.OwnerNamespace, err)
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
		mutating := ptr.Deref(configs.MutatingWebhookConfig, admissionregistrationv1.MutatingWebhookConfiguration{}).Webhooks
		for i := range mutating {
			w := &mutating[i]
			complete(&w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, w.Rules)
			// The mutators can be asked twice, so the outcome does not depend on the order of webhooks.
			w.ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy)
		}
		validating := ptr.Deref(configs.ValidatingWebhookConfig, admissionregistrationv1.ValidatingWebhookConfiguration{}).Webhooks
		for i := range validating {
			w := &validating[i]
			complete(&w.MatchPolicy, &w.NamespaceSelector, &w.ObjectSelector, w.Rules)
		}
	}
	return seed, shoot, nil
}

// ShootWebhooks registers the webhooks for shoots in shoots, by a ManagedResource in each shoot's namespace. The URL of a
// webhook there is "https://NAME.NAMESPACE:PORT/PATH/SHOOT-NAMESPACE".
//
// Its methods are for controllers, that is, for the leader. They may be called concurrently.
type ShootWebhooks struct {
	// config is what to register, nil if there is nothing.
	config *admissionregistrationv1.MutatingWebhookConfiguration
	writer *resources.Writer
	// client does not cache.
	client client.Client
	// observed returns the certificates to trust as the Secrets tell; published are those that the leader has told clients.
	// A new leader uses the first until it has looked at the Secrets itself.
	observed   func() []byte
	published  atomic.Pointer[[]byte]
	registered chan struct{}
	// locks are one per namespace, so that an update doesn't bring back what is deleted meanwhile.
	locks keymutex.KeyMutex
	// updated is the bundle with which all shoots were updated last. Only update uses it.
	updated []byte
}

// Registered is closed when this replica is the leader, the registration in the cluster itself is up to date, and this
// replica has a certificate. The Service may still take the time of a readiness probe to route requests to the replica.
func (s *ShootWebhooks) Registered() <-chan struct{} {
	return s.registered
}

// Apply registers the webhooks in the shoot whose namespace in the seed is given: it writes the ManagedResource and does
// not wait until it is applied. When the CA changes later, all ManagedResources are updated without another call. If the
// instance has no webhooks for shoots, it removes what an earlier one has registered.
//
// The error is or wraps certificate.ErrNone as long as there is no CA, which is for a moment after the very first start:
// just call it again. Otherwise it is one of resources.Writer.Apply.
func (s *ShootWebhooks) Apply(ctx context.Context, namespace string) error {
	if s.config == nil {
		_, err := s.Delete(ctx, namespace)
		return err
	}

	s.locks.LockKey(namespace)
	defer func() { _ = s.locks.UnlockKey(namespace) }()
	return s.write(ctx, namespace)
}

// Delete removes the registration from the shoot and reports whether it is gone. It is not as long as
// gardener-resource-manager deletes it; call it again when a watch tells that the ManagedResource was deleted.
func (s *ShootWebhooks) Delete(ctx context.Context, namespace string) (bool, error) {
	s.locks.LockKey(namespace)
	defer func() { _ = s.locks.UnlockKey(namespace) }()
	return s.writer.Delete(ctx, client.ObjectKey{Namespace: namespace, Name: ManagedResourceName})
}

// write writes the ManagedResource, and once more if the CA has changed meanwhile: the update of all shoots may have come
// too early to find it.
func (s *ShootWebhooks) write(ctx context.Context, namespace string) error {
	for {
		bundle := s.bundle()
		if len(bundle) == 0 {
			return fmt.Errorf("registering webhooks for shoot %s: %w", namespace, certificate.ErrNone)
		}

		config := s.config.DeepCopy()
		for i := range config.Webhooks {
			config.Webhooks[i].ClientConfig.CABundle = bundle
			config.Webhooks[i].ClientConfig.URL = new(*config.Webhooks[i].ClientConfig.URL + "/" + namespace)
		}
		if err := s.writer.Apply(ctx, resources.ManagedResource{
			Namespace: namespace,
			Name:      ManagedResourceName,
			Objects:   []client.Object{config},
		}); err != nil {
			return fmt.Errorf("registering webhooks for shoot %s: %w", namespace, err)
		}

		if bytes.Equal(bundle, s.bundle()) {
			return nil
		}
	}
}

func (s *ShootWebhooks) bundle() []byte {
	if published := s.published.Load(); published != nil {
		return *published
	}
	return s.observed()
}

// update makes all shoots that have the webhooks trust the bundle, or removes the webhooks from them if there are none
// any more. It does nothing if all shoots are up to date. The error is of all shoots that could not be updated.
func (s *ShootWebhooks) update(ctx context.Context, bundle []byte) error {
	if s.writer == nil || s.updated != nil && bytes.Equal(s.updated, bundle) {
		return nil
	}
	s.published.Store(&bundle)

	// Not from a cache: what Apply has written just now may not be there yet.
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(resourcesv1alpha1.SchemeGroupVersion.WithKind("ManagedResourceList"))
	if err := s.client.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: ManagedResourceName}, client.MatchingLabels{resources.LabelOrigin: resources.Origin}); err != nil {
		return fmt.Errorf("listing shoots with webhooks: %w", err)
	}

	var updates []flow.TaskFn
	for _, item := range list.Items {
		if item.DeletionTimestamp == nil {
			updates = append(updates, func(ctx context.Context) error { return s.updateOne(ctx, item.Namespace) })
		}
	}
	if err := flow.ParallelN(concurrentUpdates, updates...)(ctx); err != nil {
		return err
	}
	s.updated = append([]byte{}, bundle...)
	return nil
}

func (s *ShootWebhooks) updateOne(ctx context.Context, namespace string) error {
	if s.config == nil {
		_, err := s.Delete(ctx, namespace)
		return err
	}

	s.locks.LockKey(namespace)
	defer func() { _ = s.locks.UnlockKey(namespace) }()

	mr := &metav1.PartialObjectMetadata{}
	mr.SetGroupVersionKind(resourcesv1alpha1.SchemeGroupVersion.WithKind("ManagedResource"))
	err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ManagedResourceName}, mr)
	if err == nil && mr.DeletionTimestamp == nil {
		err = s.write(ctx, namespace)
	}
	if errors.Is(err, resources.ErrDeleting) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // The ManagedResource or its namespace goes away.
	}
	if err != nil {
		return fmt.Errorf("updating ManagedResource %s/%s: %w", namespace, ManagedResourceName, err)
	}
	return nil
}
