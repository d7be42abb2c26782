// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// nodePackages are those of kind's base image as far as a node needs them, and what that image builds itself.
var nodePackages = []string{
	"bash", "ca-certificates", "conntrack", "containerd", "containernetworking-plugins", "ethtool", "iproute2", "iptables", "jq", "kmod",
	"libseccomp2", "mount", "nftables", "procps", "runc", "socat", "systemd-sysv", "util-linux",
}

// policies is the image in node/default-cni.yaml.
const policies = "registry.k8s.io/networking/kube-network-policies:v0.7.0"

// Builder makes images and loads them into Docker, which keeps them between runs.
type Builder struct {
	Docker *Docker
	// Bin has the programs, Kind is the folder of kind's Go module, and Node that of the files of a node.
	Bin, Kind, Node string
	// Report is told what takes long.
	Report func(format string, args ...any)
}

// NewBuilder returns the builder for a clone of the repository, in which `make` has built the programs.
func NewBuilder(ctx context.Context, root string, docker *Docker) (Builder, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return Builder{}, err
	}
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kind")
	list.Dir = filepath.Join(root, "hack", "tools", "kind")
	module, err := list.Output()
	if err != nil {
		return Builder{}, fmt.Errorf("looking for kind's module: %w", err)
	}
	return Builder{
		Docker: docker, Bin: filepath.Join(root, "bin", "landscape"), Kind: strings.TrimSpace(string(module)),
		Node: filepath.Join(root, "test", "kind", "node"),
	}, nil
}

// Images are the names of those that `make kind-up` needs. Cache is that of a pull-through cache, which the landscape's registry is not.
type Images struct {
	Node, Registry, Cache string
}

// Images makes sure that Docker has the images that `make kind-up` needs.
func (b Builder) Images(ctx context.Context) (Images, error) {
	registry, err := b.Program(ctx, "landscape", "/usr/local/bin/landscape", "registry", "--dir", "/registry", "--listen", ":5001", "--listen-for-caches", ":5002")
	if err != nil {
		return Images{}, err
	}
	cache, err := b.Program(ctx, "registry", "/usr/local/bin/registry")
	if err != nil {
		return Images{}, err
	}
	node, err := b.node(ctx)
	return Images{Node: node, Registry: registry, Cache: cache}, err
}

// Program makes sure that Docker has an image of one static program, and returns its name.
func (b Builder) Program(ctx context.Context, program string, entrypoint ...string) (string, error) {
	key, err := digest(filepath.Join(b.Bin, program))
	if err != nil {
		return "", err
	}
	image := b.repository() + program + ":" + key
	if b.has(ctx, image) {
		return image, nil
	}
	file, err := b.archive(image, program, nil, entrypoint...)
	if err != nil {
		return "", err
	}
	load := b.Docker.Command(ctx, b.Docker.Program(), "load")
	load.Stdin = bytes.NewReader(file)
	if out, err := load.CombinedOutput(); err != nil {
		return "", fmt.Errorf("loading %s: %w\n%s", image, err, out)
	}
	b.forget(ctx, image)
	return image, nil
}

// node makes sure that Docker has the node image, and returns its name.
func (b Builder) node(ctx context.Context) (string, error) {
	programs := []string{"coredns", "etcd", "kube-apiserver", "kube-controller-manager", "kube-proxy", "kube-scheduler", "kubeadm", "kubectl", "kube-network-policies", "kubelet", "stub"}
	inputs := []string{b.Node}
	for _, program := range programs {
		inputs = append(inputs, filepath.Join(b.Bin, program))
	}
	key, err := digest(inputs...)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(key + filepath.Base(b.Kind) + strings.Join(nodePackages, " ") + cgroupVersion()))
	image := b.repository() + "kind-node:" + hex.EncodeToString(sum[:8])
	if b.has(ctx, image) {
		return image, nil
	}
	b.Report("making the node image of %d packages of Debian, which takes some minutes", len(nodePackages))
	if err := os.MkdirAll(b.Docker.Folder, 0o755); err != nil { // #nosec G301 -- build output.
		return "", err
	}
	images, err := os.MkdirTemp(b.Docker.Folder, "images-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(images) }()
	if err := b.kubernetes(ctx, images); err != nil {
		return "", err
	}
	return image, b.mmdebstrap(ctx, []string{
		"--variant=minbase", "--include=" + strings.Join(nodePackages, ","),
		"--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*", "--dpkgopt=path-exclude=/usr/share/locale/*",
		fmt.Sprintf(`--customize-hook=%s/set-up "$1" '%s' '%s' '%s'`, b.Node, b.Kind, b.Bin, images),
	}, b.load(ctx, image, "ENV container=docker", `ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]`))
}

