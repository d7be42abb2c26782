// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

func TestTheSchemaAcceptsOnlyWhatThereIs(t *testing.T) {
	for name, tc := range map[string]struct {
		values map[string]any
		says   string
	}{
		"a misspelt section":                 {with(gardenValues(), "x", "imagge"), "imagge"},
		"a misspelt controller":              {with(gardenValues(), map[string]any{}, "controllers", "dnsRecords"), "dnsRecords"},
		"a misspelt field of a controller":   {with(gardenValues(), 5, "controllers", "dnsRecord", "concurrentSync"), "concurrentSync"},
		"a misspelt field of CoreDNS":        {with(gardenValues(), "10.2.0.9", "dns", "coreDNS", "clusterIp"), "clusterIp"},
		"the Lease's name, which is fixed":   {with(gardenValues(), "mine", "leaderElection", "resourceName"), "resourceName"},
		"a class, which is fixed":            {with(gardenValues(), []any{"shoot"}, "extensionClasses"), "extensionClasses"},
		"a relative folder":                  {with(gardenValues(), "buckets", "backup", "hostPath"), "hostPath"},
		"no replicas but a word":             {with(gardenValues(), "many", "replicas"), "replicas"},
		"a digest that is none":              {with(gardenValues(), map[string]any{"repository": "a", "digest": "sha256:1"}, "image"), "digest"},
		"an unknown log level":               {with(gardenValues(), "chatty", "logLevel"), "logLevel"},
		"a garden that is neither nor":       {with(gardenValues(), "yes", "gardener", "runtimeCluster", "enabled"), "enabled"},
		"no image in a seed":                 {with(seedValues(), "", "image"), "spec.deployment.extension.values"},
		"no image for volumes in a seed":     {with(seedValues(), map[string]any{}, "controlPlane"), "controlPlane.localPathProvisioner.image is needed"},
		"a component that isn't there":       {with(seedValues(), 5, "charts", "source"), "source"},
		"a webhook that isn't there":         {with(seedValues(), map[string]any{}, "webhooks", "nodes"), "nodes"},
		"no image in the garden":             {with(gardenValues(), "", "image"), "image is needed"},
		"no image for CoreDNS in the garden": {with(gardenValues(), "", "dns", "coreDNS", "image"), "dns.coreDNS.image is needed"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := render("here", tc.values)
			g.Expect(err).To(MatchError(ContainSubstring(tc.says)))
		})
	}
}

func TestTheSchemaHasEveryFieldOfTheConfiguration(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(chartDirectory, "values.schema.json"))
	g.Expect(err).NotTo(HaveOccurred())
	schema := map[string]any{}
	g.Expect(json.Unmarshal(content, &schema)).To(Succeed())

	configuration := reflect.TypeFor[configv1alpha1.ExtensionConfiguration]()
	for _, section := range []string{"Server", "Controllers", "DNS", "Backup", "Webhooks", "Charts", "ControlPlane", "Machines", "Nodes", "LoadBalancers", "Ingress"} {
		field, ok := configuration.FieldByName(section)
		g.Expect(ok).To(BeTrue())
		expectFields(t, schema, schema, field)
	}
}

// expectFields expects the field of a struct, and all that it has itself, among the properties of a schema.
func expectFields(t *testing.T, root, schema map[string]any, field reflect.StructField) {
	t.Helper()
	g := NewWithT(t)

	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	properties, _ := schema["properties"].(map[string]any)
	g.Expect(properties).To(HaveKey(name), "values.schema.json lacks a field of the configuration")

	property, _ := properties[name].(map[string]any)
	if ref, ok := property["$ref"].(string); ok {
		definitions, _ := root["definitions"].(map[string]any)
		property, _ = definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
	}
	fieldType := field.Type
	if fieldType.Kind() == reflect.Pointer {
		fieldType = fieldType.Elem()
	}
	if fieldType.Kind() == reflect.Struct && fieldType.PkgPath() == reflect.TypeFor[configv1alpha1.ExtensionConfiguration]().PkgPath() {
		for i := range fieldType.NumField() {
			if inner := fieldType.Field(i); inner.Anonymous {
				for j := range inner.Type.NumField() {
					expectFields(t, root, property, inner.Type.Field(j))
				}
				continue
			}
			expectFields(t, root, property, fieldType.Field(i))
		}
	}
}
