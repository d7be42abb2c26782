// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

// Chain has the landscape's own rules, in iptables' table filter and in each table of nftables that filters. Its name is
// nobody else's.
const Chain = "PROVIDER-LOCAL"

// Docker, ufw and many a nftables.conf drop what is forwarded, which are packets between pods as well. A packet has to be
// accepted by every table that looks at it, so each gets rules for the pods' bridge: packets of pods pass, answers to pods, what
// this machine sends to pods, and what anybody sends to Services, load balancers and ports that lead to pods. Nobody else gets a
// way to the pods, though this machine forwards packets.
var (
	iptablesRules = [][]string{
		{"-i", layout.PodBridge, "-j", "ACCEPT"},
		{"-o", layout.PodBridge, "-m", "conntrack", "--ctstate", "RELATED,ESTABLISHED", "-j", "ACCEPT"},
		{"-o", layout.PodBridge, "-m", "addrtype", "--src-type", "LOCAL", "-j", "ACCEPT"},
		{"-o", layout.PodBridge, "-m", "conntrack", "--ctstate", "DNAT", "-j", "ACCEPT"},
		{"-o", layout.PodBridge, "-j", "DROP"},
	}
	nftRules = []string{
		fmt.Sprintf("iifname %q accept", layout.PodBridge),
		fmt.Sprintf("oifname %q ct state established,related accept", layout.PodBridge),
		fmt.Sprintf("oifname %q fib saddr type local accept", layout.PodBridge),
		fmt.Sprintf("oifname %q ct status dnat accept", layout.PodBridge),
		fmt.Sprintf("oifname %q drop", layout.PodBridge),
	}
	hooks = []string{"INPUT", "FORWARD", "OUTPUT"}
)

// OpenFirewall lets the pods' packets pass, whatever policy this machine has for others. It changes nothing that is there.
func OpenFirewall(ctx context.Context) error {
	saved, err := save(ctx, "iptables")
	if err != nil {
		return err
	}
	if err := feed(ctx, opening(string(saved)), "iptables-restore", "--noflush", "--wait"); err != nil {
		return err
	}
	zoned, err := trustedZone(ctx, "add")
	if err != nil {
		return err
	}
	ruleset, err := listRuleset(ctx)
	if err != nil {
		return err
	}
	managed, err := iptablesIsNFT(ctx)
	if err != nil {
		return err
	}
	script := nftOpen(ruleset, func(t nftTable) bool { return (managed && t.ofIPTables()) || (zoned && t.Name == "firewalld") })
	return feed(ctx, script, "nft", "--file", "-")
}

// CloseFirewall removes the landscape's rules.
func CloseFirewall(ctx context.Context) error {
	saved, err := save(ctx, "iptables")
	if err != nil {
		return err
	}
	if err := feed(ctx, removal(string(saved), func(_, chain string) bool { return chain == Chain }), "iptables-restore", "--noflush", "--wait"); err != nil {
		return err
	}
	if _, err := trustedZone(ctx, "remove"); err != nil {
		return err
	}
	ruleset, err := listRuleset(ctx)
	if err != nil {
		return err
	}
	return feed(ctx, nftClose(ruleset), "nft", "--file", "-")
}

// opening is a script for iptables-restore --noflush that brings the landscape's chain about. kube-proxy refuses what is sent to
// Services without endpoints in chains of its own, which have to come before this one.
func opening(saved string) string {
	_, filter, _ := strings.Cut(saved, "*filter\n")
	filter, _, _ = strings.Cut(filter, "COMMIT\n")
	rules, after, done := map[string]int{}, map[string]int{}, map[string]bool{}
	for line := range strings.Lines(filter) {
		fields := strings.Fields(line)
		if !strings.HasPrefix(line, "-A ") {
			continue
		}
		chain, jump := fields[1], slices.Index(fields, "-j")+1
		rules[chain]++
		switch {
		case jump == 0 || jump == len(fields):
		case strings.HasPrefix(fields[jump], "KUBE-"):
			after[chain] = rules[chain]
		case fields[jump] == Chain:
			done[chain] = true
		}
	}
	var script strings.Builder
	script.WriteString("*filter\n")
	if !strings.Contains(filter, ":"+Chain+" ") {
		script.WriteString(":" + Chain + " - [0:0]\n")
	}
	script.WriteString("-F " + Chain + "\n")
	for _, rule := range iptablesRules {
		script.WriteString("-A " + Chain + " " + strings.Join(rule, " ") + "\n")
	}
	for _, hook := range hooks {
		if !done[hook] {
			script.WriteString("-I " + hook + " " + strconv.Itoa(after[hook]+1) + " -j " + Chain + "\n")
		}
	}
	script.WriteString("COMMIT\n")
	return script.String()
}

