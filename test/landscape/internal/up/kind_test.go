// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

// onKind is a landscape in a kind cluster, whose repository is a folder of the test.
func onKind(t *testing.T, variant string) (l Landscape, out *bytes.Buffer) {
	t.Helper()
	out = &bytes.Buffer{}
	return Landscape{Layout: layout.Layout{Root: t.TempDir(), Kind: variant}, Out: out, Now: time.Now}, out
}

func TestInAKindClusterOnlyGardenerIsDeployed(t *testing.T) {
	g := NewWithT(t)
	l, _ := onKind(t, "single")
	steps := l.Steps()
	g.Expect(step.Names(steps)).To(Equal([]string{"cluster", "binaries", "metrics", "deploy", "garden", "gardenlet", "seed", "shoot"}))
	for _, s := range steps {
		g.Expect(s.Remedy).NotTo(Or(BeEmpty(), ContainSubstring("make up")), s.Name)
		g.Expect(s.Execute).NotTo(BeNil(), s.Name)
	}
	g.Expect(os.MkdirAll(l.Layout.Second(), 0o750)).To(Succeed())
	g.Expect(os.WriteFile(l.Layout.Second("internal.kubeconfig"), nil, 0o600)).To(Succeed())
	g.Expect(step.Names(l.Steps())).To(HaveExactElements("cluster", "binaries", "metrics", "deploy", "garden", "gardenlet", "seed", "second-seed", "shoot"))
	var programs []string
	for _, program := range l.programs() {
		programs = append(programs, program.Name)
	}
	g.Expect(programs).To(ConsistOf("kubectl", "helm", "skaffold"))
	g.Expect(len(Landscape{}.programs())).To(BeNumerically(">", 20))
}

func TestAKindClusterNeedsNoRootAndHasNoNetworkOfItsOwn(t *testing.T) {
	g := NewWithT(t)
	l, _ := onKind(t, "single")
	g.Expect(os.MkdirAll(filepath.Join(l.Layout.Root, ".kind"), 0o700)).To(Succeed())
	unlock, err := l.prepare()
	g.Expect(err).NotTo(HaveOccurred())
	defer unlock()
	g.Expect(l.Layout.State("logs")).To(BeADirectory())
	g.Expect(l.Layout.State("network")).NotTo(BeAnExistingFile())
	g.Expect(filepath.Join(l.Layout.Root, ".landscape")).NotTo(BeAnExistingFile())
	_, err = l.prepare()
	g.Expect(err).To(MatchError(ContainSubstring("another up or down is at work")))
}

func TestSkaffoldIsToldOfTheVariantOfKind(t *testing.T) {
	for variant, profiles := range map[string]string{"single": "kind", "nodes": "kind", "zones": "kind,zones", "ipv6": "kind,ipv6", "dual-stack": "kind,dual-stack"} {
		t.Run(variant, func(t *testing.T) {
			g := NewWithT(t)
			l, _ := onKind(t, variant)
			g.Expect(l.profiles()).To(Equal(profiles))
			g.Expect(os.MkdirAll(l.Layout.State(), 0o750)).To(Succeed())
			g.Expect(os.WriteFile(l.standIns(), nil, 0o600)).To(Succeed())
			g.Expect(l.profiles()).To(Equal(profiles+",stand-ins"), "with the landscape's images")
			g.Expect(os.WriteFile(l.Layout.State("caches"), nil, 0o600)).To(Succeed())
			g.Expect(l.profiles()).To(Equal(profiles+",stand-ins"+map[bool]string{true: ",caches"}[variant != "ipv6"]), "machines use caches by IPv4")
			g.Expect(l.deployEnv("/gardener", l.Layout.Kubeconfig())).To(ContainElements(
				"GARDENER_DIR=/gardener", "KUBECONFIG="+l.Layout.Root+"/.kind/kubeconfig", HavePrefix("PATH="+l.Layout.Root+"/bin/landscape"),
				"SKAFFOLD_DEFAULT_REPO=registry.local.gardener.cloud:5001/local-skaffold"))
			g.Expect(l.Layout.SkaffoldCache()).To(HavePrefix(l.Layout.Root+"/.kind/"), "the registry goes with the cluster")
		})
	}
}

