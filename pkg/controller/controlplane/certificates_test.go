// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"crypto/ecdsa"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	extensionssecretsmanager "github.com/gardener/gardener/extensions/pkg/util/secret/manager"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"
)

// verify checks that a certificate is trusted by those who have the bundle, and that its key is its own.
func (c *cluster) verify(name string, usage x509.ExtKeyUsage) *x509.Certificate {
	c.t.Helper()
	g := NewWithT(c.t)
	secret := c.secrets()[name][0]
	g.Expect(secret.Type).To(Equal(corev1.SecretTypeTLS))
	pair, err := tls.X509KeyPair(secret.Data["tls.crt"], secret.Data["tls.key"])
	g.Expect(err).NotTo(HaveOccurred(), name)

	trusted := x509.NewCertPool()
	g.Expect(trusted.AppendCertsFromPEM(c.secrets()[authorityName+"-bundle"][0].Data["bundle.crt"])).To(BeTrue())
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: trusted, KeyUsages: []x509.ExtKeyUsage{usage}, CurrentTime: c.clock.Now()})
	g.Expect(err).NotTo(HaveOccurred(), name)
	return pair.Leaf
}

func (c *cluster) verifyAll() {
	c.t.Helper()
	c.verify(serverName, x509.ExtKeyUsageServerAuth)
	c.verify(dummyServerName, x509.ExtKeyUsageServerAuth)
	c.verify(dummyClientName, x509.ExtKeyUsageClientAuth)
}

func TestCertificatesAreTrustedInEveryPhaseOfARotation(t *testing.T) {
	c := newServedCluster(t)
	c.mustReconcile()
	c.verifyAll()
	initiated := c.clock.Now().Add(time.Hour)
	c.clock.Step(2 * time.Hour)
	for _, phase := range []gardencorev1beta1.CredentialsRotationPhase{
		gardencorev1beta1.RotationPreparing, gardencorev1beta1.RotationPrepared, gardencorev1beta1.RotationCompleting, gardencorev1beta1.RotationCompleted,
	} {
		c.setShoot(rotate(phase, initiated))
		c.ask("reconcile")
		c.mustReconcile()
		c.verifyAll()
	}
}

func TestCertificatesHaveKeysThatAreMadeFast(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	c.mustReconcile()
	now := c.clock.Now()

	server := c.verify(serverName, x509.ExtKeyUsageServerAuth)
	g.Expect(server.PublicKey).To(BeAssignableToTypeOf(&ecdsa.PublicKey{}))
	g.Expect(server.Subject.CommonName).To(Equal("cloud-controller"))
	g.Expect(server.NotBefore).To(BeTemporally("<", now))
	g.Expect(server.NotAfter).To(BeTemporally("~", now.Add(certificateValidity), time.Second))

	dummy := c.verify(dummyClientName, x509.ExtKeyUsageClientAuth)
	g.Expect(dummy.NotAfter).To(BeTemporally("~", now.Add(dummyCertificateValidity), time.Second))
	g.Expect(dummy.Subject.Organization).To(ConsistOf("provider-local"))

	labels := c.secrets()[dummyClientName][0].Labels
	g.Expect(labels).To(HaveKeyWithValue("issued-at-time", unixTime(now)))
	g.Expect(labels).To(HaveKeyWithValue("valid-until-time", unixTime(now.Add(dummyCertificateValidity))))
	g.Expect(labels).To(HaveKey("checksum-of-signing-ca"))
}

// generateFormer makes the secrets as an older version did, by the library's own means and with RSA keys.
func (c *cluster) generateFormer() {
	c.t.Helper()
	g := NewWithT(c.t)
	generateKey := secretsutils.GenerateKey
	secretsutils.GenerateKey = secretsutils.FakeGenerateKey
	defer func() { secretsutils.GenerateKey = generateKey }()

	var former []extensionssecretsmanager.SecretConfigWithOptions
	for _, secret := range withoutCredentials(namespace) {
		config := secret.(*certificateConfig).CertificateSecretConfig
		opts := []secretsmanager.GenerateOption{secretsmanager.Persist()}
		if config.CertType != secretsutils.CACert {
			config.SkipPublishingCACertificate = true
			opts = []secretsmanager.GenerateOption{secretsmanager.SignedByCA(authorityName)}
		}
		former = append(former, extensionssecretsmanager.SecretConfigWithOptions{Config: &config, Options: opts})
	}
	cluster := &extensionscontroller.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Shoot: newShoot()}
	manager, err := extensionssecretsmanager.SecretsManagerForCluster(c.t.Context(), log(), c.clock, c, cluster, secretsIdentity, former)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = extensionssecretsmanager.GenerateAllSecrets(c.t.Context(), manager, former)
	g.Expect(err).NotTo(HaveOccurred())
}

