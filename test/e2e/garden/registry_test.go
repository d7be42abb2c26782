// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package garden_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

// registryOnHost is where the host finds the registry that the cluster calls by another name.
const registryOnHost = "127.0.0.1:5001"

var _ = Describe("The registry", Serial, func() {
	It("is down while gardener-operator pulls a new chart, and comes back", func(ctx SpecContext) {
		extension := &operatorv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "provider-local"}}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
		before := extension.Spec.Deployment.ExtensionDeployment.Helm.OCIRepository.GetURL()
		after := pushAnotherChart(ctx, before)
		Expect(after).NotTo(Equal(before))
		DeferCleanup(setChart, before)

		By("stopping the registry")
		DeferCleanup(startRegistry)
		stopRegistry()
		setChart(ctx, after)
		Eventually(installed(extension)).WithContext(ctx).Should(ContainSubstring("pulling"), "gardener-operator says what it could not do")

		deployment := &appsv1.Deployment{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: instanceNamespace, Name: instanceName}, deployment)).To(Succeed())
		Expect(deployment.Status.ReadyReplicas).To(BeNumerically(">=", 1), "what runs goes on running")
		Expect(matchers.Resolve(ctx, "tcp", hostDNSAddress(ctx), apiDomain, dns.TypeA)).NotTo(ContainElement("NXDOMAIN"))

		By("starting the registry")
		startRegistry()
		Eventually(installed(extension)).WithContext(ctx).ShouldNot(ContainSubstring("pulling"), "it is tried again")
	})
})

// pushAnotherChart pushes the chart once more, told apart by an annotation only, and returns its reference.
func pushAnotherChart(ctx context.Context, ref string) string {
	GinkgoHelper()
	chart, err := name.NewDigest(ref)
	Expect(err).NotTo(HaveOccurred(), "the chart is pinned by digest")
	onHost, err := name.NewRepository(registryOnHost+"/"+chart.RepositoryStr(), name.Insecure)
	Expect(err).NotTo(HaveOccurred())
	got, err := remote.Get(onHost.Digest(chart.DigestStr()), remote.WithContext(ctx))
	Expect(err).NotTo(HaveOccurred())
	var manifest map[string]any
	Expect(json.Unmarshal(got.Manifest, &manifest)).To(Succeed())
	// One that gardener-operator has not seen in an earlier run either: it remembers what it has pulled.
	manifest["annotations"] = map[string]string{"test": time.Now().String()}
	got.Manifest, err = json.Marshal(manifest)
	Expect(err).NotTo(HaveOccurred())
	got.Digest, got.Size, err = v1.SHA256(bytes.NewReader(got.Manifest))
	Expect(err).NotTo(HaveOccurred())

	Expect(remote.Put(onHost.Digest(got.Digest.String()), got, remote.WithContext(ctx))).To(Succeed())
	return chart.Context().Digest(got.Digest.String()).String()
}

func setChart(ctx context.Context, ref string) {
	GinkgoHelper()
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"deployment": map[string]any{"extension": map[string]any{"helm": map[string]any{"ociRepository": map[string]any{"ref": ref}}}}}})
	Expect(err).NotTo(HaveOccurred())
	extension := &operatorv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "provider-local"}}
	Expect(c.Patch(ctx, extension, client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
}

// installed returns the message of the condition that gardener-operator sets after each try.
func installed(extension *operatorv1alpha1.Extension) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		if err := c.Get(ctx, client.ObjectKeyFromObject(extension), extension); err != nil {
			return "", err
		}
		for _, condition := range extension.Status.Conditions {
			if condition.Type == operatorv1alpha1.ExtensionInstalled {
				return condition.Message, nil
			}
		}
		return "", nil
	}
}

// startRegistry starts the registry, unless it runs. That of kind is a container.
func startRegistry() {
	GinkgoHelper()
	if landscape.OnKind() {
		Expect(landscape.Engine("start", landscape.KindRegistry)).Error().NotTo(HaveOccurred())
		return
	}
	program := landscape.State("..", "bin", "landscape", "landscape")
	out, err := exec.Command(program, "up", "--until", "registry").CombinedOutput() // #nosec G204 -- the program of this repository
	Expect(err).NotTo(HaveOccurred(), string(out))
}

// stopRegistry ends the registry as a fault would.
func stopRegistry() {
	GinkgoHelper()
	if landscape.OnKind() {
		Expect(landscape.Engine("stop", "--time", "1", landscape.KindRegistry)).Error().NotTo(HaveOccurred())
		return
	}
	stopProcess("registry")
}

// stopProcess ends a process of the landscape as a fault would, by what the landscape noted down of it.
func stopProcess(name string) {
	GinkgoHelper()
	data, err := os.ReadFile(landscape.State("run", name+".json"))
	Expect(err).NotTo(HaveOccurred())
	note := struct {
		PID int `json:"pid"`
	}{}
	Expect(json.Unmarshal(data, &note)).To(Succeed())
	Expect(note.PID).To(BeNumerically(">", 1))
	Expect(syscall.Kill(note.PID, syscall.SIGTERM)).To(Succeed())
	Eventually(func() error { return syscall.Kill(note.PID, 0) }).Should(MatchError(syscall.ESRCH), "%s ends", name)
}
