// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bounds

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestElementsCountDepthAsWell(t *testing.T) {
	NewWithT(t).Expect(Elements([]byte(`{"a": [{}, 1]}`))).To(Equal(4))
}

func TestYAMLIsShortAndHasNoAliases(t *testing.T) {
	g := NewWithT(t)
	g.Expect(CheckYAML([]byte("a: 1\nb: '*'"))).To(Succeed())
	g.Expect(CheckYAML([]byte("server: https://example.com?a&b"))).To(Succeed())
	g.Expect(CheckYAML([]byte("a: &a x\nb: *a"))).To(MatchError(ContainSubstring("aliases")))
	g.Expect(CheckYAML([]byte(strings.Repeat("-\n", 4097)))).To(MatchError(ContainSubstring("at most 4096 are allowed")))
	g.Expect(CheckYAML([]byte("[" + strings.Repeat("1,", 4097) + "1]"))).To(MatchError(ContainSubstring("at most 4096 are allowed")))
	for _, lineBreak := range []string{"\r", "\u0085", "\u2028", "\u2029"} {
		g.Expect(CheckYAML([]byte(strings.Repeat("-"+lineBreak, 4097)))).To(MatchError(ContainSubstring("at most 4096 are allowed")))
	}
	g.Expect(CheckYAML([]byte(strings.Repeat("[", 4097)))).To(MatchError(ContainSubstring("at most 4096 are allowed")), "depth counts")
	g.Expect(CheckYAML([]byte(strings.Repeat("- ", 4097)))).To(MatchError(ContainSubstring("at most 4096 are allowed")))
	g.Expect(CheckYAML(make([]byte, 1<<19))).To(MatchError(ContainSubstring("at most 262144 are allowed")))
}
