// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/build"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
)

// crdFolders are where gardener-operator takes the CustomResourceDefinitions from that it deploys into a garden runtime
// cluster, below the folder of Gardener's source.
var crdFolders = []string{
	"autoscaling/vpa", "extensions/crds", "gardener/resourcemanager", "networking/istio", "observability/logging/fluentoperator",
	"observability/logging/victoria", "observability/monitoring/persesoperator", "observability/monitoring/prometheusoperator",
	"observability/opentelemetry",
}

// crds creates the CustomResourceDefinitions that gardener-operator is going to apply: an API server takes seconds to
// serve all of them, which it has while Skaffold deploys. gardener-operator finds them as they should be, or corrects them.
func (l Landscape) crds(ctx context.Context) (string, error) {
	gardener, err := l.moduleFolder(ctx, "github.com/gardener/gardener")
	if err != nil {
		return "", err
	}
	druid, err := l.moduleFolder(ctx, "github.com/gardener/etcd-druid/api")
	if err != nil {
		return "", err
	}
	folders := []string{filepath.Join(druid, "core", "v1alpha1", "crds")}
	for _, folder := range crdFolders {
		folders = append(folders, filepath.Join(gardener, "pkg", "component", filepath.FromSlash(folder)))
	}
	objects, err := readCRDs(folders)
	if err != nil {
		return "", err
	}
	c, err := cluster.Client(l.Layout.Kubeconfig())
	if err != nil {
		return "", err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, object := range objects {
		group.Go(func() error {
			if err := c.Create(ctx, object); err != nil && !apierrors.IsAlreadyExists(err) {
				return fmt.Errorf("creating CustomResourceDefinition %s: %w", object.GetName(), err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return "", err
	}
	return fmt.Sprintf("%d definitions", len(objects)), nil
}

// readCRDs reads the CustomResourceDefinitions that Go packages in the folders and below them embed. Folders also have files
// that nobody applies: those of VictoriaMetrics one of 23, the rest of which an API server would keep hundreds of MB for.
func readCRDs(folders []string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, folder := range folders {
		files, err := embedded(folder)
		if err != nil {
			return nil, fmt.Errorf("looking for CustomResourceDefinitions: %w", err)
		}
		for _, file := range files {
			content, err := os.ReadFile(file) // #nosec G304 -- in the folder of a Go module.
			if err != nil {
				return nil, fmt.Errorf("reading CustomResourceDefinitions: %w", err)
			}
			// Not all that is embedded is YAML before it is rendered. Those without validation rules are for older API servers.
			if !bytes.Contains(content, []byte("\nkind: CustomResourceDefinition")) || strings.Contains(file, "without_cel") {
				continue
			}
			objects, err := cluster.Read(file)
			if err != nil {
				return nil, fmt.Errorf("reading CustomResourceDefinitions: %w", err)
			}
			all = append(all, objects...)
		}
	}
	return slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() != "CustomResourceDefinition" }), nil
}

// embedded returns the YAML files that Go packages in a folder and below it embed by name. A folder that is embedded as a whole is a chart.
func embedded(folder string) ([]string, error) {
	var files []string
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		pkg, err := build.ImportDir(path, 0)
		if none := (*build.NoGoError)(nil); errors.As(err, &none) {
			return nil
		} else if err != nil {
			return err
		}
		for _, pattern := range pkg.EmbedPatterns {
			names, err := filepath.Glob(filepath.Join(path, filepath.FromSlash(pattern)))
			if err != nil {
				return fmt.Errorf("%s embeds %s: %w", path, pattern, err)
			}
			files = append(files, slices.DeleteFunc(names, func(name string) bool { return filepath.Ext(name) != ".yaml" })...)
		}
		return nil
	})
	return files, err
}
