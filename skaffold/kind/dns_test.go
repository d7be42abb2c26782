// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package kind_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

// resolving is a machine with a folder instead of /etc, and a landscape with three DNSRecords.
type resolving struct {
	*machine
	etc string
}

const (
	usualHosts = "127.0.0.1 localhost\n"
	stubbed    = "nameserver 127.0.0.53\n"
	records    = "172.18.255.3 api.virtual-garden.local.gardener.cloud\n172.18.255.4 *.ingress.local.gardener.cloud\n172.18.255.1 api.local.local.gardener.cloud\n" +
		"192.0.2.9 www.example.com\n192.0.2.9 api.localXgardener.cloud\nexample.com a.local.gardener.cloud\n" // a shoot's owner may choose these
)

// newResolving makes a machine whose /etc/hosts and /etc/resolv.conf have this content.
func newResolving(t *testing.T, hosts, resolvConf string) resolving {
	t.Helper()
	g := NewWithT(t)
	r := resolving{newMachine(t), t.TempDir()}
	g.Expect(os.Chmod(filepath.Join(r.root, "skaffold", "kind", "dns"), 0o700)).To(Succeed()) // #nosec G302 -- a script
	g.Expect(os.Mkdir(filepath.Join(r.etc, "systemd"), 0o700)).To(Succeed())
	r.env = append(r.env, "ETC="+r.etc)
	for _, program := range []string{"cmp", "head", "mktemp", "rmdir", "sort", "tail", "tee"} {
		path, err := exec.LookPath(program)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(os.Symlink(path, filepath.Join(r.bin, program))).To(Succeed())
	}
	r.script("systemctl", `echo "systemctl $*" >>"$STATE/calls"`)
	r.script("resolvectl", `echo "Global:$(cat "$STATE/servers" 2>/dev/null)"; echo "Link 2 (eth0): 192.0.2.1"`)
	r.script("getent", `echo "getent $*" >>"$STATE/calls"; [[ ! -e $STATE/unresolved ]]`)
	r.write(filepath.Join(r.root, "bin", "landscape", "kubectl"), "#!/bin/bash\ncat \"$STATE/records\"\n")
	r.write(filepath.Join(r.root, ".kind", "cluster"), "single\n")
	r.write(filepath.Join(r.state, "records"), records)
	r.write(filepath.Join(r.etc, "hosts"), hosts)
	r.write(filepath.Join(r.etc, "resolv.conf"), resolvConf)
	return r
}

// write writes a file, with its folder.
func (r resolving) write(path, content string) {
	r.t.Helper()
	g := NewWithT(r.t)
	g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(path, []byte(content), 0o700)).To(Succeed()) // #nosec G306 -- some are scripts
}

// script makes a program.
func (r resolving) script(name, content string) {
	r.t.Helper()
	r.write(filepath.Join(r.bin, name), "#!/bin/bash\n"+content+"\n")
}

// files are the contents below the folder that stands for /etc.
func (r resolving) files() map[string]string {
	r.t.Helper()
	found := map[string]string{}
	NewWithT(r.t).Expect(filepath.WalkDir(r.etc, func(path string, entry os.DirEntry, err error) error {
		name := strings.TrimPrefix(path, r.etc+"/")
		if err != nil || entry.IsDir() {
			if path != r.etc {
				found[name+"/"] = ""
			}
			return err
		}
		content, err := os.ReadFile(path) // #nosec G304 -- of the test
		found[name] = string(content)
		return err
	})).To(Succeed())
	return found
}

// dns calls the script, and returns what it prints and what it called.
func (r resolving) dns(command string) (out, calls string, err error) {
	r.t.Helper()
	g := NewWithT(r.t)
	log := filepath.Join(r.state, "calls")
	g.Expect(os.WriteFile(log, nil, 0o600)).To(Succeed())
	cmd := exec.CommandContext(r.t.Context(), filepath.Join(r.root, "skaffold", "kind", "dns"), strings.Fields(command)...) // #nosec G204 -- the script
	cmd.Env = r.env
	printed, err := cmd.CombinedOutput()
	content, readErr := os.ReadFile(log) // #nosec G304 -- just written
	g.Expect(readErr).NotTo(HaveOccurred())
	return string(printed), string(content), err
}

