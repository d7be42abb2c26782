// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package conventions_test

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// document is a Markdown file.
type document struct {
	// name is its path in the repository.
	name string
	// prose is all that is not in a block of code. Lines of blocks are empty, so that numbers of lines stay.
	prose  string
	blocks []block
}

// block is a fenced block of code.
type block struct {
	// line is that of the opening fence, language what follows it, and attributes all else there.
	line       int
	language   string
	attributes string
	lines      []string
}

// bench is written by `make bench`, which takes an hour.
const bench = "docs/bench"

func documents(t *testing.T) []document {
	t.Helper()
	g := NewWithT(t)
	var out []document
	for _, name := range files(t) {
		if path.Ext(name) != ".md" || strings.HasPrefix(name, bench+"/") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name)) // #nosec G304 -- of the repository
		g.Expect(err).NotTo(HaveOccurred())
		doc, ok := parse(name, string(content))
		g.Expect(ok).To(BeTrue(), "%s: a block of code does not end", name)
		out = append(out, doc)
	}
	g.Expect(len(out)).To(BeNumerically(">", 20))
	return out
}

// parse tells prose and blocks of code apart.
func parse(name, content string) (document, bool) {
	doc := document{name: name}
	var prose []string
	var open *block
	for i, line := range strings.Split(content, "\n") {
		fence, isFence := strings.CutPrefix(strings.TrimSpace(line), "```")
		switch {
		case isFence && open == nil:
			language, attributes, _ := strings.Cut(fence, " ")
			open = &block{line: i + 1, language: language, attributes: attributes}
		case isFence:
			doc.blocks, open = append(doc.blocks, *open), nil
		case open != nil:
			open.lines = append(open.lines, strings.TrimSpace(line))
		default:
			prose = append(prose, line)
			continue
		}
		prose = append(prose, "")
	}
	doc.prose = strings.Join(prose, "\n")
	return doc, open == nil
}

var (
	heading   = regexp.MustCompile(`(?m)^#{1,6} +(.+?) *#*$`)
	anchorTag = regexp.MustCompile(`<a (?:id|name)="([^"]+)"`)
	markup    = regexp.MustCompile("`|\\*|\\]\\([^)]*\\)|\\[")
	notInSlug = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	codeSpan  = regexp.MustCompile("`+[^`\n]+`+")
	link      = regexp.MustCompile(`\]\(<?([^)\s>]+)>?(?: "[^"]*")?\)`)
)

// anchors returns what a link into the document can end in, as GitHub makes it of headings.
func (d document) anchors() []string {
	var out []string
	seen := map[string]int{}
	for _, match := range heading.FindAllStringSubmatch(d.prose, -1) {
		slug := notInSlug.ReplaceAllString(strings.ToLower(markup.ReplaceAllString(match[1], "")), "")
		slug = strings.ReplaceAll(slug, " ", "-")
		if seen[slug]++; seen[slug] > 1 {
			slug += "-" + strconv.Itoa(seen[slug]-1)
		}
		out = append(out, slug)
	}
	for _, match := range anchorTag.FindAllStringSubmatch(d.prose, -1) {
		out = append(out, match[1])
	}
	return out
}

func TestLinksOfDocumentsLeadSomewhere(t *testing.T) {
	g := NewWithT(t)
	docs := documents(t)
	anchors := map[string][]string{}
	for _, doc := range docs {
		anchors[doc.name] = doc.anchors()
	}
	for _, doc := range docs {
		for _, match := range link.FindAllStringSubmatch(codeSpan.ReplaceAllString(doc.prose, ""), -1) {
			if strings.Contains(match[1], "://") || strings.HasPrefix(match[1], "mailto:") {
				continue
			}
			target, anchor, hasAnchor := strings.Cut(match[1], "#")
			name := doc.name
			if target != "" {
				name = path.Join(path.Dir(doc.name), target)
			}
			if strings.HasPrefix(name, bench) && !exists(bench) {
				continue
			}
			g.Expect(exists(name)).To(BeTrue(), "%s links to %s, which is not there", doc.name, match[1])
			if hasAnchor && path.Ext(name) == ".md" {
				g.Expect(anchors[name]).To(ContainElement(anchor), "%s links to %s", doc.name, match[1])
			}
		}
	}
}

