// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/andybalholm/brotli"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
)

// MaxDecompressedBytes is how much Objects decompresses at most. A Secret has at most 1 MiB and YAML of Kubernetes
// objects shrinks to about a tenth; a stream of 1 MiB that is made for it unfolds to gigabytes.
const MaxDecompressedBytes = 32 << 20

// TooLargeError tells that the data of a Secret unfolds to more than is read.
type TooLargeError struct {
	// Key is the key in the Secret's data.
	Key string
	// Limit is in bytes.
	Limit int64
}

// Error implements error.
func (e *TooLargeError) Error() string {
	return fmt.Sprintf("key %q unfolds to more than the limit of %d bytes", e.Key, e.Limit)
}

// Objects returns the objects in the data of a ManagedResource's Secret, as *unstructured.Unstructured: keys in sorted
// order, and in each the documents in theirs. Values of keys that end in ".br" are decompressed. The error is or wraps a
// *TooLargeError if all the values together unfold to more than MaxDecompressedBytes.
func Objects(secretData map[string][]byte) ([]client.Object, error) {
	return objects(secretData, MaxDecompressedBytes)
}

func objects(secretData map[string][]byte, limit int64) ([]client.Object, error) {
	var (
		out  []client.Object
		left = limit
	)

	for _, key := range slices.Sorted(maps.Keys(secretData)) {
		text, err := decompress(key, secretData[key], left)
		if err != nil {
			if tooLarge := (*TooLargeError)(nil); errors.As(err, &tooLarge) {
				tooLarge.Limit = limit
			}
			return nil, fmt.Errorf("reading data of ManagedResource secret: %w", err)
		}
		left -= int64(len(text))

		objs, err := parse(text)
		if err != nil {
			return nil, fmt.Errorf("reading data of ManagedResource secret: key %q: %w", key, err)
		}
		out = append(out, objs...)
	}
	return out, nil
}

func decompress(key string, value []byte, limit int64) ([]byte, error) {
	var reader io.Reader = bytes.NewReader(value)
	if strings.HasSuffix(key, resourcesv1alpha1.BrotliCompressionSuffix) {
		reader = brotli.NewReader(reader)
	}

	// One byte more than allowed tells a value of just the limit from a larger one.
	text, err := io.ReadAll(io.LimitReader(reader, limit+1))
	if err != nil {
		return nil, fmt.Errorf("key %q is not a Brotli stream: %w", key, err)
	}
	if int64(len(text)) > limit {
		return nil, &TooLargeError{Key: key}
	}
	return text, nil
}

func parse(text []byte) ([]client.Object, error) {
	var (
		out    []client.Object
		reader = utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	)

	for i := 1; ; i++ {
		raw, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}

		asJSON, err := yaml.YAMLToJSON(raw)
		if err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		if bytes.Equal(asJSON, []byte("null")) {
			continue
		}

		// Unlike a plain map, this keeps integers integers.
		obj := &unstructured.Unstructured{}
		if err := obj.UnmarshalJSON(asJSON); err != nil {
			return nil, fmt.Errorf("document %d: %w", i, err)
		}
		out = append(out, obj)
	}
}
