// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Configuration is what a program or a command is told by a file.
type Configuration interface {
	runtime.Object
	// LogOptions returns the level and the format of the logs.
	LogOptions() (level, format string)
	// validate checks a defaulted configuration.
	validate() field.ErrorList
}

// Load reads, defaults and validates the file at path into an empty configuration. The file is decoded strictly: a field that does
// not exist or that is there twice is an error which names it.
func Load(path string, config Configuration) error {
	data, err := os.ReadFile(path) // #nosec G304 -- the path is the operator's own, given on the command line
	if err != nil {
		return fmt.Errorf("reading configuration: %w", err)
	}
	if err := Decode(data, config); err != nil {
		return fmt.Errorf("configuration %s: %w", path, err)
	}
	return nil
}

// Decode decodes (strictly), defaults and validates YAML or JSON into an empty configuration.
func Decode(data []byte, config Configuration) error {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return err
	}
	if err := singleDocument(data); err != nil {
		return err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(SchemeGroupVersion)
	if err := runtime.DecodeInto(decoder, data, config); err != nil {
		return fmt.Errorf("decoding: %w", err)
	}
	if err := config.validate().ToAggregate(); err != nil {
		return fmt.Errorf("validating: %w", err)
	}
	return nil
}

// singleDocument refuses a second YAML document: the decoder would ignore it without a word.
func singleDocument(data []byte) error {
	reader := yaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(data)))
	for documents := 0; ; {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("decoding: %w", err)
		}
		if len(bytes.TrimSpace(document)) > 0 {
			documents++
		}
		if documents > 1 {
			return errors.New("decoding: there is more than one YAML document, a program has one configuration")
		}
	}
}
