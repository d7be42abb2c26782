// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// stub is a program of the name by which it is called: it writes its arguments down and does what a container engine, kind
// and ip do as far as the scripts look at it. What runs is a file in the folder $STATE.
const stub = `#!/bin/bash
me=${0##*/}
echo "$me $*" >>"$STATE/calls"
last=${!#}
case "$me $*" in
docker\ --version) cat "$STATE/version" 2>/dev/null ;;
docker\ info* | podman\ info*)
  [[ ! -e $STATE/asleep ]] || exit 1
  case "$*" in
  *Rootless*) cat "$STATE/rootless" 2>/dev/null || echo false ;;
  *SecurityOptions*) cat "$STATE/rootless" 2>/dev/null || echo "[name=seccomp,profile=default name=cgroupns]" ;;
  *ServiceIsRemote*) [[ -e $STATE/remote ]] && echo true || echo false ;;
  *) echo '{"CgroupVersion":"2"}' ;;
  esac
  ;;
*" network ls "*) [[ ! -e $STATE/ranges ]] || sed "s/ .*//" "$STATE/ranges" ;;
*" network inspect --format {{.Name}}"*) cat "$STATE/ranges" ;;
*" network inspect kind")
  [[ -e $STATE/network ]] || exit 1
  [[ ! -e $STATE/network6 ]] || echo '[{"Subnet": "fd00:10::/64"}]'
  ;;
*" network inspect --format "*) [[ -e $STATE/network ]] && cat "$STATE/network" ;;
*" network create "*)
  if [[ "$*" == *--ipv6* ]]; then
    [[ $me == podman || ! -e $STATE/ipv6-off ]] || { echo "Cannot read IPv6 setup for bridge" >&2; exit 1; }
    : >"$STATE/network6"
  fi
  echo true >"$STATE/network"
  ;;
*" network rm "*) rm -f "$STATE/network" "$STATE/network6" ;;
*" inspect --format {{.State.Running}} "*) [[ -e $STATE/container-$last ]] && cat "$STATE/container-$last" ;;
*" inspect --format {{range "*) echo 172.18.0.2 && sleep 0.1 && echo ;; # podman prints lines one by one
*" inspect --format {{(index "*) echo 172.18.0.2 ;;
*" container inspect "*) [[ -e $STATE/container-$last ]] ;;
docker\ ps\ * | podman\ ps\ *) [[ ! -e $STATE/ports ]] || cat "$STATE/ports" ;;
docker\ start\ * | podman\ start\ *) [[ -e $STATE/container-$2 && ! -e $STATE/broken ]] && echo true >"$STATE/container-$2" ;;
docker\ run\ * | podman\ run\ *)
  echo false >"$STATE/container-$4"
  [[ ! -e $STATE/no-registry ]] || { echo "no such image" >&2; exit 125; }
  echo true >"$STATE/container-$4"
  ;;
docker\ volume\ ls\ * | podman\ volume\ ls\ *) cat "$STATE/volumes" 2>/dev/null ;;
docker\ volume\ inspect\ * | podman\ volume\ inspect\ *) grep -qxsF "$last" "$STATE/volumes" ;;
docker\ volume\ create\ * | podman\ volume\ create\ *) echo "$last" >>"$STATE/volumes" ;;
docker\ volume\ rm\ * | podman\ volume\ rm\ *) rm "$STATE/volumes" ;;
docker\ logs\ *) echo "Reached target Multi-User System." ;; # kind waits for it: it starts nodes at once, and ends with the first that fails
docker\ rm\ * | podman\ rm\ *) rm -f "$STATE/container-$last" ;;
*" get configmap coredns "*) cat "$STATE/corefile" 2>/dev/null || printf '.:53 {\n    errors\n}\n' ;;
*" get --raw /readyz") # It takes a moment after the start of a node.
  [[ $(grep -c readyz "$STATE/calls") -gt 1 ]] ;;
*" patch configmap coredns "*) cat >"$STATE/corefile" ;;
*" uname -m") echo aarch64 ;;
go\ build\ -o\ *) echo "for ${GOOS:-here} ${GOARCH:-}" >>"$STATE/calls" && cp "$0" "$3" ;;
forward\ *) echo "172.18.255.3" >>"$last" && while sleep 0.2; do :; done ;;
*" exec --interactive "*) cat >>"$STATE/hosts.toml" ;;
sysctl\ -n\ net.ipv6*) [[ -e $STATE/ipv6-off ]] && echo 1 || echo 0 ;;
*"sysctl -n "*) cat "$STATE/inotify" 2>/dev/null || echo 128 ;;
*"sysctl -qw "*) echo "${last#*=}" >"$STATE/inotify" ;;
ss\ *) [[ ! -e $STATE/listeners ]] || cat "$STATE/listeners" ;;
ip\ *\ route\ show\ *) [[ ! -e $STATE/routes ]] || cat "$STATE/routes" ;;
ip\ -o\ address\ show\ to\ 172.18.0.1) [[ -e $STATE/remote ]] || echo "7: br-kind inet 172.18.0.1/16" ;;
ip\ *\ address\ show\ *) [[ ! -e $STATE/lo ]] || grep "^$last$" "$STATE/lo" || true ;;
ip\ *\ address\ add\ *) echo "$4" >>"$STATE/lo" ;;
kind\ get\ clusters) cat "$STATE/clusters" 2>/dev/null || echo "No kind clusters found." >&2 ;;
kind\ get\ nodes*) cd "$STATE" && ls "container-$4"-* | sed s/container-// ;;
kind\ create\ *)
  name=$(sed -n "s/^name: //p" "$4")
  echo "$name" >>"$STATE/clusters"
  cp "$4" "$STATE/config.yaml"
  grep -c -- "- role" "$4" | xargs seq 1 | sed "s/^1$/control-plane/; s/^\\([0-9]\\)/worker\\1/" | while read -r node; do echo true >"$STATE/container-$name-$node"; done
  echo "in $PWD with $KUBECONFIG" >>"$STATE/calls"
  [[ ! -e $STATE/interrupted ]]
  ;;
kind\ delete\ *)
  sed -i "/^$4$/d" "$STATE/clusters"
  rm -f "$STATE/container-$4"-*
  ;;
*" get kubeconfig "*) echo internal ;;
esac
`

