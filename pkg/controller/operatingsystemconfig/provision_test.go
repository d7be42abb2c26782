// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files anew")

func inline(path, encoding, data string, change ...func(*extensionsv1alpha1.File)) extensionsv1alpha1.File {
	file := extensionsv1alpha1.File{Path: path, Content: extensionsv1alpha1.FileContent{
		Inline: &extensionsv1alpha1.FileContentInline{Encoding: encoding, Data: data},
	}}
	for _, change := range change {
		change(&file)
	}
	return file
}

func mode(mode uint32) func(*extensionsv1alpha1.File) {
	return func(f *extensionsv1alpha1.File) { f.Permissions = &mode }
}

func clearText(f *extensionsv1alpha1.File) { f.Content.TransmitUnencoded = new(true) }

func host(name string) func(*extensionsv1alpha1.File) {
	return func(f *extensionsv1alpha1.File) { f.HostName = &name }
}

// nodeInit has the files and units that gardenlet gives a pool for provisioning, in short.
func nodeInit() ([]extensionsv1alpha1.File, []extensionsv1alpha1.Unit) {
	return []extensionsv1alpha1.File{
			inline("/var/lib/gardener-node-agent/credentials/bootstrap-token", "", "<<BOOTSTRAP_TOKEN>>", mode(0o640), clearText),
			inline("/var/lib/gardener-node-agent/init.sh", "b64", "IyEvYmluL2Jhc2gKZWNobyBpbml0Cg==", mode(0o755)),
			inline("/var/lib/gardener-node-agent/machine-name", "", "<<MACHINE_NAME>>", mode(0o640), clearText),
			inline("/etc/plain", "", "no permissions given\n"),
			inline("/etc/only-there", "", "one\n", host("worker-0")),
		}, []extensionsv1alpha1.Unit{
			{
				Name:    "gardener-node-init.service",
				Command: new(extensionsv1alpha1.CommandStart),
				Enable:  new(true),
				Content: new("[Unit]\nDescription=Downloads gardener-node-agent\n[Service]\nExecStart=/var/lib/gardener-node-agent/init.sh\n"),
			},
			{Name: "containerd.service", DropIns: []extensionsv1alpha1.DropIn{{Name: "10-limits.conf", Content: "[Service]\nLimitCORE=0\n"}}},
			{Name: "unattended-upgrades.service", Enable: new(false)},
			{Name: "absent.service", Enable: new(false)},
			{Name: "idle.timer", Command: new(extensionsv1alpha1.CommandStop), Content: new("[Timer]\nOnCalendar=daily\n")},
		}
}

func mustRender(t *testing.T, places places, files []extensionsv1alpha1.File, units []extensionsv1alpha1.Unit) []byte {
	t.Helper()
	g := NewWithT(t)
	contents, err := readContents(t.Context(), nil, "", files)
	g.Expect(err).NotTo(HaveOccurred())
	return render(places, files, contents, units)
}

func TestUserDataIsAsInTheGoldenFile(t *testing.T) {
	for name, golden := range map[string]func() ([]extensionsv1alpha1.File, []extensionsv1alpha1.Unit){
		"node-init.sh": nodeInit,
		"empty.sh":     func() ([]extensionsv1alpha1.File, []extensionsv1alpha1.Unit) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			files, units := golden()
			script := mustRender(t, defaultPlaces, files, units)
			path := filepath.Join("testdata", name)
			if *update {
				g.Expect(os.WriteFile(path, script, 0o600)).To(Succeed())
			}
			expected, err := os.ReadFile(path) // #nosec G304 -- of this test.
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(script)).To(Equal(string(expected)), "run the test with -update if that is what you want")
			g.Expect(exec.Command("bash", "-n", path).Run()).To(Succeed())
		})
	}
}

// ground is a folder in which scripts run as in a machine, with a systemctl that only takes notes.
type ground struct {
	t   *testing.T
	dir string
}

// noting is a systemctl that knows all units but absent.service, and writes down what it is to change.
const noting = `if [[ $1 == cat ]]; then [[ $2 != absent.service ]]; else echo "$@" >>"${0%/bin/*}/calls"; fi`

func newGround(t *testing.T) *ground {
	t.Helper()
	dir := t.TempDir()
	for _, sub := range []string{"bin", "root"} {
		NewWithT(t).Expect(os.Mkdir(filepath.Join(dir, sub), 0o700)).To(Succeed())
	}
	g := &ground{t: t, dir: dir}
	g.systemctl(noting)
	return g
}

