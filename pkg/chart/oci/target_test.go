// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"crypto/x509"
	"encoding/pem"
	"net/http/httptest"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"oras.land/oras-go/v2/registry/remote/auth"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
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
	for at, want := range map[endpoint]auth.Credential{
		{Registry: "docker.io", Repository: "library/x"}:           {Username: "hub", Password: "p"},
		{Registry: "registry.example.org", Repository: "x"}:        {Username: "host", Password: "p"},
		{Registry: "REGISTRY.example.org", Repository: "teams/x"}:  {Username: "host", Password: "p"},
		{Registry: "registry.example.org", Repository: "team/x"}:   {Username: "team", Password: "p"},
		{Registry: "registry.example.org", Repository: "team/app"}: {Username: "app", Password: "p"},
		{Registry: "registry.example.org:5000", Repository: "x"}:   {RefreshToken: "refresh"},
		{Registry: "token.example.org", Repository: "x"}:           {AccessToken: "access"},
		{Registry: "other.example.org", Repository: "x"}:           {},
		{Registry: "sub.registry.example.org", Repository: "x"}:    {},
	} {
		t.Run(at.String(), func(t *testing.T) {
			g := NewWithT(t)
			got, err := credentialFor(t.Context(), []byte(config), at)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(want))
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
	reader := fakeclient.NewClientBuilder().WithObjects(&corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Name: "ca", Namespace: "instance"}, Data: map[string][]byte{CABundleKey: bundle},
	}).Build()
	puller, err := New(Options{Directory: t.TempDir(), Reader: reader, Namespace: "instance"})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = puller.Close() })

	chart, err := puller.Source(configv1alpha1.OCIChart{
		Ref: "registry.example.org/app:v1", CABundleSecretRef: &corev1.LocalObjectReference{Name: "ca"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	access, err := chart.(*source).access(t.Context())
	g.Expect(err).NotTo(HaveOccurred())

	want, err := x509.SystemCertPool()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(access.roots.Equal(want)).To(BeFalse())
	want.AddCert(server.Certificate())
	g.Expect(access.roots.Equal(want)).To(BeTrue())
}