func TestTheNameOfTheRegistryIsWrittenOnceAndTakenBackToTheByte(t *testing.T) {
	const block = "# BEGIN provider-local. make kind-down removes this block\n127.0.0.1 registry.local.gardener.cloud\n# END provider-local\n"
	for name, hosts := range map[string]string{
		"usual": usualHosts, "empty": "", "empty lines at the end": usualHosts + "\n\n", "a name that begins alike": "10.0.0.1 registry.local.gardener.cloud.example.com\n",
		"a comment": "# 127.0.0.1 registry.local.gardener.cloud\n",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := newResolving(t, hosts, stubbed)
			before := r.files()
			out, _, err := r.dns("registry")
			g.Expect(err).NotTo(HaveOccurred(), out)
			g.Expect(r.files()).To(HaveKeyWithValue("hosts", hosts+block))
			g.Expect(out).To(And(ContainSubstring(filepath.Join(r.etc, "hosts")), ContainSubstring("    127.0.0.1 registry.local.gardener.cloud\n")))
			out, _, err = r.dns("registry")
			g.Expect(err).NotTo(HaveOccurred(), out)
			g.Expect(out).To(BeEmpty())
			g.Expect(r.files()).To(HaveKeyWithValue("hosts", hosts+block))
			out, _, err = r.dns("remove")
			g.Expect(err).NotTo(HaveOccurred(), out)
			g.Expect(r.files()).To(Equal(before))
			out, _, err = r.dns("remove")
			g.Expect(err).NotTo(HaveOccurred(), out)
			g.Expect(out).To(BeEmpty())
		})
	}
	t.Run("a last line without its end", func(t *testing.T) {
		g := NewWithT(t)
		r := newResolving(t, "127.0.0.1 localhost", stubbed)
		_, _, err := r.dns("registry")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.files()["hosts"]).To(HavePrefix("127.0.0.1 localhost\n# BEGIN provider-local"))
		_, _, err = r.dns("remove")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.files()).To(HaveKeyWithValue("hosts", "127.0.0.1 localhost"))
	})
	t.Run("lines that others add meanwhile", func(t *testing.T) {
		g := NewWithT(t)
		r := newResolving(t, "127.0.0.1 localhost", stubbed)
		_, _, err := r.dns("registry")
		g.Expect(err).NotTo(HaveOccurred())
		r.write(filepath.Join(r.etc, "hosts"), r.files()["hosts"]+"192.0.2.1 theirs\n")
		_, _, err = r.dns("remove")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.files()).To(HaveKeyWithValue("hosts", "127.0.0.1 localhost\n192.0.2.1 theirs\n"))
	})
	t.Run("a line of somebody else", func(t *testing.T) {
		g := NewWithT(t)
		r := newResolving(t, "127.0.0.1 localhost registry.local.gardener.cloud # mine\n", stubbed)
		before := r.files()
		for _, command := range []string{"registry", "remove"} {
			_, _, err := r.dns(command)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.files()).To(Equal(before))
		}
	})
}

