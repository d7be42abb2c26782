// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind_test

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

// TestIPv6 brings a Garden, a Seed and the example Shoots up that know nothing but IPv6, and has packets sent between machine, control
// plane and load balancers.
func TestIPv6(t *testing.T) {
	m := newMachine(t)
	g := NewWithT(t)
	before := m.state()
	m.run("make kind-up KIND_CLUSTER=ipv6")
	m.standIns()
	m.run("make gardener-up")
	g.Eventually(func() error { _, err := m.try("make status"); return err }).WithTimeout(2*time.Minute).WithPolling(10*time.Second).Should(Succeed(), "all conditions are true")
	const shoot = "kubectl --kubeconfig .kind/shoots/local.kubeconfig "
	g.Expect(m.run("grep server: .kind/shoots/local.kubeconfig")).To(ContainSubstring("//[fd00:ff::1]"), "this machine asks the gateway of the seed")
	addresses := m.run(shoot + `get nodes,pods,services -A -o jsonpath='{.items[*].status.addresses[?(@.type=="InternalIP")].address} {.items[*].status.podIP} {.items[*].spec.clusterIP}'`)
	g.Expect(strings.Fields(strings.ReplaceAll(addresses, "None", ""))).To(And(Not(BeEmpty()), HaveEach(HavePrefix("fd00:"))))
	g.Expect(m.run(`kubectl -n shoot--local--local exec "$(kubectl -n shoot--local--local get pods -o name | grep /machine-shoot)" -- cat /proc/net/tcp6`)).
		To(MatchRegexp(`[0-9A-F]{32}:[0-9A-F]{4} [0-9A-F]{32}:01BB 01 `), "the kubelet's connection with the API server, by the gateway")
	m.run(shoot + "-n kube-system logs daemonset/apiserver-proxy -c proxy --tail 1 # the API server asks the kubelet")

	m.run(shoot + "-n kube-system expose deployment coredns --name lb --type LoadBalancer --port 80 --target-port 8080")
	address := func() (string, error) {
		return m.try(shoot + "-n kube-system get service lb -o jsonpath='{.status.loadBalancer.ingress[*].ip}'")
	}
	g.Eventually(address).WithTimeout(time.Minute).Should(HavePrefix("fd00:ff::1:"), "one of the pool")
	ip, err := address()
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(m.get("["+ip+"]:80", "/health")).WithTimeout(time.Minute).Should(HaveSuffix("OK"), "a pod in the shoot answers this machine")
	m.run("make kind-down")
	g.Expect(m.state()).To(ConsistOf(before))
}
