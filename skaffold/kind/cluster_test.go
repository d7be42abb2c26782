// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package kind_test checks that the kind configurations map the node ports which the extension fixes by default.
package kind_test

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// cluster is what counts here of a kind configuration.
type cluster struct {
	Kind       string `json:"kind"`
	APIVersion string `json:"apiVersion"`
	Name       string `json:"name"`
	Networking struct {
		IPFamily      string `json:"ipFamily"`
		PodSubnet     string `json:"podSubnet"`
		ServiceSubnet string `json:"serviceSubnet"`
	} `json:"networking"`
	KubeadmConfigPatches []string `json:"kubeadmConfigPatches"`
	Nodes                []struct {
		Role        string            `json:"role"`
		Image       string            `json:"image"`
		Labels      map[string]string `json:"labels"`
		ExtraMounts []map[string]any  `json:"extraMounts"`
		// ExtraPortMappings are ports of the machine.
		ExtraPortMappings []struct {
			ListenAddress string `json:"listenAddress"`
			HostPort      int32  `json:"hostPort"`
			ContainerPort int32  `json:"containerPort"`
			Protocol      string `json:"protocol"`
		} `json:"extraPortMappings"`
	} `json:"nodes"`
}

// mapping is ADDRESS:PORT/PROTOCOL to NODEPORT, with brackets around an address of IPv6.
func mapping(address string, port int32, protocol string, nodePort int32) string {
	return fmt.Sprintf("%s/%s to %d", netip.AddrPortFrom(netip.MustParseAddr(address), uint16(port)), protocol, nodePort) // #nosec G115 -- a port
}

// ofSecond is the configuration of the extension in the second cluster.
func ofSecond(t *testing.T) *configv1alpha1.ExtensionConfiguration {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile("../extension/values-kind.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	var values struct {
		SeedValues struct {
			SeedLoadBalancers map[string]configv1alpha1.LoadBalancersConfiguration `json:"seedLoadBalancers"`
		} `json:"seedValues"`
	}
	g.Expect(yaml.Unmarshal(content, &values)).To(Succeed())
	return &configv1alpha1.ExtensionConfiguration{LoadBalancers: values.SeedValues.SeedLoadBalancers["local2"]}
}

// fixed are the mappings that the configuration of the extension needs in an IP family: "" is IPv4, ipv6 or dual.
func fixed(t *testing.T, config *configv1alpha1.ExtensionConfiguration, family string) []string {
	t.Helper()
	configv1alpha1.SetDefaults(config)
	var expected []string
	for _, service := range config.LoadBalancers.Services {
		addresses := service.Addresses
		if zone, ok := strings.CutPrefix(service.Namespace, "istio-ingress--"); ok {
			addresses = config.LoadBalancers.ZoneAddresses[zone]
		}
		if len(addresses) == 0 {
			addresses = config.LoadBalancers.HostAddresses
		}
		for _, address := range addresses {
			if is4 := netip.MustParseAddr(address).Is4(); is4 && family == "ipv6" || !is4 && family == "" {
				continue
			}
			for _, port := range service.NodePorts {
				expected = append(expected, mapping(address, port.Port, "TCP", port.NodePort))
				if port.Port == 53 {
					expected = append(expected, mapping(address, port.Port, "UDP", port.NodePort))
				}
			}
		}
	}
	return expected
}

// expected are the mappings that the extension needs in a cluster.
func expected(t *testing.T, of *cluster) []string {
	t.Helper()
	first := fixed(t, &configv1alpha1.ExtensionConfiguration{}, of.Networking.IPFamily)
	if of.Name == "gardener-local" {
		return first
	}
	// What the first cluster has is not in the second.
	second := slices.DeleteFunc(fixed(t, ofSecond(t), ""), func(m string) bool { return slices.Contains(first, m) })
	NewWithT(t).Expect(second).To(HaveLen(4), "three addresses, one of them for TCP and UDP")
	return second
}

