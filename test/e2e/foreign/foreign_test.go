// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package foreign_test adds extensions of others to a landscape that is up, as their developers do it: the small one of test/foreign, and
// registry-cache and runtime-gvisor from their Go modules. It changes the examples of make up meanwhile, and leaves the landscape
// as it found it, but for gVisor's files on the machine, which runtime-gvisor does not remove.
package foreign_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/image"
	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

const (
	patience     = 10 * time.Minute
	specPatience = SpecTimeout(30 * time.Minute)
	// kind is the type that the small extension serves.
	kind = "greeting"
	// registryCache and runtimeGVisor are the modules of Gardener's.
	registryCache, registryCacheVersion = "github.com/gardener/gardener-extension-registry-cache", "v0.21.0"
	runtimeGVisor, runtimeGVisorVersion = "github.com/gardener/gardener-extension-runtime-gvisor", "v0.33.0"
)

var (
	l *landscape.Landscape
	g *landscape.Garden
)

func TestForeign(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Extensions of others", Label("foreign"))
}

var _ = JustAfterEach(landscape.ExplainFailure)

var _ = BeforeSuite(func() {
	l, g = landscape.Connect(), landscape.ConnectGarden()
	if landscape.OnKind() {
		Skip("the extensions of others are for the bare landscape")
	}
})

// command runs the landscape's program in the root of the repository, and returns what it prints.
func command(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, landscape.State("..", "bin", "landscape", "landscape"), args...) // #nosec G204 -- the landscape's own program.
	cmd.Dir = filepath.Join("..", "..", "..")
	out, err := cmd.CombinedOutput()
	AddReportEntry("landscape "+strings.Join(args, " "), string(out), ReportEntryVisibilityFailureOrVerbose)
	return string(out), err
}

func succeeds(ctx context.Context, args ...string) string {
	GinkgoHelper()
	out, err := command(ctx, args...)
	Expect(err).NotTo(HaveOccurred(), out)
	return out
}

func addForeign(more ...string) []string {
	return append([]string{"extension", "add", "foreign", "--manifest", "test/foreign/extension.yaml", "--chart", "test/foreign/chart",
		"--admission-runtime", "test/foreign/admission/runtime", "--admission-application", "test/foreign/admission/application"}, more...)
}

const foreignImage = "--image=extensions/foreign=go:./test/foreign"

