// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
)

const schema = `{
  "type": "object",
  "properties": {
    "replicas": {"type": "integer", "minimum": 1},
    "labels": {"type": "object", "additionalProperties": {"type": "string"}}
  }
}`

// files are those of a small chart with about everything that a chart may have, and the given ones.
func files(more ...map[string]string) fstest.MapFS {
	all := map[string]string{
		"Chart.yaml":                     "apiVersion: v2\nname: app\nversion: 0.1.0\nkubeVersion: \">= 1.30\"\n",
		"values.yaml":                    "replicas: 1\nlabels:\n  from: chart\nlimit: 10\nsub:\n  enabled: false\n",
		"values.schema.json":             schema,
		"crds/widgets.yaml":              "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata:\n  name: widgets.example.org\n",
		"templates/NOTES.txt":            "Thank you for installing {{ .Release.Name }}.\n",
		"templates/_helpers.tpl":         "{{- define \"name\" -}}{{ .Release.Name }}-{{ .Chart.Name }}{{- end -}}\n",
		"templates/b.yaml":               "{{- if .Values.off }}\napiVersion: v1\n{{- end }}\n---\n# nothing\n",
		"charts/sub/Chart.yaml":          "apiVersion: v2\nname: sub\nversion: 0.1.0\n",
		"charts/sub/templates/sub.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: sub\n",
		"charts/sub/templates/NOTES.txt": "Not an object: {{ .Release.Name }}\n",
		"templates/a.yaml": `apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ include "name" . }}
  namespace: {{ .Release.Namespace }}
  labels: {{- toYaml .Values.labels | nindent 4 }}
  annotations:
    kubernetes: {{ .Capabilities.KubeVersion.Version }}
    widgets: {{ .Capabilities.APIVersions.Has "example.org/v1" | quote }}
    limit: {{ .Values.limit | quote }}
    lookup: {{ lookup "v1" "Secret" "a" "b" | len | quote }}
spec:
  replicas: {{ .Values.replicas }}
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: ConfigMap
  metadata:
    name: in-a-list
`,
	}
	for _, m := range more {
		maps.Copy(all, m)
	}

	fsys := fstest.MapFS{}
	for name, content := range all {
		fsys["charts/app/"+name] = &fstest.MapFile{Data: []byte(content)}
	}
	return fsys
}

var subchart = map[string]string{"Chart.yaml": `apiVersion: v2
name: app
version: 0.1.0
dependencies:
- name: sub
  version: 0.1.0
  condition: sub.enabled
`}

func embedded(more ...map[string]string) chart.Source {
	return chart.Embedded(files(more...), "charts/app")
}

var release = chart.Release{Name: "rel", Namespace: "ns"}

func renderer(t *testing.T) *chart.Renderer {
	t.Helper()
	r, err := chart.NewRenderer("1.34.1")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return r
}

func names(objects []client.Object) []string {
	var out []string
	for _, object := range objects {
		out = append(out, object.GetObjectKind().GroupVersionKind().Kind+" "+object.GetName())
	}
	return out
}

func field(t *testing.T, object client.Object, path ...string) any {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(object.(*unstructured.Unstructured).Object, path...)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(found).To(BeTrue(), "%v", path)
	return value
}

