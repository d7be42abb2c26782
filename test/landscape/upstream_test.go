// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build landscape

package main

import (
	"fmt"
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

// TestImagesOfUpstream pulls an image that has only a stub from a registry that plays that of the original, with make up IMAGES=upstream.
func TestImagesOfUpstream(t *testing.T) {
	g := NewWithT(t)
	landscape, program, run := ownProgram(t)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)

	run(program, "up", "--until", "dns", "--components", images.Upstream)

	// Another program than the stub, which ends at once.
	coredns, err := name.NewTag(fmt.Sprintf("127.0.0.1:%d/%s:latest", layout.RegistryPort, images.Repository("coredns")), name.Insecure)
	g.Expect(err).NotTo(HaveOccurred())
	image, err := remote.Image(coredns, remote.WithContext(t.Context()))
	g.Expect(err).NotTo(HaveOccurred())
	digest, err := image.Digest()
	g.Expect(err).NotTo(HaveOccurred())
	repository := strings.TrimPrefix(server.URL, "http://") + "/credativ/vali"
	_, _, err = images.Ensure(t.Context(), repository, "v1", nil, func() (v1.Image, error) { return image, nil })
	g.Expect(err).NotTo(HaveOccurred())

	kubectl := func(args ...string) string {
		t.Helper()
		return run(landscape.Layout.State("bin", "kubectl"), append([]string{"--kubeconfig", landscape.Layout.Kubeconfig()}, args...)...)
	}
	kubectl("wait", "serviceaccount/default", "--for", "create", "--timeout", "1m")
	kubectl("run", "vali", "--image", repository+":v1", "--restart", "Never", "--", "-version")
	kubectl("wait", "pod/vali", "--for", "jsonpath={.status.phase}=Succeeded", "--timeout", "2m")
	g.Expect(kubectl("get", "pod", "vali", "-o", "jsonpath={.status.containerStatuses[0].imageID}")).To(HaveSuffix(digest.String()))
}
