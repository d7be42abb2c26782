// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"maps"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"

	"github.com/gardener/gardener-extension-provider-local/pkg/admission"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// What gardener-operator v1.149 renders both charts with: spec.deployment.admission.values of the Extension below what it
// injects (pkg/operator/controller/extension/extension/admission).
func admissionRuntimeValues() map[string]any {
	return map[string]any{
		"gardener": map[string]any{
			"runtimeCluster": map[string]any{"priorityClassName": "gardener-garden-system-400"},
			"virtualCluster": map[string]any{"enabled": true, "namespace": "extension-provider-local"},
		},
		"image": "registry.local.gardener.cloud:5001/operator-extension" + digest,
	}
}

func admissionApplicationValues() map[string]any {
	return map[string]any{
		"gardener": map[string]any{"virtualCluster": map[string]any{
			"enabled":        true,
			"serviceAccount": map[string]any{"name": "extension-admission-provider-local", "namespace": "kube-system"},
		}},
		"image": "registry.local.gardener.cloud:5001/operator-extension" + digest,
	}
}

// renderAdmission renders one of the charts of the admission.
func renderAdmission(chart, namespace string, values map[string]any) ([]byte, error) {
	return renderChart(filepath.Join("admission-local", chart), namespace, values)
}

func admissionObjects(t *testing.T, chart, namespace string, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	return chartObjects(t, filepath.Join("admission-local", chart), namespace, values)
}

func TestWhatTheAdmissionChartsDeployIsInTheGoldenFiles(t *testing.T) {
	for chart, test := range map[string]struct {
		namespace string
		values    map[string]any
	}{
		"runtime":     {"garden", admissionRuntimeValues()},
		"application": {"extension-provider-local", admissionApplicationValues()},
	} {
		t.Run(chart, func(t *testing.T) {
			g := NewWithT(t)
			manifests, err := renderAdmission(chart, test.namespace, test.values)
			g.Expect(err).NotTo(HaveOccurred())
			expectGolden(t, "admission-local-"+chart, manifests)
		})
	}
}

func TestHelmHasNothingAgainstTheAdmissionCharts(t *testing.T) {
	for chart, values := range map[string]map[string]any{"runtime": admissionRuntimeValues(), "application": admissionApplicationValues()} {
		t.Run(chart, func(t *testing.T) {
			g := NewWithT(t)
			for _, message := range lint.AllWithKubeVersion(filepath.Join("admission-local", chart), values, "garden", nil).Messages {
				g.Expect(message.Severity).To(BeNumerically("<=", support.InfoSev), message.Error())
			}
		})
	}
}

func TestTheConfigurationOfTheAdmissionIsWhatTheProgramReads(t *testing.T) {
	read := func(t *testing.T, values map[string]any) *configv1alpha1.AdmissionConfiguration {
		t.Helper()
		configMap := find[corev1.ConfigMap](t, admissionObjects(t, "runtime", "garden", values), "ConfigMap", admission.Name+"-config")
		config := &configv1alpha1.AdmissionConfiguration{}
		NewWithT(t).Expect(configv1alpha1.Decode([]byte(configMap.Data["config.yaml"]), config)).To(Succeed())
		return config
	}

	t.Run("without values the defaults hold, and the chart's own copies of them are the same", func(t *testing.T) {
		g := NewWithT(t)
		config := read(t, admissionRuntimeValues())
		g.Expect(config.Webhooks.OwnerNamespace).To(Equal("extension-provider-local"))
		g.Expect(config.Webhooks.CertificateNamespace).To(Equal("gardener-extension-admission-local"))
		g.Expect(config.LeaderElection.ResourceName).To(Equal(admission.Name + "-leader-election"))
		g.Expect(config.LeaderElection.ResourceNamespace).To(Equal("garden"))

		objs := admissionObjects(t, "runtime", "garden", admissionRuntimeValues())
		ports := find[appsv1.Deployment](t, objs, "Deployment", admission.Name).Spec.Template.Spec.Containers[0].Ports
		g.Expect(ports[0].ContainerPort).To(BeEquivalentTo(config.Server.Webhooks.Port))
		g.Expect(ports[1].ContainerPort).To(BeEquivalentTo(config.Server.HealthProbes.Port))
		g.Expect(ports[2].ContainerPort).To(BeEquivalentTo(config.Server.Metrics.Port))
		service := find[corev1.Service](t, objs, "Service", admission.Name)
		g.Expect(service.Spec.Ports[0].Port).To(BeEquivalentTo(*config.Webhooks.ServicePort))
		g.Expect(service.Spec.Ports[0].TargetPort.IntValue()).To(Equal(config.Server.Webhooks.Port))
	})

	t.Run("each value reaches the program", func(t *testing.T) {
		g := NewWithT(t)
		values := admissionRuntimeValues()
		maps.Copy(values, map[string]any{
			"logLevel": "debug", "logFormat": "text", "certificateNamespace": "here",
			"clientConnection": map[string]any{"qps": 7, "burst": 9},
			"leaderElection":   map[string]any{"leaseDuration": "20s", "renewDeadline": "12s", "retryPeriod": "3s"},
			"server":           map[string]any{"webhooks": map[string]any{"port": 9443}, "metrics": map[string]any{"port": 9080}, "healthProbes": map[string]any{"port": 9081}},
		})
		values["machines"] = map[string]any{"nodeCIDRs": []any{"198.51.100.0/24"}}
		config := read(t, values)
		g.Expect(config.Machines.NodeCIDRs).To(Equal([]string{"198.51.100.0/24"}))
		g.Expect(config.LogLevel).To(Equal("debug"))
		g.Expect(config.LogFormat).To(Equal("text"))
		g.Expect(config.ClientConnection.Burst).To(BeEquivalentTo(9))
		g.Expect(config.LeaderElection.RenewDeadline.Duration.String()).To(Equal("12s"))
		g.Expect(config.Webhooks.CertificateNamespace).To(Equal("here"))
		rendered, err := renderAdmission("runtime", "garden", values)
		g.Expect(err).NotTo(HaveOccurred())
		for _, expected := range []string{"containerPort: 9443", "containerPort: 9081", "containerPort: 9080", "targetPort: 9443", "namespace: here\n", "name: here\n", `"port":9443`, `"port":9080`} {
			g.Expect(string(rendered)).To(ContainSubstring(expected))
		}
	})
}

