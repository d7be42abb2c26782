// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"strings"
	"testing"

	miekgdns "github.com/miekg/dns"
	. "github.com/onsi/gomega"
)

func TestValuesSurviveTheWayToTheAnswer(t *testing.T) {
	for _, value := range []string{"plain", `a "b" c`, `back\slash`, `\065`, "; comment", "$ORIGIN (", "ünï", strings.Repeat("0123456789", 100), strings.Repeat(`\"`, 300)} {
		t.Run(value, func(t *testing.T) {
			g := NewWithT(t)
			line := Record{Name: "a.local.gardener.cloud", Type: "TXT", TTL: 1}.ResourceRecord(value).String()
			rr, err := miekgdns.NewRR(line)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(rr.(*miekgdns.TXT).Txt).To(HaveEach(Satisfy(func(s string) bool { return len(unescape(s)) <= 255 })))

			// Over the wire, as an answer comes.
			message := &miekgdns.Msg{Answer: []miekgdns.RR{rr}}
			wire, err := message.Pack()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(message.Unpack(wire)).To(Succeed())
			g.Expect(ValueOf(message.Answer[0])).To(Equal(value))
		})
	}
}
