// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Docker is a daemon of the test's own, in namespaces of its own.
type Docker struct {
	// Folder keeps its programs and what it stores between runs.
	Folder string
	// Runtime starts containers (test/kind/caps).
	Runtime string
	// Apart gives the daemon a network to which the machine of the test is not connected, as if it ran in a virtual machine.
	Apart bool

	daemon *exec.Cmd
}

// isolated is the first process in the namespaces. What it starts ends with it, and what it mounts goes with it. An empty /run hides
// the sockets of the machine's daemons: dockerd would use a containerd that it finds there. /etc/hosts is a copy, since names are added.
const isolated = `set -eu
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
cp /etc/hosts /run/hosts
mount --bind /run/hosts /etc/hosts
ip link set lo up
$2 dockerd --config-file "$1/daemon.json" >"$1/dockerd.log" 2>&1
`

// Start starts the daemon and waits until it answers.
func (d *Docker) Start(ctx context.Context) error {
	if err := d.unpack(ctx); err != nil {
		return err
	}
	config, err := json.Marshal(map[string]any{
		"data-root": filepath.Join(d.Folder, "data"), "hosts": []string{d.host()}, "cgroup-parent": "/" + d.cgroup(),
		"runtimes": map[string]any{"caps": map[string]any{"path": d.Runtime}}, "default-runtime": "caps",
	})
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(d.Folder, "daemon.json"), config, 0o600); err != nil {
		return err
	}
	prefix := ""
	if d.Apart {
		prefix = "unshare --net"
	}
	daemon := exec.Command("bash", "-c", isolated, "bash", d.Folder, prefix) // #nosec G204 //nolint:noctx // ends in Stop
	daemon.Env = d.environment()
	daemon.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Setpgid: true, Pdeathsig: syscall.SIGKILL,
	}
	if err := daemon.Start(); err != nil {
		return fmt.Errorf("starting dockerd: %w", err)
	}
	d.daemon = daemon
	for range 60 {
		if _, err = d.Run(ctx, "docker", "version"); err == nil {
			// A new network has it down.
			_, err = d.Run(ctx, "bash", "-c", "nsenter --net=/proc/$(</run/docker.pid)/ns/net ip link set lo up")
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
	return fmt.Errorf("dockerd does not answer, %s/dockerd.log says why: %w", d.Folder, err)
}

// Stop ends the daemon and all containers.
func (d *Docker) Stop() error {
	if d.daemon == nil {
		return nil
	}
	// dockerd has time to write its state; the first process of the namespaces ends with it.
	stop := exec.Command("nsenter", d.nsenter("bash", "-c", "kill $(</run/docker.pid)")...) // #nosec G204 //nolint:noctx // after the test
	ended := make(chan error, 1)
	go func() { ended <- d.daemon.Wait() }()
	if err := stop.Run(); err == nil {
		select {
		case <-ended:
			return d.removeCgroups()
		case <-time.After(20 * time.Second):
		}
	}
	_ = d.daemon.Process.Kill()
	<-ended
	return d.removeCgroups()
}

// Networks are files of the networks of the machine and of the daemon, which differ only if they are apart.
func (d *Docker) Networks() (machine, daemon string, err error) {
	process := filepath.Join("/proc", strconv.Itoa(d.daemon.Process.Pid))
	pid, err := os.ReadFile(filepath.Join(process, "root", "run", "docker.pid")) // #nosec G304 -- written by dockerd
	return filepath.Join(process, "ns", "net"), filepath.Join(process, "root", "proc", strings.TrimSpace(string(pid)), "ns", "net"), err
}

// cgroup is the parent of all containers. Each clone of the repository has one of its own, as their tests may run at a time.
func (d *Docker) cgroup() string {
	sum := sha256.Sum256([]byte(d.Folder))
	return "provider-local-kind-" + hex.EncodeToString(sum[:4])
}

// removeCgroups removes what containers leave that are killed.
func (d *Docker) removeCgroups() error {
	var errs []error
	for _, pattern := range []string{"/sys/fs/cgroup/" + d.cgroup(), "/sys/fs/cgroup/*/" + d.cgroup()} {
		roots, err := filepath.Glob(pattern)
		errs = append(errs, err)
		for _, root := range roots {
			var folders []string
			errs = append(errs, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
				if err == nil && entry.IsDir() {
					folders = append(folders, path)
				}
				return err
			}))
			for _, folder := range slices.Backward(folders) {
				errs = append(errs, syscall.Rmdir(folder))
			}
		}
	}
	return errors.Join(errs...)
}

func (d *Docker) host() string { return "unix://" + filepath.Join(d.Folder, "docker.sock") }

func (d *Docker) programs() string { return filepath.Join(d.Folder, "package", "usr") }

// environment has the package's programs before the machine's, and nothing that leads a client elsewhere.
func (d *Docker) environment() []string {
	env := slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return strings.HasPrefix(name, "DOCKER_") || strings.HasPrefix(name, "CONTAINER_") || strings.Contains(strings.ToLower(name), "_proxy")
	})
	return append(env, "DOCKER_HOST="+d.host(), "DOCKER_CONFIG="+d.Folder,
		fmt.Sprintf("PATH=%[1]s/bin:%[1]s/sbin:%[2]s:/usr/sbin:/sbin", d.programs(), os.Getenv("PATH")))
}

// unpack gets Debian's package without installing it: an installed one would start by itself.
func (d *Docker) unpack(ctx context.Context) error {
	if _, err := os.Stat(filepath.Join(d.programs(), "sbin", "dockerd")); err == nil {
		return nil
	}
	if err := os.MkdirAll(d.Folder, 0o755); err != nil { // #nosec G301 -- build output.
		return err
	}
	cmd := exec.CommandContext(ctx, "bash", "-euc", `apt-get -q download docker.io
dpkg-deb -x docker.io_*.deb package
rm docker.io_*.deb`)
	cmd.Dir = d.Folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("getting Debian's package docker.io ('apt-get update' may help): %w\n%s", err, out)
	}
	return nil
}

func (d *Docker) nsenter(args ...string) []string {
	return append([]string{"--target", strconv.Itoa(d.daemon.Process.Pid), "--net", "--mount", "--pid", "--"}, args...)
}

// Command returns a command that runs in the namespaces, for which Docker is this daemon. Without Start, it is the Docker of the
// machine.
func (d *Docker) Command(ctx context.Context, args ...string) *exec.Cmd {
	if d.daemon == nil {
		return exec.CommandContext(ctx, args[0], args[1:]...) // #nosec G204 -- from this package.
	}
	cmd := exec.CommandContext(ctx, "nsenter", d.nsenter(args...)...) // #nosec G204 -- a test's.
	cmd.Env = d.environment()
	return cmd
}

// Run runs such a command, and returns what it prints.
func (d *Docker) Run(ctx context.Context, args ...string) (string, error) {
	cmd := d.Command(ctx, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), nil
}
