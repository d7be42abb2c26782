// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package conventions_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// stub is a program of the name by which it is called: it writes its arguments down, and fails if $STATE/fail has them.
const stub = `#!/bin/bash
me="${0##*/} $*"
echo "$me" >>"$STATE/calls"
case "$me" in
"id -u") cat "$STATE/uid" ;;
*) ! grep -qxF "$me" "$STATE/fail" ;;
esac
`

// clone is a git repository with copies of the scripts, and a PATH in which some programs are stubs.
type clone struct {
	t           *testing.T
	root, state string
	env         []string
}

func newClone(t *testing.T, stubs ...string) *clone {
	t.Helper()
	g := NewWithT(t)
	c := &clone{t: t, root: t.TempDir(), state: t.TempDir()}
	for _, name := range []string{".ci/run", "hack/nightly", "hack/steps", "hack/named", "hack/need-packages", ".gitignore"} {
		content, err := os.ReadFile(filepath.Join(root, name)) // #nosec G304 -- of the repository
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(c.root, name)), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(c.root, name), content, 0o700)).To(Succeed()) // #nosec G306 -- a script
	}
	bin := t.TempDir()
	for _, name := range stubs {
		g.Expect(os.WriteFile(filepath.Join(bin, name), []byte(stub), 0o700)).To(Succeed()) // #nosec G306 -- a script
	}
	for _, name := range []string{"bash", "cat", "dirname", "git", "grep", "install", "mkdir", "realpath", "rm", "tee"} {
		path, err := exec.LookPath(name)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.Symlink(path, filepath.Join(bin, name))).To(Succeed())
	}
	c.env = []string{"PATH=" + bin, "STATE=" + c.state, "HOME=" + c.root}
	c.write("fail", "")
	c.write("uid", "0")
	return c
}

func (c *clone) write(name, content string) {
	c.t.Helper()
	NewWithT(c.t).Expect(os.WriteFile(filepath.Join(c.state, name), []byte(content), 0o600)).To(Succeed())
}

// call runs a script, and returns what it prints, what it called meanwhile, and its exit code.
func (c *clone) call(name string, args ...string) (string, []string, int) {
	c.t.Helper()
	g := NewWithT(c.t)
	c.write("calls", "")
	cmd := exec.CommandContext(c.t.Context(), filepath.Join(c.root, name), args...) // #nosec G204 -- a script of this repository
	cmd.Env = c.env
	out, err := cmd.CombinedOutput()
	if err != nil {
		g.Expect(err).To(BeAssignableToTypeOf(&exec.ExitError{}))
	}
	calls, err := os.ReadFile(filepath.Join(c.state, "calls"))
	g.Expect(err).NotTo(HaveOccurred())
	return string(out), strings.FieldsFunc(string(calls), func(r rune) bool { return r == '\n' }), cmd.ProcessState.ExitCode()
}

// commit makes a commit of all there is.
func (c *clone) commit() {
	c.t.Helper()
	for _, args := range [][]string{{"init", "--quiet"}, {"add", "--all"}, {"commit", "--quiet", "--allow-empty", "--message", "x"}} {
		git := exec.CommandContext(c.t.Context(), "git", append([]string{"-C", c.root, "-c", "user.name=x", "-c", "user.email=x@example.com"}, args...)...) // #nosec G204 -- a test's own
		out, err := git.CombinedOutput()
		NewWithT(c.t).Expect(err).NotTo(HaveOccurred(), string(out))
	}
}

