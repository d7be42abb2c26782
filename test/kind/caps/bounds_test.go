// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestWhatNoProcessCanHave(t *testing.T) {
	g := NewWithT(t)
	g.Expect(missing([]byte("CapEff:\t0\nCapBnd:\t000001ffffffffff\n"))).To(BeEmpty())
	g.Expect(missing([]byte("CapBnd:\t000001fffeffffff\n"))).To(Equal(map[string]bool{"CAP_SYS_RESOURCE": true}))
	_, err := missing([]byte("CapEff:\t0\n"))
	g.Expect(err).To(HaveOccurred())
}

func TestCapabilitiesAreTakenOutAndNothingElse(t *testing.T) {
	lacking := map[string]bool{"CAP_SYS_RESOURCE": true}
	for name, test := range map[string]struct{ in, out string }{
		"a container": {
			`{"ociVersion":"1.0.2","process":{"capabilities":{"bounding":["CAP_KILL","CAP_SYS_RESOURCE"],"ambient":null},"rlimits":[{"hard":18446744073709551615}]}}`,
			`{"ociVersion":"1.0.2","process":{"capabilities":{"bounding":["CAP_KILL"],"ambient":[]},"rlimits":[{"hard":18446744073709551615}]}}`,
		},
		"a process":              {`{"args":["sh"],"capabilities":{"effective":["CAP_SYS_RESOURCE"]}}`, `{"args":["sh"],"capabilities":{"effective":[]}}`},
		"one that asks for none": {`{"args":["sh"]}`, `{"args":["sh"]}`},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := without([]byte(test.in), lacking)
			g := NewWithT(t)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(out).To(MatchJSON(test.out))
			if name == "a container" {
				g.Expect(string(out)).To(ContainSubstring("18446744073709551615"))
			}
		})
	}
}
