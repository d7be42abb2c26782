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

// program is a Go program of this repository that becomes an image.
type program struct {
	// name is what the image, the binary and its path in the image are called.
	name string
	// module is the folder of the Go module, pkg the package in it.
	module, pkg string
}

func programs() []program {
	return []program{
		{name: imageOperatorExtension, module: ".", pkg: "./operator-extension"},
		{name: imageCoreDNS, module: "skaffold/images/coredns", pkg: "."},
	}
}

func programNamed(name string) (program, error) {
	for _, program := range programs() {
		if program.name == name {
			return program, nil
		}
	}
	return program{}, fmt.Errorf("--name %q: expected %s, %s or %s", name, imageOperatorExtension, imageCoreDNS, chartFolder)
}

// buildProgram builds a program of this repository as the file binary, and an image of it. The image reads the file again
// when it is pushed.
func buildProgram(cmd *cobra.Command, root, name, version, arch, binary string) (v1.Image, error) {
	program, err := programNamed(name)
	if err != nil {
		return nil, err
	}
	_, _ = fmt.Fprintf(cmd.ErrOrStderr(), "building %s %s for linux/%s\n", name, version, arch)

	// #nosec G204 -- the arguments are this program's own
	build := exec.CommandContext(cmd.Context(), "go", "build", "-trimpath", "-ldflags", "-s -w -X "+versionVariable+"="+version, "-o", binary, program.pkg)
	build.Dir = filepath.Join(root, program.module)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH="+arch, "GOWORK=off")
	build.Stdout, build.Stderr = cmd.ErrOrStderr(), cmd.ErrOrStderr()
	if err := build.Run(); err != nil {
		return nil, fmt.Errorf("building %s: %w", name, err)
	}

	img, err := image.Build(image.Spec{
		Files:        []image.File{{Source: binary, Destination: "/" + name}},
		Entrypoint:   []string{"/" + name},
		Labels:       map[string]string{"org.opencontainers.image.title": name},
		Architecture: arch,
	})
	if err != nil {
		return nil, fmt.Errorf("building image %s: %w", name, err)
	}
	return img, nil
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

// gitDescription returns what git calls the working tree, nothing if there is no git or no repository.
func gitDescription(ctx context.Context, root string) string {
	// #nosec G204 -- the argument is the repository's own folder
	out, err := exec.CommandContext(ctx, "git", "-C", root, "describe", "--always", "--dirty").Output()
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
