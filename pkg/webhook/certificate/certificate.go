// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package certificate creates and rotates the certificates of a webhook server with Gardener's secrets manager, and hands
// the current one to every replica. Package webhook uses it.
//
// Gardener's own package extensions/pkg/webhook/certificates does not fit: it looks at all webhook configurations every five
// minutes, knows one URL for all shoots, and serves a certificate of a new CA before the shoots have learned of that CA.
//
// The API servers of the seed and of all shoots trust the caBundle in their webhook configuration. A change takes
// milliseconds to reach the seed, minutes to reach a shoot. So a rotation has three phases. The first two take a day each,
// counted from the creation of the new CA:
//
//  1. Old and new CA are trusted, the server keeps its certificate of the old CA.
//  2. The server has a certificate of the new CA. The old CA stays trusted for replicas that still serve the old one.
//  3. The old CA is deleted.
//
// All state is in the Secrets, so any replica can go on with a rotation. If the old CA expires before phase 2, because the
// leader was away, the server gets its new certificate at once.
package certificate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"
)

const (
	// Validity is how long the certificates of CA and server are valid. The secrets manager renews them 10 days earlier.
	Validity = 30 * 24 * time.Hour
	// Period is the longest time between two calls of Rotate.
	Period = time.Hour

	// phase is how long clients have to learn whom to trust, and replicas what to serve.
	phase = 24 * time.Hour

	caName     = "webhook-ca"
	bundleName = caName + "-bundle"
	serverName = "webhook-server"
)

// ErrNone means that the leader has not created a certificate yet. Check with errors.Is.
var ErrNone = errors.New("there is no certificate yet, the leader makes one")

// Authority creates and rotates the certificates of a webhook server. Only one replica at a time may use it.
//
// Needed permissions in the namespace: get, list, create, patch, delete on Secrets.
type Authority struct {
	// Client reads and writes Secrets. It must not read them from a cache.
	Client client.Client
	Log    logr.Logger
	// Identity tells the Secrets of this authority from others in the namespace. It is the value of a label.
	Identity string
	// Namespace is the namespace of the Secrets.
	Namespace string
	// DNSNames and IPAddresses are those of the server. At least one is needed.
	DNSNames    []string
	IPAddresses []net.IP
}

// Selector selects the Secrets of the authority with the given identity in its namespace.
func Selector(identity string) labels.Selector {
	return labels.SelectorFromSet(labels.Set{
		secretsmanager.LabelKeyManagedBy:       secretsmanager.LabelValueSecretsManager,
		secretsmanager.LabelKeyManagerIdentity: identity,
	})
}

// Rotate creates missing certificates, renews those that are due and continues a rotation. It calls publish with the CAs to
// trust (PEM), every time. Call it once per Period, when one of the Secrets changes, and with back-off after an error.
func (a *Authority) Rotate(ctx context.Context, publish func(ctx context.Context, bundle []byte) error) error {
	manager, err := a.manager(ctx, secretsmanager.WithCASecretAutoRotation())
	if err != nil {
		return err
	}
	ca, err := manager.Generate(ctx, &secretsutils.CertificateSecretConfig{
		Name:       caName,
		CommonName: caName,
		CertType:   secretsutils.CACert,
		Validity:   new(Validity),
	}, secretsmanager.Rotate(secretsmanager.KeepOld), secretsmanager.IgnoreOldSecretsAfter(2*phase))
	if err != nil {
		return fmt.Errorf("generating the CA of the webhooks: %w", err)
	}

	signer := secretsmanager.UseCurrentCA
	phase2 := timeOf(ca, secretsmanager.LabelKeyIssuedAtTime).Add(phase)
	if old, found := manager.Get(caName, secretsmanager.Old); found && secretsutils.Clock.Now().Before(phase2) &&
		phase2.Add(2*Period).Before(timeOf(old, secretsmanager.LabelKeyValidUntilTime)) {
		signer = secretsmanager.UseOldCA
	}
	if _, err := manager.Generate(ctx, &secretsutils.CertificateSecretConfig{
		Name:                        serverName,
		CommonName:                  serverName,
		DNSNames:                    a.DNSNames,
		IPAddresses:                 a.IPAddresses,
		CertType:                    secretsutils.ServerCert,
		Validity:                    new(Validity),
		SkipPublishingCACertificate: true,
	}, secretsmanager.SignedByCA(caName, signer)); err != nil {
		return fmt.Errorf("generating the server certificate of the webhooks: %w", err)
	}

	bundle, _ := manager.Get(caName, secretsmanager.Bundle)
	if err := publish(ctx, bundle.Data[secretsutils.DataKeyCertificateBundle]); err != nil {
		return fmt.Errorf("publishing the CA of the webhooks: %w", err)
	}
	if err := manager.Cleanup(ctx); err != nil {
		return fmt.Errorf("deleting old certificates of the webhooks: %w", err)
	}
	return nil
}

