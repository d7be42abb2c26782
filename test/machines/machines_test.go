// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/machines"
)

func TestWhatDiffersBetweenTwoStates(t *testing.T) {
	for _, test := range []struct {
		name          string
		before, after string
		want          []string
	}{
		{name: "a rule that came", before: "=== iptables\n*filter\nCOMMIT\n", after: "=== iptables\n*filter\n-A INPUT -j DROP\nCOMMIT\n", want: []string{"iptables: +-A INPUT -j DROP"}},
		{name: "a route that went", before: "=== routes\ndefault via 10.0.2.2 dev ens3\n", after: "=== routes\n", want: []string{"routes: -default via 10.0.2.2 dev ens3"}},
		{name: "a tool that is there in one of them only", before: "=== nft\n", after: "=== nft\ntable ip nat {\n}\n", want: []string{"nft: +table ip nat {", "nft: +}"}},
		{name: "one of two equal processes", before: "=== processes\n1 root sleep 1\n1 root sleep 1\n", after: "=== processes\n1 root sleep 1\n", want: []string{"processes: -root sleep 1"}},
		{
			name: "a parameter that has another value", before: "=== sysctls\nnet.ipv4.ip_forward = 0\n", after: "=== sysctls\nnet.ipv4.ip_forward = 1\n",
			want: []string{"sysctls: -net.ipv4.ip_forward = 0", "sysctls: +net.ipv4.ip_forward = 1"},
		},
		{name: "no parameter of a module that was loaded", before: "=== sysctls\n", after: "=== sysctls\nnet.bridge.bridge-nf-call-iptables = 1\n"},
		{name: "a parameter that went", before: "=== sysctls\nvm.x = 1\n", after: "=== sysctls\n", want: []string{"sysctls: -vm.x = 1"}},
		{name: "no counters of chains", before: "=== iptables\n:INPUT ACCEPT [1:2]\n", after: "=== iptables\n:INPUT ACCEPT [33:44]\n"},
		{name: "a policy", before: "=== iptables\n:INPUT ACCEPT [1:2]\n", after: "=== iptables\n:INPUT DROP [33:44]\n", want: []string{"iptables: -:INPUT ACCEPT", "iptables: +:INPUT DROP"}},
		{name: "no counters of nftables", before: "=== nft\ncounter packets 1 bytes 2 drop\n", after: "=== nft\ncounter packets 7 bytes 8 drop\n"},
		{name: "no number of a device", before: "=== links\n3: pl0: <UP> mtu 1500\n", after: "=== links\n9: pl0: <UP> mtu 1500\n"},
		{name: "the state of a device", before: "=== links\n3: pl0: <UP> mtu 1500\n", after: "=== links\n3: pl0: <> mtu 1500\n", want: []string{"links: -pl0: <UP> mtu 1500", "links: +pl0: <> mtu 1500"}},
		{name: "no rest of a lease", before: "=== routes6\ndefault via fe80::2 expires 17sec\n", after: "=== routes6\ndefault via fe80::2 expires 9sec\n"},
		{name: "no threads of the kernel", before: "=== processes\n", after: "=== processes\n2 root [kworker/0:1]\n"},
		{name: "a mount", before: "=== mounts\n", after: "=== mounts\n99 2 0:5 / /run/netns rw shared:7 - tmpfs tmpfs rw\n", want: []string{"mounts: +/ /run/netns rw - tmpfs tmpfs rw"}},
		{name: "no session", before: "=== cgroups\n", after: "=== cgroups\n/sys/fs/cgroup/user.slice/user-0.slice/session-3.scope\n"},
		{name: "a cgroup", before: "=== cgroups\n", after: "=== cgroups\n/sys/fs/cgroup/kubepods\n", want: []string{"cgroups: +/sys/fs/cgroup/kubepods"}},
		{name: "a container that was restarted", before: "=== starts\nweb 17 2026-01-01\n", after: "=== starts\nweb 18 2026-01-01\n", want: []string{"starts: -web 17 2026-01-01", "starts: +web 18 2026-01-01"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := machines.Compare(machines.ParseState(test.before), machines.ParseState(test.after))
			NewWithT(t).Expect(got).To(Equal(test.want))
		})
	}
}

func TestDifferencesThatAVariantExplains(t *testing.T) {
	g := NewWithT(t)
	differences := []string{"links: +vpn7: <UP>", "routes: +10.98.0.0/24 dev vpn7"}
	g.Expect(machines.Unexplained(differences, []string{`links: \+vpn7.*`, `routes: \+.* dev vpn7`})).To(BeEmpty())
	g.Expect(machines.Unexplained(differences, []string{`links: \+vpn7.*`})).To(ConsistOf("routes: +10.98.0.0/24 dev vpn7"))
	g.Expect(machines.Unexplained(differences[:1], []string{`links: \+vpn7.*`, `routes: \+.* dev vpn7`})).
		To(ConsistOf(HavePrefix("no longer there: routes:")), "what the variant made was taken away")
}

