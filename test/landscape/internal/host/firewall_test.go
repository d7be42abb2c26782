// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

const ownRules = `-F PROVIDER-LOCAL
-A PROVIDER-LOCAL -i pl-pods -j ACCEPT
-A PROVIDER-LOCAL -o pl-pods -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A PROVIDER-LOCAL -o pl-pods -m addrtype --src-type LOCAL -j ACCEPT
-A PROVIDER-LOCAL -o pl-pods -m conntrack --ctstate DNAT -j ACCEPT
-A PROVIDER-LOCAL -o pl-pods -j DROP
`

func TestOpening(t *testing.T) {
	for _, test := range []struct{ name, saved, want string }{
		{
			name:  "comes first where Docker drops what is forwarded",
			saved: "*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [0:0]\n:DOCKER-USER - [0:0]\n-A FORWARD -j DOCKER-USER\n-A DOCKER-USER -j RETURN\nCOMMIT\n",
			want:  "*filter\n:PROVIDER-LOCAL - [0:0]\n" + ownRules + "-I INPUT 1 -j PROVIDER-LOCAL\n-I FORWARD 1 -j PROVIDER-LOCAL\n-I OUTPUT 1 -j PROVIDER-LOCAL\nCOMMIT\n",
		},
		{
			name: "comes after kube-proxy, which refuses what is sent to a Service without endpoints",
			saved: "*nat\n-A INPUT -j KUBE-X\nCOMMIT\n*filter\n:KUBE-FORWARD - [0:0]\n-A FORWARD -j KUBE-PROXY-FIREWALL\n-A FORWARD -m comment --comment x -j KUBE-FORWARD\n" +
				"-A FORWARD -j DOCKER-USER\n-A OUTPUT -j KUBE-FIREWALL\nCOMMIT\n",
			want: "*filter\n:PROVIDER-LOCAL - [0:0]\n" + ownRules + "-I INPUT 1 -j PROVIDER-LOCAL\n-I FORWARD 3 -j PROVIDER-LOCAL\n-I OUTPUT 2 -j PROVIDER-LOCAL\nCOMMIT\n",
		},
		{
			name:  "is not repeated",
			saved: "*filter\n:PROVIDER-LOCAL - [0:0]\n-A INPUT -j PROVIDER-LOCAL\n-A FORWARD -j PROVIDER-LOCAL\n-A OUTPUT -j PROVIDER-LOCAL\n-A PROVIDER-LOCAL -i pl-pods -j ACCEPT\nCOMMIT\n",
			want:  "*filter\n" + ownRules + "COMMIT\n",
		},
		{name: "needs no rules of others", want: "*filter\n:PROVIDER-LOCAL - [0:0]\n" + ownRules + "-I INPUT 1 -j PROVIDER-LOCAL\n-I FORWARD 1 -j PROVIDER-LOCAL\n-I OUTPUT 1 -j PROVIDER-LOCAL\nCOMMIT\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			NewWithT(t).Expect(opening(test.saved)).To(Equal(test.want))
		})
	}
}

// inNamespace runs a test again in a network namespace of its own, whose rules are nobody's.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const marker = "PROVIDER_LOCAL_TEST_NAMESPACE"
	if os.Getenv(marker) == t.Name() {
		return true
	}
	if os.Geteuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	for _, program := range []string{"unshare", "nft", "iptables"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs " + program)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--net", self, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), marker+"="+t.Name())
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