func TestTheResolverAsksForTheZone(t *testing.T) {
	const dropIn = "systemd/resolved.conf.d/provider-local.conf"
	for name, test := range map[string]struct {
		resolvConf, servers, variant, system string
		// path and lines are of the file that is written, or of the block in hosts.
		path, lines string
		restarts    bool
	}{
		"systemd-resolved":                {stubbed, "", "single", "Linux", dropIn, "[Resolve]\nDNS=172.18.255.53\nDomains=~local.gardener.cloud\n", true},
		"systemd-resolved, only IPv6":     {stubbed, "", "ipv6", "Linux", dropIn, "[Resolve]\nDNS=fd00:ff::53\nDomains=~local.gardener.cloud\n", true},
		"macOS":                           {"", "", "single", "Darwin", "resolver/local.gardener.cloud", "nameserver 172.18.255.53\nport 53\n", false},
		"systemd-resolved with servers":   {stubbed, " 192.0.2.7", "single", "Linux", "hosts", "127.0.0.1 registry.local.gardener.cloud\n172.18.255.1 api.local.local.gardener.cloud\n172.18.255.3 api.virtual-garden.local.gardener.cloud\n# END provider-local\n", false},
		"systemd-resolved that is unused": {"nameserver 192.0.2.1\n", "", "zones", "Linux", "hosts", "127.0.0.1 registry.local.gardener.cloud\n172.18.255.1 api.local.local.gardener.cloud\n172.18.255.3 api.virtual-garden.local.gardener.cloud\n# END provider-local\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := newResolving(t, usualHosts, test.resolvConf)
			g.Expect(os.Remove(filepath.Join(r.bin, "uname"))).To(Succeed())
			r.script("uname", "echo "+test.system)
			r.script("dscacheutil", "echo name: x")
			r.write(filepath.Join(r.state, "servers"), test.servers)
			r.write(filepath.Join(r.root, ".kind", "cluster"), test.variant+"\n")
			before := r.files()
			for range 2 {
				out, calls, err := r.dns("setup")
				g.Expect(err).NotTo(HaveOccurred(), out)
				g.Expect(r.files()[test.path]).To(HaveSuffix("\n" + test.lines))
				g.Expect(out).To(ContainSubstring(filepath.Join(r.etc, test.path)), "it says where it writes")
				g.Expect(strings.Contains(calls, "systemctl try-reload-or-restart systemd-resolved")).To(Equal(test.restarts))
				// From now on it is in use.
				if test.restarts {
					r.write(filepath.Join(r.state, "servers"), " "+strings.TrimPrefix(strings.Fields(test.lines)[1], "DNS="))
				}
			}
			out, calls, err := r.dns("remove")
			g.Expect(err).NotTo(HaveOccurred(), out)
			g.Expect(r.files()).To(Equal(before), "to the folder")
			g.Expect(strings.Contains(calls, "systemctl")).To(Equal(test.restarts))
		})
	}
}

func TestWhatIsNotOursStays(t *testing.T) {
	const dropIn = "systemd/resolved.conf.d/provider-local.conf"
	t.Run("a file of that name", func(t *testing.T) {
		g := NewWithT(t)
		r := newResolving(t, usualHosts, stubbed)
		r.write(filepath.Join(r.etc, dropIn), "[Resolve]\nDNS=192.0.2.1\n")
		before := r.files()
		out, calls, err := r.dns("setup")
		g.Expect(err).To(HaveOccurred())
		g.Expect(out).To(ContainSubstring(dropIn + " is not from here, so it stays as it is: move it away"))
		_, _, err = r.dns("remove")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(r.files()).To(Equal(before))
		g.Expect(calls).NotTo(ContainSubstring("systemctl"))
	})
	t.Run("a folder that was there, or that others use", func(t *testing.T) {
		g := NewWithT(t)
		r := newResolving(t, usualHosts, stubbed)
		_, _, err := r.dns("setup")
		g.Expect(err).NotTo(HaveOccurred())
		r.write(filepath.Join(r.etc, filepath.Dir(dropIn), "theirs.conf"), "")
		_, _, err = r.dns("remove")
		g.Expect(err).NotTo(HaveOccurred())
		before := r.files()
		g.Expect(before).To(HaveKey("systemd/resolved.conf.d/theirs.conf"))
		for _, command := range []string{"setup", "remove"} {
			_, _, err = r.dns(command)
			g.Expect(err).NotTo(HaveOccurred())
		}
		g.Expect(r.files()).To(Equal(before))
	})
}

func TestTheResolverIsSetUpOnceThereAreNames(t *testing.T) {
	for name, test := range map[string]struct{ prepare, says string }{
		"no cluster":            {`rm "$ROOT/.kind/cluster"`, "type 'make kind-up gardener-up' first"},
		"no kubectl":            {`rm "$ROOT/bin/landscape/kubectl"`, "type 'make gardener-up' first"},
		"no names":              {`: >"$STATE/records"`, "type 'make gardener-up' first"},
		"nobody who knows them": {`: >"$STATE/unresolved"`, "dns remove' takes back the change"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			r := newResolving(t, usualHosts, stubbed)
			before := r.files()
			prepare := exec.CommandContext(t.Context(), "bash", "-c", test.prepare) // #nosec G204 -- from the table
			prepare.Env = slices.Concat(r.env, []string{"ROOT=" + r.root})
			g.Expect(prepare.Run()).To(Succeed())
			out, _, err := r.dns("setup")
			g.Expect(err).To(HaveOccurred())
			g.Expect(out).To(ContainSubstring(test.says))
			_, _, err = r.dns("remove")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.files()).To(Equal(before))
		})
	}
}
