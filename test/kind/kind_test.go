// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

//go:build kind

package kind_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/kind"
)

// state is what `make kind-up` changes on a machine, and `make kind-down` takes back.
const state = `exec 2>&1
ip -o link | sed -E 's/^[0-9]+: ([^@:]+).*/\1/'
ip -o address show dev lo
{ ip -4 route show table all; ip -6 route show table all; } | sed -E '/fe80|ff00/d; s/ (linkdown )?$//'
for tool in iptables ip6tables; do $tool-save | sed -e '/^#/d' -e 's/\[[0-9:]*\]//' | sort; done
$ENGINE ps --all --format '{{.Names}}'; $ENGINE network ls --format '{{.Name}}'; $ENGINE volume ls --quiet
sysctl fs.inotify.max_user_instances
ls -d .kind || true
cat /etc/hosts`

// machine is the namespaces of Docker, in the repository's folder.
type machine struct {
	*testing.T
	docker *kind.Docker
	root   string
	env    []string
}

// run runs a line of shell on the machine and returns what it prints.
func (m machine) run(line string) string {
	m.Helper()
	out, err := m.try(line)
	NewWithT(m).Expect(err).NotTo(HaveOccurred(), "%s\n%s", line, out)
	return out
}

// try does so, and returns the error.
func (m machine) try(line string) (string, error) {
	begin := time.Now()
	// Cleaning up, the context of the test is over.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(m.Context()), time.Hour)
	defer cancel()
	// Another mount namespace has another folder to begin in.
	cmd := m.docker.Command(ctx, "bash", "-euo", "pipefail", "-c", `cd "$0"; `+line, m.root)
	cmd.Env = append(cmd.Env, m.env...)
	out, err := cmd.CombinedOutput()
	if strings.Contains(line, "make") {
		m.Logf("%s (%.0f s)\n%s", line, time.Since(begin).Seconds(), out)
	}
	return strings.TrimSpace(string(out)), err
}

// state returns what the constant of that name prints, by lines.
func (m machine) state() []string {
	m.Helper()
	return strings.Split(m.run(state), "\n")
}

// get asks an address for a path by HTTP, as programs on the machine do.
func (m machine) get(address, path string) func() (string, error) {
	host, port, _ := net.SplitHostPort(address)
	return func() (string, error) {
		return m.try(fmt.Sprintf(`timeout 5 bash -c "exec 3<>/dev/tcp/%s/%s; printf 'GET %s HTTP/1.0\r\n\r\n' >&3; cat <&3"`, host, port, path))
	}
}

// newMachine starts Docker, which is to have images for nodes and registry.
func newMachine(t *testing.T) machine {
	t.Helper()
	return newMachineWith(t, func(*kind.Docker) {})
}

