// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package components_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"

	. "github.com/onsi/gomega"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
)

const (
	digest         = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	shootNamespace = "shoot--local--foo"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// component is a chart as pkg/controller/controlplane renders it.
type component struct {
	chart   string
	release chart.Release
	values  map[string]any
}

func localPathProvisioner() component {
	return component{
		chart:   components.LocalPathProvisioner,
		release: chart.Release{Name: "local-path-provisioner", Namespace: "kube-system"},
		values: map[string]any{
			"image": "registry.local.gardener.cloud:5001/local-path-provisioner" + digest,
			"vpa":   map[string]any{"enabled": true},
		},
	}
}

func cloudController() component {
	return component{
		chart:   components.CloudController,
		release: chart.Release{Name: "cloud-controller", Namespace: shootNamespace},
		values: map[string]any{
			"image":        "registry.local.gardener.cloud:5001/gardenlet-extension" + digest,
			"replicas":     1,
			"shootAccess":  map[string]any{"kubeconfigSecret": "generic-token-kubeconfig-1234", "tokenSecret": "shoot-access-cloud-controller"},
			"serverSecret": "cloud-controller-server-1234",
		},
	}
}

func (c component) with(key string, value any) component {
	c.values[key] = value
	return c
}

func (c component) render(t *testing.T) ([]client.Object, error) {
	t.Helper()
	renderer, err := chart.NewRenderer("1.34.1")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	objects, err := renderer.Render(t.Context(), chart.Embedded(components.FS, c.chart), c.release, c.values)
	if err != nil {
		return nil, err
	}
	return objects, nil
}

func (c component) mustRender(t *testing.T) []client.Object {
	t.Helper()
	objects, err := c.render(t)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return objects
}

func find[T any](t *testing.T, objects []client.Object, kind, name string) *T {
	t.Helper()
	g := NewWithT(t)
	for _, object := range objects {
		if object.GetObjectKind().GroupVersionKind().Kind == kind && object.GetName() == name {
			out := new(T)
			g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(object.(*unstructured.Unstructured).Object, out, true)).To(Succeed())
			return out
		}
	}
	g.Expect(objects).To(BeNil(), "there is no %s %s", kind, name)
	return nil
}

func TestWhatAComponentDeploysIsInTheGoldenFile(t *testing.T) {
	for _, component := range []component{localPathProvisioner(), cloudController()} {
		t.Run(component.chart, func(t *testing.T) {
			g := NewWithT(t)
			var manifests bytes.Buffer
			for _, object := range component.mustRender(t) {
				document, err := yaml.Marshal(object)
				g.Expect(err).NotTo(HaveOccurred())
				manifests.WriteString("---\n")
				manifests.Write(document)
			}

			golden := filepath.Join("testdata", component.chart+".golden.yaml")
			if *update {
				g.Expect(os.WriteFile(golden, manifests.Bytes(), 0o600)).To(Succeed())
			}
			expected, err := os.ReadFile(golden) // #nosec G304 -- a golden file
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(manifests.String()).To(Equal(string(expected)), "refresh with: go test ./charts/components -update")
		})
	}
}

func TestHelmLintFindsNothing(t *testing.T) {
	for _, component := range []component{localPathProvisioner(), cloudController()} {
		t.Run(component.chart, func(t *testing.T) {
			g := NewWithT(t)
			version, err := chartutil.ParseKubeVersion("v1.36.0")
			g.Expect(err).NotTo(HaveOccurred())
			for _, message := range lint.AllWithKubeVersion(component.chart, component.values, component.release.Namespace, version).Messages {
				g.Expect(message.Severity).To(BeNumerically("<", support.WarningSev), message.Error())
			}
		})
	}
}

func TestAChartRefusesValuesThatMakeNoSense(t *testing.T) {
	for name, component := range map[string]component{
		"local-path-provisioner without an image":                  localPathProvisioner().with("image", ""),
		"volumes in the root folder":                               localPathProvisioner().with("path", "/"),
		"volumes right below the root folder":                      localPathProvisioner().with("path", "/volumes"),
		"volumes in a relative folder":                             localPathProvisioner().with("path", "var/volumes"),
		"volumes in a folder with dots":                            localPathProvisioner().with("path", "/var/../etc"),
		"a value that local-path-provisioner does not know":        localPathProvisioner().with("paht", "/var/lib/volumes"),
		"cloud-controller without an image":                        cloudController().with("image", ""),
		"two cloud-controllers, of which none is the leader":       cloudController().with("replicas", 2),
		"cloud-controller without a certificate":                   cloudController().with("serverSecret", ""),
		"cloud-controller without a way to the shoot's API server": cloudController().with("shootAccess", map[string]any{}),
		"a cluster of machines without a kubeconfig":               cloudController().with("machineCluster", map[string]any{"remote": true, "namespace": "infra-foo"}),
		"a cluster of machines without a namespace":                cloudController().with("machineCluster", map[string]any{"remote": true, "secretName": "cloudprovider"}),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := component.render(t)
			var refused *chart.ValuesError
			g.Expect(errors.As(err, &refused)).To(BeTrue(), "%v", err)
		})
	}
}

