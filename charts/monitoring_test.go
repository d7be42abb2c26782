// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiserverschema "k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

// dashboard is what the tests look at of a dashboard of Plutono.
type dashboard struct {
	UID           string  `json:"uid"`
	Title         string  `json:"title"`
	SchemaVersion int     `json:"schemaVersion"`
	Panels        []panel `json:"panels"`
}

type panel struct {
	ID          int     `json:"id"`
	Title       string  `json:"title"`
	Type        string  `json:"type"`
	Description string  `json:"description"`
	Datasource  *string `json:"datasource"`
	GridPos     struct {
		X, Y, W, H int
	} `json:"gridPos"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

func kinds(objs []*unstructured.Unstructured) []string {
	var out []string
	for _, obj := range objs {
		out = append(out, obj.GetKind()+" "+obj.GetName())
	}
	return out
}

func get(t *testing.T, objs []*unstructured.Unstructured, kind, name string) *unstructured.Unstructured {
	t.Helper()
	for _, obj := range objs {
		if obj.GetKind() == kind && obj.GetName() == name {
			return obj
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

func TestEachPlutonoGetsTheDashboardOfItsPlace(t *testing.T) {
	for place, values := range places() {
		t.Run(place, func(t *testing.T) {
			g := NewWithT(t)
			name := "gardener-extension-provider-local-" + place
			configMap := find[corev1.ConfigMap](t, objects(t, "here", values()), "ConfigMap", name+"-dashboard")
			g.Expect(configMap.Namespace).To(Equal("garden"))
			g.Expect(configMap.Labels).To(HaveKeyWithValue("dashboard.monitoring.gardener.cloud/garden", "true"))
			if place == "seed" {
				g.Expect(configMap.Labels).To(HaveKeyWithValue("dashboard.monitoring.gardener.cloud/seed", "true"))
			} else {
				g.Expect(configMap.Labels).NotTo(HaveKey("dashboard.monitoring.gardener.cloud/seed"))
			}

			board := dashboard{}
			g.Expect(json.Unmarshal([]byte(configMap.Data[name+".json"]), &board)).To(Succeed())
			g.Expect(board.UID).To(Equal("provider-local-" + place))
			g.Expect(board.Title).To(Equal("Extension provider-local (" + place + ")"))
			g.Expect(board.SchemaVersion).To(Equal(27), "what Plutono 7.5 has")
			ids, taken := map[int]bool{}, map[string]string{}
			for _, panel := range board.Panels {
				g.Expect(ids).NotTo(HaveKey(panel.ID), panel.Title)
				ids[panel.ID] = true
				g.Expect(panel.GridPos.X+panel.GridPos.W).To(BeNumerically("<=", 24), panel.Title)
				for x := range panel.GridPos.W {
					for y := range panel.GridPos.H {
						cell := fmt.Sprint(panel.GridPos.X+x, panel.GridPos.Y+y)
						g.Expect(taken).NotTo(HaveKey(cell), "%s covers %s", panel.Title, taken[cell])
						taken[cell] = panel.Title
					}
				}
				if panel.Type == "row" {
					continue
				}
				g.Expect(*panel.Datasource).To(Equal("prometheus-"+place), panel.Title)
				g.Expect(panel.Description).NotTo(BeEmpty(), panel.Title)
				g.Expect(panel.Targets).NotTo(BeEmpty(), panel.Title)
				for _, target := range panel.Targets {
					g.Expect(target.Expr).To(ContainSubstring(`{job=~"gardener-extension-provider-local-.+"`), panel.Title)
				}
			}
			g.Expect(len(ids)).To(BeNumerically(">", 15))
		})
	}
}

func TestPrometheusFindsTheInstance(t *testing.T) {
	g := NewWithT(t)
	garden, seed := objects(t, "here", gardenValues()), objects(t, "here", seedValues())
	monitor := get(t, garden, "ServiceMonitor", "gardener-extension-provider-local-garden")
	g.Expect(monitor.GetLabels()).To(HaveKeyWithValue("prometheus", "garden"))
	g.Expect(monitor.GetNamespace()).To(Equal("here"))
	service := find[corev1.Service](t, garden, "Service", "gardener-extension-provider-local-garden")
	selector, _, err := unstructured.NestedStringMap(monitor.Object, "spec", "selector", "matchLabels")
	g.Expect(err).NotTo(HaveOccurred())
	for key, value := range selector {
		g.Expect(service.Labels).To(HaveKeyWithValue(key, value))
	}
	g.Expect(service.Spec.Ports).To(ContainElement(HaveField("Name", "metrics")))
	g.Expect(kinds(seed)).NotTo(ContainElement(HavePrefix("ServiceMonitor")), "Gardener's own PodMonitor would find the pods a second time")
}

func TestTheObjectsForPrometheusOperatorMeetItsSchemas(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "github.com/gardener/gardener").Output()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	folder := filepath.Join(strings.TrimSpace(string(out)), "pkg/component/observability/monitoring/prometheusoperator/templates")
	checked := 0
	for place, values := range places() {
		for _, obj := range objects(t, "here", values()) {
			if obj.GroupVersionKind().Group != "monitoring.coreos.com" {
				continue
			}
			t.Run(place+" "+obj.GetKind(), func(t *testing.T) {
				g := NewWithT(t)
				checked++
				content, err := os.ReadFile(filepath.Join(folder, "crd-monitoring.coreos.com_"+strings.ToLower(obj.GetKind())+"s.yaml")) // #nosec G304 -- of the module
				g.Expect(err).NotTo(HaveOccurred())
				definition, schema := &apiextensionsv1.CustomResourceDefinition{}, &apiextensions.JSONSchemaProps{}
				g.Expect(yaml.Unmarshal(content, definition)).To(Succeed())
				g.Expect(apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(definition.Spec.Versions[0].Schema.OpenAPIV3Schema, schema, nil)).To(Succeed())
				validator, _, err := apiserverschema.NewSchemaValidator(schema)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(apiserverschema.ValidateCustomResource(nil, obj.Object, validator)).To(BeEmpty())
			})
		}
	}
	NewWithT(t).Expect(checked).To(Equal(3))
}

func TestAlertsAreRoutedByThePlace(t *testing.T) {
	for place, values := range places() {
		t.Run(place, func(t *testing.T) {
			g := NewWithT(t)
			rule := get(t, objects(t, "here", values()), "PrometheusRule", "gardener-extension-provider-local-"+place)
			g.Expect(rule.GetLabels()).To(HaveKeyWithValue("prometheus", place))
			groups, _, err := unstructured.NestedSlice(rule.Object, "spec", "groups")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(groups).To(HaveLen(1))
			rules, _, err := unstructured.NestedSlice(groups[0].(map[string]any), "rules")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(rules)).To(BeNumerically(">=", 8))
			for _, rule := range rules {
				labels, _, err := unstructured.NestedStringMap(rule.(map[string]any), "labels")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(labels).To(And(HaveKeyWithValue("topology", place), HaveKeyWithValue("type", place), HaveKeyWithValue("visibility", "operator")))
				g.Expect(labels["severity"]).To(BeElementOf("critical", "warning", "info"))
			}
		})
	}
}

func TestMonitoringCanBeSwitchedOff(t *testing.T) {
	for place, values := range places() {
		t.Run(place, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(kinds(objects(t, "here", with(values(), false, "monitoring", "enabled")))).NotTo(ContainElement(Or(
				HavePrefix("ServiceMonitor"), HavePrefix("PrometheusRule"), HaveSuffix("dashboard"))))
			g.Expect(kinds(objects(t, "here", with(values(), false, "monitoring", "alerts")))).To(And(
				ContainElement(HaveSuffix("dashboard")), Not(ContainElement(HavePrefix("PrometheusRule")))))
			g.Expect(kinds(objects(t, "here", with(values(), false, "metrics", "scrape")))).NotTo(ContainElement(HavePrefix("PrometheusRule")),
				"an alert for metrics that nobody gets would always fire")
			g.Expect(kinds(objects(t, "here", with(values(), false, "monitoring", "dashboard")))).To(And(
				ContainElement(HavePrefix("PrometheusRule")), Not(ContainElement(HaveSuffix("dashboard")))))
		})
	}
}

func TestDashboardAndAlertsAskForMetricsThatThereAre(t *testing.T) {
	g := NewWithT(t)
	var known []string
	registry := &naming{names: &known}
	_, err := metrics.New(registry)
	g.Expect(err).NotTo(HaveOccurred())
	puller, err := oci.New(oci.Options{Registerer: registry, Directory: t.TempDir()})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(puller.Close()).To(Succeed()) })
	g.Expect(len(known)).To(BeNumerically(">", 15))

	names, suffix := regexp.MustCompile(`provider_local_[a-z_]+`), regexp.MustCompile(`_(bucket|count|sum)$`)
	for _, file := range []string{"rules.yaml", "dashboard.json"} {
		content, err := os.ReadFile(filepath.Join(chartDirectory, "monitoring", file))
		g.Expect(err).NotTo(HaveOccurred())
		asked := names.FindAllString(string(content), -1)
		g.Expect(asked).NotTo(BeEmpty())
		for _, name := range asked {
			g.Expect(known).To(ContainElement(suffix.ReplaceAllString(name, "")), file)
		}
	}
}

func TestEveryAlertIsExplainedAndTested(t *testing.T) {
	g := NewWithT(t)
	rules, err := os.ReadFile(filepath.Join(chartDirectory, "monitoring/rules.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	docs, err := os.ReadFile("../docs/operations/observability.md")
	g.Expect(err).NotTo(HaveOccurred())
	tests, err := os.ReadFile("testdata/rules.test.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	alerts := regexp.MustCompile(`(?m)^ +- alert: (\w+)$`).FindAllStringSubmatch(string(rules), -1)
	g.Expect(len(alerts)).To(BeNumerically(">=", 8))
	for _, alert := range alerts {
		g.Expect(string(docs)).To(ContainSubstring("| `" + alert[1] + "` |"))
		g.Expect(string(tests)).To(ContainSubstring("alertname: " + alert[1] + "\n"))
	}
}

// naming is a registerer that notes the names of what is registered.
type naming struct {
	prometheus.Registerer
	names *[]string
}

var fqName = regexp.MustCompile(`fqName: "([^"]+)"`)

func (n *naming) Register(collector prometheus.Collector) error {
	descriptions := make(chan *prometheus.Desc, 10)
	collector.Describe(descriptions)
	close(descriptions)
	for description := range descriptions {
		*n.names = append(*n.names, fqName.FindStringSubmatch(description.String())[1])
	}
	return nil
}

func (n *naming) Unregister(prometheus.Collector) bool { return true }
