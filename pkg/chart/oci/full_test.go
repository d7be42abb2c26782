// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

// A mount namespace of its own keeps the small file system from the machine.
func TestADiskThatIsFullIsNoReasonToFail(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	const directory = "PROVIDER_LOCAL_TEST_SMALL_DISK"
	dir := os.Getenv(directory)
	if dir == "" {
		command := exec.CommandContext(t.Context(), "unshare", "--mount", os.Args[0], "-test.run", "^"+t.Name()+"$") // #nosec G204,G702 -- this test.
		command.Env = append(os.Environ(), directory+"="+t.TempDir())
		out, err := command.CombinedOutput()
		NewWithT(t).Expect(err).NotTo(HaveOccurred(), string(out))
		return
	}
	NewWithT(t).Expect(syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=1m")).To(Succeed())

	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t, func(s *setup) { s.Directory = dir })
	config := ref(registry.host(), "v1")
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	filler := filepath.Join(dir, "filler")
	g.Expect(os.WriteFile(filler, make([]byte, 2<<20), 0o600)).To(MatchError(syscall.ENOSPC))
	w.expect(config, "1.0.0")
	g.Expect(files(t, w)).To(HaveExactElements("filler"), "there is no room for more")
	w.expect(config, "1.0.0")

	g.Expect(os.Remove(filler)).To(Succeed())
	registry.push(t, "v2", pack(t, "2.0.0", nil))
	w.expect(ref(registry.host(), "v2"), "2.0.0")
	g.Expect(files(t, w)).To(HaveLen(1), "there is room again")
}
