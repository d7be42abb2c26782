// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package layout knows where everything of the landscape is: folders below the repository, and the addresses of the
// landscape's network. Every other package asks here, so that `up`, `down` and `status` agree, and nothing is ever
// written outside of the two git-ignored folders.
package layout

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Names and ports of the landscape. Its addresses are those of a Network.
const (
	// Interface carries all addresses of the landscape, so that they go away as a whole.
	Interface = "pl0"
	// PodBridge connects the pods, and CNINetwork is the name of their network. Both are nobody else's.
	PodBridge  = "pl-pods"
	CNINetwork = "provider-local"
	// NodeName is the name of the only node.
	NodeName = "node1"
	// SeedName is the name of the garden as its own seed, SecondSeedName that of the second kind cluster.
	SeedName       = "local"
	SecondSeedName = "local2"
	// RegistryPort is the port of the registry, on the address of host services and on loopback.
	RegistryPort = 5001
	// RegistryHost is the registry's name in image and chart references: Gardener speaks plain HTTP to it.
	RegistryHost = "registry.local.gardener.cloud"
)

// moduleLine is how the go.mod in the repository's root starts.
const moduleLine = "module github.com/gardener/gardener-extension-provider-local"

// Layout is the set of folders and addresses of one landscape. The zero value is of no use; see Find.
type Layout struct {
	// Root is the repository's folder.
	Root string
	// Network is where its addresses are from.
	Network Network
	// Kind is the variant of the kind cluster (KIND_CLUSTER of `make kind-up`) that the landscape is in; empty on a bare machine.
	Kind string
}

// ErrNoClone says that a folder is not inside of this repository.
var ErrNoClone = errors.New("finding the repository")

// Find walks upwards from start to the repository's root. The network is that of the landscape which is there, or the default. The kernel
// lists mounts and programs by paths without symbolic links, so the root has none.
func Find(start string) (Layout, error) {
	dir, err := filepath.Abs(start)
	if err != nil {
		return Layout{}, fmt.Errorf("finding the repository from %s: %w", start, err)
	}
	if target, err := filepath.EvalSymlinks(dir); err == nil {
		dir = target
	}
	for {
		content, err := os.ReadFile(filepath.Join(dir, "go.mod")) // #nosec G304 -- only looks for the module's own file.
		if err == nil {
			first, _, _ := strings.Cut(string(content), "\n")
			if strings.TrimSpace(first) == moduleLine {
				if err := trusted(dir); err != nil {
					return Layout{}, fmt.Errorf("finding the repository from %s: %w", start, err)
				}
				found := Layout{Root: dir}
				found.Network, err = found.loadNetwork()
				return found, err
			}
		} else if !errors.Is(err, os.ErrNotExist) {
			return Layout{}, fmt.Errorf("finding the repository from %s: %w", start, err)
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return Layout{}, fmt.Errorf("%w from %s: no folder above it has a go.mod with %q; run it inside of a clone", ErrNoClone, start, moduleLine)
		}
		dir = parent
	}
}

// trusted refuses a clone in a folder for everybody, such as /tmp, unless it is one's own: root runs its programs.
func trusted(clone string) error {
	shared := func(folder string) (isShared bool, owner uint32, err error) {
		info, err := os.Stat(folder)
		if err != nil {
			return false, 0, err
		}
		return info.Mode()&os.ModeSticky != 0 && info.Mode()&0o002 != 0, info.Sys().(*syscall.Stat_t).Uid, nil
	}
	itself, owner, err := shared(clone)
	beside, _, errParent := shared(filepath.Dir(clone))
	if err := errors.Join(err, errParent); err != nil {
		return err
	}
	own := owner == 0 || int(owner) == os.Geteuid() || os.Geteuid() == 0 && strconv.Itoa(int(owner)) == os.Getenv("SUDO_UID")
	if itself || beside && !own {
		return fmt.Errorf("the clone %s is in a folder for everybody and may be another user's: use one of your own, elsewhere", clone)
	}
	return nil
}

