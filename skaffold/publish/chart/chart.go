// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package chart packages a Helm chart and pushes it in the form in which Gardener and Helm pull it. The program publish
// uses it. Helm's own packager writes the time into the archive; this one doesn't, so that the same chart has the same
// digest wherever and whenever it is packaged.
package chart

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/oci"
)

// Media types by which Gardener (pkg/utils/oci) and Helm recognize a chart.
const (
	MediaTypeConfig  = "application/vnd.cncf.helm.config.v1+json"
	MediaTypeContent = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// maxArchive is the size in bytes that no packaged chart may exceed. Gardener keeps charts in memory.
const maxArchive = 1 << 20

// Archive is a packaged chart.
type Archive struct {
	// Name and Version are those of Chart.yaml.
	Name, Version string
	// Content is the gzipped tar.
	Content []byte

	metadata *helmchart.Metadata
}

// Package reads the chart in a folder, less what .helmignore names, and packages it.
func Package(folder string) (*Archive, error) {
	chart, err := loader.LoadDir(folder)
	if err == nil {
		err = chart.Validate()
	}
	if err != nil {
		return nil, fmt.Errorf("loading chart %s: %w", folder, err)
	}
	content, err := packed(chart)
	if err == nil && len(content) > maxArchive {
		err = fmt.Errorf("%d bytes are more than the %d that a chart may have: name what doesn't belong to it in .helmignore", len(content), maxArchive)
	}
	if err != nil {
		return nil, fmt.Errorf("packaging chart %s: %w", folder, err)
	}
	return &Archive{Name: chart.Name(), Version: chart.Metadata.Version, Content: content, metadata: chart.Metadata}, nil
}

// packed returns the files of a chart as a gzipped tar, sorted by name and without times.
func packed(chart *helmchart.Chart) ([]byte, error) {
	var content bytes.Buffer
	zipper, err := gzip.NewWriterLevel(&content, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	out := tar.NewWriter(zipper)
	files := slices.Clone(chart.Raw)
	slices.SortFunc(files, func(a, b *helmchart.File) int { return strings.Compare(a.Name, b.Name) })
	for _, file := range files {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: path.Join(chart.Name(), file.Name), Mode: 0o644, Size: int64(len(file.Data)), ModTime: time.Unix(0, 0),
		}
		if err := out.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := out.Write(file.Data); err != nil {
			return nil, err
		}
	}
	err = errors.Join(out.Close(), zipper.Close())
	return content.Bytes(), err
}

// Push pushes a packaged chart to ref (HOST[:PORT]/REPOSITORY:TAG) and returns its reference by digest.
func (a *Archive) Push(ctx context.Context, client *oci.Client, ref string) (string, error) {
	img, err := a.image()
	if err != nil {
		return "", fmt.Errorf("writing manifest of chart %s: %w", a.Name, err)
	}
	return client.Push(ctx, ref, img)
}

func (a *Archive) image() (v1.Image, error) {
	config, err := json.Marshal(a.metadata)
	if err != nil {
		return nil, err
	}
	img := &image{config: config, content: static.NewLayer(a.Content, MediaTypeContent)}
	described, err := partial.Descriptor(static.NewLayer(config, MediaTypeConfig))
	layer, layerErr := partial.Descriptor(img.content)
	if err = errors.Join(err, layerErr); err != nil {
		return nil, err
	}
	img.manifest, err = json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Config: *described, Layers: []v1.Descriptor{*layer},
		Annotations: map[string]string{
			"org.opencontainers.image.title":       a.Name,
			"org.opencontainers.image.version":     a.Version,
			"org.opencontainers.image.description": a.metadata.Description,
		},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(img)
}

// image is a chart in the form of an image: its configuration is the chart's metadata, its only layer the archive.
type image struct {
	manifest, config []byte
	content          v1.Layer
}

// MediaType implements partial.CompressedImageCore.
func (*image) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest implements partial.CompressedImageCore.
func (i *image) RawManifest() ([]byte, error) { return i.manifest, nil }

// RawConfigFile implements partial.CompressedImageCore.
func (i *image) RawConfigFile() ([]byte, error) { return i.config, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (i *image) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return i.content, nil }
