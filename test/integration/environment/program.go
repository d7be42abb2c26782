// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// module is that of this repository.
const module = "github.com/gardener/gardener-extension-provider-local"

// Program is one of this repository's programs, built for tests.
type Program struct {
	path string
}

// BuildProgram builds the program, such as "operator-extension", with the race detector, into dir.
func BuildProgram(dir, name string) (*Program, error) {
	root, err := moduleDir(module)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	cmd := exec.Command("go", "build", "-race", "-o", path, "./"+name) // #nosec G204 -- built by this repository
	cmd.Dir, cmd.Env = root, append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("building %s: %w: %s", name, err, out)
	}
	return &Program{path: path}, nil
}

// Tmpfs is a file system in memory that only the process sees which it is made for.
type Tmpfs struct {
	// Directory is where it is mounted.
	Directory string
	// Options are those of mount, such as "size=64k".
	Options string
}

// Start runs an instance as a process of its own, by the configuration and the access, which are written to dir.
func (p *Program) Start(dir, namespace string, config *configv1alpha1.ExtensionConfiguration, access *rest.Config, logs io.Writer, mounts ...Tmpfs) (*Process, error) {
	config = config.DeepCopy()
	config.APIVersion, config.Kind = configv1alpha1.SchemeGroupVersion.String(), "ExtensionConfiguration"
	config.ClientConnection.Kubeconfig = filepath.Join(dir, "kubeconfig")
	file, err := yaml.Marshal(config)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := kubeconfig(access)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, configFile)
	if err := errors.Join(os.WriteFile(path, file, 0o600), os.WriteFile(config.ClientConnection.Kubeconfig, kubeconfig, 0o600)); err != nil {
		return nil, err
	}
	// A data race ends the process.
	return startProcess(logs, []string{"LEADER_ELECTION_NAMESPACE=" + namespace, "GORACE=halt_on_error=1"}, mounts, p.path, "--config", path)
}

// Process is a running process.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// startProcess starts a command with further environment variables, in a mount namespace of its own if it has mounts.
func startProcess(logs io.Writer, env []string, mounts []Tmpfs, command ...string) (*Process, error) {
	attributes := &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if len(mounts) > 0 {
		attributes.Unshareflags = syscall.CLONE_NEWNS
		var script strings.Builder
		script.WriteString("set -e\n")
		for _, mount := range mounts {
			fmt.Fprintf(&script, "mount -t tmpfs -o '%s' tmpfs '%s'\n", mount.Options, mount.Directory)
		}
		script.WriteString(`exec "$@"`)
		command = append([]string{"sh", "-c", script.String(), "sh"}, command...)
	}
	cmd := exec.Command(command[0], command[1:]...) // #nosec G204 -- built by this repository
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdout, cmd.Stderr = logs, logs
	cmd.SysProcAttr = attributes
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait()
		close(p.done)
	}()
	return p, nil
}

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode is that of a process that has ended; -1 if a signal ended it.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// ID is that of the process.
func (p *Process) ID() int { return p.cmd.Process.Pid }

// Path returns where the files of the process are, which may see other file systems than we do.
func (p *Process) Path(path string) string {
	return filepath.Join("/proc", strconv.Itoa(p.ID()), "root", path)
}

// Kill ends the process at once, by SIGKILL.
func (p *Process) Kill(ctx context.Context) error { return p.end(ctx, syscall.SIGKILL) }

// Stop has the process end in order, by SIGTERM.
func (p *Process) Stop(ctx context.Context) error { return p.end(ctx, syscall.SIGTERM) }

func (p *Process) end(ctx context.Context, signal syscall.Signal) error {
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
