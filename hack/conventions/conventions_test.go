// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package conventions_test holds what `make check` looks at besides code: that every file has a licence as REUSE
// (https://reuse.software) wants it, and that the files by which a repository of Gardener is run are what their readers take.
package conventions_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

const root = "../.."

// reuse is a REUSE.toml.
type reuse struct {
	Version     int          `toml:"version"`
	Annotations []annotation `toml:"annotations"`
}

type annotation struct {
	Path      []string `toml:"path"`
	Copyright string   `toml:"SPDX-FileCopyrightText"`
	License   string   `toml:"SPDX-License-Identifier"`
}

// pattern returns a glob of REUSE as an expression: * stays within a folder, ** does not.
func pattern(glob string) *regexp.Regexp {
	var out strings.Builder
	out.WriteString("^")
	for glob != "" {
		switch {
		case strings.HasPrefix(glob, "**"):
			out.WriteString(".*")
			glob = glob[2:]
		case strings.HasPrefix(glob, "*"):
			out.WriteString("[^/]*")
			glob = glob[1:]
		default:
			out.WriteString(regexp.QuoteMeta(glob[:1]))
			glob = glob[1:]
		}
	}
	return regexp.MustCompile(out.String() + "$")
}

// files are those that git has or would take.
func files(t *testing.T) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-co", "--exclude-standard", "-z").Output()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var found []string
	for _, name := range strings.Split(strings.Trim(string(out), "\x00"), "\x00") {
		info, err := os.Lstat(filepath.Join(root, name))
		// One that is just being deleted is still in the index.
		if err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			found = append(found, name)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

// head is the beginning of a file.
func head(t *testing.T, name string) []byte {
	t.Helper()
	g := NewWithT(t)
	file, err := os.Open(filepath.Join(root, name)) // #nosec G304 -- of the repository
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, 2048))
	g.Expect(err).NotTo(HaveOccurred())
	return content
}

func hasHeader(content []byte) bool {
	return bytes.Contains(content, []byte("SPDX-FileCopyrightText: ")) && bytes.Contains(content, []byte("SPDX-License-Identifier: "))
}

// isCode reports whether a file needs a header of its own, whatever REUSE.toml says of its folder.
func isCode(name string, content []byte) bool {
	return path.Ext(name) == ".go" || path.Base(name) == "Makefile" || bytes.HasPrefix(content, []byte("#!")) && !strings.Contains(name, "/testdata/")
}

func TestEveryFileHasALicence(t *testing.T) {
	g := NewWithT(t)
	var config reuse
	meta, err := toml.DecodeFile(filepath.Join(root, "REUSE.toml"), &config)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Version).To(Equal(1))
	for _, key := range meta.Undecoded() {
		g.Expect(key.String()).To(Or(HavePrefix("SPDX-Package"), HaveSuffix(".precedence")))
	}
	var covered []*regexp.Regexp
	used := map[string]bool{}
	for _, annotation := range config.Annotations {
		g.Expect(filepath.Join(root, "LICENSES", annotation.License+".txt")).To(BeARegularFile())
		g.Expect(annotation.Copyright).NotTo(BeEmpty())
		for _, glob := range annotation.Path {
			covered = append(covered, pattern(glob))
		}
	}

	for _, name := range files(t) {
		if name == "LICENSE" || name == "REUSE.toml" || strings.HasPrefix(name, "LICENSES/") {
			continue
		}
		content := head(t, name)
		isCovered := false
		for _, glob := range covered {
			if glob.MatchString(name) {
				used[glob.String()], isCovered = true, true
			}
		}
		if isCode(name, content) && !bytes.Contains(content, []byte("DO NOT EDIT")) && !strings.Contains(name, "/testdata/") && !strings.Contains(name, "/files/") {
			g.Expect(hasHeader(content)).To(BeTrue(), "%s needs the header that all code has", name)
			continue
		}
		g.Expect(isCovered || hasHeader(content)).To(BeTrue(), "%s has no licence: give it the header that all files have, or name it in REUSE.toml", name)
	}
	for _, glob := range covered {
		g.Expect(used).To(HaveKey(glob.String()), "a line of REUSE.toml is for no file")
	}
}

func TestGlobsAreThoseOfREUSE(t *testing.T) {
	g := NewWithT(t)
	for glob, want := range map[string]struct{ yes, no string }{
		"**.md":               {"a/b/c.md", "a/md"},
		"go.mod":              {"go.mod", "a/go.mod"},
		"**/testdata/**":      {"a/testdata/b/c", "testdata"},
		"skaffold/*/a.yaml":   {"skaffold/b/a.yaml", "skaffold/b/c/a.yaml"},
		".github/CODEOWNERS":  {".github/CODEOWNERS", "xgithub/CODEOWNERS"},
		"charts/**/values.ya": {"charts/a/b/values.ya", "charts/values.yaml"},
	} {
		g.Expect(pattern(glob).MatchString(want.yes)).To(BeTrue(), glob)
		g.Expect(pattern(glob).MatchString(want.no)).To(BeFalse(), glob)
	}
}

