#!/bin/bash
# Takes the programs of a node out of images and starts them, which gardener-node-agent does on the machines of a shoot.
set -o errexit -o nounset -o pipefail

mkdir -p /opt/bin
for path in /kubelet /usr/local/bin/kube-proxy; do
  program="$(basename "$path")"
  image="{{.Registry}}/real/$program:latest"
  folder="$(mktemp -d)"
  ctr images pull --hosts-dir /etc/containerd/certs.d "$image" >/dev/null
  ctr images mount "$image" "$folder" >/dev/null
  install -m 0755 "$folder$path" "/opt/bin/$program"
  ctr images unmount --rm "$folder" >/dev/null
  rmdir "$folder" 2>/dev/null || true
done
systemctl start --no-block kubelet.service kube-proxy.service
