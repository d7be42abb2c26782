// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsrecord

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/test/requests"
)

type fakeManager struct {
	manager.Manager
	client client.Client
}

func (m fakeManager) GetClient() client.Client    { return m.client }
func (m fakeManager) GetAPIReader() client.Reader { return m.client }

func TestSpendsFewRequests(t *testing.T) {
	const patch, status = "patch DNSRecord", "patch status of DNSRecord"
	for _, tt := range []struct {
		provider configv1alpha1.DNSProvider
	}{{coreDNS}, {updates}} {
		t.Run(string(tt.provider), func(t *testing.T) {
			g := NewWithT(t)
			record := servedBy(tt.provider)
			record.Spec.Type = dns.Type
			record.Annotations = map[string]string{"gardener.cloud/operation": "reconcile"}
			s := newScenario(t, record)
			if tt.provider == updates {
				s.updates.saves = new(written())
			}
			classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"shoot"}, "shoot")
			g.Expect(err).NotTo(HaveOccurred())
			log := &requests.Log{}
			r := newReconciler(fakeManager{client: log.Wrap(s.client)}, Options{
				Shared: reconciler.Shared{Classes: classes}, Providers: s.Providers, DefaultProvider: coreDNS, DefaultTTL: 60,
			})
			step := func(name string, sent []string) {
				_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: owner})
				g.Expect(err).NotTo(HaveOccurred(), name)
				g.Expect(log.Take()).To(Equal(sent), name)
			}
			step("a creation", []string{patch, status})
			g.Expect(s.client.Get(t.Context(), owner, record)).To(Succeed())
			g.Expect(health.CheckExtensionObject(record)).To(Succeed())
			g.Expect(record.Status.Conditions).To(ConsistOf(HaveField("Status", gardencorev1beta1.ConditionTrue)))

			record.Annotations = requests.Asking("reconcile", time.Now().Add(time.Minute))
			g.Expect(s.client.Update(t.Context(), record)).To(Succeed())
			step("a reconcile that changes nothing", []string{patch, status})
			g.Expect(s.client.Delete(t.Context(), record)).To(Succeed())
			step("a deletion", []string{patch})
			g.Expect(append(s.coreDNS.removed, s.updates.removed...)).To(HaveLen(1))
		})
	}
}

func TestOfARecordThatWasNeverWrittenNothingIsDeleted(t *testing.T) {
	g := NewWithT(t)
	s := newScenario(t, object())
	s.coreDNS.err = errors.New("no answer")
	g.Expect(s.reconcile(t)).NotTo(Succeed())
	g.Expect(s.status(t).Conditions).To(ConsistOf(HaveField("Status", gardencorev1beta1.ConditionFalse)))
	g.Expect(s.Delete(t.Context(), s.attempt())).To(Succeed())
	g.Expect(s.coreDNS.removed).To(BeEmpty())
}
