// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package machines tests the commands of the README on machines that people have: stock Debian with systemd, cgroup v2, its
// own kernel, Docker, firewalls, another Kubernetes. Each row of Variants is a virtual machine, made of nothing but Debian's
// packages: mmdebstrap makes the disk, mke2fs fills it, QEMU boots it, with KVM where that serves stock kernels and by
// emulation (TCG) elsewhere.
//
// A row asserts that `make up` either refuses with words that name cause and remedy, before it changed anything, or reaches its
// step, that the network works (test/machines/check), and that the machine is after `make down` as it was before.
//
// `make test-machines` runs it (build tag machines, as it takes minutes per row); what can be tested without a virtual machine
// is tested by `make test`.
package machines