func TestTheLicenceTextsAreTheSame(t *testing.T) {
	g := NewWithT(t)
	one, err := os.ReadFile(filepath.Join(root, "LICENSE"))
	g.Expect(err).NotTo(HaveOccurred())
	other, err := os.ReadFile(filepath.Join(root, "LICENSES/Apache-2.0.txt"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(other)).To(Equal(string(one)))
}

func TestTheVersionIsTheSameEverywhere(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(root, "VERSION"))
	g.Expect(err).NotTo(HaveOccurred())
	version := strings.TrimSpace(string(content))
	g.Expect(version).To(MatchRegexp(`^v\d+\.\d+\.\d+(-dev)?$`))
	number := strings.TrimPrefix(strings.TrimSuffix(version, "-dev"), "v")

	chart := struct{ Version string }{}
	content, err = os.ReadFile(filepath.Join(root, "charts/provider-local/Chart.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(yaml.Unmarshal(content, &chart)).To(Succeed())
	g.Expect(chart.Version).To(Equal(number))

	changes, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	g.Expect(err).NotTo(HaveOccurred())
	headings := regexp.MustCompile(`(?m)^## \[(.+)\]`).FindAllStringSubmatch(string(changes), -1)
	g.Expect(headings).NotTo(BeEmpty())
	g.Expect(headings[0][1]).To(Equal("Unreleased"))
	if !strings.HasSuffix(version, "-dev") {
		g.Expect(headings[1][1]).To(Equal(number), "what is released is described")
	}
}

func TestEveryModuleIsLookedAfter(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(root, "renovate.json"))
	g.Expect(err).NotTo(HaveOccurred())
	config := struct {
		Extends      []string `json:"extends"`
		IgnorePaths  []string `json:"ignorePaths"`
		PackageRules []struct {
			Description   string   `json:"description"`
			MatchPackages []string `json:"matchPackageNames"`
			MatchFiles    []string `json:"matchFileNames"`
			MatchManagers []string `json:"matchManagers"`
			GroupName     string   `json:"groupName"`
			Allowed       string   `json:"allowedVersions"`
		} `json:"packageRules"`
	}{}
	g.Expect(json.Unmarshal(content, &config)).To(Succeed())
	g.Expect(config.Extends).To(ContainElement("config:recommended"))
	g.Expect(config.IgnorePaths).To(And(Not(BeNil()), BeEmpty()), "those of config:recommended have all modules below test/")
	modules := slices.DeleteFunc(files(t), func(name string) bool { return path.Base(name) != "go.mod" })
	for _, rule := range config.PackageRules {
		g.Expect(rule.Description).NotTo(BeEmpty())
		for _, glob := range rule.MatchFiles {
			g.Expect(modules).To(ContainElement(WithTransform(pattern(glob).MatchString, BeTrue())), glob)
		}
	}
}

func TestOwnersOwnSomething(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(root, ".github/CODEOWNERS"))
	g.Expect(err).NotTo(HaveOccurred())
	all := files(t)
	for _, line := range strings.Split(string(content), "\n") {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0][0] == '#' {
			continue
		}
		g.Expect(len(fields)).To(BeNumerically(">", 1), line)
		for _, owner := range fields[1:] {
			g.Expect(owner).To(MatchRegexp(`^@[\w-]+(/[\w-]+)?$`))
		}
		if fields[0] != "*" {
			g.Expect(all).To(ContainElement(HavePrefix(strings.TrimPrefix(fields[0], "/"))), line)
		}
	}
}

// makeTarget finds what a workflow or a document asks make for.
var makeTarget = regexp.MustCompile("(?m)(?:run: |^ *\\$ |`|^ *)(?:sudo [^\n]*?)?make ([a-z][a-z0-9-]*)")

func TestWorkflowsAndContributingNameTargetsOfTheMakefile(t *testing.T) {
	g := NewWithT(t)
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile"))
	g.Expect(err).NotTo(HaveOccurred())
	names, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(names)).To(BeNumerically(">=", 3))
	asked := 0
	for _, name := range append(names, filepath.Join(root, "CONTRIBUTING.md")) {
		content, err := os.ReadFile(name) // #nosec G304 -- of the repository
		g.Expect(err).NotTo(HaveOccurred())
		for _, match := range makeTarget.FindAllStringSubmatch(string(content), -1) {
			asked++
			g.Expect(string(makefile)).To(ContainSubstring("\n"+match[1]+":"), "%s: make %s", name, match[1])
		}
	}
	g.Expect(asked).To(BeNumerically(">=", 10))
}

