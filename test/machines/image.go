// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// files has what a machine's disk has beside packages, and the scripts that run in machines.
//
//go:embed files
var files embed.FS

// stock is what a machine has before anybody thinks of Gardener: a Debian as its installer leaves it, and the prerequisites of
// the README (git and make; Go is copied to /usr/local/go).
var stock = []string{
	"apparmor", "ca-certificates", "dbus", "git", "linux-image-cloud-amd64", "make", "openssh-server", "sudo", "systemd-sysv",
}

// Image is a Debian on a disk.
type Image struct {
	// Release is the code name of a release of Debian.
	Release string
	// Packages are installed beside the stock ones.
	Packages []string
}

// diskSize is that of the root disk, which is sparse.
const diskSize = "12G"

// arguments are those of mmdebstrap. What the hooks need follows in Build.
func (i Image) arguments() []string {
	return []string{
		"--quiet", "--mode=root", "--format=directory", "--variant=important",
		"--include=" + strings.Join(slices.Concat(stock, i.Packages), ","),
		// With the lists of packages, apt-get update has little to do, as on any machine that is in use.
		"--skip=cleanup/apt/lists",
		// A stock Debian has its documentation; nobody reads it here.
		"--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		"--dpkgopt=path-exclude=/usr/share/doc/*",
	}
}

// Disk is a built Image: file names.
type Disk struct {
	Root, Kernel, Initrd string
}

// Store keeps images between runs.
type Store struct {
	// Folder has nothing else in it.
	Folder string
	// Report is told what takes long.
	Report func(format string, args ...any)
}

// Key returns the key by which the test logs in. It is made once, and the images let it in.
func (s Store) Key() (ssh.Signer, error) {
	path := filepath.Join(s.Folder, "ssh-key")
	content, err := os.ReadFile(path) // #nosec G304 -- made below.
	if errors.Is(err, os.ErrNotExist) {
		_, private, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fmt.Errorf("making a key: %w", err)
		}
		block, err := ssh.MarshalPrivateKey(private, "test-machines")
		if err != nil {
			return nil, fmt.Errorf("making a key: %w", err)
		}
		content = pem.EncodeToMemory(block)
		if err := errors.Join(os.MkdirAll(s.Folder, 0o755), os.WriteFile(path, content, 0o600)); err != nil { // #nosec G301 -- build output.
			return nil, fmt.Errorf("making a key: %w", err)
		}
	} else if err != nil {
		return nil, fmt.Errorf("reading the key for machines: %w", err)
	}
	key, err := ssh.ParsePrivateKey(content)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w; remove it", path, err)
	}
	return key, nil
}

// Build returns the disk of an image, and makes it unless that was done before.
func (s Store) Build(ctx context.Context, image Image) (Disk, error) {
	overlay, err := s.overlay(ctx)
	if err != nil {
		return Disk{}, err
	}
	version, err := output(ctx, "go", "env", "GOVERSION", "GOROOT")
	if err != nil {
		return Disk{}, err
	}
	goVersion, goRoot, _ := strings.Cut(strings.TrimSpace(version), "\n")
	sum := sha256.Sum256(slices.Concat([]byte(strings.Join(append(image.arguments(), image.Release, diskSize, goVersion, runtime.GOARCH), "\n")), overlay))
	folder := filepath.Join(s.Folder, image.Release+"-"+hex.EncodeToString(sum[:6]))
	disk := Disk{Root: filepath.Join(folder, "root.img"), Kernel: filepath.Join(folder, "vmlinuz"), Initrd: filepath.Join(folder, "initrd")}
	if _, err := os.Stat(folder); err == nil {
		// By their times, stale images are told from those in use.
		return disk, os.Chtimes(folder, time.Time{}, time.Now())
	}
	begin := time.Now()
	s.Report("making a disk with Debian %s %s", image.Release, strings.Join(image.Packages, " "))
	half := folder + ".part"
	rootfs := filepath.Join(half, "rootfs")
	if err := errors.Join(os.RemoveAll(half), os.MkdirAll(half, 0o755)); err != nil { // #nosec G301 -- build output.
		return Disk{}, fmt.Errorf("making a disk: %w", err)
	}
	defer func() { _ = os.RemoveAll(half) }()
	tarFile := filepath.Join(half, "overlay.tar")
	if err := os.WriteFile(tarFile, overlay, 0o600); err != nil {
		return Disk{}, fmt.Errorf("making a disk: %w", err)
	}
	args := append(image.arguments(),
		"--customize-hook=tar-in "+tarFile+" /",
		fmt.Sprintf(`--customize-hook=cp -a '%s' "$1"/usr/local/go`, goRoot),
		`--customize-hook=chroot "$1" sh /usr/local/sbin/machine-setup`,
		image.Release, rootfs)
	if err := run(ctx, "mmdebstrap", args...); err != nil {
		return Disk{}, err
	}
	for pattern, name := range map[string]string{"boot/vmlinuz-*": "vmlinuz", "boot/initrd.img-*": "initrd"} {
		found, err := filepath.Glob(filepath.Join(rootfs, pattern))
		if err != nil || len(found) != 1 {
			return Disk{}, fmt.Errorf("making a disk: expected one %s, found %d", pattern, len(found))
		}
		if err := run(ctx, "cp", found[0], filepath.Join(half, name)); err != nil {
			return Disk{}, err
		}
	}
	if err := Mke2fs(ctx, rootfs, filepath.Join(half, "root.img"), diskSize); err != nil {
		return Disk{}, err
	}
	if err := errors.Join(os.RemoveAll(rootfs), os.Remove(tarFile), os.Rename(half, folder)); err != nil {
		return Disk{}, fmt.Errorf("making a disk: %w", err)
	}
	s.Report("made it in %.0fs", time.Since(begin).Seconds())
	return disk, nil
}

// Mke2fs makes a sparse image of a file system with what is in folder.
func Mke2fs(ctx context.Context, folder, image, size string) error {
	// Without lazy initialisation the kernel would have nothing to do with it later; with a sparse file all of it is zero anyhow.
	return run(ctx, "mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=1,lazy_journal_init=1,assume_storage_prezeroed=1",
		"-m", "0", "-d", folder, image, size)
}

// overlay is a tar of what is laid over the packages: the embedded files, the key to log in with, and what this machine needs
// to reach package mirror and Go proxy: the authorities that it trusts besides Debian's, apt's proxies, and settings of Go.
func (s Store) overlay(ctx context.Context) ([]byte, error) {
	key, err := s.Key()
	if err != nil {
		return nil, err
	}
	content := map[string][]byte{"root/.ssh/authorized_keys": ssh.MarshalAuthorizedKey(key.PublicKey())}
	err = fs.WalkDir(files, "files/root", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		file, err := files.ReadFile(path)
		content[strings.TrimPrefix(path, "files/root/")] = file
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("reading embedded files: %w", err)
	}
	authorities, err := filepath.Glob("/usr/local/share/ca-certificates/*.crt")
	if err != nil {
		return nil, err
	}
	for _, path := range authorities {
		if content[path[1:]], err = os.ReadFile(path); err != nil { // #nosec G304 -- certificates of this machine.
			return nil, fmt.Errorf("reading what this machine trusts: %w", err)
		}
	}
	if proxies, err := output(ctx, "apt-config", "dump", "Acquire::http::Proxy", "Acquire::https::Proxy"); err == nil {
		content["etc/apt/apt.conf.d/90host"] = []byte(proxies)
	}
	settings, err := output(ctx, "go", "env", "GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE")
	if err != nil {
		return nil, err
	}
	var env strings.Builder
	values := strings.Split(settings, "\n")
	for i, name := range []string{"GOPROXY", "GOSUMDB", "GONOSUMDB", "GOPRIVATE"} {
		if values[i] != "" {
			_, _ = fmt.Fprintf(&env, "%s=%s\n", name, values[i])
		}
	}
	for _, home := range []string{"root", "home/dev"} {
		content[home+"/.config/go/env"] = []byte(env.String())
	}

	var out bytes.Buffer
	writer := tar.NewWriter(&out)
	names := make([]string, 0, len(content))
	for name := range content {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		mode := int64(0o644)
		if strings.Contains(name, "/sbin/") {
			mode = 0o755
		}
		if err := writer.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(content[name])), Format: tar.FormatPAX}); err != nil {
			return nil, err
		}
		if _, err := writer.Write(content[name]); err != nil {
			return nil, err
		}
	}
	err = writer.Close()
	return out.Bytes(), err
}

// run runs a command of this machine, which fails with the end of its output.
func run(ctx context.Context, name string, args ...string) error {
	_, err := output(ctx, name, args...)
	return err
}

func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...) // #nosec G204 -- commands of this package.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	// Interrupted, mmdebstrap has to unmount what it has mounted.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	var stdout, all bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.MultiWriter(&stdout, &all), &all
	if err := cmd.Run(); err != nil {
		lines := strings.Split(strings.TrimSpace(all.String()), "\n")
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.Join(lines[max(0, len(lines)-10):], "\n"))
	}
	return stdout.String(), nil
}
