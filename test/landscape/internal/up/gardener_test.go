// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestTheVirtualGardenIsReachedByTheAddressOfItsGateway(t *testing.T) {
	gateway := func(string) string { return layout.Network{}.VirtualGardenIP() }
	for _, server := range []string{"https://api.virtual-garden.local.gardener.cloud", "https://api.virtual-garden.local.gardener.cloud:443"} {
		g := NewWithT(t)
		config := &clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"garden": {Server: server}}}
		g.Expect(reachFromHere(config, gateway)).To(Succeed())
		g.Expect(config.Clusters["garden"].Server).To(Equal("https://" + layout.Network{}.VirtualGardenIP()))
		g.Expect(config.Clusters["garden"].TLSServerName).To(Equal("api.virtual-garden.local.gardener.cloud"), "whom the certificate is for")
	}
	for _, server := range []string{"", "https://", "http://api.virtual-garden.local.gardener.cloud"} {
		config := &clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"garden": {Server: server}}}
		NewWithT(t).Expect(reachFromHere(config, gateway)).To(MatchError(ContainSubstring("names no https server")), server)
	}
}

func TestTheMachinesOfTheExampleShootsAreInTheLandscapesNetwork(t *testing.T) {
	for cidr, nodes := range map[string]string{layout.DefaultNetwork: "10.250.0.0/16", "172.30.0.0/16": "172.30.128.0/18"} {
		t.Run(cidr, func(t *testing.T) {
			g := NewWithT(t)
			found, err := layout.Find(".")
			g.Expect(err).NotTo(HaveOccurred())
			found.Network, err = layout.ParseNetwork(cidr)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(found.Network.ShootNodeCIDR()).To(Equal(nodes))
			shoots, err := Landscape{Layout: found}.exampleShoots()
			g.Expect(err).NotTo(HaveOccurred())
			ranges := map[string]string{}
			for _, shoot := range shoots {
				ranges[shoot.GetName()], _, err = unstructured.NestedString(shoot.Object, "spec", "networking", "nodes")
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(ranges).To(Equal(map[string]string{"local": nodes, "local-workerless": ""}))
		})
	}
}

func TestASeedIsHealthyOnceAllItsConditionsAreThereAndTrue(t *testing.T) {
	seed := func(conditions ...string) []unstructured.Unstructured {
		var all []any
		for _, condition := range conditions {
			kind, status, _ := strings.Cut(condition, "=")
			all = append(all, map[string]any{"type": kind, "status": status})
		}
		return []unstructured.Unstructured{{Object: map[string]any{
			"kind": "Seed", "metadata": map[string]any{"name": "local"}, "status": map[string]any{"conditions": all},
		}}}
	}
	for _, test := range []struct {
		objects []unstructured.Unstructured
		healthy bool
		state   string
	}{
		{nil, false, ""},
		{seed("GardenletReady=True", "SeedSystemComponentsHealthy=True", "ExtensionsReady=True"), false, "Seed local: BackupBucketsReady is not reported yet"},
		{seed("GardenletReady=True", "SeedSystemComponentsHealthy=Progressing", "ExtensionsReady=True", "BackupBucketsReady=True"), false, "Seed local: SeedSystemComponentsHealthy is Progressing: "},
		{seed("GardenletReady=True", "SeedSystemComponentsHealthy=True", "ExtensionsReady=True", "BackupBucketsReady=True"), true, "4 conditions are True"},
	} {
		g := NewWithT(t)
		healthy, state := seedHealthy(test.objects)
		g.Expect(healthy).To(Equal(test.healthy), state)
		g.Expect(state).To(ContainSubstring(test.state))
	}
}
