// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/crypto/bcrypt"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	extensionssecretsmanager "github.com/gardener/gardener/extensions/pkg/util/secret/manager"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/gardener/gardener/pkg/utils"
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

	// certificateValidity is for certificates that say nothing else, as that of the authority.
	certificateValidity = 10 * 365 * 24 * time.Hour
	// dummyCertificateValidity has certificates renewed after 20 days: the manager does so ten days before they expire.
	dummyCertificateValidity = 30 * 24 * time.Hour
	// dummyAuthValidity has the credentials renewed by the first reconcile after an hour.
	dummyAuthValidity = (10*24 + 1) * time.Hour
)

// secretConfig is a secret for the secrets manager, with the time for which it is valid.
type secretConfig interface {
	secretsutils.ConfigInterface
	validity() time.Duration
}

// secretConfigs are the authority, the certificate of cloud-controller and three secrets which nobody uses: they are for
// the tests of Gardener's integration of the secrets manager (document provider-local, section ControlPlane), which know
// them by these names. The validities are short enough for them to be renewed in a landscape's life. They are changed when
// they are used, so each reconcile needs its own.
func secretConfigs(namespace string) []secretConfig {
	return []secretConfig{
		&certificateConfig{CertificateSecretConfig: secretsutils.CertificateSecretConfig{
			Name: authorityName, CommonName: authorityName, CertType: secretsutils.CACert,
		}},
		&certificateConfig{CertificateSecretConfig: secretsutils.CertificateSecretConfig{
			Name: serverName, CommonName: cloudController, CertType: secretsutils.ServerCert,
			DNSNames: kubernetesutils.DNSNamesForService(cloudController, namespace),
		}},
		&certificateConfig{CertificateSecretConfig: secretsutils.CertificateSecretConfig{
			Name: dummyServerName, CommonName: dummyServerName, CertType: secretsutils.ServerCert, Validity: new(dummyCertificateValidity),
			DNSNames: kubernetesutils.DNSNamesForService(dummyServerName, namespace),
		}},
		&certificateConfig{CertificateSecretConfig: secretsutils.CertificateSecretConfig{
			Name: dummyClientName, CommonName: dummyClientName, CertType: secretsutils.ClientCert, Validity: new(dummyCertificateValidity),
			Organization: []string{"provider-local"},
		}},
		&credentialsConfig{Name: dummyAuthName, Username: "example", PasswordLength: 32},
	}
}

// generateSecrets makes the secrets that are missing, in the phase of the CA rotation in which the shoot is. Of the
// manager it returns, Cleanup deletes those not used any more.
//
// It costs one request if nothing changed, and one more for each secret that is new or not used any more. Where there should
// be none yet it is spared.
func (a *actuator) generateSecrets(ctx context.Context, log logr.Logger, cluster *extensionscontroller.Cluster, isNew bool) (secretsmanager.Interface, error) {
	namespace := cluster.ObjectMeta.Name
	listed := &listedSecrets{Client: a.client, namespace: namespace}
	if !isNew {
		if err := listed.list(ctx); err != nil {
			return nil, err
		}
	}

	// The authority is rotated with those of the shoot. The library knows an authority by its own type.
	authority := extensionssecretsmanager.SecretConfigWithOptions{Config: &secretsutils.CertificateSecretConfig{Name: authorityName, CertType: secretsutils.CACert}}
	manager, err := extensionssecretsmanager.SecretsManagerForCluster(ctx, log, a.Clock, listed, cluster, secretsIdentity,
		[]extensionssecretsmanager.SecretConfigWithOptions{authority})
	if err != nil {
		return nil, fmt.Errorf("reading the secrets of namespace %s: %w", namespace, err)
	}
	phase := v1beta1helper.GetShootCARotationPhase(cluster.Shoot.Status.Credentials)
	for _, config := range a.secretConfigs(namespace) {
		if err := a.generateSecret(ctx, manager, config, phase); err != nil {
			return nil, fmt.Errorf("generating the secrets of namespace %s: %w", namespace, err)
		}
	}
	return manager, nil
}

