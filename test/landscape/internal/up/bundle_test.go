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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestABundleOfABrokenLandscapeSaysWhatIsMissing(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}, Out: &out, Now: time.Now}
	file := filepath.Join(t.TempDir(), "issue.tar.gz")
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

func TestABundleHasTheJournalsOfMachines(t *testing.T) {
	g := NewWithT(t)
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}, Now: time.Now}
	g.Expect(os.MkdirAll(filepath.Dir(l.Layout.Kubectl()), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(l.Layout.Kubectl(), []byte("#!/bin/sh\necho $*\n"), 0o700)).To(Succeed()) // #nosec G306 -- a program
	pod := func(name string, labels map[string]string) unstructured.Unstructured {
		u := unstructured.Unstructured{}
		u.SetNamespace("shoot--local--local")
		u.SetName(name)
		u.SetLabels(labels)
		return u
	}

	file := filepath.Join(t.TempDir(), "bundle.tar.gz")
	out, err := os.Create(file) // #nosec G304 -- of the test
	g.Expect(err).NotTo(HaveOccurred())
	zipper := gzip.NewWriter(out)
	b := &bundle{Landscape: l, files: tar.NewWriter(zipper)}
	b.podLogs(t.Context(), "runtime", &explained{kubeconfig: "KUBECONFIG"}, []unstructured.Unstructured{
		pod("machine-a", map[string]string{"app": "machine", "machine-provider": "local"}), pod("bastion-a", map[string]string{"app": "bastion", "machine-provider": "local"}),
	})
	g.Expect(errors.Join(b.err, b.files.Close(), zipper.Close(), out.Close())).To(Succeed())
	g.Expect(b.failed).To(BeEmpty())
	g.Expect(contentsOf(t, file)).To(Equal(map[string]string{
		"landscape/runtime/logs/shoot--local--local/machine-a/journal.log": "--kubeconfig KUBECONFIG exec -n shoot--local--local machine-a -- journalctl --no-pager -n 500\n",
	}))
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
