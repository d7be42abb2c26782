// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"bytes"
	"errors"
	"fmt"
)

// maxYAML is many times the length of a kubeconfig or of a configuration that Gardener writes for a component.
const maxYAML = 256 << 10

// CheckYAML refuses YAML that is long or has aliases, before it is decoded. With aliases a document of some kilobytes can
// become gigabytes. What may be one is refused without a look at quotes: those who write these documents use none.
func CheckYAML(data []byte) error {
	if len(data) > maxYAML {
		return fmt.Errorf("it has %d bytes, at most %d are allowed", len(data), maxYAML)
	}
	if bytes.Contains(data, []byte("&")) && bytes.Contains(data, []byte("*")) {
		return errors.New("YAML with anchors (&) and aliases (*) is not allowed")
	}
	return nil
}