func TestEveryDocumentIsInTheIndex(t *testing.T) {
	g := NewWithT(t)
	var linked []string
	docs := documents(t)
	for _, doc := range docs {
		if doc.name == "docs/README.md" {
			for _, match := range link.FindAllStringSubmatch(doc.prose, -1) {
				target, _, _ := strings.Cut(match[1], "#")
				linked = append(linked, path.Join("docs", target))
			}
		}
	}
	for _, doc := range docs {
		if strings.HasPrefix(doc.name, "docs/") && doc.name != "docs/README.md" {
			g.Expect(linked).To(ContainElement(doc.name), "docs/README.md does not name it")
		}
	}
}

var (
	pathInRepository = regexp.MustCompile(`^(?:\./)?((?:\.ci|\.github|charts|docs|example|gardenlet-extension|hack|operator-extension|pkg|skaffold|test)/[^\s:,;]+)$`)
	// A word in capitals stands for something else, and so do these.
	placeholder = regexp.MustCompile(`[*…<>{}$]|\.\.\.|(^|/)[A-Z]{4,}($|/)`)
	words       = regexp.MustCompile(`[\s"'()|;]+`)
)

func TestFilesThatDocumentsNameAreThere(t *testing.T) {
	g := NewWithT(t)
	named := 0
	for _, doc := range documents(t) {
		var candidates []string
		for _, span := range codeSpan.FindAllString(doc.prose, -1) {
			candidates = append(candidates, strings.Trim(span, "`"))
		}
		for _, block := range doc.blocks {
			if block.isCommands() {
				candidates = append(candidates, words.Split(strings.Join(block.lines, "\n"), -1)...)
			}
		}
		for _, candidate := range candidates {
			match := pathInRepository.FindStringSubmatch(candidate)
			if match == nil {
				continue
			}
			name := strings.TrimSuffix(strings.TrimSuffix(match[1], "/..."), "/")
			if placeholder.MatchString(name) || strings.HasPrefix(name, bench) {
				continue
			}
			named++
			g.Expect(exists(name)).To(BeTrue(), "%s names %s, which is not there", doc.name, candidate)
		}
	}
	g.Expect(named).To(BeNumerically(">", 50))
}

func TestDocumentsNameWhatMakeAndTheLandscapeHave(t *testing.T) {
	for what, test := range map[string]struct {
		asked   *regexp.Regexp
		sources string
		offered *regexp.Regexp
	}{
		"targets of make":        {regexp.MustCompile("(?m)(?:`|^(?:\\$ )?)(?:sudo [^`\n]*?)?make ([a-z][a-z0-9-]*)"), "Makefile", regexp.MustCompile(`(?m)^([a-z][a-z0-9-]*):`)},
		"labels of suites":       {regexp.MustCompile(`LABELS='?([a-z][a-z-]*)`), "test/e2e/*/*_test.go", regexp.MustCompile(`Label\((?:"[^"]+", )?"([^"]+)"`)},
		"steps of the landscape": {regexp.MustCompile(`UNTIL=([a-z][a-z-]*)`), "test/landscape/internal/up/up.go", regexp.MustCompile(`\{Name: "([^"]+)"`)},
	} {
		t.Run(what, func(t *testing.T) {
			g := NewWithT(t)
			names, err := filepath.Glob(filepath.Join(root, test.sources))
			g.Expect(err).NotTo(HaveOccurred())
			var offered []string
			for _, name := range names {
				content, err := os.ReadFile(name) // #nosec G304 -- of the repository
				g.Expect(err).NotTo(HaveOccurred())
				for _, match := range test.offered.FindAllStringSubmatch(string(content), -1) {
					offered = append(offered, match[1])
				}
			}
			asked := 0
			for _, doc := range documents(t) {
				text := doc.prose
				for _, block := range doc.blocks {
					text += "\n" + strings.Join(block.lines, "\n")
				}
				for _, match := range test.asked.FindAllStringSubmatch(text, -1) {
					asked++
					g.Expect(offered).To(ContainElement(match[1]), "%s: %s", doc.name, match[0])
				}
			}
			g.Expect(asked).To(BeNumerically(">", 0))
		})
	}
}

