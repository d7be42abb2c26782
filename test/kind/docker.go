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

// Docker is a daemon of the test's own, in namespaces of its own. Or it is podman, which has no daemon.
type Docker struct {
	// Folder keeps its programs and what it stores between runs.
	Folder string
	// Runtime starts containers (test/kind/caps).
	Runtime string
	// Apart gives the daemon a network to which the machine of the test is not connected, as if it ran in a virtual machine.
	Apart bool
	// Podman is used in place of Docker.
	Podman bool

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

// installed has podman where Debian's packages install it, in the namespaces alone. The shell reaps what outlives its parent.
const installed = `set -eu
hosts=$(</etc/hosts) resolver=$(</etc/resolv.conf)
mount --make-rprivate /
mount -t proc proc /proc
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
for folder in usr etc var/lib; do
  mkdir -p "$1/package/$folder" "/run/changed/$folder" "/run/work/$folder"
  mount -t overlay -o "lowerdir=$1/package/$folder:/$folder,upperdir=/run/changed/$folder,workdir=/run/work/$folder" overlay "/$folder"
done
rm -f /etc/hosts /etc/resolv.conf
echo "$hosts" >/etc/hosts
echo "$resolver" >/etc/resolv.conf
cp "$1/containers.conf" /etc/containers/
printf '[[registry]]\nlocation = "127.0.0.1:5001"\ninsecure = true\n' >/etc/containers/registries.conf.d/local.conf
for folder in /var/lib/containers /etc/containers/networks; do
  mkdir -p "$1/data$folder" "$folder"
  mount --bind "$1/data$folder" "$folder"
done
ip link set lo up
sleep infinity &
wait
`

// podmanConf has podman do without systemd.
const podmanConf = `[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
runtime = "caps"
[engine.runtimes]
caps = [%q]
[network]
network_backend = "netavark"
`

// Start starts the daemon and waits until it answers.
func (d *Docker) Start(ctx context.Context) error {
	if err := d.unpack(ctx); err != nil {
		return err
	}
	script, prefix := isolated, ""
	if d.Podman {
		script = installed
	}
	if d.Apart {
		prefix = "unshare --net"
	}
	if err := d.configure(); err != nil {
		return err
	}
	daemon := exec.Command("bash", "-c", script, "bash", d.Folder, prefix) // #nosec G204 //nolint:noctx // ends in Stop
	daemon.Env = d.environment()
	daemon.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Setpgid: true, Pdeathsig: syscall.SIGKILL,
	}
	if err := daemon.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", d.Program(), err)
	}
	d.daemon = daemon
	var err error
	for range 60 {
		if _, err = d.Run(ctx, d.Program(), "version"); err == nil {
			if d.Podman {
				return nil
			}
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
	return fmt.Errorf("%s does not answer, %s may have a log that says why: %w", d.Program(), d.Folder, err)
}

// Program is the one that speaks for the engine.
func (d *Docker) Program() string {
	if d.Podman {
		return "podman"
	}
	return "docker"
}

// configure writes the engine's configuration.
func (d *Docker) configure() error {
	if d.Podman {
		return os.WriteFile(filepath.Join(d.Folder, "containers.conf"), fmt.Appendf(nil, podmanConf, d.Runtime), 0o600)
	}
	config, err := json.Marshal(map[string]any{
		"data-root": filepath.Join(d.Folder, "data"), "hosts": []string{d.host()}, "cgroup-parent": "/" + d.cgroup(),
		"runtimes": map[string]any{"caps": map[string]any{"path": d.Runtime}}, "default-runtime": "caps",
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(d.Folder, "daemon.json"), config, 0o600)
}

// Stop ends the daemon and all containers.
func (d *Docker) Stop() error {
	if d.daemon == nil {
		return nil
	}
	// dockerd has time to write its state, podman needs none; the first process of the namespaces ends with it.
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
	if d.Podman {
		// Without systemd, it can't be told another one. Those that others use stay.
		return "libpod_parent"
	}
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
				if err := syscall.Rmdir(folder); !d.Podman || !errors.Is(err, syscall.EBUSY) {
					errs = append(errs, err)
				}
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
		return strings.HasPrefix(name, "DOCKER_") || strings.HasPrefix(name, "CONTAINER") || strings.Contains(strings.ToLower(name), "_proxy")
	})
	if d.Podman {
		return append(env, "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	}
	return append(env, "DOCKER_HOST="+d.host(), "DOCKER_CONFIG="+d.Folder,
		fmt.Sprintf("PATH=%[1]s/bin:%[1]s/sbin:%[2]s:/usr/sbin:/sbin", d.programs(), os.Getenv("PATH")))
}

// unpack gets Debian's packages without installing them: an installed one would start by itself.
func (d *Docker) unpack(ctx context.Context) error {
	program, get := "sbin/dockerd", "apt-get -q download docker.io"
	if d.Podman {
		program, get = "bin/podman", `mkdir -p partial
apt-get -q install --yes --reinstall --download-only --no-install-recommends -o "Dir::Cache::archives=$PWD" podman netavark aardvark-dns golang-github-containers-image
rm -r partial lock`
	}
	if _, err := os.Stat(filepath.Join(d.programs(), program)); err == nil {
		return nil
	}
	if err := os.MkdirAll(d.Folder, 0o755); err != nil { // #nosec G301 -- build output.
		return err
	}
	cmd := exec.CommandContext(ctx, "bash", "-euc", get+`
for package in *.deb; do dpkg-deb -x "$package" package; done
rm *.deb`)
	cmd.Dir = d.Folder
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("getting Debian's packages of %s ('apt-get update' may help): %w\n%s", d.Program(), err, out)
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
