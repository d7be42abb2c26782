// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package conventions_test

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// phrase is a wording that readers stumble over.
type phrase struct {
	pattern *regexp.Regexp
	// instead says why, and what to write.
	instead string
	// inGo is set if comments and strings of Go code are checked, too, and not only documents.
	inGo bool
}

// phrases are searched without regard to upper and lower case. White space in a pattern also matches the end of a line.
func phrases() []phrase {
	p := func(pattern, instead string, inGo bool) phrase {
		return phrase{regexp.MustCompile(`(?i)` + strings.ReplaceAll(pattern, " ", `\s+`)), instead, inGo}
	}
	return []phrase{
		p(`\bthe seed document`, "readers do not have it: name and link the document, or state the fact", true),
		p(`\bamiss\b`, "write wrong, unhealthy or needs repair", true),
		p(`\bnobody has to\b`, "write need not, or name who", true),
		p(`\bgo(?:es)? by (?:the|what|its|their|this|that|those|names?|positions)\b`, "write uses or follows", true),
		p(`\bof which (?:nobody|nothing|none)\b`, "write whose ... nobody, or two sentences", true),
		p(`\bis by what\b`, "name the purpose: X marks, X lets", true),
		p(`\bstood in for\b`, "write stubbed, faked or replaced (docs/glossary.md)", false),
		p(`\btells? whether\b`, "write reports whether", true),
		p(`\bis what (?:a|an|the|it|they|has|had|is|was)\b`, "name the thing", false),
		p(`\bis where (?:it|they)\b`, "name the location", false),
		p(`\bsees? to it\b`, "write ensures or makes sure", true),
	}
}

// headless is a sentence that is no question and begins with a clause in place of a noun: "What is new is ...", "Who wants ...".
var headless = phrase{
	pattern: regexp.MustCompile(`(?:^|\n\n|\n[-*] |\n\d+\. |[.:!?]\s+|\|\s*)((?:Who|What|Whoever|Whatever)\s[^.?!|]*)[.!|]`),
	instead: "begin with the noun that is meant, or with an imperative",
}

var (
	matter      = regexp.MustCompile(`\A---\n(?:.*\n)*?---\n`)
	headingLine = regexp.MustCompile(`(?m)^#{1,6} .*$`)
	linkTarget  = regexp.MustCompile(`\]\([^)]*\)`)
)

// find returns the line of each occurrence, counted from 1, and what it says.
func (p phrase) find(text string) map[int]string {
	found := map[int]string{}
	for _, match := range p.pattern.FindAllStringSubmatchIndex(text, -1) {
		begin, end := match[0], match[1]
		if len(match) > 2 {
			begin, end = match[2], match[3]
		}
		found[1+strings.Count(text[:begin], "\n")] = strings.Join(strings.Fields(text[begin:end]), " ")
	}
	return found
}

// plain is the prose of a document without code, front matter, headings and targets of links. Lines keep their numbers.
func (d document) plain() string {
	text := codeSpan.ReplaceAllString(d.prose, "CODE")
	text = matter.ReplaceAllStringFunc(text, func(matter string) string { return strings.Repeat("\n", strings.Count(matter, "\n")) })
	return linkTarget.ReplaceAllString(headingLine.ReplaceAllString(text, ""), "]")
}

// isGenerated reports whether a document is written from Go comments, charts or results, where its language is checked or changed.
func isGenerated(name string) bool {
	return strings.HasPrefix(name, "docs/reference/") || name == "docs/operations/permissions.md" || name == "docs/development/tested-machines.md" || name == "docs/development/times.md" || name == "docs/development/scale.md"
}

func TestDocumentsAreInPlainEnglish(t *testing.T) {
	g := NewWithT(t)
	checked := 0
	for _, doc := range documents(t) {
		if isGenerated(doc.name) {
			continue
		}
		checked++
		for _, p := range append(phrases(), headless) {
			for line, text := range p.find(doc.plain()) {
				g.Expect(text).To(BeEmpty(), "%s:%d: %s", doc.name, line, p.instead)
			}
		}
	}
	g.Expect(checked).To(BeNumerically(">", 15))
}