func TestValuesOfTheAdmissionThatMakeNoSenseAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		chart   string
		values  map[string]any
		message string
	}{
		"no image":                         {"runtime", with(admissionRuntimeValues(), "", "image"), "image is needed"},
		"a value that there is not":        {"runtime", with(admissionRuntimeValues(), "x", "imgae"), "imgae"},
		"no owner":                         {"runtime", with(admissionRuntimeValues(), "", "gardener", "virtualCluster", "namespace"), "gardener.virtualCluster.namespace is not set"},
		"certificates among other Secrets": {"runtime", with(admissionRuntimeValues(), "garden", "certificateNamespace"), "certificateNamespace is the release's own namespace"},
		"nobody to permit something":       {"application", with(admissionApplicationValues(), "", "gardener", "virtualCluster", "serviceAccount", "name"), "gardener.virtualCluster.serviceAccount.name is not set"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := renderAdmission(test.chart, "garden", test.values)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}

func TestTheAdmissionMayDoNoMoreThanItMust(t *testing.T) {
	g := NewWithT(t)
	runtimeObjects := admissionObjects(t, "runtime", "garden", admissionRuntimeValues())
	for _, obj := range runtimeObjects {
		g.Expect(obj.GetKind()).NotTo(HavePrefix("ClusterRole"), "in the garden runtime cluster it is in two namespaces only")
	}
	for _, rule := range find[rbacv1.Role](t, runtimeObjects, "Role", admission.Name).Rules {
		g.Expect(rule.Resources).NotTo(ContainElement("secrets"), "those of the Garden are in this namespace")
	}
	for _, rule := range find[rbacv1.ClusterRole](t, admissionObjects(t, "application", "extension-provider-local", admissionApplicationValues()), "ClusterRole", admission.Name).Rules {
		g.Expect(append(append(slices.Clone(rule.Verbs), rule.Resources...), rule.APIGroups...)).NotTo(ContainElement("*"))
		switch {
		case slices.Equal(rule.Verbs, []string{"get"}), slices.Equal(rule.Verbs, []string{"create"}) && slices.Equal(rule.APIGroups, []string{"admissionregistration.k8s.io"}):
		default:
			g.Expect(rule.ResourceNames).To(HaveExactElements(admission.Name), "%v", rule)
		}
	}

	pod := find[appsv1.Deployment](t, runtimeObjects, "Deployment", admission.Name).Spec.Template.Spec
	g.Expect(*pod.SecurityContext.RunAsNonRoot).To(BeTrue())
	g.Expect(pod.Containers).To(HaveLen(1))
	g.Expect(*pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem).To(BeTrue())
	g.Expect(pod.Containers[0].SecurityContext.Capabilities.Drop).To(HaveExactElements(corev1.Capability("ALL")))
	g.Expect(pod.Containers[0].Resources.Requests).To(HaveLen(2))
}

// gardener-operator mounts the kubeconfig of the virtual garden into what it finds in its namespace.
func TestGardenerFindsWhereTheKubeconfigBelongs(t *testing.T) {
	g := NewWithT(t)
	deployment := find[appsv1.Deployment](t, admissionObjects(t, "runtime", "garden", admissionRuntimeValues()), "Deployment", admission.Name)
	g.Expect(deployment.Namespace).To(Equal("garden"))
	g.Expect(gardenerutils.InjectGenericGardenKubeconfig(deployment, "generic", "shoot-access-x", gardenerutils.VolumeMountPathGenericKubeconfig)).To(Succeed())
	g.Expect(deployment.Spec.Template.Spec.Containers[0].Env).To(ContainElement(HaveField("Name", "GARDEN_KUBECONFIG")))
}
