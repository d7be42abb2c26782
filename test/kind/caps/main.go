// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command caps is a runtime for dockerd or podman on a machine whose capabilities are bounded, such as a container or some virtual machines:
// runc refuses to give a privileged container what this process may not have. It takes those capabilities out of what dockerd
// asks for, and becomes runc. Where nothing lacks, it takes out nothing.
package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "caps:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	lacking, err := missing(status)
	if err != nil {
		return err
	}
	// `runc create --bundle FOLDER` starts a container, `runc exec --process FILE` a process in it.
	for i, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok && i+1 < len(args) {
			value = args[i+1]
		}
		switch name {
		case "--bundle", "-b":
			err = edit(filepath.Join(value, "config.json"), lacking)
		case "--process", "-p":
			err = edit(value, lacking)
		}
		if err != nil {
			return err
		}
	}
	// podman gives it no PATH.
	if os.Getenv("PATH") == "" {
		if err := os.Setenv("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"); err != nil {
			return err
		}
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		return err
	}
	return syscall.Exec(runc, append([]string{"runc"}, args...), os.Environ()) // #nosec G204 -- what dockerd calls.
}

// edit takes capabilities out of a container's configuration or a process' one.
func edit(path string, lacking map[string]bool) error {
	content, err := os.ReadFile(path) // #nosec G304 -- dockerd names it.
	if err != nil {
		return err
	}
	edited, err := without(content, lacking)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return os.WriteFile(path, edited, 0o600)
}