func TestAnAuthorityOfAnOlderVersionIsUsedUntilItIsRotated(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	c.generateFormer()
	before := c.secrets()
	g.Expect(before).To(HaveLen(5))

	for range 2 {
		c.clock.Step(time.Minute)
		c.ask("reconcile")
		c.mustReconcile()
		after := c.secrets()
		g.Expect(slices.Sorted(maps.Keys(after))).To(Equal(slices.Sorted(maps.Keys(before))))
		g.Expect(after).To(HaveEach(HaveLen(1)), "what is replaced is deleted")
		for _, name := range []string{authorityName, authorityName + "-bundle"} {
			g.Expect(after[name][0].Name).To(Equal(before[name][0].Name), name)
			g.Expect(after[name][0].Data).To(Equal(before[name][0].Data), name)
		}
		c.verifyAll()
	}
	g.Expect(c.requests).NotTo(ContainElement("patch Secret"), "the labels are as they are to be by now")
	authority := certificates(g, c.secrets()[authorityName][0].Data["ca.crt"])[0]
	g.Expect(authority.PublicKey).To(BeAssignableToTypeOf(&rsa.PublicKey{}))

	initiated := c.clock.Now()
	for _, phase := range []gardencorev1beta1.CredentialsRotationPhase{gardencorev1beta1.RotationPreparing, gardencorev1beta1.RotationCompleting} {
		c.clock.Step(time.Minute)
		c.setShoot(rotate(phase, initiated))
		c.ask("reconcile")
		c.mustReconcile()
		c.verifyAll()
	}
	g.Expect(c.secrets()).To(HaveEach(HaveLen(1)))
	authority = certificates(g, c.secrets()[authorityName][0].Data["ca.crt"])[0]
	g.Expect(authority.PublicKey).To(BeAssignableToTypeOf(&ecdsa.PublicKey{}))
}

func TestASecretWithoutLabelsIsTakenOver(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	c.mustReconcile()
	authority := c.secrets()[authorityName][0]
	labels := authority.Labels
	authority.Labels = nil
	g.Expect(c.Update(t.Context(), &authority)).To(Succeed())

	c.ask("reconcile")
	c.mustReconcile()
	g.Expect(c.secrets()[authorityName][0].Data).To(Equal(authority.Data))
	for _, label := range []string{"name", "managed-by", "persist", "issued-at-time"} {
		g.Expect(c.secrets()[authorityName][0].Labels).To(HaveKeyWithValue(label, labels[label]))
	}
	c.verifyAll()
}

func TestSecretsOfAProcessThatEndedHalfWayAreTakenOver(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	c.mustReconcile()
	before := c.secrets()
	cp := c.controlPlane()
	cp.Status.LastOperation, cp.Status.LastError = nil, nil
	g.Expect(c.Status().Update(t.Context(), cp)).To(Succeed())
	server := before[serverName][0]
	g.Expect(c.Delete(t.Context(), &server)).To(Succeed())

	c.restart()
	c.mustReconcile()
	g.Expect(c.requests).NotTo(ContainElement("list Secret"))
	after := c.secrets()
	g.Expect(after).To(HaveLen(len(before)))
	g.Expect(after).To(HaveEach(HaveLen(1)))
	g.Expect(after[authorityName]).To(Equal(before[authorityName]))
	c.verifyAll()
}

func TestASecretThatCannotSignIsReported(t *testing.T) {
	for name, data := range map[string]map[string][]byte{
		"no certificate": {"ca.key": []byte("x")},
		"no key":         nil,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			config := &certificateConfig{clock: testclock.NewFakeClock(time.Now())}
			config.CertificateSecretConfig = secretsutils.CertificateSecretConfig{Name: "a", CertType: secretsutils.CACert}
			if data == nil {
				made, err := config.Generate()
				g.Expect(err).NotTo(HaveOccurred())
				data = map[string][]byte{"ca.crt": made.SecretData()["ca.crt"]}
			}
			_, err := loadAuthority(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "a"}, Data: data})
			g.Expect(err).To(MatchError(ContainSubstring("in secret a")))
		})
	}

	g := NewWithT(t)
	for _, certType := range []secretsutils.CertType{secretsutils.ServerCert, "other"} {
		config := &certificateConfig{clock: testclock.NewFakeClock(time.Now())}
		config.CertType = certType
		_, err := config.Generate()
		g.Expect(err).To(HaveOccurred())
	}
}

func TestASecretThatIsNotListedIsNotAskedFor(t *testing.T) {
	g := NewWithT(t)
	c := newServedCluster(t)
	listed := &listedSecrets{Client: c, namespace: namespace}
	g.Expect(listed.list(t.Context())).To(Succeed())
	g.Expect(c.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "there"}})).To(Succeed())

	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "there"}}
	g.Expect(apierrors.IsNotFound(listed.Get(t.Context(), client.ObjectKeyFromObject(secret), secret))).To(BeTrue())
	g.Expect(apierrors.IsAlreadyExists(listed.Create(t.Context(), secret))).To(BeTrue())
	g.Expect(listed.Get(t.Context(), client.ObjectKeyFromObject(secret), secret)).To(Succeed())
	g.Expect(listed.Get(t.Context(), client.ObjectKey{Name: namespace}, &extensionsv1alpha1.Cluster{})).To(Succeed(), "other kinds are read")
}

// BenchmarkSecrets is the CPU time for the secrets of a new ControlPlane.
func BenchmarkSecrets(b *testing.B) {
	for name, configs := range map[string]func(string) []secretConfig{
		"certificates": withoutCredentials, "all": secretConfigs,
	} {
		b.Run(name, func(b *testing.B) {
			c := newCluster(b)
			actuator := c.newActuator()
			actuator.secretConfigs = configs
			cluster := &extensionscontroller.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Shoot: newShoot()}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := actuator.generateSecrets(b.Context(), log(), cluster, true); err != nil {
					b.Fatal(err)
				}
				if err := actuator.deleteSecrets(b.Context(), namespace); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
