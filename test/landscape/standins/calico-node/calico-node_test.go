// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/program"
)

const clusterPods = "100.64.0.0/12"

func newNode(name, pods, address string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if pods != "" {
		node.Spec.PodCIDRs = []string{pods}
	}
	if address != "" {
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address}}
	}
	return node
}

func routeTo(to, via string) route {
	return route{to: netip.MustParsePrefix(to), via: netip.MustParseAddr(via)}
}

func TestArguments(t *testing.T) {
	for _, test := range []struct {
		name  string
		args  []string
		paths []string
		fails bool
	}{
		{name: "the liveness probe", args: []string{"-felix-live", "-bird-live"}, paths: []string{livePath}},
		{name: "the readiness probe", args: []string{"-felix-ready", "-bird-ready"}, paths: []string{readyPath}},
		{name: "the readiness probe without BIRD", args: []string{"-felix-ready"}, paths: []string{readyPath}},
		{name: "what isn't stood in for", args: []string{"-init", "-best-effort"}, fails: true},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			paths, err := probed(test.args)
			g.Expect(err != nil).To(Equal(test.fails))
			g.Expect(paths).To(Equal(test.paths))
		})
	}
}

func TestAnUnknownArgumentEndsTheProgram(t *testing.T) {
	g := NewWithT(t)
	g.Expect(run(t.Context(), "calico-node", []string{"-hostpath-init"})).To(MatchError(ContainSubstring("not stood in for")))
	g.Expect(run(t.Context(), "calico-node", []string{"-shutdown"})).To(Succeed())
}

func newInstallation(t *testing.T, nodes ...*corev1.Node) installation {
	t.Helper()
	client := fake.NewClientset()
	for _, node := range nodes {
		_, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	}
	i := installation{client: client, node: "self", folder: t.TempDir(), plugins: t.TempDir(), mtu: "1440"}
	for _, plugin := range []string{"bridge", "host-local", "portmap"} {
		NewWithT(t).Expect(os.WriteFile(filepath.Join(i.plugins, plugin), nil, 0o755)).To(Succeed())
	}
	return i
}

func TestInstallWritesTheConfigurationForTheRangeOfTheNode(t *testing.T) {
	g := NewWithT(t)
	i := newInstallation(t, newNode("other", "100.64.1.0/24", ""), newNode("self", "100.64.0.0/24", ""))
	for range 2 {
		g.Expect(i.run(t.Context())).To(Succeed())
	}
	content, err := os.ReadFile(filepath.Join(i.folder, configurationName))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(content).To(MatchJSON(`{
		"cniVersion": "1.0.0", "name": "k8s-pod-network",
		"plugins": [
			{"type": "bridge", "bridge": "cali0", "isGateway": true, "hairpinMode": true, "mtu": 1440, "ipam": {
				"type": "host-local", "ranges": [[{"subnet": "100.64.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
			{"type": "portmap", "snat": true, "capabilities": {"portMappings": true}}
		]}`))
	entries, err := os.ReadDir(i.folder)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(entries).To(HaveLen(1), "nothing half written is left for containerd to find")
}

