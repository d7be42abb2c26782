// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
)

var update = flag.Bool("update", false, "write the examples anew, but for their headers")

const root = "../.."

// manifest is the Extension as the example has it.
func manifest(g Gomega) []byte {
	contents, err := examples(root)
	g.Expect(err).NotTo(HaveOccurred())
	return contents[extensionExample]
}

func TestTheExamplesAreWhatThisProgramWrites(t *testing.T) {
	g := NewWithT(t)
	contents, err := examples(root)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(contents).To(HaveLen(2))
	for name, content := range contents {
		if *update {
			g.Expect(os.WriteFile(filepath.Join(root, name), content, 0o600)).To(Succeed())
		}
		current, err := os.ReadFile(filepath.Join(root, name)) // #nosec G304 -- an example
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(current)).To(Equal(string(content)), "run 'make generate'")
		g.Expect(string(current)).To(HavePrefix("# SPDX-FileCopyrightText: "))
	}
}

func TestTheChartTakesTheValuesThatTheExtensionHands(t *testing.T) {
	extension := &operatorv1alpha1.Extension{}
	g := NewWithT(t)
	g.Expect(yaml.UnmarshalStrict(manifest(g), extension)).To(Succeed())
	chart, err := loader.LoadDir(filepath.Join(root, chartFolder))
	g.Expect(err).NotTo(HaveOccurred())

	deployment := extension.Spec.Deployment.ExtensionDeployment
	for name, raw := range map[string][]byte{"in the garden runtime cluster": deployment.RuntimeClusterValues.Raw, "in a seed": deployment.Values.Raw} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			values, err := chartutil.ReadValues(raw)
			g.Expect(err).NotTo(HaveOccurred())
			_, err = chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{}, nil)
			g.Expect(err).NotTo(HaveOccurred())

			values["imgae"] = "misspelt"
			_, err = chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{}, nil)
			g.Expect(err).To(HaveOccurred(), "the schema can refuse something")
		})
	}
}

func TestAnExtensionWithoutAnImageIsNotWritten(t *testing.T) {
	for _, missing := range artifactNames() {
		t.Run(missing, func(t *testing.T) {
			images := map[string]string{}
			for _, name := range artifactNames() {
				images[name] = "example.com/" + name
			}
			delete(images, missing)
			_, err := extensionManifest(root, charts(), images)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("images." + missing + " is not set")))
		})
	}
}

// charts are references to all charts that an Extension names.
func charts() map[string]string {
	refs := map[string]string{}
	for _, folder := range extensionCharts() {
		refs[folder] = "example.com/" + folder
	}
	return refs
}

func TestAnExtensionWithoutAChartIsNotWritten(t *testing.T) {
	images := map[string]string{}
	for _, name := range artifactNames() {
		images[name] = "example.com/" + name
	}
	for missing, value := range map[string]string{
		chartFolder: "chart", admissionRuntimeFolder: "admission.charts.runtime", admissionApplicationFolder: "admission.charts.application",
	} {
		t.Run(missing, func(t *testing.T) {
			refs := charts()
			delete(refs, missing)
			_, err := extensionManifest(root, refs, images)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(value + " is not set")))
		})
	}
}

func TestTheAdmissionChartsTakeTheValuesThatTheExtensionHands(t *testing.T) {
	g := NewWithT(t)
	extension := &operatorv1alpha1.Extension{}
	g.Expect(yaml.UnmarshalStrict(manifest(g), extension)).To(Succeed())
	admission := extension.Spec.Deployment.AdmissionDeployment
	g.Expect(admission.RuntimeCluster.Helm.OCIRepository.GetURL()).To(HavePrefix(exampleRegistry + admissionRuntimeFolder + "@"))
	g.Expect(admission.VirtualCluster.Helm.OCIRepository.GetURL()).To(HavePrefix(exampleRegistry + admissionApplicationFolder + "@"))
	for _, folder := range []string{admissionRuntimeFolder, admissionApplicationFolder} {
		chart, err := loader.LoadDir(filepath.Join(root, folder))
		g.Expect(err).NotTo(HaveOccurred())
		values, err := chartutil.ReadValues(admission.Values.Raw)
		g.Expect(err).NotTo(HaveOccurred())
		_, err = chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{}, nil)
		g.Expect(err).NotTo(HaveOccurred())
	}
}

func TestTheAdmissionCanBeLeftOut(t *testing.T) {
	g := NewWithT(t)
	images := map[string]any{}
	for _, name := range artifactNames() {
		images[name] = "example.com/" + name
	}
	content, err := renderExtension(root, map[string]any{"chart": "example.com/chart", "images": images, "admission": map[string]any{"deploy": false}})
	g.Expect(err).NotTo(HaveOccurred())
	extension := &operatorv1alpha1.Extension{}
	g.Expect(yaml.UnmarshalStrict(content, extension)).To(Succeed())
	g.Expect(extension.Spec.Deployment.AdmissionDeployment).To(BeNil())
}

