// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package bounds looks at what users have written before it is decoded, which may take a thousand times its length.
package bounds

import (
	"bytes"
	"errors"
	"fmt"
)

// maxYAML and maxYAMLElements are many times those of a kubeconfig, and of a configuration that Gardener writes for a component.
const maxYAML, maxYAMLElements = 256 << 10, 4 << 10

// Elements returns how many list elements and fields JSON has at most.
func Elements(data []byte) int { return count(data, ",[{") }

// count returns how many bytes of data are one of set.
func count(data []byte, set string) (found int) {
	for i := range len(set) {
		found += bytes.Count(data, []byte(set[i:i+1]))
	}
	return found
}

// CheckYAML refuses YAML that is long, has many elements or has aliases, before it is decoded. With aliases a document of some kilobytes
// can become gigabytes. What may be one is refused without a look at quotes: those who write these documents use none.
func CheckYAML(data []byte) error {
	if len(data) > maxYAML {
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(data), maxYAML)
	}
	// Before each element is one of these. What ends a line is not always \n.
	if elements := count(data, ",:?-[{"); elements > maxYAMLElements {
		return fmt.Errorf("it has up to %d list elements and fields, at most %d are allowed", elements, maxYAMLElements)
	}
	if bytes.Contains(data, []byte("&")) && bytes.Contains(data, []byte("*")) {
		return errors.New("YAML with anchors (&) and aliases (*) is not allowed")
	}
	return nil
}