func TestInstallWaitsForTheRangeOfTheNode(t *testing.T) {
	g := NewWithT(t)
	node := newNode("self", "", "")
	i := newInstallation(t, node)
	done := make(chan error, 1)
	go func() { done <- i.run(t.Context()) }()
	g.Consistently(done, "200ms").ShouldNot(Receive())
	node.Spec.PodCIDRs = []string{"fd00:3::/64", "100.64.3.0/24"}
	_, err := i.client.CoreV1().Nodes().Update(t.Context(), node, metav1.UpdateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Eventually(done, "10s").Should(Receive(BeNil()))
	g.Expect(os.ReadFile(filepath.Join(i.folder, configurationName))).To(And(
		ContainSubstring("fd00:3::/64"), ContainSubstring("100.64.3.0/24"), ContainSubstring("0.0.0.0/0"), ContainSubstring(`"::/0"`),
	), "both families")
}

func TestInstallFails(t *testing.T) {
	self := newNode("self", "100.64.0.0/24", "")
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		name   string
		ctx    context.Context
		change func(*testing.T, *installation)
		want   string
	}{
		{name: "without a plugin", ctx: t.Context(), want: "portmap", change: func(t *testing.T, i *installation) {
			NewWithT(t).Expect(os.Remove(filepath.Join(i.plugins, "portmap"))).To(Succeed())
		}},
		{name: "with a plugin that is no program", ctx: t.Context(), want: "bridge is no program", change: func(t *testing.T, i *installation) {
			NewWithT(t).Expect(os.Chmod(filepath.Join(i.plugins, "bridge"), 0o644)).To(Succeed())
		}},
		{name: "without the node's name", ctx: t.Context(), want: "KUBERNETES_NODE_NAME", change: func(_ *testing.T, i *installation) { i.node = "" }},
		{name: "with an MTU that is none", ctx: t.Context(), want: "CNI_MTU", change: func(_ *testing.T, i *installation) { i.mtu = "much" }},
		{name: "where there is no place for the configuration", ctx: t.Context(), want: "writing the CNI configuration", change: func(_ *testing.T, i *installation) { i.folder += "/none" }},
		{name: "when it is to end", ctx: canceled, want: "canceled", change: func(_ *testing.T, i *installation) { i.node = "unknown" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			i := newInstallation(t, self)
			test.change(t, &i)
			NewWithT(t).Expect(i.run(test.ctx)).To(MatchError(ContainSubstring(test.want)))
		})
	}
}

func TestRoutesLeadToAllOtherNodesThatHaveRangeAndAddress(t *testing.T) {
	g := NewWithT(t)
	external := newNode("external", "100.64.9.0/24", "")
	external.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "10.0.0.9"}}
	both := newNode("both", "fd00:1::/64", "fd00::3")
	both.Spec.PodCIDRs = []string{"fd00:1::/64", "100.64.3.0/24"}
	both.Status.Addresses = append(both.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "10.0.0.3"})
	g.Expect(wanted([]*corev1.Node{
		newNode("self", "100.64.0.0/24", "10.0.0.1"), both, newNode("second", "100.64.2.0/24", "10.0.0.2"),
		newNode("new", "", "10.0.0.4"), newNode("unknown", "100.64.5.0/24", ""), external,
	}, "self")).To(Equal([]route{routeTo("100.64.2.0/24", "10.0.0.2"), routeTo("100.64.3.0/24", "10.0.0.3"), routeTo("fd00:1::/64", "fd00::3")}))
}

// fakeKernel keeps routes by their range, as a kernel does.
type fakeKernel struct {
	table       map[netip.Prefix]netip.Addr
	masqueraded netip.Prefix
	changes     int
	refuses     error
}

func (k *fakeKernel) forward() error { return nil }

func (k *fakeKernel) masquerade(_ context.Context, pods netip.Prefix) error {
	k.masqueraded = pods
	return nil
}

func (k *fakeKernel) routes() ([]route, error) {
	var out []route
	for to, via := range k.table {
		out = append(out, route{to: to, via: via})
	}
	return out, nil
}

func (k *fakeKernel) replace(r route) error {
	k.changes++
	if k.refuses == nil {
		k.table[r.to] = r.via
	}
	return k.refuses
}

func (k *fakeKernel) remove(r route) error {
	k.changes++
	delete(k.table, r.to)
	return nil
}

// newTestAgent has the nodes in its store, and the node's configuration in place.
func newTestAgent(t *testing.T, nodes ...*corev1.Node) (*agent, *fakeKernel, cache.Store) {
	t.Helper()
	g := NewWithT(t)
	client, store := fake.NewClientset(), cache.NewStore(cache.MetaNamespaceKeyFunc)
	for _, node := range nodes {
		_, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(store.Add(node)).To(Succeed())
	}
	a := newAgent(client, "self", []string{clusterPods, ""}, filepath.Join(t.TempDir(), configurationName))
	g.Expect(os.WriteFile(a.configuration, nil, 0o600)).To(Succeed())
	k := &fakeKernel{table: map[netip.Prefix]netip.Addr{}}
	a.kernel = k
	return a, k, store
}

