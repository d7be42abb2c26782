// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// observabilitySpecs need the landscape of make up COMPONENTS=observability.
func observabilitySpecs() {
	BeforeEach(func() {
		if !chosen("observability") {
			Skip("it needs make up COMPONENTS=observability: run it with LABELS=observability")
		}
	})
	for _, place := range []string{"garden", "seed"} {
		prometheus := "prometheus-" + place + "-0"
		It("has the metrics and alerts of the instance for the "+place, func(ctx SpecContext) {
			By("asking " + prometheus)
			file, err := os.ReadFile("../../../charts/provider-local/monitoring/rules.yaml")
			Expect(err).NotTo(HaveOccurred())
			alerts := strings.Count(string(file), "\n  - alert: ")
			Expect(alerts).NotTo(BeZero())
			// Prometheus asks every minute.
			Eventually(func() ([]sample, error) {
				return query(ctx, prometheus, fmt.Sprintf("up{job=%q}", "gardener-extension-provider-local-"+place))
			}).WithTimeout(5 * time.Minute).Should(HaveSome(HaveField("Value", HaveExactElements(Not(BeNil()), Equal("1")))))
			Expect(query(ctx, prometheus, `{__name__=~"provider_local_.+"}`)).NotTo(BeEmpty())

			var rules struct {
				Data struct {
					Groups []struct {
						Name  string
						Rules []struct{ Name, Health, State string }
					}
				}
			}
			Expect(ask(ctx, prometheus, "rules", map[string]string{"type": "alert"}, &rules)).To(Succeed())
			Expect(rules.Data.Groups).To(ContainElement(And(HaveField("Name", "provider-local"), HaveField("Rules", And(
				HaveLen(alerts), HaveEach(And(HaveField("Health", "ok"), HaveField("State", "inactive")))),
			))))
		}, SpecTimeout(10*time.Minute))
	}
}

// sample is a value of a query, with its time before it.
type sample struct{ Value []any }

func query(ctx context.Context, prometheus, expression string) ([]sample, error) {
	var answer struct{ Data struct{ Result []sample } }
	err := ask(ctx, prometheus, "query", map[string]string{"query": expression}, &answer)
	return answer.Data.Result, err
}

// ask asks the HTTP API of a Prometheus in namespace garden.
func ask(ctx context.Context, prometheus, path string, parameters map[string]string, answer any) error {
	content, err := l.Clientset.CoreV1().Pods(gardenNamespace).ProxyGet("http", prometheus, "9090", "/api/v1/"+path, parameters).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, answer)
}
