// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	extensionssecretsmanager "github.com/gardener/gardener/extensions/pkg/util/secret/manager"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"
	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"
)

const (
	// secretsIdentity tells this controller's secrets from those of other managers in the namespace.
	secretsIdentity = "provider-local-controlplane"

	authorityName   = "ca-provider-local-controlplane"
	serverName      = cloudController + "-server"
	dummyServerName = "provider-local-dummy-server"
	dummyClientName = "provider-local-dummy-client"
	dummyAuthName   = "provider-local-dummy-auth"

	// dummyCertificateValidity has certificates renewed after 20 days: the manager does so ten days before they expire.
	dummyCertificateValidity = 30 * 24 * time.Hour
	// dummyAuthValidity has the credentials renewed by the first reconcile after an hour.
	dummyAuthValidity = (10*24 + 1) * time.Hour
)

// secretConfigs are the authority, the certificate of cloud-controller and three secrets which nobody uses: they are for
// the tests of Gardener's integration of the secrets manager (document provider-local, section ControlPlane), which know
// them by these names. The validities are short enough for them to be renewed in a landscape's life. They are changed when
// they are used, so each reconcile needs its own.
func secretConfigs(namespace string) []extensionssecretsmanager.SecretConfigWithOptions {
	certificate := func(config secretsutils.CertificateSecretConfig, opts ...secretsmanager.GenerateOption) extensionssecretsmanager.SecretConfigWithOptions {
		return extensionssecretsmanager.SecretConfigWithOptions{Config: &certificateConfig{CertificateSecretConfig: config}, Options: opts}
	}
	validity := dummyCertificateValidity
	return []extensionssecretsmanager.SecretConfigWithOptions{
		certificate(secretsutils.CertificateSecretConfig{
			Name: authorityName, CommonName: authorityName, CertType: secretsutils.CACert,
		}, secretsmanager.Persist()),
		certificate(secretsutils.CertificateSecretConfig{
			Name: serverName, CommonName: cloudController, CertType: secretsutils.ServerCert,
			DNSNames: kubernetesutils.DNSNamesForService(cloudController, namespace),
		}, signedBy(authorityName)),
		certificate(secretsutils.CertificateSecretConfig{
			Name: dummyServerName, CommonName: dummyServerName, CertType: secretsutils.ServerCert, Validity: &validity,
			DNSNames: kubernetesutils.DNSNamesForService(dummyServerName, namespace),
		}, signedBy(authorityName)),
		certificate(secretsutils.CertificateSecretConfig{
			Name: dummyClientName, CommonName: dummyClientName, CertType: secretsutils.ClientCert, Validity: &validity,
			Organization: []string{"provider-local"},
		}, signedBy(authorityName)),
		{
			Config:  &credentialsConfig{Name: dummyAuthName, Username: "example", PasswordLength: 32},
			Options: []secretsmanager.GenerateOption{secretsmanager.Validity(dummyAuthValidity)},
		},
	}
}

// generateSecrets makes the secrets that are missing, in the phase of the CA rotation in which the shoot is. Of the
// manager it returns, Cleanup deletes those not used any more.
//
// It costs one request if nothing changed, and one more for each secret that is new or not used any more. Where there should
// be none yet it is spared.
func (a *actuator) generateSecrets(ctx context.Context, log logr.Logger, cluster *extensionscontroller.Cluster, isNew bool) (secretsmanager.Interface, error) {
	namespace := cluster.ObjectMeta.Name
	listed := newListedSecrets(a.client, namespace)
	if !isNew {
		if err := listed.list(ctx); err != nil {
			return nil, err
		}
	}

	credentials := cluster.Shoot.Status.Credentials
	manager, err := secretsmanager.New(ctx, log, a.Clock, listed, secretsIdentity,
		secretsmanager.WithNamespaces(namespace), secretsmanager.WithSecretNamesToTimes(rotationTimes(credentials)))
	if err != nil {
		return nil, fmt.Errorf("reading the secrets of namespace %s: %w", namespace, err)
	}
	phase := v1beta1helper.GetShootCARotationPhase(credentials)
	for _, secret := range a.secretConfigs(namespace) {
		if err := a.generateSecret(ctx, manager, secret, phase); err != nil {
			return nil, fmt.Errorf("generating the secrets of namespace %s: %w", namespace, err)
		}
	}
	return manager, nil
}

// rotationTimes has the authority rotated with those of the shoot.
func rotationTimes(credentials *gardencorev1beta1.ShootCredentials) map[string]time.Time {
	if credentials == nil || credentials.Rotation == nil || credentials.Rotation.CertificateAuthorities == nil ||
		credentials.Rotation.CertificateAuthorities.LastInitiationTime == nil {
		return nil
	}
	return map[string]time.Time{authorityName: credentials.Rotation.CertificateAuthorities.LastInitiationTime.Time}
}

