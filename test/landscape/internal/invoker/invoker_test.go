// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package invoker_test

import (
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/invoker"
)

// nobody is a user that every Debian has.
const nobody = "65534"

func TestWhatIsBuiltBelongsToWhoCalledSudo(t *testing.T) {
	g := NewWithT(t)
	if os.Geteuid() != 0 {
		t.Skip("only root may run commands as another user")
	}
	t.Setenv("SUDO_UID", nobody)
	user, err := invoker.Current()
	g.Expect(err).NotTo(HaveOccurred())

	cmd := exec.CommandContext(t.Context(), "sh", "-c", "id -u; echo $HOME")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/root"}
	out, err := user.Run(cmd).Output()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Fields(string(out))).To(Equal([]string{nobody, "/nonexistent"}))

	root := t.TempDir()
	file, other := filepath.Join(root, "dir", "file"), filepath.Join(root, "dir", "other")
	g.Expect(os.MkdirAll(filepath.Dir(file), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(file, nil, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(other, nil, 0o600)).To(Succeed())
	g.Expect(os.Chown(other, 1, 1)).To(Succeed())
	g.Expect(os.Symlink("/etc/hostname", filepath.Join(root, "dir", "link"))).To(Succeed())
	g.Expect(user.OwnOnly(filepath.Join(root, "dir"), filepath.Join(root, "none"))).To(Succeed())
	info, err := os.Stat(file)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Sys().(*syscall.Stat_t).Uid).To(BeZero(), "only the folder itself")
	g.Expect(user.Own(filepath.Join(root, "dir"), filepath.Join(root, "none"))).To(Succeed())
	for path, uid := range map[string]uint32{filepath.Dir(file): 65534, file: 65534, other: 1, "/etc/hostname": 0} {
		info, err := os.Stat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Sys().(*syscall.Stat_t).Uid).To(Equal(uid), path)
	}
}

func TestRootItselfStaysRoot(t *testing.T) {
	for _, id := range []string{"", "0"} {
		g := NewWithT(t)
		t.Setenv("SUDO_UID", id)
		user, err := invoker.Current()
		g.Expect(err).NotTo(HaveOccurred())
		cmd := exec.CommandContext(t.Context(), "true")
		g.Expect(user.Run(cmd).SysProcAttr).To(BeNil())
		g.Expect(user.Own(t.TempDir())).To(Succeed())
	}
	g := NewWithT(t)
	if os.Geteuid() == 0 {
		t.Setenv("SUDO_UID", "4294967290")
		_, err := invoker.Current()
		g.Expect(err).To(MatchError(ContainSubstring("SUDO_UID")))
	}
}

func TestRegistriesAreAskedWithTheLoginOfWhoCalledSudo(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root acts for somebody else")
	}
	account, err := user.LookupId(nobody)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for name, test := range map[string]struct{ id, before, expected string }{
		"by sudo":                  {nobody, "", filepath.Join(account.HomeDir, ".docker")},
		"by sudo, with its own":    {nobody, "/own", "/own"},
		"by root, whose it may be": {"", "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("SUDO_UID", test.id)
			t.Setenv("DOCKER_CONFIG", test.before)
			current, err := invoker.Current()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(current.UseDockerLogin()).To(Succeed())
			g.Expect(os.Getenv("DOCKER_CONFIG")).To(Equal(test.expected))
		})
	}
}

func TestSearchPathKeepsTheOrderAndAddsWhatIsMissing(t *testing.T) {
	NewWithT(t).Expect(invoker.SearchPath("/home/me/bin:/usr/sbin:/usr/bin")).To(
		Equal("/home/me/bin:/usr/sbin:/usr/bin:/usr/local/sbin:/sbin:/usr/local/go/bin"))
}
