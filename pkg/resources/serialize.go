// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/andybalholm/brotli"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// formatVersion is part of the hash in a Secret's name. Raise it when objects shall be written differently although
// they are the same.
const formatVersion = "v1\n"

// documents are objects as JSON with sorted keys, sorted by group, kind, namespace and name. JSON, since it takes a
// fraction of the time of YAML, and for most calls all that is needed is the hash.
type documents [][]byte

func newDocuments(objects []client.Object, kinds client.Client) (documents, error) {
	byKey := map[string][]byte{}
	for i, obj := range objects {
		gvk, data, err := newDocument(obj, kinds)
		if err != nil {
			return nil, fmt.Errorf("serializing object %d of %d: %w", i+1, len(objects), err)
		}
		key := strings.Join([]string{gvk.Group, gvk.Kind, obj.GetNamespace(), obj.GetName()}, "\x00")
		if _, ok := byKey[key]; ok {
			return nil, fmt.Errorf("object %s %s is given twice", gvk.GroupKind(), client.ObjectKeyFromObject(obj))
		}
		byKey[key] = data
	}

	out := make(documents, 0, len(byKey))
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		out = append(out, byKey[key])
	}
	return out, nil
}

func newDocument(obj client.Object, kinds client.Client) (gvk schema.GroupVersionKind, data []byte, err error) {
	if obj == nil {
		return gvk, nil, errors.New("it is nil")
	}
	if gvk = obj.GetObjectKind().GroupVersionKind(); gvk.Kind == "" || gvk.Version == "" {
		if gvk, err = kinds.GroupVersionKindFor(obj); err != nil {
			return gvk, nil, fmt.Errorf("kind of %T %s is not known, set it or add it to the scheme: %w", obj, client.ObjectKeyFromObject(obj), err)
		}
	}
	if obj.GetName() == "" {
		return gvk, nil, fmt.Errorf("%s in namespace %q has no name", gvk.GroupKind(), obj.GetNamespace())
	}
	content, err := contentOf(obj, gvk)
	if err == nil {
		data, err = json.Marshal(content)
	}
	if err != nil {
		return gvk, nil, fmt.Errorf("%s %s: %w", gvk.GroupKind(), client.ObjectKeyFromObject(obj), err)
	}
	return gvk, data, nil
}

// contentOf returns the fields of an object, without sharing with it what is changed here. Go types have a status even if it
// says nothing, and older ones a creation timestamp of null. GRM would apply both.
func contentOf(obj client.Object, gvk schema.GroupVersionKind) (map[string]any, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return u.Object, nil
	}

	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	content["apiVersion"], content["kind"] = gvk.ToAPIVersionAndKind()
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	return content, nil
}

// hash identifies the objects, in 16 hex digits. Gardener uses 8; but two versions of the same ManagedResource with the
// same hash would silently be taken for one.
func (d documents) hash() string {
	sum := sha256.New()
	sum.Write([]byte(formatVersion))
	for _, doc := range d {
		sum.Write(doc)
		sum.Write([]byte{'\n'})
	}
	return hex.EncodeToString(sum.Sum(nil))[:16]
}

// yaml returns the objects as YAML documents.
func (d documents) yaml() ([]byte, error) {
	var out bytes.Buffer
	for i, doc := range d {
		if i > 0 {
			out.WriteString("---\n")
		}
		text, err := yaml.JSONToYAML(doc)
		if err != nil {
			return nil, fmt.Errorf("converting document %d to YAML: %w", i+1, err)
		}
		out.Write(text)
	}
	return out.Bytes(), nil
}

// defaultLevel is the Brotli level. See docs/development/performance.md, section Benchmarks: what the higher levels save in size, they
// cost many times over in time.
const defaultLevel = 6

// compressor compresses with writers that are used again: a new one allocates and clears megabytes of tables, whatever
// the size of what is compressed.
type compressor struct {
	pool sync.Pool
}

func newCompressor(level int) *compressor {
	return &compressor{pool: sync.Pool{New: func() any {
		return brotli.NewWriterLevel(io.Discard, level)
	}}}
}

func (c *compressor) compress(data []byte) ([]byte, error) {
	var (
		out    bytes.Buffer
		writer = c.pool.Get().(*brotli.Writer)
	)

	writer.Reset(&out)
	_, err := writer.Write(data)
	if err = errors.Join(err, writer.Close()); err != nil {
		// A writer with an error is not put back.
		return nil, fmt.Errorf("compressing %d bytes: %w", len(data), err)
	}

	// Else the pool would keep the result alive.
	writer.Reset(io.Discard)
	c.pool.Put(writer)
	return out.Bytes(), nil
}
