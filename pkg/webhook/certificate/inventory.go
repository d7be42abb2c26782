// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"bytes"
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/cert"

	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"
)

// inventory is what the Secrets of an authority hold at one time.
type inventory struct {
	// cas are the certificate authorities, newest first.
	cas []*pair
	// servers are the server's certificates, newest first.
	servers []*pair
	// bundled are the certificates of authorities that the bundles of the secrets manager hold, some of which may be all
	// that is left of an authority.
	bundled []*x509.Certificate
	// broken are the Secrets that are not what their labels say.
	broken []*corev1.Secret
}

// pair is a certificate with its key.
type pair struct {
	secret *corev1.Secret
	tls    *tls.Certificate
}

func (p *pair) cert() *x509.Certificate {
	return p.tls.Leaf
}

// publishedAt is since when the authority is published, or zero.
func (p *pair) publishedAt() time.Time {
	at, err := time.Parse(time.RFC3339, p.secret.Annotations[AnnotationPublishedAt])
	if err != nil {
		return time.Time{}
	}
	return at
}

// newInventory looks at Secrets that the secrets manager made.
func newInventory(secrets []*corev1.Secret) *inventory {
	inv := &inventory{}
	for _, secret := range secrets {
		if err := inv.add(secret); err != nil {
			inv.broken = append(inv.broken, secret)
		}
	}

	for _, pairs := range [][]*pair{inv.cas, inv.servers} {
		slices.SortFunc(pairs, func(a, b *pair) int {
			return cmp.Or(
				b.cert().NotBefore.Compare(a.cert().NotBefore),
				b.secret.CreationTimestamp.Compare(a.secret.CreationTimestamp.Time),
				cmp.Compare(a.secret.Name, b.secret.Name),
			)
		})
	}
	return inv
}

func (inv *inventory) add(secret *corev1.Secret) error {
	// The secrets manager gives up on all Secrets if these are not numbers.
	for _, key := range []string{secretsmanager.LabelKeyIssuedAtTime, secretsmanager.LabelKeyValidUntilTime, secretsmanager.LabelKeyLastRotationInitiationTime} {
		if value := secret.Labels[key]; value != "" {
			if _, err := strconv.ParseInt(value, 10, 64); err != nil {
				return fmt.Errorf("label %s: %w", key, err)
			}
		}
	}

	switch secret.Labels[secretsmanager.LabelKeyName] {
	case caName:
		ca, err := newPair(secret, secretsutils.DataKeyCertificateCA, secretsutils.DataKeyPrivateKeyCA)
		if err != nil {
			return err
		}
		if !ca.cert().IsCA {
			return errors.New("not the certificate of an authority")
		}
		inv.cas = append(inv.cas, ca)
	case serverName:
		server, err := newPair(secret, secretsutils.DataKeyCertificate, secretsutils.DataKeyPrivateKey)
		if err != nil {
			return err
		}
		inv.servers = append(inv.servers, server)
	case bundleName:
		certs, err := cert.ParseCertsPEM(secret.Data[secretsutils.DataKeyCertificateBundle])
		if err != nil {
			return err
		}
		inv.bundled = append(inv.bundled, certs...)
	}
	return nil
}

func newPair(secret *corev1.Secret, certKey, privateKey string) (*pair, error) {
	keyPair, err := tls.X509KeyPair(secret.Data[certKey], secret.Data[privateKey])
	if err != nil {
		return nil, err
	}
	return &pair{secret: secret, tls: &keyPair}, nil
}

// ca is the current authority, or nil.
func (inv *inventory) ca() *pair {
	if len(inv.cas) == 0 {
		return nil
	}
	return inv.cas[0]
}

// server is what the server serves, or nil.
func (inv *inventory) server() *pair {
	if len(inv.servers) == 0 {
		return nil
	}
	return inv.servers[0]
}

// switched tells whether the server's certificate is that of the current authority.
func (inv *inventory) switched() bool {
	ca, server := inv.ca(), inv.server()
	return ca != nil && server != nil && server.cert().CheckSignatureFrom(ca.cert()) == nil
}

// settled tells whether the rotation is over, that is, whether nothing but the current authority is needed.
func (inv *inventory) settled(now time.Time) bool {
	return inv.switched() && !now.Before(inv.server().cert().NotBefore.Add(settle))
}

// trusted are the authorities to publish, the current one first and then from newer to older. It is a function of the
// Secrets and the time, so that all replicas come to the same.
func (inv *inventory) trusted(now time.Time) []*x509.Certificate {
	current := inv.ca()
	if current == nil {
		return nil
	}
	if inv.settled(now) {
		return []*x509.Certificate{current.cert()}
	}

	var others []*x509.Certificate
	for _, ca := range inv.cas[1:] {
		others = append(others, ca.cert())
	}
	others = append(others, inv.bundled...)
	others = slices.DeleteFunc(others, func(ca *x509.Certificate) bool {
		return ca.Equal(current.cert()) || !now.Before(ca.NotAfter)
	})
	slices.SortFunc(others, func(a, b *x509.Certificate) int {
		return cmp.Or(b.NotBefore.Compare(a.NotBefore), bytes.Compare(a.Raw, b.Raw))
	})
	others = slices.CompactFunc(others, (*x509.Certificate).Equal)
	return append([]*x509.Certificate{current.cert()}, others...)
}

// bundle is what trusted returns, as PEM, or nil if there is no authority.
func (inv *inventory) bundle(now time.Time) []byte {
	var out []byte
	for _, ca := range inv.trusted(now) {
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: ca.Raw})...)
	}
	return out
}

// usable tells whether a client that trusts what is published accepts the server's certificate for all names, now and for
// some time to come.
func (inv *inventory) usable(now time.Time, names []string) bool {
	server := inv.server()
	if server == nil {
		return false
	}

	roots := x509.NewCertPool()
	for _, ca := range inv.trusted(now) {
		roots.AddCert(ca)
	}
	for _, name := range names {
		if _, err := server.cert().Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now.Add(margin)}); err != nil {
			return false
		}
	}
	return true
}

// nextStep is when there is something to do next if nothing happens before: a renewal, or a phase that begins.
func (inv *inventory) nextStep(now time.Time) time.Time {
	next := now.Add(Validity)
	consider := func(at time.Time) {
		if at.After(now) && at.Before(next) {
			next = at
		}
	}

	ca, server := inv.ca(), inv.server()
	for _, pair := range []*pair{ca, server} {
		if pair != nil {
			consider(renewAt(pair.cert()))
		}
	}
	if ca != nil && !inv.switched() {
		consider(ca.publishedAt().Add(settle))
	}
	if server != nil && inv.switched() {
		consider(server.cert().NotBefore.Add(settle))
	}
	return next
}

// renewAt is the first moment in which the secrets manager renews a certificate.
func renewAt(cert *x509.Certificate) time.Time {
	at := cert.NotBefore.Add(cert.NotAfter.Sub(cert.NotBefore) * 80 / 100).Truncate(time.Second)
	if early := cert.NotAfter.Add(-10 * 24 * time.Hour); early.Before(at) {
		at = early
	}
	return at.Add(time.Second)
}

// stamp notes on the Secret of an authority since when it is published. It tells whether that was not noted before.
func stamp(secret *corev1.Secret, now time.Time) bool {
	if _, err := time.Parse(time.RFC3339, secret.Annotations[AnnotationPublishedAt]); err == nil {
		return false
	}
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, AnnotationPublishedAt, now.UTC().Format(time.RFC3339))
	return true
}
