// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package chart_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	. "github.com/onsi/gomega"
	"helm.sh/helm/v3/pkg/chart/loader"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/version"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	gardencorev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	"github.com/gardener/gardener/pkg/chartrenderer"
	gardeneroci "github.com/gardener/gardener/pkg/utils/oci"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/chart"
	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/oci"
)

const chartFolder = "../../../charts/provider-local"

// credentials are the same for each registry.
type credentials authn.AuthConfig

func (c credentials) Resolve(authn.Resource) (authn.Authenticator, error) {
	return authn.FromConfig(authn.AuthConfig(c)), nil
}

func client(t *testing.T, credentials credentials, caFile string) *oci.Client {
	t.Helper()
	client, err := oci.NewClient(oci.Options{CAFile: caFile, Credentials: credentials})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return client
}

func handler() http.Handler {
	return registry.New(registry.Logger(log.New(io.Discard, "", 0)))
}

func hostOf(server *httptest.Server) string {
	_, host, _ := strings.Cut(server.URL, "://")
	return host
}

func TestTheSameChartGivesTheSameArchiveWhereverAndWheneverItIsPackaged(t *testing.T) {
	g := NewWithT(t)
	first, err := chart.Package(chartFolder)
	g.Expect(err).NotTo(HaveOccurred())

	elsewhere := filepath.Join(t.TempDir(), "copy")
	g.Expect(os.CopyFS(elsewhere, os.DirFS(chartFolder))).To(Succeed())
	g.Expect(filepath.WalkDir(elsewhere, func(path string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Chtimes(path, time.Unix(1, 0), time.Unix(1, 0)))
	})).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(elsewhere, "values.yaml.orig"), []byte("left by an editor"), 0o600)).To(Succeed())
	second, err := chart.Package(elsewhere)
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(second.Content).To(Equal(first.Content))
	g.Expect(first.Name).To(Equal("provider-local"))
}

func TestHelmLoadsThePackagedChart(t *testing.T) {
	g := NewWithT(t)
	archive, err := chart.Package(chartFolder)
	g.Expect(err).NotTo(HaveOccurred())
	packaged, err := loader.LoadArchive(bytes.NewReader(archive.Content))
	g.Expect(err).NotTo(HaveOccurred())
	original, err := loader.LoadDir(chartFolder)
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(packaged.Values).To(Equal(original.Values))
	g.Expect(packaged.Schema).To(Equal(original.Schema))
	g.Expect(packaged.Templates).To(ConsistOf(original.Templates))

	unzipped, err := gzip.NewReader(bytes.NewReader(archive.Content))
	g.Expect(err).NotTo(HaveOccurred())
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(header.Name).To(HavePrefix("provider-local/"))
		g.Expect(header.Name).NotTo(HaveSuffix(".golden.yaml"))
	}
}

func TestGardenerPullsAndRendersWhatIsPushed(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(handler())
	t.Cleanup(server.Close)

	archive, err := chart.Package(chartFolder)
	g.Expect(err).NotTo(HaveOccurred())
	var refs []string
	for _, tag := range []string{":one", ":two"} {
		ref, err := archive.Push(t.Context(), client(t, credentials{}, ""), hostOf(server)+"/charts/provider-local"+tag)
		g.Expect(err).NotTo(HaveOccurred())
		refs = append(refs, ref)
	}
	g.Expect(refs[0]).To(Equal(refs[1]))

	pulled, err := gardeneroci.NewHelmRegistry(fakeclient.NewFakeClient()).Pull(t.Context(), &gardencorev1.OCIRepository{Ref: &refs[0]})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pulled).To(Equal(archive.Content))

	renderer := chartrenderer.NewWithServerVersion(&version.Info{GitVersion: "v1.36.3", Major: "1", Minor: "36"})
	garden, err := renderer.RenderArchive(pulled, "provider-local", "runtime-extension-provider-local", map[string]any{
		"gardener": map[string]any{"runtimeCluster": map[string]any{"enabled": "true", "priorityClassName": "gardener-garden-system-200"}},
		"image":    "a/b@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"dns":      map[string]any{"coreDNS": map[string]any{"image": "a/c:d"}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(garden.Manifest())).To(ContainSubstring("kind: Deployment"))

	seed, err := renderer.RenderArchive(pulled, "provider-local", "extension-provider-local", map[string]any{
		"gardener":     map[string]any{"version": "v1.149.3", "seed": map[string]any{"name": "local"}},
		"image":        "a/e@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
		"dns":          map[string]any{"coreDNS": map[string]any{"image": "a/c:d"}},
		"controlPlane": map[string]any{"localPathProvisioner": map[string]any{"image": "a/f:g"}},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(seed.Manifest())).To(And(ContainSubstring("kind: Deployment"), ContainSubstring("a/e@sha256:")))
	g.Expect(string(seed.Manifest())).NotTo(ContainSubstring("a/b@sha256:"))
}

func TestGardenerPullsFromARegistryWithTLSAndAPassword(t *testing.T) {
	g := NewWithT(t)
	inner := handler()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, ok := r.BasicAuth(); !ok || user != "user" || password != "secret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	authority := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	caFile := filepath.Join(t.TempDir(), "ca.pem")
	g.Expect(os.WriteFile(caFile, authority, 0o600)).To(Succeed())

	archive, err := chart.Package(chartFolder)
	g.Expect(err).NotTo(HaveOccurred())
	ref, err := archive.Push(t.Context(), client(t, credentials{Username: "user", Password: "secret"}, caFile), hostOf(server)+"/charts/provider-local:v1")
	g.Expect(err).NotTo(HaveOccurred())

	secret := func(name, key string, data []byte) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: name}, Data: map[string][]byte{key: data}}
	}
	helmRegistry := gardeneroci.NewHelmRegistry(fakeclient.NewClientBuilder().WithObjects(
		secret("ca", "bundle.crt", authority),
		secret("pull", corev1.DockerConfigJsonKey, []byte(`{"auths":{"`+hostOf(server)+`":{"username":"user","password":"secret"}}}`)),
	).Build())
	pulled, err := helmRegistry.Pull(t.Context(), &gardencorev1.OCIRepository{
		Ref:               &ref,
		CABundleSecretRef: &corev1.LocalObjectReference{Name: "ca"},
		PullSecretRef:     &corev1.LocalObjectReference{Name: "pull"},
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pulled).To(Equal(archive.Content))
}

func TestFoldersThatHoldNoChartAreRefused(t *testing.T) {
	noise := make([]byte, 2<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(noise)
	for name, tc := range map[string]struct {
		files map[string]string
		says  string
	}{
		"nothing in it":        {nil, "Chart.yaml"},
		"no version":           {map[string]string{"Chart.yaml": "apiVersion: v2\nname: a\n"}, "version"},
		"a file that is large": {map[string]string{"Chart.yaml": "apiVersion: v2\nname: a\nversion: 1.0.0\n", "files/noise": string(noise)}, "more than"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			folder := t.TempDir()
			for file, content := range tc.files {
				g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(folder, file)), 0o700)).To(Succeed())
				g.Expect(os.WriteFile(filepath.Join(folder, file), []byte(content), 0o600)).To(Succeed())
			}
			_, err := chart.Package(folder)
			g.Expect(err).To(MatchError(ContainSubstring(tc.says)))
		})
	}
}
