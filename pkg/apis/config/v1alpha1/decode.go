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

// Load reads, defaults and validates the file at path. The file is decoded strictly: a field that does not exist or
// that is there twice is an error which names it.
func Load(path string) (*ExtensionConfiguration, error) {
	return load(path, Decode)
}

// LoadAdmission is Load for an AdmissionConfiguration.
func LoadAdmission(path string) (*AdmissionConfiguration, error) {
	return load(path, DecodeAdmission)
}

// LoadCloudController is Load for a CloudControllerConfiguration.
func LoadCloudController(path string) (*CloudControllerConfiguration, error) {
	return load(path, decodeCloudController)
}

// Decode decodes (strictly), defaults and validates a configuration in YAML or JSON.
func Decode(data []byte) (*ExtensionConfiguration, error) {
	return decode(data, &ExtensionConfiguration{}, Validate)
}

// DecodeAdmission is Decode for an AdmissionConfiguration.
func DecodeAdmission(data []byte) (*AdmissionConfiguration, error) {
	return decode(data, &AdmissionConfiguration{}, ValidateAdmission)
}

func decodeCloudController(data []byte) (*CloudControllerConfiguration, error) {
	return decode(data, &CloudControllerConfiguration{}, ValidateCloudController)
}

func load[C any](path string, decode func([]byte) (*C, error)) (*C, error) {
	data, err := os.ReadFile(path) // #nosec G304 -- the path is the operator's own, given on the command line
	if err != nil {
		return nil, fmt.Errorf("reading configuration: %w", err)
	}
	config, err := decode(data)
	if err != nil {
		return nil, fmt.Errorf("configuration %s: %w", path, err)
	}
	return config, nil
}

// decode decodes data into config and returns it, or nothing where it is wrong.
func decode[C runtime.Object](data []byte, config C, validate func(C) field.ErrorList) (none C, err error) {
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		return none, err
	}
	if err := singleDocument(data); err != nil {
		return none, err
	}
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(SchemeGroupVersion)
	if err := runtime.DecodeInto(decoder, data, config); err != nil {
		return none, fmt.Errorf("decoding: %w", err)
	}
	if err := validate(config).ToAggregate(); err != nil {
		return none, fmt.Errorf("validating: %w", err)
	}
	return config, nil
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
