// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupentry

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/test/requests"
)

func TestSpendsFewRequests(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, newEntry(entryName, bucket, "reconcile"), newSecret(entryName), newNamespace(namespace))
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"shoot"}, "shoot")
	g.Expect(err).NotTo(HaveOccurred())
	log := &requests.Log{}
	r := newReconciler(log.Wrap(e.client), Options{Shared: reconciler.Shared{Classes: classes}, Store: e.store, HostPath: hostPath})

	for _, step := range []struct {
		name   string
		before func()
		sent   []string
	}{
		{"a creation", func() {}, []string{"patch BackupEntry", "patch Secret", "create Secret", "patch status of BackupEntry"}},
		{"a reconcile that changes nothing", func() {
			entry := e.entry(entryName)
			entry.Annotations = requests.Asking("reconcile", time.Now().Add(time.Minute))
			g.Expect(e.client.Update(t.Context(), entry)).To(Succeed())
		}, []string{"patch BackupEntry", "get Secret", "patch status of BackupEntry"}},
		{"a deletion", func() { e.delete(e.entry(entryName)) }, []string{"delete Secret", "patch Secret", "patch BackupEntry"}},
	} {
		step.before()
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: entryName}})
		g.Expect(err).NotTo(HaveOccurred(), step.name)
		g.Expect(log.Take()).To(Equal(step.sent), step.name)
	}
}