// machine is one with stubs for programs, and a copy of the scripts.
type machine struct {
	t                *testing.T
	root, bin, state string
	env              []string
}

func newMachine(t *testing.T, programs ...string) *machine {
	t.Helper()
	g := NewWithT(t)
	m := &machine{t: t, root: t.TempDir(), bin: t.TempDir(), state: t.TempDir()}
	folder := filepath.Join(m.root, "skaffold", "kind")
	g.Expect(os.CopyFS(folder, os.DirFS("."))).To(Succeed())
	for _, script := range []string{"cluster", "loadbalancers"} {
		g.Expect(os.Chmod(filepath.Join(folder, script), 0o700)).To(Succeed()) // #nosec G302 -- a script
	}
	for _, program := range append(programs, "go", "ip", "ifconfig", "ss", "sudo", "sysctl") {
		g.Expect(os.WriteFile(filepath.Join(m.bin, program), []byte(stub), 0o700)).To(Succeed()) // #nosec G306 -- a script
	}
	g.Expect(os.WriteFile(filepath.Join(m.bin, "sudo"), []byte("#!/bin/bash\nshift\nexec \"$@\"\n"), 0o700)).To(Succeed()) // #nosec G306 -- a script
	// What there is on every machine, and nothing that runs containers.
	for _, program := range []string{"awk", "bash", "cat", "cp", "dirname", "env", "grep", "ls", "mkdir", "nohup", "ps", "rm", "sed", "seq", "sh", "sleep", "uname", "xargs"} {
		path, err := exec.LookPath(program)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.Symlink(path, filepath.Join(m.bin, program))).To(Succeed())
	}
	m.env = []string{"PATH=" + m.bin, "STATE=" + m.state, "HOME=" + m.root}
	return m
}

// write and read write and read what the stubs know.
func (m *machine) write(name, content string) {
	m.t.Helper()
	NewWithT(m.t).Expect(os.WriteFile(filepath.Join(m.state, name), []byte(content), 0o600)).To(Succeed())
}

func (m *machine) read(name string) string {
	m.t.Helper()
	content, err := os.ReadFile(filepath.Join(m.state, name))
	NewWithT(m.t).Expect(err).NotTo(HaveOccurred())
	return string(content)
}

// call calls the script, and returns what it prints and what it called meanwhile.
func (m *machine) call(args ...string) (out string, calls []string, err error) {
	m.t.Helper()
	log := filepath.Join(m.state, "calls")
	NewWithT(m.t).Expect(os.WriteFile(log, nil, 0o600)).To(Succeed())
	cmd := exec.CommandContext(m.t.Context(), filepath.Join(m.root, "skaffold", "kind", "cluster"), args...) // #nosec G204 -- the script
	cmd.Env, cmd.Dir = m.env, m.root
	printed, err := cmd.CombinedOutput()
	content, readErr := os.ReadFile(log) // #nosec G304 -- just written
	NewWithT(m.t).Expect(readErr).NotTo(HaveOccurred())
	return string(printed), strings.Split(strings.TrimSpace(string(content)), "\n"), err
}

// corefile is the patch that has the name server of a cluster ask another one. Its address and that of the registry are missing here.
const corefile = `data:
  Corefile: |
    .:53 {
        errors
    }
    registry.local.gardener.cloud:53 {
        errors
        hosts {
            %s registry.local.gardener.cloud
        }
    }
    local.gardener.cloud:53 {
        errors
        forward . %s
        cache 5 {
            disable denial
        }
    }
`

