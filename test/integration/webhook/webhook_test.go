// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/serializer/yaml"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/managedresources"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
)

var _ = Describe("Webhooks", Ordered, func() {
	var leader, standby *replica

	AfterAll(func() {
		for _, replica := range replicas {
			replica.Stop()
		}
	})

	It("should have a replica that is not the leader wait for a certificate", func(ctx SpecContext) {
		lease := &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Namespace: instanceNamespace, Name: instanceName},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity:       new("another replica, which has made no certificate yet"),
				LeaseDurationSeconds: new(int32(3600)),
				AcquireTime:          new(metav1.NowMicro()),
				RenewTime:            new(metav1.NowMicro()),
			},
		}
		Expect(c.Create(ctx, lease)).To(Succeed())

		standby = startReplica(webhooks()...)
		Eventually(standby.ready).WithContext(ctx).Should(MatchError(ContainSubstring("500")))
		Consistently(standby.Done(), "1s").ShouldNot(BeClosed())
		Expect(standby.ready(ctx)).NotTo(Succeed())
		_, err := standby.serves()
		Expect(err).To(HaveOccurred())

		Expect(c.Delete(ctx, lease)).To(Succeed())
		Eventually(standby.leads).Should(BeTrue())
		Eventually(standby.ready).WithContext(ctx).Should(Succeed())

		leader = standby
		standby = startReplica(webhooks()...)
		Eventually(standby.ready).WithContext(ctx).Should(Succeed())
		Expect(standby.leads()).To(BeFalse())
		service.route(leader.address, standby.address)
	})

	It("should have the API server call them", func(ctx SpecContext) {
		Eventually(create).WithArguments(ctx, "first").Should(Succeed())

		namespace := &corev1.Namespace{}
		Expect(c.Get(ctx, client.ObjectKey{Name: instanceNamespace}, namespace)).To(Succeed())
		Expect(configuration(ctx).OwnerReferences).To(ConsistOf(HaveField("UID", namespace.UID)))
	})

	It("should write nothing if nothing has changed", func(ctx SpecContext) {
		version := configuration(ctx).ResourceVersion
		for range 3 {
			step(ctx, time.Hour)
			Consistently(func() string { return configuration(ctx).ResourceVersion }, "300ms").Should(Equal(version))
		}
	})

	It("should put right what is deleted or changed by hand", func(ctx SpecContext) {
		bundle := bundleOf(configuration(ctx))

		Expect(c.Delete(ctx, configuration(ctx))).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(bundleOf(configuration(ctx))).To(Equal(bundle)) }).Should(Succeed())

		changed := configuration(ctx)
		changed.Webhooks = changed.Webhooks[:1]
		changed.Webhooks[0].ClientConfig.CABundle = nil
		Expect(c.Update(ctx, changed)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(configuration(ctx).Webhooks).To(HaveLen(2))
			g.Expect(bundleOf(configuration(ctx))).To(Equal(bundle))
		}).Should(Succeed())

		renewsItsCertificate(ctx, leader, standby)
		Eventually(create).WithArguments(ctx, "put-right").Should(Succeed())
	})

	It("should follow the certificates though the watches hang", func(ctx SpecContext) {
		api.HangWatches()
		renewsItsCertificate(ctx, leader, standby)
	})

	It("should rotate the CA, with a change of the leader in between, without a call that fails", func(ctx SpecContext) {
		Expect(leader.shoots.Apply(ctx, shootNamespace)).To(Succeed())
		oldCA := bundleOf(configuration(ctx))
		Expect(oldCA).To(HaveLen(1))
		Expect(shootBundle(ctx)).To(Equal(oldCA))

		calls := startCalls()
		DeferCleanup(calls.stop)
		calls.more(20)

		By("phase 1: a new CA is trusted, the certificates are those of the old one")
		step(ctx, 20*day)
		Eventually(func() []*x509.Certificate { return bundleOf(configuration(ctx)) }).Should(HaveLen(2))
		newCA := bundleOf(configuration(ctx))[:1]
		Eventually(func() []*x509.Certificate { return shootBundle(ctx) }).Should(HaveLen(2))
		calls.more(50)
		expectServed(oldCA[0], leader, standby)

		By("a change of the leader")
		service.route(standby.address)
		calls.more(2)
		leader.Stop()
		leader = standby
		Eventually(leader.leads).Should(BeTrue())
		calls.more(20)
		standby = startReplica(webhooks()...)
		Eventually(standby.ready).WithContext(ctx).Should(Succeed())
		service.route(leader.address, standby.address)
		calls.more(20)

		By("phase 2: the certificates are those of the new CA")
		step(ctx, day+time.Minute)
		Eventually(func(g Gomega) {
			for _, replica := range []*replica{leader, standby} {
				served, err := replica.serves()
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(served.CheckSignatureFrom(newCA[0])).To(Succeed())
			}
		}).Should(Succeed())
		calls.more(50)
		Expect(bundleOf(configuration(ctx))).To(HaveLen(2))

		By("phase 3: the old CA is no more")
		step(ctx, day+time.Minute)
		Eventually(func() []*x509.Certificate { return bundleOf(configuration(ctx)) }).Should(Equal(newCA))
		Eventually(func() []*x509.Certificate { return shootBundle(ctx) }).Should(Equal(newCA))
		calls.more(50)
		Eventually(func() []corev1.Secret { return serverSecrets(ctx) }).Should(HaveLen(1))

		calls.stop()
		Expect(calls.failed()).To(BeEmpty())
	})

	It("should block nothing but what asked for it when all replicas are dead", func(ctx SpecContext) {
		service.route()
		leader.Stop()
		standby.Stop()
		service.cut()

		started := time.Now()
		serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: objectNamespace, Name: "dead"}}
		Expect(c.Create(ctx, serviceAccount)).To(Succeed())
		Expect(serviceAccount.Annotations).To(BeEmpty())
		Expect(time.Since(started)).To(BeNumerically("<", 7*time.Second))

		Expect(c.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "dead"}})).To(Succeed())
		Expect(create(ctx, "dead")).To(MatchError(ContainSubstring("failed calling webhook")))
	})

	It("should remove everything when there are no webhooks any more", func(ctx SpecContext) {
		replica := startReplica()
		Eventually(replica.leads).Should(BeTrue())
		Eventually(func(g Gomega) {
			list := &admissionregistrationv1.MutatingWebhookConfigurationList{}
			g.Expect(c.List(ctx, list)).To(Succeed())
			g.Expect(list.Items).To(BeEmpty())
			g.Expect(serverSecrets(ctx)).To(BeEmpty())
			managedResources := &resourcesv1alpha1.ManagedResourceList{}
			g.Expect(c.List(ctx, managedResources)).To(Succeed())
			g.Expect(managedResources.Items).To(BeEmpty())
		}).Should(Succeed())
		Expect(create(ctx, "free")).To(MatchError("not mutated"))
	})
})