// generateSecret generates a secret and, of the authority, the bundle of those that are to be trusted: as long as a rotation
// is not completed the old one is kept. A new Secret gets the labels that tell its lifetime, which else the manager adds by
// another request; for one that is there already they are without effect.
func (a *actuator) generateSecret(ctx context.Context, manager secretsmanager.Interface, config secretConfig, phase gardencorev1beta1.CredentialsRotationPhase) error {
	now := a.Clock.Now()
	born := map[string]string{
		secretsmanager.LabelKeyIssuedAtTime:   unixTime(now),
		secretsmanager.LabelKeyValidUntilTime: unixTime(now.Add(config.validity())),
	}
	opts := []secretsmanager.GenerateOption{secretsmanager.Validity(config.validity()), secretsmanager.WithLabels(born)}
	certificate, ok := config.(*certificateConfig)
	isAuthority := ok && certificate.CertType == secretsutils.CACert
	if ok {
		certificate.clock = a.Clock
	}
	if isAuthority {
		opts = append(opts, secretsmanager.Persist(), secretsmanager.Rotate(secretsmanager.KeepOld))
		if phase == gardencorev1beta1.RotationCompleting {
			opts = append(opts, secretsmanager.IgnoreOldSecrets())
		}
	} else if ok {
		signer, err := certificate.signWith(manager)
		if err != nil {
			return err
		}
		// Which is part of the name of the Secret.
		born[secretsmanager.LabelKeyChecksumSigningCA] = kubernetesutils.TruncateLabelValue(utils.ComputeSecretChecksum(signer.Data))
	}
	current, err := manager.Generate(ctx, config, opts...)
	if err != nil || !isAuthority {
		return err
	}

	bundle := &secretsutils.CertificateBundleSecretConfig{
		Name: config.GetName() + "-bundle", CertificatePEMs: [][]byte{current.Data[secretsutils.DataKeyCertificateCA]},
	}
	if old, ok := manager.Get(config.GetName(), secretsmanager.Old); ok {
		authority, err := loadAuthority(old)
		if err != nil {
			return err
		}
		if now.Before(authority.Leaf.NotAfter) {
			bundle.CertificatePEMs = append(bundle.CertificatePEMs, old.Data[secretsutils.DataKeyCertificateCA])
		}
	}
	_, err = manager.Generate(ctx, bundle, secretsmanager.WithLabels(map[string]string{secretsmanager.LabelKeyIssuedAtTime: unixTime(now)}))
	return err
}

func unixTime(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }

// certificateConfig is a certificate for the secrets manager. What it says is in the fields of the library's own config,
// of which name, common name, organization, DNS names, type and validity are heeded. But that makes RSA keys, which take
// half a second of CPU time each to find; these are keys on the curve P-256, which take microseconds. The manager knows
// the library's config by its type and does several things for that alone, which generateSecret does for this one.
type certificateConfig struct {
	secretsutils.CertificateSecretConfig
	// clock is set by generateSecret, authority by signWith.
	clock     clock.PassiveClock
	authority *tls.Certificate
}

// Hash returns the hash of the library's config, from which the manager makes the name of the Secret. So an existing authority
// with an RSA key is used until the shoot's certificate authorities are rotated.
func (c *certificateConfig) Hash() (uint64, error) {
	meta, err := secretsmanager.ObjectMeta("", nil, "", &c.CertificateSecretConfig, false, "", nil, nil, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(meta.Labels[secretsmanager.LabelKeyChecksumConfig], 10, 64)
}

func (c *certificateConfig) validity() time.Duration {
	return ptr.Deref(c.Validity, certificateValidity)
}

// signWith has the certificate signed by the authority, which has been generated before, and returns the Secret of that. In a
// rotation, servers keep the old one until all clients trust the new one; clients get the new one at once. That is what the
// library's SignedByCA does for the library's config.
func (c *certificateConfig) signWith(manager secretsmanager.Reader) (*corev1.Secret, error) {
	secret, ok := manager.Get(authorityName, secretsmanager.Current)
	if !ok {
		return nil, fmt.Errorf("the secrets manager has no secret %s", authorityName)
	}
	if old, ok := manager.Get(authorityName, secretsmanager.Old); ok && c.CertType == secretsutils.ServerCert {
		secret = old
	}
	authority, err := loadAuthority(secret)
	c.authority = authority
	return secret, err
}

// loadAuthority returns the authority in a Secret. Its key may be of any type: an older version of this extension made RSA keys.
func loadAuthority(secret *corev1.Secret) (*tls.Certificate, error) {
	authority, err := tls.X509KeyPair(secret.Data[secretsutils.DataKeyCertificateCA], secret.Data[secretsutils.DataKeyPrivateKeyCA])
	if err != nil {
		return nil, fmt.Errorf("reading the certificate authority in secret %s: %w", secret.Name, err)
	}
	return &authority, nil
}

// Generate implements secretsutils.ConfigInterface.
func (c *certificateConfig) Generate() (secretsutils.DataInterface, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	now, signer := c.clock.Now(), c.authority
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: c.CommonName, Organization: c.Organization},
		DNSNames:              c.DNSNames,
		NotBefore:             secretsutils.AdjustToClockSkew(now),
		NotAfter:              now.Add(c.validity()),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	switch {
	case c.CertType == secretsutils.CACert:
		template.IsCA = true
		template.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
		// Of two authorities during a rotation, clients find the right one by its name.
		template.Subject.CommonName += "-" + strings.ToLower(rand.Text()[:8])
		signer = &tls.Certificate{Leaf: template, PrivateKey: key}
	case signer == nil:
		return nil, errors.New("there is no certificate authority to sign it")
	case c.CertType == secretsutils.ServerCert:
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	default:
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.Leaf, key.Public(), signer.PrivateKey)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key: %w", err)
	}
	if template.IsCA {
		return secretData{secretsutils.DataKeyCertificateCA: utils.EncodeCertificate(der), secretsutils.DataKeyPrivateKeyCA: keyPEM}, nil
	}
	return secretData{secretsutils.DataKeyCertificate: utils.EncodeCertificate(der), secretsutils.DataKeyPrivateKey: keyPEM}, nil
}