func TestUpMakesAllAndDownTakesAllAway(t *testing.T) {
	for kind, expected := range map[string]struct {
		config               string
		nodes                int
		pools, addresses     []string
		registry, nameServer string
	}{
		"single":     {"skaffold/kind/cluster.yaml", 1, []string{"172.18.255.128/25"}, []string{"172.18.255.53/32"}, "172.18.254.1", "10.2.0.53"},
		"nodes":      {".kind/nodes.yaml", 4, []string{"172.18.255.128/25"}, []string{"172.18.255.1/32"}, "172.18.254.1", "10.2.0.53"},
		"zones":      {"skaffold/kind/cluster-zones.yaml", 4, []string{"172.18.255.128/25"}, []string{"172.18.255.12/32"}, "172.18.254.1", "10.2.0.53"},
		"ipv6":       {"skaffold/kind/cluster-ipv6.yaml", 1, []string{"fd00:ff::1:0/120"}, []string{"fd00:ff::53/128"}, "fd00:10::fe01", "fd00:10:2::35"},
		"dual-stack": {"skaffold/kind/cluster-dual-stack.yaml", 1, []string{"172.18.255.128/25", "fd00:ff::1:0/120"}, []string{"172.18.255.1/32", "fd00:ff::1/128"}, "172.18.254.1", "fd00:10:2::35"},
	} {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)
			m := newMachine(t, "docker", "kind")
			out, calls, err := m.call("up", "--cluster", kind)
			g.Expect(err).NotTo(HaveOccurred(), out)
			g.Expect(calls).To(ContainElements(
				"kind create cluster --config "+filepath.Join(m.root, expected.config)+" --wait 5m",
				"in "+m.root+" with "+filepath.Join(m.root, ".kind", "kubeconfig"),
				MatchRegexp("^docker network create --driver bridge --label provider-local-registry=true --subnet 172.18.0.0/16 .*--ipv6 --subnet fd00:10::/64"),
				MatchRegexp("docker run .*--network kind --ip 172.18.254.1 --ip6 fd00:10::fe01 --env REGISTRY_HTTP_DEBUG_ADDR= --network-alias registry.local.gardener.cloud --publish 127.0.0.1:5001:5001 .*registry:3$")))
			g.Expect(slices.IndexFunc(calls, func(call string) bool { return strings.HasPrefix(call, "ip ") })).To(
				BeNumerically("<", slices.IndexFunc(calls, func(call string) bool { return strings.HasPrefix(call, "kind create") })), "Docker listens on the addresses")
			for _, address := range expected.addresses {
				g.Expect(calls).To(ContainElement(MatchRegexp("^ip -[46] address add " + address + " dev lo$")))
			}
			for _, pool := range expected.pools {
				g.Expect(calls).To(ContainElement(MatchRegexp("^docker exec gardener-local-control-plane ip -[46] route replace local " + pool + " dev lo$")))
			}
			toml, err := os.ReadFile(filepath.Join(m.state, "hosts.toml"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(strings.Count(string(toml), `[host."http://registry.local.gardener.cloud:5001"]`)).To(Equal(expected.nodes))
			g.Expect(m.read("corefile")).To(Equal(fmt.Sprintf(corefile, expected.registry, expected.nameServer)))
			skaffold, err := os.ReadFile("../skaffold.yaml")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(skaffold)).To(MatchRegexp(`coreDNS.clusterIP\n    value: "?`+expected.nameServer+`"?\n`), "the extension's name server has the address")
			g.Expect(m.read("inotify")).To(Equal("8192\n"))
			g.Expect(out).To(HaveSuffix("make gardener-up\n"))

			g.Expect(os.WriteFile(filepath.Join(m.state, "container-gardener-local-control-plane"), []byte("false"), 0o600)).To(Succeed())
			out, calls, err = m.call("up", "--cluster", kind)
			g.Expect(err).NotTo(HaveOccurred(), out)
			g.Expect(calls).To(ContainElement("docker start gardener-local-control-plane"), "it was restarted meanwhile")
			g.Expect(calls).To(ContainElement("docker exec gardener-local-control-plane kubectl get --raw /readyz"), "its API server takes a while")
			g.Expect(calls).NotTo(ContainElement(MatchRegexp("kind create|network create|docker run|address add|patch|sysctl -qw")), "the rest is there")

			other := "zones"
			if kind == other {
				other = "single"
			}
			out, calls, err = m.call("up", "--cluster", other)
			g.Expect(err).To(HaveOccurred())
			g.Expect(out).To(ContainSubstring("the cluster gardener-local is " + kind + ", not " + other + ": 'make kind-down' deletes it"))
			g.Expect(calls).NotTo(ContainElement(MatchRegexp("create|delete|docker run|address add|sysctl -qw")))

			out, calls, err = m.call("down")
			g.Expect(err).NotTo(HaveOccurred(), out)
			g.Expect(calls).To(ContainElements(HavePrefix("kind delete cluster --name gardener-local"), "docker rm --force --volumes provider-local-registry", "docker network rm kind"))
			for _, address := range expected.addresses {
				g.Expect(calls).To(ContainElement(MatchRegexp("^ip -[46] address delete " + address + " dev lo$")))
			}
			g.Expect(m.read("inotify")).To(Equal("128\n"), "as it was before")
			g.Expect(filepath.Join(m.root, ".kind")).NotTo(BeAnExistingFile())
			out, calls, err = m.call("down")
			g.Expect(err).NotTo(HaveOccurred(), out)
			g.Expect(calls).NotTo(ContainElement(MatchRegexp("kind delete|docker rm|network rm")), "there is nothing")
		})
	}
}

