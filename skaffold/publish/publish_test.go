// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	imagename "github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/image"
	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/oci"
)

// newRegistry returns the host:port of a registry that speaks plain HTTP.
func newRegistry(t *testing.T) string {
	t.Helper()
	t.Setenv("DOCKER_CONFIG", t.TempDir())
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// run executes the command and returns its lines on standard output.
func run(t *testing.T, args ...string) ([]string, error) {
	t.Helper()
	var out bytes.Buffer
	cmd := newCommand()
	cmd.SetArgs(args)
	cmd.SetOut(&out)
	cmd.SetErr(io.Discard)
	err := cmd.ExecuteContext(t.Context())
	return strings.Fields(out.String()), err
}

// someProgram returns a file.
func someProgram(t *testing.T) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "program")
	NewWithT(t).Expect(os.WriteFile(file, []byte("program"), 0o600)).To(Succeed())
	return file
}

func TestChartsPushesTheChartAndWritesTheExtensionThatInstallsIt(t *testing.T) {
	g := NewWithT(t)
	host, output, binary := newRegistry(t), t.TempDir(), someProgram(t)
	charts := []string{"charts", "--registry", host + "/local", "--tag", "v1", "--output", output}

	_, err := run(t, charts...)
	g.Expect(err).To(MatchError(ContainSubstring("make images REGISTRY=" + host + "/local")))
	g.Expect(filepath.Join(output, "extension.yaml")).NotTo(BeAnExistingFile())

	images := []string{"operator-extension", "gardenlet-extension", "coredns", "local-path-provisioner"}
	var expected []any
	for _, folder := range extensionCharts() {
		expected = append(expected, MatchRegexp("^"+host+"/local/"+folder+"@sha256:[0-9a-f]{64}$"))
	}
	for _, name := range images {
		img, err := image.Build(image.Spec{Files: []image.File{{Source: binary, Destination: "/" + name}}})
		g.Expect(err).NotTo(HaveOccurred())
		pinned, err := image.Push(t.Context(), host+"/local/"+name+":v1", img, oci.Options{})
		g.Expect(err).NotTo(HaveOccurred())
		expected = append(expected, pinned)
	}

	first, err := run(t, charts...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(first).To(HaveExactElements(expected...))
	second, err := run(t, charts...)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(second).To(Equal(first))

	content, err := os.ReadFile(filepath.Join(output, "extension.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	extension := &operatorv1alpha1.Extension{}
	g.Expect(yaml.UnmarshalStrict(content, extension)).To(Succeed())
	deployment := extension.Spec.Deployment.ExtensionDeployment
	g.Expect(deployment.Helm.OCIRepository.GetURL()).To(Equal(first[0]))
	admission := extension.Spec.Deployment.AdmissionDeployment
	g.Expect(admission.RuntimeCluster.Helm.OCIRepository.GetURL()).To(Equal(first[1]))
	g.Expect(admission.VirtualCluster.Helm.OCIRepository.GetURL()).To(Equal(first[2]))
	pushed := first[len(extensionCharts()):]
	g.Expect(admission.Values.Raw).To(MatchJSON(`{"image":"` + pushed[0] + `"}`))
	g.Expect(deployment.RuntimeClusterValues.Raw).To(MatchJSON(`{"image":"` + pushed[0] + `","dns":{"coreDNS":{"image":"` + pushed[2] + `"}}}`))
	g.Expect(deployment.Values.Raw).To(MatchJSON(`{"image":"` + pushed[1] + `","dns":{"coreDNS":{"image":"` + pushed[2] + `"},` + reservedDomains + `},
		"controlPlane":{"localPathProvisioner":{"image":"` + pushed[3] + `"},"cloudController":{"image":"` + pushed[1] + `"}},
		"machines":{"controllerImage":"` + pushed[1] + `"}}`))
	for _, name := range []string{"provider-local", "admission-local-runtime", "admission-local-application"} {
		g.Expect(filepath.Join(output, name+"-0.1.0.tgz")).To(BeARegularFile())
	}
}

func TestChartsNamesTheRegistryAsTheClusterDoes(t *testing.T) {
	g := NewWithT(t)
	host := newRegistry(t)
	digest := "@sha256:" + strings.Repeat("a", 64)
	out, err := run(t, "charts", "--registry", host, "--pull-registry", "registry.local.gardener.cloud:5001", "--tag", "v1", "--output", t.TempDir(),
		"--image", "operator-extension="+host+"/some/x"+digest, "--image", "coredns=example.com/some/y:v2"+digest,
		"--image", "gardenlet-extension="+host+"/some/z"+digest, "--image", "local-path-provisioner="+host+"/some/z"+digest)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(HaveExactElements(
		HavePrefix("registry.local.gardener.cloud:5001/charts/provider-local@sha256:"),
		HavePrefix("registry.local.gardener.cloud:5001/charts/admission-local/runtime@sha256:"),
		HavePrefix("registry.local.gardener.cloud:5001/charts/admission-local/application@sha256:"),
		"registry.local.gardener.cloud:5001/some/x"+digest,
		"registry.local.gardener.cloud:5001/some/z"+digest,
		"example.com/some/y"+digest,
		"registry.local.gardener.cloud:5001/some/z"+digest,
	))
}

func TestArgumentsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"charts without a registry":       {[]string{"charts"}, "registry"},
		"an image that the chart lacks":   {[]string{"charts", "--registry", "localhost:1", "--image", "etcd=a/b:c"}, "no such image"},
		"an image without a reference":    {[]string{"charts", "--registry", "localhost:1", "--image", "coredns"}, "KEY=VALUE"},
		"an image given twice":            {[]string{"charts", "--registry", "localhost:1", "--image", "coredns=a/b:c", "--image", "coredns=a/b:c"}, "twice"},
		"a layout for no registry":        {[]string{"image", "--layout", "bin/layout"}, "--layout needs --registry"},
		"a layout that is missing":        {[]string{"push", "--layout", "/nonexistent"}, "/nonexistent"},
		"skaffold-build of something":     {[]string{"skaffold-build", "--name", "something"}, "IMAGE is not set"},
		"an argument that nobody expects": {[]string{"charts", "--registry", "localhost:1", "surplus"}, "surplus"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := run(t, tc.args...)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(tc.says)))
		})
	}
}

