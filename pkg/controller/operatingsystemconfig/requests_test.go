// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/test/requests"
)

func TestSpendsFewRequests(t *testing.T) {
	for _, tt := range []struct {
		purpose                 extensionsv1alpha1.OperatingSystemConfigPurpose
		create, again, deletion []string
	}{
		{
			"provision",
			[]string{"patch OperatingSystemConfig", "apply Secret", "patch status of OperatingSystemConfig"},
			[]string{"patch OperatingSystemConfig", "apply Secret", "patch status of OperatingSystemConfig"},
			[]string{"patch OperatingSystemConfig"},
		},
		{
			"reconcile",
			[]string{"patch OperatingSystemConfig", "patch status of OperatingSystemConfig"},
			[]string{"patch OperatingSystemConfig", "patch status of OperatingSystemConfig"},
			[]string{"patch OperatingSystemConfig"},
		},
	} {
		t.Run(string(tt.purpose), func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t, newConfig(purpose(tt.purpose), operation("reconcile")), newCluster(t, nil))
			classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"shoot"}, "shoot")
			g.Expect(err).NotTo(HaveOccurred())
			log := &requests.Log{}
			counted := log.Wrap(e.WithWatch)
			r := newReconciler(counted, reconciler.Shared{Classes: classes})
			step := func(name string, sent []string) {
				_, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
				g.Expect(err).NotTo(HaveOccurred(), name)
				g.Expect(log.Take()).To(Equal(sent), name)
			}

			step("a creation", tt.create)
			osc := e.config()
			osc.Annotations = requests.Asking("reconcile", time.Now().Add(time.Minute))
			g.Expect(e.Update(t.Context(), osc)).To(Succeed())
			step("a reconcile that changes nothing", tt.again)
			g.Expect(e.Delete(t.Context(), e.config())).To(Succeed())
			step("a deletion", tt.deletion)
		})
	}
}