// Debian makes sure that Docker has an image with packages of Debian, and returns its name.
func (b Builder) Debian(ctx context.Context, packages ...string) (string, error) {
	sum := sha256.Sum256([]byte(strings.Join(packages, " ")))
	image := b.repository() + "debian:" + hex.EncodeToString(sum[:8])
	if b.has(ctx, image) {
		return image, nil
	}
	args := []string{"--variant=minbase", "--include=" + strings.Join(packages, ","), "--dpkgopt=path-exclude=/usr/share/doc/*", "--dpkgopt=path-exclude=/usr/share/man/*"}
	return image, b.mmdebstrap(ctx, args, b.load(ctx, image))
}

// load returns what makes an image of a file system.
func (b Builder) load(ctx context.Context, image string, changes ...string) func(io.Reader) error {
	return func(rootfs io.Reader) error {
		args := []string{b.Docker.Program(), "import"}
		for _, change := range changes {
			args = append(args, "--change", change)
		}
		load := b.Docker.Command(ctx, append(args, "-", image)...)
		load.Stdin = rootfs
		out, err := load.CombinedOutput()
		if err != nil {
			return fmt.Errorf("loading %s: %w\n%s", image, err, out)
		}
		b.forget(ctx, image)
		return nil
	}
}

// kubernetes writes the images that kubeadm and the network ask for into a folder.
func (b Builder) kubernetes(ctx context.Context, folder string) error {
	kubeadm := filepath.Join(b.Bin, "kubeadm")
	version, err := exec.CommandContext(ctx, kubeadm, "version", "--output", "short").Output() // #nosec G204 -- built by make.
	if err != nil {
		return fmt.Errorf("asking kubeadm for its version: %w", err)
	}
	list, err := exec.CommandContext(ctx, kubeadm, "config", "images", "list", "--kubernetes-version", strings.TrimSpace(string(version))).Output() // #nosec G204
	if err != nil {
		return fmt.Errorf("asking kubeadm for its images: %w", err)
	}
	for _, image := range append(strings.Fields(string(list)), policies) {
		reference, err := name.NewTag(image)
		if err != nil {
			return err
		}
		program := path.Base(reference.RepositoryStr())
		var base []byte
		switch program {
		case "pause":
			program = "stub"
		case "kube-proxy", "kube-network-policies":
			if base, err = b.iptables(ctx); err != nil {
				return err
			}
		}
		file, err := b.archive(image, program, base, "/usr/local/bin/"+program)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, program+".tar"), file, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// iptables is a file system with the programs that set rules.
func (b Builder) iptables(ctx context.Context) ([]byte, error) {
	args := []string{"--variant=extract", "--include=iptables,kmod", "--dpkgopt=path-exclude=/usr/share/*"}
	for _, link := range []string{"iptables", "iptables-restore", "iptables-save", "ip6tables", "ip6tables-restore", "ip6tables-save"} {
		args = append(args, `--extract-hook=ln -s xtables-nft-multi "$1"/usr/sbin/`+link)
	}
	var rootfs []byte
	err := b.mmdebstrap(ctx, args, func(from io.Reader) (err error) {
		rootfs, err = io.ReadAll(from)
		return err
	})
	return rootfs, err
}

// mmdebstrap makes a file system, and hands it over as a tar archive.
func (b Builder) mmdebstrap(ctx context.Context, args []string, use func(io.Reader) error) error {
	args = append(args, "--quiet", "--mode=root", "--format=tar", "--keyring=/usr/share/keyrings/debian-archive-keyring.gpg", "bookworm", "-")
	cmd := exec.CommandContext(ctx, "mmdebstrap", args...) // #nosec G204 -- from this file.
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	// Interrupted, it ends its whole process group.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting mmdebstrap: %w", err)
	}
	used := use(stdout)
	// Without a reader it would not end.
	_ = stdout.Close()
	if err := cmd.Wait(); err != nil && used == nil {
		return fmt.Errorf("mmdebstrap: %w\n%s", err, stderr.String())
	}
	return used
}

