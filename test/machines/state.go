// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	_ "embed"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

//go:embed files/state.sh
var stateScript string

// State is what files/state.sh prints about a machine, by its parts, without what changes by itself. Lines are sorted where
// their order means nothing.
type State map[string][]string

// State looks at the machine. It uses nothing of the landscape's own code, which is what the comparison judges.
func (vm *VM) State(ctx context.Context) (State, error) {
	text, err := vm.Output(ctx, stateScript)
	if err != nil {
		return nil, fmt.Errorf("looking at the machine's state: %w", err)
	}
	state := ParseState(text)
	if len(state["processes"]) == 0 || state["services"] == nil {
		return nil, fmt.Errorf("looking at the machine's state: the output is not complete: %s", tail(text, 5))
	}
	return state, nil
}

// volatile is what changes without anybody's doing. The match is replaced, or its line left out.
var volatile = []struct {
	// part is a regular expression of parts of State.
	part   string
	match  *regexp.Regexp
	remove bool
	reason string
}{
	{part: "ip6?tables", match: regexp.MustCompile(`^#`), remove: true, reason: "comments with the time"},
	{part: "ip6?tables", match: regexp.MustCompile(` \[\d+:\d+\]`), reason: "packets and bytes that a chain has seen"},
	{part: "nft", match: regexp.MustCompile(`^#`), remove: true, reason: "a warning about iptables-nft"},
	{part: "nft", match: regexp.MustCompile(` packets \d+ bytes \d+`), reason: "what a rule has seen"},
	{part: "routes6?", match: regexp.MustCompile(` expires \d+sec`), reason: "the rest of a lease"},
	{part: "links", match: regexp.MustCompile(`^\d+: `), reason: "the number of a device says when it came"},
	{part: "addresses", match: regexp.MustCompile(`^\d+: |valid_lft \d+sec|preferred_lft \d+sec`), reason: "numbers of devices, the rest of leases"},
	{
		part: "sysctls", remove: true, reason: "counters and random numbers of the kernel, and limits that follow the free memory",
		match: regexp.MustCompile(`^(fs\.(dentry-state|file-nr|inode-nr|inode-state|quota\.)|kernel\.(random\.|ns_last_pid|pty\.nr|perf_event)|` +
			`net\.netfilter\.nf_conntrack_count|net\.ipv4\.tcp_fastopen_key|dev\.cdrom|kernel\.sched_domain|vm\.numa_stat)`),
	},
	{
		part: "sysctls", remove: true, reason: "limits that follow the memory, of which each boot finds some kilobytes more or less",
		match: regexp.MustCompile(`^(fs\.epoll\.max_user_watches|kernel\.threads-max|net\.ipv4\.(tcp|udp)_mem|user\.max_\w+) `),
	},
	{part: "mounts", match: regexp.MustCompile(`size=\d+k,nr_inodes=\d+`), reason: "the same for file systems in memory"},
	{part: "addresses", match: regexp.MustCompile(` tentative`), reason: "the kernel looks for a second or two whether a new address of IPv6 is somebody else's"},
	{part: "routes6", remove: true, match: regexp.MustCompile(`^local fe80::`), reason: "they come when it has looked"},
	{part: "mounts", match: regexp.MustCompile(`^\d+ \d+ \d+:\d+ `), reason: "numbers that the kernel gives mounts"},
	{part: "mounts", match: regexp.MustCompile(`(shared|master|propagate_from):\d+ ?`), reason: "numbers of peer groups"},
	{part: "mounts", match: regexp.MustCompile(` (/run/user/|/proc/sys/fs/binfmt_misc|/run/credentials/)`), remove: true, reason: "systemd mounts them when somebody logs in or looks"},
	{
		part: "cgroups", remove: true, reason: "sessions, and services of systemd that start when asked and end by themselves",
		match: regexp.MustCompile(`^/sys/fs/cgroup/(user\.slice|system\.slice/(systemd-(hostnamed|timedated|localed|tmpfiles-clean)|run-|packagekit|polkit).*)`),
	},
	{part: "processes", match: regexp.MustCompile(`^ *(0|2) +root +\[`), remove: true, reason: "threads of the kernel come and go"},
	{part: "processes", match: regexp.MustCompile(`^ *\d+ `), reason: "numbers of parents"},
	{
		part: "processes", remove: true, reason: "the session that looks, and helpers of systemd that come and go",
		match: regexp.MustCompile(`sshd: |sshd-session: |sshd-auth: |\(sd-pam\)|systemd --user|bash -lc|bash -c|ps -e -o |\(udev-worker\)|/lib/systemd/systemd-(hostnamed|timedated|localed)`),
	},
	{
		part: "services", remove: true, match: regexp.MustCompile(`^systemd-binfmt\.service `),
		reason: "packages that bring formats of programs have it run, as python3 of Debian 13, and packages stay",
	},
	{
		part: "services", remove: true, reason: "the session that looks, and services that end by themselves",
		match: regexp.MustCompile(`^(user@|user-runtime-dir@|systemd-(hostnamed|timedated|localed|tmpfiles)|run-|polkit|packagekit)`),
	},
}

