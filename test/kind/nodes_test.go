// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind_test

import (
	"testing"

	. "github.com/onsi/gomega"
)

// TestNodes runs Gardener's own case of a control plane that becomes highly available by node. Two cores are too few for those with
// machines.
func TestNodes(t *testing.T) {
	m := newMachine(t)
	g := NewWithT(t)
	before := m.state()
	m.run("make kind-up KIND_CLUSTER=nodes")
	m.standIns("1.35")
	m.run("make gardener-up UNTIL=seed")
	m.run("make e2e-gardener TARGET=kind FILTER='update-to-node && workerless'")
	m.run("make kind-down")
	g.Expect(m.state()).To(ConsistOf(before))
}
