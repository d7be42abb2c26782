// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/golden"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestManifests(t *testing.T) {
	table, err := images.Parse([]byte(`
real:
- {name: stub, repositories: [stub], binary: stub, why: test}
- {name: druid, repositories: [gardener/etcd-druid, druid.io/x], binary: druid, why: test}
standIns:
- {repositories: [istio/proxy], why: test}
`))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for _, test := range []struct {
		name string
		make func() ([]*unstructured.Unstructured, error)
	}{
		{name: "dns.yaml", make: func() ([]*unstructured.Unstructured, error) { return DNS(layout.Network{}) }},
		{name: "base.yaml", make: func() ([]*unstructured.Unstructured, error) { return Base(table, Machine{Processors: 1}) }},
		{name: "base-without-sys-resource.yaml", make: func() ([]*unstructured.Unstructured, error) {
			return Base(table, Machine{LacksSysResource: true, Processors: 1})
		}},
		{name: "kind.yaml", make: Kind},
		{name: "shoot.yaml", make: func() ([]*unstructured.Unstructured, error) {
			return Shoot(table, Machine{LacksSysResource: true, Processors: 1})
		}},
		{name: "managed-seed.yaml", make: func() ([]*unstructured.Unstructured, error) {
			withMore, err := images.Load([]string{"observability"})
			if err != nil {
				return nil, err
			}
			return ManagedSeed(withMore)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			objects, err := test.make()
			g.Expect(err).NotTo(HaveOccurred())
			content, err := encode(objects)
			g.Expect(err).NotTo(HaveOccurred())
			golden.Check(t, test.name, content)
		})
	}
}

func TestMetricsServerHasTheVersionOfItsModule(t *testing.T) {
	g := NewWithT(t)
	module, err := os.ReadFile("../../modules/programs/go.mod")
	g.Expect(err).NotTo(HaveOccurred())
	version := regexp.MustCompile(`(?m)^\tsigs.k8s.io/metrics-server (\S+)$`).FindSubmatch(module)
	g.Expect(version).To(HaveLen(2))
	manifest, err := files.ReadFile("files/metrics-server.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(manifest)).To(ContainSubstring("image: registry.k8s.io/metrics-server/metrics-server:" + string(version[1]) + "\n"))
}

func TestAnotherNetworkChangesAddressesAndNothingElse(t *testing.T) {
	g := NewWithT(t)
	network, err := layout.ParseNetwork("172.30.0.0/16")
	g.Expect(err).NotTo(HaveOccurred())
	contents := map[layout.Network]string{}
	for _, network := range []layout.Network{{}, network} {
		objects, err := DNS(network)
		g.Expect(err).NotTo(HaveOccurred())
		content, err := encode(objects)
		g.Expect(err).NotTo(HaveOccurred())
		contents[network] = string(content)
	}
	replacer := strings.NewReplacer("172.18.0.", "172.30.0.", "10.96.0.10", "172.30.32.10")
	g.Expect(contents[network]).To(Equal(replacer.Replace(contents[layout.Network{}])))
	g.Expect(contents[network]).NotTo(Equal(contents[layout.Network{}]))
}

func TestNoImageOfThisRepositoryIsStoodInFor(t *testing.T) {
	g := NewWithT(t)
	table, err := images.Load(nil)
	g.Expect(err).NotTo(HaveOccurred())
	config, err := os.ReadFile("../../../../skaffold/skaffold.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	built := regexp.MustCompile(`(?m)^  - image: (\S+)$`).FindAllStringSubmatch(string(config), -1)
	g.Expect(len(built)).To(BeNumerically(">", 3))
	for _, match := range built {
		image := "172.18.255.1:5001/local-skaffold/" + match[1] + ":v1@sha256:" + strings.Repeat("0", 64)
		g.Expect(image).NotTo(MatchRegexp(table.StandInPattern()))
	}
}