func TestNightlyRunsEverythingAndThenWhatHasNotPassed(t *testing.T) {
	g := NewWithT(t)
	c := newClone(t, "make")
	c.commit()
	c.write("fail", "make test\nmake e2e LABELS=pools\nmake up KUBERNETES=1.35,1.34,1.33 COMPONENTS=observability,autoscaling,dependency-watchdog,gardenadm\n")

	out, calls, code := c.call("hack/nightly")
	g.Expect(code).To(Equal(1), out)
	g.Expect(calls).To(HaveExactElements(
		"make check", "make test", "make test GARDENER=v1.150.0", "make test PACKAGES=./test/integration/faults TEST_ARGS=-count=1 -timeout 90m", "make fuzz FUZZTIME=1m", "make down", "make test-node", "make test-machines", "make test-kind",
		"make up UNTIL=garden", "make e2e LABELS=garden || instance || machines", "make e2e LABELS=garden-deletion", "make down",
		"make up", "make e2e LABELS=examples || docs || audit", "make e2e LABELS=gardenlet", "make e2e LABELS=workerless", "make e2e LABELS=pools",
		"make e2e LABELS=force-delete", "make e2e LABELS=restore", "make e2e LABELS=explain", "make e2e LABELS=foreign", "make e2e LABELS=faults", "make e2e LABELS=managedseed || migration", "make e2e LABELS=garden-rotation", "make e2e LABELS=restart", "make down",
		"make up KUBERNETES=1.35,1.34,1.33 COMPONENTS=observability,autoscaling,dependency-watchdog,gardenadm", "make down", "make test-upgrade", "make test-released", "make test-setup-gardener", "make benchmarks",
	))
	g.Expect(out).To(MatchRegexp(`\| check +\| passed +\| +\d+ \|`))
	g.Expect(out).To(MatchRegexp(`\| e2e-pools +\| FAILED \(1\) +\| +\d+ \|`))
	table, err := os.ReadFile(filepath.Join(c.root, "bin/nightly/table.md"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(HaveSuffix(string(table)))
	g.Expect(filepath.Join(c.root, "bin/nightly/check.log")).To(BeARegularFile())

	c.write("fail", "")
	out, calls, code = c.call("hack/nightly")
	g.Expect(code).To(BeZero(), out)
	g.Expect(calls).To(HaveExactElements(
		"make test", "make down", "make up", "make e2e LABELS=pools", "make down",
		"make up KUBERNETES=1.35,1.34,1.33 COMPONENTS=observability,autoscaling,dependency-watchdog,gardenadm", "make e2e LABELS=observability || autoscaling || dependency-watchdog || gardenadm", "make e2e-gardener FILTER=default && (simple || Seed || Project)", "make down",
	))
	g.Expect(out).To(MatchRegexp(`\| check +\| passed in a run before +\| +\d+ \|`))

	_, calls, code = c.call("hack/nightly")
	g.Expect(code).To(BeZero())
	g.Expect(calls).To(HaveExactElements("make down"))

	_, calls, _ = c.call("hack/nightly", "--clean")
	g.Expect(calls).To(ContainElement("make check"))

	c.commit()
	_, calls, _ = c.call("hack/nightly")
	g.Expect(calls).To(ContainElement("make check"), "of another commit nothing is known")

	g.Expect(os.WriteFile(filepath.Join(c.root, ".gitignore"), []byte("bin/\n"), 0o600)).To(Succeed())
	c.commit()
	_, _, _ = c.call("hack/nightly")
	g.Expect(os.WriteFile(filepath.Join(c.root, "new_test.go"), []byte("package x\n"), 0o600)).To(Succeed())
	for range 2 {
		_, calls, _ = c.call("hack/nightly")
		g.Expect(calls).To(ContainElement("make check"), "with changes that no commit has, nothing is known either")
	}
}

func TestNightlyGoesOnWithoutALandscape(t *testing.T) {
	g := NewWithT(t)
	c := newClone(t, "make")
	c.commit()
	c.write("fail", "make up UNTIL=garden\n")
	out, calls, code := c.call("hack/nightly")
	g.Expect(code).To(Equal(1), out)
	g.Expect(calls).NotTo(ContainElement(ContainSubstring("instance")))
	g.Expect(calls).To(ContainElements("make up", "make benchmarks"))
	g.Expect(out).To(MatchRegexp(`\| e2e-garden +\| not run: there is no landscape`))

	out, _, code = c.call("hack/nightly", "--fast")
	g.Expect(code).To(Equal(2))
	g.Expect(out).To(ContainSubstring("usage:"))
}

func TestCIStopsAtTheFirstFailureAndTakesTheLandscapeDown(t *testing.T) {
	for name, tc := range map[string]struct {
		fail  string
		code  int
		last  []string
		shows string
	}{
		"all passes":                   {"", 0, []string{"make up UNTIL=garden", "make stop", "make start", "make e2e SUITES=garden audit LABELS=garden", "make up", "make e2e SUITES=foreign landscape shoot audit LABELS=examples && !asleep || foreign && small && !faulty || audit", "make down", "make test-kind TEST_ARGS=-run TestGardenInstance", "make test-machines VARIANT=debian-12"}, `total \d+ s, the goal is 2700 s \(45 minutes\): met`},
		"a check fails":                {"make check\n", 1, []string{"make check"}, `\| check +\| FAILED \(1\)`},
		"a suite in the landscape":     {"make e2e SUITES=foreign landscape shoot audit LABELS=examples && !asleep || foreign && small && !faulty || audit\n", 1, []string{"make status", "make down"}, `\| e2e +\| FAILED \(1\)`},
		"a virtual machine":            {"make test-machines VARIANT=debian-12\n", 1, []string{"make test-kind TEST_ARGS=-run TestGardenInstance", "make test-machines VARIANT=debian-12"}, `\| machine +\| FAILED \(1\)`},
		"the landscape does not go up": {"make up\n", 1, []string{"make up", "make status", "make down"}, `CI failed`},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClone(t, "make")
			c.write("fail", tc.fail)
			out, calls, code := c.call(".ci/run")
			g.Expect(code).To(Equal(tc.code), out)
			g.Expect(calls[len(calls)-len(tc.last):]).To(Equal(tc.last))
			g.Expect(out).To(MatchRegexp(tc.shows))
		})
	}
}

