// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package kind

import (
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func TestTheNodeHasTheImageThatItsNetworkAsksFor(t *testing.T) {
	g := NewWithT(t)
	manifest, err := os.ReadFile("node/default-cni.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(string(manifest), "image: "+policies+"\n")).To(Equal(strings.Count(string(manifest), "image: ")))
	module, err := os.ReadFile("../landscape/modules/kube-network-policies/go.mod")
	g.Expect(err).NotTo(HaveOccurred())
	_, version, _ := strings.Cut(policies, ":")
	g.Expect(string(module)).To(ContainSubstring("\nrequire sigs.k8s.io/kube-network-policies " + version + "\n"))
}
