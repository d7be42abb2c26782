// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
)

func TestRegistrationInTheSeed(t *testing.T) {
	e := newEnv(t, seedWebhook(), shootWebhook())
	e.round()

	config := e.seedConfig()
	e.Expect(config.Webhooks).To(HaveLen(1))
	e.Expect(config.Webhooks[0].ClientConfig.CABundle).To(Equal(e.store.Bundle()))
	e.Expect(config.OwnerReferences).To(ConsistOf(metav1.OwnerReference{
		APIVersion: "v1", Kind: "Namespace", Name: "owner", UID: "uid", Controller: new(true), BlockOwnerDeletion: new(false),
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
		"a webhook of an earlier version": func(c *admissionregistrationv1.MutatingWebhookConfiguration) {
			c.Webhooks = append(c.Webhooks, c.Webhooks[0])
			c.Webhooks[1].Name = "etcd.example"
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
	e.Expect(e.registrar.Reconcile(e.ctx, reconcile.Request{})).To(Equal(reconcile.Result{}), "the leader is done when nothing is left")

	e.Expect(apierrors.IsNotFound(e.client.Get(e.ctx, client.ObjectKey{Name: name}, &admissionregistrationv1.MutatingWebhookConfiguration{}))).To(BeTrue())
	e.Expect(e.shootConfig(shootNamespace)).To(BeNil())
	e.Expect(e.count(namespace)).To(Equal(1), "Secrets of others stay")
	e.Expect(e.registrar.shoots.Registered()).To(BeClosed())
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
		"the namespace of the owner cannot be read": {verb: "get", obj: &metav1.PartialObjectMetadata{}, wrong: "reading the namespace owner"},
		"the registration cannot be written":        {verb: "create", obj: &admissionregistrationv1.MutatingWebhookConfiguration{}, wrong: "writing the webhook configuration " + name},
		"no Secret can be written":                  {verb: "create", obj: &corev1.Secret{}, wrong: "generating the CA of the webhooks"},
	} {
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, seedWebhook())
			e.failing(func(verb string, obj client.Object) error {
				if verb == test.verb && sameType(obj, test.obj) {
					return errors.New("forbidden")
				}
				return nil
			})
			e.Expect(e.tryRound()).To(MatchError(And(ContainSubstring(test.wrong), ContainSubstring("forbidden"))))
			e.follow()
			e.Expect(e.registrar.shoots.Registered()).NotTo(BeClosed())

			e.failing(nil)
			e.round()
			e.Expect(e.seedConfig().Webhooks).To(HaveLen(1))
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

func TestLeaderIsRegisteredOnceItServes(t *testing.T) {
	e := newEnv(t, seedWebhook())
	e.Expect(e.registrar.Reconcile(e.ctx, reconcile.Request{})).To(Equal(reconcile.Result{RequeueAfter: certificate.Period}))
	e.Expect(e.seedConfig().Webhooks).To(HaveLen(1))
	e.Expect(e.registrar.shoots.Registered()).NotTo(BeClosed(), "the watch has not told of the certificate yet")

	e.follow()
	e.round()
	e.Expect(e.registrar.shoots.Registered()).To(BeClosed())
	e.round()
}

func TestValidatingWebhooksAreRegisteredToo(t *testing.T) {
	e := newEnv(t, seedWebhook(), seedWebhook(func(w *extensionswebhook.Webhook) {
		w.Action, w.Name, w.Path, w.FailurePolicy, w.TimeoutSeconds = extensionswebhook.ActionValidating, "check", "check/pods", nil, nil
	}))
	e.round()
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	e.Expect(e.client.Get(e.ctx, client.ObjectKey{Name: name}, config)).To(Succeed())
	e.Expect(config.OwnerReferences).To(ConsistOf(HaveField("UID", BeEquivalentTo("uid"))))
	e.Expect(config.Labels).To(HaveKey("remediation.webhook.shoot.gardener.cloud/exclude"))
	e.Expect(config.Webhooks).To(HaveLen(1))
	e.Expect(config.Webhooks[0].ClientConfig.CABundle).To(Equal(e.store.Bundle()))
	e.Expect(config.Webhooks[0].FailurePolicy).To(HaveValue(Equal(admissionregistrationv1.Fail)))
	e.Expect(config.Webhooks[0].TimeoutSeconds).To(HaveValue(BeEquivalentTo(10)))
	e.Expect(config.Webhooks[0].MatchPolicy).To(HaveValue(Equal(admissionregistrationv1.Equivalent)))

	changed := config.DeepCopy()
	changed.Webhooks, changed.OwnerReferences, changed.Labels = nil, nil, nil
	e.Expect(e.client.Update(e.ctx, changed)).To(Succeed())
	e.Expect(e.client.Delete(e.ctx, e.seedConfig())).To(Succeed())
	e.round()
	e.Expect(e.client.Get(e.ctx, client.ObjectKey{Name: name}, changed)).To(Succeed())
	e.Expect(changed.Webhooks).To(Equal(config.Webhooks))
	e.Expect(changed.OwnerReferences).To(Equal(config.OwnerReferences))
	e.Expect(changed.Labels).To(Equal(config.Labels))
	e.Expect(e.seedConfig().Webhooks).To(HaveLen(1))
	e.round()
	e.Expect(e.client.Get(e.ctx, client.ObjectKey{Name: name}, config)).To(Succeed())
	e.Expect(config.ResourceVersion).To(Equal(changed.ResourceVersion), "nothing is written if nothing has changed")
}

// A shoot that cannot be written to does not keep the seed from learning of a new CA.
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
	e.Expect(e.tryRound()).To(MatchError(ContainSubstring("shoot " + shootNamespace)))
	e.Expect(e.seedConfig().Webhooks[0].ClientConfig.CABundle).To(HaveSuffix(string(before)))
	e.Expect(e.seedConfig().Webhooks[0].ClientConfig.CABundle).NotTo(Equal(before))
}

func TestServerNames(t *testing.T) {
	for name, test := range map[string]struct {
		options Options
		names   []string
		wrong   string
	}{
		"a Service":  {options: Options{Name: "n", Namespace: "ns"}, names: []string{"n.ns.svc", "n.ns", "n"}},
		"a host":     {options: Options{URL: "host.example:1"}, names: []string{"host.example"}},
		"an address": {options: Options{URL: "[::1]:1"}, names: []string{"::1"}},
		"no port":    {options: Options{URL: "127.0.0.1"}, wrong: "the URL of the webhooks is not HOST:PORT"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			names, addresses, err := test.options.serverNames()
			if test.wrong != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.wrong)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			for _, address := range addresses {
				names = append(names, address.String())
			}
			g.Expect(names).To(Equal(test.names))
		})
	}
}