func (g *ground) systemctl(body string) {
	path := filepath.Join(g.dir, "bin", "systemctl")
	NewWithT(g.t).Expect(os.WriteFile(path, []byte("#!/bin/bash\n"+body+"\n"), 0o700)).To(Succeed()) // #nosec G306 -- is executed.
}

func (g *ground) places() places {
	return places{Units: filepath.Join(g.dir, "units"), Applied: filepath.Join(g.dir, "osc", "applied")}
}

// path is where a file of the machine is.
func (g *ground) path(path string) string { return filepath.Join(g.dir, "root", path) }

func (g *ground) run(files []extensionsv1alpha1.File, units []extensionsv1alpha1.Unit) (string, error) {
	g.t.Helper()
	moved := make([]extensionsv1alpha1.File, 0, len(files))
	for _, file := range files {
		file.Path = g.path(file.Path)
		moved = append(moved, file)
	}
	cmd := exec.CommandContext(g.t.Context(), "bash", "-s") // #nosec G204 -- what the test is about.
	cmd.Stdin = bytes.NewReader(mustRender(g.t, g.places(), moved, units))
	cmd.Dir = g.dir
	cmd.Env = []string{"PATH=" + filepath.Join(g.dir, "bin") + ":" + os.Getenv("PATH")}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (g *ground) calls() []string {
	content, err := os.ReadFile(filepath.Join(g.dir, "calls")) // #nosec G304 -- of this test.
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	NewWithT(g.t).Expect(err).NotTo(HaveOccurred())
	return strings.Split(strings.TrimSpace(string(content)), "\n")
}

func TestUserDataWritesFilesAndActivatesUnits(t *testing.T) {
	g := NewWithT(t)
	ground := newGround(t)
	files, units := nodeInit()
	name, err := os.Hostname()
	g.Expect(err).NotTo(HaveOccurred())
	files = append(files, inline("/etc/only-here", "", "two\n", host(name)))

	out, err := ground.run(files, units)
	g.Expect(err).NotTo(HaveOccurred(), out)

	for path, expected := range map[string]struct {
		content string
		mode    os.FileMode
	}{
		ground.path("/var/lib/gardener-node-agent/credentials/bootstrap-token"):        {"<<BOOTSTRAP_TOKEN>>", 0o640},
		ground.path("/var/lib/gardener-node-agent/init.sh"):                            {"#!/bin/bash\necho init\n", 0o755},
		ground.path("/etc/plain"):                                                      {"no permissions given\n", 0o644},
		ground.path("/etc/only-here"):                                                  {"two\n", 0o644},
		filepath.Join(ground.places().Units, "gardener-node-init.service"):             {*units[0].Content, 0o644},
		filepath.Join(ground.places().Units, "containerd.service.d", "10-limits.conf"): {"[Service]\nLimitCORE=0\n", 0o644},
	} {
		content, err := os.ReadFile(path) // #nosec G304 -- of this test.
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(content)).To(Equal(expected.content), path)
		info, err := os.Stat(path)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(Equal(expected.mode), path)
	}
	g.Expect(ground.path("/etc/only-there")).NotTo(BeAnExistingFile(), "it is of another host")
	g.Expect(ground.calls()).To(Equal([]string{
		"enable --no-reload gardener-node-init.service", "enable --no-reload containerd.service",
		"disable --no-reload unattended-upgrades.service", "enable --no-reload idle.timer",
		"daemon-reload",
		"restart --no-block gardener-node-init.service", "restart --no-block containerd.service", "stop --no-block unattended-upgrades.service", "stop --no-block idle.timer",
	}))
}

func TestUserDataRunsUntilItHasSucceededOnce(t *testing.T) {
	g := NewWithT(t)
	ground := newGround(t)
	files, units := nodeInit()
	ground.systemctl(`[[ $1 != enable ]]`)
	out, err := ground.run(files, units)
	g.Expect(err).To(HaveOccurred(), out)
	g.Expect(ground.places().Applied).NotTo(BeAnExistingFile())

	ground.systemctl(noting)
	out, err = ground.run(files, units)
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(ground.calls()).To(HaveLen(9))

	out, err = ground.run(files, units)
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(out).To(ContainSubstring("has been applied before"))
	g.Expect(ground.calls()).To(HaveLen(9))
}

