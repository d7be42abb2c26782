// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	. "github.com/onsi/gomega"
)

func TestCredentialsAreFoundByHostAndLongestPath(t *testing.T) {
	const config = `{"auths":{
		"https://index.docker.io/v1/": {"username":"hub","password":"p"},
		"registry.example.org": {"auth":"aG9zdDpw"},
		"https://registry.example.org/team": {"username":"team","password":"p"},
		"registry.example.org/team/app": {"username":"app","password":"p"},
		"registry.example.org:5000": {"identitytoken":"refresh"},
		"token.example.org": {"registrytoken":"access"}
	}}`
	for at, want := range map[string]authn.AuthConfig{
		"docker.io/library/x":           {Username: "hub", Password: "p"},
		"registry.example.org/xx":       {Username: "host", Password: "p"},
		"REGISTRY.example.org/teams/x":  {Username: "host", Password: "p"},
		"registry.example.org/team/x":   {Username: "team", Password: "p"},
		"registry.example.org/team/app": {Username: "app", Password: "p"},
		"registry.example.org:5000/xx":  {IdentityToken: "refresh"},
		"token.example.org/xx":          {RegistryToken: "access"},
		"other.example.org/xx":          {},
		"sub.registry.example.org/xx":   {},
	} {
		t.Run(at, func(t *testing.T) {
			g := NewWithT(t)
			repository, err := name.NewRepository(at)
			g.Expect(err).NotTo(HaveOccurred())
			found, err := (&source{pullSecret: config}).Resolve(repository)
			g.Expect(err).NotTo(HaveOccurred())
			got, err := found.Authorization()
			g.Expect(err).NotTo(HaveOccurred())
			got.Auth = ""
			g.Expect(*got).To(Equal(want))
		})
	}
}

func TestTheLoopbackIsKnownByItsAddressesAndReservedNames(t *testing.T) {
	g := NewWithT(t)
	for _, host := range []string{"localhost", "localhost:5000", "LOCALHOST", "a.localhost:1", "127.0.0.1", "127.9.9.9:80", "[::1]", "[::1]:5000", "[::ffff:127.0.0.1]:1"} {
		g.Expect(isLoopback(host)).To(BeTrue(), host)
	}
	for _, host := range []string{"localhost.example.org", "notlocalhost", "128.0.0.1", "0.0.0.0:80", "[::2]:1", "10.0.0.1", "127.0.0.1.example.org"} {
		g.Expect(isLoopback(host)).To(BeFalse(), host)
	}
}

func TestACAIsAddedToThoseOfTheSystem(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewTLSServer(nil)
	server.Close()
	bundle := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	roots := rootsWith(string(bundle))
	want, err := x509.SystemCertPool()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(roots.Equal(want)).To(BeFalse())
	want.AddCert(server.Certificate())
	g.Expect(roots.Equal(want)).To(BeTrue())
}