func TestSyncFollowsTheNodes(t *testing.T) {
	g := NewWithT(t)
	other := newNode("other", "100.64.1.0/24", "10.0.0.2")
	a, k, store := newTestAgent(t, newNode("self", "100.64.0.0/24", "10.0.0.1"), other)
	g.Expect(a.sync(t.Context(), true, store)).To(Succeed())
	g.Expect(k.routes()).To(ConsistOf(routeTo("100.64.1.0/24", "10.0.0.2")))
	g.Expect(k.masqueraded.String()).To(Equal(clusterPods))
	g.Expect(a.sync(t.Context(), true, store)).To(Succeed())
	g.Expect(k.changes).To(Equal(1), "what is there stays")

	moved := newNode("other", "100.64.1.0/24", "10.0.0.7")
	g.Expect(store.Update(moved)).To(Succeed())
	g.Expect(a.sync(t.Context(), true, store)).To(Succeed())
	g.Expect(k.routes()).To(ConsistOf(routeTo("100.64.1.0/24", "10.0.0.7")))
	g.Expect(k.changes).To(Equal(2), "it is replaced at once")

	g.Expect(store.Delete(moved)).To(Succeed())
	g.Expect(a.sync(t.Context(), true, store)).To(Succeed())
	g.Expect(k.routes()).To(BeEmpty())
}

func TestTheNodeGetsItsConditionOnceEverythingIsInPlace(t *testing.T) {
	g := NewWithT(t)
	a, k, store := newTestAgent(t, newNode("self", "100.64.0.0/24", "10.0.0.1"), newNode("other", "100.64.1.0/24", "10.0.0.2"))
	conditions := func() []corev1.NodeCondition {
		node, err := a.client.CoreV1().Nodes().Get(t.Context(), "self", metav1.GetOptions{})
		g.Expect(err).NotTo(HaveOccurred())
		return node.Status.Conditions
	}
	g.Expect(a.sync(t.Context(), false, store)).To(MatchError(ContainSubstring("not known yet")))
	k.refuses = errors.New("network is unreachable")
	g.Expect(a.sync(t.Context(), true, store)).To(MatchError(ContainSubstring("network is unreachable")))
	k.refuses = nil
	g.Expect(os.Remove(a.configuration)).To(Succeed())
	g.Expect(a.sync(t.Context(), true, store)).To(MatchError(ContainSubstring("CNI configuration")))
	g.Expect(conditions()).To(BeEmpty())

	g.Expect(os.WriteFile(a.configuration, nil, 0o600)).To(Succeed())
	for range 2 {
		g.Expect(a.sync(t.Context(), true, store)).To(Succeed())
	}
	g.Expect(conditions()).To(ConsistOf(And(HaveField("Type", corev1.NodeNetworkUnavailable), HaveField("Status", corev1.ConditionFalse))))
}

func TestARangeThatIsNoneIsSaidSo(t *testing.T) {
	a, _, store := newTestAgent(t, newNode("self", "100.64.0.0/24", "10.0.0.1"))
	a.pods = []string{"none"}
	NewWithT(t).Expect(a.sync(t.Context(), true, store)).To(MatchError(ContainSubstring("CALICO_IPV4POOL_CIDR")))
}

func TestProbesTellTheTruth(t *testing.T) {
	g := NewWithT(t)
	ask := func(ctx context.Context, socket, path string) error { return program.Ask(ctx, "unix", socket, path) }
	now := time.Unix(0, 0)
	h := newHealth(func() time.Time { return now })
	socket := filepath.Join(t.TempDir(), "socket")
	g.Expect(ask(t.Context(), socket, livePath)).NotTo(Succeed(), "nobody answers")

	for range 2 {
		// The socket of a run before is there in the second round.
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- program.Serve(ctx, "unix", socket, h) }()

		h.report(errors.New("a route is missing"))
		g.Eventually(func() error { return ask(ctx, socket, livePath) }).Should(Succeed())
		g.Expect(ask(ctx, socket, readyPath)).To(MatchError(ContainSubstring("a route is missing")))
		h.report(nil)
		g.Expect(ask(ctx, socket, readyPath)).To(Succeed())
		now = now.Add(patience + time.Second)
		g.Expect(ask(ctx, socket, livePath)).To(MatchError(ContainSubstring("nothing was done for")))
		g.Expect(ask(ctx, socket, readyPath)).NotTo(Succeed())
		g.Expect(ask(ctx, socket, "/other")).To(MatchError(ContainSubstring("404")))
		cancel()
		g.Eventually(ended).Should(Receive(BeNil()))
		g.Expect(os.WriteFile(socket, nil, 0o600)).To(Succeed())
	}
}
