// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestScaleNeedsAGarden(t *testing.T) {
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}, Now: time.Now}
	NewWithT(t).Expect(l.Scale(t.Context(), 1, 1, false)).To(MatchError(ContainSubstring("make up UNTIL=seed")))
}

func TestScaleNeedsANodeForEachShoot(t *testing.T) {
	l := landscapeWithGarden(t)
	NewWithT(t).Expect(l.Scale(t.Context(), 3, 2, false)).To(MatchError(ContainSubstring("NODES=2")))
}

func landscapeWithGarden(t *testing.T) Landscape {
	t.Helper()
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}, Now: time.Now}
	NewWithT(t).Expect(os.MkdirAll(l.Layout.VirtualKubeconfig(), 0o700)).To(Succeed())
	return l
}

func TestScaleKnowsWhetherTheInstanceHasItsConfiguration(t *testing.T) {
	g := NewWithT(t)
	configMap := unstructured.Unstructured{Object: map[string]any{"data": map[string]any{"config.yaml": "a: b\nmock:\n  enabled: true\n"}}}
	done, _ := configures("mock:\n  enabled: true")([]unstructured.Unstructured{{}, configMap})
	g.Expect(done).To(BeTrue())
	done, _ = configures("mock:\n  enabled: false")([]unstructured.Unstructured{configMap})
	g.Expect(done).To(BeFalse())

	for _, test := range []struct {
		observed, updated, all, available int64
		want                              bool
	}{
		{observed: 2, updated: 1, all: 1, available: 1, want: true},
		{observed: 1, updated: 1, all: 1, available: 1},
		{observed: 2, updated: 0, all: 1, available: 1},
		{observed: 2, updated: 1, all: 2, available: 1},
		{observed: 2, updated: 1, all: 1, available: 0},
	} {
		deployment := unstructured.Unstructured{Object: map[string]any{
			"spec":   map[string]any{"replicas": int64(1)},
			"status": map[string]any{"observedGeneration": test.observed, "updatedReplicas": test.updated, "replicas": test.all, "availableReplicas": test.available},
		}}
		deployment.SetGeneration(2)
		done, _ := rolledOut([]unstructured.Unstructured{deployment})
		g.Expect(done).To(Equal(test.want), "%+v", test)
	}
	done, _ = rolledOut(nil)
	g.Expect(done).To(BeFalse(), "there is no Deployment yet")
}

func TestSumOf(t *testing.T) {
	const metrics = `# HELP requests_total x
# TYPE requests_total counter
requests_total{verb="GET"} 3
requests_total{verb="WATCH"} 100
requests_total{verb="LIST",url="a b"} 1e+1
requests_total_other{verb="GET"} 1000
`
	NewWithT(t).Expect(sumOf(metrics, "requests_total")).To(Equal(13.0))
}

func TestScaleKnowsWhetherAShootIsDone(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	shoot := func(state, updated, condition string, annotations map[string]string) []unstructured.Unstructured {
		o := unstructured.Unstructured{Object: map[string]any{"kind": "Shoot", "status": map[string]any{
			"observedGeneration": int64(1), "lastOperation": map[string]any{"state": state, "lastUpdateTime": updated},
			"conditions": []any{map[string]any{"type": "EveryNodeReady", "status": condition}},
		}}}
		o.SetGeneration(1)
		o.SetAnnotations(annotations)
		return []unstructured.Unstructured{o}
	}
	const later, same, earlier = "2026-01-02T03:05:00Z", "2026-01-02T03:04:05Z", "2026-01-02T03:04:00Z"
	for _, test := range []struct {
		name  string
		shoot []unstructured.Unstructured
		done  bool
	}{
		{name: "one that is not there yet"},
		{name: "one that was reconciled since", shoot: shoot("Succeeded", later, "True", nil), done: true},
		{name: "one that was reconciled in the second in which its turn began", shoot: shoot("Succeeded", same, "True", nil), done: true},
		{name: "one that is not healthy", shoot: shoot("Succeeded", later, "False", nil)},
		{name: "one that was reconciled before", shoot: shoot("Succeeded", earlier, "True", nil)},
		{name: "one that is to be reconciled", shoot: shoot("Succeeded", later, "True", map[string]string{"gardener.cloud/operation": "reconcile"})},
		{name: "one on its way", shoot: shoot("Processing", later, "True", nil)},
	} {
		t.Run(test.name, func(t *testing.T) {
			done, state := reconciledSince(began, test.shoot)
			NewWithT(t).Expect(done).To(Equal(test.done), state)
		})
	}
}
