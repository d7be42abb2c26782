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

put 0640 text '<<BOOTSTRAP_TOKEN>>' '/var/lib/gardener-node-agent/credentials/bootstrap-token'
put 0755 base64 'IyEvYmluL2Jhc2gKZWNobyBpbml0Cg==' '/var/lib/gardener-node-agent/init.sh'
put 0640 text '<<MACHINE_NAME>>' '/var/lib/gardener-node-agent/machine-name'
put 0644 base64 'bm8gcGVybWlzc2lvbnMgZ2l2ZW4K' '/etc/plain'
on 'worker-0' put 0644 base64 'b25lCg==' '/etc/only-there'
put 0644 base64 'W1VuaXRdCkRlc2NyaXB0aW9uPURvd25sb2FkcyBnYXJkZW5lci1ub2RlLWFnZW50CltTZXJ2aWNlXQpFeGVjU3RhcnQ9L3Zhci9saWIvZ2FyZGVuZXItbm9kZS1hZ2VudC9pbml0LnNoCg==' '/etc/systemd/system/gardener-node-init.service'
put 0644 base64 'W1NlcnZpY2VdCkxpbWl0Q09SRT0wCg==' '/etc/systemd/system/containerd.service.d/10-limits.conf'
put 0644 base64 'W1RpbWVyXQpPbkNhbGVuZGFyPWRhaWx5Cg==' '/etc/systemd/system/idle.timer'
systemctl enable --no-reload 'gardener-node-init.service'
systemctl enable --no-reload 'containerd.service'
there 'unattended-upgrades.service' && systemctl disable --no-reload 'unattended-upgrades.service'
there 'absent.service' && systemctl disable --no-reload 'absent.service'
systemctl enable --no-reload 'idle.timer'
systemctl daemon-reload
# The units' jobs run beside this script: they may come after units that wait for it.
systemctl restart --no-block 'gardener-node-init.service'
systemctl restart --no-block 'containerd.service'
there 'unattended-upgrades.service' && systemctl stop --no-block 'unattended-upgrades.service'
there 'absent.service' && systemctl stop --no-block 'absent.service'
systemctl stop --no-block 'idle.timer'

install -D -m 0644 /dev/null "$applied"