func TestAddressesAndLimitsOfOthersStay(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "docker", "kind")
	m.write("lo", "172.18.255.3/32\n")
	m.write("inotify", "16384\n")
	out, calls, err := m.call("up")
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(calls).NotTo(ContainElement(ContainSubstring("address add 172.18.255.3/32")))
	g.Expect(m.read("inotify")).To(Equal("16384\n"), "more than needed")
	_, calls, err = m.call("down")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(calls).To(ContainElement(ContainSubstring("address delete 172.18.255.1/32")))
	g.Expect(calls).NotTo(ContainElement(ContainSubstring("address delete 172.18.255.3/32")))
	g.Expect(m.read("inotify")).To(Equal("16384\n"))
}

func TestASecondClusterOfOthersStays(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "docker", "kind")
	m.write("clusters", "gardener-local2\n")
	out, calls, err := m.call("down")
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(calls).NotTo(ContainElement(HavePrefix("kind delete")))
}

func TestTheLandscapeKeepsTheLimitThatItNeeds(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "docker", "kind")
	_, _, err := m.call("up")
	g.Expect(err).NotTo(HaveOccurred())
	before := filepath.Join(m.root, ".landscape", "before.json")
	g.Expect(os.Mkdir(filepath.Dir(before), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(before, []byte(`{"sysctls": {"fs/inotify/max_user_instances": "8192", "net/ipv4/ip_forward": "0"}}`), 0o600)).To(Succeed())
	_, _, err = m.call("down")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.read("inotify")).To(Equal("8192\n"))
	g.Expect(os.ReadFile(before)).To(MatchJSON(`{"sysctls": {"fs/inotify/max_user_instances": "128", "net/ipv4/ip_forward": "0"}}`),
		"make down restores what was before the cluster")
}

func TestAMachineWithoutIPv6HasClustersWithIPv4(t *testing.T) {
	for engine, says := range map[string]string{"docker": "Cannot read IPv6 setup", "podman": "net.ipv6.conf.default.disable_ipv6 is not 0"} {
		for kind, serves := range map[string]bool{"single": true, "nodes": true, "zones": true, "ipv6": false, "dual-stack": false} {
			t.Run(engine+", "+kind, func(t *testing.T) {
				g := NewWithT(t)
				m := newMachine(t, engine, "kind")
				m.write("ipv6-off", "")
				out, calls, err := m.call("up", "--cluster", kind)
				if !serves {
					g.Expect(err).To(HaveOccurred())
					g.Expect(out).To(And(ContainSubstring("enable IPv6 on this machine"), ContainSubstring(says)))
					g.Expect(calls).NotTo(ContainElement(MatchRegexp(engine + " run|kind create|address add")))
					return
				}
				g.Expect(err).NotTo(HaveOccurred(), out)
				g.Expect(calls).To(ContainElements(
					MatchRegexp("^"+engine+" network create .*--gateway 172.18.0.1 kind$"),
					And(HavePrefix(engine+" run"), ContainSubstring("--ip 172.18.254.1"), Not(ContainSubstring("--ip6")))))
			})
		}
	}
}

func TestPodmanHasTheAPIServerOfIPv6AtAnAddressThatItForwards(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "podman", "kind")
	out, _, err := m.call("up", "--cluster", "ipv6")
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(m.read("config.yaml")).To(ContainSubstring("\nnetworking:\n  apiServerAddress: fd00:ff::1\n"))
}

func TestSeveralNodesAreInOneZone(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "docker", "kind")
	out, _, err := m.call("up", "--cluster", "nodes")
	g.Expect(err).NotTo(HaveOccurred(), out)
	zones, err := os.ReadFile("cluster-zones.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(m.read("config.yaml")).To(Equal(strings.NewReplacer(`zone: "1"`, `zone: "0"`, `zone: "2"`, `zone: "0"`).Replace(string(zones))))
}

