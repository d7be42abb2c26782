// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	helmrelease "helm.sh/helm/v3/pkg/release"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

// maxRendered is how many renderings are remembered. Those of this repository's charts for shoots have 8 KB of YAML, and as
// objects in memory take about five times as much.
const maxRendered = 500

// Release names what a chart is rendered for.
type Release struct {
	// Name and Namespace are .Release.Name and .Release.Namespace in the templates. Objects that name no namespace stay
	// without one, since it is not known here which kinds have namespaces: a chart is to write it.
	Name, Namespace string
}

// ValuesError tells that a chart refuses values, by its values.schema.json or by its kubeVersion.
type ValuesError struct{ error }

// Renderer renders charts. It is safe for concurrent use. Make one for an instance with NewRenderer, and from it one for
// each kind of cluster with For.
type Renderer struct {
	capabilities *chartutil.Capabilities
	cache        *lru.Cache
	// Metrics count what it does; nil for none.
	Metrics *metrics.Charts
}

// NewRenderer returns a Renderer for clusters with this Kubernetes version, for example "1.34.1" or "v1.34.1".
func NewRenderer(kubeVersion string) (*Renderer, error) {
	return (&Renderer{cache: lru.New(maxRendered)}).For(kubeVersion)
}

// For returns a Renderer for clusters with another Kubernetes version that shares memory and metrics with this one.
func (r *Renderer) For(kubeVersion string) (*Renderer, error) {
	version, err := chartutil.ParseKubeVersion(kubeVersion)
	if err != nil {
		return nil, fmt.Errorf("parsing Kubernetes version %q: %w", kubeVersion, err)
	}

	helm := chartutil.DefaultCapabilities.Copy()
	helm.KubeVersion = *version
	return &Renderer{capabilities: helm, cache: r.cache, Metrics: r.Metrics}, nil
}

// Render renders the chart. It returns *unstructured.Unstructured: those of the folder crds and those of the templates, by file
// name. They belong to the caller. Values may be anything that JSON can hold; they are put over those of the chart and checked
// against its values.schema.json, and they are not changed. Nothing is rendered if the same was before.
//
// Errors: a *ValuesError (use errors.As), what the Source said, what is wrong with a template or with what it rendered
// to, a chart with hooks, which would not be run here, or the context's.
func (r *Renderer) Render(ctx context.Context, source Source, release Release, values map[string]any) ([]client.Object, error) {
	archive, err := source.Load(ctx)
	if err != nil {
		return nil, err
	}

	describe := func(err error) error {
		return fmt.Errorf("rendering chart %s for %s/%s: %w", archive.Chart.Name(), release.Namespace, release.Name, err)
	}

	normalized, key, err := r.inputs(archive, release, values)
	if err != nil {
		return nil, describe(err)
	}
	if objects, ok := r.cache.Get(key); ok {
		r.Metrics.Cached()
		return copied(objects.([]client.Object)), nil
	}

	if err := ctx.Err(); err != nil {
		return nil, describe(err)
	}
	objects, err := r.objects(archive, release, normalized)
	r.Metrics.Rendered(err)
	if err != nil {
		return nil, describe(err)
	}

	r.cache.Add(key, objects)
	return copied(objects), nil
}

// inputs returns the values as JSON types, and the key. Helm's templates and schemas know no others: a map of strings
// would not be merged with the chart's own, for example. Integers stay integers; as floats, a template would print
// 1000000 as 1e+06.
func (r *Renderer) inputs(archive *Archive, release Release, values map[string]any) (map[string]any, string, error) {
	raw, err := json.Marshal(values)
	if err != nil {
		return nil, "", fmt.Errorf("values are not JSON: %w", err)
	}
	normalized := make(map[string]any)
	if err := utiljson.Unmarshal(raw, &normalized); err != nil {
		return nil, "", fmt.Errorf("values are not JSON: %w", err)
	}

	// Maps become JSON with sorted keys.
	inputs, err := json.Marshal([]any{archive.Digest, release, json.RawMessage(raw), r.capabilities.KubeVersion})
	return normalized, fmt.Sprintf("%x", sha256.Sum256(inputs)), err
}