// reservedDomains are the names of the garden and the seeds.
const reservedDomains = `"reservedDomains":["virtual-garden.local.gardener.cloud","runtime-garden.local.gardener.cloud",
	"dashboard.local.gardener.cloud","discovery.local.gardener.cloud","seed.local.gardener.cloud"]`

func TestFurtherValuesReachTheGardenRuntimeClusterAndTheSeeds(t *testing.T) {
	g := NewWithT(t)
	images := map[string]any{}
	for _, name := range artifactNames() {
		images[name] = "example.com/" + name
	}
	content, err := renderExtension(root, map[string]any{"chart": "example.com/chart", "images": images, "admission": map[string]any{"deploy": false}, "values": map[string]any{
		"backup": map[string]any{"hostPath": "/buckets"},
		"dns":    map[string]any{"coreDNS": map[string]any{"clusterIP": "10.0.0.53"}},
	}})
	g.Expect(err).NotTo(HaveOccurred())
	extension := &operatorv1alpha1.Extension{}
	g.Expect(yaml.UnmarshalStrict(content, extension)).To(Succeed())

	const (
		backup  = `"backup":{"hostPath":"/buckets"}`
		coreDNS = `"coreDNS":{"clusterIP":"10.0.0.53","image":"example.com/coredns"}`
	)
	deployment := extension.Spec.Deployment.ExtensionDeployment
	g.Expect(deployment.RuntimeClusterValues.Raw).To(MatchJSON(`{"image":"example.com/operator-extension",` + backup + `,"dns":{` + coreDNS + `}}`))
	g.Expect(deployment.Values.Raw).To(MatchJSON(`{"image":"example.com/gardenlet-extension",` + backup + `,"dns":{` + coreDNS + `,` + reservedDomains + `},
		"controlPlane":{"localPathProvisioner":{"image":"example.com/local-path-provisioner"},"cloudController":{"image":"example.com/gardenlet-extension"}},
		"machines":{"controllerImage":"example.com/gardenlet-extension"}}`))
}

func TestSkaffoldBuildsAndHandsOnEveryImage(t *testing.T) {
	g := NewWithT(t)
	config := readSkaffoldConfig(g, "extension")
	handed := config.Deploy.Helm.Releases[0].SetValueTemplates

	var built, handedCharts []string
	for _, artifact := range config.Build.Artifacts {
		name, isOurs := strings.CutPrefix(artifact.Custom.BuildCommand, "CGO_ENABLED=0 go run -trimpath ./skaffold/publish skaffold-build --name ")
		g.Expect(isOurs).To(BeTrue(), artifact.Image)
		template := "{{.IMAGE_FULLY_QUALIFIED_" + strings.NewReplacer("-", "_", "/", "_").Replace(artifact.Image) + "}}"
		if value, ok := map[string]string{
			chartFolder: "chart", admissionRuntimeFolder: "admission.charts.runtime", admissionApplicationFolder: "admission.charts.application",
		}[name]; ok {
			g.Expect(handed).To(HaveKeyWithValue(value, template))
			handedCharts = append(handedCharts, name)
			continue
		}
		g.Expect(handed).To(HaveKeyWithValue("images."+name, template))
		built = append(built, name)

		image, err := artifactNamed(name)
		g.Expect(err).NotTo(HaveOccurred())
		command := "skaffold/dependencies"
		if image.module != "." {
			command += " -C " + image.module
		}
		for _, program := range image.programs {
			command += " " + program.pkg
		}
		g.Expect(artifact.Custom.Dependencies.Command).To(Equal(command))
	}
	g.Expect(built).To(HaveExactElements(artifactNames()))
	g.Expect(handedCharts).To(HaveExactElements(extensionCharts()))
}

// skaffoldConfig is what the tests look at in a configuration of skaffold.yaml.
type skaffoldConfig struct {
	Metadata struct {
		Name string `json:"name"`
	} `json:"metadata"`
	Build struct {
		Artifacts []struct {
			Image  string `json:"image"`
			Custom struct {
				BuildCommand string `json:"buildCommand"`
				Dependencies struct {
					Command string `json:"command"`
				} `json:"dependencies"`
			} `json:"custom"`
		} `json:"artifacts"`
	} `json:"build"`
	Deploy struct {
		Helm struct {
			Releases []struct {
				SetValueTemplates map[string]string `json:"setValueTemplates"`
			} `json:"releases"`
		} `json:"helm"`
	} `json:"deploy"`
}

func readSkaffoldConfig(g Gomega, name string) skaffoldConfig {
	content, err := os.ReadFile(root + "/skaffold/skaffold.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	for document := range strings.SplitSeq(string(content), "\n---\n") {
		config := skaffoldConfig{}
		g.Expect(yaml.Unmarshal([]byte(document), &config)).To(Succeed())
		if config.Metadata.Name == name {
			return config
		}
	}
	g.Expect(name).To(BeEmpty(), "no such configuration in skaffold.yaml")
	return skaffoldConfig{}
}