// renewsItsCertificate deletes the certificate, and waits until there is another one that the replicas serve.
func renewsItsCertificate(ctx context.Context, replicas ...*replica) {
	GinkgoHelper()
	secrets := serverSecrets(ctx)
	Expect(secrets).To(HaveLen(1))
	Expect(c.Delete(ctx, &secrets[0])).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(serverSecrets(ctx)).To(HaveLen(1))
		for _, replica := range replicas {
			served, err := replica.serves()
			g.Expect(err).NotTo(HaveOccurred())
			want, err := cert.ParseCertsPEM(serverSecrets(ctx)[0].Data["tls.crt"])
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(served.Equal(want[0])).To(BeTrue())
		}
	}).Should(Succeed())
}

// step lets time pass, and wakes the leader, which sleeps by the real time.
func step(ctx context.Context, d time.Duration) {
	GinkgoHelper()
	clock.Step(d)
	secret := &serverSecrets(ctx)[0]
	before := secret.DeepCopy()
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, "now", clock.Now().String())
	Expect(c.Patch(ctx, secret, client.MergeFrom(before))).To(Succeed())
}

// create creates a ConfigMap, and fails if it was not mutated.
func create(ctx context.Context, name string) error {
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: objectNamespace, GenerateName: name + "-"}}
	if err := c.Create(ctx, configMap); err != nil {
		return err
	}
	if configMap.Annotations["mutated"] != "yes" {
		return fmt.Errorf("not mutated")
	}
	return nil
}

