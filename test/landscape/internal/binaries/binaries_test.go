// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package binaries_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/mod/modfile"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/binaries"
)

// write makes a module that pins itself, so that nothing has to be downloaded.
func write(t *testing.T, dir, source string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/x\n\ngo 1.26.0\n"), 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(dir, "main.go"), []byte(source), 0o600)).To(Succeed())
}

func TestBuildTouchesAProgramOnlyIfItChanges(t *testing.T) {
	for _, system := range []string{"linux", "darwin"} { // A kind cluster may be on macOS.
		t.Run(system, func(t *testing.T) {
			t.Setenv("GOOS", system)
			g := NewWithT(t)
			dir := t.TempDir()
			builder := binaries.Builder{Out: t.TempDir()}
			program := binaries.Program{Name: "x", Dir: dir, Package: "."}
			write(t, dir, "package main\n\nfunc main() {}\n")
			changed, err := builder.Build(t.Context(), program)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(changed).To(BeTrue())
			before, err := os.Stat(filepath.Join(builder.Out, "x"))
			g.Expect(err).NotTo(HaveOccurred())

			g.Expect(os.Remove(filepath.Join(builder.Out, ".stamps", "x"))).To(Succeed(), "Go is asked again")
			changed, err = builder.Build(t.Context(), program)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(changed).To(BeFalse())
			after, err := os.Stat(filepath.Join(builder.Out, "x"))
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(after.ModTime()).To(Equal(before.ModTime()))

			write(t, dir, "package main\n\nfunc main() { println(1) }\n")
			changed, err = builder.Build(t.Context(), program)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(changed).To(BeTrue())
		})
	}
}

func TestBuildSeesAChangeOfAnEmbeddedFile(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	builder := binaries.Builder{Out: t.TempDir()}
	write(t, dir, "package main\n\nimport _ \"embed\"\n\n//go:embed text\nvar text string\n\nfunc main() { print(text) }\n")
	for _, text := range []string{"one", "another"} {
		g.Expect(os.WriteFile(filepath.Join(dir, "text"), []byte(text), 0o600)).To(Succeed())
		changed, err := builder.Build(t.Context(), binaries.Program{Name: "x", Dir: dir, Package: "."})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(changed).To(BeTrue())
		out, err := exec.CommandContext(t.Context(), filepath.Join(builder.Out, "x")).CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(out)).To(Equal(text))
	}
}

func TestGoIsNotAskedWhileTheSourcesAreTheSame(t *testing.T) {
	g := NewWithT(t)
	dir, out := t.TempDir(), t.TempDir()
	program := binaries.Program{Name: "x", Dir: dir, Package: "."}
	build := func() (bool, error) {
		return binaries.Builder{Out: out}.Build(t.Context(), program)
	}
	write(t, dir, "package main\n\nfunc main() {}\n")
	g.Expect(build()).To(BeTrue())

	// Without Go, no question can be answered.
	path := os.Getenv("PATH")
	t.Setenv("PATH", "")
	g.Expect(build()).To(BeFalse())
	for _, name := range []string{"x_test.go", ".git", "bin/x.go", ".landscape/x.go", "docs/x.md"} {
		g.Expect(os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(dir, name), []byte("package main\n"), 0o600)).To(Succeed())
		g.Expect(build()).To(BeFalse(), "%s is no input of a program", name)
	}
	later := time.Now().Add(time.Hour)
	g.Expect(os.Chtimes(filepath.Join(dir, "main.go"), later, later)).To(Succeed())
	g.Expect(build()).To(BeFalse(), "a file has another time, as in another clone")
	g.Expect(os.WriteFile(filepath.Join(dir, "text"), nil, 0o600)).To(Succeed())
	_, err := build()
	g.Expect(err).To(MatchError(ContainSubstring("executable file not found")), "there is another file")

	// Once Go has said that nothing changed, it is not asked again.
	t.Setenv("PATH", path)
	g.Expect(build()).To(BeFalse())
	t.Setenv("PATH", "")
	g.Expect(build()).To(BeFalse())
	g.Expect(os.Remove(filepath.Join(out, "x"))).To(Succeed())
	_, err = build()
	g.Expect(err).To(HaveOccurred(), "the program is not there")
}

func TestBuildSeesAChangeInAReplacedModule(t *testing.T) {
	root := t.TempDir()
	for _, module := range []string{"", "example.com/gardener"} {
		g := NewWithT(t)
		dir, checkout, out := filepath.Join(root, "x"+module), filepath.Join(root, "checkout"), t.TempDir()
		for path, content := range map[string]string{
			filepath.Join(dir, "go.mod"):      "module example.com/x\n\ngo 1.26.0\n\nrequire example.com/gardener v1.0.0\n\nreplace example.com/gardener => " + checkout + "\n",
			filepath.Join(dir, "main.go"):     "package main\n\nimport \"example.com/gardener\"\n\nfunc main() { print(gardener.Text) }\n",
			filepath.Join(checkout, "go.mod"): "module example.com/gardener\n\ngo 1.26.0\n",
		} {
			g.Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
			g.Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
		}
		for _, text := range []string{"one", "another"} {
			g.Expect(os.WriteFile(filepath.Join(checkout, "text.go"), []byte("package gardener\n\nconst Text = \""+text+"\"\n"), 0o600)).To(Succeed())
			builder := binaries.Builder{Out: out}
			program := binaries.Program{Name: "x", Dir: dir, Package: ".", Module: module}
			g.Expect(builder.Build(t.Context(), program)).To(BeTrue())
			g.Expect(builder.Build(t.Context(), program)).To(BeFalse())
			printed, err := exec.CommandContext(t.Context(), filepath.Join(out, "x")).CombinedOutput()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(printed)).To(Equal(text))
		}
	}
}

