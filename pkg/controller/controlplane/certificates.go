// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/utils/clock"

	"github.com/gardener/gardener/pkg/utils"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"
	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"
)

const (
	// authorityValidity and certificateValidity are for certificates that say nothing else.
	authorityValidity   = 10 * 365 * 24 * time.Hour
	certificateValidity = authorityValidity
	// clockSkew is how much the clock of somebody who verifies a certificate may be behind.
	clockSkew = time.Minute
)

// certificateConfig is a certificate for the secrets manager. What it says is in the fields of the library's own config,
// of which name, common name, organization, DNS names, type and validity are heeded. But that makes RSA keys, which take
// half a second of CPU time each to find; these are keys on the curve P-256, which take microseconds. The manager knows
// the library's config by its type and does several things for that alone, which generateSecrets and the options here do.
type certificateConfig struct {
	secretsutils.CertificateSecretConfig
	// clock is set by generateSecrets, authority by signedBy.
	clock     clock.PassiveClock
	authority *authority
}

var _ secretsutils.ConfigInterface = &certificateConfig{}

// Hash has the manager name the Secret by what the library's config says, as it was done before there was this type: an
// authority with an RSA key goes on to be used until the shoot's certificate authorities are rotated.
func (c *certificateConfig) Hash() (uint64, error) {
	meta, err := secretsmanager.ObjectMeta("", nil, "", &c.CertificateSecretConfig, false, "", nil, nil, nil)
	if err != nil {
		return 0, err
	}
	return strconv.ParseUint(meta.Labels[secretsmanager.LabelKeyChecksumConfig], 10, 64)
}

func (c *certificateConfig) isAuthority() bool { return c.CertType == secretsutils.CACert }

// validity is always in whole seconds.
func (c *certificateConfig) validity() time.Duration {
	switch {
	case c.Validity != nil:
		return c.Validity.Truncate(time.Second)
	case c.isAuthority():
		return authorityValidity
	}
	return certificateValidity
}

// Generate implements secretsutils.ConfigInterface.
func (c *certificateConfig) Generate() (secretsutils.DataInterface, error) {
	template, err := c.template()
	if err != nil {
		return nil, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	signer := &authority{certificate: template, key: key}
	if !c.isAuthority() {
		if c.authority == nil {
			return nil, errors.New("there is no certificate authority to sign it")
		}
		signer = c.authority
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.certificate, key.Public(), signer.key)
	if err != nil {
		return nil, fmt.Errorf("signing: %w", err)
	}

	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key: %w", err)
	}
	certificatePEM, err := certutil.EncodeCertificates(&x509.Certificate{Raw: der})
	if err != nil {
		return nil, fmt.Errorf("encoding the certificate: %w", err)
	}
	if c.isAuthority() {
		return secretData{secretsutils.DataKeyCertificateCA: certificatePEM, secretsutils.DataKeyPrivateKeyCA: keyPEM}, nil
	}
	return secretData{secretsutils.DataKeyCertificate: certificatePEM, secretsutils.DataKeyPrivateKey: keyPEM}, nil
}

func (c *certificateConfig) template() (*x509.Certificate, error) {
	now := c.clock.Now()
	out := &x509.Certificate{
		Subject:               pkix.Name{CommonName: c.CommonName, Organization: c.Organization},
		DNSNames:              c.DNSNames,
		NotBefore:             now.Add(-clockSkew),
		NotAfter:              now.Add(c.validity()),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
	}
	switch c.CertType {
	case secretsutils.CACert:
		out.IsCA = true
		out.KeyUsage |= x509.KeyUsageCertSign | x509.KeyUsageCRLSign
		// Of two authorities during a rotation, clients find the right one by its name.
		out.Subject.CommonName += "-" + strings.ToLower(rand.Text()[:8])
	case secretsutils.ServerCert:
		out.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	case secretsutils.ClientCert:
		out.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	default:
		return nil, fmt.Errorf("certificates of type %q are not made here", c.CertType)
	}
	return out, nil
}

// secretData implements secretsutils.DataInterface.
type secretData map[string][]byte

// SecretData implements secretsutils.DataInterface.
func (d secretData) SecretData() map[string][]byte { return d }

// authority signs certificates. Its key may be of any type: an older version of this extension made RSA keys.
type authority struct {
	certificate *x509.Certificate
	key         crypto.Signer
}

func loadAuthority(secret *corev1.Secret) (*authority, error) {
	certificates, err := certutil.ParseCertsPEM(secret.Data[secretsutils.DataKeyCertificateCA])
	if err != nil {
		return nil, fmt.Errorf("reading the certificate in secret %s: %w", secret.Name, err)
	}
	key, err := keyutil.ParsePrivateKeyPEM(secret.Data[secretsutils.DataKeyPrivateKeyCA])
	if err != nil {
		return nil, fmt.Errorf("reading the key in secret %s: %w", secret.Name, err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("the key in secret %s can't sign", secret.Name)
	}
	return &authority{certificate: certificates[0], key: signer}, nil
}

// signedBy has a certificate signed by an authority that has been generated before. In a rotation, servers keep the old one
// until all clients trust the new one; clients get the new one at once. That is what the library's SignedByCA does for the
// library's config.
func signedBy(name string) secretsmanager.GenerateOption {
	return func(manager secretsmanager.Interface, config secretsutils.ConfigInterface, options *secretsmanager.GenerateOptions) error {
		certificate, ok := config.(*certificateConfig)
		if !ok {
			return fmt.Errorf("signing %T: it is no certificate", config)
		}
		secret, ok := manager.Get(name, secretsmanager.Current)
		if !ok {
			return fmt.Errorf("the secrets manager has no secret %s", name)
		}
		if old, ok := manager.Get(name, secretsmanager.Old); ok && certificate.CertType == secretsutils.ServerCert {
			secret = old
		}

		var err error
		if certificate.authority, err = loadAuthority(secret); err != nil {
			return err
		}
		// Which is part of the name of the Secret.
		addLabels(options, map[string]string{
			secretsmanager.LabelKeyChecksumSigningCA: kubernetesutils.TruncateLabelValue(utils.ComputeSecretChecksum(secret.Data)),
		})
		return nil
	}
}

// bornWith has a Secret created with the labels that tell its lifetime, which else the manager adds by another request. For
// one that is there already it is without effect. It has to come after Validity.
func bornWith(now time.Time) secretsmanager.GenerateOption {
	return func(_ secretsmanager.Interface, _ secretsutils.ConfigInterface, options *secretsmanager.GenerateOptions) error {
		labels := map[string]string{secretsmanager.LabelKeyIssuedAtTime: unixTime(now)}
		if options.Validity > 0 {
			labels[secretsmanager.LabelKeyValidUntilTime] = unixTime(now.Add(options.Validity))
		}
		addLabels(options, labels)
		return nil
	}
}

func addLabels(options *secretsmanager.GenerateOptions, labels map[string]string) {
	all := maps.Clone(labels)
	maps.Copy(all, options.Labels)
	options.Labels = all
}

func unixTime(at time.Time) string { return strconv.FormatInt(at.Unix(), 10) }
