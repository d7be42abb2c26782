// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// configVersion is the apiVersion of the file of --config, and configKind its kind. Its other fields are the flags of up (landscape.schema.json).
const (
	configVersion = "landscape.local.gardener.cloud/v1alpha1"
	configKind    = "Landscape"
	configFlag    = "config"
)

// configure sets the flags that were not given to what a file says.
func configure(cmd *cobra.Command, name string) error {
	content, err := os.ReadFile(name) // #nosec G304 -- the user's file.
	if err != nil {
		return err
	}
	fields := map[string]any{}
	if err := yaml.UnmarshalStrict(content, &fields); err != nil {
		return fmt.Errorf("reading %s: %w", name, err)
	}
	if fields["apiVersion"] != configVersion || fields["kind"] != configKind {
		return fmt.Errorf("reading %s: expected apiVersion %s and kind %s", name, configVersion, configKind)
	}
	delete(fields, "apiVersion")
	delete(fields, "kind")
	for field, value := range fields {
		flag := cmd.LocalNonPersistentFlags().Lookup(field)
		if flag == nil || field == configFlag || field == "help" {
			return fmt.Errorf("reading %s: there is no field %s; the fields are the flags of up", name, field)
		}
		if flag.Changed || value == nil {
			continue
		}
		text := fmt.Sprint(value)
		if list, is := value.([]any); is {
			var parts []string
			for _, part := range list {
				parts = append(parts, fmt.Sprint(part))
			}
			text = strings.Join(parts, ",")
		}
		if err := cmd.Flags().Set(field, text); err != nil {
			return fmt.Errorf("reading %s: %s: %w", name, field, err)
		}
	}
	return nil
}
