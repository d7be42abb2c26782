// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package pki makes the certificates, keys and kubeconfigs of the runtime cluster: one CA, and one certificate for every
// component, each with just the identity that Kubernetes knows it by. What is on disk and still good is kept, so that
// running it again changes nothing.
package pki

import (
	"bytes"
	"crypto"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

const (
	validity = 365 * 24 * time.Hour
	// renewBefore is how much of its life a certificate must have left to be kept.
	renewBefore = 30 * 24 * time.Hour
)

// Identity is a user of the API server, or something that serves TLS.
type Identity struct {
	// Name is that of its files, without extension.
	Name string
	// User and Groups are what the API server sees.
	User   string
	Groups []string
	// Hosts are the DNS names and IP addresses that it serves; a user has none.
	Hosts []string
}

// Authority is the cluster's CA, in a folder with everything that it signed.
type Authority struct {
	Dir  string
	Now  func() time.Time
	cert *x509.Certificate
	key  crypto.Signer
}

// Open reads the CA from dir or makes a new one.
func Open(dir string, now func() time.Time) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making certificates: %w", err)
	}
	a := &Authority{Dir: dir, Now: now}
	cert, key, err := a.read("ca")
	if err == nil && now().Add(renewBefore).Before(cert.NotAfter) {
		a.cert, a.key = cert, key
		return a, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("reading the CA: %w; remove %s to make a new one", err, dir)
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "provider-local landscape"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature | x509.KeyUsageCRLSign,
	}
	a.cert, a.key, err = a.issue("ca", template)
	return a, err
}

// Certificate is the path of NAME's certificate; "ca" is the CA's.
func (a *Authority) Certificate(name string) string { return filepath.Join(a.Dir, name+".crt") }

// Key is the path of NAME's private key.
func (a *Authority) Key(name string) string { return filepath.Join(a.Dir, name+".key") }

// Kubeconfig is the path of a client's kubeconfig.
func (a *Authority) Kubeconfig(name string) string { return filepath.Join(a.Dir, name+".kubeconfig") }

// ServiceAccountKey makes sure that there is a key for ServiceAccount tokens.
func (a *Authority) ServiceAccountKey() error {
	if _, err := os.Stat(a.Key("sa")); err == nil {
		return nil
	}
	content, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err == nil {
		err = layout.WriteFile(a.Key("sa"), content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("making the ServiceAccount key: %w", err)
	}
	return nil
}

// Issue keeps a certificate that is signed by this CA, says what it should and lives long enough, or makes a new one.
func (a *Authority) Issue(i Identity) error {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: i.User, Organization: i.Groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if len(i.Hosts) > 0 {
		template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	for _, host := range i.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	if cert, _, err := a.read(i.Name); err == nil && a.good(cert, template) {
		return nil
	}
	_, _, err := a.issue(i.Name, template)
	return err
}

// WriteKubeconfig writes a kubeconfig with everything embedded for a user, to path.
func (a *Authority) WriteKubeconfig(c Identity, server, path string) error {
	if err := a.Issue(c); err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["landscape"] = &clientcmdapi.Cluster{Server: server, CertificateAuthority: a.Certificate("ca")}
	config.AuthInfos[c.Name] = &clientcmdapi.AuthInfo{ClientCertificate: a.Certificate(c.Name), ClientKey: a.Key(c.Name)}
	config.Contexts["landscape"] = &clientcmdapi.Context{Cluster: "landscape", AuthInfo: c.Name}
	config.CurrentContext = "landscape"
	errFlatten := clientcmdapi.FlattenConfig(config)
	content, err := clientcmd.Write(*config)
	if err := errors.Join(errFlatten, err); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", c.Name, err)
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) { // #nosec G304 -- the landscape's own file.
		return nil
	}
	if err := layout.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", c.Name, err)
	}
	return nil
}

func (a *Authority) good(cert, want *x509.Certificate) bool {
	sameIPs := slices.EqualFunc(cert.IPAddresses, want.IPAddresses, func(x, y net.IP) bool { return x.Equal(y) })
	return cert.CheckSignatureFrom(a.cert) == nil &&
		a.Now().Add(renewBefore).Before(cert.NotAfter) &&
		cert.Subject.CommonName == want.Subject.CommonName &&
		slices.Equal(cert.Subject.Organization, want.Subject.Organization) &&
		slices.Equal(cert.DNSNames, want.DNSNames) && sameIPs
}

// issue signs the template with a new key; the CA itself, which has no certificate yet, signs its own.
func (a *Authority) issue(name string, template *x509.Certificate) (*x509.Certificate, crypto.Signer, error) {
	keyPEM, errMake := keyutil.MakeEllipticPrivateKeyPEM()
	pair, errParse := keyutil.ParsePrivateKeyPEM(keyPEM)
	err := errors.Join(errMake, errParse)
	if err == nil {
		err = layout.WriteFile(a.Key(name), keyPEM, 0o600)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("making the key of %s: %w", name, err)
	}
	key := pair.(crypto.Signer)
	// A machine's clock may be put back a little after the landscape came up.
	template.NotBefore, template.NotAfter = a.Now().Add(-time.Hour), a.Now().Add(validity)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err == nil {
		err = layout.WriteFile(a.Certificate(name), pem.EncodeToMemory(&pem.Block{Type: certutil.CertificateBlockType, Bytes: der}), 0o644)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	return a.read(name)
}

// read returns a certificate with its key, an error if they are no pair.
func (a *Authority) read(name string) (*x509.Certificate, crypto.Signer, error) {
	pair, err := tls.LoadX509KeyPair(a.Certificate(name), a.Key(name))
	if err != nil {
		return nil, nil, err
	}
	return pair.Leaf, pair.PrivateKey.(crypto.Signer), nil
}