// generateSecret generates a secret and, of an authority, the bundle of those that are to be trusted: as long as a rotation
// is not completed the old one is kept.
func (a *actuator) generateSecret(ctx context.Context, manager secretsmanager.Interface, secret extensionssecretsmanager.SecretConfigWithOptions, phase gardencorev1beta1.CredentialsRotationPhase) error {
	born, opts := bornWith(a.Clock.Now()), slices.Clone(secret.Options)
	certificate, ok := secret.Config.(*certificateConfig)
	if ok {
		certificate.clock = a.Clock
		opts = append(opts, secretsmanager.Validity(certificate.validity()))
	}
	isAuthority := ok && certificate.isAuthority()
	if isAuthority {
		opts = append(opts, secretsmanager.Rotate(secretsmanager.KeepOld))
		if phase == gardencorev1beta1.RotationCompleting {
			opts = append(opts, secretsmanager.IgnoreOldSecrets())
		}
	}
	if _, err := manager.Generate(ctx, secret.Config, append(opts, born)...); err != nil || !isAuthority {
		return err
	}

	current, ok := manager.Get(secret.Config.GetName(), secretsmanager.Current)
	if !ok {
		return fmt.Errorf("the secrets manager has no secret %s", secret.Config.GetName())
	}
	bundle := &secretsutils.CertificateBundleSecretConfig{
		Name: secret.Config.GetName() + "-bundle", CertificatePEMs: [][]byte{current.Data[secretsutils.DataKeyCertificateCA]},
	}
	if old, ok := manager.Get(secret.Config.GetName(), secretsmanager.Old); ok {
		authority, err := loadAuthority(old)
		if err != nil {
			return err
		}
		if a.Clock.Now().Before(authority.certificate.NotAfter) {
			bundle.CertificatePEMs = append(bundle.CertificatePEMs, old.Data[secretsutils.DataKeyCertificateCA])
		}
	}
	_, err := manager.Generate(ctx, bundle, born)
	return err
}

// ours are the labels of all that generateSecrets has ever made.
func ours() client.MatchingLabels {
	return client.MatchingLabels{
		secretsmanager.LabelKeyManagedBy:       secretsmanager.LabelValueSecretsManager,
		secretsmanager.LabelKeyManagerIdentity: secretsIdentity,
	}
}

// deleteSecrets deletes all that generateSecrets has ever made. It needs no Cluster.
func (a *actuator) deleteSecrets(ctx context.Context, namespace string) error {
	if err := a.client.DeleteAllOf(ctx, &corev1.Secret{}, client.InNamespace(namespace), ours()); err != nil {
		return fmt.Errorf("deleting the secrets of namespace %s: %w", namespace, err)
	}
	return nil
}

// listedSecrets answers the secrets manager from one list: it reads each of its secrets by name and lists them twice or
// more in a run, and Secrets are not cached. What a run itself creates it does not read again, and does not delete.
type listedSecrets struct {
	client.Client
	namespace string
	items     []corev1.Secret
	// unlisted are the names of Secrets that are there without labels.
	unlisted sets.Set[string]
}

func newListedSecrets(c client.Client, namespace string) *listedSecrets {
	return &listedSecrets{Client: c, namespace: namespace, unlisted: sets.New[string]()}
}

func (l *listedSecrets) list(ctx context.Context) error {
	list := &corev1.SecretList{}
	if err := l.Client.List(ctx, list, client.InNamespace(l.namespace), ours()); err != nil {
		return fmt.Errorf("listing the secrets of namespace %s: %w", l.namespace, err)
	}
	l.items = list.Items
	return nil
}

// List answers for this identity's Secrets. There is none whose data is to be taken over for another name: that label is
// for secrets from before there was a secrets manager.
func (l *listedSecrets) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	list, ok := into.(*corev1.SecretList)
	if !ok || options.Namespace != l.namespace || options.LabelSelector == nil {
		return l.Client.List(ctx, into, opts...)
	}
	identity, isIdentity := options.LabelSelector.RequiresExactMatch(secretsmanager.LabelKeyManagerIdentity)
	_, isTakenOver := options.LabelSelector.RequiresExactMatch(secretsmanager.LabelKeyUseDataForName)
	if !isTakenOver && (!isIdentity || identity != secretsIdentity) {
		return l.Client.List(ctx, into, opts...)
	}

	list.Items = nil
	for i := range l.items {
		if options.LabelSelector.Matches(labels.Set(l.items[i].Labels)) {
			list.Items = append(list.Items, *l.items[i].DeepCopy())
		}
	}
	return nil
}

// Get answers for Secrets. One that was not listed is not there, unless it could not be created: there may be one without
// labels.
func (l *listedSecrets) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	secret, ok := into.(*corev1.Secret)
	if !ok || key.Namespace != l.namespace || l.unlisted.Has(key.Name) {
		return l.Client.Get(ctx, key, into, opts...)
	}
	if i := l.index(key.Name); i >= 0 {
		l.items[i].DeepCopyInto(secret)
		return nil
	}
	return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
}

// Create implements client.Writer.
func (l *listedSecrets) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	err := l.Client.Create(ctx, obj, opts...)
	if apierrors.IsAlreadyExists(err) {
		l.unlisted.Insert(obj.GetName())
	}
	return err
}

// Patch implements client.Writer. By the new labels it is told what is not used any more.
func (l *listedSecrets) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := l.Client.Patch(ctx, obj, patch, opts...); err != nil {
		return err
	}
	if secret, ok := obj.(*corev1.Secret); ok && secret.Namespace == l.namespace {
		if i := l.index(secret.Name); i >= 0 {
			l.items[i] = *secret.DeepCopy()
		}
	}
	return nil
}

func (l *listedSecrets) index(name string) int {
	return slices.IndexFunc(l.items, func(secret corev1.Secret) bool { return secret.Name == name })
}
