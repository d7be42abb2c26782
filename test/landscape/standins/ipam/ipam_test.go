// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/version"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/fake"
)

// delegateCall is one call of host-local.
type delegateCall struct {
	Command string
	Ranges  [][]addressRange
}

// fakeDelegate is host-local: it reserves the address that a test says, as a file.
type fakeDelegate struct {
	version.PluginDecoder
	dir, address, gateway string
	err                   error
	calls                 []delegateCall
}

func (f *fakeDelegate) FindInPath(plugin string, _ []string) (string, error) { return plugin, nil }

func (f *fakeDelegate) ExecPlugin(_ context.Context, _ string, stdin []byte, environ []string) ([]byte, error) {
	conf, err := parseAny(stdin)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(environ, func(s string) bool { return len(s) > 12 && s[:12] == "CNI_COMMAND=" })
	call := delegateCall{Command: environ[i][12:], Ranges: conf.IPAM.Ranges}
	f.calls = append(f.calls, call)
	if f.err != nil {
		return nil, f.err
	}
	file := filepath.Join(f.dir, netip.MustParsePrefix(f.address).Addr().String())
	switch call.Command {
	case "ADD":
		return fmt.Appendf(nil, `{"cniVersion":"1.0.0","ips":[{"address":%q,"gateway":%q}]}`, f.address, f.gateway), os.WriteFile(file, nil, 0o600)
	case "DEL":
		if err := os.Remove(file); !errors.Is(err, os.ErrNotExist) {
			return nil, err
		}
	}
	return nil, nil
}

func parseAny(stdin []byte) (*config, error) {
	conf := &config{}
	return conf, json.Unmarshal(stdin, conf)
}

// fakeLinks is a machine with one bridge.
type fakeLinks struct {
	onBridge, others []netip.Prefix
	err              error
}

func (f *fakeLinks) addAddress(_ string, address netip.Prefix) error {
	if f.err == nil && !slices.Contains(f.onBridge, address) {
		f.onBridge = append(f.onBridge, address)
	}
	return f.err
}

func (f *fakeLinks) removeAddress(_ string, address netip.Prefix) error {
	f.onBridge = slices.DeleteFunc(f.onBridge, func(other netip.Prefix) bool { return other == address })
	return nil
}

func (f *fakeLinks) addresses(string) ([]netip.Prefix, error) { return slices.Clone(f.onBridge), nil }
func (f *fakeLinks) networks(string) ([]netip.Prefix, error)  { return f.others, nil }

// call is a call of the plugin on a machine, and what became of it.
type call struct {
	plugin   plugin
	args     *skel.CmdArgs
	delegate *fakeDelegate
	links    *fakeLinks
	out      *bytes.Buffer
	requests *int
}

func newCall(t *testing.T, objects ...runtime.Object) call {
	t.Helper()
	dir := t.TempDir()
	stored := filepath.Join(dir, "net")
	NewWithT(t).Expect(os.Mkdir(stored, 0o700)).To(Succeed())
	client := fake.NewSimpleDynamicClient(runtime.NewScheme(), objects...)
	c := call{
		delegate: &fakeDelegate{dir: stored, address: "10.244.0.7/16", gateway: "10.244.0.1"},
		links:    &fakeLinks{onBridge: []netip.Prefix{netip.MustParsePrefix("10.244.0.1/16")}},
		out:      &bytes.Buffer{}, requests: new(int),
	}
	c.plugin = plugin{links: c.links, exec: c.delegate, out: c.out, connect: func(string) (dynamic.Interface, error) {
		*c.requests++
		return client, nil
	}}
	c.args = &skel.CmdArgs{ContainerID: "c", IfName: "eth0", Args: "IgnoreUnknown=1;K8S_POD_NAMESPACE=ns;K8S_POD_NAME=pod;K8S_POD_UID=1", StdinData: fmt.Appendf(nil,
		`{"cniVersion":"1.0.0","name":"net","type":"bridge","bridge":"cni0","ipam":{"type":"x","kubeconfig":"/none","dataDir":%q,"ranges":[[{"subnet":"10.244.0.0/16"}]],"routes":[{"dst":"0.0.0.0/0"}]}}`, dir)}
	return c
}

func pod(annotations map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "Pod", "metadata": map[string]any{"namespace": "ns", "name": "pod", "annotations": annotations},
	}}
}

func ipPool(name string, spec map[string]any) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	u.SetGroupVersionKind(schema.GroupVersionKind{Group: "crd.projectcalico.org", Version: "v1", Kind: "IPPool"})
	u.SetName(name)
	return u
}