// archive is an image of a program in /usr/local/bin, as `docker load` and `ctr images import` take it.
func (b Builder) archive(image, program string, base []byte, entrypoint ...string) ([]byte, error) {
	reference, err := name.NewTag(image)
	if err != nil {
		return nil, err
	}
	content, err := os.ReadFile(filepath.Join(b.Bin, program))
	if err != nil {
		return nil, err
	}
	var layer bytes.Buffer
	layer.Grow(len(content) + 4096)
	writer := tar.NewWriter(&layer)
	for _, header := range []tar.Header{
		{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777},
		{Name: "usr/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "usr/local/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "usr/local/bin/", Typeflag: tar.TypeDir, Mode: 0o755},
		{Name: "usr/local/bin/" + program, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(content))},
	} {
		if err := writer.WriteHeader(&header); err != nil {
			return nil, err
		}
	}
	if _, err := writer.Write(content); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	layers := []v1.Layer{static.NewLayer(layer.Bytes(), types.DockerUncompressedLayer)}
	if base != nil {
		layers = []v1.Layer{static.NewLayer(base, types.DockerUncompressedLayer), layers[0]}
	}
	made, err := mutate.ConfigFile(empty.Image, &v1.ConfigFile{
		OS: "linux", Architecture: runtime.GOARCH, RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{Entrypoint: entrypoint, Env: []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}},
	})
	if err != nil {
		return nil, err
	}
	if made, err = mutate.AppendLayers(made, layers...); err != nil {
		return nil, err
	}
	var file bytes.Buffer
	err = tarball.Write(reference, made, &file)
	return file.Bytes(), err
}

// repository is that of the images. podman would put an image that has no registry in its name under localhost, where kind does not look.
func (b Builder) repository() string {
	if b.Docker.Podman {
		return "docker.io/provider-local/"
	}
	return "provider-local/"
}

// forget removes the images that were made of earlier inputs, unless a container is made of them.
func (b Builder) forget(ctx context.Context, image string) {
	repository, _, _ := strings.Cut(image, ":")
	list, err := b.Docker.Run(ctx, b.Docker.Program(), "images", "--format", "{{.Repository}}:{{.Tag}}", repository)
	if err != nil {
		return
	}
	for _, old := range strings.Fields(list) {
		if old != image {
			_, _ = b.Docker.Run(ctx, b.Docker.Program(), "rmi", old)
		}
	}
}

func (b Builder) has(ctx context.Context, image string) bool {
	_, err := b.Docker.Run(ctx, b.Docker.Program(), "image", "inspect", image)
	return err == nil
}

// digest sums up files by their contents.
func digest(paths ...string) (string, error) {
	hash := sha256.New()
	for _, root := range paths {
		err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			file, err := os.Open(path) // #nosec G304 -- of this repository, or built.
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }()
			_, _ = io.WriteString(hash, filepath.Base(path)+"\n")
			_, err = io.Copy(hash, file)
			return err
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}

func cgroupVersion() string {
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err == nil {
		return "2"
	}
	return "1"
}
