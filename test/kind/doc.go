// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package kind runs `make kind-up`, `make gardener-up` and `make kind-down` with a real Docker and a real kind, on a machine without both and without
// any registry of images. The first and the last also run with podman. `make test-kind` runs it (build tag kind, as root).
//
// Docker's daemon and podman are those of Debian's packages, which are unpacked and not installed. They run in a network, a
// mount and a process namespace of the test's own, so that their rules, devices and mounts are never those of the machine, and end with
// the test. The node image is made of Debian's packages, of kind's own files, which its Go module has, and of the programs of Kubernetes that the
// landscape builds. Unlike in a published one, containerd is Debian's, and the network is Debian's plugin ptp with a route per node in
// place of kindnetd, and kube-network-policies, which is a part of kindnetd. The registry is the landscape's. `make kind-images` makes
// both images in the Docker that a machine has.
package kind