func TestCodeIsInPlainEnglish(t *testing.T) {
	g := NewWithT(t)
	checked := 0
	for _, name := range files(t) {
		if path.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") || strings.Contains(name, "/testdata/") {
			continue
		}
		content, err := os.ReadFile(filepath.Join(root, name)) // #nosec G304 -- of the repository
		g.Expect(err).NotTo(HaveOccurred())
		if bytes.Contains(content, []byte("DO NOT EDIT")) {
			continue
		}
		texts, err := textsOf(name, content)
		g.Expect(err).NotTo(HaveOccurred())
		checked++
		for begin, text := range texts {
			for _, p := range phrases() {
				if !p.inGo {
					continue
				}
				for line, said := range p.find(text) {
					g.Expect(said).To(BeEmpty(), "%s:%d: %s", name, begin+line-1, p.instead)
				}
			}
		}
	}
	g.Expect(checked).To(BeNumerically(">", 100))
}

// textsOf returns the comments and strings of a Go file by the line in which they begin.
func textsOf(name string, content []byte) (map[int]string, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, content, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	texts := map[int]string{}
	add := func(node ast.Node, text string) {
		line := set.Position(node.Pos()).Line
		texts[line] += text + "\n"
	}
	for _, group := range file.Comments {
		add(group, group.Text())
	}
	ast.Inspect(file, func(node ast.Node) bool {
		if literal, ok := node.(*ast.BasicLit); ok && literal.Kind == token.STRING {
			if text, err := strconv.Unquote(literal.Value); err == nil {
				add(literal, text)
			}
		}
		return true
	})
	return texts, nil
}

// mirrors are hosts of package mirrors and module proxies. Which one is used is a setting of the machine.
var mirrors = regexp.MustCompile(`(?i)\b(?:deb|ftp|archive|security|ports|snapshot)\.(?:debian|ubuntu)\.(?:org|com)\b|\b(?:proxy|sum)\.golang\.org\b|\bgoproxy\.(?:io|cn)\b`)

func TestNoFileNamesAPackageMirror(t *testing.T) {
	g := NewWithT(t)
	for _, name := range files(t) {
		content, err := os.ReadFile(filepath.Join(root, name)) // #nosec G304 -- of the repository
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(mirrors.Find(content))).To(BeEmpty(), "%s: leave the host out", name)
	}
}

var frontMatter = regexp.MustCompile(`^---\ntitle: \S.*\ndescription: \S.*\n---\n+# `)

func TestDocumentsHaveFrontMatter(t *testing.T) {
	g := NewWithT(t)
	for _, doc := range documents(t) {
		if strings.HasPrefix(doc.name, "docs/") && !strings.HasPrefix(doc.name, "docs/reference/") {
			g.Expect(doc.prose).To(MatchRegexp(frontMatter.String()), "%s: begin with title and description", doc.name)
		}
	}
}

func TestPhrases(t *testing.T) {
	for text, want := range map[string]int{
		"It tells whether it runs.":                                   1,
		"It tells\nwhether it runs, and goes by the name.":            2,
		"It goes by itself. Gone by the time.":                        0,
		"The etcd is stood in for.":                                   1,
		"Nothing.\n\nWhat is new is restarted.":                       1,
		"Run it. Who wants more\nwaits.":                              1,
		"1. Who changes it has seen it.":                              1,
		"| a | What it makes is gone |":                               1,
		"| page | What is new? |\n\nWho may do what? See below.":      0,
		"## What is new\n\nIt lists what is new. `What is it` is it.": 0,
		"[What is new](a.md#b) is listed.":                            0,
		"---\ntitle: A\ndescription: What is new\n---\n\nAll of it.":  0,
	} {
		t.Run(text, func(t *testing.T) {
			g := NewWithT(t)
			doc, ok := parse("a.md", text)
			g.Expect(ok).To(BeTrue())
			found := 0
			for _, p := range append(phrases(), headless) {
				found += len(p.find(doc.plain()))
			}
			g.Expect(found).To(Equal(want))
		})
	}
	g := NewWithT(t)
	texts, err := textsOf("a.go", []byte("package a\n\n// It is with\n// amiss.\nconst b = \"amiss, too\" // nobody has to\n"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(texts).To(Equal(map[int]string{3: "It is with\namiss.\n\n", 5: "nobody has to\n\namiss, too\n"}))
	g.Expect(mirrors.MatchString("proxy.golang" + ".org")).To(BeTrue())
	g.Expect(mirrors.MatchString("go.dev/dl, github.com/elazarl/goproxy")).To(BeFalse())
}