func TestWhatWasMadeByHalfIsMended(t *testing.T) {
	t.Run("a cluster", func(t *testing.T) {
		g := NewWithT(t)
		m := newMachine(t, "docker", "kind")
		m.write("interrupted", "")
		_, _, err := m.call("up", "--cluster", "dual-stack")
		g.Expect(err).To(HaveOccurred())
		g.Expect(os.Remove(filepath.Join(m.state, "interrupted"))).To(Succeed())
		out, calls, err := m.call("up", "--cluster", "dual-stack")
		g.Expect(err).NotTo(HaveOccurred(), out)
		g.Expect(calls).To(ContainElements(HavePrefix("kind delete"), HavePrefix("kind create")))
		g.Expect(calls).NotTo(ContainElement(MatchRegexp("network create|docker run|address add")))
		_, calls, err = m.call("up", "--cluster", "dual-stack")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(calls).NotTo(ContainElement(HavePrefix("kind delete")), "it is whole now")
	})
	t.Run("a registry that doesn't start", func(t *testing.T) {
		g := NewWithT(t)
		m := newMachine(t, "docker", "kind")
		m.write("container-provider-local-registry", "false\n")
		m.write("broken", "")
		out, calls, err := m.call("up")
		g.Expect(err).NotTo(HaveOccurred(), out)
		g.Expect(calls).To(ContainElements("docker rm --force --volumes provider-local-registry", HavePrefix("docker run")))
	})
	t.Run("a registry without an image", func(t *testing.T) {
		g := NewWithT(t)
		m := newMachine(t, "docker", "kind")
		m.write("no-registry", "")
		out, calls, err := m.call("up")
		g.Expect(err).To(HaveOccurred())
		g.Expect(out).To(And(ContainSubstring("no such image"), ContainSubstring("provider-local-registry does not start")))
		g.Expect(calls[len(calls)-1]).To(HavePrefix("docker rm"), "nothing is left of it")
	})
	t.Run("and is taken away", func(t *testing.T) {
		g := NewWithT(t)
		m := newMachine(t, "docker", "kind")
		m.write("interrupted", "")
		_, _, err := m.call("up", "--cluster", "ipv6")
		g.Expect(err).To(HaveOccurred())
		out, calls, err := m.call("down")
		g.Expect(err).NotTo(HaveOccurred(), out)
		g.Expect(calls).To(ContainElements(HavePrefix("kind delete"), "docker rm --force --volumes provider-local-registry", "docker network rm kind", "ip -6 address delete fd00:ff::1/128 dev lo"))
	})
}

func TestPodmanThatCallsItselfDockerIsPodman(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "docker", "podman", "kind")
	m.write("version", "podman version 4.9.3\n")
	out, calls, err := m.call("up")
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(calls).To(ContainElement(HavePrefix("podman run ")))
	g.Expect(calls).NotTo(ContainElement(HavePrefix("docker run ")))
}

func TestCachesOutliveTheCluster(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "docker", "kind")
	m.env = append(m.env, "CACHE_IMAGE=cache:mine")
	m.write("volumes", "of-others\n")
	out, calls, err := m.call("up")
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(calls).NotTo(ContainElement(Or(ContainSubstring("volume create"), HavePrefix("docker run --detach --name provider-local-cache"))), "nobody asked for them")

	out, _, err = m.call("up", "--caches")
	g.Expect(err).NotTo(HaveOccurred(), out)
	_, _, err = m.call("down")
	g.Expect(err).NotTo(HaveOccurred())
	out, calls, err = m.call("up")
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(calls).NotTo(ContainElement(ContainSubstring("volume create")))
	g.Expect(calls).To(ContainElement(MatchRegexp("^docker run .*--name provider-local-cache-registry.k8s.io .*--ip 172.18.254.3 --ip6 fd00:10::fe03 " +
		"--env REGISTRY_HTTP_DEBUG_ADDR= --volume provider-local-cache-registry.k8s.io:/var/lib/registry --env REGISTRY_PROXY_REMOTEURL=https://registry.k8s.io .* --env HTTPS_PROXY .* cache:mine$")))
	g.Expect(m.read("hosts.toml")).To(HaveSuffix(`server = "https://gcr.io"
[host."http://172.18.254.5:5000"]
  capabilities = ["pull", "resolve"]
`))
	out, calls, err = m.call("down")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(out).To(ContainSubstring("'make kind-down KIND_CACHES=1' deletes them"))
	g.Expect(calls).To(ContainElement("docker rm --force --volumes provider-local-cache-quay.io"))
	_, calls, err = m.call("down", "--caches")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(calls).To(ContainElement("docker volume rm provider-local-cache-europe-docker.pkg.dev provider-local-cache-registry.k8s.io provider-local-cache-quay.io provider-local-cache-gcr.io"))
	_, calls, err = m.call("down", "--caches")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(calls).NotTo(ContainElement(ContainSubstring("volume rm")))
}

