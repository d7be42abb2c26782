// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

const minimal = `
apiVersion: config.local.provider.extensions.gardener.cloud/v1alpha1
kind: ExtensionConfiguration
extensionClasses: [garden]
dns: {coreDNS: {image: coredns}}
`

func decode(file string) (*configv1alpha1.ExtensionConfiguration, error) {
	config := &configv1alpha1.ExtensionConfiguration{}
	return config, configv1alpha1.Decode([]byte(file), config)
}

func TestDecodeFillsInDefaults(t *testing.T) {
	g := NewWithT(t)
	config, err := decode(minimal)
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(config.ExtensionClasses).To(HaveExactElements(extensionsv1alpha1.ExtensionClassGarden))
	g.Expect(*config.LeaderElection.LeaderElect).To(BeTrue())
	g.Expect(config.LeaderElection.ResourceLock).To(Equal("leases"))
	g.Expect(config.ClientConnection.QPS).To(BeNumerically("==", 500))
	g.Expect(*config.Controllers.DNSRecord.ConcurrentSyncs).To(Equal(50))
	g.Expect(*config.Controllers.BackupBucket.ConcurrentSyncs).To(Equal(5))
	g.Expect(config.DNS.Zones).To(HaveExactElements("local.gardener.cloud"))
	g.Expect(*config.DNS.DefaultTTL).To(BeNumerically("==", 120))
	g.Expect(config.DNS.CoreDNS.Namespace).To(Equal("gardener-extension-provider-local-coredns"))
	g.Expect(config.DNS.CoreDNS.ConfirmTimeout.Duration).To(Equal(10 * time.Second))
	g.Expect(config.Server.HealthProbes.Port).To(Equal(8081))
	g.Expect(config.Backup.HostPath).To(Equal("/etc/gardener/local-backupbuckets"))
}

