// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsrecord

import (
	"context"
	"errors"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

type fakeProvider struct {
	err     error
	records map[types.NamespacedName]dns.Record
	removed []types.NamespacedName
}

func (f *fakeProvider) Apply(_ context.Context, record dns.Record) error {
	if f.records == nil {
		f.records = map[types.NamespacedName]dns.Record{}
	}
	f.records[record.Owner] = record
	return f.err
}

func (f *fakeProvider) Remove(_ context.Context, owner types.NamespacedName) error {
	f.removed = append(f.removed, owner)
	return f.err
}

func object() *extensionsv1alpha1.DNSRecord {
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "api"},
		Spec:       extensionsv1alpha1.DNSRecordSpec{Name: "api.local.gardener.cloud", RecordType: "A", Values: []string{"1.2.3.4"}},
	}
}

var owner = types.NamespacedName{Namespace: "garden", Name: "api"}

func TestReconcileHandsTheRecordToTheProvider(t *testing.T) {
	for name, call := range map[string]func(*fakeProvider) error{
		"reconcile": func(f *fakeProvider) error {
			return NewActuator(f, []string{"local.gardener.cloud"}, 60).Reconcile(context.Background(), logr.Discard(), object(), nil)
		},
		"restore": func(f *fakeProvider) error {
			return NewActuator(f, []string{"local.gardener.cloud"}, 60).Restore(context.Background(), logr.Discard(), object(), nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			provider := &fakeProvider{}
			g.Expect(call(provider)).To(Succeed())
			g.Expect(provider.records).To(HaveKeyWithValue(owner, And(HaveField("Name", "api.local.gardener.cloud"), HaveField("TTL", int64(60)))))
		})
	}
}

func TestErrorsHaveTheCodeOfTheirCauseAndAreNotRetriedHot(t *testing.T) {
	wrong := object()
	wrong.Spec.RecordType = "AAAA"
	for _, test := range []struct {
		name   string
		object *extensionsv1alpha1.DNSRecord
		err    error
		code   gardencorev1beta1.ErrorCode
		says   string
	}{
		{"a mistake of the user", wrong, nil, gardencorev1beta1.ErrorConfigurationProblem, "AAAA record needs an IPv6"},
		{"a conflict", object(), &dns.ConflictError{Reason: "it is newer"}, gardencorev1beta1.ErrorConfigurationProblem, "it is newer"},
		{"a server that doesn't answer", object(), errors.New("timeout"), gardencorev1beta1.ErrorRetryableInfraDependencies, "timeout"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			provider := &fakeProvider{err: test.err}
			err := NewActuator(provider, []string{"local.gardener.cloud"}, 0).Reconcile(context.Background(), logr.Discard(), test.object, nil)
			var requeue *reconcilerutils.RequeueAfterError
			g.Expect(errors.As(err, &requeue)).To(BeTrue())
			g.Expect(requeue.RequeueAfter).To(BeNumerically(">", 0))
			g.Expect(requeue.Cause).To(MatchError(ContainSubstring(test.says)))
			g.Expect(v1beta1helper.ExtractErrorCodes(requeue.Cause)).To(ConsistOf(test.code))
			if test.err == nil {
				g.Expect(provider.records).To(BeEmpty())
			}
		})
	}
}

func TestDeletionRemovesTheRecordEvenIfItIsNotValid(t *testing.T) {
	g := NewWithT(t)
	provider := &fakeProvider{}
	invalid := object()
	invalid.Spec.Values = nil
	g.Expect(NewActuator(provider, nil, 0).Delete(context.Background(), logr.Discard(), invalid, nil)).To(Succeed())
	g.Expect(provider.removed).To(ConsistOf(owner))

	provider.err = errors.New("no answer")
	g.Expect(NewActuator(provider, nil, 0).Delete(context.Background(), logr.Discard(), invalid, nil)).NotTo(Succeed())
}

func TestDeletionByForceIsNotHeldUp(t *testing.T) {
	g := NewWithT(t)
	provider := &fakeProvider{err: errors.New("no answer")}
	g.Expect(NewActuator(provider, nil, 0).ForceDelete(context.Background(), logr.Discard(), object(), nil)).To(Succeed())
	g.Expect(provider.removed).To(ConsistOf(owner))
}

func TestMigrationRemovesWhatTheOtherSeedWillServe(t *testing.T) {
	shoot := func(workers ...gardencorev1beta1.Worker) *extensionscontroller.Cluster {
		return &extensionscontroller.Cluster{Shoot: &gardencorev1beta1.Shoot{Spec: gardencorev1beta1.ShootSpec{Provider: gardencorev1beta1.Provider{Workers: workers}}}}
	}
	for _, test := range []struct {
		name    string
		cluster *extensionscontroller.Cluster
		removes bool
	}{
		{"a shoot", shoot(gardencorev1beta1.Worker{Name: "worker"}), true},
		{"a self-hosted shoot", shoot(gardencorev1beta1.Worker{Name: "control-plane", ControlPlane: &gardencorev1beta1.WorkerControlPlane{}}), false},
		{"no Cluster", nil, false},
		{"a Cluster without a Shoot", &extensionscontroller.Cluster{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			provider := &fakeProvider{}
			g.Expect(NewActuator(provider, nil, 0).Migrate(context.Background(), logr.Discard(), object(), test.cluster)).To(Succeed())
			g.Expect(provider.removed).To(HaveLen(map[bool]int{true: 1, false: 0}[test.removes]))
		})
	}
}