func TestAddReservesAnAddress(t *testing.T) {
	one := ipPool("one", map[string]any{"cidr": "10.0.0.0/16"})
	for name, test := range map[string]struct {
		annotations map[string]any
		objects     []runtime.Object
		// ranges are what host-local is asked for; none if it is not called.
		ranges []addressRange
		err    string
	}{
		"in the pods' range without an annotation": {ranges: []addressRange{{Subnet: "10.244.0.0/16"}}},
		"in the pods' range with an empty list":    {annotations: map[string]any{annotationV4: `[]`}, ranges: []addressRange{{Subnet: "10.244.0.0/16"}}},
		"in the pool that is named": {
			annotations: map[string]any{annotationV4: `["one"]`}, objects: []runtime.Object{one}, ranges: []addressRange{{Subnet: "10.0.0.0/16"}},
		},
		"in one of several pools, without those that can't be used": {
			annotations: map[string]any{annotationV4: `["off", "gone", "one", "same", "six", "two"]`},
			objects: []runtime.Object{
				one, ipPool("off", map[string]any{"cidr": "10.7.0.0/16", "disabled": true}), ipPool("same", map[string]any{"cidr": "10.0.0.0/16"}),
				ipPool("six", map[string]any{"cidr": "fd00::/64"}), ipPool("two", map[string]any{"cidr": "10.9.0.0/24"}),
			},
			ranges: []addressRange{{Subnet: "10.0.0.0/16"}, {Subnet: "10.9.0.0/24"}},
		},
		"up to another network of the machine": {
			annotations: map[string]any{annotationV4: `["lan"]`}, objects: []runtime.Object{ipPool("lan", map[string]any{"cidr": "192.168.0.0/16"})},
			ranges: []addressRange{{Subnet: "192.168.0.0/16", RangeEnd: "192.168.6.255"}},
		},
		"but not in a pool that is disabled": {
			annotations: map[string]any{annotationV4: `["off"]`}, objects: []runtime.Object{ipPool("off", map[string]any{"cidr": "10.7.0.0/16", "disabled": true})},
			err: "taking an address of IPPool off: it is disabled",
		},
		"but not in a pool that is gone":        {annotations: map[string]any{annotationV4: `["gone"]`}, err: "getting IPPool gone"},
		"but not in a pool without range":       {annotations: map[string]any{annotationV4: `["x"]`}, objects: []runtime.Object{ipPool("x", map[string]any{})}, err: "IPPool x"},
		"but not of IPv6":                       {annotations: map[string]any{annotationV6: `["one"]`}, objects: []runtime.Object{one}, err: "there is no IPv6 here"},
		"but not for an annotation that is bad": {annotations: map[string]any{annotationV4: `one`}, err: "is no list of names"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c := newCall(t, append(test.objects, pod(test.annotations))...)
			c.links.others = []netip.Prefix{netip.MustParsePrefix("192.168.7.0/24")}
			err := c.plugin.add(c.args)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				g.Expect(c.delegate.calls).To(BeEmpty())
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(c.delegate.calls).To(ConsistOf(delegateCall{Command: "ADD", Ranges: [][]addressRange{test.ranges}}))
			g.Expect(c.out.String()).To(ContainSubstring("10.244.0.7/16"))
		})
	}
}

func TestAddFailsForAPodThatIsNotThere(t *testing.T) {
	g := NewWithT(t)
	c := newCall(t)
	g.Expect(c.plugin.add(c.args)).To(MatchError(ContainSubstring("getting Pod ns/pod")))
	g.Expect(c.delegate.calls).To(BeEmpty(), "it might be a machine")
}

func TestAddAsksNobodyIfItIsNotForAPod(t *testing.T) {
	g := NewWithT(t)
	c := newCall(t)
	c.args.Args = ""
	g.Expect(c.plugin.add(c.args)).To(Succeed())
	g.Expect(*c.requests).To(BeZero())
}

func TestAddGivesBackTheAddressIfThereIsNoGateway(t *testing.T) {
	g := NewWithT(t)
	c := newCall(t, pod(nil))
	c.links.err = errors.New("no device")
	g.Expect(c.plugin.add(c.args)).To(MatchError(ContainSubstring("adding gateway 10.244.0.1/16 to cni0: no device")))
	g.Expect(c.delegate.calls).To(HaveExactElements(HaveField("Command", "ADD"), HaveField("Command", "DEL")))
	g.Expect(c.out.String()).To(BeEmpty())
}

func TestAddSaysWhatHostLocalSays(t *testing.T) {
	g := NewWithT(t)
	c := newCall(t, pod(nil))
	c.delegate.err = errors.New("all are in use")
	g.Expect(c.plugin.add(c.args)).To(MatchError(ContainSubstring("all are in use")))
}

