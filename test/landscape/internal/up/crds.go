// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"context"
	"fmt"
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

// crds creates the CustomResourceDefinitions that gardener-operator is going to apply: an API server takes some 20 seconds to
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

// readCRDs reads all CustomResourceDefinitions in files below the folders.
func readCRDs(folders []string) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for _, folder := range folders {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			// For API servers that are too old for validation rules.
			if err != nil || entry.IsDir() || filepath.Ext(path) != ".yaml" || strings.Contains(path, "without_cel") {
				return err
			}
			content, err := os.ReadFile(path) // #nosec G304 -- in the folder of a Go module.
			if err != nil || !bytes.Contains(content, []byte("\nkind: CustomResourceDefinition")) {
				return err
			}
			objects, err := cluster.Read(path)
			all = append(all, objects...)
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("reading CustomResourceDefinitions: %w", err)
		}
	}
	return slices.DeleteFunc(all, func(o *unstructured.Unstructured) bool { return o.GetKind() != "CustomResourceDefinition" }), nil
}
