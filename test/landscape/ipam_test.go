// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build landscape

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/node"
)

// fakeAPI answers GET for what is in it by path, and counts.
type fakeAPI struct {
	mutex    sync.Mutex
	objects  map[string]string
	requests int
}

func (a *fakeAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	a.requests++
	w.Header().Set("Content-Type", "application/json")
	object, found := a.objects[r.URL.Path]
	if !found || r.Method != http.MethodGet {
		w.WriteHeader(http.StatusNotFound)
		object = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"gone"}`
	}
	_, _ = w.Write([]byte(object))
}

func (a *fakeAPI) addPod(name, pool string) {
	annotations := ""
	if pool != "" {
		annotations = fmt.Sprintf(`,"annotations":{"cni.projectcalico.org/ipv4pools":"[\"%s\"]"}`, pool)
	}
	a.objects["/api/v1/namespaces/default/pods/"+name] = fmt.Sprintf(
		`{"kind":"Pod","apiVersion":"v1","metadata":{"namespace":"default","name":"%s"%s}}`, name, annotations)
}

func (a *fakeAPI) addPool(name, cidr string) {
	a.objects["/apis/crd.projectcalico.org/v1/ippools/"+name] = fmt.Sprintf(
		`{"kind":"IPPool","apiVersion":"crd.projectcalico.org/v1","metadata":{"name":"%s"},"spec":{"cidr":"%s"}}`, name, cidr)
}

// asked is how many requests there were since the last call.
func (a *fakeAPI) asked() int {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	defer func() { a.requests = 0 }()
	return a.requests
}

// cniNode is a node with the landscape's CNI configuration, in a network namespace.
type cniNode struct {
	namespace
	layout layout.Layout
	api    *fakeAPI
}

func newCNINode(t *testing.T) cniNode {
	t.Helper()
	g := NewWithT(t)
	n := cniNode{namespace: newNamespace(t), layout: layout.Layout{Root: t.TempDir()}, api: &fakeAPI{objects: map[string]string{}}}
	n.run(fmt.Sprintf(`ip link add pl0 type bridge; ip address add %s/32 dev pl0; ip link set pl0 up
echo 1 >/proc/sys/net/ipv4/ip_forward`, layout.Network{}.HostServicesIP()))
	n.serve()

	server := &http.Server{Handler: n.api, ReadHeaderTimeout: time.Second}
	t.Cleanup(func() { _ = server.Close() })
	var address string
	g.Expect(n.enter(func() error {
		listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
		if err == nil {
			address = listener.Addr().String()
			go func() { _ = server.Serve(listener) }()
		}
		return err
	})).To(Succeed())

	// The plugins are where containerd finds them.
	g.Expect(node.Certificates(n.layout, time.Now)).To(Succeed())
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-o", n.layout.Binary("ipam"), "./ipam") // #nosec G204 -- a path of the test.
	build.Dir, build.Env = "standins", append(os.Environ(), "CGO_ENABLED=0")
	out, err := build.CombinedOutput()
	g.Expect(err).NotTo(HaveOccurred(), string(out))
	g.Expect(os.WriteFile(n.layout.State("pki", "ipam.kubeconfig"), []byte(fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: c, cluster: {server: "http://%s"}}]
contexts: [{name: c, context: {cluster: c}}]
current-context: c
`, address)), 0o600)).To(Succeed())
	return n
}

// call calls the plugin bridge for a pod as containerd does, and returns what it answers.
func (n cniNode) call(command, name string, pod namespace, previous []byte) (map[string]any, error) {
	n.t.Helper()
	g := NewWithT(n.t)
	rendered, err := node.Render("10-landscape.conflist", n.layout)
	g.Expect(err).NotTo(HaveOccurred())
	list := struct {
		CNIVersion, Name string
		Plugins          []map[string]any
	}{}
	g.Expect(json.Unmarshal(rendered, &list)).To(Succeed())
	conf := list.Plugins[0]
	conf["cniVersion"], conf["name"] = list.CNIVersion, list.Name
	if previous != nil {
		conf["prevResult"] = json.RawMessage(previous)
	}
	stdin, err := json.Marshal(conf)
	g.Expect(err).NotTo(HaveOccurred())

	cmd := n.command(filepath.Join(n.layout.Plugins(), "bridge"))
	cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID="+name, "CNI_IFNAME=eth0", "CNI_PATH="+n.layout.Plugins(),
		"CNI_NETNS=/proc/"+strconv.Itoa(pod.pid)+"/ns/net", "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME="+name)
	var stdout bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stdout
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s of %s: %w: %s", command, name, err, stdout.String())
	}
	result := map[string]any{}
	if stdout.Len() > 0 {
		g.Expect(json.Unmarshal(stdout.Bytes(), &result)).To(Succeed(), stdout.String())
	}
	return result, nil
}

// addPod makes a pod that answers, and returns its address.
func (n cniNode) addPod(name, pool string) (namespace, netip.Addr) {
	n.t.Helper()
	g := NewWithT(n.t)
	n.api.addPod(name, pool)
	pod := newNamespace(n.t)
	result, err := n.call("ADD", name, pod, nil)
	g.Expect(err).NotTo(HaveOccurred())
	pod.serve()
	previous, err := json.Marshal(result)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = n.call("CHECK", name, pod, previous)
	g.Expect(err).NotTo(HaveOccurred())
	text, _ := result["ips"].([]any)[0].(map[string]any)["address"].(string)
	prefix, err := netip.ParsePrefix(text)
	g.Expect(err).NotTo(HaveOccurred())
	return pod, prefix.Addr()
}

