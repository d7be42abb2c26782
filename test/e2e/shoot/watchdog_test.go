// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// watchdogSpecs need the landscape of make up COMPONENTS=dependency-watchdog.
func watchdogSpecs() {
	It("keeps machines whose kubelets can't say that they live", specPatience, func(ctx SpecContext) {
		if !landscape.Chosen("dependency-watchdog") {
			Skip("it needs make up COMPONENTS=dependency-watchdog: run it with LABELS=dependency-watchdog")
		}
		shoot := example(exampleMachines)
		Expect(g.Refresh(ctx, shoot)).To(Succeed())
		pool := &shoot.Spec.Provider.Workers[0]
		minimum := pool.Minimum
		DeferCleanup(func(ctx SpecContext) {
			g.Change(ctx, shoot, func() { shoot.Spec.Provider.Workers[0].Minimum = minimum })
			g.EventuallyHealthy(ctx, shoot, patience)
		}, NodeTimeout(patience))
		// It does nothing for a single Node.
		g.Change(ctx, shoot, func() { shoot.Spec.Provider.Workers[0].Minimum = 2 })
		g.EventuallyHealthy(ctx, shoot, patience)

		systemctl := func(ctx SpecContext, verb string) {
			GinkgoHelper()
			pods, err := landscape.PodsOf(ctx, l.Client, shoot.Status.TechnicalID, map[string]string{"app": "machine"})
			Expect(err).NotTo(HaveOccurred())
			Expect(pods).To(HaveLen(2))
			for i := range pods {
				_, err := landscape.Execute(ctx, l.Config, &pods[i], "sh", "-c", "systemctl "+verb+" gardener-node-agent kubelet")
				Expect(err).NotTo(HaveOccurred())
			}
		}
		replicas := func(want int) {
			GinkgoHelper()
			for _, name := range []string{"kube-controller-manager", "machine-controller-manager"} {
				Eventually(landscape.Get(ctx, l.Client, landscape.Named[*appsv1.Deployment](shoot.Status.TechnicalID, name))).
					Should(HaveField("Spec.Replicas", HaveValue(BeEquivalentTo(want))), "leases of Nodes last 40 seconds")
			}
		}
		DeferCleanup(func(ctx SpecContext) { systemctl(ctx, "start") })
		systemctl(ctx, "stop")
		replicas(0)
		systemctl(ctx, "start")
		replicas(1)
	})
}