func TestAnImageCanBeWrittenToAFile(t *testing.T) {
	g := NewWithT(t)
	file := filepath.Join(t.TempDir(), "image.tar")
	built, err := image.Build(image.Spec{
		Files: []image.File{{Source: someProgram(t), Destination: "/program"}}, Entrypoint: []string{"/program"}, Labels: map[string]string{"a": "b"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(writeTar(file, "localhost:1/some:y", built)).To(Succeed())

	img, err := tarball.ImageFromPath(file, nil)
	g.Expect(err).NotTo(HaveOccurred())
	config, err := img.ConfigFile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Config.Entrypoint).To(HaveExactElements("/program"))
	g.Expect(config.Config.Labels).To(HaveKeyWithValue("a", "b"))
}

// Building takes minutes, so the programs are stood in for: only how their images are pushed is looked at.
func TestImagesOfAllArchitecturesArePushedAsOneIndex(t *testing.T) {
	g := NewWithT(t)
	host, binary := newRegistry(t), someProgram(t)
	var images []v1.Image
	for _, architecture := range architectures() {
		img, err := image.Build(image.Spec{Files: []image.File{{Source: binary, Destination: "/x"}}, Architecture: architecture})
		g.Expect(err).NotTo(HaveOccurred())
		images = append(images, img)
	}
	deliver := func(opts imageOptions, to string) string {
		var out bytes.Buffer
		cmd := newCommand()
		cmd.SetOut(&out)
		cmd.SetErr(io.Discard)
		cmd.SetContext(t.Context())
		opts.registry = to
		g.Expect(opts.deliverIndex(cmd, path.Join(to, "x")+":v1", images)).To(Succeed())
		return strings.TrimSpace(out.String())
	}
	digest := strings.TrimPrefix(deliver(imageOptions{}, ""), "x@")

	t.Run("to a registry", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(deliver(imageOptions{}, host+"/now")).To(Equal(host + "/now/x@" + digest))
		expectPlatforms(t, host+"/now/x:v1")
	})

	t.Run("to a layout first, with charts that name the index, and to the registry later", func(t *testing.T) {
		g := NewWithT(t)
		layout, later, output := t.TempDir(), host+"/later", t.TempDir()
		pinned := deliver(imageOptions{registryFlags: registryFlags{layout: layout}}, later)
		g.Expect(pinned).To(Equal(later + "/x@" + digest))
		_, err := run(t, "push", "--layout", t.TempDir())
		g.Expect(err).To(HaveOccurred(), "an empty folder")

		args := []string{"charts", "--registry", later, "--tag", "v1", "--output", output, "--layout", layout}
		for _, name := range artifactNames() {
			args = append(args, "--image", name+"="+later+"/x:v1")
		}
		written, err := run(t, args...)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(written[len(extensionCharts()):]).To(HaveEach(pinned))
		extension, err := os.ReadFile(filepath.Join(output, "extension.yaml"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(extension)).To(ContainSubstring(pinned))
		_, err = remote.Index(reference(t, later+"/x:v1"))
		g.Expect(err).To(HaveOccurred(), "nothing is pushed yet")

		pushed, err := run(t, "push", "--layout", layout)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pushed).To(ConsistOf(append([]any{pinned}, toAny(written[:len(extensionCharts())])...)...))
		expectPlatforms(t, later+"/x:v1")
		for _, ref := range written {
			_, err := remote.Get(reference(t, ref))
			g.Expect(err).NotTo(HaveOccurred(), ref)
		}
		again, err := run(t, "push", "--layout", layout)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(again).To(Equal(pushed))
	})
}

func toAny(texts []string) (out []any) {
	for _, text := range texts {
		out = append(out, text)
	}
	return out
}

func reference(t *testing.T, ref string) imagename.Reference {
	t.Helper()
	parsed, err := imagename.ParseReference(ref)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return parsed
}

// expectPlatforms expects an index with a valid image for each architecture.
func expectPlatforms(t *testing.T, ref string) {
	t.Helper()
	g := NewWithT(t)
	index, err := remote.Index(reference(t, ref))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(validate.Index(index)).To(Succeed())
	manifest, err := index.IndexManifest()
	g.Expect(err).NotTo(HaveOccurred())
	var platforms []string
	for _, descriptor := range manifest.Manifests {
		platforms = append(platforms, descriptor.Platform.String())
	}
	g.Expect(platforms).To(HaveExactElements("linux/amd64", "linux/arm64"))
}

func TestSkaffoldGetsTheChartUnderTheReferenceItAsksFor(t *testing.T) {
	g := NewWithT(t)
	ref := newRegistry(t) + "/local-skaffold/charts/provider-local:input-digest"
	t.Setenv("IMAGE", ref)

	t.Setenv("PUSH_IMAGE", "false")
	_, err := run(t, "skaffold-build", "--name", chartFolder)
	g.Expect(err).To(MatchError(ContainSubstring("PUSH_IMAGE")))

	t.Setenv("PUSH_IMAGE", "true")
	out, err := run(t, "skaffold-build", "--name", chartFolder)
	g.Expect(err).NotTo(HaveOccurred())

	parsed, err := imagename.ParseReference(ref)
	g.Expect(err).NotTo(HaveOccurred())
	// This is how Skaffold learns the digest.
	img, err := remote.Image(parsed)
	g.Expect(err).NotTo(HaveOccurred())
	digest, err := img.Digest()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(HaveExactElements(HaveSuffix("@" + digest.String())))

	_, err = run(t, "skaffold-build", "--name", "something")
	g.Expect(err).To(MatchError(ContainSubstring("expected operator-extension, gardenlet-extension, coredns, local-path-provisioner or charts/provider-local, charts/admission-local/runtime, charts/admission-local/application, charts/gardenlet")))
}

func TestSkaffoldGetsChartsOfGoModules(t *testing.T) {
	host := newRegistry(t)
	t.Setenv("PUSH_IMAGE", "true")
	for name, title := range map[string]string{
		"charts/gardenlet":         "gardenlet",
		"charts/networking-calico": "gardener-extension-networking-calico",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("IMAGE", host+"/local-skaffold/"+name+":input-digest")
			out, err := run(t, "skaffold-build", "--name", name)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(HaveExactElements(HavePrefix(host + "/local-skaffold/" + name + "@sha256:")))

			ref, err := imagename.ParseReference(out[0])
			g.Expect(err).NotTo(HaveOccurred())
			img, err := remote.Image(ref)
			g.Expect(err).NotTo(HaveOccurred())
			manifest, err := img.Manifest()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(manifest.Annotations).To(HaveKeyWithValue("org.opencontainers.image.title", title))
			g.Expect(manifest.Layers).To(HaveLen(1))
			g.Expect(string(manifest.Layers[0].MediaType)).To(Equal("application/vnd.cncf.helm.chart.content.v1.tar+gzip"))
		})
	}
}

