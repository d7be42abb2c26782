// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
)

func TestRegistrationInTheSeed(t *testing.T) {
	e := newEnv(t, seedWebhook(), shootWebhook())
	e.round()

	config := e.seedConfig()
	e.Expect(config.Webhooks).To(HaveLen(1))
	e.Expect(config.Webhooks[0].ClientConfig.CABundle).To(Equal(e.store.Bundle()))
	e.Expect(config.OwnerReferences).To(ConsistOf(metav1.OwnerReference{
		APIVersion: "v1", Kind: "Namespace", Name: namespace, UID: "uid", Controller: new(true), BlockOwnerDeletion: new(false),
	}))
	e.Expect(config.Labels).To(HaveKeyWithValue("remediation.webhook.shoot.gardener.cloud/exclude", "true"))

	e.round()
	e.Expect(e.seedConfig().ResourceVersion).To(Equal(config.ResourceVersion), "nothing is written if nothing has changed")
}

func TestRegistrationIsPutRight(t *testing.T) {
	for name, change := range map[string]func(*admissionregistrationv1.MutatingWebhookConfiguration){
		"the bundle is another one": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks[0].ClientConfig.CABundle = []byte("x")
		},
		"a webhook more": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks = append(c.Webhooks, c.Webhooks[0])
		},
		"no webhook": func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Webhooks = nil },
		"another failure policy": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks[0].FailurePolicy = new(admissionregistrationv1.Fail)
		},
		"no owner":               func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.OwnerReferences = nil },
		"Gardener would mend it": func(c *admissionregistrationv1.MutatingWebhookConfiguration) { c.Labels = nil },
		"somebody else's annotation": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Annotations = map[string]string{"a": "b"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, seedWebhook())
			e.round()
			want := e.seedConfig()

			changed := e.seedConfig()
			change(changed)
			e.Expect(e.client.Update(e.ctx, changed)).To(Succeed())
			e.round()
			is := e.seedConfig()
			e.Expect(is.Webhooks).To(Equal(want.Webhooks))
			e.Expect(is.Labels).To(Equal(want.Labels))
			e.Expect(is.OwnerReferences).To(Equal(want.OwnerReferences))
			e.Expect(is.Annotations).To(Equal(changed.Annotations))
		})
	}
}

func TestWithoutWebhooksEverythingIsRemoved(t *testing.T) {
	e := newEnv(t, seedWebhook(), shootWebhook())
	e.round()
	e.Expect(e.registrar.shoots.Apply(e.ctx, shootNamespace)).To(Succeed())
	other := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}}
	e.Expect(e.client.Create(e.ctx, other)).To(Succeed())

	e.options.Webhooks = nil
	e.restart()
	e.Expect(e.registrar.Start(e.ctx)).To(Succeed(), "the leader is done when nothing is left")

	e.Expect(apierrors.IsNotFound(e.client.Get(e.ctx, client.ObjectKey{Name: name}, &admissionregistrationv1.MutatingWebhookConfiguration{}))).To(BeTrue())
	e.Expect(e.shootConfig(shootNamespace)).To(BeNil())
	e.Expect(e.count(namespace)).To(Equal(1), "Secrets of others stay")
	e.Eventually(e.registrar.shoots.Registered()).Should(BeClosed())
}

func TestWithoutWebhooksForTheSeedTheRegistrationIsRemoved(t *testing.T) {
	e := newEnv(t, seedWebhook(), shootWebhook())
	e.round()
	e.options.Webhooks = e.options.Webhooks[1:]
	e.restart()
	e.round()
	e.Expect(apierrors.IsNotFound(e.client.Get(e.ctx, client.ObjectKey{Name: name}, &admissionregistrationv1.MutatingWebhookConfiguration{}))).To(BeTrue())
}

func TestRoundTellsWhatFailed(t *testing.T) {
	for name, test := range map[string]struct {
		verb  string
		obj   client.Object
		wrong string
	}{
		"the namespace of the instance cannot be read": {verb: "get", obj: &metav1.PartialObjectMetadata{}, wrong: "reading the namespace " + namespace},
		"the registration cannot be written":           {verb: "create", obj: &admissionregistrationv1.MutatingWebhookConfiguration{}, wrong: "writing MutatingWebhookConfiguration " + name},
		"no Secret can be written":                     {verb: "create", obj: &corev1.Secret{}, wrong: "generating the CA of the webhooks"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, seedWebhook())
			e.failing(func(verb string, obj client.Object) error {
				if verb == test.verb && sameType(obj, test.obj) {
					return errors.New("forbidden")
				}
				return nil
			})
			_, err := e.registrar.round(e.ctx)
			e.Expect(err).To(MatchError(And(ContainSubstring(test.wrong), ContainSubstring("forbidden"))))
			e.Expect(e.registrar.seedDone).To(BeFalse())

			e.failing(nil)
			e.round()
			e.Expect(e.registrar.seedDone).To(BeTrue())
		})
	}
}

