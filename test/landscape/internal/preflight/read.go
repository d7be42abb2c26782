// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/host"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/invoker"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/process"
)

// overlayMagic is the type of an overlay file system (linux/magic.h).
const overlayMagic = 0x794c7630

// Read looks at the machine and changes nothing. own are the landscape's running processes; up says that devices and chains are
// the landscape's.
func Read(ctx context.Context, needs Needs, own []int, up bool) (Machine, error) {
	m := Machine{Root: os.Geteuid() == 0, Architecture: runtime.GOARCH}
	_, err := exec.LookPath("apt-get")
	m.HasApt = err == nil
	errs := []error{m.readRelease(), m.readCapabilities(), m.readMemory(), m.readDisks(needs.Disks)}
	m.Listeners, err = process.Listeners()
	errs = append(errs, err)
	m.readGo(ctx)
	m.MissingModules = host.MissingModules(ctx)
	m.MissingPackages = host.Missing()
	if m.HasApt && len(m.MissingPackages) > 0 {
		m.RemovedPackages = host.Removed(ctx, m.MissingPackages)
	}
	m.OtherLandscape = host.OtherLandscape(own)
	m.Kubernetes = host.OtherKubernetes(own)
	m.Routes, err = host.Routes(ctx)
	// Without the program there is nothing that routes were made with.
	if !errors.Is(err, exec.ErrNotFound) {
		errs = append(errs, err)
	}
	m.Routes = slices.DeleteFunc(m.Routes, host.ThroughOwnDevice)
	if !up && m.Root {
		m.Chains, err = host.KubernetesChains(ctx)
		errs = append(errs, err)
		m.Devices, err = host.OwnLinks()
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return Machine{}, fmt.Errorf("looking at the machine: %w", err)
	}
	return m, nil
}

func (m *Machine) readRelease() error {
	content, err := os.ReadFile("/etc/os-release")
	if errors.Is(err, os.ErrNotExist) {
		m.Distribution = "a system without /etc/os-release"
		return nil
	}
	values := map[string]string{}
	for line := range strings.Lines(string(content)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		values[key] = strings.Trim(value, `"'`)
	}
	m.Distribution = values["PRETTY_NAME"]
	m.Family = append(strings.Fields(values["ID_LIKE"]), values["ID"])
	return err
}

func (m *Machine) readCapabilities() error {
	content, err := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(content)) {
		if mask, found := strings.CutPrefix(line, "CapEff:"); found {
			m.Capabilities, err = strconv.ParseUint(strings.TrimSpace(mask), 16, 64)
		}
	}
	return err
}

func (m *Machine) readGo(ctx context.Context) {
	user, err := invoker.Current()
	if err != nil {
		m.GoError = err.Error()
		return
	}
	// Outside of the clone: a version that is too old refuses to say so beside a go.mod.
	cmd := exec.CommandContext(ctx, "go", "version")
	cmd.Dir = "/"
	out, err := user.Run(cmd).CombinedOutput()
	if err != nil {
		m.GoError = strings.TrimSpace(err.Error() + " " + string(out))
		return
	}
	m.Go = strings.TrimSpace(string(out))
}

func (m *Machine) readMemory() error {
	content, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return err
	}
	for scanner := bufio.NewScanner(bytes.NewReader(content)); scanner.Scan(); {
		fields := strings.Fields(scanner.Text())
		if len(fields) < 2 {
			continue
		}
		kilobytes, err := strconv.ParseUint(fields[1], 10, 64)
		if err != nil {
			continue
		}
		switch fields[0] {
		case "MemTotal:":
			m.Memory = kilobytes * 1024
		case "MemAvailable:":
			m.Available = kilobytes * 1024
		}
	}
	return nil
}

func (m *Machine) readDisks(disks []Disk) error {
	for _, disk := range disks {
		// The folder itself may have yet to be made.
		folder := disk.Folder
		for {
			if _, err := os.Stat(folder); err == nil || folder == "/" {
				break
			}
			folder = filepath.Dir(folder)
		}
		var space syscall.Statfs_t
		if err := syscall.Statfs(folder, &space); err != nil {
			return fmt.Errorf("looking at the disk of %s: %w", folder, err)
		}
		var file syscall.Stat_t
		if err := syscall.Stat(folder, &file); err != nil {
			return fmt.Errorf("looking at the disk of %s: %w", folder, err)
		}
		disk.Free, disk.FileSystem, disk.Overlay = space.Bavail*uint64(space.Bsize), file.Dev, space.Type == overlayMagic // #nosec G115 -- sizes.
		m.Disks = append(m.Disks, disk)
	}
	return nil
}