// nftTable is a table of nftables.
type nftTable struct {
	Family string `json:"family"`
	Name   string `json:"name"`
}

func (t nftTable) String() string { return t.Family + " " + t.Name }

// ofIPTables reports whether it is one of those that the iptables commands keep in nftables.
func (t nftTable) ofIPTables() bool {
	return (t.Family == "ip" || t.Family == "ip6") && slices.Contains([]string{"filter", "nat", "mangle", "raw", "security"}, t.Name)
}

// nftRuleset is the part of `nft --json list ruleset` that matters here.
type nftRuleset struct {
	Objects []struct {
		Table *nftTable `json:"table"`
		Chain *nftChain `json:"chain"`
		Rule  *nftRule  `json:"rule"`
	} `json:"nftables"`
}

type nftChain struct {
	Family string `json:"family"`
	Table  string `json:"table"`
	Name   string `json:"name"`
	Type   string `json:"type"`
	Hook   string `json:"hook"`
	Policy string `json:"policy"`
}

func (c nftChain) String() string { return c.Family + " " + c.Table + " " + c.Name }

type nftRule struct {
	Family string          `json:"family"`
	Table  string          `json:"table"`
	Chain  string          `json:"chain"`
	Handle int             `json:"handle"`
	Expr   json.RawMessage `json:"expr"`
}

func (r nftRule) jumpsToOwn() bool { return bytes.Contains(r.Expr, []byte(`"target": "`+Chain+`"`)) }

func (r nftRuleset) tables() []nftTable {
	var all []nftTable
	for _, object := range r.Objects {
		if object.Table != nil {
			all = append(all, *object.Table)
		}
	}
	return all
}

// filtering returns the chains of a table that may drop what passes this machine: those at one of the hooks, unless they have
// no rules and accept.
func (r nftRuleset) filtering(t nftTable) []nftChain {
	var found []nftChain
	for _, object := range r.Objects {
		c := object.Chain
		if c == nil || c.Family != t.Family || c.Table != t.Name || c.Type != "filter" || !slices.Contains(hooks, strings.ToUpper(c.Hook)) {
			continue
		}
		if c.Policy == "drop" || len(r.rules(*c)) > 0 {
			found = append(found, *c)
		}
	}
	return found
}

func (r nftRuleset) rules(c nftChain) []nftRule {
	var found []nftRule
	for _, object := range r.Objects {
		if rule := object.Rule; rule != nil && rule.Family == c.Family && rule.Table == c.Table && rule.Chain == c.Name {
			found = append(found, *rule)
		}
	}
	return found
}

// nftOpen is a script for nft that adds the landscape's chain to every table that filters, but to those that skip names.
func nftOpen(ruleset nftRuleset, skip func(nftTable) bool) string {
	var script strings.Builder
	for _, t := range ruleset.tables() {
		if !slices.Contains([]string{"inet", "ip"}, t.Family) || skip(t) {
			continue
		}
		var jumps []string
		for _, chain := range ruleset.filtering(t) {
			if !slices.ContainsFunc(ruleset.rules(chain), nftRule.jumpsToOwn) {
				jumps = append(jumps, fmt.Sprintf("insert rule %s %s %s jump %s\n", t.Family, t.Name, chain.Name, Chain))
			}
		}
		if len(jumps) == 0 {
			continue
		}
		fmt.Fprintf(&script, "add chain %[1]s %[2]s %[3]s\nflush chain %[1]s %[2]s %[3]s\n", t.Family, t.Name, Chain)
		for _, rule := range nftRules {
			fmt.Fprintf(&script, "add rule %s %s %s %s\n", t.Family, t.Name, Chain, rule)
		}
		script.WriteString(strings.Join(jumps, ""))
	}
	return script.String()
}