func TestBuildSaysWhatTheCompilerSays(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	write(t, dir, "package main\n\nfunc main() { nonsense() }\n")
	_, err := binaries.Builder{Out: t.TempDir()}.Build(t.Context(), binaries.Program{Name: "x", Dir: dir, Package: "."})
	g.Expect(err).To(MatchError(And(ContainSubstring("building x"), ContainSubstring("undefined: nonsense"))))
}

func TestVersion(t *testing.T) {
	dir := t.TempDir()
	NewWithT(t).Expect(os.WriteFile(filepath.Join(dir, "go.mod"), []byte("module example.com/x\n\nrequire example.com/y v1.2.3\n"), 0o600)).To(Succeed())
	for _, test := range []struct{ name, module, want, err string }{
		{name: "is that of the pinned module", module: "example.com/y", want: "v1.2.3"},
		{name: "is empty for sources of this repository"},
		{name: "is an error for a module that isn't pinned", module: "example.com/z", err: "does not require example.com/z"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			got, err := binaries.Program{Name: "x", Dir: dir, Module: test.module}.Version()
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(got).To(Equal(test.want))
		})
	}
}

func TestProgramsArePinned(t *testing.T) {
	g := NewWithT(t)
	root, err := filepath.Abs("../../../..")
	g.Expect(err).NotTo(HaveOccurred())
	names := map[string]bool{}
	for _, program := range binaries.Programs(root) {
		g.Expect(names[program.Name]).To(BeFalse(), "%s is built twice", program.Name)
		names[program.Name] = true
		g.Expect(filepath.Join(program.Dir, "go.mod")).To(BeAnExistingFile())
		flags, err := program.LinkerFlags()
		g.Expect(err).NotTo(HaveOccurred(), program.Name)
		g.Expect(flags).To(HavePrefix("-s -w"))
		if program.Module != "" && program.Optional != "autoscaling" && program.Optional != "dependency-watchdog" {
			g.Expect(flags).To(ContainSubstring("=v"), program.Name)
		}
		if strings.HasPrefix(program.Optional, "1.") {
			version, err := program.Version()
			g.Expect(err).NotTo(HaveOccurred(), program.Name)
			g.Expect(program.Name).To(HaveSuffix("-"+version), "programs.yaml has another version than %s", program.Dir)
			g.Expect(version).To(HavePrefix("v" + program.Optional + "."))
			g.Expect(flags).To(And(ContainSubstring("gitVersion="+version), ContainSubstring("gitMinor="+strings.TrimPrefix(program.Optional, "1."))), program.Name)
		}
	}
	for _, name := range []string{"etcd", "kube-apiserver", "kubelet", "gardener-operator", "etcd-druid", "skaffold", "helm", "coredns"} {
		g.Expect(names).To(HaveKey(name))
	}
}

func TestProgramsShareTheirLargestDependencies(t *testing.T) {
	g := NewWithT(t)
	root, err := filepath.Abs("../../../..")
	g.Expect(err).NotTo(HaveOccurred())
	pinned := versions(t, filepath.Join(root, "test", "landscape", "modules", "programs"))
	g.Expect(pinned).To(HaveKeyWithValue("go.yaml.in/yaml/v4", versions(t, root)["go.yaml.in/yaml/v4"]), "gardener-resource-manager reads what "+
		"gardener-operator writes only with Gardener's version, which is the one that the extension has")
	folders := map[string]bool{root: true}
	for _, program := range binaries.Programs(root) {
		// Another minor version of Kubernetes is other code.
		folders[program.Dir] = program.Optional == ""
	}
	for folder, shares := range folders {
		if !shares {
			continue
		}
		for module, version := range versions(t, folder) {
			if slices.Contains(shared, module) {
				g.Expect(version).To(Equal(pinned[module]), "Go compiles client-go once more for the programs of %[1]s. Run: "+
					"go -C %[1]s mod edit -require %[2]s@%[3]s && go -C %[1]s list -mod=mod -deps tool", folder, module, pinned[module])
			}
		}
	}
}

// shared are modules that most packages of k8s.io/client-go depend on, and whose versions are everybody's choice.
var shared = []string{
	"github.com/fxamacker/cbor/v2", "github.com/go-logr/logr", "github.com/json-iterator/go", "go.yaml.in/yaml/v2", "golang.org/x/net",
	"golang.org/x/sys", "golang.org/x/text", "google.golang.org/protobuf", "k8s.io/api", "k8s.io/apimachinery", "k8s.io/client-go", "k8s.io/klog/v2",
	"k8s.io/kube-openapi", "k8s.io/utils", "sigs.k8s.io/controller-runtime", "sigs.k8s.io/structured-merge-diff/v6",
}

// versions returns the versions that the go.mod of a folder requires, each with its replacement if that is another version. With -trimpath,
// a compiled package has the path of the required version, so the build cache has it once for each.
func versions(t *testing.T, folder string) map[string]string {
	t.Helper()
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(folder, "go.mod"))
	g.Expect(err).NotTo(HaveOccurred())
	mod, err := modfile.Parse("go.mod", content, nil)
	g.Expect(err).NotTo(HaveOccurred())
	found := map[string]string{}
	for _, require := range mod.Require {
		found[require.Mod.Path] = require.Mod.Version
	}
	for _, replace := range mod.Replace {
		if required, ok := found[replace.Old.Path]; ok && required != replace.New.Version {
			found[replace.Old.Path] = required + " => " + replace.New.Version
		}
	}
	return found
}
