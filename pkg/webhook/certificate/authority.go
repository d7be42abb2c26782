// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"
)

const (
	// AnnotationPublishedAt is on the Secret of an authority: since when all clients were told to trust it, in RFC 3339.
	AnnotationPublishedAt = "local.provider.extensions.gardener.cloud/published-at"

	// Validity is how long the certificates of authority and server are valid. They are renewed after two thirds of it,
	// since the secrets manager renews what is valid for less than 10 days.
	Validity = 30 * 24 * time.Hour

	// settle is how long clients have to learn whom to trust, and replicas what to serve.
	settle = 24 * time.Hour
	// margin is for how long a server certificate must still be good if it is to be kept.
	margin = 24 * time.Hour
	// maxWait bounds how long nothing is looked at. Timers stand still while the machine is suspended, and a landscape may
	// well be on somebody's laptop.
	maxWait = time.Hour

	caName     = "webhook-ca"
	bundleName = caName + "-bundle"
	serverName = "webhook-server"
)

// Options are what an Authority is made of.
type Options struct {
	// Client reads and writes Secrets. It must not read them from a cache.
	Client client.Client
	// Clock is the time. Certificates themselves take it from the variable Clock of Gardener's package secrets.
	Clock clock.Clock
	// Log is where it is told what is made and deleted.
	Log logr.Logger
	// Identity tells the Secrets of this authority from others in the namespace. It is the value of a label.
	Identity string
	// Namespace is where the Secrets are.
	Namespace string
	// DNSNames and IPAddresses are those of the server. At least one is needed.
	DNSNames    []string
	IPAddresses []net.IP
}

// Authority makes and rotates the certificates of a webhook server. Only one replica at a time may use it.
//
// Needed permissions in the namespace: get, list, create, patch, delete on Secrets.
type Authority struct {
	Options
}

// New returns an Authority.
func New(opts Options) (*Authority, error) {
	if len(opts.DNSNames)+len(opts.IPAddresses) == 0 {
		return nil, errors.New("a server certificate needs a name or an address")
	}
	return &Authority{Options: opts}, nil
}

// Selector selects the Secrets of the authority with the given identity in its namespace.
func Selector(identity string) labels.Selector {
	return labels.SelectorFromSet(selectorSet(identity))
}

func selectorSet(identity string) labels.Set {
	return labels.Set{
		secretsmanager.LabelKeyManagedBy:       secretsmanager.LabelValueSecretsManager,
		secretsmanager.LabelKeyManagerIdentity: identity,
	}
}

// Rotate makes what is missing, renews what is due, and goes on with a rotation that is under way. It calls publish with
// the certificates to trust (PEM), every time. As long as publish fails, the server keeps its certificate if it can.
//
// It returns when to call it again if no Secret changes before. After an error, call it again with a back-off.
func (a *Authority) Rotate(ctx context.Context, publish func(ctx context.Context, bundle []byte) error) (time.Time, error) {
	if err := a.deleteBroken(ctx); err != nil {
		return time.Time{}, err
	}
	manager, err := a.secretsManager(ctx)
	if err != nil {
		return time.Time{}, err
	}
	if _, err := manager.Generate(ctx, a.caConfig(), secretsmanager.Rotate(secretsmanager.KeepOld), secretsmanager.IgnoreOldSecretsAfter(2*settle)); err != nil {
		return time.Time{}, fmt.Errorf("generating the CA of the webhooks: %w", err)
	}
	inv, err := a.inventory(ctx)
	if err != nil {
		return time.Time{}, err
	}

	now := a.Clock.Now()
	if !inv.usable(now, a.names()) {
		// There is nothing to spare. Clients know the old authority best, if it will do.
		signer := secretsmanager.UseCurrentCA
		if len(inv.cas) > 1 && inv.cas[1].cert().NotAfter.After(now.Add(margin)) {
			signer = secretsmanager.UseOldCA
		}
		if inv, err = a.replaceServer(ctx, manager, signer); err != nil {
			return time.Time{}, err
		}
	}

	if err := publish(ctx, inv.bundle(now)); err != nil {
		return time.Time{}, fmt.Errorf("publishing the CA of the webhooks: %w", err)
	}
	if err := a.stamp(ctx, inv.ca().secret, now); err != nil {
		return time.Time{}, err
	}

	if now.Before(inv.ca().publishedAt().Add(settle)) {
		return wakeUp(now, inv.nextStep(now)), nil
	}
	if inv, err = a.replaceServer(ctx, manager, secretsmanager.UseCurrentCA); err != nil {
		return time.Time{}, err
	}
	if inv.settled(now) {
		if err := manager.Cleanup(ctx); err != nil {
			return time.Time{}, fmt.Errorf("deleting old certificates of the webhooks: %w", err)
		}
	}
	return wakeUp(now, inv.nextStep(now)), nil
}