func TestASecondClusterIsBesideTheFirst(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "docker", "kind")
	out, calls, err := m.call("up", "--cluster", "second")
	g.Expect(err).To(HaveOccurred())
	g.Expect(out).To(ContainSubstring("needs a first one with IPv4"))
	g.Expect(calls).NotTo(ContainElement(MatchRegexp("network create|kind create")))

	_, _, err = m.call("up")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.Remove(filepath.Join(m.state, "corefile"))).To(Succeed())
	for range 2 {
		out, calls, err = m.call("up", "--cluster", "second")
		g.Expect(err).NotTo(HaveOccurred(), out)
		g.Expect(calls).To(ContainElements("docker exec gardener-local2-control-plane ip route replace 172.18.255.3 via 172.18.0.2", "docker exec gardener-local2-control-plane ip route replace 172.18.255.53 via 172.18.0.2",
			"docker exec gardener-local2-control-plane ip -4 route replace local 172.18.255.64/26 dev lo", "kind get kubeconfig --name gardener-local2 --internal"))
		g.Expect(calls).NotTo(ContainElement(MatchRegexp("network create|docker run|exec .*gardener-local-")), "the first cluster stays as it is")
	}
	for _, address := range []string{"172.18.255.2", "172.18.255.5", "172.18.255.54"} {
		g.Expect(m.read("lo")).To(ContainSubstring(address + "/32"))
	}
	g.Expect(m.read("corefile")).To(And(ContainSubstring("virtual-garden.local.gardener.cloud:53 {\n        errors\n        forward . 172.18.255.53\n"),
		ContainSubstring("forward . 10.2.0.53")), "its own name server does not know the Garden's names")
	folder := filepath.Join(m.root, ".kind", "second")
	g.Expect(os.ReadFile(filepath.Join(folder, "internal.kubeconfig"))).To(Equal([]byte("internal\n")))

	out, calls, err = m.call("down")
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(calls).To(ContainElements(HavePrefix("kind delete cluster --name gardener-local2"), HavePrefix("kind delete cluster --name gardener-local "), "ip -4 address delete 172.18.255.2/32 dev lo"))
	g.Expect(folder).NotTo(BeAnExistingFile())
}

func TestOtherImages(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "docker", "kind")
	m.env = append(m.env, "KIND_NODE_IMAGE=node:mine", "REGISTRY_IMAGE=registry:mine")
	out, calls, err := m.call("up")
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(calls).To(ContainElements(MatchRegexp("^kind create .* --image node:mine$"), MatchRegexp("^docker run .* registry:mine$")))
}

func TestPodmanIsAskedWhereThereIsNoDocker(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "podman", "kind")
	out, calls, err := m.call("up")
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(calls).To(ContainElement(MatchRegexp("^podman run .*registry:3$")))
	g.Expect(calls).To(ContainElement("podman exec gardener-local-control-plane ip -4 route replace local 172.18.255.128/25 dev lo"))
	g.Expect(calls).NotTo(ContainElement(HavePrefix("docker")))

	_, _, err = m.call("up", "--caches")
	g.Expect(err).NotTo(HaveOccurred())
	_, calls, err = m.call("down", "--caches")
	g.Expect(err).NotTo(HaveOccurred())
	removed := slices.DeleteFunc(calls, func(call string) bool { return !strings.HasPrefix(call, "podman rm ") })
	g.Expect(removed).To(HaveLen(5))
	g.Expect(removed[4]).To(HaveSuffix(" provider-local-registry"), "the last container of the network has to have a port")
}

// An engine in a virtual machine can't listen on addresses of this machine.
func TestLoadBalancersOfAVirtualMachineAreForwarded(t *testing.T) {
	for _, engine := range []string{"docker", "podman"} {
		for kind, nodes := range map[string]int{"single": 1, "nodes": 4, "zones": 4} {
			t.Run(engine+", "+kind, func(t *testing.T) {
				g := NewWithT(t)
				m := newMachine(t, engine, "kind")
				m.write("remote", "")
				t.Cleanup(func() { _, _, _ = m.call("down") })
				out, calls, err := m.call("up", "--cluster", kind)
				g.Expect(err).NotTo(HaveOccurred(), out)
				found := &cluster{}
				g.Expect(yaml.UnmarshalStrict([]byte(m.read("config.yaml")), found)).To(Succeed())
				g.Expect(found.Nodes).To(HaveLen(nodes))
				for i, node := range found.Nodes {
					if i == 0 {
						g.Expect(node.ExtraPortMappings).To(HaveExactElements(And(HaveField("ListenAddress", "127.0.0.1"), HaveField("HostPort", int32(5002)), HaveField("ContainerPort", int32(5002)))))
					} else {
						g.Expect(node.ExtraPortMappings).To(BeEmpty())
					}
				}
				g.Expect(calls).To(ContainElements("for linux arm64", "for here ",
					MatchRegexp("^"+engine+" cp .*/.kind/proxy gardener-local-control-plane:/usr/local/bin/proxy$"),
					engine+" exec --detach gardener-local-control-plane /usr/local/bin/proxy proxy --listen :5002 --to 172.18.255.0/24 --to fd00:ff::/64"))
				g.Expect(calls).NotTo(ContainElement(MatchRegexp("address add|route replace")), "only the addresses of Services are needed")
				state := filepath.Join(m.root, ".kind")
				g.Eventually(func() (string, error) {
					added, err := os.ReadFile(filepath.Join(state, "addresses")) // #nosec G304 -- of this test
					return string(added), err
				}).WithTimeout(10*time.Second).Should(Equal("172.18.255.3\n"), "it runs")
				pid, err := os.ReadFile(filepath.Join(state, "forward.log.pid")) // #nosec G304 -- of this test
				g.Expect(err).NotTo(HaveOccurred())

				m.write("lo", "172.18.255.3/32\n")
				out, calls, err = m.call("down")
				g.Expect(err).NotTo(HaveOccurred(), out)
				g.Expect(calls).To(ContainElement("ip -4 address delete 172.18.255.3/32 dev lo"))
				g.Eventually("/proc/"+strings.TrimSpace(string(pid))).WithTimeout(10*time.Second).ShouldNot(BeADirectory(), "it was stopped")
			})
		}
	}
	t.Run("unless something has the port", func(t *testing.T) {
		g := NewWithT(t)
		m := newMachine(t, "docker", "kind")
		m.write("remote", "")
		m.write("ports", "web 127.0.0.1:5002->80/tcp\n")
		out, calls, err := m.call("up")
		g.Expect(err).To(HaveOccurred())
		g.Expect(out).To(ContainSubstring("the container web has port 5002 of this machine, which the way to load balancers needs"))
		g.Expect(calls).NotTo(ContainElement(MatchRegexp("docker run|kind create")))
	})
}