// Delete deletes all Secrets of the authority.
func (a *Authority) Delete(ctx context.Context) error {
	manager, err := a.manager(ctx, secretsmanager.WithoutAutomaticSecretRenewal())
	if err != nil {
		return err
	}
	// This manager has generated nothing, so all Secrets are stale.
	if err := manager.Cleanup(ctx); err != nil {
		return fmt.Errorf("deleting the certificates of the webhooks: %w", err)
	}
	return nil
}

func (a *Authority) manager(ctx context.Context, option secretsmanager.NewOption) (secretsmanager.Interface, error) {
	manager, err := secretsmanager.New(ctx, a.Log, secretsutils.Clock, a.Client, a.Identity, option, secretsmanager.WithNamespaces(a.Namespace))
	if err != nil {
		return nil, fmt.Errorf("making the secrets manager of the webhooks: %w", err)
	}
	return manager, nil
}

// timeOf returns the time that the secrets manager has noted in a label.
func timeOf(secret *corev1.Secret, label string) time.Time {
	seconds, _ := strconv.ParseInt(secret.Labels[label], 10, 64) // written by the secrets manager in the same call
	return time.Unix(seconds, 0)
}

// Store keeps the newest server certificate and CA bundle in memory. It is a handler for the events of an informer on the
// Secrets that Selector selects. Make it with NewStore.
type Store struct {
	toolscache.ResourceEventHandlerFuncs

	log     logr.Logger
	lock    sync.Mutex
	newest  map[string]*corev1.Secret
	serving atomic.Pointer[tls.Certificate]
}

// NewStore returns an empty Store.
func NewStore(log logr.Logger) *Store {
	store := &Store{log: log, newest: map[string]*corev1.Secret{}}
	// A certificate whose Secret is deleted is served until there is another one.
	store.AddFunc = store.add
	store.UpdateFunc = func(_, obj any) { store.add(obj) }
	return store
}

func (s *Store) add(obj any) {
	secret, ok := obj.(*corev1.Secret)
	if !ok {
		return
	}
	s.lock.Lock()
	defer s.lock.Unlock()

	name := secret.Labels[secretsmanager.LabelKeyName]
	before := s.newest[name]
	if before != nil && secret.CreationTimestamp.Before(&before.CreationTimestamp) {
		return
	}
	if name == serverName {
		certificate, err := tls.X509KeyPair(secret.Data[secretsutils.DataKeyCertificate], secret.Data[secretsutils.DataKeyPrivateKey])
		if err != nil {
			s.log.Error(err, "Ignoring a Secret without a certificate", "secret", secret.Name)
			return
		}
		s.serving.Store(&certificate)
		if before == nil || before.UID != secret.UID {
			s.log.Info("Serving a certificate", "secret", secret.Name, "notAfter", certificate.Leaf.NotAfter)
		}
	}
	s.newest[name] = secret
}

// GetCertificate is for tls.Config. It returns ErrNone if there is no certificate yet.
func (s *Store) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if certificate := s.serving.Load(); certificate != nil {
		return certificate, nil
	}
	return nil, ErrNone
}

// Ready is a check for readiness: it returns ErrNone if there is no certificate yet.
func (s *Store) Ready(*http.Request) error {
	_, err := s.GetCertificate(nil)
	return err
}

// Bundle returns the CAs that clients have to trust, as PEM, or nil if there are none yet.
func (s *Store) Bundle() []byte {
	s.lock.Lock()
	defer s.lock.Unlock()
	if bundle := s.newest[bundleName]; bundle != nil {
		return bundle.Data[secretsutils.DataKeyCertificateBundle]
	}
	return nil
}