// nftClose is a script for nft that removes the landscape's chains, and the rules that lead there.
func nftClose(ruleset nftRuleset) string {
	var jumps, chains strings.Builder
	for _, object := range ruleset.Objects {
		if r := object.Rule; r != nil && r.jumpsToOwn() {
			fmt.Fprintf(&jumps, "delete rule %s %s %s handle %d\n", r.Family, r.Table, r.Chain, r.Handle)
		}
		if c := object.Chain; c != nil && c.Name == Chain {
			fmt.Fprintf(&chains, "flush chain %[1]s %[2]s %[3]s\ndelete chain %[1]s %[2]s %[3]s\n", c.Family, c.Table, c.Name)
		}
	}
	return jumps.String() + chains.String()
}

// nftEmpty is a script for nft that deletes the tables and the chains at hooks that the iptables commands made meanwhile, if there
// is nothing in them any more. before are those that were there, as chainNames has them.
func nftEmpty(ruleset nftRuleset, before []string) string {
	var script strings.Builder
	for _, t := range ruleset.tables() {
		if !t.ofIPTables() {
			continue
		}
		var empty []string
		used := false
		for _, object := range ruleset.Objects {
			c := object.Chain
			if c == nil || c.Family != t.Family || c.Table != t.Name {
				continue
			}
			if c.Hook == "" || c.Policy == "drop" || len(ruleset.rules(*c)) > 0 || slices.Contains(before, c.String()) {
				used = true
			} else {
				empty = append(empty, c.String())
			}
		}
		if !used && !slices.Contains(before, t.String()) {
			fmt.Fprintf(&script, "delete table %s\n", t)
			continue
		}
		for _, chain := range empty {
			fmt.Fprintf(&script, "delete chain %s\n", chain)
		}
	}
	return script.String()
}

// chainNames lists the tables, and the chains at hooks of those that the iptables commands keep.
func (r nftRuleset) chainNames() []string {
	var names []string
	for _, object := range r.Objects {
		if object.Table != nil {
			names = append(names, object.Table.String())
		}
		if c := object.Chain; c != nil && c.Hook != "" && (nftTable{c.Family, c.Table}).ofIPTables() {
			names = append(names, c.String())
		}
	}
	return names
}

func listRuleset(ctx context.Context) (nftRuleset, error) {
	var ruleset nftRuleset
	path, err := exec.LookPath("nft")
	if err != nil {
		return ruleset, nil
	}
	out, err := output(ctx, path, "--json", "list", "ruleset")
	if err != nil {
		return ruleset, err
	}
	if err := json.Unmarshal(out, &ruleset); err != nil {
		return ruleset, fmt.Errorf("reading the rules of nftables: %w", err)
	}
	return ruleset, nil
}

// feed gives a script to a program that changes rules; an empty one changes nothing.
func feed(ctx context.Context, script, program string, args ...string) error {
	if script == "" {
		return nil
	}
	cmd := exec.CommandContext(ctx, program, args...) // #nosec G204 -- fixed commands of this package.
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("changing rules with %s: %w: %s", program, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// iptablesIsNFT reports whether the iptables commands keep their rules in nftables.
func iptablesIsNFT(ctx context.Context) (bool, error) {
	path, err := exec.LookPath("iptables")
	if err != nil {
		return false, nil
	}
	out, err := output(ctx, path, "--version")
	return strings.Contains(string(out), "nf_tables"), err
}

// trustedZone adds the landscape's bridges to firewalld's zone "trusted", or removes them, until firewalld starts the next
// time: nobody else may change the tables of newer versions. It reports whether firewalld runs.
func trustedZone(ctx context.Context, verb string) (bool, error) {
	path, err := exec.LookPath("firewall-cmd")
	if err != nil {
		return false, nil
	}
	if err := exec.CommandContext(ctx, path, "--quiet", "--state").Run(); err != nil { // #nosec G204 -- firewall-cmd.
		return false, nil
	}
	for _, device := range []string{layout.Interface, layout.PodBridge} {
		in := exec.CommandContext(ctx, path, "--quiet", "--zone=trusted", "--query-interface="+device).Run() == nil // #nosec G204 -- firewall-cmd.
		if in == (verb == "add") {
			continue
		}
		if err := run(ctx, path, "--quiet", "--zone=trusted", "--"+verb+"-interface="+device); err != nil {
			return true, err
		}
	}
	return true, nil
}