func TestAChartRendersToItsObjects(t *testing.T) {
	g := NewWithT(t)
	objects, err := renderer(t).Render(t.Context(), embedded(subchart), release, map[string]any{
		"replicas": 3,
		"limit":    1000000,
		"labels":   map[string]string{"from": "values", "type": "a map of strings"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(names(objects)).To(Equal([]string{"CustomResourceDefinition widgets.example.org", "Deployment rel-app", "ConfigMap in-a-list"}))

	deployment := objects[1]
	g.Expect(deployment.GetNamespace()).To(Equal("ns"))
	g.Expect(deployment.GetLabels()).To(Equal(map[string]string{"from": "values", "type": "a map of strings"}))
	g.Expect(deployment.GetAnnotations()).To(Equal(map[string]string{
		"kubernetes": "v1.34.1", "widgets": "false", "limit": "1000000", "lookup": "0",
	}))
	g.Expect(field(t, deployment, "spec", "replicas")).To(Equal(int64(3)))
}

func TestASubchartIsRenderedIfItsConditionIsMet(t *testing.T) {
	g := NewWithT(t)
	r, source := renderer(t), embedded(subchart)
	for _, enabled := range []bool{true, false, true} {
		objects, err := r.Render(t.Context(), source, release, map[string]any{"sub": map[string]any{"enabled": enabled}})
		g.Expect(err).NotTo(HaveOccurred())
		if enabled {
			g.Expect(names(objects)).To(ContainElement("ConfigMap sub"))
		} else {
			g.Expect(names(objects)).NotTo(ContainElement("ConfigMap sub"))
		}
	}
}

// random is a template whose result is the same only if it is remembered.
var random = map[string]string{"templates/random.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: random\ndata:\n  x: {{ randAlphaNum 20 | quote }}\n"}

func TestNothingIsRenderedTwiceForTheSameInputs(t *testing.T) {
	g := NewWithT(t)
	r := renderer(t)
	other, err := r.For("1.35.0")
	g.Expect(err).NotTo(HaveOccurred())

	draw := func(r *chart.Renderer, source chart.Source, release chart.Release, values map[string]any) string {
		objects, err := r.Render(t.Context(), source, release, values)
		g.Expect(err).NotTo(HaveOccurred())
		return field(t, objects[len(objects)-1], "data", "x").(string)
	}
	base := func() string { return draw(r, embedded(random), release, map[string]any{"limit": 1, "x": 2}) }
	first := base()

	g.Expect(sets.New(
		first,
		draw(r, embedded(random, map[string]string{"values.yaml": "replicas: 2\n"}), release, map[string]any{"limit": 1, "x": 2}),
		draw(r, embedded(random), chart.Release{Name: "other", Namespace: "ns"}, map[string]any{"limit": 1, "x": 2}),
		draw(r, embedded(random), chart.Release{Name: "rel", Namespace: "other"}, map[string]any{"limit": 1, "x": 2}),
		draw(r, embedded(random), release, map[string]any{"limit": 1}),
		draw(other, embedded(random), release, map[string]any{"limit": 1, "x": 2}),
	)).To(HaveLen(6))
	g.Expect(base()).To(Equal(first))
	g.Expect(draw(r, embedded(random), release, map[string]any{"x": 2, "limit": 1})).To(Equal(first))
}

func TestCallersCannotChangeWhatOthersGet(t *testing.T) {
	g := NewWithT(t)
	r, source := renderer(t), embedded(subchart)

	for range 3 {
		objects, err := r.Render(t.Context(), source, release, nil)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(names(objects)).To(Equal([]string{"CustomResourceDefinition widgets.example.org", "Deployment rel-app", "ConfigMap in-a-list"}))
		g.Expect(field(t, objects[1], "spec", "replicas")).To(Equal(int64(1)))

		g.Expect(unstructured.SetNestedField(objects[1].(*unstructured.Unstructured).Object, int64(9), "spec", "replicas")).To(Succeed())
		objects[0].SetName("changed")
		objects[2] = nil
	}
}

func TestValuesAreNotChanged(t *testing.T) {
	g := NewWithT(t)
	values := map[string]any{"labels": map[string]any{"a": "b"}, "sub": map[string]any{"enabled": true}}
	_, err := renderer(t).Render(t.Context(), embedded(subchart), release, values)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(values).To(Equal(map[string]any{"labels": map[string]any{"a": "b"}, "sub": map[string]any{"enabled": true}}))
}

func TestChartsMayBeRenderedConcurrently(t *testing.T) {
	g := NewWithT(t)
	r, source := renderer(t), embedded(subchart)

	var (
		wait   sync.WaitGroup
		failed atomic.Int32
	)
	for i := range 16 {
		wait.Go(func() {
			objects, err := r.Render(t.Context(), source, release, map[string]any{"replicas": 1 + i%4, "sub": map[string]any{"enabled": i%2 == 0}})
			if err != nil || len(objects) != 3+(i+1)%2 {
				failed.Add(1)
			}
		})
	}
	wait.Wait()
	g.Expect(failed.Load()).To(BeZero())
}

func TestValuesThatTheChartRefusesAreAValuesError(t *testing.T) {
	for name, tt := range map[string]struct {
		more    map[string]string
		values  map[string]any
		message string
	}{
		"values against the schema":    {nil, map[string]any{"replicas": "many"}, "got string, want integer"},
		"integers against the schema":  {nil, map[string]any{"replicas": 0}, "minimum"},
		"a Kubernetes that is too old": {map[string]string{"Chart.yaml": "apiVersion: v2\nname: app\nversion: 0.1.0\nkubeVersion: \">= 1.99\"\n"}, nil, "needs Kubernetes >= 1.99, not v1.34.1"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := renderer(t).Render(t.Context(), embedded(tt.more), release, tt.values)
			var refused *chart.ValuesError
			g.Expect(errors.As(err, &refused)).To(BeTrue(), "%v", err)
			g.Expect(refused).To(MatchError(HavePrefix("chart app refuses the values: ")))
			g.Expect(err).To(MatchError(And(HavePrefix("rendering chart app for ns/rel: chart app refuses the values"), ContainSubstring(tt.message))))
		})
	}
}

func TestChartsThatCannotBeRenderedAreAnError(t *testing.T) {
	for name, tt := range map[string]struct {
		template string
		message  string
	}{
		"a template that does not parse":   {"{{ .Values.", "templates/z.yaml"},
		"a template that fails":            {"{{ fail \"because\" }}", "because"},
		"text that is no YAML":             {"a: b: c", "app/templates/z.yaml: document 1"},
		"a key that is there twice":        {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {}\ndata: {a: b}\n", `key "data" already set`},
		"an object without kind":           {"apiVersion: v1\nmetadata: {name: x}", "'Kind' is missing"},
		"an object without name":           {"---\napiVersion: v1\nkind: Secret", "document 1: apiVersion \"v1\", kind \"Secret\" and metadata.name \"\""},
		"an object in a list without name": {"apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: Secret}]", "must all be set"},
		"a hook":                           {"apiVersion: batch/v1\nkind: Job\nmetadata: {name: x, annotations: {helm.sh/hook: pre-install}}", "Job x is a hook (pre-install), which is not run"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := renderer(t)
			for range 2 {
				_, err := r.Render(t.Context(), embedded(map[string]string{"templates/z.yaml": tt.template}), release, nil)
				g.Expect(err).To(MatchError(And(HavePrefix("rendering chart app for ns/rel: "), ContainSubstring(tt.message))))
			}
		})
	}
}

func TestCapabilitiesWithoutAVersionAreAnError(t *testing.T) {
	_, err := chart.NewRenderer("latest")
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring(`parsing Kubernetes version "latest"`)))
}

func TestValuesThatAreNotJSONAreAnError(t *testing.T) {
	_, err := renderer(t).Render(t.Context(), embedded(), release, map[string]any{"f": func() {}})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("values are not JSON")))
}

func TestACancelledContextEndsARendering(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := renderer(t).Render(ctx, embedded(), release, nil)
	g.Expect(err).To(MatchError(context.Canceled))
}

func BenchmarkRender(b *testing.B) {
	r, err := chart.NewRenderer("1.34.1")
	if err != nil {
		b.Fatal(err)
	}
	source := embedded(subchart)
	for _, bench := range []struct {
		name   string
		values func(i int) map[string]any
	}{
		{"unchanged", func(int) map[string]any { return nil }},
		{"changed", func(i int) map[string]any { return map[string]any{"limit": i} }},
	} {
		b.Run(bench.name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if _, err := r.Render(b.Context(), source, release, bench.values(i)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
