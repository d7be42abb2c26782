// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"context"
	"encoding/json"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	"k8s.io/client-go/kubernetes"
)

// Chosen reports whether the filter names a label of specs which not every landscape is made for.
func Chosen(label string) bool { return strings.Contains(GinkgoLabelFilter(), label) }

// RequireObservability skips a spec unless it is asked for.
func RequireObservability() {
	if !Chosen("observability") {
		Skip("it needs make up COMPONENTS=observability: run it with LABELS=observability")
	}
}

// Prometheus is one of those that Gardener has in namespace garden.
type Prometheus struct {
	// Name is that of the Prometheus object.
	Name      string
	Clientset kubernetes.Interface
}

// Sample is a value of a query, with its time before it.
type Sample struct{ Value []any }

// AlertingRule is a rule as Prometheus tells of it.
type AlertingRule struct{ Name, Health, State string }

// Query returns what an expression of PromQL comes to now.
func (p Prometheus) Query(ctx context.Context, expression string) ([]Sample, error) {
	var answer struct{ Data struct{ Result []Sample } }
	err := p.ask(ctx, "query", map[string]string{"query": expression}, &answer)
	return answer.Data.Result, err
}

// AlertingRules returns the rules of a group, and none if there is no such group.
func (p Prometheus) AlertingRules(ctx context.Context, group string) ([]AlertingRule, error) {
	var answer struct {
		Data struct {
			Groups []struct {
				Name  string
				Rules []AlertingRule
			}
		}
	}
	err := p.ask(ctx, "rules", map[string]string{"type": "alert"}, &answer)
	for _, found := range answer.Data.Groups {
		if found.Name == group {
			return found.Rules, err
		}
	}
	return nil, err
}

// ask asks the HTTP API.
func (p Prometheus) ask(ctx context.Context, path string, parameters map[string]string, answer any) error {
	content, err := p.Clientset.CoreV1().Pods(GardenNamespace).ProxyGet("http", "prometheus-"+p.Name+"-0", "9090", "/api/v1/"+path, parameters).DoRaw(ctx)
	if err != nil {
		return err
	}
	return json.Unmarshal(content, answer)
}
