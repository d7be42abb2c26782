// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/x509"
	"encoding/pem"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/bcrypt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

// rotate puts the shoot into a phase of the CA rotation.
func rotate(phase gardencorev1beta1.CredentialsRotationPhase, initiated time.Time) func(*gardencorev1beta1.Shoot) {
	return func(shoot *gardencorev1beta1.Shoot) {
		shoot.Status.Credentials = &gardencorev1beta1.ShootCredentials{Rotation: &gardencorev1beta1.ShootCredentialsRotation{
			CertificateAuthorities: &gardencorev1beta1.CARotation{Phase: phase, LastInitiationTime: &metav1.Time{Time: initiated}},
		}}
	}
}

func certificates(g Gomega, data []byte) []*x509.Certificate {
	var out []*x509.Certificate
	for block, rest := pem.Decode(data); block != nil; block, rest = pem.Decode(rest) {
		certificate, err := x509.ParseCertificate(block.Bytes)
		g.Expect(err).NotTo(HaveOccurred())
		out = append(out, certificate)
	}
	return out
}

// authorities are the names of the CAs in the Secrets with their keys, in the bundle, and of the issuers of the
// certificates.
type authorities struct {
	kept, trusted, server, client []string
}

func (c *cluster) authorities() authorities {
	c.t.Helper()
	g := NewWithT(c.t)
	var (
		out     authorities
		secrets = c.secrets()
	)
	subject := func(certificate *x509.Certificate) string { return certificate.Subject.CommonName }
	issuer := func(certificate *x509.Certificate) string { return certificate.Issuer.CommonName }
	collect := func(secrets []corev1.Secret, key string, name func(*x509.Certificate) string) []string {
		var names []string
		for _, secret := range secrets {
			for _, certificate := range certificates(g, secret.Data[key]) {
				names = append(names, name(certificate))
			}
		}
		return names
	}
	out.kept = collect(secrets[authorityName], "ca.crt", subject)
	out.trusted = collect(secrets[authorityName+"-bundle"], "bundle.crt", subject)
	out.server = collect(secrets[serverName], "tls.crt", issuer)
	out.client = collect(secrets[dummyClientName], "tls.crt", issuer)
	return out
}

func TestTheSecretsAreThere(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t).withCredentials()
	c.mustReconcile()

	secrets := c.secrets()
	g.Expect(secrets).To(HaveLen(6))
	for name, found := range secrets {
		g.Expect(found).To(HaveLen(1), name)
		g.Expect(found[0].Immutable).To(HaveValue(BeTrue()), name)
		if name == authorityName {
			g.Expect(found[0].Labels).To(HaveKeyWithValue("persist", "true"))
		} else {
			g.Expect(found[0].Labels).NotTo(HaveKey("persist"), name)
		}
	}
	g.Expect(secrets).To(HaveKey("ca-provider-local-controlplane"))

	server := certificates(g, secrets[serverName][0].Data["tls.crt"])[0]
	g.Expect(server.DNSNames).To(ContainElements("cloud-controller", "cloud-controller.shoot--local--foo.svc"))
	g.Expect(server.ExtKeyUsage).To(ConsistOf(x509.ExtKeyUsageServerAuth))
	g.Expect(certificates(g, secrets[dummyServerName][0].Data["tls.crt"])[0].ExtKeyUsage).To(ConsistOf(x509.ExtKeyUsageServerAuth))
	g.Expect(certificates(g, secrets[dummyClientName][0].Data["tls.crt"])[0].ExtKeyUsage).To(ConsistOf(x509.ExtKeyUsageClientAuth))
	g.Expect(secrets[dummyAuthName][0].Data).To(HaveKey("auth"))
	g.Expect(secrets[dummyAuthName][0].Data["password"]).To(HaveLen(32))
	user, hash, _ := strings.Cut(string(secrets[dummyAuthName][0].Data["auth"]), ":")
	g.Expect(user).To(Equal(string(secrets[dummyAuthName][0].Data["username"])))
	g.Expect(bcrypt.CompareHashAndPassword([]byte(hash), secrets[dummyAuthName][0].Data["password"])).To(Succeed())
}

func TestTheAuthorityIsRotatedInTheShootsPhases(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	c.mustReconcile()
	first := c.authorities()
	g.Expect(first.kept).To(HaveLen(1))
	before := first.kept[0]
	g.Expect(first).To(Equal(authorities{kept: first.kept, trusted: first.kept, server: first.kept, client: first.kept}))

	initiated := c.clock.Now().Add(time.Hour)
	c.clock.Step(2 * time.Hour)
	in := func(phase gardencorev1beta1.CredentialsRotationPhase) authorities {
		c.setShoot(rotate(phase, initiated))
		// Each phase is gone through twice, by two processes.
		for range 2 {
			c.restart()
			c.ask("reconcile")
			c.mustReconcile()
			c.clock.Step(time.Minute)
		}
		return c.authorities()
	}

	var after string
	for _, phase := range []gardencorev1beta1.CredentialsRotationPhase{gardencorev1beta1.RotationPreparing, gardencorev1beta1.RotationPrepared} {
		now := in(phase)
		g.Expect(now.kept).To(HaveLen(2), "%s", phase)
		g.Expect(now.kept).To(ContainElement(before), "%s", phase)
		for _, name := range now.kept {
			if name != before {
				after = name
			}
		}
		g.Expect(now.trusted).To(ConsistOf(before, after), "%s: clients trust both", phase)
		g.Expect(now.server).To(ConsistOf(before), "%s: not all clients know the new one yet", phase)
		g.Expect(now.client).To(ConsistOf(after), "%s: servers trust both", phase)
	}

	for _, phase := range []gardencorev1beta1.CredentialsRotationPhase{gardencorev1beta1.RotationCompleting, gardencorev1beta1.RotationCompleted} {
		g.Expect(in(phase)).To(Equal(authorities{kept: []string{after}, trusted: []string{after}, server: []string{after}, client: []string{after}}), "%s", phase)
	}
	g.Expect(c.secrets()).To(HaveEach(HaveLen(1)), "nothing is left behind")
}

