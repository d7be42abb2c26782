#!/usr/bin/env bash
# SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
#
# SPDX-License-Identifier: Apache-2.0

# Prints the state of a machine that a landscape touches, as the tools that people use show it: a line "=== NAME" before each
# part. What a tool prints about itself alone is left out here; what changes without anybody's doing is left out in state.go.

part() {
  echo "=== $1"
  shift
  # A tool that is not there has nothing to say.
  if command -v "$1" >/dev/null; then "$@" 2>/dev/null || echo "$1 failed with $?"; fi
}

part iptables iptables-save
part ip6tables ip6tables-save
part nft nft list ruleset
part routes ip -4 -o route show table all
part routes6 ip -6 -o route show table all
part rules ip rule
part links ip -o link
part addresses ip -o address
part namespaces ip netns list
part sysctls sysctl -a
part mounts cat /proc/self/mountinfo
part cgroups find /sys/fs/cgroup -type d
part processes ps -e -o ppid=,user:20=,args= --cols 4096
part containers docker ps --no-trunc --format '{{.ID}} {{.Image}} {{.Names}} {{.Ports}}'
part starts sh -c 'docker ps -q | xargs -r docker inspect --format "{{.Id}} {{.State.Pid}} {{.State.StartedAt}}"'
part services systemctl list-units --type=service,socket --state=active --no-legend --plain