// wakeUp is when to look again if the next step is due at the given time.
func wakeUp(now, next time.Time) time.Time {
	if latest := now.Add(maxWait); latest.Before(next) {
		return latest
	}
	return next
}

// Delete deletes all Secrets of the authority.
func (a *Authority) Delete(ctx context.Context) error {
	manager, err := secretsmanager.New(ctx, a.Log, a.Clock, a.Client, a.Identity, secretsmanager.WithoutAutomaticSecretRenewal(), secretsmanager.WithNamespaces(a.Namespace))
	if err != nil {
		return err
	}
	// Nothing was generated, so everything is old.
	if err := manager.Cleanup(ctx); err != nil {
		return fmt.Errorf("deleting the certificates of the webhooks: %w", err)
	}
	return nil
}

// replaceServer makes a certificate for the server if it has none of that authority, or one that is due for renewal.
func (a *Authority) replaceServer(ctx context.Context, manager secretsmanager.Interface, signer secretsmanager.SignedByCAOption) (*inventory, error) {
	if _, err := manager.Generate(ctx, a.serverConfig(), secretsmanager.SignedByCA(caName, signer)); err != nil {
		return nil, fmt.Errorf("generating the server certificate of the webhooks: %w", err)
	}
	return a.inventory(ctx)
}

// deleteBroken deletes Secrets that somebody has spoilt. The secrets manager would not get past them.
func (a *Authority) deleteBroken(ctx context.Context) error {
	inv, err := a.inventory(ctx)
	if err != nil {
		return err
	}
	for _, secret := range inv.broken {
		a.Log.Info("Deleting a Secret that is spoilt", "secret", client.ObjectKeyFromObject(secret))
		if err := client.IgnoreNotFound(a.Client.Delete(ctx, secret)); err != nil {
			return fmt.Errorf("deleting the spoilt Secret %s/%s: %w", secret.Namespace, secret.Name, err)
		}
	}
	return nil
}

func (a *Authority) stamp(ctx context.Context, secret *corev1.Secret, now time.Time) error {
	before := secret.DeepCopy()
	if !stamp(secret, now) {
		return nil
	}
	if err := a.Client.Patch(ctx, secret, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("noting on Secret %s/%s that it is published: %w", secret.Namespace, secret.Name, err)
	}
	return nil
}

func (a *Authority) inventory(ctx context.Context) (*inventory, error) {
	list := &corev1.SecretList{}
	if err := a.Client.List(ctx, list, client.InNamespace(a.Namespace), client.MatchingLabels(selectorSet(a.Identity))); err != nil {
		return nil, fmt.Errorf("listing the certificates of the webhooks in namespace %s: %w", a.Namespace, err)
	}
	secrets := make([]*corev1.Secret, 0, len(list.Items))
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp == nil {
			secrets = append(secrets, &list.Items[i])
		}
	}
	return newInventory(secrets), nil
}

func (a *Authority) secretsManager(ctx context.Context) (secretsmanager.Interface, error) {
	manager, err := secretsmanager.New(ctx, a.Log, a.Clock, a.Client, a.Identity, secretsmanager.WithCASecretAutoRotation(), secretsmanager.WithNamespaces(a.Namespace))
	if err != nil {
		return nil, fmt.Errorf("making the secrets manager of the webhooks: %w", err)
	}
	return manager, nil
}

func (a *Authority) caConfig() *secretsutils.CertificateSecretConfig {
	return &secretsutils.CertificateSecretConfig{
		Name:       caName,
		CommonName: caName,
		CertType:   secretsutils.CACert,
		Validity:   new(Validity),
	}
}

func (a *Authority) serverConfig() *secretsutils.CertificateSecretConfig {
	return &secretsutils.CertificateSecretConfig{
		Name:                        serverName,
		CommonName:                  a.names()[0],
		DNSNames:                    a.DNSNames,
		IPAddresses:                 a.IPAddresses,
		CertType:                    secretsutils.ServerCert,
		Validity:                    new(Validity),
		SkipPublishingCACertificate: true,
	}
}

func (a *Authority) names() []string {
	names := append([]string{}, a.DNSNames...)
	for _, address := range a.IPAddresses {
		names = append(names, address.String())
	}
	return names
}
