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
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	validity = 365 * 24 * time.Hour
	// renewBefore is how much of its life a certificate must have left to be kept.
	renewBefore = 30 * 24 * time.Hour
)

// Client is a user of the API server.
type Client struct {
	// Name is the file name of its kubeconfig, without extension.
	Name string
	// User and Groups are what the API server sees.
	User   string
	Groups []string
}

// Server is something that serves TLS.
type Server struct {
	Name   string
	User   string
	Groups []string
	// Hosts are DNS names and IP addresses.
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

// ServiceAccountKey makes sure that there is a key pair for ServiceAccount tokens, and returns the paths of its two halves.
func (a *Authority) ServiceAccountKey() (private, public string, err error) {
	private, public = a.Key("sa"), filepath.Join(a.Dir, "sa.pub")
	if exists(private) && exists(public) {
		return private, public, nil
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return "", "", fmt.Errorf("making the ServiceAccount key: %w", err)
	}
	der, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return "", "", fmt.Errorf("making the ServiceAccount key: %w", err)
	}
	if err := writePEM(private, "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(key), 0o600); err != nil {
		return "", "", err
	}
	return private, public, writePEM(public, "PUBLIC KEY", der, 0o600)
}

// Serve makes sure that there is a serving certificate with exactly these hosts.
func (a *Authority) Serve(s Server) error {
	template := &x509.Certificate{
		Subject:     pkix.Name{CommonName: s.User, Organization: s.Groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range s.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	_, err := a.ensure(s.Name, template)
	return err
}

// Issue makes sure that there is a client certificate.
func (a *Authority) Issue(c Client) (changed bool, err error) {
	return a.ensure(c.Name, &x509.Certificate{
		Subject:     pkix.Name{CommonName: c.User, Organization: c.Groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

// WriteKubeconfig writes a kubeconfig with everything embedded for a client, to path.
func (a *Authority) WriteKubeconfig(c Client, server, path string) error {
	if _, err := a.Issue(c); err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	var parts [3][]byte
	for i, file := range []string{a.Certificate("ca"), a.Certificate(c.Name), a.Key(c.Name)} {
		content, err := os.ReadFile(file) // #nosec G304 -- written by this package.
		if err != nil {
			return fmt.Errorf("writing the kubeconfig of %s: %w", c.Name, err)
		}
		parts[i] = content
	}
	config.Clusters["landscape"] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: parts[0]}
	config.AuthInfos[c.Name] = &clientcmdapi.AuthInfo{ClientCertificateData: parts[1], ClientKeyData: parts[2]}
	config.Contexts["landscape"] = &clientcmdapi.Context{Cluster: "landscape", AuthInfo: c.Name}
	config.CurrentContext = "landscape"
	content, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", c.Name, err)
	}
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, content) { // #nosec G304 -- the landscape's own file.
		return nil
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", c.Name, err)
	}
	return nil
}

// ensure keeps a certificate that is signed by this CA, says what the template says and lives long enough.
func (a *Authority) ensure(name string, template *x509.Certificate) (bool, error) {
	cert, _, err := a.read(name)
	if err == nil && a.good(cert, template) {
		return false, nil
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return false, fmt.Errorf("reading the certificate of %s: %w; remove it to make a new one", name, err)
	}
	_, _, err = a.issue(name, template)
	return true, err
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
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, nil, fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	template.SerialNumber = serial
	// A machine's clock may be put back a little after the landscape came up.
	template.NotBefore, template.NotAfter = a.Now().Add(-time.Hour), a.Now().Add(validity)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key.Public(), signer)
	if err != nil {
		return nil, nil, fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	keyDER, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("making the certificate of %s: %w", name, err)
	}
	if err := writePEM(a.Key(name), "EC PRIVATE KEY", keyDER, 0o600); err != nil {
		return nil, nil, err
	}
	if err := writePEM(a.Certificate(name), "CERTIFICATE", der, 0o644); err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(der)
	return cert, key, err
}

func (a *Authority) read(name string) (*x509.Certificate, crypto.Signer, error) {
	certDER, err := readPEM(a.Certificate(name))
	if err != nil {
		return nil, nil, err
	}
	keyDER, err := readPEM(a.Key(name))
	if err != nil {
		return nil, nil, err
	}
	cert, err := x509.ParseCertificate(certDER)
	if err != nil {
		return nil, nil, err
	}
	key, err := x509.ParseECPrivateKey(keyDER)
	if err != nil {
		return nil, nil, err
	}
	if !key.PublicKey.Equal(cert.PublicKey) {
		return nil, nil, fmt.Errorf("%s and %s are no pair", a.Certificate(name), a.Key(name))
	}
	return cert, key, nil
}

func readPEM(path string) ([]byte, error) {
	content, err := os.ReadFile(path) // #nosec G304 -- the landscape's own file.
	if err != nil {
		return nil, err
	}
	block, _ := pem.Decode(content)
	if block == nil {
		return nil, fmt.Errorf("%s has no PEM block", path)
	}
	return block.Bytes, nil
}

func writePEM(path, kind string, der []byte, mode os.FileMode) error {
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), mode); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