// newMachineWith does so with a Docker that is set up differently.
func newMachineWith(t *testing.T, change func(*kind.Docker)) machine {
	t.Helper()
	g := NewWithT(t)
	root, err := filepath.Abs("../..")
	g.Expect(err).NotTo(HaveOccurred())
	folder, programs := filepath.Join(root, "bin", "kind"), filepath.Join(root, "bin", "landscape")
	docker := &kind.Docker{Folder: filepath.Join(folder, "docker"), Runtime: filepath.Join(folder, "caps")}
	change(docker)
	m := machine{T: t, docker: docker, root: root, env: []string{
		"ENGINE=" + docker.Program(),
		"PATH=" + programs + ":" + os.Getenv("PATH"), "KUBECONFIG=" + filepath.Join(root, ".kind", "kubeconfig"),
	}}
	t.Cleanup(func() { NewWithT(t).Expect(docker.Stop()).To(Succeed()) })
	g.Expect(docker.Start(t.Context())).To(Succeed())
	if docker.Podman {
		m.env = append(m.env, "CONTAINER_ENGINE=podman")
	}
	if m.run("$ENGINE ps --all --quiet") != "" {
		m.run("make kind-down # what a run left that was killed")
	}
	g.Expect(filepath.Join(root, ".kind")).NotTo(BeADirectory(), "this clone has a cluster of another Docker: 'make kind-down' first")

	begin := time.Now()
	builder, err := kind.NewBuilder(t.Context(), root, docker)
	g.Expect(err).NotTo(HaveOccurred())
	builder.Report = t.Logf
	images, err := builder.Images(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	builder.Bin = folder
	probe, err := builder.Program(t.Context(), "probe", "/usr/local/bin/probe")
	g.Expect(err).NotTo(HaveOccurred())
	t.Logf("images are there (%.0f s)", time.Since(begin).Seconds())
	m.env = append(m.env, "KIND_NODE_IMAGE="+images.Node, "REGISTRY_IMAGE="+images.Registry, "CACHE_IMAGE="+images.Cache, "PROBE_IMAGE="+probe)
	t.Cleanup(func() { _, _ = m.try("[ ! -e .kind ] || make kind-down") })
	return m
}

// standIns has the cluster run the landscape's images in place of published ones, also those of further minor versions of Kubernetes.
func (m *machine) standIns(versions ...string) {
	m.Helper()
	m.run("landscape stand-ins " + strings.Join(versions, " ") + " # which make built")
	for _, node := range strings.Fields(m.run("kubectl get nodes -o jsonpath={.items[*].metadata.name}")) {
		m.statusController(node)
	}
	m.run("docker pull --quiet 127.0.0.1:5001/real/machine:latest")
	m.env = append(m.env, "MACHINE_IMAGE=127.0.0.1:5001/real/machine:latest")
}

// statusController starts it on a node, whose folders are the volumes of pods there.
func (m machine) statusController(node string) {
	m.Helper()
	m.run(fmt.Sprintf(`docker cp bin/landscape/landscape %[1]s:/usr/local/bin/
docker exec gardener-local-control-plane cat /etc/kubernetes/admin.conf | docker exec --interactive %[1]s cp /dev/stdin /kind/admin.conf
docker exec --detach %[1]s landscape status-controller --kubeconfig /kind/admin.conf --volumes /var/volumes --node %[1]s`, node))
}

// writeAuditLog has the cluster's API server write the log that test/e2e/audit reads, as that of the bare landscape does.
func (m machine) writeAuditLog() {
	m.Helper()
	m.run(`node=gardener-local-control-plane
docker exec --interactive $node sh -euc 'mkdir /var/log/audit; cat >/var/log/audit/policy.yaml' <test/landscape/internal/node/files/audit-policy.yaml
docker exec --interactive $node sh -euc 'cd /etc/kubernetes
kubectl patch --local --filename manifests/kube-apiserver.yaml --type json --patch-file /dev/stdin --output yaml >kube-apiserver.yaml
mv kube-apiserver.yaml manifests/' <test/kind/audit.json
ln -s "$(docker inspect --format '{{range .Mounts}}{{if eq .Destination "/var"}}{{.Source}}{{end}}{{end}}' $node)/log/audit" .kind/audit
timeout 120 sh -c 'until [ -e .kind/audit/audit.log ] && kubectl get --raw /readyz >/dev/null 2>&1; do sleep 1; done'`)
}

// runAgent runs test/probe in the cluster, which is reached like the gateway of a seed.
func (m machine) runAgent() {
	m.Helper()
	m.run("$ENGINE tag $PROBE_IMAGE 127.0.0.1:5001/probe:test && $ENGINE push --quiet 127.0.0.1:5001/probe:test")
	m.run("kubectl apply -f test/kind/agent.yaml && kubectl wait pod agent --for condition=Ready --timeout 2m")
}

// TestGardenInstance deploys gardener-operator, the extension and a Garden, and ends as soon as the garden's instance serves its
// first DNSRecords.
func TestGardenInstance(t *testing.T) {
	m := newMachine(t)
	g := NewWithT(t)
	before := m.state()
	m.run("REGISTRY_IMAGE=$CACHE_IMAGE make kind-up # with the registry that users have")
	m.run("$ENGINE tag $PROBE_IMAGE 127.0.0.1:5001/probe:test && $ENGINE push --quiet 127.0.0.1:5001/probe:test")
	m.run("$ENGINE rm --force --volumes provider-local-registry && make kind-up # the landscape's has images in the name of others")
	m.standIns()
	m.run("make gardener-up UNTIL=deploy")
	m.runAgent()
	g.Eventually(m.get("172.18.255.1:443", "/resolve?name=api.virtual-garden.local.gardener.cloud")).WithTimeout(4*time.Minute).WithPolling(2*time.Second).
		Should(ContainSubstring(`{"addresses":["10.2.`), "pods ask the cluster's name server, which asks the extension's for the gateway's Service")
	m.run("make kind-down")
	g.Expect(m.state()).To(ConsistOf(before))
}

// TestGardener brings a Garden, a Seed and the example Shoots up, with the landscape's images in place of published ones.
func TestGardener(t *testing.T) {
	m := newMachine(t)
	g := NewWithT(t)
	before := m.state()
	m.run("make kind-up")
	m.writeAuditLog()
	m.standIns()
	m.run("make gardener-up UNTIL=garden")
	g.Expect(m.run("kubectl get garden local -o jsonpath={.status.lastOperation.state}")).To(Equal("Succeeded"))
	g.Eventually(func() error { _, err := m.try("make status"); return err }).WithTimeout(2*time.Minute).WithPolling(10*time.Second).
		Should(Succeed(), "the Extension is installed once the Garden has succeeded")

	g.Expect(m.run("kubectl -n virtual-garden-istio-ingress get service istio-ingressgateway -o jsonpath='{.status.loadBalancer.ingress[*].ip} {.spec.ports[*].nodePort}'")).
		To(Equal("172.18.255.3 31433"), "the garden instance gives them")
	m.run("make dns-setup")
	g.Expect(m.run(`kubectl -n garden get secret gardener -o jsonpath={.data.kubeconfig} | base64 -d >.kind/virtual-garden.kubeconfig
kubectl --kubeconfig .kind/virtual-garden.kubeconfig get namespaces -o name`)).To(ContainSubstring("namespace/garden"), "the machine reaches the virtual garden")

	// The suite of the garden writes objects that the instance of a seed would take for its own, as .ci/run says.
	g.Expect(m.run("make e2e TARGET=kind LABELS=garden")).NotTo(ContainSubstring("Suite skipped"))

	m.run("make gardener-up")
	m.run("kubectl --kubeconfig .kind/shoots/local.kubeconfig wait node --all --for condition=Ready --timeout 1m")
	g.Expect(m.run("make e2e TARGET=kind LABELS='examples && !asleep || audit'")).NotTo(ContainSubstring("Suite skipped"))

	m.run("make kind-down")
	g.Expect(m.state()).To(ConsistOf(before))
}

func TestKindUpAndDown(t *testing.T) {
	upAndDown(t, newMachine(t))
}

// upAndDown makes and deletes clusters of all kinds.
func upAndDown(t *testing.T, m machine) {
	t.Helper()
	// run runs a part of the test, without which the next ones make no sense.
	run := func(name string, part func(Gomega, machine)) {
		ok := t.Run(name, func(t *testing.T) {
			m := m
			m.T = t
			part(NewWithT(t), m)
		})
		if !ok {
			t.FailNow()
		}
	}

	for _, test := range []struct{ name, make, take, says string }{
		{"a network that overlaps", "$ENGINE network create --subnet 172.18.0.0/16 shop", "$ENGINE network rm shop", "the network shop of " + m.docker.Program() + " has 172.18.0.0/16"},
		{"a route", "ip link add pl0 type bridge; ip address add 172.18.255.1/32 dev pl0; ip link set pl0 up", "ip link delete pl0", "take it down, a landscape with 'make down'"},
		{"a container with the registry's port", "$ENGINE run --detach --name kind-registry --publish 127.0.0.1:5001:5001 $REGISTRY_IMAGE", "$ENGINE rm --force kind-registry", "the container kind-registry has port 5001"},
	} {
		run("refuses "+test.name, func(g Gomega, m machine) {
			m.run(test.make)
			with := m.state()
			out, err := m.try("make kind-up")
			g.Expect(err).To(HaveOccurred())
			g.Expect(out).To(ContainSubstring(test.says))
			g.Expect(m.state()).To(ConsistOf(with), "nothing was made")
			m.run(test.take)
		})
	}

	before := m.state()
	run("single", func(g Gomega, m machine) {
		m.run("make kind-up")
		m.run("kubectl wait node --all --for condition=Ready --timeout 2m")
		g.Expect(m.run("kubectl get nodes -o jsonpath={.items[*].status.capacity.pods}")).To(Equal("250"))

		m.run(`version=$(kubectl -n kube-system get deployment coredns -o jsonpath='{..image}')
sed "s/VERSION/${version##*:}/" test/kind/nameserver.yaml | kubectl apply -f -
kubectl wait pod coredns --for condition=Ready --timeout 2m || { kubectl describe pods; exit 1; }`)
		m.runAgent()
		for _, address := range []string{"172.18.255.1:443", "172.18.255.130:80"} {
			g.Eventually(m.get(address, "/resolve?name=kubernetes.default.svc.cluster.local")).WithTimeout(time.Minute).Should(ContainSubstring(`["10.2.0.1"]`), address)
		}
		g.Eventually(m.get("172.18.255.1:443", "/resolve?name=api.virtual-garden.local.gardener.cloud")).WithTimeout(2*time.Minute).
			Should(ContainSubstring(`["192.0.2.7"]`), "the extension's name server is asked")
		g.Eventually(m.get("172.18.255.1:443", "/resolve?name=registry.local.gardener.cloud")).WithTimeout(time.Minute).
			Should(ContainSubstring("172.18.254.1"), "as machines do")
	})

	run("mends what was stopped", func(g Gomega, m machine) {
		up := m.state()
		m.run("make kind-up")
		g.Expect(m.state()).To(ConsistOf(up), "there was nothing to do")
		m.run("$ENGINE stop --time 1 gardener-local-control-plane provider-local-registry")
		m.run("make kind-up")
		g.Eventually(m.get("172.18.255.130:80", "/resolve?name=api.virtual-garden.local.gardener.cloud")).WithTimeout(3 * time.Minute).Should(ContainSubstring(`["192.0.2.7"]`))
		m.run("$ENGINE pull --quiet 127.0.0.1:5001/probe:test")
		m.run("make kind-down")
		g.Expect(m.state()).To(ConsistOf(before))
	})

	run("without IPv6, interrupted and repeated", func(g Gomega, m machine) {
		m.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1")
		before := m.state()
		m.run(`set -m
make kind-up >/dev/null 2>&1 &
until $ENGINE inspect gardener-local-control-plane >/dev/null 2>&1; do sleep 0.2; done
kill -KILL -- -$!`)
		g.Expect(m.run("make kind-up")).To(ContainSubstring("made by half"))
		m.run("kubectl wait node --all --for condition=Ready --timeout 2m")
		m.run("make kind-down")
		g.Expect(m.state()).To(ConsistOf(before))
		m.run("sysctl -qw net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0")
	})

	for _, cluster := range []string{"dual-stack", "ipv6", "zones", "nodes"} {
		run(cluster, func(g Gomega, m machine) {
			before := m.state()
			m.run("make kind-up KIND_CLUSTER=" + cluster)
			m.run("kubectl wait node --all --for condition=Ready --timeout 5m")
			m.run("kubectl -n kube-system rollout status deployment coredns --timeout 3m")
			m.run("make kind-down")
			g.Expect(m.state()).To(ConsistOf(before))
		})
	}
}
