// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupbucket

import (
	"testing"

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
	second := newBucket(func(bucket *extensionsv1alpha1.BackupBucket) { bucket.Name = "second" })
	e := newEnv(t, newBucket(), second, newReferencedSecret())
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"garden"}, "garden")
	g.Expect(err).NotTo(HaveOccurred())
	log := &requests.Log{}
	counted := log.Wrap(e.client)
	r := newReconciler(&actuator{
		Options: Options{Shared: reconciler.Shared{Classes: classes}, Store: e.actuator.Store, HostPath: hostPath},
		client:  counted, cached: labelled{e.client},
	})

	for _, step := range []struct {
		name, bucket string
		before       func()
		sent         []string
	}{
		{"the first creation", bucketName, func() {}, []string{"patch BackupBucket", "patch Secret", "create Secret", "patch status of BackupBucket"}},
		{"another one with the same credentials", "second", func() {}, []string{"patch BackupBucket", "create Secret", "patch status of BackupBucket"}},
		{"a reconcile that changes nothing", bucketName, e.ask, []string{"patch BackupBucket", "patch status of BackupBucket"}},
		{"an event without a request", bucketName, func() {}, nil},
		{"a deletion", bucketName, e.deleteBucket, []string{"delete Secret", "patch BackupBucket"}},
		{"the last deletion", "second", func() { g.Expect(e.client.Delete(t.Context(), second)).To(Succeed()) }, []string{"delete Secret", "patch Secret", "patch BackupBucket"}},
	} {
		step.before()
		_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: step.bucket}})
		g.Expect(err).NotTo(HaveOccurred(), step.name)
		g.Expect(log.Take()).To(Equal(step.sent), step.name)
	}
	g.Expect(e.exists(newReferencedSecret())).To(BeTrue())
}