func (n cniNode) del(name string, pod namespace) {
	n.t.Helper()
	_, err := n.call("DEL", name, pod, nil)
	NewWithT(n.t).Expect(err).NotTo(HaveOccurred())
}

// reserved are the files of addresses that are in use.
func (n cniNode) reserved() []string {
	n.t.Helper()
	paths, err := filepath.Glob(n.layout.State("cni", layout.CNINetwork, "[0-9]*"))
	NewWithT(n.t).Expect(err).NotTo(HaveOccurred())
	for i := range paths {
		paths[i] = filepath.Base(paths[i])
	}
	return paths
}

func (n cniNode) gateways() []string {
	n.t.Helper()
	return strings.Fields(n.run("ip -o -4 address show dev " + layout.PodBridge + " | awk '{print $4}'"))
}

// TestMachinesHaveAddressesOfTheirPool shows in network namespaces what standins/ipam does, with Debian's plugins bridge and
// host-local and the landscape's configuration.
//
//	go test -C test/landscape -tags landscape -run TestMachinesHaveAddressesOfTheirPool -v .
func TestMachinesHaveAddressesOfTheirPool(t *testing.T) {
	g := NewWithT(t)
	n := newCNINode(t)
	n.api.addPool("shoot-a", "10.0.0.0/16")
	n.api.addPool("shoot-b", "10.0.0.0/16")

	plain, plainIP := n.addPod("plain", "")
	g.Expect(n.api.asked()).To(Equal(1), "a pod without annotation costs one request")
	first, firstIP := n.addPod("first", "shoot-a")
	second, secondIP := n.addPod("second", "shoot-b")
	g.Expect(netip.MustParsePrefix(layout.Network{}.PodCIDR()).Contains(plainIP)).To(BeTrue(), plainIP.String())
	g.Expect(firstIP.String()).To(Equal("10.0.0.2"))
	g.Expect(secondIP.String()).To(Equal("10.0.0.3"), "shoots with the same range share it")
	g.Expect(n.gateways()).To(ConsistOf("10.244.0.1/16", "10.0.0.1/16"))

	for _, way := range []struct {
		from namespace
		to   netip.Addr
	}{
		{plain, firstIP}, {first, plainIP}, {first, secondIP}, {second, plainIP}, {n.namespace, plainIP}, {n.namespace, firstIP},
		{plain, netip.MustParseAddr(layout.Network{}.HostServicesIP())}, {first, netip.MustParseAddr(layout.Network{}.HostServicesIP())},
	} {
		g.Expect(way.from.ask("tcp", net.JoinHostPort(way.to.String(), "8080"))).To(Equal("pod"), way.to.String())
	}
	routes := first.run("ip route")
	g.Expect(routes).To(And(ContainSubstring("default via 10.0.0.1 dev eth0"), ContainSubstring("10.0.0.0/16 dev eth0")))

	n.api.objects = map[string]string{}
	n.api.asked()
	for range 2 {
		n.del("first", first)
	}
	g.Expect(n.reserved()).To(ConsistOf(plainIP.String(), secondIP.String()))
	g.Expect(n.gateways()).To(ContainElement("10.0.0.1/16"), "somebody uses it")
	n.del("second", second)
	g.Expect(n.gateways()).To(ConsistOf("10.244.0.1/16"))
	n.del("plain", plain)
	g.Expect(n.reserved()).To(BeEmpty())
	g.Expect(n.gateways()).To(ConsistOf("10.244.0.1/16"))
	g.Expect(n.api.asked()).To(BeZero(), "giving back asks nobody")
}

func TestTheBridgeKeepsItsAddressAsPodsComeAndGo(t *testing.T) {
	g := NewWithT(t)
	n := newCNINode(t)
	address := func() string {
		return n.run("ip -o link show dev " + layout.PodBridge + " | grep -o 'link/ether [^ ]*'")
	}
	first, _ := n.addPod("first", "")
	known := address()
	second, _ := n.addPod("second", "")
	n.del("first", first)
	g.Expect(address()).To(Equal(known), "pods have it in their neighbour tables")
	g.Expect(second.ask("tcp", net.JoinHostPort(layout.Network{}.HostServicesIP(), "8080"))).To(Equal("pod"))
}

func TestMachinesGetNoAddressOfAPoolThatIsNotThere(t *testing.T) {
	g := NewWithT(t)
	n := newCNINode(t)
	n.run("ip link add lan type bridge; ip address add 192.168.0.5/24 dev lan; ip link set lan up")
	for name, test := range map[string]struct{ cidr, message string }{
		"missing": {message: "getting IPPool missing"},
		"of-pods": {cidr: "10.244.7.0/24", message: "10.244.7.0/24 overlaps 10.244.0.0/16, of which pods have addresses"},
		"of-host": {cidr: "192.168.0.0/16", message: "192.168.0.0/16 overlaps 192.168.0.0/24, to which this machine has a route"},
		"full":    {cidr: "10.5.0.0/31", message: "too small"},
	} {
		t.Run(name, func(*testing.T) {
			if test.cidr != "" {
				n.api.addPool(name, test.cidr)
			}
			n.api.addPod("pod-"+name, name)
			_, err := n.call("ADD", "pod-"+name, newNamespace(t), nil)
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
			g.Expect(n.reserved()).To(BeEmpty())
			g.Expect(n.gateways()).To(BeEmpty())
		})
	}
}
