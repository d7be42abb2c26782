// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// TestSecondSeed makes a second kind cluster a seed of the same Garden, and has a Shoot there.
func TestSecondSeed(t *testing.T) {
	m := newMachine(t)
	g := NewWithT(t)
	before := m.state()
	m.run("make kind-up")
	m.run("make kind-up KIND_CLUSTER=second")
	m.run(`landscape stand-ins # which make built
for node in gardener-local-control-plane gardener-local2-control-plane; do
  docker cp bin/landscape/landscape $node:/usr/local/bin/
  docker exec --detach $node landscape status-controller --kubeconfig /etc/kubernetes/admin.conf --volumes /var/volumes
done
docker pull --quiet 127.0.0.1:5001/real/machine:latest`)
	m.env = append(m.env, "MACHINE_IMAGE=127.0.0.1:5001/real/machine:latest")
	m.run("make gardener-up UNTIL=second-seed")
	const second, virtual = "kubectl --kubeconfig .kind/second/kubeconfig ", "kubectl --kubeconfig .kind/virtual-garden/kubeconfig "
	g.Expect(m.run(second+"-n istio-ingress get service istio-ingressgateway -o jsonpath='{.status.loadBalancer.ingress[*].ip} {.spec.ports[*].nodePort}'")).
		To(MatchRegexp(`^172\.18\.255\.2 .*\b30433\b`), "the first seed has 172.18.255.1")
	g.Expect(m.run(second+"get services -A -o jsonpath='{.items[*].status.loadBalancer.ingress[*].ip}'")).
		NotTo(MatchRegexp(`172\.18\.255\.(1|3|4|53|1[0-9][0-9]|2[0-9][0-9])\b`), "these are of the first cluster")
	g.Expect(m.run(virtual+"-n garden get secrets -o name")).NotTo(ContainSubstring("seed-local2"), "gardener-operator has no more use for it")

	m.run(virtual + `patch --local -f example/90-shoot-workerless.yaml --type merge -o yaml -p '{"metadata": {"name": "second"}, "spec": {"seedName": "local2"}}' |
` + virtual + `create -f -`)
	m.run(virtual + `-n garden-local wait shoot second --for jsonpath='{.status.lastOperation.state}'=Succeeded --timeout 15m || { ` + virtual + `-n garden-local get shoot second -o yaml; exit 1; }`)
	g.Eventually(func() (string, error) {
		return m.try(virtual + `-n garden-local get shoot second -o jsonpath='{range .status.conditions[*]}{.type}={.status}{"\n"}{end}'`)
	}).WithTimeout(5 * time.Minute).WithPolling(5 * time.Second).Should(And(ContainSubstring("APIServerAvailable=True"), Not(MatchRegexp("=(False|Unknown|Progressing)"))))
	m.run("landscape kubeconfig --target kind second >.kind/shoot.kubeconfig")
	g.Expect(m.run("grep server: .kind/shoot.kubeconfig")).To(ContainSubstring("//172.18.255.2"), "the gateway of its seed")
	g.Expect(m.run("kubectl --kubeconfig .kind/shoot.kubeconfig get namespaces -o name")).To(ContainSubstring("namespace/kube-system"))

	m.run("make gardener-up UNTIL=second-seed # again: nothing is to do")
	g.Expect(m.run(virtual + "-n garden get secrets -o name")).NotTo(ContainSubstring("seed-local2"))
	g.Eventually(func() error { _, err := m.try("make status"); return err }).WithTimeout(2*time.Minute).WithPolling(10*time.Second).Should(Succeed(), "all conditions are true again")
	m.run("make kind-down")
	g.Expect(m.state()).To(ConsistOf(before))
}