// pinned is an action by commit, with its version as a comment, which Renovate reads and updates.
var pinned = regexp.MustCompile(`^[\w-]+(/[\w.-]+)+@[0-9a-f]{40} # v\d+\.\d+\.\d+$`)

func TestActionsArePinnedToCommits(t *testing.T) {
	uses := regexp.MustCompile(`(?m)^[ -]*uses: *(.+)$`)
	names, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yaml"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	names = append(names, filepath.Join(root, ".github/actions/setup-gardener/action.yaml"))
	versions := map[string]string{}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			g := NewWithT(t)
			content, err := os.ReadFile(name) // #nosec G304 -- of the repository
			g.Expect(err).NotTo(HaveOccurred())
			matches := uses.FindAllStringSubmatch(string(content), -1)
			g.Expect(matches).NotTo(BeEmpty())
			for _, match := range matches {
				if strings.HasPrefix(match[1], "./") {
					continue // It is of this commit.
				}
				g.Expect(match[1]).To(MatchRegexp(pinned.String()))
				action, version, _ := strings.Cut(match[1], "@")
				g.Expect(cmp.Or(versions[action], version)).To(Equal(version), "%s has the same version everywhere", action)
				versions[action] = version
			}
		})
	}
}

func TestWhatIsPinnedIsTold(t *testing.T) {
	for action, want := range map[string]bool{
		"a/b@0123456789012345678901234567890123456789 # v1.2.3":   true,
		"a/b/c@0123456789012345678901234567890123456789 # v1.2.3": true,
		"a/b@0123456789012345678901234567890123456789":            false,
		"a/b@v1": false,
		"a/b@v1 # 0123456789012345678901234567890123456789": false,
		"a/b@01234567 # v1.2.3":                             false,
	} {
		NewWithT(t).Expect(pinned.MatchString(action)).To(Equal(want), action)
	}
}

func TestTheReleaseBuildsWhereItMayWriteNothing(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(root, ".github/workflows/release.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	workflow := struct {
		Permissions map[string]string
		Jobs        map[string]struct {
			Needs       string
			Permissions map[string]string
			Steps       []struct{ Uses, Run string }
		}
	}{}
	g.Expect(yaml.Unmarshal(content, &workflow)).To(Succeed())
	g.Expect(workflow.Permissions).To(BeEmpty())
	g.Expect(workflow.Jobs).To(HaveLen(2))
	g.Expect(workflow.Jobs["build"].Permissions).To(Equal(map[string]string{"contents": "read"}))
	publish := workflow.Jobs["publish"]
	g.Expect(workflow.Jobs["build"].Steps).To(ContainElement(HaveField("Run", ContainSubstring("make landscape-release"))), "the program is published")
	g.Expect(publish.Needs).To(Equal("build"))
	g.Expect(publish.Steps).NotTo(BeEmpty())
	for _, step := range publish.Steps {
		g.Expect(step.Uses).NotTo(Or(ContainSubstring("checkout"), ContainSubstring("setup-go")))
		g.Expect(step.Run).NotTo(MatchRegexp(`\b(go|make) `))
	}
}

func TestTheReferenceHasWhatItLinksTo(t *testing.T) {
	link, heading := regexp.MustCompile(`\]\(([a-z]+\.md)?#([a-z0-9-]+)\)`), regexp.MustCompile(`(?m)^## (\w+)$`)
	headings := map[string][]string{}
	names, err := filepath.Glob(filepath.Join(root, "docs/reference/*.md"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	NewWithT(t).Expect(names).To(HaveLen(2))
	contents := map[string]string{}
	for _, name := range names {
		content, err := os.ReadFile(name) // #nosec G304 -- of the repository
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		contents[filepath.Base(name)] = string(content)
		for _, match := range heading.FindAllStringSubmatch(string(content), -1) {
			headings[filepath.Base(name)] = append(headings[filepath.Base(name)], strings.ToLower(match[1]))
		}
	}
	for name, content := range contents {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			links := link.FindAllStringSubmatch(content, -1)
			g.Expect(len(links)).To(BeNumerically(">", 10))
			for _, match := range links {
				g.Expect(headings[cmp.Or(match[1], name)]).To(ContainElement(match[2]), "a type of another package belongs to hack/api-reference/config.yaml")
			}
		})
	}
}
