// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// observabilitySpecs need the landscape of make up COMPONENTS=observability.
func observabilitySpecs() {
	BeforeEach(landscape.RequireObservability)
	for _, place := range []string{"garden", "seed"} {
		It("has the metrics and alerts of the instance for the "+place, func(ctx SpecContext) {
			prometheus := landscape.Prometheus{Name: place, Clientset: l.Clientset}
			file, err := os.ReadFile("../../../charts/provider-local/monitoring/rules.yaml")
			Expect(err).NotTo(HaveOccurred())
			alerts := strings.Count(string(file), "\n  - alert: ")
			Expect(alerts).NotTo(BeZero())
			// Prometheus asks every minute.
			Eventually(func() ([]landscape.Sample, error) {
				return prometheus.Query(ctx, `up{job="gardener-extension-provider-local-`+place+`"}`)
			}).WithTimeout(5 * time.Minute).Should(HaveSome(HaveField("Value", HaveExactElements(Not(BeNil()), Equal("1")))))
			Expect(prometheus.Query(ctx, `{__name__=~"provider_local_.+"}`)).NotTo(BeEmpty())
			healthy := HaveField("Health", "ok")
			if place == "seed" { // Before it breaks the other instance, the suite of the garden looks for its alerts in shorter times.
				healthy = And(healthy, HaveField("State", "inactive"))
			}
			Expect(prometheus.AlertingRules(ctx, "provider-local")).To(And(HaveLen(alerts), HaveEach(healthy)))
		}, SpecTimeout(10*time.Minute))
	}
}
