// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const root = "../.."

func TestThePageSaysWhatTheChartsGrant(t *testing.T) {
	g := NewWithT(t)
	want, err := generate(root)
	g.Expect(err).NotTo(HaveOccurred())
	page, err := os.ReadFile(filepath.Join(root, page))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(page)).To(Equal(string(want)), "run make generate")
}

func TestEveryProgramHasPermissionsWithTheirReasons(t *testing.T) {
	g := NewWithT(t)
	content, err := generate(root)
	g.Expect(err).NotTo(HaveOccurred())
	sections := strings.Split(string(content), "\n## ")[1:]
	g.Expect(sections).To(HaveLen(len(programs())))
	for _, section := range sections {
		title, _, _ := strings.Cut(section, "\n")
		g.Expect(section).To(ContainSubstring("\n### "), title)
		g.Expect(section).To(MatchRegexp(`\n\| \S.* \| \S.* \| (get|list|create|patch)`), title)
	}
	g.Expect(string(content)).To(ContainSubstring("| rbac.authorization.k8s.io | rolebindings named `gardener-extension-provider-local-seed-machine-driver` | create, patch | Machine drivers"))
}

func TestWriteRole(t *testing.T) {
	role := func(rules string) string {
		return "# Two\n# lines.\napiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {name: a, namespace: b}\nrules:\n" + rules
	}
	for name, test := range map[string]struct{ document, want string }{
		"a rule with a comment and one without": {
			role("# Why.\n- apiGroups: [\"\", apps]\n  resources: [pods]\n  verbs: [get]\n- apiGroups: [apps]\n  resources: [deployments]\n  resourceNames: [one, two]\n  verbs: [patch]\n"),
			"\n### Role `a` in namespace `b`\n\nTwo lines.\n\n| API group | resources | verbs | why |\n|---|---|---|---|\n" +
				"| core, apps | pods | get | Why. |\n| apps | deployments named `one`, `two` | patch |  |\n",
		},
		"what is no role":   {"apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: a}\n", ""},
		"what is no object": {"# nothing\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			out := &strings.Builder{}
			g.Expect(writeRole(out, test.document)).To(Succeed())
			g.Expect(out.String()).To(Equal(test.want))
		})
	}

	t.Run("a rule that is written in another order", func(t *testing.T) {
		NewWithT(t).Expect(writeRole(&strings.Builder{}, role("- verbs: [get]\n  apiGroups: [apps]\n  resources: [deployments]\n"))).
			To(MatchError(ContainSubstring("1 rules, but 0 lines")))
	})
}