// The module cache of a fresh clone is empty: `go list -m` then knows no folder, and Helm looked for /charts/gardener/operator.
func TestTheSourceOfGardenerIsDownloaded(t *testing.T) {
	g := NewWithT(t)
	l, _ := onKind(t, "single")
	proxy := t.TempDir()
	const module = "example.com/gardener"
	files := filepath.Join(proxy, module, "@v")
	g.Expect(os.MkdirAll(files, 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(files, "v1.0.0.info"), []byte(`{"Version":"v1.0.0"}`), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(files, "v1.0.0.mod"), []byte("module "+module+"\n"), 0o600)).To(Succeed())
	var archive bytes.Buffer
	writer := zip.NewWriter(&archive)
	chart, err := writer.Create(module + "@v1.0.0/charts/gardener/operator/Chart.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	_, err = chart.Write([]byte("name: operator\n"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(writer.Close()).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(files, "v1.0.0.zip"), archive.Bytes(), 0o600)).To(Succeed())
	folder := l.Layout.Module("modules", "programs")
	g.Expect(os.MkdirAll(folder, 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(folder, "go.mod"), []byte("module example.com/pins\n\ngo 1.24\n\nrequire "+module+" v1.0.0\n"), 0o600)).To(Succeed())
	for name, value := range map[string]string{
		"GOMODCACHE": t.TempDir(), "GOPROXY": "file://" + proxy, "GONOSUMDB": "*", "GOFLAGS": "-mod=mod -modcacherw", "GOTOOLCHAIN": "local", "GOWORK": "off",
	} {
		t.Setenv(name, value)
	}

	found, err := l.moduleFolder(t.Context(), module)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(filepath.Join(found, "charts", "gardener", "operator", "Chart.yaml")).To(BeARegularFile())
	_, err = l.moduleFolder(t.Context(), "example.com/other")
	g.Expect(err).To(MatchError(ContainSubstring("finding the source of example.com/other: go list")))
}

func TestExampleShootsHaveTheIPFamilyOfTheirSeed(t *testing.T) {
	for variant, families := range map[string][]string{"single": nil, "dual-stack": nil, "ipv6": {"IPv6"}} {
		t.Run(variant, func(t *testing.T) {
			g := NewWithT(t)
			found, err := layout.Find(".")
			g.Expect(err).NotTo(HaveOccurred())
			found.Kind = variant
			shoots, err := Landscape{Layout: found}.exampleShoots()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(shoots).To(HaveLen(2))
			for _, shoot := range shoots {
				have, _, err := unstructured.NestedStringSlice(shoot.Object, "spec", "networking", "ipFamilies")
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(have).To(Equal(families))
				nodes, _, _ := unstructured.NestedString(shoot.Object, "spec", "networking", "nodes")
				switch {
				case shoot.GetName() != "local":
					g.Expect(nodes).To(BeEmpty(), "it has no machines")
				case families == nil:
					g.Expect(nodes).To(Equal("10.250.0.0/16"))
				default:
					g.Expect(nodes).To(Equal("fd00:10:a::/64"))
				}
			}
		})
	}
}

// nameServer answers every question for an address of IPv4 with 172.18.255.11, and has no others.
func nameServer(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	server, err := net.ListenPacket("udp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = server.Close() })
	go func() {
		for buffer := make([]byte, 512); ; {
			n, client, err := server.ReadFrom(buffer)
			if err != nil {
				return
			}
			// The question is a name, which ends with an empty label, a type and a class.
			end := 12 + bytes.IndexByte(buffer[12:n], 0) + 5
			answers := map[bool]byte{true: 1}[binary.BigEndian.Uint16(buffer[end-4:]) == 1]
			reply := append([]byte{buffer[0], buffer[1], 0x81, 0x80, 0, 1, 0, answers, 0, 0, 0, 0}, buffer[12:end]...)
			if answers == 1 {
				reply = append(reply, 0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 172, 18, 255, 11)
			}
			if _, err := server.WriteTo(reply, client); err != nil {
				return
			}
		}
	}()
	return server.LocalAddr().String()
}

func TestAShootIsReachedByTheGatewayThatTheNameServerTells(t *testing.T) {
	g := NewWithT(t)
	server := nameServer(t)
	config := &clientcmdapi.Config{Clusters: map[string]*clientcmdapi.Cluster{"shoot": {Server: "https://api.local.local.external.local.gardener.cloud"}}}
	gateway := func(host string) string { return lookup(t.Context(), server, host, "172.18.255.1") }
	g.Expect(reachFromHere(config, gateway)).To(Succeed())
	g.Expect(config.Clusters["shoot"].Server).To(Equal("https://172.18.255.11"), "that of its zone")
	g.Expect(config.Clusters["shoot"].TLSServerName).To(Equal("api.local.local.external.local.gardener.cloud"))

	config.Clusters["shoot"].Server = "https://api.local"
	g.Expect(reachFromHere(config, func(string) string { return "fd00:ff::1" })).To(Succeed())
	g.Expect(config.Clusters["shoot"].Server).To(Equal("https://[fd00:ff::1]"))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	g.Expect(lookup(ctx, server, "api.local", "172.18.255.1")).To(Equal("172.18.255.1"), "as before, if the server doesn't know it")
}

func TestStatusOfAKindClusterLooksForNoProcesses(t *testing.T) {
	g := NewWithT(t)
	l, out := onKind(t, "single")
	g.Expect(os.MkdirAll(l.Layout.State(), 0o700)).To(Succeed())
	const nobody = "apiVersion: v1\nkind: Config\nclusters:\n- {name: x, cluster: {server: 'https://127.0.0.1:1'}}\ncontexts:\n- {name: x, context: {cluster: x}}\ncurrent-context: x\n"
	g.Expect(os.WriteFile(l.Layout.Kubeconfig(), []byte(nobody), 0o600)).To(Succeed())
	g.Expect(l.Status(t.Context())).To(MatchError(ContainSubstring("not healthy")))
	g.Expect(out.String()).To(And(ContainSubstring("API SERVERS"), Not(ContainSubstring("PROCESSES")), Not(ContainSubstring("MEMORY")),
		ContainSubstring("export KUBECONFIG="+l.Layout.Root+"/.kind/kubeconfig"), ContainSubstring("@172.18.255.53")))
}

func TestTheEndOfUpSaysWhatToTypeNext(t *testing.T) {
	for _, test := range []struct {
		variant, until string
		says, not      []string
	}{
		{"", "dns", []string{"make status", ".landscape/bin/kubectl --kubeconfig", "make down", "quick-start.md"}, []string{"shoots/local.kubeconfig", "seeds"}},
		{"", "shoot", []string{".landscape/shoots/local.kubeconfig get nodes", "get seeds,shoots"}, []string{"dns-setup"}},
		{"single", "shoot", []string{"bin/landscape/kubectl --kubeconfig", ".kind/shoots/local.kubeconfig get nodes", "make dns-setup", "make kind-down", "quick-start-docker.md"}, []string{"make down"}},
	} {
		t.Run(test.variant+" "+test.until, func(t *testing.T) {
			g := NewWithT(t)
			l, out := onKind(t, test.variant)
			l.until = test.until
			if test.until == "shoot" {
				g.Expect(os.MkdirAll(filepath.Dir(l.Layout.VirtualKubeconfig()), 0o700)).To(Succeed())
				g.Expect(os.WriteFile(l.Layout.VirtualKubeconfig(), nil, 0o600)).To(Succeed())
			}
			l.next()
			for _, text := range test.says {
				g.Expect(out.String()).To(ContainSubstring(text))
			}
			for _, text := range test.not {
				g.Expect(out.String()).NotTo(ContainSubstring(text))
			}
		})
	}
}

func TestAKindClusterHasNoMemoryOfItsOwn(t *testing.T) {
	g := NewWithT(t)
	l, out := onKind(t, "single")
	l.times = &times{path: milestonesFile(t), now: l.Now}
	g.Expect(l.times.begin()).To(Succeed())
	l.times.reach("Garden Succeeded")
	g.Expect(l.summary()).To(Succeed())
	g.Expect(strings.TrimSpace(out.String())).To(MatchRegexp(`^MILESTONE +SECONDS\nGarden Succeeded +0\.0$`))
}
