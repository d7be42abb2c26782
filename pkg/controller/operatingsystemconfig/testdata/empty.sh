#!/bin/bash
# The user data of a machine: files and units with which it becomes a node. Runs again until it has succeeded once.

set -o errexit -o nounset -o pipefail

applied='/var/lib/osc/provision-osc-applied'
if [[ -e $applied ]]; then
  echo "The user data has been applied before."
  exit 0
fi

# put MODE ENCODING CONTENT PATH writes a file in one step, so that nobody sees half of it.
put() {
  local mode=$1 encoding=$2 content=$3 path=$4
  echo "Writing $path"
  if [[ $encoding == base64 ]]; then
    base64 -d <<<"$content"
  else
    printf '%s' "$content"
  fi | install -D -m "$mode" /dev/stdin "$path.new"
  # A file that is a mount, as the kubelet makes of /etc/hosts, can't be replaced.
  mv -fT "$path.new" "$path" 2>/dev/null || {
    cat "$path.new" >"$path"
    rm "$path.new"
  }
}

# on HOST COMMAND... is for what only one host of the pool has.
on() {
  if [[ $(</proc/sys/kernel/hostname) == "$1" ]]; then
    "${@:2}"
  fi
}

# there UNIT tells whether systemd knows a unit: one that it doesn't know needs neither be disabled nor be stopped.
there() {
  systemctl cat "$1" >/dev/null 2>&1
}

systemctl daemon-reload
# The units' jobs run beside this script: they may come after units that wait for it.

install -D -m 0644 /dev/null "$applied"
