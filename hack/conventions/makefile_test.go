// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package conventions_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// runMake runs make for the Makefile and a file more in a folder.
func runMake(t *testing.T, folder, more string, env []string, args ...string) (string, error) {
	t.Helper()
	g := NewWithT(t)
	makefile, err := filepath.Abs(filepath.Join(root, "Makefile"))
	g.Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(folder, "more.mk")
	g.Expect(os.WriteFile(path, []byte(more), 0o600)).To(Succeed())
	cmd := exec.CommandContext(t.Context(), "make", append([]string{"-f", makefile, "-f", path}, args...)...) // #nosec G204 -- make
	cmd.Dir = folder
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + folder}, env...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestALoopOfMakeStopsAtTheFirstFailure(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	write := func(name, content string) {
		path := filepath.Join(folder, name)
		g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(content), 0o700)).To(Succeed()) // #nosec G306 -- some are scripts
	}
	for _, module := range []string{"hack/tools/golangci-lint", "skaffold/images/a", "skaffold/images/b"} {
		write(module+"/go.mod", "")
		write(module+"/go.sum", "")
	}
	write("bin/tools/golangci-lint", "#!/bin/bash\necho \"called in ${PWD##*/}\"\n[[ $PWD != */a ]]\n")
	later := time.Now().Add(time.Minute)
	g.Expect(os.Chtimes(filepath.Join(folder, "bin/tools/golangci-lint"), later, later)).To(Succeed())
	for _, version := range []string{"any", "3.81"} {
		t.Run(version, func(t *testing.T) {
			g := NewWithT(t)
			args := []string{"check-lint"}
			if version == "3.81" {
				// That of macOS doesn't know this variable, and passes -c.
				args = append(args, ".SHELLFLAGS=-c")
			}
			out, err := runMake(t, folder, "", nil, args...)
			g.Expect(err).To(HaveOccurred(), out)
			g.Expect(out).To(And(ContainSubstring("called in a"), Not(ContainSubstring("called in b"))))
		})
	}
}

// make up restarts processes whose program has another time.
func TestAProgramKeepsItsTimeUnlessItChanges(t *testing.T) {
	g := NewWithT(t)
	folder := t.TempDir()
	write := func(name, content string) {
		g.Expect(os.WriteFile(filepath.Join(folder, "test/landscape", name), []byte(content), 0o600)).To(Succeed())
	}
	g.Expect(os.MkdirAll(filepath.Join(folder, "test/landscape"), 0o700)).To(Succeed())
	write("go.mod", "module landscape\n")
	write("main.go", "package main\n\nfunc main() { println(1) }\n")
	cache, err := exec.CommandContext(t.Context(), "go", "env", "GOCACHE").Output()
	g.Expect(err).NotTo(HaveOccurred())
	program := filepath.Join(folder, "bin/landscape/landscape")
	build := func() (time.Time, string) {
		out, err := runMake(t, folder, "", []string{"GOCACHE=" + strings.TrimSpace(string(cache)), "GOFLAGS=-buildvcs=false"}, program)
		g.Expect(err).NotTo(HaveOccurred(), out)
		info, err := os.Stat(program)
		g.Expect(err).NotTo(HaveOccurred())
		printed, err := exec.CommandContext(t.Context(), program).CombinedOutput() // #nosec G204 -- the program of this test
		g.Expect(err).NotTo(HaveOccurred())
		return info.ModTime(), string(printed)
	}
	first, printed := build()
	g.Expect(printed).To(Equal("1\n"))
	again, _ := build()
	g.Expect(again).To(Equal(first))
	write("main.go", "package main\n\nfunc main() { println(2) }\n")
	changed, printed := build()
	g.Expect(printed).To(Equal("2\n"))
	g.Expect(changed).NotTo(Equal(first))

	write("main.go", "package main\n\nno Go\n")
	for goal, works := range map[string]bool{"down": true, "stop": false} {
		out, err := runMake(t, folder, "", []string{"GOCACHE=" + strings.TrimSpace(string(cache)), "GOFLAGS=-buildvcs=false"}, goal)
		g.Expect(err == nil).To(Equal(works), "make %s: %s", goal, out)
		g.Expect(strings.HasSuffix(out, "\n2\n")).To(Equal(works), "the program that is there can take the landscape down: %s", out)
	}
}

func TestACloneIsBuiltByWhoCalledSudoUnlessItIsRoots(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can build as somebody else")
	}
	g := NewWithT(t)
	folder := t.TempDir()
	show := func() string {
		out, err := runMake(t, folder, "show:\n\t@echo '$(AS_USER)'\n", []string{"SUDO_UID=65534", "SUDO_GID=65534"}, "show")
		g.Expect(err).NotTo(HaveOccurred(), out)
		return out
	}
	g.Expect(show()).NotTo(ContainSubstring("setpriv"))
	g.Expect(os.Chown(folder, 65534, 65534)).To(Succeed())
	g.Expect(show()).To(ContainSubstring("setpriv --reuid 65534"))
}

func TestMakeTestTakesAReleaseOfGardener(t *testing.T) {
	g := NewWithT(t)
	out, err := runMake(t, t.TempDir(), "", nil, "--dry-run", "test", "GARDENER=../gardener")
	g.Expect(err).To(HaveOccurred())
	g.Expect(out).To(ContainSubstring("GARDENER=../gardener: make test takes a release"))
	out, err = runMake(t, t.TempDir(), "show:\n\t@echo fine\n", nil, "show", "GARDENER=../gardener")
	g.Expect(err).NotTo(HaveOccurred(), out)
}

func TestNoProxyIsAskedForTheLandscape(t *testing.T) {
	for name, test := range map[string]struct {
		env      []string
		args     []string
		network  string
		expected string
	}{
		"there is none":      {env: []string{"HTTPS_PROXY="}},
		"nothing else":       {expected: "localhost,.local.gardener.cloud,172.18.0.0/16,fd00:ff::/64"},
		"the user has some":  {env: []string{"NO_PROXY=.example.com,10.0.0.0/8"}, expected: ".example.com,10.0.0.0/8,.local.gardener.cloud,172.18.0.0/16,fd00:ff::/64"},
		"in small letters":   {env: []string{"no_proxy=.example.com"}, expected: ".example.com,.local.gardener.cloud,172.18.0.0/16,fd00:ff::/64"},
		"another network":    {args: []string{"NETWORK=172.30.0.0/16"}, expected: "localhost,.local.gardener.cloud,172.30.0.0/16,fd00:ff::/64"},
		"the one that is up": {network: "172.31.0.0/16\n", expected: "localhost,.local.gardener.cloud,172.31.0.0/16,fd00:ff::/64"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			folder := t.TempDir()
			if test.network != "" {
				g.Expect(os.Mkdir(filepath.Join(folder, ".landscape"), 0o700)).To(Succeed())
				g.Expect(os.WriteFile(filepath.Join(folder, ".landscape", "network"), []byte(test.network), 0o600)).To(Succeed())
			}
			env := append([]string{"HTTPS_PROXY=http://proxy.example.com"}, test.env...)
			out, err := runMake(t, folder, "show:\n\t@echo \"$${NO_PROXY:-}\"; echo \"$${no_proxy:-}\"\n", env, append(test.args, "show")...)
			g.Expect(err).NotTo(HaveOccurred(), out)
			g.Expect(out).To(Equal(strings.Repeat(test.expected+"\n", 2)))
		})
	}
}
