// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestCommandsOfAVariant(t *testing.T) {
	for _, test := range []struct {
		name, accelerator string
		variant           Variant
		up, down          string
	}{
		{name: "with KVM the whole comes up", accelerator: "kvm", variant: Variant{Expect: Serves}, up: "make up", down: "make down"},
		{
			name: "with TCG as much as there is time for", accelerator: "tcg", variant: Variant{Expect: Serves},
			up: "bin/landscape/landscape up --until dns", down: "bin/landscape/landscape down",
		},
		{name: "with TCG as the README says it", accelerator: "tcg", variant: Variant{Expect: Serves, Make: true}, up: "make up UNTIL=dns", down: "make down"},
		{
			name: "who is refused wants all of it", accelerator: "tcg", variant: Variant{Expect: Refuses},
			up: "bin/landscape/landscape up", down: "bin/landscape/landscape down",
		},
		{
			name: "with another network", accelerator: "kvm", variant: Variant{Expect: Serves, Network: "172.30.0.0/16"},
			up: "make up NETWORK=172.30.0.0/16", down: "make down",
		},
		{
			name: "with another network and TCG", accelerator: "tcg", variant: Variant{Expect: Serves, Network: "172.30.0.0/16"},
			up: "bin/landscape/landscape up --until dns --network 172.30.0.0/16", down: "bin/landscape/landscape down",
		},
		{name: "its own", accelerator: "kvm", variant: Variant{Expect: Serves, Up: "a", Down: "b"}, up: "a", down: "b"},
	} {
		t.Run(test.name, func(t *testing.T) {
			up, down := test.variant.commands(test.accelerator)
			g := NewWithT(t)
			g.Expect(up).To(Equal(test.up))
			g.Expect(down).To(Equal(test.down))
		})
	}
}
