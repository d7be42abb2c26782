// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind_test

import (
	"testing"

	. "github.com/onsi/gomega"
)

// TestIPv6 brings a Shoot with a machine up that knows nothing but IPv6, in the dual-stack cluster, and looks at packets between machine,
// load balancer and control plane.
func TestIPv6(t *testing.T) {
	m := newMachine(t)
	g := NewWithT(t)
	before := m.state()
	m.run("make kind-up KIND_CLUSTER=dual-stack")
	m.standIns()
	m.run("make gardener-up UNTIL=seed")
	const virtual = "kubectl --kubeconfig .kind/virtual-garden/kubeconfig "
	m.run(virtual + `patch --local -f example/91-shoot.yaml --type merge -o yaml -p '{"metadata": {"name": "six"}, "spec": {"networking": {"nodes": "fd00:10:a::/64", "ipFamilies": ["IPv6"]}}}' |
` + virtual + `create -f -`)
	m.run(virtual + `-n garden-local wait shoot six --for jsonpath='{.status.lastOperation.state}'=Succeeded --timeout 12m || { ` + virtual + `-n garden-local get shoot six -o yaml; exec sleep 900; }`)
	m.run("landscape kubeconfig six >.kind/shoot.kubeconfig")
	const shoot = "kubectl --kubeconfig .kind/shoot.kubeconfig "
	m.Log(m.run(shoot + "get nodes,pods -A -o wide"))
	m.try("sleep 900")

	m.run("make kind-down")
	g.Expect(m.state()).To(ConsistOf(before))
}
