// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package stage_test

import (
	"testing"
	"text/template"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes/stage"
)

var pod = map[string]any{
	"metadata": map[string]any{
		"name":            "p",
		"generation":      int64(2),
		"labels":          map[string]any{"app": "x"},
		"annotations":     map[string]any{"example.org/a.b": "c"},
		"ownerReferences": []any{map[string]any{"kind": "Job", "controller": true}, map[string]any{"kind": "Thing"}},
	},
	"spec": map[string]any{"hostNetwork": false, "containers": []any{map[string]any{"name": "a: b"}}},
	"status": map[string]any{
		"phase":              "Running",
		"observedGeneration": int64(1),
		"conditions":         []any{map[string]any{"type": "Ready", "status": "True"}, map[string]any{"type": "Initialized", "status": "False"}},
	},
}

func TestSelectors(t *testing.T) {
	for name, test := range map[string]struct {
		selector string
		want     bool
	}{
		"an empty selector selects all":              {"{}", true},
		"a field has a value":                        {"{matchExpressions: [{key: .status.phase, operator: In, values: [Pending, Running]}]}", true},
		"a field has none of the values":             {"{matchExpressions: [{key: .status.phase, operator: In, values: [Pending]}]}", false},
		"a field has another value":                  {"{matchExpressions: [{key: .status.phase, operator: NotIn, values: [Pending]}]}", true},
		"what is missing has no value":               {"{matchExpressions: [{key: .status.reason, operator: NotIn, values: [Evicted]}]}", true},
		"what is missing is not there":               {"{matchExpressions: [{key: .status.reason.of.it, operator: DoesNotExist}]}", true},
		"false is not there":                         {"{matchExpressions: [{key: .spec.hostNetwork, operator: Exists}]}", false},
		"a map is there":                             {"{matchExpressions: [{key: .metadata.labels, operator: Exists}]}", true},
		"a key that is no identifier":                {`{matchExpressions: [{key: '.metadata.annotations["example.org/a.b"]', operator: In, values: [c]}]}`, true},
		"any element has the value":                  {"{matchExpressions: [{key: '.metadata.ownerReferences[].kind', operator: In, values: [Thing]}]}", true},
		"the element that is meant has the value":    {"{matchExpressions: [{key: '.metadata.ownerReferences[controller=true].kind', operator: In, values: [Thing]}]}", false},
		"an element by its field":                    {"{matchExpressions: [{key: '.status.conditions[type=Ready].status', operator: In, values: ['True']}]}", true},
		"an element that is missing":                 {"{matchExpressions: [{key: '.status.conditions[type=Other].status', operator: NotIn, values: ['True']}]}", true},
		"a value differs from that of another field": {"{matchExpressions: [{key: .metadata.generation, operator: NotIn, valuesFrom: [.status.observedGeneration]}]}", true},
		"a value is that of another field":           {"{matchExpressions: [{key: .metadata.generation, operator: In, valuesFrom: [.metadata.name, .metadata.generation]}]}", true},
		"a map is the same as another one":           {"{matchExpressions: [{key: .metadata.labels, operator: In, valuesFrom: [.metadata.labels]}]}", true},
		"labels match":                               {"{matchLabels: {app: x}}", true},
		"labels do not match":                        {"{matchLabels: {app: x, other: ''}}", false},
		"all of several have to hold":                {"{matchLabels: {app: x}, matchExpressions: [{key: .status.phase, operator: Exists}, {key: .status.reason, operator: Exists}]}", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			set, err := stage.Load([]byte("[{name: it, resource: Pod, selector: "+test.selector+", next: {delete: true}}]"), nil)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(set.Match("Pod", pod) != nil).To(Equal(test.want))
			g.Expect(set.Match("Node", pod)).To(BeNil())
		})
	}
}