// The script prints every part that is compared, also on a machine without some of the tools.
func TestTheStateOfThisMachineHasAllParts(t *testing.T) {
	g := NewWithT(t)
	out, err := exec.CommandContext(t.Context(), "bash", "files/state.sh").Output()
	g.Expect(err).NotTo(HaveOccurred())
	state := machines.ParseState(string(out))
	for _, part := range []string{"iptables", "nft", "routes", "links", "sysctls", "mounts", "cgroups", "processes", "containers", "services"} {
		g.Expect(state).To(HaveKey(part))
	}
	g.Expect(state["mounts"]).NotTo(BeEmpty())
	g.Expect(state["processes"]).NotTo(BeEmpty())
}

func TestVariantsAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, v := range machines.Variants() {
		t.Run(v.Name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(v.Name).To(MatchRegexp(`^[a-z0-9-]+$`))
			g.Expect(names).NotTo(HaveKey(v.Name))
			names[v.Name] = true
			g.Expect(v.About).NotTo(BeEmpty())
			g.Expect(v.Image.Release).NotTo(BeEmpty())
			g.Expect(v.Expect).To(BeElementOf(machines.Serves, machines.Refuses))
			if v.Expect == machines.Refuses {
				g.Expect(v.Refusal).NotTo(BeEmpty(), "a refusal has to name something")
			} else {
				g.Expect(v.Refusal).To(BeEmpty())
			}
			for _, pattern := range append(v.Refusal, v.Kept...) {
				_, err := regexp.Compile(pattern)
				g.Expect(err).NotTo(HaveOccurred())
			}
			for _, script := range []string{v.Prepare, v.Still, v.Used, v.Meanwhile, v.Up, v.Down} {
				check := exec.CommandContext(t.Context(), "bash", "-n")
				check.Stdin = strings.NewReader(script)
				out, err := check.CombinedOutput()
				g.Expect(err).NotTo(HaveOccurred(), "%s\n%s", script, out)
			}
		})
	}
}

func TestSelect(t *testing.T) {
	g := NewWithT(t)
	table := []machines.Variant{{Name: "a"}, {Name: "b"}, {Name: "c"}}
	g.Expect(machines.Select(table, "")).To(Equal(table))
	g.Expect(machines.Select(table, "c,a")).To(Equal([]machines.Variant{{Name: "a"}, {Name: "c"}}))
	_, err := machines.Select(table, "a,d")
	g.Expect(err).To(MatchError(`there is no variant "d"; there are a, b, c`))
}

func TestResultsAreKeptAndShown(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "results.json")
	outcomes, err := machines.LoadOutcomes(path)
	g.Expect(err).NotTo(HaveOccurred())
	outcomes["a"] = machines.Outcome{Variant: "a", Passed: true, Seconds: 61.4, Accelerator: "tcg", Commit: "abc"}
	outcomes["b"] = machines.Outcome{Variant: "b", Failures: []string{"down: it hangs"}, Seconds: 3}
	g.Expect(outcomes.Save(path)).To(Succeed())
	outcomes, err = machines.LoadOutcomes(path)
	g.Expect(err).NotTo(HaveOccurred())

	table := []machines.Variant{{Name: "a", About: "one", Expect: machines.Serves}, {Name: "b", Expect: machines.Refuses}, {Name: "c", Expect: machines.Serves}}
	var out bytes.Buffer
	g.Expect(outcomes.Table(&out, table)).To(Succeed())
	g.Expect(strings.Split(out.String(), "\n")).To(HaveExactElements(
		MatchRegexp(`^VARIANT +EXPECTED +SECONDS +RESULT$`), MatchRegexp(`^a +served +61 +passed$`),
		MatchRegexp(`^b +refused +3 +FAILED: down: it hangs$`), MatchRegexp(`^c +served +not run$`), ""))
	page := outcomes.Page(table, "")
	g.Expect(page).To(ContainSubstring("| a | one | served | passed | 61 | TCG | abc |\n"))
	g.Expect(page).To(ContainSubstring("| c |  | served | not run | | | |\n"))
	former := "| a | one | served | FAILED | 1 | KVM | 123 |\n| c |  | served | passed | 7 | KVM | 123 |\n"
	g.Expect(outcomes.Page(table, former)).To(Equal(strings.ReplaceAll(page, "| c |  | served | not run | | | |", "| c |  | served | passed | 7 | KVM | 123 |")))

	g.Expect(os.WriteFile(path, []byte("nonsense"), 0o600)).To(Succeed())
	_, err = machines.LoadOutcomes(path)
	g.Expect(err).To(MatchError(ContainSubstring("reading earlier results")))
}