// Networks and ports of others that are not in the way are not refused.
func TestNeighboursStay(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "docker", "kind")
	m.write("ranges", "bridge 172.17.0.0/16\nhost\nshop_default 172.19.0.0/16 fd00:11::/64\n")
	m.write("routes", "local 172.18.255.1 dev lo table local scope host\n")
	m.write("ports", "web 127.0.0.1:15001->5001/tcp, 172.17.0.1:5001->5001/tcp\n")
	m.write("listeners", "LISTEN 0 4096 172.18.255.1:5001 0.0.0.0:*\n")
	out, _, err := m.call("up")
	g.Expect(err).NotTo(HaveOccurred(), out)
}

func TestWhatIsMissingIsSaidWithItsRemedy(t *testing.T) {
	const foreign = "not from this clone: delete it where it was made, or by 'kind delete cluster --name gardener-local'"
	for _, test := range []struct {
		name     string
		programs []string
		prepare  string
		args     string
		says     string
	}{
		{"no container engine", []string{"kind"}, "", "up", "neither docker nor podman: install one"},
		{"no kind", []string{"docker"}, "", "up", "kind is missing: call this as 'make kind-up'"},
		{"an engine that sleeps", []string{"docker", "kind"}, "asleep=", "up", "docker does not answer: 'docker info' says why"},
		{"a network that others made", []string{"docker", "kind"}, "network=<no value>", "up", "'docker network rm kind' and call this again"},
		{"a network that was made when IPv6 was off", []string{"docker", "kind"}, "network=true", "up --cluster ipv6", "made without IPv6, which ipv6 needs"},
		{"a network that overlaps", []string{"docker", "kind"}, "ranges=bridge 172.17.0.0/16\nhost\nshop_default 172.18.0.0/16", "up", "the network shop_default of docker has 172.18.0.0/16, and the cluster needs 172.18.0.0/16 and fd00:10::/64: if nothing uses it, 'docker network rm shop_default'"},
		{"a larger network", []string{"podman", "kind"}, "ranges=all 172.16.0.0/12", "up", "the network all of podman has 172.16.0.0/12"},
		{"a smaller network", []string{"docker", "kind"}, "ranges=part 10.5.0.0/16 172.18.7.0/24", "up", "the network part of docker has 172.18.7.0/24"},
		{"a network with our range of IPv6", []string{"docker", "kind"}, "ranges=six 172.20.0.0/16 fd00:10::/64", "up", "the network six of docker has fd00:10::/64"},
		{"a landscape", []string{"docker", "kind"}, "routes=local 172.18.255.1 dev pl0 table local scope host", "up", "(route 'local 172.18.255.1 dev pl0 table local scope host'): take it down, a landscape with 'make down'"},
		{"rootless podman", []string{"podman", "kind"}, "rootless=true", "up", "podman is rootless, so it can't listen on ports 53 and 443"},
		{"rootless Docker", []string{"docker", "kind"}, "rootless=[name=seccomp,profile=default name=rootless]", "up", "docker is rootless"},
		{"a container with the registry's port", []string{"docker", "kind"}, "ports=web 0.0.0.0:80->80/tcp\nkind-registry 127.0.0.1:5001->5000/tcp", "up", "the container kind-registry has port 5001 of this machine, which the registry needs: 'docker stop kind-registry'"},
		{"a process with the registry's port", []string{"docker", "kind"}, `listeners=LISTEN 0 4096 *:5001 *:* users:(("registry",pid=7,fd=3))`, "up", `stop it and call this again. It is 'LISTEN 0 4096 *:5001 *:* users:(("registry",pid=7,fd=3))'`},
		{"a cluster of our name that others made", []string{"docker", "kind"}, "clusters=gardener-local", "up", foreign},
		{"the deletion of such a cluster", []string{"docker", "kind"}, "clusters=gardener-local", "down", foreign},
		{"no action", nil, "", "", "expected 'up' or 'down'"},
		{"an unknown kind of cluster", nil, "", "up --cluster large", "expected single, nodes, zones, ipv6, dual-stack or second"},
		{"an unknown argument", nil, "", "down --force", "unknown argument '--force'"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			m := newMachine(t, test.programs...)
			if name, content, ok := strings.Cut(test.prepare, "="); ok {
				g.Expect(os.WriteFile(filepath.Join(m.state, name), []byte(content+"\n"), 0o600)).To(Succeed())
			}
			out, calls, err := m.call(strings.Fields(test.args)...)
			g.Expect(err).To(HaveOccurred())
			g.Expect(out).To(ContainSubstring(test.says))
			g.Expect(calls).NotTo(ContainElement(MatchRegexp("create|delete|(docker|podman) run|address add|sysctl")))
			g.Expect(filepath.Join(m.root, ".kind")).NotTo(BeAnExistingFile(), "nothing is left")
		})
	}
}