func TestKindMapsTheNodePortsThatTheSeedInstanceFixes(t *testing.T) {
	for file, zones := range map[string][]string{"cluster.yaml": {"0"}, "cluster-zones.yaml": {"0", "1", "2"}, "cluster-ipv6.yaml": {"0"}, "cluster-dual-stack.yaml": {"0"}, "cluster-second.yaml": {"0"}} {
		t.Run(file, func(t *testing.T) {
			g := NewWithT(t)
			content, err := os.ReadFile(file)
			g.Expect(err).NotTo(HaveOccurred())
			found := &cluster{}
			g.Expect(yaml.UnmarshalStrict(content, found)).To(Succeed())
			g.Expect(found.Kind + " " + found.APIVersion).To(Equal("Cluster kind.x-k8s.io/v1alpha4"))

			var mapped, inZones []string
			for _, node := range found.Nodes {
				for _, m := range node.ExtraPortMappings {
					protocol := m.Protocol
					if protocol == "" {
						protocol = "TCP"
					}
					mapped = append(mapped, mapping(m.ListenAddress, m.HostPort, protocol, m.ContainerPort))
				}
				if zone, ok := node.Labels["topology.kubernetes.io/zone"]; ok {
					inZones = append(inZones, zone)
				}
			}
			g.Expect(mapped).To(ConsistOf(expected(t, found)))
			g.Expect(inZones).To(Equal(zones))
			if len(found.Nodes) > 1 {
				g.Expect(found.Nodes).To(HaveEach(HaveField("ExtraMounts", ConsistOf(And(
					HaveKeyWithValue("containerPath", "/etc/gardener/local-backupbuckets"), HaveKeyWithValue("selinuxRelabel", true))))),
					"nodes share the folders of the buckets")
			}
			g.Expect(found.Nodes).To(HaveEach(HaveField("Image", machineBase(t))), "kind's default may be a Kubernetes that Gardener does not support")
			g.Expect(found.KubeadmConfigPatches).To(ConsistOf(MatchYAML("{apiVersion: kubelet.config.k8s.io/v1beta1, kind: KubeletConfiguration, maxPods: 250, failCgroupV1: false}")))
		})
	}
}

// machineBase is the node image of kind that the machine image is made of.
func machineBase(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("../images/machine/Dockerfile")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	match := regexp.MustCompile(`(?m)^FROM (docker\.io/kindest/node:v\S+@sha256:\S+)$`).FindSubmatch(content)
	NewWithT(t).Expect(match).NotTo(BeNil(), "podman does not take a name without its registry")
	return string(match[1])
}

func TestTheScriptRefusesWhatItDoesNotUnderstand(t *testing.T) {
	for _, test := range []struct{ name, args, says string }{
		{"nothing", "", "expected 'addresses add'"},
		{"an unknown action", "pool change", "expected 'addresses add'"},
		{"an unknown flag", "pool add --nodes x", "unknown argument '--nodes'"},
		{"a flag of the other command", "addresses add --node x", "unknown argument '--node'"},
		{"a flag without its value", "pool add --node", "--node needs a value"},
		{"no node", "pool add", "expected the name of a container"},
		{"a node that is a flag of Docker", "pool add --node --privileged", "expected the name of a container"},
		{"a pool without a prefix", "pool add --node x --pool 172.18.255.128", "expected a CIDR"},
		{"a pool with everything in it", "pool add --node x --pool 0.0.0.0/0", "expected a CIDR"},
		{"a pool of IPv6 that is too large", "pool add --node x --pool fd00::/32", "expected a CIDR"},
		{"a number that no address has", "addresses add --address 172.18.255.256", "expected an IPv4 or IPv6 address"},
		{"two gaps in an address", "addresses add --address fd00::1::2", "expected an IPv4 or IPv6 address"},
		{"something after a good one", "pool add --node x --pool 172.18.255.128/25;reboot", "expected a CIDR"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			out, err := exec.CommandContext(t.Context(), "./loadbalancers", strings.Fields(test.args)...).CombinedOutput()
			var exit *exec.ExitError
			g.Expect(errors.As(err, &exit)).To(BeTrue())
			g.Expect(exit.ExitCode()).To(Equal(2), string(out))
			g.Expect(string(out)).To(ContainSubstring(test.says))
		})
	}
}