// State returns a path below the state folder, which `make down` or `make kind-down` removes.
func (l Layout) State(elem ...string) string {
	folder := ".landscape"
	if l.Kind != "" {
		folder = kindState
	}
	return filepath.Join(append([]string{l.Root, folder}, elem...)...)
}

// Lock is the file that whoever changes the landscape has locked. It stays when the landscape goes, so that nobody begins another one before
// that.
func (l Layout) Lock() string { return filepath.Join(l.Root, "bin", filepath.Base(l.State())+".lock") }

// Binary returns the path of a program which the landscape builds; these stay between runs.
func (l Layout) Binary(name string) string {
	return filepath.Join(l.Root, "bin", "landscape", name)
}

// Module returns the folder of the landscape's Go module, or something below it.
func (l Layout) Module(elem ...string) string {
	return filepath.Join(append([]string{l.Root, "test", "landscape"}, elem...)...)
}

// MachineImages is the folder that keeps what the machine image is made of between runs.
func (l Layout) MachineImages() string { return filepath.Join(l.Root, "bin", "machine-image") }

// ImageBases is the folder that keeps what other images stand on between runs.
func (l Layout) ImageBases() string { return filepath.Join(l.Root, "bin", "image-bases") }

// Registry is the folder of the registry's images, which stay between runs: what has not changed is neither made nor pushed
// again.
func (l Layout) Registry() string { return filepath.Join(l.Root, "bin", "registry") }

// SkaffoldCache is the file in which Skaffold keeps what it has built and pushed into that registry. That of kind goes with its cluster.
func (l Layout) SkaffoldCache() string {
	if l.Kind != "" {
		return l.State("skaffold", "cache")
	}
	return filepath.Join(l.Root, "bin", "skaffold-cache")
}

// Kubeconfig is the admin's kubeconfig of the runtime cluster.
func (l Layout) Kubeconfig() string { return l.State("kubeconfig") }

// Second returns a path of the state of the second kind cluster (skaffold/kind/cluster).
func (l Layout) Second(elem ...string) string {
	return l.State(append([]string{"second"}, elem...)...)
}

// VirtualKubeconfig is the admin's kubeconfig of the virtual garden.
func (l Layout) VirtualKubeconfig() string { return l.State("virtual-garden", "kubeconfig") }

// ShootKubeconfig is an admin's kubeconfig of a Shoot that `up` creates.
func (l Layout) ShootKubeconfig(name string) string { return l.State("shoots", name+".kubeconfig") }

// Optional are the names under which programs and images are built only when asked for, of those that the landscape has: minor versions
// of Kubernetes and components.
func (l Layout) Optional() []string {
	content, _ := os.ReadFile(l.State("optional"))
	return strings.Fields(string(content))
}

// Milestones is the file with the times that `up` took.
func (l Layout) Milestones() string { return l.State("milestones.json") }

// Kubectl is the kubectl that fits the runtime cluster.
func (l Layout) Kubectl() string {
	if l.Kind != "" {
		return l.Binary("kubectl")
	}
	return l.State("bin", "kubectl")
}

// Plugins is the folder in which containerd finds the CNI plugins.
func (l Layout) Plugins() string { return l.State("bin", "cni") }

// ContainerdSocket is where the landscape's containerd listens.
func (l Layout) ContainerdSocket() string { return l.State("run", "containerd.sock") }

// Link leads to the state folder while there is a landscape. Objects name folders by it, so that they are right in any clone.
const Link = "/run/provider-local"

// Volumes is the folder of the default StorageClass.
func (l Layout) Volumes() string { return Link + "/volumes" }

// Backups is the folder in which the extension keeps backup buckets.
func (l Layout) Backups() string { return Link + "/backupbuckets" }

// Snapshots is the folder of what was saved, which stays when the landscape goes.
func (l Layout) Snapshots() string { return filepath.Join(l.Root, "bin", "snapshots") }

// AuditLog is the log of who wrote what to the runtime cluster; rotated files lie beside it.
func (l Layout) AuditLog() string { return l.State("audit", "audit.log") }
