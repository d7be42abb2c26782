// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package landscape is what the end-to-end suites share: access to the landscape that is up, objects in it that are waited
// for, and the seed's instance of the extension, installed as gardenlet would do it. There is one landscape, so that only
// one suite at a time uses it; each leaves it as it was.
package landscape

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	gardenerkubernetes "github.com/gardener/gardener/pkg/client/kubernetes"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

const (
	// GardenNamespace is where gardener-operator, gardener-resource-manager and the ManagedResources of extensions are.
	GardenNamespace = "garden"
	// CoreDNSNamespace is where the CoreDNS of both instances is.
	CoreDNSNamespace = "gardener-extension-provider-local-coredns"
)

// Landscape is the one that is up.
type Landscape struct {
	// Client does not cache. Its scheme is that of a seed.
	Client client.Client
	// Clientset is for what Client does not do: logs, proxies, discovery.
	Clientset kubernetes.Interface
	// Config is what both are made of.
	Config *rest.Config
	// Values are put over those that the landscape has for the chart in seeds.
	Values map[string]any

	writer *resources.Writer
}

// polling is the interval at which Eventually reads. Gomega's default is 10 ms, which loads the API server of a small machine.
const polling = 500 * time.Millisecond

// Connect gets access to the runtime cluster that KUBECONFIG names, and sets the interval of Eventually for the suite.
func Connect() *Landscape {
	GinkgoHelper()
	SetDefaultEventuallyPollingInterval(polling)
	kubeconfig := os.Getenv("KUBECONFIG")
	Expect(kubeconfig).NotTo(BeEmpty(), "KUBECONFIG names the runtime cluster; `make e2e` sets it")

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		gardenerkubernetes.AddSeedSchemeToScheme,
		apiextensionsv1.AddToScheme,
		machinev1alpha1.AddToScheme,
		operatorv1alpha1.AddToScheme,
	} {
		Expect(add(scheme)).To(Succeed())
	}

	l := &Landscape{}
	var err error
	l.Config, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	l.Config.QPS, l.Config.Burst = 200, 400
	l.Client, err = client.New(l.Config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	l.Clientset, err = kubernetes.NewForConfig(l.Config)
	Expect(err).NotTo(HaveOccurred())
	l.writer = resources.New(l.Client)
	return l
}

// Run runs a command of the program landscape.
func Run(ctx context.Context, arguments ...string) {
	GinkgoHelper()
	By("landscape " + strings.Join(arguments, " "))
	cmd := program(ctx, arguments...)
	cmd.Stdout, cmd.Stderr = GinkgoWriter, GinkgoWriter
	Expect(cmd.Run()).To(Succeed())
}

// ExplainFailure is for JustAfterEach: it says why a spec failed, before anything is cleaned up. Objects, events and logs are in a file.
func ExplainFailure(ctx SpecContext) {
	report := CurrentSpecReport()
	if !report.Failed() {
		return
	}
	file := Artefact(regexp.MustCompile(`[^A-Za-z0-9]+`).ReplaceAllString(report.FullText(), "-") + ".tar.gz")
	Expect(os.RemoveAll(file)).To(Succeed())
	// It fails, as something is not healthy, or there is only a part of a landscape.
	said, err := program(ctx, "explain", "--target", Target()).CombinedOutput()
	written, errWriting := program(ctx, "explain", "--target", Target(), "--bundle", file).CombinedOutput()
	AddReportEntry("landscape explain", fmt.Sprintf("%s%v\n%s%v", said, err, written, errWriting), ReportEntryVisibilityFailureOrVerbose)
}

// Artefact is the path of a file that tests leave, in the folder ARTIFACTS or else beside the landscape's state.
func Artefact(name string) string {
	GinkgoHelper()
	folder := cmp.Or(os.Getenv("ARTIFACTS"), State("artefacts"))
	Expect(os.MkdirAll(folder, 0o755)).To(Succeed())
	return filepath.Join(folder, name)
}

func program(ctx context.Context, arguments ...string) *exec.Cmd {
	root := filepath.Dir(State())
	cmd := exec.CommandContext(ctx, filepath.Join(root, "bin", "landscape", "landscape"), arguments...) // #nosec G204 -- the tests' own arguments.
	cmd.Dir = root
	return cmd
}