func sameType(a, b client.Object) bool {
	switch a.(type) {
	case *metav1.PartialObjectMetadata:
		_, ok := b.(*metav1.PartialObjectMetadata)
		return ok
	case *admissionregistrationv1.MutatingWebhookConfiguration:
		_, ok := b.(*admissionregistrationv1.MutatingWebhookConfiguration)
		return ok
	case *corev1.Secret:
		_, ok := b.(*corev1.Secret)
		return ok
	}
	return false
}

// running is a leader at work.
func (e *env) running() {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	stopped := make(chan error, 1)
	go func() { stopped <- e.registrar.Start(ctx) }()
	e.Cleanup(func() {
		cancel()
		e.Eventually(stopped, "10s").Should(Receive(BeNil()))
	})
}

func TestLeaderTriesAgainAfterAConflict(t *testing.T) {
	e := newEnv(t, seedWebhook())
	conflicts := 0
	e.failing(func(verb string, obj client.Object) error {
		if _, ok := obj.(*admissionregistrationv1.MutatingWebhookConfiguration); ok && verb == "create" && conflicts < 3 {
			conflicts++
			return apierrors.NewConflict(schema.GroupResource{Resource: "mutatingwebhookconfigurations"}, name, errors.New("changed"))
		}
		return nil
	})
	e.running()

	e.Eventually(func() <-chan struct{} {
		now.Step(10 * time.Second)
		e.follow()
		return e.registrar.shoots.Registered()
	}).Should(BeClosed())
	e.Expect(conflicts).To(Equal(3))
	e.Expect(e.seedConfig().Webhooks).To(HaveLen(1))
}

func TestLeaderWakesUpWhenARenewalIsDueAndWhenSomethingChanges(t *testing.T) {
	e := newEnv(t, seedWebhook())
	e.running()
	bundle := func() string {
		config := &admissionregistrationv1.MutatingWebhookConfiguration{}
		if e.client.Get(e.ctx, client.ObjectKey{Name: name}, config) != nil {
			return ""
		}
		return string(config.Webhooks[0].ClientConfig.CABundle)
	}
	e.Eventually(bundle).ShouldNot(BeEmpty())
	e.Consistently(e.registrar.shoots.Registered(), "50ms").ShouldNot(BeClosed(), "nothing is served yet")
	e.follow()
	e.Eventually(e.registrar.shoots.Registered()).Should(BeClosed())
	first := bundle()

	e.Expect(e.client.Delete(e.ctx, e.seedConfig())).To(Succeed())
	e.registrar.loop.Wake()
	e.Eventually(bundle).Should(Equal(first), "it is back after it was deleted by hand")

	e.Eventually(now.HasWaiters).Should(BeTrue())
	now.Step(20*day + time.Minute)
	e.Eventually(bundle).Should(And(HaveSuffix(first), Not(Equal(first))))
}

// A shoot that cannot be written to keeps the rotation back, but not the seed.
func TestSeedDoesNotWaitForShoots(t *testing.T) {
	e := newEnv(t, seedWebhook(), shootWebhook())
	e.round()
	e.Expect(e.registrar.shoots.Apply(e.ctx, shootNamespace)).To(Succeed())
	before := e.store.Bundle()

	e.failing(func(verb string, obj client.Object) error {
		if verb == "create" && obj.GetNamespace() == shootNamespace {
			return errors.New("out of space")
		}
		return nil
	})
	now.Step(20*day + time.Minute)
	_, err := e.registrar.round(e.ctx)
	e.Expect(err).To(MatchError(ContainSubstring("shoot " + shootNamespace)))
	e.Expect(e.seedConfig().Webhooks[0].ClientConfig.CABundle).To(HaveSuffix(string(before)))
	e.Expect(e.seedConfig().Webhooks[0].ClientConfig.CABundle).NotTo(Equal(before))
}

func TestServerNames(t *testing.T) {
	for name, test := range map[string]struct {
		options Options
		names   []string
	}{
		"a Service":  {options: Options{Mode: "service", Name: "n", Namespace: "ns"}, names: []string{"n.ns.svc", "n.ns", "n"}},
		"a host":     {options: Options{Mode: "url", URL: "host.example:1"}, names: []string{"host.example"}},
		"an address": {options: Options{Mode: "url", URL: "[::1]:1"}, names: []string{"::1"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			names, addresses, err := test.options.serverNames()
			g.Expect(err).NotTo(HaveOccurred())
			for _, address := range addresses {
				names = append(names, address.String())
			}
			g.Expect(names).To(Equal(test.names))
			_, err = certificate.New(certificate.Options{DNSNames: names})
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}