// ParseState reads what files/state.sh prints.
func ParseState(text string) State {
	state := State{}
	part := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n ")
		if name, found := strings.CutPrefix(line, "=== "); found {
			part = name
			state[part] = []string{}
			continue
		}
		if line, keep := steady(part, line); keep {
			state[part] = append(state[part], line)
		}
	}
	for part, lines := range state {
		// The order of rules is their meaning.
		if part != "iptables" && part != "ip6tables" && part != "nft" && part != "rules" {
			slices.Sort(lines)
		}
	}
	return state
}

// steady returns a line without what changes by itself, and whether anything of it counts.
func steady(part, line string) (string, bool) {
	for _, v := range volatile {
		if matched, _ := regexp.MatchString("^("+v.part+")$", part); !matched || !v.match.MatchString(line) {
			continue
		}
		if v.remove {
			return "", false
		}
		line = v.match.ReplaceAllString(line, "")
	}
	return line, line != ""
}

// Compare lists what differs, a line each: "PART: -LINE" for what is gone, "PART: +LINE" for what has come.
func Compare(before, after State) []string {
	parts := make([]string, 0, len(before))
	for part := range before {
		parts = append(parts, part)
	}
	slices.Sort(parts)
	var all []string
	for _, part := range parts {
		gone, come := difference(before[part], after[part])
		if part == "sysctls" {
			gone, come = ofKnownParameters(gone, come)
		}
		for _, line := range gone {
			all = append(all, part+": -"+line)
		}
		for _, line := range come {
			all = append(all, part+": +"+line)
		}
	}
	return all
}

// ofKnownParameters leaves out parameters that were not there before: those of a module that was loaded meanwhile, which
// stays.
func ofKnownParameters(gone, come []string) ([]string, []string) {
	name := func(line string) string { before, _, _ := strings.Cut(line, " ="); return before }
	known := map[string]bool{}
	for _, line := range gone {
		known[name(line)] = true
	}
	return gone, slices.DeleteFunc(come, func(line string) bool { return !known[name(line)] })
}

// difference returns the lines of a that b lacks, and those of b that a lacks; a line that is there twice counts twice.
func difference(a, b []string) (gone, come []string) {
	count := map[string]int{}
	for _, line := range b {
		count[line]++
	}
	for _, line := range a {
		if count[line] > 0 {
			count[line]--
		} else {
			gone = append(gone, line)
		}
	}
	for _, line := range slices.Backward(b) {
		if count[line] > 0 {
			count[line]--
			come = append(come, line)
		}
	}
	slices.Reverse(come)
	return gone, come
}

// Unexplained returns the differences that none of the patterns matches, and the patterns that match none: a change that the
// variant made and that is not there afterwards was taken away.
func Unexplained(differences, patterns []string) []string {
	var left []string
	used := map[string]bool{}
	for _, line := range differences {
		i := slices.IndexFunc(patterns, func(pattern string) bool { return regexp.MustCompile("^(" + pattern + ")$").MatchString(line) })
		if i < 0 {
			left = append(left, line)
			continue
		}
		used[patterns[i]] = true
	}
	for _, pattern := range patterns {
		if !used[pattern] {
			left = append(left, "no longer there: "+pattern)
		}
	}
	return left
}
