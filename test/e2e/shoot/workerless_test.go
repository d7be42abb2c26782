// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"crypto/x509"
	"encoding/pem"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// lifeSpecs are the specs of a workerless Shoot from its creation to its deletion. Whatever is asked for, meanwhile happens
// while Gardener works on it.
func lifeSpecs(name string, meanwhile func(context.Context, *gardencorev1beta1.Shoot)) {
	var (
		shoot *gardencorev1beta1.Shoot
		// The shoot's versions of Kubernetes, before and after the patch release.
		before, after string
		// authority is the one that signed the certificate of the API server at first.
		authority []*x509.Certificate
	)
	operate := func(ctx context.Context, what string, ask func()) {
		GinkgoHelper()
		timed(name, what, func() {
			ask()
			meanwhile(ctx, shoot)
			g.EventuallyHealthy(ctx, shoot, patience)
		})
	}

	BeforeAll(func(ctx SpecContext) {
		shoot = exampleNamed(exampleWorkerless, name)
		DeferCleanup(remove, shoot)
		makeRoom(ctx)
	})

	It("is created", specPatience, func(ctx SpecContext) {
		before, after = patchVersions(ctx)
		shoot.Spec.Kubernetes.Version = before
		operate(ctx, "create", func() { create(ctx, shoot) })
		Expect(shoot.Status.SeedName).To(HaveValue(Equal(seedName)))
		authority = authorities(ctx, shoot)
		Expect(authority).To(HaveLen(1))
		writeNote(ctx, shoot)
	})

	It("is reconciled", specPatience, func(ctx SpecContext) {
		operate(ctx, "reconcile", func() { g.Operate(ctx, shoot, v1beta1constants.GardenerOperationReconcile) })
		expectNote(ctx, shoot)
	})

	It("takes a patch release of Kubernetes", specPatience, func(ctx SpecContext) {
		operate(ctx, "Kubernetes "+after, func() {
			g.Change(ctx, shoot, func() { shoot.Spec.Kubernetes.Version = after })
		})
		version, err := access(ctx, shoot).Clientset.Discovery().ServerVersion()
		Expect(err).NotTo(HaveOccurred())
		Expect(version.GitVersion).To(Equal("v" + after))
		expectNote(ctx, shoot)
	})

	It("hibernates", specPatience, func(ctx SpecContext) {
		operate(ctx, "hibernate", func() {
			g.Change(ctx, shoot, func() { shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)} })
		})
		Expect(shoot.Status.IsHibernated).To(BeTrue())
		expectNoControlPlane(ctx, shoot)
	})

	It("wakes up", specPatience, func(ctx SpecContext) {
		operate(ctx, "wake up", func() {
			g.Change(ctx, shoot, func() { shoot.Spec.Hibernation = nil })
		})
		Expect(shoot.Status.IsHibernated).To(BeFalse())
		expectNote(ctx, shoot)
	})

	It("starts to rotate all credentials", specPatience, func(ctx SpecContext) {
		operate(ctx, "start rotation", func() { g.Operate(ctx, shoot, v1beta1constants.OperationRotateCredentialsStart) })
		rotation := rotationOf(shoot)
		Expect(rotation.CertificateAuthorities.Phase).To(Equal(gardencorev1beta1.RotationPrepared))
		Expect(rotation.ServiceAccountKey.Phase).To(Equal(gardencorev1beta1.RotationPrepared))
		// With Kubernetes 1.34 this became one operation, which gardenlet completes by itself.
		Expect(rotation.ETCDEncryptionKey.Phase).To(Equal(gardencorev1beta1.RotationCompleted))
		Expect(rotation.Observability.LastCompletionTime).To(Satisfy(isAfter(rotation.Observability.LastInitiationTime)))
		Expect(authorities(ctx, shoot)).To(And(HaveLen(2), ContainElement(authority[0])), "the old one is still trusted, beside the new one")
		expectNote(ctx, shoot)
	})

	It("completes the rotation", specPatience, func(ctx SpecContext) {
		operate(ctx, "complete rotation", func() { g.Operate(ctx, shoot, v1beta1constants.OperationRotateCredentialsComplete) })
		rotation := rotationOf(shoot)
		Expect(rotation.CertificateAuthorities.Phase).To(Equal(gardencorev1beta1.RotationCompleted))
		Expect(rotation.ServiceAccountKey.Phase).To(Equal(gardencorev1beta1.RotationCompleted))
		Expect(rotation.ETCDEncryptionKey.Phase).To(Equal(gardencorev1beta1.RotationCompleted))
		Expect(authorities(ctx, shoot)).To(And(HaveLen(1), Not(ContainElement(authority[0]))), "the old one is not trusted any more")
		expectNote(ctx, shoot)
	})

	It("is deleted, and nothing is left", specPatience, func(ctx SpecContext) {
		left := trace(ctx, shoot)
		timed(name, "delete", func() {
			g.Delete(ctx, shoot)
			meanwhile(ctx, shoot)
			g.EventuallyDeleted(ctx, shoot, patience)
		})
		left.expectNothingLeft(ctx)
	})
}