// calls are calls without an end, each with a handshake of its own.
type calls struct {
	cancel context.CancelFunc
	done   chan struct{}
	count  atomic.Int64
	errors chan error
}

func startCalls() *calls {
	ctx, cancel := context.WithCancel(context.Background())
	calls := &calls{cancel: cancel, done: make(chan struct{}), errors: make(chan error, 1000)}
	go func() {
		defer close(calls.done)
		for ctx.Err() == nil {
			service.cut()
			if err := create(context.WithoutCancel(ctx), "call"); err != nil {
				calls.errors <- err
			}
			calls.count.Add(1)
		}
	}()
	return calls
}

// more waits for some more calls.
func (c *calls) more(n int64) {
	GinkgoHelper()
	start := c.count.Load()
	Eventually(c.count.Load).Should(BeNumerically(">", start+n))
	Expect(c.errors).To(BeEmpty())
}

func (c *calls) stop() {
	c.cancel()
	<-c.done
}

func (c *calls) failed() []error {
	var all []error
	for {
		select {
		case err := <-c.errors:
			all = append(all, err)
		default:
			return all
		}
	}
}

func configuration(ctx context.Context) *admissionregistrationv1.MutatingWebhookConfiguration {
	config := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := c.Get(ctx, client.ObjectKey{Name: instanceName}, config); err != nil {
		return &admissionregistrationv1.MutatingWebhookConfiguration{}
	}
	return config
}

// bundleOf returns whom the webhooks of a configuration trust, which must be the same for all of them.
func bundleOf(config *admissionregistrationv1.MutatingWebhookConfiguration) []*x509.Certificate {
	var bundle []byte
	for _, webhook := range config.Webhooks {
		if bundle != nil && string(bundle) != string(webhook.ClientConfig.CABundle) {
			return nil
		}
		bundle = webhook.ClientConfig.CABundle
	}
	certs, err := cert.ParseCertsPEM(bundle)
	if err != nil {
		return nil
	}
	return certs
}

// shootBundle returns whom the API server of the shoot trusts as soon as its ManagedResource is applied.
func shootBundle(ctx context.Context) []*x509.Certificate {
	GinkgoHelper()
	mr := &resourcesv1alpha1.ManagedResource{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: shootNamespace, Name: webhook.ManagedResourceName}, mr)).To(Succeed())
	secret := &corev1.Secret{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: shootNamespace, Name: mr.Spec.SecretRefs[0].Name}, secret)).To(Succeed())
	objects, err := managedresources.ExtractObjectsFromSecret(yaml.NewDecodingSerializer(unstructured.UnstructuredJSONScheme), secret)
	Expect(err).NotTo(HaveOccurred())
	Expect(objects).To(HaveLen(1))
	config := &admissionregistrationv1.MutatingWebhookConfiguration{}
	Expect(scheme.Convert(objects[0], config, nil)).To(Succeed())
	Expect(config.Webhooks[0].ClientConfig.URL).To(HaveValue(Equal("https://" + service.address() + "/nodes/" + shootNamespace)))
	return bundleOf(config)
}

func serverSecrets(ctx context.Context) []corev1.Secret {
	GinkgoHelper()
	list := &corev1.SecretList{}
	Expect(c.List(ctx, list, client.InNamespace(instanceNamespace), client.MatchingLabels{"name": "webhook-server"})).To(Succeed())
	return list.Items
}

func expectServed(ca *x509.Certificate, replicas ...*replica) {
	GinkgoHelper()
	for _, replica := range replicas {
		served, err := replica.serves()
		Expect(err).NotTo(HaveOccurred())
		Expect(served.CheckSignatureFrom(ca)).To(Succeed())
	}
}
