// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestABundleOfABrokenLandscapeSaysWhatIsMissing(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}, Out: &out, Now: time.Now}
	file := filepath.Join(t.TempDir(), "issue.tar.gz")
	g.Expect(l.Bundle(t.Context(), file)).To(MatchError(ContainSubstring("there is no landscape")))
	g.Expect(file).NotTo(BeAnExistingFile())

	g.Expect(os.MkdirAll(l.Layout.State("logs"), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(l.Layout.State("logs", "etcd.log"), []byte("the last line\n"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(l.Layout.Kubeconfig(), []byte("no kubeconfig"), 0o600)).To(Succeed())
	g.Expect(l.Bundle(t.Context(), file)).To(Succeed())
	g.Expect(out.String()).To(ContainSubstring("Read it before you give it to others"))
	files := contentsOf(t, file)
	g.Expect(files).To(HaveKeyWithValue("landscape/logs/etcd.log", "the last line"))
	g.Expect(files).To(HaveKeyWithValue("landscape/errors.txt", And(ContainSubstring("explain.txt: "), ContainSubstring("runtime: "))))
	g.Expect(l.Bundle(t.Context(), file)).To(MatchError(os.ErrExist), "a file that is there is not overwritten")
}

func TestABundleHasNoSecrets(t *testing.T) {
	g := NewWithT(t)
	for _, on := range []place{runtimeCluster, virtualGarden} {
		for _, kind := range bundled(on) {
			g.Expect(kind.Kind).NotTo(BeElementOf("Secret", "InternalSecret", "ConfigMap"))
		}
	}
	g.Expect(bundled(runtimeCluster)).To(ContainElement(cluster.ExtensionKind("Worker")))
}

func contentsOf(t *testing.T, file string) map[string]string {
	t.Helper()
	g := NewWithT(t)
	packed, err := os.Open(file) // #nosec G304 -- of the test
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = packed.Close() }()
	unzipped, err := gzip.NewReader(packed)
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	for files := tar.NewReader(unzipped); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		g.Expect(err).NotTo(HaveOccurred())
		content, err := io.ReadAll(files)
		g.Expect(err).NotTo(HaveOccurred())
		found[header.Name] = string(content)
	}
}
