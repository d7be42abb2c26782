// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/spf13/cobra"

	"github.com/gardener/gardener-extension-provider-local/skaffold/publish/image"
)

const (
	module          = "github.com/gardener/gardener-extension-provider-local"
	versionVariable = "k8s.io/component-base/version.gitVersion"
	// fallbackVersion is the version of what is built outside of a git repository.
	fallbackVersion = "v0.0.0-dev"
)

// artifact is an image of this repository.
type artifact struct {
	// name is what the image is called: the repository below a registry, the file in bin/images, and the key among the
	// images of the chart skaffold/extension.
	name string
	// programs are what is in it, each at / and its name. The first one is the entrypoint.
	programs []program
}

// program is a Go program that becomes part of an image.
type program struct {
	name string
	// module is the folder of the Go module that is built in, pkg the package, which may be one that the module only pins.
	module, pkg string
}

// artifacts are the images of this repository, all of which the Extension names.
func artifacts() []artifact {
	const localPathProvisioner = "skaffold/images/local-path-provisioner"
	return []artifact{
		{name: "operator-extension", programs: []program{{name: "operator-extension", module: ".", pkg: "./operator-extension"}}},
		{name: "gardenlet-extension", programs: []program{{name: "gardenlet-extension", module: ".", pkg: "./gardenlet-extension"}}},
		{name: "coredns", programs: []program{{name: "coredns", module: "skaffold/images/coredns", pkg: "."}}},
		{name: "local-path-provisioner", programs: []program{
			{name: "local-path-provisioner", module: localPathProvisioner, pkg: "github.com/rancher/local-path-provisioner"},
			{name: "local-path-helper", module: localPathProvisioner, pkg: "./helper"},
		}},
	}
}

// artifactNames returns the names of all images, in the order of artifacts.
func artifactNames() []string {
	var names []string
	for _, artifact := range artifacts() {
		names = append(names, artifact.name)
	}
	return names
}

func artifactNamed(name string) (artifact, error) {
	for _, artifact := range artifacts() {
		if artifact.name == name {
			return artifact, nil
		}
	}
	return artifact{}, fmt.Errorf("--name %q: expected %s or %s", name, strings.Join(artifactNames(), ", "), strings.Join(chartNames(), ", "))
}

// build builds the programs of the image into a folder, and the image of them. The image reads the files again when it is
// pushed.
func (a artifact) build(cmd *cobra.Command, root, version, arch, folder string) (v1.Image, error) {
	spec := image.Spec{
		Entrypoint:   []string{"/" + a.programs[0].name},
		Labels:       map[string]string{"org.opencontainers.image.title": a.name},
		Architecture: arch,
	}
	for _, program := range a.programs {
		_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "building %s %s for linux/%s\n", program.name, version, arch)
		binary := filepath.Join(folder, program.name)
		if err := program.build(cmd, root, version, arch, binary); err != nil {
			return nil, fmt.Errorf("building %s: %w", program.name, err)
		}
		spec.Files = append(spec.Files, image.File{Source: binary, Destination: "/" + program.name})
	}

	img, err := image.Build(spec)
	if err != nil {
		return nil, fmt.Errorf("building image %s: %w", a.name, err)
	}
	return img, nil
}

// build builds the program as the file binary, statically.
func (p program) build(cmd *cobra.Command, root, version, arch, binary string) error {
	// #nosec G204 -- the arguments are this program's own
	build := exec.CommandContext(cmd.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w -X "+versionVariable+"="+version, "-o", binary, p.pkg)
	build.Dir = filepath.Join(root, p.module)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOWORK=off")
	build.Stdout, build.Stderr = cmd.ErrOrStderr(), cmd.ErrOrStderr()
	return build.Run()
}

// findRoot returns the folder of this repository, looking upwards from the working directory.
func findRoot() (string, error) {
	folder, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the repository: %w", err)
	}
	for {
		if moduleOf(filepath.Join(folder, "go.mod")) == module {
			return folder, nil
		}
		parent := filepath.Dir(folder)
		if parent == folder {
			return "", fmt.Errorf("finding the repository: no folder above has the go.mod of %s: run this inside of it", module)
		}
		folder = parent
	}
}

func moduleOf(file string) string {
	content, err := os.Open(file) // #nosec G304 -- a go.mod above the working directory
	if err != nil {
		return ""
	}
	defer func() { _ = content.Close() }()
	for lines := bufio.NewScanner(content); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "module "); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}

// gitDescription returns what git calls the working tree, nothing if there is no git or no repository. --tags makes it see
// lightweight tags too: actions/checkout turns annotated ones into those.
func gitDescription(ctx context.Context, root string) string {
	// #nosec G204 -- the argument is the repository's own folder
	out, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--tags", "--always", "--dirty").Output()
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(out))
}

var (
	semanticVersion = regexp.MustCompile(`^v[0-9]+\.[0-9]+\.[0-9]+([-+].*)?$`)
	notInVersion    = regexp.MustCompile(`[^A-Za-z0-9.-]+`)
	notInTag        = regexp.MustCompile(`[^A-Za-z0-9_.-]+`)
)

// versionOf turns git's description into a semantic version, since Kubernetes' libraries panic over any other.
func versionOf(description string) string {
	switch {
	case description == "":
		return fallbackVersion
	case semanticVersion.MatchString(description):
		return description
	default:
		return fallbackVersion + "+" + notInVersion.ReplaceAllString(description, "-")
	}
}

// tagOf turns a version into a tag, which has at most 128 characters and no plus sign.
func tagOf(version string) string {
	tag := strings.TrimLeft(notInTag.ReplaceAllString(version, "_"), ".-")
	return tag[:min(len(tag), 128)]
}
