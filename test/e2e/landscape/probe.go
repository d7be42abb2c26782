// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/image"
	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/oci"
)

// PushProbe builds the program of package probe, pushes its image to where the landscape has its own ones, and returns the
// reference with the digest.
func (l *Landscape) PushProbe(ctx context.Context) string {
	GinkgoHelper()
	binary := filepath.Join(GinkgoT().TempDir(), "probe")
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", binary,
		"github.com/gardener/gardener-extension-provider-local/test/probe/cmd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	Expect(err).NotTo(HaveOccurred(), string(out))

	img, err := image.Build(image.Spec{Files: []image.File{{Source: binary, Destination: "/probe"}}, Entrypoint: []string{"/probe"}})
	Expect(err).NotTo(HaveOccurred())
	digest, err := img.Digest()
	Expect(err).NotTo(HaveOccurred())
	pinned, err := image.Push(ctx, l.Registry(ctx)+"/e2e/probe:"+digest.Hex[:16], img, oci.Options{PlainHTTP: true})
	Expect(err).NotTo(HaveOccurred())
	return pinned
}

// Registry is host:port of the landscape's registry, as nodes and this machine reach it.
func (l *Landscape) Registry(ctx context.Context) string {
	GinkgoHelper()
	extension, _ := l.Registered(ctx)
	registry, _, _ := strings.Cut(strings.TrimPrefix(extension.Spec.Deployment.ExtensionDeployment.Helm.OCIRepository.GetURL(), "oci://"), "/")
	return registry
}