func TestTheFirewallIsOpenedAndClosed(t *testing.T) {
	if !inNamespace(t) {
		return
	}
	g := NewWithT(t)
	shell := func(script string) string {
		t.Helper()
		out, err := exec.CommandContext(t.Context(), "sh", "-euc", script).CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
		return string(out)
	}
	const mine = `table inet mine {
	chain incoming { type filter hook input priority 0; policy drop; iif lo accept; }
	chain passing { type filter hook forward priority 0; policy drop; }
	chain harmless { type filter hook output priority 0; policy accept; }
	chain translate { type nat hook postrouting priority 100; policy accept; masquerade; }
	chain helper-chain { counter; }
}
`
	config := filepath.Join(t.TempDir(), "mine.nft")
	g.Expect(os.WriteFile(config, []byte(mine), 0o600)).To(Succeed())
	shell("iptables -P FORWARD DROP; iptables -A FORWARD -j DROP; nft -f " + config)
	listing := func() string {
		return shell("iptables-save | grep -v '^#' | sed 's/\\[.*//'; nft -s list table inet mine")
	}
	before := listing()

	for range 2 { // again changes nothing
		g.Expect(OpenFirewall(t.Context())).To(Succeed())
	}
	opened := listing()
	g.Expect(strings.Count(opened, "jump PROVIDER-LOCAL")).To(Equal(2), opened)
	g.Expect(strings.Count(opened, "-j PROVIDER-LOCAL")).To(Equal(3), opened)
	g.Expect(shell("nft list chain inet mine passing")).To(MatchRegexp(`policy drop;\s+jump PROVIDER-LOCAL`))

	for range 2 {
		g.Expect(CloseFirewall(t.Context())).To(Succeed())
	}
	g.Expect(listing()).To(Equal(before))
}

func TestTablesAndChainsThatIPTablesMadeAreDeletedWhenEmpty(t *testing.T) {
	g := NewWithT(t)
	var before, after nftRuleset
	g.Expect(json.Unmarshal([]byte(`{"nftables": [
		{"table": {"family": "ip6", "name": "filter"}},
		{"table": {"family": "ip", "name": "raw"}}, {"chain": {"family": "ip", "table": "raw", "name": "OUTPUT", "type": "filter", "hook": "output", "policy": "accept"}},
		{"table": {"family": "inet", "name": "mine"}}, {"chain": {"family": "inet", "table": "mine", "name": "in", "type": "filter", "hook": "input", "policy": "drop"}}
	]}`), &before)).To(Succeed())
	g.Expect(json.Unmarshal([]byte(`{"nftables": [
		{"table": {"family": "ip", "name": "filter"}}, {"chain": {"family": "ip", "table": "filter", "name": "INPUT", "type": "filter", "hook": "input", "policy": "accept"}},
		{"table": {"family": "ip", "name": "nat"}}, {"chain": {"family": "ip", "table": "nat", "name": "DOCKER"}},
		{"chain": {"family": "ip", "table": "nat", "name": "INPUT", "type": "nat", "hook": "input", "policy": "accept"}},
		{"chain": {"family": "ip", "table": "nat", "name": "OUTPUT", "type": "nat", "hook": "output", "policy": "accept"}},
		{"rule": {"family": "ip", "table": "nat", "chain": "OUTPUT", "handle": 7, "expr": [{"jump": {"target": "DOCKER"}}]}},
		{"table": {"family": "ip", "name": "mangle"}}, {"chain": {"family": "ip", "table": "mangle", "name": "INPUT", "type": "filter", "hook": "input", "policy": "drop"}},
		{"table": {"family": "ip", "name": "raw"}}, {"chain": {"family": "ip", "table": "raw", "name": "OUTPUT", "type": "filter", "hook": "output", "policy": "accept"}},
		{"table": {"family": "ip6", "name": "filter"}}, {"chain": {"family": "ip6", "table": "filter", "name": "INPUT", "type": "filter", "hook": "input", "policy": "accept"}},
		{"table": {"family": "inet", "name": "mine"}}, {"chain": {"family": "inet", "table": "mine", "name": "in", "type": "filter", "hook": "input", "policy": "accept"}}
	]}`), &after)).To(Succeed())
	g.Expect(nftEmpty(after, before.chainNames())).To(Equal("delete table ip filter\ndelete chain ip nat INPUT\ndelete chain ip6 filter INPUT\n"),
		"rules, a policy, what was there, and tables that are not of iptables stay")
}
