// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package images says where each container image comes from, and makes those that are built here. Registry, admission
// policy and the step that pushes images all read the one table in images.yaml.
package images

import (
	_ "embed"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed images.yaml
var defaultTable []byte

// StubName is the entry of the table which everything that isn't real is answered with.
const StubName = "stub"

// Table is the content of images.yaml.
type Table struct {
	Real     []Real    `json:"real"`
	StandIns []StandIn `json:"standIns"`
}

// Real is an image that is made here from a static program.
type Real struct {
	// Name is the image's name in the landscape's registry, below "real/".
	Name string `json:"name"`
	// Repositories are the names others know it by, see the comment in images.yaml.
	Repositories []string `json:"repositories"`
	// Binary is the program's name in the binaries' folder; it becomes the entry point.
	Binary string `json:"binary"`
	// Step is the step of `up` that makes an image which is more than one program; it has no binary then.
	Step string `json:"step"`
	// User is the numeric user it runs as.
	User int `json:"user"`
	// Why is one line for the reader.
	Why string `json:"why"`
}

// StandIn is a group of images that are answered with the stub.
type StandIn struct {
	Repositories []string `json:"repositories"`
	Why          string   `json:"why"`
}

// Programs are the real images that are made from one program each.
func (t Table) Programs() []Real {
	return slices.DeleteFunc(slices.Clone(t.Real), func(r Real) bool { return r.Step != "" })
}

// Load reads the landscape's table.
func Load() (Table, error) { return Parse(defaultTable) }

// Parse reads a table strictly and checks that it is without contradiction.
func Parse(content []byte) (Table, error) {
	var table Table
	if err := yaml.UnmarshalStrict(content, &table); err != nil {
		return Table{}, fmt.Errorf("reading the table of images: %w", err)
	}
	return table, table.validate()
}

func (t Table) validate() error {
	var errs []error
	seen := map[string]bool{}
	check := func(repositories []string, why string) {
		if len(repositories) == 0 || why == "" {
			errs = append(errs, fmt.Errorf("table of images: an entry (%v) has no repositories or no why", repositories))
		}
		for _, repository := range repositories {
			if seen[repository] {
				errs = append(errs, fmt.Errorf("table of images: %s is listed twice", repository))
			}
			seen[repository] = true
		}
	}
	for _, real := range t.Real {
		check(real.Repositories, real.Why)
		if real.Name == "" || (real.Binary == "") == (real.Step == "") {
			errs = append(errs, fmt.Errorf("table of images: entry %v has no name, or not just one of binary and step", real.Repositories))
		}
	}
	for _, standIn := range t.StandIns {
		check(standIn.Repositories, standIn.Why)
	}
	if !slices.ContainsFunc(t.Real, func(r Real) bool { return r.Name == StubName }) {
		errs = append(errs, fmt.Errorf("table of images: there is no image %q", StubName))
	}
	return errors.Join(errs...)
}

// Match is what the table says about a repository.
type Match struct {
	// Image is the name of the image that answers for it: a real one's or StubName.
	Image string
	// Listed is false for a repository that the table doesn't know.
	Listed bool
}

// Lookup finds the image for a repository (without host and tag). A stand-in's longer name wins over a real one's shorter.
func (t Table) Lookup(repository string) Match {
	longest, match := 0, Match{Image: StubName}
	try := func(suffixes []string, image string) {
		for _, suffix := range suffixes {
			if len(suffix) > longest && (repository == suffix || strings.HasSuffix(repository, "/"+suffix)) {
				longest, match = len(suffix), Match{Image: image, Listed: true}
			}
		}
	}
	for _, real := range t.Real {
		try(real.Repositories, real.Name)
	}
	for _, standIn := range t.StandIns {
		try(standIn.Repositories, StubName)
	}
	return match
}

// RealPattern is an RE2 expression that matches a container's image reference if the table has a real image for it.
func (t Table) RealPattern() string {
	var repositories []string
	for _, real := range t.Real {
		if real.Name != StubName {
			repositories = append(repositories, real.Repositories...)
		}
	}
	return pattern(repositories)
}

// StandInPattern is the same for the stand-ins.
func (t Table) StandInPattern() string {
	var repositories []string
	for _, standIn := range t.StandIns {
		repositories = append(repositories, standIn.Repositories...)
	}
	return pattern(repositories)
}

func pattern(repositories []string) string {
	quoted := make([]string, 0, len(repositories))
	for _, repository := range repositories {
		quoted = append(quoted, regexp.QuoteMeta(repository))
	}
	slices.Sort(quoted)
	return "(^|/)(" + strings.Join(quoted, "|") + ")(:[^/@]*)?(@.*)?$"
}