func TestCIOnASlowMachineLeavesTheLastStepsToNightly(t *testing.T) {
	for seconds, tc := range map[string]struct{ last, total string }{
		"SECONDS=2701": {"make down", "MISSED"},
		"SECONDS=2300": {"make test-kind TEST_ARGS=-run TestGardenInstance", "met"},
	} {
		t.Run(seconds, func(t *testing.T) {
			g := NewWithT(t)
			c := newClone(t, "make")
			c.env = append(c.env, seconds)
			out, calls, code := c.call(".ci/run")
			g.Expect(code).To(BeZero(), out)
			g.Expect(calls[len(calls)-1]).To(Equal(tc.last))
			g.Expect(out).To(MatchRegexp(`\| machine +\| not run: it is late, see make nightly +\| +0 \|`))
			g.Expect(out).To(MatchRegexp(`total 2\d\d\d s, the goal is 2700 s \(45 minutes\): ` + tc.total))
		})
	}
}

func TestPackagesAreInstalledWithoutRemovingAny(t *testing.T) {
	for name, tc := range map[string]struct {
		uid, fail string
		stubs     []string
		calls     []string
		says      string
	}{
		"as root": {
			uid: "0", stubs: []string{"apt-get", "id"},
			calls: []string{"id -u", "apt-get -q -o DPkg::Lock::Timeout=300 update", "apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-remove --no-install-recommends gcc libc6-dev"},
			says:  "install gcc libc6-dev",
		},
		"as root, and a package would go": {
			uid: "0", stubs: []string{"apt-get", "id"},
			fail:  "apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-remove --no-install-recommends gcc libc6-dev\n",
			calls: []string{"id -u", "apt-get -q -o DPkg::Lock::Timeout=300 update", "apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-remove --no-install-recommends gcc libc6-dev"},
			says:  "without removing something",
		},
		"as a user": {
			uid: "1000", stubs: []string{"apt-get", "id", "sudo"},
			calls: []string{"id -u"},
			says:  "make test: a compiler is missing. Install it: sudo apt-get install --no-install-recommends gcc libc6-dev",
		},
		"without apt-get": {uid: "0", stubs: []string{"id"}, says: "install what Debian calls gcc libc6-dev"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClone(t, tc.stubs...)
			c.write("uid", tc.uid)
			c.write("fail", tc.fail)
			out, calls, code := c.call("hack/need-packages", "make test", "a compiler is missing", "gcc", "libc6-dev")
			g.Expect(calls).To(HaveExactElements(tc.calls))
			g.Expect(out).To(ContainSubstring(tc.says))
			g.Expect(code).To(Equal(map[bool]int{true: 0, false: 1}[name == "as root"]), out)
		})
	}
}

func TestTestsGetACopyOfTheInstalledNameServer(t *testing.T) {
	for name, tc := range map[string]struct {
		fail string
		code int
		says string
	}{
		"one that starts":        {code: 0},
		"one that doesn't start": {fail: "named -v\n", code: 1, says: "Name another server: TEST_ASSET_NAMED=PATH"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newClone(t, "named")
			c.write("fail", tc.fail)
			out, calls, code := c.call("hack/named", filepath.Join(c.state, "tools/named"))
			g.Expect(code).To(Equal(tc.code), out)
			g.Expect(out).To(ContainSubstring(tc.says))
			g.Expect(calls).To(HaveExactElements("named -v"))
			content, err := os.ReadFile(filepath.Join(c.state, "tools/named"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(content)).To(Equal(stub))
		})
	}
}

func TestFiltersChooseSuitesThatThereAre(t *testing.T) {
	g := NewWithT(t)
	names, err := filepath.Glob(filepath.Join(root, "test/e2e/*/*_test.go"))
	g.Expect(err).NotTo(HaveOccurred())
	var labels []string
	list, quoted := regexp.MustCompile(`(?:Label\(|label[A-Za-z]* +=)[^\n]*`), regexp.MustCompile(`"([a-z-]+)"`)
	for _, name := range names {
		content, err := os.ReadFile(name) // #nosec G304 -- of the repository
		g.Expect(err).NotTo(HaveOccurred())
		for _, line := range list.FindAllString(string(content), -1) {
			for _, label := range quoted.FindAllStringSubmatch(line, -1) {
				labels = append(labels, label[1])
			}
		}
	}
	// Ginkgo is content with a filter that chooses nothing. In nightly, the filter follows the name of the step.
	asked, word, count := regexp.MustCompile(`(?:LABELS=|\be2e-[a-z-]+ )('[^']+'|[a-z][a-z-]*)`), regexp.MustCompile(`[a-z][a-z-]*`), 0
	for _, name := range []string{".ci/run", "hack/nightly", "hack/upgrade", ".github/workflows/e2e.yaml"} {
		content, err := os.ReadFile(filepath.Join(root, name)) // #nosec G304 -- of the repository
		g.Expect(err).NotTo(HaveOccurred())
		for _, filter := range asked.FindAllStringSubmatch(string(content), -1) {
			for _, label := range word.FindAllString(filter[1], -1) {
				if label == "make" {
					continue
				}
				count++
				g.Expect(labels).To(ContainElement(label), "%s: %s", name, filter[0])
			}
		}
	}
	g.Expect(count).To(BeNumerically(">=", 30))
}