// notRun begins the first line of a block of commands that no test executes; the reason may follow.
const notRun = "# not run by a test"

var (
	executedBy  = regexp.MustCompile(`(?:^| )test=(\S+)`)
	makeCommand = regexp.MustCompile(`^(?:\$ )?(?:sudo )?make ([a-z][a-z0-9-]*)([^#]*)`)
)

func (b block) isCommands() bool {
	return slices.Contains([]string{"sh", "bash", "console"}, b.language)
}

// isOfCI reports whether a block has nothing but what continuous integration has make do.
func (b block) isOfCI(ci string) bool {
	for _, line := range b.lines {
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		match := makeCommand.FindStringSubmatch(line)
		if len(match) == 0 || !regexp.MustCompile(`(?m)make `+match[1]+`( |$)`).MatchString(ci) {
			return false
		}
	}
	return true
}

// TestCommandsSayWhetherATestExecutesThem holds for all blocks of commands: they are of continuous integration, or name in
// their fence what executes the same (```sh test=PATH), or begin with a line that says that nothing does.
func TestCommandsSayWhetherATestExecutesThem(t *testing.T) {
	g := NewWithT(t)
	ci := ""
	names, err := filepath.Glob(filepath.Join(root, ".github/workflows/*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	for _, name := range append(names, filepath.Join(root, ".ci/run")) {
		content, err := os.ReadFile(name) // #nosec G304 -- of the repository
		g.Expect(err).NotTo(HaveOccurred())
		ci += string(content)
	}
	for _, doc := range documents(t) {
		for _, block := range doc.blocks {
			if !block.isCommands() {
				continue
			}
			g.Expect(block.lines).NotTo(BeEmpty(), "%s:%d", doc.name, block.line)
			test := executedBy.FindStringSubmatch(block.attributes)
			switch {
			case test != nil:
				g.Expect(exists(test[1])).To(BeTrue(), "%s:%d: %s is not there", doc.name, block.line, test[1])
			case strings.HasPrefix(block.lines[0], notRun):
			default:
				g.Expect(block.isOfCI(ci)).To(BeTrue(), "%s:%d: write test=PATH behind %s, or begin with %q", doc.name, block.line,
					cmp.Or(block.language, "the fence"), notRun)
			}
		}
	}
}

func exists(name string) bool {
	_, err := os.Stat(filepath.Join(root, name))
	return err == nil
}

func TestParse(t *testing.T) {
	g := NewWithT(t)
	doc, ok := parse("a.md", "# A `b`: c\n\n```sh test=x\nmake up\n# comment\n```\n## [D e](f.md)\n## D e\n")
	g.Expect(ok).To(BeTrue())
	g.Expect(doc.anchors()).To(Equal([]string{"a-b-c", "d-e", "d-e-1"}))
	g.Expect(doc.blocks).To(Equal([]block{{line: 3, language: "sh", attributes: "test=x", lines: []string{"make up", "# comment"}}}))
	g.Expect(doc.blocks[0].isOfCI("step up make up\n")).To(BeTrue())
	g.Expect(doc.blocks[0].isOfCI("make update")).To(BeFalse())
	_, ok = parse("a.md", "```sh\nmake up\n")
	g.Expect(ok).To(BeFalse())
}