func TestMatchTakesTheFirst(t *testing.T) {
	g := NewWithT(t)
	set, err := stage.Load([]byte(`
- {name: other, resource: Pod, selector: {matchLabels: {app: y}}, next: {delete: true}}
- {name: first, resource: Pod, next: {delete: true}}
- {name: second, resource: Pod, next: {delete: true}}
`), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(set.Match("Pod", pod).Name).To(Equal("first"))
}

func TestWait(t *testing.T) {
	g := NewWithT(t)
	set, err := stage.Load([]byte(`[{name: it, resource: Pod, delay: {duration: 1s, jitter: 500ms}, next: {delete: true}}]`), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(set.Match("Pod", pod).Wait(0)).To(Equal(time.Second))
	g.Expect(set.Match("Pod", pod).Wait(0.5)).To(Equal(1250 * time.Millisecond))
}

func TestStatus(t *testing.T) {
	render := func(text string) ([]byte, error) {
		set, err := stage.Load([]byte("- name: it\n  resource: Pod\n  next:\n    statusTemplate: '"+text+"'\n"), template.FuncMap{"twice": func(s string) string { return s + s }})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return set.Match("Pod", pod).Status(pod)
	}
	g := NewWithT(t)
	g.Expect(render(`{names: [{{ range .spec.containers }}{{ json .name }}{{ end }}], phase: {{ twice .status.phase }}}`)).To(MatchJSON(`{"names": ["a: b"], "phase": "RunningRunning"}`))
	g.Expect(render(`{reason: {{ json .status.reason }}}`)).To(MatchJSON(`{"reason": null}`))

	for _, text := range []string{`[a]`, `: :`, `{{ twice 1 }}`, `{a: 1, a: 2}`} {
		_, err := render(text)
		g.Expect(err).To(MatchError(ContainSubstring(`stage "it"`)), text)
	}
}

func TestLoadRefusesMistakes(t *testing.T) {
	for name, test := range map[string]struct{ file, message string }{
		"no YAML":                     {"{", "reading stages"},
		"a field that is not known":   {"[{name: a, resource: Pod, weight: 1, next: {delete: true}}]", "weight"},
		"no name":                     {"[{resource: Pod, next: {delete: true}}]", "name or resource"},
		"no resource":                 {"[{name: a, next: {delete: true}}]", "name or resource"},
		"two of a name":               {"[{name: a, resource: Pod, next: {delete: true}}, {name: a, resource: Node, next: {delete: true}}]", "two"},
		"nothing next":                {"[{name: a, resource: Pod, next: {}}]", "one of"},
		"two things next":             {"[{name: a, resource: Pod, next: {delete: true, statusTemplate: 'a: b'}}]", "one of"},
		"a negative delay":            {"[{name: a, resource: Pod, delay: {duration: -1s}, next: {delete: true}}]", "negative"},
		"a template that is none":     {"[{name: a, resource: Pod, next: {statusTemplate: '{{ if }}'}}]", "statusTemplate"},
		"an operator that is none":    {"[{name: a, resource: Pod, selector: {matchExpressions: [{key: .a, operator: Like}]}, next: {delete: true}}]", "Like"},
		"values that are missing":     {"[{name: a, resource: Pod, selector: {matchExpressions: [{key: .a, operator: In}]}, next: {delete: true}}]", "missing"},
		"values that are too many":    {"[{name: a, resource: Pod, selector: {matchExpressions: [{key: .a, operator: Exists, values: [b]}]}, next: {delete: true}}]", "no values"},
		"an empty path":               {"[{name: a, resource: Pod, selector: {matchExpressions: [{key: '', operator: Exists}]}, next: {delete: true}}]", "empty path"},
		"a path without a dot":        {"[{name: a, resource: Pod, selector: {matchExpressions: [{key: a, operator: Exists}]}, next: {delete: true}}]", "neither"},
		"a path with an empty field":  {"[{name: a, resource: Pod, selector: {matchExpressions: [{key: .a..b, operator: Exists}]}, next: {delete: true}}]", "without a name"},
		"a bracket that is open":      {"[{name: a, resource: Pod, selector: {matchExpressions: [{key: '.a[b=c', operator: Exists}]}, next: {delete: true}}]", "closing"},
		"a bracket without an equals": {"[{name: a, resource: Pod, selector: {matchExpressions: [{key: '.a[0]', operator: Exists}]}, next: {delete: true}}]", "FIELD=VALUE"},
		"a quoted key left open":      {`[{name: a, resource: Pod, selector: {matchExpressions: [{key: '.a["b"', operator: Exists}]}, next: {delete: true}}]`, "quoted"},
		"a second path that is none":  {"[{name: a, resource: Pod, selector: {matchExpressions: [{key: .a, operator: In, valuesFrom: [b]}]}, next: {delete: true}}]", "neither"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := stage.Load([]byte(test.file), nil)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}