func TestAChartOfAnUnknownModuleIsNotFound(t *testing.T) {
	g := NewWithT(t)
	root, err := findRoot()
	g.Expect(err).NotTo(HaveOccurred())
	unpinned := chartArtifact{name: "charts/x", module: ".", upstream: "example.com/unpinned", folder: "x"}
	_, err = unpinned.find(t.Context(), root)
	g.Expect(err).To(MatchError(ContainSubstring("finding example.com/unpinned, which has the chart charts/x")))
}

func TestOnePlatformIsBuiltAtATime(t *testing.T) {
	g := NewWithT(t)
	g.Expect(architectureOf("linux/arm64")).To(Equal("arm64"))
	g.Expect(architectureOf("")).NotTo(BeEmpty())
	for _, platforms := range []string{"linux/amd64,linux/arm64", "windows/amd64", "linux", "linux/"} {
		_, err := architectureOf(platforms)
		g.Expect(err).To(HaveOccurred(), platforms)
	}
}

func TestVersionsAreSemanticAndTagsAreTags(t *testing.T) {
	g := NewWithT(t)
	for description, expected := range map[string]string{
		"":                        "v0.0.0-dev",
		"f98ed1d":                 "v0.0.0-dev+f98ed1d",
		"f98ed1d-dirty":           "v0.0.0-dev+f98ed1d-dirty",
		"v1.2.3":                  "v1.2.3",
		"v1.2.3-4-gf98ed1d-dirty": "v1.2.3-4-gf98ed1d-dirty",
		"feature/x_y":             "v0.0.0-dev+feature-x-y",
		"v1.2.3-rc/1":             "v0.0.0-dev+v1.2.3-rc-1",
	} {
		g.Expect(versionOf(description)).To(Equal(expected))
	}
	g.Expect(tagOf("v0.0.0-dev+f98ed1d")).To(Equal("v0.0.0-dev_f98ed1d"))
	g.Expect(tagOf("-.x")).To(Equal("x"))
	g.Expect(tagOf(strings.Repeat("x", 200))).To(HaveLen(128))
}

