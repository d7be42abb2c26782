// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"testing"

	. "github.com/onsi/gomega"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func TestTheVirtualGardenIsReachedByTheAddressOfItsGateway(t *testing.T) {
	for _, server := range []string{"https://api.virtual-garden.local.gardener.cloud", "https://api.virtual-garden.local.gardener.cloud:443"} {
		g := NewWithT(t)
		config := &clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"garden": {Server: server}}}
		g.Expect(reachFromHere(config)).To(Succeed())
		g.Expect(config.Clusters["garden"].Server).To(Equal("https://" + layout.VirtualGardenIP))
		g.Expect(config.Clusters["garden"].TLSServerName).To(Equal("api.virtual-garden.local.gardener.cloud"), "whom the certificate is for")
	}
	for _, server := range []string{"", "https://", "http://api.virtual-garden.local.gardener.cloud"} {
		config := &clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"garden": {Server: server}}}
		NewWithT(t).Expect(reachFromHere(config)).To(MatchError(ContainSubstring("names no https server")), server)
	}
}
