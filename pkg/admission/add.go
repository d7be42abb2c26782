// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/upkeep"
)

// Name is the name of the deployment, its Service, its ServiceAccount in the garden runtime cluster and its registrations
// in the virtual garden, as charts/admission-local has it.
const Name = "gardener-extension-admission-local"

// Options are what the admission webhooks are run with.
type Options struct {
	// Runtime is the garden runtime cluster.
	Runtime *rest.Config
	// Namespace is that of the Service in the garden runtime cluster.
	Namespace string
	// ServicePort is the port of the Service.
	ServicePort int
	// CertificateNamespace is the namespace in the garden runtime cluster that has the certificates and nothing else.
	CertificateNamespace string
	// OwnerNamespace is the namespace in the virtual garden with which the registrations go.
	OwnerNamespace string
	// URL is HOST:PORT by which the virtual garden's API server reaches this program. Default: the Service.
	URL string
	// NodeCIDRs are ranges that Shoots may have for their nodes besides private ones.
	NodeCIDRs []string
	// Clock is the time. Default: the real one.
	Clock clock.Clock
	// Log is the logger.
	Log logr.Logger
}

func (o Options) validate() error {
	for what, namespace := range map[string]string{
		"of this program": o.Namespace, "of the certificates": o.CertificateNamespace, "that owns the registrations": o.OwnerNamespace,
	} {
		if namespace == "" {
			return fmt.Errorf("the namespace %s is missing", what)
		}
	}
	return nil
}

func (o Options) url() string {
	if o.URL != "" {
		return o.URL
	}
	return net.JoinHostPort(o.serviceNames()[0], strconv.Itoa(o.ServicePort))
}

func (o Options) serviceNames() []string {
	return []string{strings.Join([]string{Name, o.Namespace, "svc"}, "."), Name + "." + o.Namespace, Name}
}

// serverNames are the names and addresses by which API servers call.
func (o Options) serverNames() ([]string, []net.IP, error) {
	if o.URL == "" {
		return o.serviceNames(), nil, nil
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

// NewServer returns the server for the manager's options, and the certificates that it serves with. It has none yet.
func NewServer(log logr.Logger, bindAddress string, port int) (webhook.Server, *certificate.Store) {
	store := certificate.NewStore(log, clock.RealClock{})
	return webhook.NewServer(webhook.Options{
		Host: bindAddress,
		Port: port,
		TLSOpts: []func(*tls.Config){func(config *tls.Config) {
			config.MinVersion = tls.VersionTLS12
			config.GetCertificate = store.GetCertificate
		}},
	}), store
}

// AddToManager adds the webhooks to the server of a manager of the virtual garden, with a check for readiness, and what keeps
// certificates and registrations (on the leader).
//
// Needed permissions in the garden runtime cluster: get, list, watch, create, patch and delete on Secrets in
// CertificateNamespace. In the virtual garden: create on MutatingWebhookConfigurations and ValidatingWebhookConfigurations,
// and get, list, watch, patch on those of Name; get on the Namespace OwnerNamespace, on CloudProfiles,
// NamespacedCloudProfiles, Seeds, CredentialsBindings, SecretBindings, Secrets, InternalSecrets and WorkloadIdentities.
func AddToManager(mgr manager.Manager, store *certificate.Store, opts Options) error {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if err := opts.validate(); err != nil {
		return fmt.Errorf("admission webhooks: %w", err)
	}
	nodeRanges, err := configv1alpha1.ParseCIDRs(opts.NodeCIDRs)
	if err != nil {
		return fmt.Errorf("admission webhooks: nodeCIDRs: %w", err)
	}
	webhooks, err := newWebhooks(mgr, mgr.GetAPIReader(), nodeRanges...)
	if err != nil {
		return err
	}
	configs, err := newConfigs(mgr.GetClient(), webhooks, opts)
	if err != nil {
		return fmt.Errorf("admission webhooks: %w", err)
	}
	server := mgr.GetWebhookServer()
	for _, w := range webhooks {
		server.Register("/"+w.Path, limits.Handler(w.Webhook, maxBytes(w), timeoutSeconds*time.Second))
	}
	// A handshake with itself: the server listens, and it has a certificate.
	if err := mgr.AddReadyzCheck("webhook-server", server.StartedChecker()); err != nil {
		return err
	}

	registrar, err := newRegistrar(mgr, configs, opts)
	if err != nil {
		return fmt.Errorf("admission webhooks: %w", err)
	}
	if err := addCaches(mgr, store, registrar, opts); err != nil {
		return fmt.Errorf("admission webhooks: %w", err)
	}
	return mgr.Add(registrar)
}

// addCaches adds the caches by which all replicas follow the certificates and the leader learns of changes. They hold these
// Secrets and the two registrations and nothing else.
func addCaches(mgr manager.Manager, store *certificate.Store, registrar *registrar, opts Options) error {
	wake := registrar.loop.Handler()

	certificates, err := cache.New(opts.Runtime, cache.Options{
		Scheme:           mgr.GetScheme(),
		Mapper:           mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Secret{}: {
			Namespaces: map[string]cache.Config{opts.CertificateNamespace: {}},
			Label:      certificate.Selector(identity),
		}},
	})
	if err != nil {
		return err
	}
	ours := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, Name)}
	registrations, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient:       mgr.GetHTTPClient(),
		Scheme:           mgr.GetScheme(),
		Mapper:           mgr.GetRESTMapper(),
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&admissionregistrationv1.MutatingWebhookConfiguration{}: ours, &admissionregistrationv1.ValidatingWebhookConfiguration{}: ours,
		},
	})
	if err != nil {
		return err
	}

	return errors.Join(
		upkeep.Watch(certificates, &corev1.Secret{}, store, wake),
		upkeep.Watch(registrations, &admissionregistrationv1.MutatingWebhookConfiguration{}, wake),
		upkeep.Watch(registrations, &admissionregistrationv1.ValidatingWebhookConfiguration{}, wake),
		mgr.Add(upkeep.Runnable{Cache: certificates}),
		mgr.Add(upkeep.Runnable{Cache: registrations}),
	)
}
