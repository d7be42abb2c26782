// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// stub is a program of the name by which it is called: it writes its arguments down and does what a container engine, kind
// and ip do as far as the scripts look at it. What runs is a file in the folder $STATE.
const stub = `#!/bin/bash
me=${0##*/}
echo "$me $*" >>"$STATE/calls"
case "$me $*" in
docker\ info* | podman\ info*) [[ ! -e $STATE/asleep ]] && echo '{"CgroupVersion":"2"}' ;;
*" network inspect kind") [[ -e $STATE/network ]] && cat "$STATE/network" ;;
*" network inspect --format "*) [[ -e $STATE/network ]] && cat "$STATE/network" ;;
*" network create "*) echo true >"$STATE/network" ;;
*" network rm "*) rm -f "$STATE/network" ;;
*" inspect --format {{.State.Running}} "*) [[ -e $STATE/container-${!#} ]] && cat "$STATE/container-${!#}" ;;
*" inspect --format {{range "*) echo 172.18.0.2 ;;
docker\ inspect\ * | podman\ inspect\ *) [[ -e $STATE/container-$2 ]] ;;
docker\ start\ * | podman\ start\ *) echo true >"$STATE/container-$2" ;;
docker\ run\ * | podman\ run\ *) echo true >"$STATE/container-provider-local-registry" ;;
docker\ logs\ *) echo "Reached target Multi-User System." ;; # kind waits for it: it starts nodes at once, and ends with the first that fails
docker\ rm\ * | podman\ rm\ *) rm -f "$STATE/container-${!#}" ;;
*" exec --interactive "*) cat >>"$STATE/hosts.toml" ;;
kind\ get\ clusters) cat "$STATE/clusters" 2>/dev/null || echo "No kind clusters found." >&2 ;;
kind\ get\ nodes*) cd "$STATE" && ls container-gardener* | sed s/container-// ;;
kind\ create\ *)
  echo gardener-local >"$STATE/clusters"
  grep -c -- "- role" "$4" | xargs seq 1 | sed "s/^1$/control-plane/; s/^\\([0-9]\\)/worker\\1/" | while read -r node; do echo true >"$STATE/container-gardener-local-$node"; done
  echo "in $PWD with $KUBECONFIG" >>"$STATE/calls"
  ;;
kind\ delete\ *) rm -f "$STATE/clusters" "$STATE"/container-gardener-local-* ;;
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
	for _, program := range append(programs, "ip", "ifconfig", "sudo") {
		g.Expect(os.WriteFile(filepath.Join(m.bin, program), []byte(stub), 0o700)).To(Succeed()) // #nosec G306 -- a script
	}
	g.Expect(os.WriteFile(filepath.Join(m.bin, "sudo"), []byte("#!/bin/bash\nshift\nexec \"$@\"\n"), 0o700)).To(Succeed()) // #nosec G306 -- a script
	// What there is on every machine, and nothing that runs containers.
	for _, program := range []string{"bash", "cat", "cp", "dirname", "env", "grep", "ls", "mkdir", "rm", "sed", "seq", "uname", "xargs"} {
		path, err := exec.LookPath(program)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.Symlink(path, filepath.Join(m.bin, program))).To(Succeed())
	}
	m.env = []string{"PATH=" + m.bin, "STATE=" + m.state, "HOME=" + m.root}
	return m
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

func TestUpMakesAllAndDownTakesAllAway(t *testing.T) {
	for kind, expected := range map[string]struct {
		config           string
		nodes            int
		pools, addresses []string
	}{
		"single":     {"cluster.yaml", 1, []string{"172.18.255.128/25"}, []string{"172.18.255.53/32"}},
		"zones":      {"cluster-zones.yaml", 4, []string{"172.18.255.128/25"}, []string{"172.18.255.12/32"}},
		"ipv6":       {"cluster-ipv6.yaml", 1, []string{"fd00:ff::1:0/120"}, []string{"fd00:ff::53/128"}},
		"dual-stack": {"cluster-dual-stack.yaml", 1, []string{"172.18.255.128/25", "fd00:ff::1:0/120"}, []string{"172.18.255.1/32", "fd00:ff::1/128"}},
	} {
		t.Run(kind, func(t *testing.T) {
			g := NewWithT(t)
			m := newMachine(t, "docker", "kind")
			out, calls, err := m.call("up", "--cluster", kind)
			g.Expect(err).NotTo(HaveOccurred(), out)
			folder := filepath.Join(m.root, "skaffold", "kind")
			g.Expect(calls).To(ContainElements(
				"kind create cluster --config "+filepath.Join(folder, expected.config)+" --wait 5m",
				"in "+m.root+" with "+filepath.Join(m.root, ".kind", "kubeconfig"),
				HavePrefix("docker network create --driver bridge --label provider-local-registry=true --subnet 172.18.0.0/16"),
				MatchRegexp("docker run .*--network kind --network-alias registry.local.gardener.cloud --ip 172.18.254.1 --ip6 fd00:10::fe01 --publish 127.0.0.1:5001:5001 .*registry:3$")))
			g.Expect(slices.IndexFunc(calls, func(call string) bool { return strings.HasPrefix(call, "ip ") })).To(
				BeNumerically("<", slices.IndexFunc(calls, func(call string) bool { return strings.HasPrefix(call, "kind create") })), "Docker listens on the addresses")
			for _, address := range expected.addresses {
				g.Expect(calls).To(ContainElement(MatchRegexp("^ip -[46] address replace " + address + " dev lo$")))
			}
			for _, pool := range expected.pools {
				g.Expect(calls).To(ContainElement(MatchRegexp("^docker exec gardener-local-control-plane ip -[46] route replace local " + pool + " dev lo$")))
			}
			toml, err := os.ReadFile(filepath.Join(m.state, "hosts.toml"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(strings.Count(string(toml), `[host."http://registry.local.gardener.cloud:5001"]`)).To(Equal(expected.nodes))
			g.Expect(out).To(HaveSuffix("make gardener-up\n"))

			g.Expect(os.WriteFile(filepath.Join(m.state, "container-gardener-local-control-plane"), []byte("false"), 0o600)).To(Succeed())
			out, calls, err = m.call("up", "--cluster", kind)
			g.Expect(err).NotTo(HaveOccurred(), out)
			g.Expect(calls).To(ContainElement("docker start gardener-local-control-plane"), "it was restarted meanwhile")
			g.Expect(calls).NotTo(ContainElement(MatchRegexp("kind create|network create|docker run")), "the rest is there")

			out, calls, err = m.call("down")
			g.Expect(err).NotTo(HaveOccurred(), out)
			g.Expect(calls).To(ContainElements(HavePrefix("kind delete cluster --name gardener-local"), "docker rm --force --volumes provider-local-registry", "docker network rm kind"))
			g.Expect(filepath.Join(m.root, ".kind")).NotTo(BeAnExistingFile())
			out, calls, err = m.call("down")
			g.Expect(err).NotTo(HaveOccurred(), out)
			g.Expect(calls).NotTo(ContainElement(MatchRegexp("kind delete|docker rm|network rm")), "there is nothing")
		})
	}
}

func TestPodmanIsAskedWhereThereIsNoDocker(t *testing.T) {
	g := NewWithT(t)
	m := newMachine(t, "podman", "kind")
	out, calls, err := m.call("up")
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(calls).To(ContainElement(MatchRegexp("^podman run .*registry:3$")))
	g.Expect(calls).To(ContainElement("podman exec gardener-local-control-plane ip -4 route replace local 172.18.255.128/25 dev lo"))
	g.Expect(calls).NotTo(ContainElement(HavePrefix("docker")))
}

func TestWhatIsMissingIsSaidWithItsRemedy(t *testing.T) {
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
		{"another cluster", []string{"docker", "kind"}, "clusters=gardener-local", "up --cluster zones", "'make kind-down' deletes it"},
		{"no action", nil, "", "", "expected 'up' or 'down'"},
		{"an unknown kind of cluster", nil, "", "up --cluster large", "expected single, zones, ipv6 or dual-stack"},
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
			g.Expect(calls).NotTo(ContainElement(MatchRegexp("create|docker run")))
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
	for _, file := range []string{"cluster.yaml", "cluster-zones.yaml", "cluster-ipv6.yaml", "cluster-dual-stack.yaml"} {
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
			g.Expect(asked).To(ConsistOf(fixed(t, config.Networking.IPFamily)), "what Docker is asked to listen on")
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