func TestCloudControllerGetsTheNewCertificate(t *testing.T) {
	g := NewWithT(t)
	c := newDeployedCluster(t)
	server := func() string {
		for name, object := range c.objects(SeedName) {
			if name == "Deployment shoot--local--foo/cloud-controller" {
				return c.volumeSecret(object, "server")
			}
		}
		return ""
	}
	before := server()
	g.Expect(before).To(Equal(c.secrets()[serverName][0].Name))

	initiated := c.clock.Now()
	for _, phase := range []gardencorev1beta1.CredentialsRotationPhase{gardencorev1beta1.RotationPreparing, gardencorev1beta1.RotationCompleting} {
		c.clock.Step(time.Minute)
		c.setShoot(rotate(phase, initiated))
		c.ask("reconcile")
		c.mustReconcile()
	}
	g.Expect(server()).To(Equal(c.secrets()[serverName][0].Name))
	g.Expect(server()).NotTo(Equal(before))
}

func TestSecretsAreRenewedBeforeTheyExpire(t *testing.T) {
	names := func(c *cluster) map[string]string {
		out := map[string]string{}
		for name, secrets := range c.secrets() {
			out[name] = secrets[0].Name
		}
		return out
	}
	for name, test := range map[string]struct {
		later   time.Duration
		renewed []string
	}{
		"nothing within an hour":                     {59 * time.Minute, nil},
		"the credentials after an hour":              {61 * time.Minute, []string{dummyAuthName}},
		"the certificates ten days before their end": {21 * 24 * time.Hour, []string{dummyAuthName, dummyServerName, dummyClientName}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newServedCluster(t).withCredentials()
			c.mustReconcile()
			before := names(c)

			c.clock.Step(test.later)
			c.ask("reconcile")
			c.mustReconcile()
			after := names(c)
			g.Expect(c.secrets()).To(HaveEach(HaveLen(1)), "the old ones are deleted")
			var renewed []string
			for name := range before {
				if before[name] != after[name] {
					renewed = append(renewed, name)
				}
			}
			g.Expect(renewed).To(ConsistOf(test.renewed))
		})
	}
}

func TestSecretsOfOthersAreLeftAlone(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	for identity, labels := range map[string]map[string]string{
		"gardenlet": {"managed-by": "secrets-manager", "manager-identity": "gardenlet", "name": "ca"},
		"none":      {"name": authorityName},
	} {
		g.Expect(c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "of-" + identity, Labels: labels}})).To(Succeed())
	}
	c.mustReconcile()
	c.delete()
	for range 4 {
		c.mustReconcile()
	}
	g.Expect(c.isGone()).To(BeTrue())
	var left []string
	for _, secret := range c.allSecrets() {
		left = append(left, secret.Name)
	}
	g.Expect(left).To(ConsistOf("of-gardenlet", "of-none"))
}

func TestOneListAnswersForTheSecretsOfThisIdentityOnly(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	c.mustReconcile()
	listed := &listedSecrets{Client: c, namespace: namespace}
	g.Expect(listed.list(t.Context())).To(Succeed())
	known := c.secrets()[authorityName][0]
	g.Expect(c.DeleteAllOf(t.Context(), &corev1.Secret{}, client.InNamespace(namespace))).To(Succeed())

	list := &corev1.SecretList{}
	ours := client.MatchingLabels{"manager-identity": secretsIdentity, "name": authorityName}
	g.Expect(listed.List(t.Context(), list, client.InNamespace(namespace), ours)).To(Succeed())
	g.Expect(list.Items).To(HaveLen(1))
	list.Items[0].Labels["name"] = "changed"

	secret := &corev1.Secret{}
	g.Expect(listed.Get(t.Context(), client.ObjectKeyFromObject(&known), secret)).To(Succeed())
	g.Expect(secret.Labels).To(Equal(known.Labels), "each answer is a copy")

	g.Expect(listed.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "other"}, secret)).NotTo(Succeed())
	for name, opts := range map[string][]client.ListOption{
		"another namespace": {client.InNamespace("other"), ours},
		"other labels":      {client.InNamespace(namespace), client.MatchingLabels{"secrets-manager-use-data-for-name": "x"}},
		"another identity":  {client.InNamespace(namespace), client.MatchingLabels{"manager-identity": "gardenlet"}},
		"no labels":         {client.InNamespace(namespace)},
	} {
		g.Expect(listed.List(t.Context(), list, opts...)).To(Succeed(), name)
		g.Expect(list.Items).To(BeEmpty(), name)
	}
	g.Expect(strings.HasPrefix(known.Name, authorityName)).To(BeTrue())
}
