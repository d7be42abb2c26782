// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
	"github.com/gardener/gardener-extension-provider-local/test/requests"
)

func TestSpendsFewRequests(t *testing.T) {
	const patch, status = "patch Extension", "patch status of Extension"
	for _, tt := range []struct {
		extensionType     string
		create, healthy   []string
		deletion, deleted []string
	}{
		{TypeSeed, []string{patch, "create Secret", "create ManagedResource", status}, []string{status}, []string{"delete Secret", "delete ManagedResource"}, []string{patch}},
		{TypeShoot, []string{patch, "create Secret", "create ManagedResource", status}, nil, []string{"delete Secret", "delete ManagedResource"}, []string{patch}},
	} {
		t.Run(tt.extensionType, func(t *testing.T) {
			g := NewWithT(t)
			c := newShootClusterOf(t, tt.extensionType, shoot(nil))
			set, err := class.New(c.kind.classes, c.kind.classes...)
			g.Expect(err).NotTo(HaveOccurred())
			log := &requests.Log{}
			counted := log.Wrap(c.WithWatch)
			opts := Options{Resources: resources.New(counted), Shared: reconciler.Shared{Classes: set}}
			r := newReconciler(&fakeManager{client: counted, reader: counted}, opts, c.kind)
			step := func(name string, sent []string) {
				_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: c.key})
				g.Expect(err).NotTo(HaveOccurred(), name)
				g.Expect(log.Take()).To(Equal(sent), name)
			}

			step("a creation", tt.create)
			c.report(yes, yes)
			step("its objects are healthy", tt.healthy)
			c.ask("reconcile")
			step("a reconcile that changes nothing", []string{patch, status})
			c.serve(grmFinalizer)
			c.delete()
			step("a deletion", tt.deletion)
			c.serve()
			step("its objects are gone", tt.deleted)
		})
	}
}