func TestDockerHasToAnswerWhoeverCallsSudo(t *testing.T) {
	const says = "docker does not answer user 1000, who called sudo: add them to group docker"
	for _, test := range []struct {
		name, user string
		env        []string
		refused    bool
	}{
		{"a user without access", "0", []string{"SUDO_UID=1000"}, true},
		{"a user who names the daemon", "0", []string{"SUDO_UID=1000", "DOCKER_HOST=unix:///mine"}, false},
		{"root", "0", []string{"SUDO_UID=0"}, false},
		{"somebody whom sudo has made another user", "1001", []string{"SUDO_UID=1000"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			m := newMachine(t, "docker", "kind")
			m.env = append(m.env, test.env...)
			for name, script := range map[string]string{"id": "echo " + test.user, "sudo": "[[ $* != *' -u#1000 docker info' ]] && shift && exec \"$@\""} {
				g.Expect(os.WriteFile(filepath.Join(m.bin, name), []byte("#!/bin/bash\n"+script+"\n"), 0o700)).To(Succeed()) // #nosec G306 -- a script
			}
			out, calls, err := m.call("up")
			if test.refused {
				g.Expect(err).To(HaveOccurred())
				g.Expect(out).To(ContainSubstring(says))
				g.Expect(calls).NotTo(ContainElement(ContainSubstring("create")))
			} else {
				g.Expect(err).NotTo(HaveOccurred(), out)
				g.Expect(calls).To(ContainElement(HavePrefix("kind create cluster")))
			}
		})
	}
}

// kind itself reads the configurations, with its own types, strictly, and asks for the containers; there is nobody who runs
// them, so that it fails then.
func TestKindTakesTheConfigurations(t *testing.T) {
	binary := os.Getenv("TEST_ASSET_KIND")
	if binary == "" {
		t.Skip("TEST_ASSET_KIND names what `make check-skaffold` builds")
	}
	create := func(g Gomega, m *machine, config string) (string, []string) {
		log := filepath.Join(m.state, "calls")
		cmd := exec.CommandContext(m.t.Context(), binary, "create", "cluster", "--config", config, "--kubeconfig", filepath.Join(m.state, "kubeconfig")) // #nosec G204 -- what make has built
		cmd.Env, cmd.Dir = slices.Concat(m.env, []string{"KIND_EXPERIMENTAL_PROVIDER=docker"}), m.root
		out, err := cmd.CombinedOutput()
		g.Expect(err).To(HaveOccurred())
		calls, err := os.ReadFile(log) // #nosec G304 -- written by the stub
		if !os.IsNotExist(err) {
			g.Expect(err).NotTo(HaveOccurred())
		}
		return string(out), strings.Split(string(calls), "\n")
	}
	published := regexp.MustCompile(`--publish=(\S+:\d+):(\d+)/(TCP|UDP)`)
	for _, file := range []string{"cluster.yaml", "cluster-zones.yaml", "cluster-ipv6.yaml", "cluster-dual-stack.yaml", "cluster-second.yaml"} {
		t.Run(file, func(t *testing.T) {
			g := NewWithT(t)
			m := newMachine(t, "docker")
			out, calls := create(g, m, filepath.Join(m.root, "skaffold", "kind", file))
			g.Expect(out).To(ContainSubstring("Preparing nodes"), "the configuration is fine")

			content, err := os.ReadFile(file) // #nosec G304 -- beside this file
			g.Expect(err).NotTo(HaveOccurred())
			config := &cluster{}
			g.Expect(yaml.Unmarshal(content, config)).To(Succeed())
			var asked []string
			for _, call := range calls {
				for _, match := range published.FindAllStringSubmatch(call, -1) {
					if match[2] != "6443" {
						asked = append(asked, match[1]+"/"+match[3]+" to "+match[2])
					}
				}
			}
			g.Expect(asked).To(ConsistOf(expected(t, config)), "what Docker is asked to listen on")
		})
	}
	t.Run("but not any", func(t *testing.T) {
		g := NewWithT(t)
		m := newMachine(t, "docker")
		path := filepath.Join(m.root, "bad.yaml")
		g.Expect(os.WriteFile(path, []byte("kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnetworking: {podSubnets: 10.1.0.0/16}\n"), 0o600)).To(Succeed())
		out, _ := create(g, m, path)
		g.Expect(out).To(And(ContainSubstring("podSubnets"), Not(ContainSubstring("Preparing nodes"))))
	})
}