func TestContentsAreNeverCode(t *testing.T) {
	const hostile = "a'b\"c $(touch pwned) `touch pwned` ${HOME} \\ \nEOF\n'; touch pwned; '\n%s%d"
	for _, encoding := range []struct {
		name   string
		change []func(*extensionsv1alpha1.File)
	}{
		{"in base64", nil},
		{"in the clear", []func(*extensionsv1alpha1.File){clearText}},
	} {
		t.Run(encoding.name, func(t *testing.T) {
			g := NewWithT(t)
			ground := newGround(t)
			out, err := ground.run([]extensionsv1alpha1.File{inline("/etc/hostile", "", hostile, encoding.change...)}, nil)
			g.Expect(err).NotTo(HaveOccurred(), out)
			content, err := os.ReadFile(ground.path("/etc/hostile"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(content)).To(Equal(hostile))
			g.Expect(filepath.Join(ground.dir, "pwned")).NotTo(BeAnExistingFile())
		})
	}
}

func TestNamesAreQuotedEvenIfTheyWereNotChecked(t *testing.T) {
	g := NewWithT(t)
	ground := newGround(t)
	out, err := ground.run(
		[]extensionsv1alpha1.File{inline("/etc/a $(touch pwned)'; touch pwned #", "", "x", mode(0o600), host("'; touch pwned; '"))},
		[]extensionsv1alpha1.Unit{{Name: "a; touch pwned"}, {Name: "$(touch pwned)'`touch pwned`"}},
	)
	g.Expect(err).NotTo(HaveOccurred(), out)
	g.Expect(filepath.Join(ground.dir, "pwned")).NotTo(BeAnExistingFile())
	g.Expect(ground.calls()).To(ContainElement("enable --no-reload a; touch pwned"))
}

func TestAFileInTheWayIsReplacedOnlyIfItIsAFile(t *testing.T) {
	g := NewWithT(t)
	ground := newGround(t)
	g.Expect(os.MkdirAll(ground.path("/etc/taken/inside"), 0o700)).To(Succeed())
	_, err := ground.run([]extensionsv1alpha1.File{inline("/etc/taken", "", "x")}, nil)
	g.Expect(err).To(HaveOccurred())
	g.Expect(ground.places().Applied).NotTo(BeAnExistingFile())
}

func TestAFileThatIsAMountIsWrittenInItsPlace(t *testing.T) {
	g := NewWithT(t)
	ground := newGround(t)
	hosts := ground.path("/etc/hosts")
	g.Expect(os.MkdirAll(filepath.Dir(hosts), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(hosts, []byte("before"), 0o600)).To(Succeed())
	before, err := os.Stat(hosts)
	g.Expect(err).NotTo(HaveOccurred())
	busy := filepath.Join(ground.dir, "bin", "mv")                                     // As the kernel does not rename onto a mount.
	g.Expect(os.WriteFile(busy, []byte("#!/bin/bash\nexit 1\n"), 0o700)).To(Succeed()) // #nosec G306 -- is executed.

	out, err := ground.run([]extensionsv1alpha1.File{inline("/etc/hosts", "", "after")}, nil)
	g.Expect(err).NotTo(HaveOccurred(), out)
	content, err := os.ReadFile(hosts) // #nosec G304 -- of this test.
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(content)).To(Equal("after"))
	after, err := os.Stat(hosts)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.SameFile(before, after)).To(BeTrue())
	g.Expect(hosts + ".new").NotTo(BeAnExistingFile())
}

func TestReadContentsDecodes(t *testing.T) {
	g := NewWithT(t)
	contents, err := readContents(t.Context(), nil, "", []extensionsv1alpha1.File{inline("/a", "", "plain"), inline("/b", "b64", "Y29kZWQ=")})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(bytes.Join(contents, []byte(" ")))).To(Equal("plain coded"))
}

func TestReadContentsRefusesWhatIsNotAsSaid(t *testing.T) {
	for name, test := range map[string]struct {
		file extensionsv1alpha1.File
		err  string
	}{
		"no base64":                {inline("/a", "b64", "!secret!"), `spec.files[0].content: the data is not in the encoding "b64"`},
		"an unknown encoding":      {inline("/a", "rot13", "frperg"), `not in the encoding "rot13"`},
		"a zero byte in the clear": {inline("/a", "b64", "AAE=", clearText), "spec.files[0].content.transmitUnencoded"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := readContents(t.Context(), nil, "", []extensionsv1alpha1.File{test.file})
			g.Expect(err).To(MatchError(And(ContainSubstring(test.err), Not(ContainSubstring("secret!")))))
		})
	}
}
