// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind_test

import (
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/kind"
)

// TestPodman does with rootful podman what TestKindUpAndDown does with Docker. It also has caches and a second cluster, and builds a
// machine image.
func TestPodman(t *testing.T) {
	m := newMachineWith(t, func(docker *kind.Docker) {
		docker.Podman, docker.Folder = true, filepath.Join(filepath.Dir(docker.Folder), "podman")
	})
	g := NewWithT(t)
	// It keeps the chains of rules that it makes for the first container.
	m.run("podman network create --ipv6 first; podman run --rm --network first --publish 5001:5001 $REGISTRY_IMAGE --help; podman network rm first")
	before := m.state()

	m.env = append(m.env, "CACHE_UPSTREAM=http://provider-local-registry:5002")
	m.run("make kind-up KIND_CACHES=1")
	m.run("make kind-up KIND_CLUSTER=second")
	for _, kubeconfig := range []string{".kind/kubeconfig", ".kind/second/kubeconfig"} {
		m.run("kubectl --kubeconfig " + kubeconfig + " wait node --all --for condition=Ready --timeout 2m")
	}
	m.run("podman tag $PROBE_IMAGE 127.0.0.1:5001/probe/agent:test && podman push --quiet 127.0.0.1:5001/probe/agent:test")
	m.run(`kubectl run agent --image registry.k8s.io/probe/agent:test -- agent -http :8080
kubectl wait pod agent --for condition=Ready --timeout 2m || { kubectl describe pod agent; exit 1; }`)

	// kind's published node image is not there, nor are packages for it.
	m.run(`skaffold/kind/dns registry
cp -r skaffold/images/machine .kind/
sed -i -e "s|^FROM .*|FROM $KIND_NODE_IMAGE|" -e '/^RUN apt-get/,/[^\\]$/d' .kind/machine/Dockerfile
IMAGE=registry.local.gardener.cloud:5001/machine:test BUILD_CONTEXT=.kind/machine skaffold/images/machine/build
podman rmi registry.local.gardener.cloud:5001/machine:test
podman exec gardener-local-control-plane ctr --namespace k8s.io images pull --hosts-dir /etc/containerd/certs.d registry.local.gardener.cloud:5001/machine:test >/dev/null`)

	g.Expect(m.run("make kind-down")).To(ContainSubstring("the caches stay"))
	g.Expect(strings.Count(m.run("podman volume ls --quiet"), "provider-local-cache-")).To(Equal(4))
	m.run("make kind-down KIND_CACHES=1")
	g.Expect(m.state()).To(ConsistOf(before))

	upAndDown(t, m)
}