// credentialsConfig is a user name with a random password for the secrets manager, with the data that the library's
// BasicAuthSecretConfig has. That one hashes the password slowly, which protects passwords that can be guessed, and takes
// a tenth of a second of CPU time. This one is of random characters, too many to try.
type credentialsConfig struct {
	Name           string
	Username       string
	PasswordLength int
}

func (c *credentialsConfig) validity() time.Duration { return dummyAuthValidity }

// GetName implements secretsutils.ConfigInterface.
func (c *credentialsConfig) GetName() string { return c.Name }

// Generate implements secretsutils.ConfigInterface.
func (c *credentialsConfig) Generate() (secretsutils.DataInterface, error) {
	password, err := utils.GenerateRandomString(c.PasswordLength)
	if err != nil {
		return nil, fmt.Errorf("making a password: %w", err)
	}
	hash, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
	if err != nil {
		return nil, fmt.Errorf("hashing the password: %w", err)
	}
	return secretData{
		secretsutils.DataKeyUserName: []byte(c.Username),
		secretsutils.DataKeyPassword: []byte(password),
		secretsutils.DataKeyAuth:     fmt.Appendf(nil, "%s:%s", c.Username, hash),
	}, nil
}

// secretData implements secretsutils.DataInterface.
type secretData map[string][]byte

// SecretData implements secretsutils.DataInterface.
func (d secretData) SecretData() map[string][]byte { return d }

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
	// isIncomplete tells that there are Secrets without labels.
	isIncomplete bool
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
	identity, _ := options.LabelSelector.RequiresExactMatch(secretsmanager.LabelKeyManagerIdentity)
	_, isTakenOver := options.LabelSelector.RequiresExactMatch(secretsmanager.LabelKeyUseDataForName)
	if !isTakenOver && identity != secretsIdentity {
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
	i := l.index(key.Name)
	switch {
	case !ok || key.Namespace != l.namespace || i < 0 && l.isIncomplete:
		return l.Client.Get(ctx, key, into, opts...)
	case i < 0:
		return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
	}
	l.items[i].DeepCopyInto(secret)
	return nil
}

// Create implements client.Writer.
func (l *listedSecrets) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	err := l.Client.Create(ctx, obj, opts...)
	l.isIncomplete = l.isIncomplete || apierrors.IsAlreadyExists(err)
	return err
}

// Patch implements client.Writer. By the new labels it is told what is not used any more.
func (l *listedSecrets) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if err := l.Client.Patch(ctx, obj, patch, opts...); err != nil {
		return err
	}
	secret, ok := obj.(*corev1.Secret)
	if i := l.index(obj.GetName()); ok && i >= 0 {
		l.items[i] = *secret.DeepCopy()
	}
	return nil
}

func (l *listedSecrets) index(name string) int {
	return slices.IndexFunc(l.items, func(secret corev1.Secret) bool { return secret.Name == name })
}
