// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package images says where each container image comes from, and makes those that are built here. Registry, admission
// policy and the step that pushes images all read the one table in images.yaml.
package images

import (
	_ "embed"
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

// Upstream is the optional name by which what would be answered with the stub comes from the registries of the originals.
const Upstream = "upstream"

// Has reports whether what has this optional name is in use, be it built or from upstream.
func Has(optional []string, name string) bool {
	return slices.Contains(optional, name) || slices.Contains(optional, Upstream)
}

// Kind tells what runs in the containers of an image.
type Kind string

const (
	// KindReal is what it says to be.
	KindReal Kind = "real"
	// KindFunctional is a program of the landscape that does the job of what can't be had.
	KindFunctional Kind = "functional"
	// KindStandIn is the stub, which only sleeps.
	KindStandIn Kind = "stand-in"
)

// Table is the content of images.yaml.
type Table struct {
	// Bases are file systems of Debian that images can stand on.
	Bases []Base `json:"bases"`
	Real  []Real `json:"real"`
	// Functional are stand-ins which do the job of the original, and take its command, mounts and probes.
	Functional []Real    `json:"functional"`
	StandIns   []StandIn `json:"standIns"`
	// Optional names the optional images that were asked for.
	Optional []string `json:"-"`
}

// Base is a file system of Debian's packages, as small as can be: without what makes it one that packages can be added to.
type Base struct {
	// Name is what an image calls it by.
	Name string `json:"name"`
	// Packages are unpacked with what they depend on; no script of theirs runs.
	Packages []string `json:"packages"`
	// Links are what these scripts would link to a program, by the program.
	Links map[string][]string `json:"links"`
	// Why is one line for the reader.
	Why string `json:"why"`
}

// Real is an image that is made here from static programs.
type Real struct {
	// Name is the image's name in the landscape's registry, below "real/".
	Name string `json:"name"`
	// Repositories are the names others know it by, see the comment in images.yaml.
	Repositories []string `json:"repositories"`
	// Binary is the program's name in the binaries' folder; at / it becomes the entry point.
	Binary string `json:"binary"`
	// Files are the programs of an image that needs them elsewhere; the first one becomes the entry point.
	Files []File `json:"files"`
	// Versions are the tags that are answered, where Gardener asks for an exact one; empty for any. The first one is what Binary
	// and Files are, the others are programs with -VERSION behind their names. The path in the image stays.
	Versions []string `json:"versions"`
	// Base is the name of what the image stands on; empty for nothing. With a base an image needs no programs.
	Base string `json:"base"`
	// Optional is the name by which it is asked for; without that, its repositories are answered with the stub. Empty for an image that
	// is always made.
	Optional string `json:"optional"`
	// Step is the step of `up` that makes an image which is more than programs; it has neither binary nor files then.
	Step string `json:"step"`
	// User is the numeric user it runs as.
	User int `json:"user"`
	// Why is one line for the reader.
	Why string `json:"why"`
}

// File is a program at its place in an image.
type File struct {
	// Path is absolute, inside of the image.
	Path string `json:"path"`
	// Binary is the program's name in the binaries' folder.
	Binary string `json:"binary"`
	// Shared tells that it is the same program in all versions of the image.
	Shared bool `json:"shared"`
}

// programs are the files of the image, in the order in which they were written; binary is short for one file.
func (r Real) programs() []File {
	if r.Binary != "" {
		return []File{{Path: "/" + r.Binary, Binary: r.Binary}}
	}
	return r.Files
}

// version is the image of a further version.
func (r Real) version(version string) Real {
	files := slices.Clone(r.programs())
	for i := range files {
		if !files[i].Shared {
			files[i].Binary += "-" + version
		}
	}
	r.Binary, r.Files = "", files
	return r
}

// StandIn is a group of images that are answered with the stub.
type StandIn struct {
	Repositories []string `json:"repositories"`
	Why          string   `json:"why"`
}

// Programs are the images that are made from programs, real ones and functional stand-ins.
func (t Table) Programs() []Real {
	return slices.DeleteFunc(t.made(), func(r Real) bool { return r.Step != "" })
}

// made are all images but the stand-ins' one.
func (t Table) made() []Real { return slices.Concat(t.Real, t.Functional) }

// Load reads the landscape's table. What is optional and not asked for is among the stand-ins, of which there are none with Upstream.
func Load(optional []string) (Table, error) {
	table, err := Parse(defaultTable)
	if err != nil {
		return Table{}, err
	}
	unused := func(r Real) bool { return r.Optional != "" && !slices.Contains(optional, r.Optional) }
	for _, real := range table.Real {
		if unused(real) {
			table.StandIns = append(table.StandIns, StandIn{Repositories: real.Repositories, Why: real.Why})
		}
	}
	table.Real = slices.DeleteFunc(table.Real, unused)
	if slices.Contains(optional, Upstream) {
		table.StandIns = nil
	}
	table.Optional = optional
	return table, nil
}

// Parse reads a table strictly. A test checks that the landscape's is without contradiction.
func Parse(content []byte) (Table, error) {
	var table Table
	if err := yaml.UnmarshalStrict(content, &table); err != nil {
		return Table{}, fmt.Errorf("reading the table of images: %w", err)
	}
	return table, nil
}

// Match is what the table says about a repository.
type Match struct {
	// Image is the name of the image that answers for it: a real one's or StubName.
	Image string
	// Exact is true if tags other than those which were pushed don't exist.
	Exact bool
	// Kind tells what that image is.
	Kind Kind
}

// Lookup finds the image for a repository (without host and tag), if the table has one. A stand-in's longer name wins over a real
// one's shorter.
func (t Table) Lookup(repository string) (match Match, listed bool) {
	longest := 0
	try := func(suffixes []string, found Match) {
		for _, suffix := range suffixes {
			if len(suffix) > longest && StandsFor(suffix, repository) {
				longest, match = len(suffix), found
			}
		}
	}
	for kind, list := range map[Kind][]Real{KindReal: t.Real, KindFunctional: t.Functional} {
		for _, real := range list {
			try(real.Repositories, Match{Image: real.Name, Kind: kind, Exact: len(real.Versions) > 0})
		}
	}
	for _, standIn := range t.StandIns {
		try(standIn.Repositories, Match{Image: StubName, Kind: KindStandIn})
	}
	return match, longest > 0
}

// StandsFor reports whether a name without host, such as "gardener/etcd-druid", stands for a repository: it is the whole of it, or
// its end after a slash.
func StandsFor(name, repository string) bool {
	return repository == name || strings.HasSuffix(repository, "/"+name)
}

// RealPattern is an RE2 expression that matches a container's image reference if the table has an image for it that runs
// as its container says: a real one, or a functional stand-in.
func (t Table) RealPattern() string {
	var repositories []string
	for _, real := range t.made() {
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
	if len(repositories) == 0 {
		return "^$"
	}
	quoted := make([]string, 0, len(repositories))
	for _, repository := range repositories {
		quoted = append(quoted, regexp.QuoteMeta(repository))
	}
	slices.Sort(quoted)
	return "(^|/)(" + strings.Join(quoted, "|") + ")(:[^/@]*)?(@.*)?$"
}
