// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// onlyPrograms makes these the only programs of the search path.
func onlyPrograms(t *testing.T, scripts map[string]string) {
	t.Helper()
	bin := t.TempDir()
	for name, script := range scripts {
		NewWithT(t).Expect(os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+script), 0o700)).To(Succeed())
	}
	t.Setenv("PATH", bin)
}

func TestProgramsAreFoundWhereverTheyAre(t *testing.T) {
	g := NewWithT(t)
	onlyPrograms(t, map[string]string{"containerd": "", "runc": ""})
	g.Expect(Missing()).To(And(ContainElement("socat"), Not(ContainElement("runc")), Not(ContainElement("containerd"))),
		"Docker's package containerd.io has them in /usr/bin, and Debian's runc would remove it")
}

func TestAptGetIsNeverLetRemoveAnything(t *testing.T) {
	g := NewWithT(t)
	g.Expect(aptInstall([]string{"runc"})).To(And(ContainElement("--no-remove"), ContainElement("DPkg::Lock::Timeout=300"), ContainElement("runc")))
}

func TestRemovedNamesThePackagesThatWouldGo(t *testing.T) {
	for _, test := range []struct{ name, script, want string }{
		{
			name: "when apt-get refuses",
			script: `cat <<'END'
Reading package lists...
The following packages will be REMOVED:
  containerd.io docker-ce
The following NEW packages will be installed:
  runc
E: Packages need to be removed but remove is disabled.
END
exit 100`,
			want: "containerd.io, docker-ce",
		},
		{name: "but not when it installs", script: "echo done"},
		{name: "nor when it does not know a package yet", script: "echo 'E: Unable to locate package runc'; exit 100"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := os.Getenv("PATH")
			onlyPrograms(t, map[string]string{"apt-get": test.script})
			t.Setenv("PATH", os.Getenv("PATH")+":"+path)
			NewWithT(t).Expect(Removed(t.Context(), []string{"runc"})).To(Equal(test.want))
		})
	}
}

func TestARepositoryThatIsBrokenMattersOnlyIfItHasWhatIsMissing(t *testing.T) {
	g := NewWithT(t)
	policy := filepath.Join(t.TempDir(), "policy-rc.d")
	broken := `case "$*" in *update) echo "no Release file"; exit 100; esac; `
	onlyPrograms(t, map[string]string{"apt-get": broken})
	_, err := install(t.Context(), policy)
	g.Expect(err).To(MatchError(And(HavePrefix("still missing after installing"), Not(ContainSubstring("no Release file")))), "it was asked to install")
	onlyPrograms(t, map[string]string{"apt-get": broken + "echo unable to locate; exit 100"})
	_, err = install(t.Context(), policy)
	g.Expect(err).To(MatchError(And(ContainSubstring("no Release file"), ContainSubstring("unable to locate"))))
	g.Expect(policy).NotTo(BeAnExistingFile())
}

func TestALockOfAptThatItDoesNotWaitForIsWaitedFor(t *testing.T) {
	g := NewWithT(t)
	locked := filepath.Join(t.TempDir(), "locked")
	g.Expect(os.WriteFile(locked, nil, 0o600)).To(Succeed())
	path := os.Getenv("PATH")
	onlyPrograms(t, map[string]string{"apt-get": `[ -e ` + locked + ` ] || exit 0; rm ` + locked + `; echo "E: Could not get lock /var/lib/apt/lists/lock"; exit 100`})
	t.Setenv("PATH", os.Getenv("PATH")+":"+path)
	g.Expect(aptGet(t.Context(), "apt-get", "update")).To(Succeed())
}

func TestServicesAreKeptFromStartingUntilPackagesAreInstalled(t *testing.T) {
	for _, test := range []struct {
		name, before string
		stays        bool
	}{
		{name: "by a policy"},
		{name: "by one that an interrupted up left", before: "#!/bin/sh\n" + policyMark + "\nexit 101\n"},
		{name: "and a policy of others stays", before: "#!/bin/sh\nexit 0\n", stays: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			path := filepath.Join(t.TempDir(), "policy-rc.d")
			if test.before != "" {
				g.Expect(os.WriteFile(path, []byte(test.before), 0o700)).To(Succeed())
			}
			allow, err := startNoServices(path)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(ownPolicy(path)).To(Equal(!test.stays))
			g.Expect(exec.Command(path).Run() == nil).To(Equal(test.stays), "it exits with 101")
			allow()
			g.Expect(exists(path)).To(Equal(test.stays))
		})
	}
}

func TestInstallSaysWhatToDoWithoutAptGet(t *testing.T) {
	onlyPrograms(t, nil)
	_, err := Install(t.Context())
	NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring("containerd"), ContainSubstring("no apt-get"), ContainSubstring("package manager"))))
}
