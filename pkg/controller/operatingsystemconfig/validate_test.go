// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

func TestPathsOfFiles(t *testing.T) {
	for path, valid := range map[string]bool{
		"/etc/a":                          true,
		"/etc/systemd/system/a@b.service": true,
		"/etc/containerd/certs.d/registry.local:5001/x.toml": true,
		"/var/lib/a+b,c=d%e~f_g-h":                           true,
		"":                                                   false,
		"/":                                                  false,
		"etc/a":                                              false,
		"/etc/../a":                                          false,
		"/etc/./a":                                           false,
		"/etc//a":                                            false,
		"/etc/a/":                                            false,
		"/etc/a b":                                           false,
		"/etc/a\nb":                                          false,
		"/etc/$(id)":                                         false,
		"/etc/`id`":                                          false,
		"/etc/a;id":                                          false,
		`/etc/"a"`:                                           false,
		"/etc/'a'":                                           false,
		"/etc/a*":                                            false,
		"/etc/ä":                                             false,
		"/" + strings.Repeat("a", 251):                       false,
	} {
		t.Run(path, func(t *testing.T) {
			spec := &extensionsv1alpha1.OperatingSystemConfigSpec{Files: []extensionsv1alpha1.File{inline(path, "", "x")}}
			g := NewWithT(t)
			if valid {
				g.Expect(validate(spec)).To(BeEmpty())
				return
			}
			g.Expect(validate(spec).ToAggregate()).To(MatchError(ContainSubstring("spec.files[0].path")))
		})
	}
}

func TestNamesOfUnitsAndDropIns(t *testing.T) {
	for _, test := range []struct {
		unit, dropIn, err string
	}{
		{unit: "a.service"},
		{unit: "a@b.service", dropIn: "10-a.conf"},
		{unit: `var-lib-a\x2db.mount`},
		{unit: "", err: "spec.units[0].name"},
		{unit: "a", err: "spec.units[0].name"},
		{unit: "a.conf", err: "spec.units[0].name"},
		{unit: "-a.service", err: "spec.units[0].name"},
		{unit: "../a.service", err: "spec.units[0].name"},
		{unit: "a b.service", err: "spec.units[0].name"},
		{unit: "a;id.service", err: "spec.units[0].name"},
		{unit: "a.service\nb.service", err: "spec.units[0].name"},
		{unit: strings.Repeat("a", 250) + ".service", err: "spec.units[0].name"},
		{unit: "a.service", dropIn: "a", err: "spec.units[0].dropIns[0].name"},
		{unit: "a.service", dropIn: "../a.conf", err: "spec.units[0].dropIns[0].name"},
		{unit: "a.service", dropIn: "$(id).conf", err: "spec.units[0].dropIns[0].name"},
	} {
		t.Run(test.unit+" "+test.dropIn, func(t *testing.T) {
			unit := extensionsv1alpha1.Unit{Name: test.unit}
			if test.dropIn != "" {
				unit.DropIns = []extensionsv1alpha1.DropIn{{Name: test.dropIn}}
			}
			g := NewWithT(t)
			err := validate(&extensionsv1alpha1.OperatingSystemConfigSpec{Units: []extensionsv1alpha1.Unit{unit}}).ToAggregate()
			if test.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
				return
			}
			g.Expect(err).To(MatchError(ContainSubstring(test.err)))
		})
	}
}

func TestWhatElseUserDataCannotHave(t *testing.T) {
	for name, test := range map[string]struct {
		file extensionsv1alpha1.File
		unit extensionsv1alpha1.Unit
		err  string
	}{
		"permissions beyond those of files": {file: inline("/a", "", "", mode(0o10000)), err: "spec.files[0].permissions"},
		"the name of a host that is none":   {file: inline("/a", "", "", host("$(id)")), err: "spec.files[0].hostName"},
		"a file without content":            {file: extensionsv1alpha1.File{Path: "/a"}, err: "give either inline or secretRef"},
		"a file of an image": {file: extensionsv1alpha1.File{Path: "/a", Content: extensionsv1alpha1.FileContent{
			ImageRef: &extensionsv1alpha1.FileContentImageRef{Image: "a"},
		}}, err: "spec.files[0].content.imageRef"},
		"a Secret without a key": {file: extensionsv1alpha1.File{Path: "/a", Content: extensionsv1alpha1.FileContent{
			SecretRef: &extensionsv1alpha1.FileContentSecretRef{Name: "a"},
		}}, err: "spec.files[0].content.secretRef"},
		"a command that systemctl has but the API has not": {
			file: inline("/a", "", ""),
			unit: extensionsv1alpha1.Unit{Name: "a.service", Command: new(extensionsv1alpha1.UnitCommand("isolate"))},
			err:  "spec.units[0].command",
		},
	} {
		t.Run(name, func(t *testing.T) {
			spec := &extensionsv1alpha1.OperatingSystemConfigSpec{Files: []extensionsv1alpha1.File{test.file}}
			if test.unit.Name != "" {
				spec.Units = []extensionsv1alpha1.Unit{test.unit}
			}
			NewWithT(t).Expect(validate(spec).ToAggregate()).To(MatchError(ContainSubstring(test.err)))
		})
	}
}