// objects returns what the templates render to, and what is in the folder crds.
func (r *Renderer) objects(archive *Archive, release Release, values map[string]any) (objects []client.Object, err error) {
	fresh, err := unshared(archive.Chart)
	if err != nil {
		return nil, err
	}
	if wanted := fresh.Metadata.KubeVersion; wanted != "" && !chartutil.IsCompatibleRange(wanted, r.capabilities.KubeVersion.Version) {
		return nil, &ValuesError{fmt.Errorf("chart %s refuses the values: it needs Kubernetes %s, not %s", fresh.Name(), wanted, r.capabilities.KubeVersion.Version)}
	}
	if err := chartutil.ProcessDependenciesWithMerge(fresh, values); err != nil {
		return nil, fmt.Errorf("resolving its dependencies: %w", err)
	}

	// Always as if installed: an upgrade that renders to something else would depend on what was there before.
	options := chartutil.ReleaseOptions{Name: release.Name, Namespace: release.Namespace, IsInstall: true, Revision: 1}
	coalesced, err := chartutil.ToRenderValues(fresh, values, options, r.capabilities)
	if err != nil {
		return nil, &ValuesError{fmt.Errorf("chart %s refuses the values: %w", fresh.Name(), err)}
	}

	// The zero Engine has no client and does not resolve names.
	rendered, err := engine.Engine{}.Render(fresh, coalesced)
	if err != nil {
		return nil, err
	}

	maps.DeleteFunc(rendered, func(name, _ string) bool {
		base := path.Base(name)
		return base == "NOTES.txt" || strings.HasPrefix(base, "_")
	})
	for _, crd := range fresh.CRDObjects() {
		rendered[crd.Filename] = string(crd.File.Data)
	}
	for _, name := range slices.Sorted(maps.Keys(rendered)) {
		if objects, err = parse(objects, rendered[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return objects, nil
}

// unshared returns a copy of a chart. Helm removes disabled subcharts from the chart it renders, and merges values into
// it.
func unshared(shared *chart.Chart) (*chart.Chart, error) {
	files := make([]*loader.BufferedFile, 0, len(shared.Raw))
	for _, raw := range shared.Raw {
		files = append(files, &loader.BufferedFile{Name: raw.Name, Data: raw.Data})
	}
	return loader.LoadFiles(files)
}

// parse adds the objects in a file to others.
func parse(objects []client.Object, content string) ([]client.Object, error) {
	reader := utilyaml.NewYAMLReader(bufio.NewReader(strings.NewReader(content)))
	for i := 1; ; i++ {
		raw, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err == nil {
			objects, err = parseDocument(objects, raw)
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
	}
}

// parseDocument adds one object, none if the document is empty, or those of a list. It is strict: a key that is there twice is
// a mistake in a template, and one of the two values would be lost.
func parseDocument(objects []client.Object, raw []byte) ([]client.Object, error) {
	asJSON, err := yaml.YAMLToJSONStrict(raw)
	if err != nil || bytes.Equal(asJSON, []byte("null")) {
		return objects, err
	}

	obj := &unstructured.Unstructured{}
	if err := obj.UnmarshalJSON(asJSON); err != nil {
		return nil, err
	}
	if !obj.IsList() {
		return append(objects, obj), check(obj)
	}
	err = obj.EachListItem(func(item runtime.Object) error {
		object := item.(*unstructured.Unstructured)
		objects = append(objects, object)
		return check(object)
	})
	return objects, err
}

func check(obj *unstructured.Unstructured) error {
	if obj.GetAPIVersion() == "" || obj.GetKind() == "" || obj.GetName() == "" {
		return fmt.Errorf("apiVersion %q, kind %q and metadata.name %q must all be set", obj.GetAPIVersion(), obj.GetKind(), obj.GetName())
	}
	if hook, ok := obj.GetAnnotations()[helmrelease.HookAnnotation]; ok {
		return fmt.Errorf("%s %s is a hook (%s), which is not run: take the annotation %s off", obj.GetKind(), obj.GetName(), hook, helmrelease.HookAnnotation)
	}
	return nil
}

// copied returns copies, so that no caller can change what others get.
func copied(objects []client.Object) []client.Object {
	out := make([]client.Object, 0, len(objects))
	for _, object := range objects {
		out = append(out, object.DeepCopyObject().(client.Object))
	}
	return out
}
