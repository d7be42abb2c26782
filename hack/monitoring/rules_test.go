// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/common/model"
	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
	"sigs.k8s.io/yaml"
)

// ruleTests is a file of `promtool test rules`, as far as it is used here.
type ruleTests struct {
	RuleFiles          []string       `json:"rule_files"`
	EvaluationInterval model.Duration `json:"evaluation_interval"`
	Tests              []struct {
		Name        string         `json:"name"`
		Interval    model.Duration `json:"interval"`
		InputSeries []struct {
			Series string `json:"series"`
			Values string `json:"values"`
		} `json:"input_series"`
		AlertRuleTest []struct {
			EvalTime  model.Duration `json:"eval_time"`
			Alertname string         `json:"alertname"`
			ExpAlerts []expected     `json:"exp_alerts"`
		} `json:"alert_rule_test"`
	} `json:"tests"`
}

type expected struct {
	ExpLabels      map[string]string `json:"exp_labels"`
	ExpAnnotations map[string]string `json:"exp_annotations"`
}

func point(value float64) promql.FPoint { return promql.FPoint{F: value} }

func TestAlerts(t *testing.T) {
	const folder = "../../charts/testdata/"
	g := NewWithT(t)
	content, err := os.ReadFile(folder + "rules.test.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	tests := ruleTests{}
	g.Expect(yaml.UnmarshalStrict(content, &tests)).To(Succeed())
	g.Expect(tests.RuleFiles).To(HaveLen(1))
	g.Expect(len(tests.Tests)).To(BeNumerically(">=", 8))

	for _, test := range tests.Tests {
		t.Run(test.Name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(test.AlertRuleTest).NotTo(BeEmpty())
			series := fmt.Sprintf("load %s\n", time.Duration(test.Interval))
			for _, input := range test.InputSeries {
				series += "  " + input.Series + " " + input.Values + "\n"
			}
			loader, err := promqltest.NewLazyLoader(series, promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
			g.Expect(err).NotTo(HaveOccurred())
			t.Cleanup(func() { g.Expect(loader.Close()).To(Succeed()) })
			group := loadGroup(t, loader, folder+tests.RuleFiles[0])

			now := time.Unix(0, 0).UTC()
			for _, want := range test.AlertRuleTest {
				for end := time.Unix(0, 0).UTC().Add(time.Duration(want.EvalTime)); !now.After(end); now = now.Add(time.Duration(tests.EvaluationInterval)) {
					loader.WithSamplesTill(now, func(err error) { g.Expect(err).NotTo(HaveOccurred()) })
					group.Eval(t.Context(), now)
				}
				g.Expect(firing(t, group, want.Alertname)).To(ConsistOf(toAny(want.ExpAlerts)...), "%s after %s", want.Alertname, want.EvalTime)
			}
		})
	}
}

func toAny(alerts []expected) []any {
	var out []any
	for _, alert := range alerts {
		out = append(out, alert)
	}
	return out
}

func loadGroup(t *testing.T, loader *promqltest.LazyLoader, file string) *rules.Group {
	t.Helper()
	g := NewWithT(t)
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc:   rules.EngineQueryFunc(loader.QueryEngine(), loader.Storage()),
		Appendable:  loader.Storage(),
		Queryable:   loader.Storage(),
		Context:     context.Background(),
		NotifyFunc:  func(context.Context, string, ...*rules.Alert) {},
		Logger:      promslog.NewNopLogger(),
		Parser:      parser.NewParser(parser.Options{}),
		ExternalURL: &url.URL{},
	})
	groups, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, file)
	g.Expect(errs).To(BeEmpty())
	g.Expect(groups).To(HaveLen(1))
	for _, group := range groups {
		for _, rule := range group.Rules() {
			alert, ok := rule.(*rules.AlertingRule)
			g.Expect(ok).To(BeTrue())
			// There is nothing to restore from.
			alert.SetRestored(true)
			g.Expect(alert.Annotations().Has("summary")).To(BeTrue(), alert.Name())
			g.Expect(alert.Annotations().Has("description")).To(BeTrue(), alert.Name())
		}
		return group
	}
	return nil
}

// firing returns the alerts of a rule that fire, without the label that all have.
func firing(t *testing.T, group *rules.Group, name string) []expected {
	t.Helper()
	index := slices.IndexFunc(group.Rules(), func(rule rules.Rule) bool { return rule.Name() == name })
	NewWithT(t).Expect(index).To(BeNumerically(">=", 0), "there is an alert %s", name)
	var out []expected
	for _, alert := range group.Rules()[index].(*rules.AlertingRule).ActiveAlerts() {
		if alert.State != rules.StateFiring {
			continue
		}
		set := alert.Labels.Map()
		delete(set, "alertname")
		out = append(out, expected{ExpLabels: set, ExpAnnotations: alert.Annotations.Map()})
	}
	return out
}

func TestAWrongRuleIsFound(t *testing.T) {
	g := NewWithT(t)
	file := t.TempDir() + "/rules.yaml"
	g.Expect(os.WriteFile(file, []byte("groups:\n- name: a\n  rules:\n  - alert: A\n    expr: sum(\n"), 0o600)).To(Succeed())
	loader, err := promqltest.NewLazyLoader("load 1m\n  up 1\n", promqltest.LazyLoaderOpts{})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(loader.Close()).To(Succeed()) })
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(loader.QueryEngine(), loader.Storage()), Appendable: loader.Storage(), Context: context.Background(),
		Logger: promslog.NewNopLogger(), Parser: parser.NewParser(parser.Options{}),
	})
	_, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, file)
	g.Expect(errs).NotTo(BeEmpty())
}