func TestThePodThatMakesFoldersHasTheRightsForThatAndNoMore(t *testing.T) {
	g := NewWithT(t)
	config := find[corev1.ConfigMap](t, localPathProvisioner().mustRender(t), "ConfigMap", "local-path-provisioner")

	pod := &corev1.Pod{}
	g.Expect(yaml.UnmarshalStrict([]byte(config.Data["helperPod.yaml"]), pod)).To(Succeed())
	g.Expect(pod.Spec.AutomountServiceAccountToken).To(HaveValue(BeFalse()))
	g.Expect(pod.Spec.Containers).To(HaveLen(1))
	container := pod.Spec.Containers[0]
	g.Expect(container.Image).To(HaveSuffix(digest), "the program sets everything but the image")
	g.Expect(container.Env).To(ConsistOf(corev1.EnvVar{Name: "VOLUMES_ROOT", Value: "/var/lib/local-path-provisioner"}))
	g.Expect(container.SecurityContext.Privileged).To(BeNil())
	g.Expect(container.SecurityContext.AllowPrivilegeEscalation).To(HaveValue(BeFalse()))
	g.Expect(container.SecurityContext.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
	g.Expect(*container.SecurityContext.Capabilities).To(Equal(corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: []corev1.Capability{"DAC_OVERRIDE", "FOWNER"}}))

	settings := struct {
		NodePathMap []struct {
			Node  string   `json:"node"`
			Paths []string `json:"paths"`
		} `json:"nodePathMap"`
		SetupCommand    string `json:"setupCommand"`
		TeardownCommand string `json:"teardownCommand"`
	}{}
	decoder := json.NewDecoder(bytes.NewBufferString(config.Data["config.json"]))
	decoder.DisallowUnknownFields()
	g.Expect(decoder.Decode(&settings)).To(Succeed())
	g.Expect(settings.NodePathMap).To(HaveLen(1))
	g.Expect(settings.NodePathMap[0].Node).To(Equal("DEFAULT_PATH_FOR_NON_LISTED_NODES"))
	g.Expect(settings.NodePathMap[0].Paths).To(ConsistOf(container.Env[0].Value))
	g.Expect([]string{settings.SetupCommand, settings.TeardownCommand}).To(HaveEach("/local-path-helper"))
}

func TestWhatIsInAConfigMapRestartsThePod(t *testing.T) {
	annotations := func(component component, name string) map[string]string {
		return find[appsv1.Deployment](t, component.mustRender(t), "Deployment", name).Spec.Template.Annotations
	}
	for name, test := range map[string]struct {
		before, after component
	}{
		"local-path-provisioner": {localPathProvisioner(), localPathProvisioner().with("path", "/var/lib/volumes")},
		"cloud-controller":       {cloudController(), cloudController().with("port", 12345)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(annotations(test.after, name)).NotTo(Equal(annotations(test.before, name)))
			g.Expect(annotations(test.before, name)).To(Equal(annotations(test.before, name)))
		})
	}
}

func TestPodsRunAsNobodyAndWithoutRights(t *testing.T) {
	for _, component := range []component{localPathProvisioner(), cloudController()} {
		t.Run(component.chart, func(t *testing.T) {
			g := NewWithT(t)
			pod := find[appsv1.Deployment](t, component.mustRender(t), "Deployment", component.chart).Spec.Template.Spec
			g.Expect(pod.SecurityContext.RunAsNonRoot).To(HaveValue(BeTrue()))
			g.Expect(pod.SecurityContext.SeccompProfile.Type).To(Equal(corev1.SeccompProfileTypeRuntimeDefault))
			for _, container := range pod.Containers {
				g.Expect(container.SecurityContext.AllowPrivilegeEscalation).To(HaveValue(BeFalse()))
				g.Expect(container.SecurityContext.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()))
				g.Expect(container.SecurityContext.Capabilities.Drop).To(ConsistOf(corev1.Capability("ALL")))
			}
			for _, volume := range pod.Volumes {
				g.Expect(volume.HostPath).To(BeNil())
			}
		})
	}
}