// rotationOf is how far the rotation of each kind of credentials is.
func rotationOf(shoot *gardencorev1beta1.Shoot) *gardencorev1beta1.ShootCredentialsRotation {
	GinkgoHelper()
	Expect(shoot.Status.Credentials).NotTo(BeNil())
	rotation := shoot.Status.Credentials.Rotation
	Expect(rotation).To(HaveValue(And(
		HaveField("CertificateAuthorities", Not(BeNil())), HaveField("ServiceAccountKey", Not(BeNil())),
		HaveField("ETCDEncryptionKey", Not(BeNil())), HaveField("Observability", Not(BeNil())),
	)))
	return rotation
}

func isAfter(other *metav1.Time) func(*metav1.Time) bool {
	return func(t *metav1.Time) bool { return t != nil && other != nil && t.After(other.Time) }
}

// authorities are those that clients of a shoot trust.
func authorities(ctx context.Context, shoot *gardencorev1beta1.Shoot) []*x509.Certificate {
	GinkgoHelper()
	var certificates []*x509.Certificate
	for rest := access(ctx, shoot).Config.CAData; ; {
		block, more := pem.Decode(rest)
		if block == nil {
			return certificates
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		Expect(err).NotTo(HaveOccurred())
		certificates, rest = append(certificates, certificate), more
	}
}

// note is a Secret of a user, which is encrypted in etcd.
func note() *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "e2e-note"},
		Data:       map[string][]byte{"note": []byte("it is still there")},
	}
}

func writeNote(ctx context.Context, shoot *gardencorev1beta1.Shoot) {
	GinkgoHelper()
	Expect(access(ctx, shoot).Client.Create(ctx, note())).To(Succeed())
}

// expectNote expects that a shoot still has what its user wrote.
func expectNote(ctx context.Context, shoot *gardencorev1beta1.Shoot) {
	GinkgoHelper()
	cluster, secret := access(ctx, shoot), note()
	Eventually(landscape.Get(ctx, cluster.Client, secret)).WithContext(ctx).Should(HaveField("Data", Equal(note().Data)))
}

// expectNoControlPlane expects that nothing runs for a hibernated shoot but what wakes it up.
func expectNoControlPlane(ctx context.Context, shoot *gardencorev1beta1.Shoot) {
	GinkgoHelper()
	apiServer := landscape.Named[*appsv1.Deployment](shoot.Status.TechnicalID, v1beta1constants.DeploymentNameKubeAPIServer)
	Eventually(landscape.Get(ctx, l.Client, apiServer)).WithContext(ctx).Should(HaveField("Status.Replicas", BeZero()))
	Eventually(func() ([]corev1.Pod, error) {
		return landscape.PodsOf(ctx, l.Client, shoot.Status.TechnicalID, client.MatchingLabels{"app.kubernetes.io/part-of": "etcd-main"})
	}).WithContext(ctx).Should(BeEmpty(), "the members of etcd end")
}
