#!/bin/bash
# SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
#
# SPDX-License-Identifier: Apache-2.0

# The user data of a machine: brings and starts a kubelet, as gardener-node-agent does on the machines of a shoot. It has no
# cluster to join, so it stands alone and runs a pod of its own: that takes a container runtime and cgroups that work.
set -o errexit -o nounset -o pipefail

registry=REGISTRY
mkdir -p /opt/bin /etc/kubernetes/manifests
folder=$(mktemp -d)
ctr images pull --hosts-dir /etc/containerd/certs.d "$registry/real/kubelet:latest" >/dev/null
ctr images mount "$registry/real/kubelet:latest" "$folder" >/dev/null
install -m 0755 "$folder/kubelet" /opt/bin/kubelet
ctr images unmount --rm "$folder" >/dev/null
cat >/etc/kubernetes/kubelet.yaml <<EOF
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication:
  anonymous: {enabled: true}
  webhook: {enabled: false}
authorization: {mode: AlwaysAllow}
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: systemd
failCgroupV1: false
failSwapOn: false
healthzBindAddress: 0.0.0.0
staticPodPath: /etc/kubernetes/manifests
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 10Mi, nodefs.available: 1%, imagefs.available: 1%}
EOF
cat >/etc/kubernetes/manifests/pod.yaml <<EOF
apiVersion: v1
kind: Pod
metadata: {name: static}
spec:
  hostNetwork: true
  containers:
  - {name: stub, image: "$registry/real/stub:latest", command: [/stub]}
EOF
systemctl reset-failed kubelet.service 2>/dev/null || true
systemd-run --unit=kubelet --property=Restart=always --property=RestartSec=1 \
  /opt/bin/kubelet --config=/etc/kubernetes/kubelet.yaml --cert-dir=/var/lib/kubelet/pki