func TestNoPermissionIsWide(t *testing.T) {
	for _, component := range []component{localPathProvisioner(), cloudController()} {
		t.Run(component.chart, func(t *testing.T) {
			g := NewWithT(t)
			var roles int
			for _, object := range component.mustRender(t) {
				kind := object.GetObjectKind().GroupVersionKind().Kind
				if kind != "ClusterRole" && kind != "Role" {
					continue
				}
				roles++
				role := &rbacv1.Role{}
				g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(object.(*unstructured.Unstructured).Object, role)).To(Succeed())
				for _, rule := range role.Rules {
					all := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs)
					g.Expect(all).NotTo(ContainElement("*"))
					g.Expect(rule.Resources).NotTo(ContainElement("secrets"))
					g.Expect(all).NotTo(ContainElement(BeElementOf("escalate", "bind", "impersonate", "deletecollection")))
				}
				if kind == "ClusterRole" {
					g.Expect(role.Rules).NotTo(ContainElement(HaveField("Resources", ContainElement("pods"))), "a pod of another namespace could be anything")
				}
			}
			g.Expect(roles).To(Equal(2))
		})
	}
}

func TestCloudControllerForMachinesInAnotherClusterHasNoRightsInTheSeed(t *testing.T) {
	g := NewWithT(t)
	objects := cloudController().with("machineCluster", map[string]any{"remote": true, "secretName": "cloudprovider", "namespace": "infra-foo"}).mustRender(t)
	for _, object := range objects {
		g.Expect(object.GetObjectKind().GroupVersionKind().Kind).NotTo(BeElementOf("Role", "RoleBinding"))
	}
	config := find[corev1.ConfigMap](t, objects, "ConfigMap", "cloud-controller").Data["config.yaml"]
	g.Expect(config).To(ContainSubstring("seed:\n  kubeconfig: /etc/cloud-controller/machine-cluster/kubeconfig\n  namespace: infra-foo\n"))

	pod := find[appsv1.Deployment](t, objects, "Deployment", "cloud-controller").Spec.Template
	g.Expect(pod.Labels).To(HaveKeyWithValue("networking.gardener.cloud/to-public-networks", "allowed"))
	g.Expect(pod.Labels).NotTo(HaveKey("networking.gardener.cloud/to-runtime-apiserver"))
	g.Expect(pod.Spec.AutomountServiceAccountToken).To(HaveValue(BeFalse()), "the kubeconfig is a user's, so the seed's token is not to lie beside it")
	g.Expect(pod.Spec.Volumes).To(ContainElement(HaveField("Secret", And(Not(BeNil()), HaveField("SecretName", "cloudprovider"),
		HaveField("Items", ConsistOf(corev1.KeyToPath{Key: "kubeconfig", Path: "kubeconfig"}))))))
	g.Expect(pod.Spec.Containers[0].VolumeMounts).To(ContainElement(corev1.VolumeMount{Name: "machine-cluster", MountPath: "/etc/cloud-controller/machine-cluster", ReadOnly: true}))
}

func TestWhatTheProgramIsToldIsAConfigurationForIt(t *testing.T) {
	for name, component := range map[string]component{
		"machines in the seed": cloudController().with("machineCluster", map[string]any{"oneNode": true}),
		"machines elsewhere": cloudController().with("machineCluster", map[string]any{
			"remote": true, "nodePorts": true, "secretName": "cloudprovider", "namespace": "infra-foo", "allowedCIDRs": []any{"192.0.2.0/24", "2001:db8::/32"},
		}),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			path := filepath.Join(t.TempDir(), "config.yaml")
			data := find[corev1.ConfigMap](t, component.mustRender(t), "ConfigMap", "cloud-controller").Data["config.yaml"]
			g.Expect(os.WriteFile(path, []byte(data), 0o600)).To(Succeed())
			config := &configv1alpha1.CloudControllerConfiguration{}
			g.Expect(configv1alpha1.Load(path, config)).To(Succeed())
			g.Expect(config.Seed.OneNode).To(Equal(name == "machines in the seed"))
			g.Expect(config.Seed.NodePorts).To(Equal(name == "machines elsewhere"))
			if name == "machines elsewhere" {
				g.Expect(config.Seed.AllowedCIDRs).To(HaveExactElements("192.0.2.0/24", "2001:db8::/32"))
			}
		})
	}
}

func TestCloudControllerHasNothingInTheSeedOutsideOfTheShootsNamespace(t *testing.T) {
	g := NewWithT(t)
	var inShoot []string
	for _, object := range cloudController().mustRender(t) {
		if object.GetNamespace() != shootNamespace {
			inShoot = append(inShoot, object.GetObjectKind().GroupVersionKind().Kind)
		}
	}
	g.Expect(inShoot).To(ConsistOf("ClusterRole", "ClusterRoleBinding"))
}
