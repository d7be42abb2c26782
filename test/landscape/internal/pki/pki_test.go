// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package pki_test

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/pki"
)

func load(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	block, _ := pem.Decode(content)
	g.Expect(block).NotTo(BeNil())
	cert, err := x509.ParseCertificate(block.Bytes)
	g.Expect(err).NotTo(HaveOccurred())
	return cert
}

func TestServeMakesACertificateForItsHosts(t *testing.T) {
	g := NewWithT(t)
	authority, err := pki.Open(t.TempDir(), time.Now)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(authority.Issue(pki.Identity{Name: "s", User: "s", Hosts: []string{"localhost", "172.18.0.2"}})).To(Succeed())
	pool := x509.NewCertPool()
	pool.AddCert(load(t, authority.Certificate("ca")))
	cert := load(t, authority.Certificate("s"))
	for _, host := range []string{"localhost", "172.18.0.2"} {
		_, err := cert.Verify(x509.VerifyOptions{DNSName: host, Roots: pool})
		g.Expect(err).NotTo(HaveOccurred(), host)
	}
	_, err = cert.Verify(x509.VerifyOptions{DNSName: "example.com", Roots: pool})
	g.Expect(err).To(HaveOccurred())
}

func TestServeKeepsWhatIsGoodAndRenewsWhatIsNot(t *testing.T) {
	server := pki.Identity{Name: "s", User: "s", Hosts: []string{"a", "10.0.0.1"}}
	for _, test := range []struct {
		name string
		// later is when the second run happens; changed is what it asks for.
		later   time.Duration
		changed pki.Identity
		renewed bool
	}{
		{name: "keeps a certificate that is good", changed: server},
		{name: "renews for other hosts", changed: pki.Identity{Name: "s", User: "s", Hosts: []string{"a", "10.0.0.2"}}, renewed: true},
		{name: "renews for another user", changed: pki.Identity{Name: "s", User: "t", Hosts: server.Hosts}, renewed: true},
		{name: "renews shortly before the end", later: 340 * 24 * time.Hour, changed: server, renewed: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			authority, err := pki.Open(dir, time.Now)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(authority.Issue(server)).To(Succeed())
			before := load(t, authority.Certificate("s"))

			authority, err = pki.Open(dir, func() time.Time { return time.Now().Add(test.later) })
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(authority.Issue(test.changed)).To(Succeed())
			g.Expect(load(t, authority.Certificate("s")).Equal(before)).To(Equal(!test.renewed))
		})
	}
}

func TestOpenRefusesABrokenCA(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	_, err := pki.Open(dir, time.Now)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(dir, "ca.crt"), []byte("cut o"), 0o600)).To(Succeed())
	_, err = pki.Open(dir, time.Now)
	g.Expect(err).To(MatchError(ContainSubstring("remove " + dir)))
}

func TestWriteKubeconfigIsReadableAndStable(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	authority, err := pki.Open(dir, time.Now)
	g.Expect(err).NotTo(HaveOccurred())
	path := authority.Kubeconfig("x")
	who := pki.Identity{Name: "x", User: "someone", Groups: []string{"team"}}
	g.Expect(authority.WriteKubeconfig(who, "https://10.0.0.1:6443", path)).To(Succeed())
	first, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	config, err := clientcmd.RESTConfigFromKubeConfig(first)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Host).To(Equal("https://10.0.0.1:6443"))
	subject := load(t, authority.Certificate("x")).Subject
	g.Expect(subject.CommonName).To(Equal("someone"))
	g.Expect(subject.Organization).To(Equal([]string{"team"}))

	g.Expect(authority.WriteKubeconfig(who, "https://10.0.0.1:6443", path)).To(Succeed())
	second, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second).To(Equal(first))
}

func TestServiceAccountKeyStays(t *testing.T) {
	g := NewWithT(t)
	authority, err := pki.Open(t.TempDir(), time.Now)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(authority.ServiceAccountKey()).To(Succeed())
	first, err := os.ReadFile(authority.Key("sa"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(authority.ServiceAccountKey()).To(Succeed())
	g.Expect(os.ReadFile(authority.Key("sa"))).To(Equal(first))
}

func TestACertificateThatIsCutOffIsMadeAgain(t *testing.T) {
	g := NewWithT(t)
	authority, err := pki.Open(t.TempDir(), time.Now)
	g.Expect(err).NotTo(HaveOccurred())
	who := pki.Identity{Name: "x", User: "someone"}
	for _, path := range []string{authority.Certificate("x"), authority.Key("x")} {
		g.Expect(authority.Issue(who)).To(Succeed())
		g.Expect(os.Truncate(path, 20)).To(Succeed())
		g.Expect(authority.Issue(who)).To(Succeed())
		g.Expect(load(t, authority.Certificate("x")).Subject.CommonName).To(Equal("someone"))
	}
}