// actions/checkout makes an annotated tag a lightweight one, which "git describe" alone passes over.
func TestAVersionIsReadFromALightweightTagToo(t *testing.T) {
	for name, tag := range map[string][]string{
		"an annotated tag":  {"tag", "--annotate", "--message", "v1.2.3", "v1.2.3"},
		"a lightweight tag": {"tag", "v1.2.3"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			root := t.TempDir()
			for _, args := range [][]string{{"init", "--quiet"}, {"commit", "--quiet", "--allow-empty", "--message", "x"}, tag} {
				git := exec.CommandContext(t.Context(), "git", append([]string{"-C", root, "-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...) // #nosec G204 -- a test's own
				out, err := git.CombinedOutput()
				g.Expect(err).NotTo(HaveOccurred(), string(out))
			}
			g.Expect(versionOf(gitDescription(t.Context(), root))).To(Equal("v1.2.3"))
		})
	}
}

func TestTheRepositoryIsFoundFromBelowAndNotFromElsewhere(t *testing.T) {
	g := NewWithT(t)
	root, err := findRoot()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(filepath.Join(root, "charts", "provider-local", "Chart.yaml")).To(BeARegularFile())

	t.Chdir(t.TempDir())
	_, err = findRoot()
	g.Expect(err).To(MatchError(ContainSubstring("run this inside of it")))
	g.Expect(gitDescription(t.Context(), ".")).To(BeEmpty())
}