func TestGatewaysAreThereAsLongAsTheyAreUsed(t *testing.T) {
	g := NewWithT(t)
	c := newCall(t, pod(map[string]any{annotationV4: `["one"]`}), ipPool("one", map[string]any{"cidr": "10.0.0.0/16"}))
	c.delegate.address, c.delegate.gateway = "10.0.0.5/16", "10.0.0.1"
	pods, machines := netip.MustParsePrefix("10.244.0.1/16"), netip.MustParsePrefix("10.0.0.1/16")
	g.Expect(c.plugin.add(c.args)).To(Succeed())
	g.Expect(c.links.onBridge).To(ConsistOf(pods, machines))

	other := filepath.Join(c.delegate.dir, "10.0.77.1")
	g.Expect(os.WriteFile(other, nil, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(c.delegate.dir, "last_reserved_ip.0"), []byte("10.0.77.1"), 0o600)).To(Succeed())
	*c.requests = 0
	g.Expect(c.plugin.del(c.args)).To(Succeed())
	g.Expect(c.links.onBridge).To(ConsistOf(pods, machines), "another machine uses it")

	g.Expect(os.Remove(other)).To(Succeed())
	g.Expect(c.plugin.del(c.args)).To(Succeed(), "a second time")
	g.Expect(c.links.onBridge).To(ConsistOf(pods))
	g.Expect(*c.requests).To(BeZero(), "Pod and IPPool may be gone")
}

func TestCheckIsHostLocals(t *testing.T) {
	g := NewWithT(t)
	c := newCall(t)
	g.Expect(c.plugin.check(c.args)).To(Succeed())
	g.Expect(c.delegate.calls).To(HaveExactElements(HaveField("Command", "CHECK")))
}

func TestParse(t *testing.T) {
	for name, content := range map[string]string{
		"no JSON":              `{`,
		"no bridge":            `{"name":"net"}`,
		"no kubeconfig":        `{"name":"net","bridge":"cni0","ipam":{"dataDir":"/d"}}`,
		"no range":             `{"name":"net","bridge":"cni0","ipam":{"kubeconfig":"/k","dataDir":"/d"}}`,
		"a range that is none": `{"name":"net","bridge":"cni0","ipam":{"kubeconfig":"/k","dataDir":"/d","ranges":[[{"subnet":"pods"}]]}}`,
		"a range of IPv6":      `{"name":"net","bridge":"cni0","ipam":{"kubeconfig":"/k","dataDir":"/d","ranges":[[{"subnet":"fd00::/64"}]]}}`,
		"several ranges":       `{"name":"net","bridge":"cni0","ipam":{"kubeconfig":"/k","dataDir":"/d","ranges":[[{"subnet":"10.1.0.0/16"}],[{"subnet":"10.2.0.0/16"}]]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse([]byte(content))
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("reading the configuration")))
		})
	}
}

func TestLimit(t *testing.T) {
	for name, test := range map[string]struct {
		own, others []string
		last, err   string
	}{
		"nothing else":                    {others: []string{"192.168.0.0/24", "10.1.0.0/16"}, last: "invalid IP"},
		"the same range on the bridge":    {own: []string{"10.0.0.0/16"}, last: "invalid IP"},
		"a part of it on the bridge":      {own: []string{"10.0.3.0/24"}, err: "10.0.3.0/24, of which pods"},
		"more than it on the bridge":      {own: []string{"10.0.0.0/8"}, err: "10.0.0.0/8, of which pods"},
		"parts of it elsewhere":           {others: []string{"10.0.9.0/24", "10.0.2.0/24", "10.0.2.15/32"}, last: "10.0.1.255"},
		"the same range elsewhere":        {others: []string{"10.0.0.0/16"}, err: "10.0.0.0/16, to which this machine"},
		"more than it elsewhere":          {others: []string{"10.0.0.0/12"}, err: "10.0.0.0/12, to which"},
		"its beginning elsewhere":         {others: []string{"10.0.0.0/24"}, err: "10.0.0.0/24, to which"},
		"its gateway elsewhere":           {others: []string{"10.0.0.1/32"}, err: "10.0.0.1/32, to which"},
		"its first address elsewhere":     {others: []string{"10.0.0.2/32"}, err: "10.0.0.2/32, to which"},
		"room for one address before one": {others: []string{"10.0.0.3/32"}, last: "10.0.0.2"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			prefixes := func(texts []string) (out []netip.Prefix) {
				for _, text := range texts {
					out = append(out, netip.MustParsePrefix(text))
				}
				return out
			}
			last, err := limit(netip.MustParsePrefix("10.0.0.0/16"), prefixes(test.own), prefixes(test.others))
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(last.String()).To(Equal(test.last))
		})
	}
}
