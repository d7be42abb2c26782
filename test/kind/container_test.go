// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind_test

import (
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/kind"
)

// TestContainer brings a Garden up in a container of the image of make landscape-release. Without registries, its base is one of Debian
// packages, and Go with its caches is the machine's.
func TestContainer(t *testing.T) {
	const (
		inside = "docker exec landscape "
		remove = "docker rm --force landscape && docker volume rm --force landscape && docker rmi --force landscape"
	)
	m := newMachine(t)
	g := NewWithT(t)
	builder, err := kind.NewBuilder(t.Context(), m.root, m.docker)
	g.Expect(err).NotTo(HaveOccurred())
	base, err := builder.Debian(t.Context(), "bind9-dnsutils", "ca-certificates", "conntrack", "containerd", "containernetworking-plugins",
		"debian-archive-keyring", "ethtool", "git", "ipset", "iproute2", "iptables", "kmod", "mmdebstrap", "mount", "nftables", "runc", "socat")
	g.Expect(err).NotTo(HaveOccurred())
	m.run("docker tag " + base + " $(sed -n 's/^FROM //p' test/landscape/Dockerfile)")
	// What a run left that was killed.
	m.run(remove)
	t.Cleanup(func() { _, _ = m.try(remove) })
	before := m.state()

	m.run("make landscape-release ARCH=" + runtime.GOARCH)
	// BuildKit, which Debian's Docker lacks, knows it by itself.
	m.run("docker build --build-arg TARGETARCH=" + runtime.GOARCH + " --tag landscape bin/release")
	goEnv := strings.Fields(m.run("go env GOROOT GOMODCACHE GOCACHE"))
	m.run("docker run --detach --privileged --cgroupns=host --volume /lib/modules:/lib/modules:ro --volume landscape:/landscape --name landscape" +
		" --env GOPROXY=off" +
		" --volume " + goEnv[0] + ":/usr/local/go:ro --env PATH=/usr/local/go/bin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin" +
		" --volume " + goEnv[1] + ":/landscape/go/mod --volume " + goEnv[2] + ":/landscape/go/build landscape")
	m.run(inside + "landscape up --until packages")
	// What can't be made without Debian's mirror. The programs would take a quarter of an hour on top.
	for _, folder := range []string{"image-bases", "machine-image", "landscape"} {
		m.run("docker cp bin/" + folder + " landscape:/landscape/provider-local/bin/")
	}
	m.run(inside + "landscape up --until garden")
	m.run(inside + "landscape explain garden")
	m.run(inside + "landscape down")
	m.run(remove)
	g.Expect(m.state()).To(ConsistOf(before))
}