// extend has an object ask for extensions, or for none, in its spec.extensions.
func extend(ctx context.Context, c client.Client, object client.Object, extensions string) {
	GinkgoHelper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"extensions":%s}}`, extensions))
	Eventually(func() error { return c.Patch(ctx, object, patch) }).WithContext(ctx).
		Should(Succeed(), "on a busy machine the API server or a webhook may not answer in time")
}

// reconciled waits until an Extension of the Garden or a Seed has been.
func reconciled(ctx context.Context, namespace, name string) {
	GinkgoHelper()
	Eventually(landscape.Get(ctx, l.Client, landscape.Named[*extensionsv1alpha1.Extension](namespace, name))).WithTimeout(patience).
		Should(matchers.HaveSucceeded(), "the whole Garden or Seed is reconciled on the way, which takes minutes on a busy machine")
}

func exampleShoot(ctx context.Context, name string) *gardencorev1beta1.Shoot {
	GinkgoHelper()
	shoot := landscape.Named[*gardencorev1beta1.Shoot]("garden-local", name)
	Expect(g.Refresh(ctx, shoot)).To(Succeed())
	return shoot
}

var _ = Describe("A small extension", Ordered, Label("small"), func() {
	var (
		garden = landscape.Named[*operatorv1alpha1.Garden]("", "local")
		seed   = landscape.Named[*gardencorev1beta1.Seed]("", "local")
		shoot  *gardencorev1beta1.Shoot
		before string
		access *landscape.Cluster
	)

	BeforeAll(func(ctx SpecContext) {
		shoot = exampleShoot(ctx, "local-workerless")
		Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(garden), garden)).To(Succeed())
		var extensions []string
		for _, extension := range garden.Spec.Extensions {
			extensions = append(extensions, fmt.Sprintf(`{"type":%q}`, extension.Type))
		}
		before = "[" + strings.Join(extensions, ",") + "]"
		DeferCleanup(func(ctx SpecContext) {
			// Whatever failed: a used extension can't be removed.
			extend(ctx, g.Client, shoot, "null")
			extend(ctx, g.Client, seed, "null")
			extend(ctx, l.Client, garden, before)
			g.EventuallyHealthy(ctx, shoot, patience)
			succeeds(ctx, "extension", "remove", "foreign")
		}, NodeTimeout(patience))
	})

	It("is not added without its image, which is named", specPatience, func(ctx SpecContext) {
		out, err := command(ctx, addForeign()...)
		Expect(err).To(HaveOccurred())
		Expect(out).To(ContainSubstring("nobody gave the image example.com/extensions/foreign:v0.1.0: give --image extensions/foreign=SOURCE"))
	})

	It("runs once the image is given", specPatience, func(ctx SpecContext) {
		Expect(succeeds(ctx, addForeign(foreignImage)...)).To(ContainSubstring("its instances in seeds are healthy (1 instances)"))
	})

	It("refuses a wrong providerConfig of a Shoot", specPatience, func(ctx SpecContext) {
		wrong := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"extensions":[{"type":%q,"providerConfig":{"txt":"good morning"}}]}}`, kind))
		Eventually(func() error { return g.Client.Patch(ctx, shoot.DeepCopy(), wrong, client.DryRunAll) }).WithContext(ctx).
			Should(MatchError(ContainSubstring(`spec.extensions[0].providerConfig: Invalid value: "": json: unknown field "txt"`)), "it registers its webhook when it has started")
	})

	It("serves Garden, Seed and Shoot", specPatience, func(ctx SpecContext) {
		extend(ctx, l.Client, garden, strings.Replace(before, "[", `[{"type":"`+kind+`"},`, 1))
		extend(ctx, g.Client, seed, `[{"type":"`+kind+`"}]`)
		extend(ctx, g.Client, shoot, `[{"type":"`+kind+`","providerConfig":{"text":"good morning"}}]`)
		reconciled(ctx, "garden", "garden-"+kind)
		reconciled(ctx, "garden", kind)
		g.EventuallyHealthy(ctx, shoot, patience)
		var err error
		access, err = g.Access(ctx, shoot, "")
		Expect(err).NotTo(HaveOccurred())
		Eventually(landscape.Get(ctx, access.Client, landscape.Named[*corev1.ConfigMap]("kube-system", kind))).Should(HaveField("Data", HaveKeyWithValue("text", "good morning")))
	})

	It("mutates in the shoot", specPatience, func(ctx SpecContext) {
		Eventually(func() (map[string]string, error) {
			config := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e2e-foreign", Labels: map[string]string{kind: "please"}}}
			if err := access.Client.Create(ctx, config); err != nil {
				return nil, err
			}
			return config.Data, access.Client.Delete(ctx, config)
		}).WithContext(ctx).Should(HaveKeyWithValue(kind, "hello"), "the API server calls the webhook once it knows it")
	})

	It("keeps to its classes", specPatience, func(ctx SpecContext) {
		out := succeeds(ctx, "classcheck", "foreign")
		for _, line := range []string{`garden +garden +\d`, `seed +seed +\d`, `seed +shoot +\d`} {
			Expect(out).To(MatchRegexp(line))
		}
	})

	It("is found if it does not keep to its classes", Label("faulty"), specPatience, func(ctx SpecContext) {
		succeeds(ctx, addForeign(foreignImage, "--values", written("ignoreClasses: true\n"))...)
		faulty := landscape.Named[*extensionsv1alpha1.Extension]("garden", "garden-"+kind)
		Eventually(func() (string, error) {
			// The faulty instance may not have started yet, or the other one may have been quicker.
			if err := l.Client.Patch(ctx, faulty, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"gardener.cloud/operation":"reconcile"}}}`))); err != nil {
				return "", err
			}
			out, err := command(ctx, "classcheck", "foreign")
			if err == nil {
				return "", nil
			}
			return out, nil
		}).WithContext(ctx).WithPolling(5 * time.Second).Should(MatchRegexp(`(patch|update) extensions\S* garden/garden-greeting: 200 by system:serviceaccount:extension-foreign-\w+:foreign: it is of class garden, but the seed instance is for \[seed shoot\]`))
		succeeds(ctx, addForeign(foreignImage)...)
	})

	It("is removed, and nothing is left", specPatience, func(ctx SpecContext) {
		extend(ctx, g.Client, shoot, "null")
		extend(ctx, g.Client, seed, "null")
		extend(ctx, l.Client, garden, before)
		g.EventuallyHealthy(ctx, shoot, patience)
		Expect(access.Client.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: kind}, &corev1.ConfigMap{})).To(Satisfy(apierrors.IsNotFound))
		succeeds(ctx, "extension", "remove", "foreign")
		expectGone(ctx, "foreign")
		Expect(succeeds(ctx, "extension", "remove", "foreign")).To(ContainSubstring("there is no Extension foreign"))
	})
})

// expectGone wants no Extension and no namespace of one.
func expectGone(ctx context.Context, name string) {
	GinkgoHelper()
	landscape.EventuallyGone(ctx, l.Client, landscape.Named[*operatorv1alpha1.Extension]("", name))
	Eventually(func() ([]string, error) {
		namespaces := &corev1.NamespaceList{}
		if err := l.Client.List(ctx, namespaces); err != nil {
			return nil, err
		}
		var left []string
		for _, namespace := range namespaces.Items {
			if strings.Contains(namespace.Name, "extension-"+name) {
				left = append(left, namespace.Name)
			}
		}
		return left, nil
	}).WithContext(ctx).Should(BeEmpty())
}

// programsImage makes an image as a Dockerfile does: of programs, which it builds from packages of a module, and of files, on what the landscape
// has as a base. It returns the folder of an image layout.
func programsImage(ctx context.Context, module string, programs map[string]string, files ...image.File) string {
	GinkgoHelper()
	folder := GinkgoT().TempDir()
	download := exec.CommandContext(ctx, "go", "mod", "download", "-json", module)
	// The version is none of this module's.
	download.Dir, download.Env = folder, append(os.Environ(), "GOFLAGS=-mod=mod")
	out, err := download.Output()
	Expect(err).NotTo(HaveOccurred(), string(out))
	var found struct{ Dir string }
	Expect(json.Unmarshal(out, &found)).To(Succeed())
	for pkg, destination := range programs {
		program := filepath.Join(folder, filepath.Base(destination))
		build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-mod=readonly", "-ldflags", "-s -w", "-o", program, pkg)
		build.Dir, build.Env = found.Dir, append(os.Environ(), "CGO_ENABLED=0")
		out, err = build.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(out))
		files = append(files, image.File{Source: program, Destination: destination})
	}

	reference, err := name.ParseReference(l.Registry(ctx)+"/real/network-tools:latest", name.Insecure)
	Expect(err).NotTo(HaveOccurred())
	base, err := remote.Image(reference, remote.WithContext(ctx))
	Expect(err).NotTo(HaveOccurred())
	added, err := image.Build(image.Spec{Files: files})
	Expect(err).NotTo(HaveOccurred())
	layers, err := added.Layers()
	Expect(err).NotTo(HaveOccurred())
	whole, err := mutate.AppendLayers(base, layers...)
	Expect(err).NotTo(HaveOccurred())
	_, err = layout.Write(filepath.Join(folder, "layout"), mutate.AppendManifests(empty.Index, mutate.IndexAddendum{Add: whole}))
	Expect(err).NotTo(HaveOccurred())
	return filepath.Join(folder, "layout")
}

// written writes a file for the time of a test.
func written(content string) string {
	GinkgoHelper()
	file := filepath.Join(GinkgoT().TempDir(), "file")
	Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
	return file
}

var _ = Describe("registry-cache", Ordered, func() {
	inModule := func(path string) string { return "go:" + registryCache + "/" + path + "@" + registryCacheVersion }
	var shoot *gardencorev1beta1.Shoot

	BeforeAll(func(ctx SpecContext) {
		shoot = exampleShoot(ctx, "local")
		DeferCleanup(func(ctx SpecContext) {
			extend(ctx, g.Client, shoot, "null")
			g.EventuallyHealthy(ctx, shoot, patience)
			succeeds(ctx, "extension", "remove", "registry-cache")
			expectGone(ctx, "registry-cache")
		}, NodeTimeout(patience))
	})

	It("is added from its Go module, with the program that it deploys", specPatience, func(ctx SpecContext) {
		// The release names it by digest, which only the original has.
		values := written(`
imageVectorOverwrite:
  images:
  - name: registry
    sourceRepository: github.com/distribution/distribution
    repository: example.com/3rd/registry
    tag: 3.0.0
`)
		registry := programsImage(ctx, "github.com/distribution/distribution/v3@v3.0.0", map[string]string{"./cmd/registry": "/bin/registry"},
			image.File{Source: written("exec registry serve \"$@\"\n"), Destination: "/entrypoint.sh"})
		succeeds(ctx, "extension", "add", "registry-cache", "--manifest", inModule("example/extension.yaml"), "--values", values,
			"--chart", inModule("charts/gardener-extension-registry-cache"),
			"--admission-runtime", inModule("charts/admission/charts/runtime"), "--admission-application", inModule("charts/admission/charts/application"),
			"--image", "extensions/registry-cache="+inModule("cmd/gardener-extension-registry-cache"),
			"--image", "extensions/registry-cache-admission="+inModule("cmd/gardener-extension-registry-cache-admission"),
			"--image", "3rd/registry="+registry)
	})

	config := func(upstream string) *runtime.RawExtension {
		return &runtime.RawExtension{Raw: fmt.Appendf(nil,
			`{"apiVersion":"registry.extensions.gardener.cloud/v1alpha3","kind":"RegistryConfig","caches":[{"upstream":%q,"remoteURL":"http://%s","volume":{"size":"100Mi"}}]}`, upstream, upstream)}
	}

	It("has its admission refuse what is wrong", specPatience, func(ctx SpecContext) {
		Expect(g.Refresh(ctx, shoot)).To(Succeed())
		patch := client.MergeFrom(shoot.DeepCopy())
		wrong := shoot.DeepCopy()
		wrong.Spec.Extensions = []gardencorev1beta1.Extension{{Type: "registry-cache", ProviderConfig: config("not a host")}}
		Eventually(func() error { return g.Client.Patch(ctx, wrong.DeepCopy(), patch, client.DryRunAll) }).WithContext(ctx).
			Should(MatchError(ContainSubstring("caches[0].upstream")), "it registers its webhook when it has started")
	})

	It("runs a registry in the shoot", specPatience, func(ctx SpecContext) {
		g.Change(ctx, shoot, func() {
			shoot.Spec.Extensions = []gardencorev1beta1.Extension{{Type: "registry-cache", ProviderConfig: config(l.Registry(ctx))}}
		})
		g.EventuallyHealthy(ctx, shoot, patience)
		access, err := g.Access(ctx, shoot, "")
		Expect(err).NotTo(HaveOccurred())
		pods := &corev1.PodList{}
		Expect(access.Client.List(ctx, pods, client.InNamespace("kube-system"), client.MatchingLabels{"app.kubernetes.io/name": "registry-cache"})).To(Succeed())
		Expect(pods.Items).To(HaveLen(1))
		logs, err := access.Clientset.CoreV1().Pods("kube-system").GetLogs(pods.Items[0].Name, &corev1.PodLogOptions{}).DoRaw(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(logs)).To(ContainSubstring("listening on"), "the program is the real one")
	})
})

var _ = Describe("runtime-gvisor", Ordered, func() {
	inModule := func(path string) string { return "go:" + runtimeGVisor + "/" + path + "@" + runtimeGVisorVersion }
	const installation = "example.com/extensions/runtime-gvisor-installation"
	var shoot *gardencorev1beta1.Shoot

	// offer writes the container runtimes of all machine images.
	offer := func(ctx context.Context, runtimes ...gardencorev1beta1.ContainerRuntime) {
		GinkgoHelper()
		Eventually(func() error {
			profile := landscape.Named[*gardencorev1beta1.CloudProfile]("", "local")
			if err := g.Client.Get(ctx, client.ObjectKeyFromObject(profile), profile); err != nil {
				return err
			}
			for i := range profile.Spec.MachineImages {
				for j := range profile.Spec.MachineImages[i].Versions {
					for k := range profile.Spec.MachineImages[i].Versions[j].CRI {
						profile.Spec.MachineImages[i].Versions[j].CRI[k].ContainerRuntimes = runtimes
					}
				}
			}
			return g.Client.Update(ctx, profile)
		}).WithContext(ctx).Should(Succeed(), "others may write the CloudProfile as well")
	}
	use := func(ctx context.Context, runtimes ...gardencorev1beta1.ContainerRuntime) {
		GinkgoHelper()
		g.Change(ctx, shoot, func() {
			shoot.Spec.Provider.Workers[0].CRI = &gardencorev1beta1.CRI{Name: gardencorev1beta1.CRINameContainerD, ContainerRuntimes: runtimes}
		})
		g.EventuallyHealthy(ctx, shoot, patience)
	}

	BeforeAll(func(ctx SpecContext) {
		shoot = exampleShoot(ctx, "local")
		DeferCleanup(func(ctx SpecContext) {
			use(ctx)
			offer(ctx)
			succeeds(ctx, "extension", "remove", "runtime-gvisor")
			expectGone(ctx, "runtime-gvisor")
		}, NodeTimeout(2*patience))
	})

	It("is added from its Go module, with gVisor built from its own", specPatience, func(ctx SpecContext) {
		var tools []image.File
		applet := written("#!/bin/sh\nexec busybox \"${0##*/}\" \"$@\"\n")
		for _, tool := range []string{"chmod", "chroot", "diff", "md5sum", "mkdir", "mv"} {
			tools = append(tools, image.File{Source: applet, Destination: "/bin/" + tool})
		}
		succeeds(ctx, "extension", "add", "runtime-gvisor", "--manifest", inModule("example/extension.yaml"),
			"--chart", inModule("charts/gardener-extension-runtime-gvisor"), "--values", written(`
imageVectorOverwrite:
  images:
  - name: runtime-gvisor-installation
    sourceRepository: github.com/gardener/gardener-extension-runtime-gvisor
    repository: `+installation+`
    tag: `+runtimeGVisorVersion+`
`),
			"--image", "extensions/runtime-gvisor="+inModule("cmd/gardener-extension-runtime-gvisor"),
			"--image", "extensions/runtime-gvisor-installation="+programsImage(ctx, "gvisor.dev/gvisor@v0.0.0-20260905035102-160fafc42237",
				map[string]string{"./runsc": "/var/content/runsc", "./shim": "/var/content/containerd-shim-runsc-v1"}, tools...))
	})

	It("installs gVisor on the nodes of the Shoot", specPatience, func(ctx SpecContext) {
		gvisor := gardencorev1beta1.ContainerRuntime{Type: "gvisor"}
		offer(ctx, gvisor)
		use(ctx, gvisor)
	})

	It("has gVisor's kernel start there", specPatience, func(ctx SpecContext) {
		// A pod on it would need containerd 1.7, and machines have that of Debian 12.
		machines, err := landscape.PodsOf(ctx, l.Client, shoot.Status.TechnicalID, map[string]string{"app": "machine"})
		Expect(err).NotTo(HaveOccurred())
		Expect(machines).NotTo(BeEmpty())
		out, err := landscape.Execute(ctx, l.Config, &machines[0], "/var/bin/containerruntimes/runsc", "--network=none", "--ignore-cgroups", "do", "cat", "/proc/version")
		Expect(err).NotTo(HaveOccurred())
		Expect(out).To(MatchRegexp(`^Linux version \S*gvisor`))
	})
})