func TestDecodeRefuses(t *testing.T) {
	for name, test := range map[string]struct{ config, message string }{
		"a field that does not exist":           {minimal + "concurrency: 5\n", `unknown field "concurrency"`},
		"a nested field that does not exist":    {minimal + "backup: {path: /x}\n", `unknown field "backup.path"`},
		"a field that is there twice":           {minimal + "extensionClasses: [garden]\n", "already set"},
		"no class":                              {"apiVersion: config.local.provider.extensions.gardener.cloud/v1alpha1\nkind: ExtensionConfiguration\ndns: {coreDNS: {image: c}}\n", "extensionClasses: Required value: name the classes"},
		"an unknown class":                      {"apiVersion: config.local.provider.extensions.gardener.cloud/v1alpha1\nkind: ExtensionConfiguration\nextensionClasses: [gardn]\ndns: {coreDNS: {image: c}}\n", `extensionClasses[0]: Unsupported value: "gardn"`},
		"a class that is there twice":           {"apiVersion: config.local.provider.extensions.gardener.cloud/v1alpha1\nkind: ExtensionConfiguration\nextensionClasses: [garden, garden]\ndns: {coreDNS: {image: c}}\n", `extensionClasses[1]: Duplicate value: "garden"`},
		"another kind":                          {"apiVersion: v1\nkind: ConfigMap\n", "no kind"},
		"another version":                       {"apiVersion: config.local.provider.extensions.gardener.cloud/v1\nkind: ExtensionConfiguration\n", "no kind"},
		"no image for CoreDNS":                  {"apiVersion: config.local.provider.extensions.gardener.cloud/v1alpha1\nkind: ExtensionConfiguration\nextensionClasses: [garden]\n", "dns.coreDNS.image: Required value"},
		"a negative number of workers":          {minimal + "controllers: {extension: {concurrentSyncs: -1}}\n", "controllers.extension.concurrentSyncs: Invalid value"},
		"a port out of range":                   {minimal + "server: {metrics: {port: 70000}}\n", "server.metrics.port: Invalid value"},
		"one port for two servers":              {minimal + "server: {metrics: {port: 8081}}\n", "server.metrics.port: Duplicate value"},
		"one port, of all addresses and of one": {minimal + "server: {metrics: {port: 8081, bindAddress: 127.0.0.1}}\n", "server.metrics.port: Duplicate value"},
		"a lease that ends before its renewal":  {minimal + "leaderElection: {leaseDuration: 10s}\n", "leaderElection.leaseDuration: Invalid value: \"10s\": must be longer than renewDeadline (10s)"},
		"a renewal that is tried once":          {minimal + "leaderElection: {retryPeriod: 9s}\n", "leaderElection.leaseDuration: Invalid value"},
		"a burst without requests":              {minimal + "clientConnection: {burst: -1}\n", "clientConnection.burst: Invalid value"},
		"a bind address that is none":           {minimal + "server: {metrics: {bindAddress: here, port: 1}}\n", "server.metrics.bindAddress: Invalid value"},
		"a log level that is none":              {minimal + "logLevel: loud\n", "logLevel: Unsupported value"},
		"a log format that is none":             {minimal + "logFormat: xml\n", "logFormat: Unsupported value"},
		"a relative backup directory":           {minimal + "backup: {directory: backups}\n", "backup.directory: Invalid value"},
		"a backup directory with dots":          {minimal + "backup: {hostPath: /a/../b}\n", "backup.hostPath: Invalid value"},
		"the root as backup directory":          {minimal + "backup: {hostPath: /}\n", "backup.hostPath: Invalid value"},
		"more than YAML holds in one document":  {minimal + "---\nkind: x\nextensionClasses: 5\n", "more than one YAML document"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := decode(test.config)
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}

func TestDecodeRefusesBadDNS(t *testing.T) {
	head := "apiVersion: config.local.provider.extensions.gardener.cloud/v1alpha1\nkind: ExtensionConfiguration\nextensionClasses: [garden]\n"
	for name, test := range map[string]struct{ config, message string }{
		"a zone that is no domain":       {"dns: {zones: ['a b'], coreDNS: {image: c}}\n", "dns.zones[0]: Invalid value"},
		"a reserved domain that is none": {"dns: {reservedDomains: ['*.a'], coreDNS: {image: c}}\n", "dns.reservedDomains[0]: Invalid value"},
		"a TTL of nothing":               {"dns: {defaultTTL: 0, coreDNS: {image: c}}\n", "dns.defaultTTL: Invalid value"},
		"a namespace that is none":       {"dns: {coreDNS: {image: c, namespace: A}}\n", "dns.coreDNS.namespace: Invalid value"},
		"a domain that is none":          {"dns: {coreDNS: {image: c, clusterDomain: '-'}}\n", "dns.coreDNS.clusterDomain: Invalid value"},
		"an address that is none":        {"dns: {coreDNS: {image: c, clusterIP: ten}}\n", "dns.coreDNS.clusterIP: Invalid value"},
		"a network that is none":         {"dns: {coreDNS: {image: c, serviceNetwork: 10.0.0.1}}\n", "dns.coreDNS.serviceNetwork: Invalid value"},
		"a server without a port":        {"dns: {coreDNS: {image: c, servers: [127.0.0.1]}}\n", "dns.coreDNS.servers[0]: Invalid value"},
		"no replicas":                    {"dns: {coreDNS: {image: c, replicas: 0}}\n", "dns.coreDNS.replicas: Invalid value"},
		"a negative window":              {"dns: {coreDNS: {image: c, batchWindow: -1s}}\n", "dns.coreDNS.batchWindow: Invalid value"},
		"a provider that there is not":   {"dns: {provider: bind, coreDNS: {image: c}}\n", "dns.provider: Unsupported value"},
		"a server that is no host":       {"dns: {rfc2136: {server: 'a b'}, coreDNS: {image: c}}\n", "dns.rfc2136.server: Invalid value"},
		"a server with half a bracket":   {"dns: {rfc2136: {server: '[192.0.2.1'}, coreDNS: {image: c}}\n", "dns.rfc2136.server: Invalid value"},
		"a zone twice":                   {"dns: {zones: [a, b, a], coreDNS: {image: c}}\n", "dns.zones[2]: Duplicate value"},
		"a TTL that DNS can't hold":      {"dns: {defaultTTL: 2147483648, coreDNS: {image: c}}\n", "dns.defaultTTL: Invalid value"},
		"an allowed server that is none": {"dns: {rfc2136: {allowedServers: [192.0.2.0/24, ns.example.org]}, coreDNS: {image: c}}\n", "dns.rfc2136.allowedServers[1]: Invalid value"},
		"a client network that is none":  {"dns: {coreDNS: {image: c, clientNetworks: [10.0.0.1]}}\n", "dns.coreDNS.clientNetworks[0]: Invalid value"},
		"a server's zone that is none":   {"dns: {rfc2136: {zones: [a_b]}, coreDNS: {image: c}}\n", "dns.rfc2136.zones[0]: Invalid value"},
		"no time for a server":           {"dns: {rfc2136: {timeout: 0s}, coreDNS: {image: c}}\n", "dns.rfc2136.timeout: Invalid value"},
		"no time to wait until resolved": {"dns: {coreDNS: {image: c, confirmTimeout: 0s}}\n", "dns.coreDNS.confirmTimeout: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := decode(head + test.config)
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}

func TestDecodeFillsInDefaultsOfASeed(t *testing.T) {
	g := NewWithT(t)
	config, err := decode(minimal + "machines: {registryMirrors: [{upstream: quay.io, hosts: ['http://mirror:5001']}]}\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Server.Webhooks.Port).To(Equal(10443))
	g.Expect(*config.Webhooks.ServicePort).To(Equal(443))
	g.Expect(*config.Controllers.ControlPlane.ConcurrentSyncs).To(Equal(5))
	g.Expect(config.Controllers.HealthCheck.SyncPeriod.Duration).To(Equal(5 * time.Minute))
	g.Expect(config.Charts.Cache.Directory).To(Equal("/var/cache/provider-local/charts"))
	g.Expect(config.Charts.Cache.MaxBytes.String()).To(Equal("64Mi"))
	g.Expect(*config.ControlPlane.CloudController.Deploy).To(BeFalse())
	g.Expect(config.Nodes.Capacity.CPU.String()).To(Equal("100"))
	g.Expect(config.Nodes.Capacity.Memory.String()).To(Equal("100Gi"))
	g.Expect(config.Machines.RegistryMirrors[0].Server).To(Equal("https://quay.io"))
	g.Expect(config.Machines.Sizing).To(BeEquivalentTo("Exact"))
	g.Expect(config.Machines.GPUResourceName).To(BeEquivalentTo("nvidia.com/gpu"))
	g.Expect(*config.Controllers.Worker.ConcurrentSyncs).To(Equal(5))
}

func TestPoolsMayNotChooseMachinesWithoutLimitsUnlessTheOperatorHasThem(t *testing.T) {
	for config, want := range map[string][]localv1alpha1.MachineSizing{
		"":                               {"Exact", "Overcommit"},
		"machines: {sizing: Overcommit}": {"Exact", "Overcommit"},
		"machines: {sizing: Unlimited}":  {"Exact", "Overcommit", "Unlimited"},
		"machines: {allowedSizings: [Unlimited, Exact]}": {"Unlimited", "Exact"},
	} {
		t.Run(config, func(t *testing.T) {
			g := NewWithT(t)
			decoded, err := decode(minimal + config + "\n")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(decoded.Machines.AllowedSizings).To(Equal(want))
		})
	}
}

func TestDecodeRefusesWhatASeedCannotUse(t *testing.T) {
	for name, test := range map[string]struct{ config, message string }{
		"one port for webhooks and metrics":   {"server: {webhooks: {port: 8080}}", "server.webhooks.port: Duplicate value"},
		"a port of the Service out of range":  {"webhooks: {servicePort: 0}", "webhooks.servicePort: Invalid value"},
		"a webhook that there is not":         {"webhooks: {nodes: {disabled: true}}", `unknown field "webhooks.nodes"`},
		"health that is always looked at":     {"controllers: {healthCheck: {syncPeriod: 1ms}}", "controllers.healthCheck.syncPeriod: Invalid value"},
		"no worker for control planes":        {"controllers: {controlPlane: {concurrentSyncs: 0}}", "controllers.controlPlane.concurrentSyncs: Invalid value"},
		"a chart of no component":             {"charts: {sources: {istio: {ref: 'a.b/c:1'}}}", "charts.sources[istio]: Unsupported value"},
		"a chart without a tag or digest":     {"charts: {sources: {coredns: {ref: a.b/c}}}", "charts.sources[coredns].ref: Invalid value"},
		"a chart whose reference is none":     {"charts: {sources: {coredns: {ref: '../c:1'}}}", "charts.sources[coredns].ref: Invalid value"},
		"a mirror that is no host":            {"charts: {sources: {coredns: {ref: 'a.b/c:1', mirrors: ['http://x']}}}", "charts.sources[coredns].mirrors[0]: Invalid value"},
		"a Secret that can not be":            {"charts: {sources: {coredns: {ref: 'a.b/c:1', pullSecretRef: {name: A_B}}}}", "charts.sources[coredns].pullSecretRef.name: Invalid value"},
		"a cache at the root":                 {"charts: {cache: {directory: /}}", "charts.cache.directory: Invalid value"},
		"a cache without room":                {"charts: {cache: {maxBytes: 0}}", "charts.cache.maxBytes: Invalid value"},
		"cloud-controller without an image":   {"controlPlane: {cloudController: {deploy: true}}", "controlPlane.cloudController.image: Required value"},
		"a registry mirror without a host":    {"machines: {registryMirrors: [{upstream: quay.io}]}", "machines.registryMirrors[0].hosts: Required value"},
		"a registry mirror that is no URL":    {"machines: {registryMirrors: [{upstream: quay.io, hosts: [mirror]}]}", "machines.registryMirrors[0].hosts[0]: Invalid value"},
		"a registry mirror for a path":        {"machines: {registryMirrors: [{upstream: ../../etc, hosts: ['http://m']}]}", "machines.registryMirrors[0].upstream: Invalid value"},
		"a registry mirror for an address":    {"machines: {registryMirrors: [{upstream: '[fd00::1]:5000', hosts: ['http://m']}]}", "machines.registryMirrors[0].upstream: Invalid value"},
		"a registry mirror for nothing":       {"machines: {registryMirrors: [{upstream: '', hosts: ['http://m']}]}", "machines.registryMirrors[0].upstream: Invalid value"},
		"machines of no known size":           {"machines: {sizing: Large}", "machines.sizing: Unsupported value"},
		"GPUs that no node can have":          {"machines: {gpuResourceName: gpu}", "machines.gpuResourceName: Invalid value"},
		"a range of machines that is none":    {"machines: {egressCIDRs: [10.0.0.1]}", "machines.egressCIDRs[0]: Invalid value"},
		"a range of nodes that is none":       {"machines: {nodeCIDRs: ['::ffff:10.0.0.0/112']}", "machines.nodeCIDRs[0]: Invalid value"},
		"a range of servers that is none":     {"machines: {remote: {allowedCIDRs: [10.0.0.0]}}", "machines.remote.allowedCIDRs[0]: Invalid value"},
		"a size that nobody may choose":       {"machines: {sizing: Unlimited, allowedSizings: [Exact]}", "machines.sizing: Invalid value"},
		"a size to choose that there is not":  {"machines: {allowedSizings: [Exact, Large]}", "machines.allowedSizings[1]: Unsupported value"},
		"no worker for Workers":               {"controllers: {worker: {concurrentSyncs: 0}}", "controllers.worker.concurrentSyncs: Invalid value"},
		"Nodes without CPUs":                  {"nodes: {capacity: {cpu: 0}}", "nodes.capacity.cpu: Invalid value"},
		"Nodes with less memory than nothing": {"nodes: {capacity: {memory: -1Gi}}", "nodes.capacity.memory: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := decode(minimal + test.config + "\n")
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}

func TestDecodeKeepsWellKnownServicesThatAreNotOverridden(t *testing.T) {
	g := NewWithT(t)
	config, err := decode(minimal + "loadBalancers: {services: [{namespace: istio-ingress, name: istio-ingressgateway, addresses: [192.0.2.1]}]}\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.LoadBalancers.Services[0]).To(Equal(configv1alpha1.LoadBalancerService{Namespace: "istio-ingress", Name: "istio-ingressgateway", Addresses: []string{"192.0.2.1"}}))
	g.Expect(config.LoadBalancers.Services[1:]).To(And(
		HaveEach(HaveField("Namespace", Not(Equal("istio-ingress")))),
		ContainElement(And(HaveField("Namespace", "istio-ingress--1"), HaveField("NodePorts", HaveExactElements(configv1alpha1.LoadBalancerNodePort{Port: 443, NodePort: 30435})))),
	))
	g.Expect(config.LoadBalancers.ZoneAddresses).To(HaveKeyWithValue("2", HaveExactElements("172.18.255.12", "fd00:ff::12")))
	g.Expect(config.DNS.RFC2136.Zones).To(Equal(config.DNS.Zones))
}

func TestLoadBalancerDefaultsFollowTheNamespaceOfCoreDNS(t *testing.T) {
	g := NewWithT(t)
	config, err := decode(strings.Replace(minimal, "image: coredns", "image: coredns, namespace: names", 1))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.LoadBalancers.Services).To(ContainElement(And(
		HaveField("Namespace", "names"), HaveField("Name", "coredns-host"), HaveField("Addresses", HaveExactElements("172.18.255.53", "fd00:ff::53")))))
	g.Expect(config.LoadBalancers.Services).NotTo(ContainElement(HaveField("Namespace", configv1alpha1.DefaultCoreDNSNamespace)))
}

func TestThePoolByDefaultLeavesOutTheBroadcastAddressOfKind(t *testing.T) {
	g := NewWithT(t)
	config, err := decode(minimal)
	g.Expect(err).NotTo(HaveOccurred())
	pool, err := configv1alpha1.ParseAddressRange(config.LoadBalancers.Pools[0])
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(pool.Contains(netip.MustParseAddr("172.18.255.254"))).To(BeTrue())
	g.Expect(pool.Contains(netip.MustParseAddr("172.18.255.255"))).To(BeFalse())
}

func TestDecodeRefusesAddressesThatNobodyCanHave(t *testing.T) {
	row := func(more string) string {
		return "loadBalancers: {services: [{namespace: some, name: s, " + more + "}]}"
	}
	for name, test := range map[string]struct{ config, message string }{
		"an address of the host that is none": {"loadBalancers: {hostAddresses: [here]}", "loadBalancers.hostAddresses[0]: Invalid value"},
		"two addresses of one family":         {"loadBalancers: {zoneAddresses: {a: [192.0.2.1, 192.0.2.2]}}", "loadBalancers.zoneAddresses[a][1]: Invalid value"},
		"a pool that is no range":             {"loadBalancers: {pools: [many]}", "loadBalancers.pools[0]: Invalid value"},
		"a pool from behind":                  {"loadBalancers: {pools: [192.0.2.9-192.0.2.1]}", "loadBalancers.pools[0]: Invalid value"},
		"a pool of two families":              {"loadBalancers: {pools: ['192.0.2.9-2001:db8::1']}", "loadBalancers.pools[0]: Invalid value"},
		"a pool of IPv4 in IPv6":              {"loadBalancers: {pools: ['::ffff:192.0.2.0/120']}", "loadBalancers.pools[0]: Invalid value"},
		"a pool in a zone":                    {"loadBalancers: {pools: ['fe80::1%eth0-fe80::9%eth0']}", "loadBalancers.pools[0]: Invalid value"},
		"a Service twice":                     {"loadBalancers: {services: [{namespace: some, name: s}, {namespace: some, name: s}]}", "loadBalancers.services[1]: Duplicate value"},
		"a mode that there is not":            {row("ipMode: NAT"), "loadBalancers.services[0].ipMode: Unsupported value"},
		"a node port that is none":            {row("nodePorts: [{port: 443, nodePort: 70000}]"), "loadBalancers.services[0].nodePorts[0].nodePort: Invalid value"},
		"a node port twice":                   {row("nodePorts: [{port: 443, nodePort: 30000}, {port: 80, nodePort: 30000}]"), "loadBalancers.services[0].nodePorts[1].nodePort: Duplicate value"},
		"two node ports for one port":         {row("nodePorts: [{port: 443, nodePort: 30000}, {port: 443, nodePort: 30001}]"), "loadBalancers.services[0].nodePorts[1].port: Duplicate value"},
		"a namespace that is none":            {"ingress: {gateways: [{namespace: A, name: s}]}", "ingress.gateways[0].namespace: Invalid value"},
		"no worker for Services":              {"controllers: {service: {concurrentSyncs: 0}}", "controllers.service.concurrentSyncs: Invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := decode(minimal + test.config + "\n")
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}

func TestParseAddressRange(t *testing.T) {
	for value, want := range map[string][2]string{
		"192.0.2.128/25":             {"192.0.2.128", "192.0.2.255"},
		"192.0.2.130/25":             {"192.0.2.128", "192.0.2.255"},
		"192.0.2.1/32":               {"192.0.2.1", "192.0.2.1"},
		"192.0.2.5-192.0.2.7":        {"192.0.2.5", "192.0.2.7"},
		"2001:db8::1:0/120":          {"2001:db8::1:0", "2001:db8::1:ff"},
		"2001:db8::1-2001:db8::ffff": {"2001:db8::1", "2001:db8::ffff"},
	} {
		t.Run(value, func(t *testing.T) {
			g := NewWithT(t)
			got, err := configv1alpha1.ParseAddressRange(value)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect([2]string{got.From().String(), got.To().String()}).To(Equal(want))
			g.Expect(got.Contains(got.From()) && got.Contains(got.To())).To(BeTrue())
			g.Expect(got.Contains(got.From().Prev()) || got.Contains(got.To().Next())).To(BeFalse())
		})
	}
}

func TestARangeIsAsFewPrefixesAsThereCanBe(t *testing.T) {
	for value, expected := range map[string][]string{
		"10.0.0.0-10.0.0.0":               {"10.0.0.0/32"},
		"10.0.0.1-10.0.0.6":               {"10.0.0.1/32", "10.0.0.2/31", "10.0.0.4/31", "10.0.0.6/32"},
		"172.18.255.128-172.18.255.254":   {"172.18.255.128/26", "172.18.255.192/27", "172.18.255.224/28", "172.18.255.240/29", "172.18.255.248/30", "172.18.255.252/31", "172.18.255.254/32"},
		"0.0.0.0-255.255.255.255":         {"0.0.0.0/0"},
		"255.255.255.254-255.255.255.255": {"255.255.255.254/31"},
		"fd00::-fd00::1:ffff":             {"fd00::/111"},
	} {
		t.Run(value, func(t *testing.T) {
			g := NewWithT(t)
			parsed, err := configv1alpha1.ParseAddressRange(value)
			g.Expect(err).NotTo(HaveOccurred())
			var found []string
			for _, prefix := range parsed.Prefixes() {
				found = append(found, prefix.String())
			}
			g.Expect(found).To(Equal(expected))
		})
	}
}

func TestDecodeAcceptsHostsOfRegistries(t *testing.T) {
	for _, host := range []string{"quay.io", "registry.local.gardener.cloud:5001", "localhost:5000", "127.0.0.1:5001"} {
		t.Run(host, func(t *testing.T) {
			g := NewWithT(t)
			_, err := decode(minimal + "machines: {registryMirrors: [{upstream: " + host + ", server: 'http://s', hosts: ['http://m']}]}\n")
			g.Expect(err).NotTo(HaveOccurred())
		})
	}
}

func TestLoadNamesTheFile(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "config.yaml")

	config := &configv1alpha1.ExtensionConfiguration{}
	g.Expect(configv1alpha1.Load(path, config)).To(MatchError(ContainSubstring(path)))

	g.Expect(os.WriteFile(path, []byte(minimal+"x: y\n"), 0o600)).To(Succeed())
	g.Expect(configv1alpha1.Load(path, config)).To(MatchError(And(ContainSubstring(path), ContainSubstring(`unknown field "x"`))))

	g.Expect(os.WriteFile(path, []byte(minimal), 0o600)).To(Succeed())
	config = &configv1alpha1.ExtensionConfiguration{}
	g.Expect(configv1alpha1.Load(path, config)).To(Succeed())
	g.Expect(config.ExtensionClasses).NotTo(BeEmpty())
}
