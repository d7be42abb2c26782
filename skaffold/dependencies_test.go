// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package skaffold_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

// list runs the script in a repository, as Skaffold does, and returns what it prints.
func list(t *testing.T, root string, command string) []string {
	t.Helper()
	g := NewWithT(t)
	args := strings.Fields(command)
	cmd := exec.CommandContext(t.Context(), args[0], args[1:]...) // #nosec G204 -- the script beside this test
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off")
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	g.Expect(err).NotTo(HaveOccurred(), log.String())
	var files []string
	g.Expect(json.Unmarshal(out, &files)).To(Succeed())
	return files
}

// newRepository is a small one with the script, a program, the builder, and a module of an image.
func newRepository(t *testing.T) string {
	t.Helper()
	g := NewWithT(t)
	root := t.TempDir()
	script, err := os.ReadFile("dependencies")
	g.Expect(err).NotTo(HaveOccurred())
	write(t, root, map[string]string{
		"go.mod":                         "module example.com/it\n\ngo 1.26\n",
		"go.sum":                         "",
		"program/main.go":                "package main\n\nimport (\n\t\"embed\"\n\n\t\"example.com/it/pkg/used\"\n)\n\n//go:embed files\nvar files embed.FS\n\nfunc main() { used.Do(files) }\n",
		"program/main_test.go":           "package main\n\nimport _ \"example.com/it/pkg/unused\"\n",
		"program/main_windows.go":        "package main\n",
		"program/files/one.yaml":         "a: b\n",
		"program/files/sub/two.tpl":      "{{ . }}\n",
		"program/files/_hidden.txt":      "not embedded\n",
		"program/notes.txt":              "not embedded\n",
		"pkg/used/used.go":               "package used\n\nimport (\n\t\"embed\"\n)\n\n//go:embed *.json\nvar text string\n\nfunc Do(embed.FS) string { return text }\n",
		"pkg/used/schema.json":           "{}\n",
		"pkg/used/testdata/in.json":      "{}\n",
		"pkg/unused/unused.go":           "package unused\n",
		"skaffold/publish/main.go":       "package main\n\nfunc main() {}\n",
		"skaffold/images/other/go.mod":   "module example.com/other\n\ngo 1.26\n",
		"skaffold/images/other/go.sum":   "",
		"skaffold/images/other/main.go":  "package main\n\nimport _ \"embed\"\n\n//go:embed Corefile\nvar corefile string\n\nfunc main() { println(corefile) }\n",
		"skaffold/images/other/Corefile": ".\n",
	})
	g.Expect(os.WriteFile(filepath.Join(root, "skaffold", "dependencies"), script, 0o700)).To(Succeed()) // #nosec G306 -- a script
	return root
}

func write(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, name)
		NewWithT(t).Expect(os.MkdirAll(filepath.Dir(path), 0o700)).To(Succeed())
		NewWithT(t).Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	}
}

func TestAChangeIsOneOfAFileThatTheProgramIsMadeOf(t *testing.T) {
	g := NewWithT(t)
	root := newRepository(t)
	const command = "skaffold/dependencies ./program"
	files := []any{
		"go.mod", "go.sum", "pkg/used/schema.json", "pkg/used/used.go", "program/files/one.yaml", "program/files/sub/two.tpl", "program/main.go", "skaffold/publish/main.go",
	}
	g.Expect(list(t, root, command)).To(HaveExactElements(files...), "no tests, no other systems, nothing that is not embedded")

	write(t, root, map[string]string{"program/files/three.yaml": "c: d\n", "pkg/unused/more.go": "package unused\n", "program/more.txt": ""})
	g.Expect(list(t, root, command)).To(ConsistOf(append(files, "program/files/three.yaml")...), "a file more is embedded")

	write(t, root, map[string]string{"pkg/used/more.go": "package used\n\nimport _ \"example.com/it/pkg/unused\"\n"})
	g.Expect(list(t, root, command)).To(ConsistOf(append(files, "program/files/three.yaml", "pkg/used/more.go", "pkg/unused/unused.go", "pkg/unused/more.go")...), "a package more is imported")

	for _, name := range []string{"program/files/three.yaml", "pkg/used/more.go"} {
		g.Expect(os.Remove(filepath.Join(root, name))).To(Succeed())
	}
	g.Expect(list(t, root, command)).To(HaveExactElements(files...))

	g.Expect(list(t, root, "skaffold/dependencies -C skaffold/images/other .")).To(HaveExactElements(
		"skaffold/images/other/Corefile", "skaffold/images/other/go.mod", "skaffold/images/other/go.sum", "skaffold/images/other/main.go", "skaffold/publish/main.go"))
}

func TestAChartOfGardenerIsMadeOfAllItsFiles(t *testing.T) {
	g := NewWithT(t)
	root, gardener := newRepository(t), t.TempDir()
	write(t, gardener, map[string]string{"charts/gardenlet/Chart.yaml": "", "charts/gardenlet/templates/a.yaml": "", "charts/operator/Chart.yaml": ""})
	t.Setenv("GARDENER_DIR", gardener)
	g.Expect(list(t, root, "skaffold/dependencies -f charts/gardenlet ./skaffold/publish")).To(ConsistOf(
		filepath.Join(gardener, "charts/gardenlet/Chart.yaml"), filepath.Join(gardener, "charts/gardenlet/templates/a.yaml"), "skaffold/publish/main.go", "go.mod", "go.sum",
	))
}

func TestAProgramThatDoesNotLoadIsAnError(t *testing.T) {
	g := NewWithT(t)
	root := newRepository(t)
	g.Expect(os.RemoveAll(filepath.Join(root, "program", "files"))).To(Succeed())
	cmd := exec.CommandContext(t.Context(), "skaffold/dependencies", "./program")
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	g.Expect(err).To(HaveOccurred(), "an image must not seem unchanged")
	g.Expect(string(out)).To(ContainSubstring("pattern files: no matching files found"))
}

// artifact is what counts here of one in Skaffold's files.
type artifact struct {
	Image, Context string
	Custom         struct {
		BuildCommand string
		Dependencies struct {
			Command string
			Paths   []string
		}
	}
}

func artifacts(t *testing.T) map[string]artifact {
	t.Helper()
	g := NewWithT(t)
	found := map[string]artifact{}
	for _, file := range []string{"skaffold.yaml", "skaffold-virtual-garden.yaml"} {
		content, err := os.ReadFile(file) // #nosec G304 -- a file of this folder
		g.Expect(err).NotTo(HaveOccurred())
		for _, document := range documents(t, content) {
			type build struct{ Artifacts []artifact }
			var config struct {
				Build    build
				Profiles []struct{ Build build }
			}
			g.Expect(yaml.Unmarshal(document, &config)).To(Succeed())
			for _, profile := range append(config.Profiles, struct{ Build build }{config.Build}) {
				for _, artifact := range profile.Build.Artifacts {
					found[artifact.Image] = artifact
				}
			}
		}
	}
	return found
}

func TestTheImagesOfThisRepositoryAreMadeAnewForWhatIsEmbedded(t *testing.T) {
	found := artifacts(t)
	for image, embedded := range map[string][]string{
		"gardener-extension-provider-local":                        {"operator-extension/main.go", "go.mod", "skaffold/publish/main.go"},
		"gardener-extension-provider-local-gardenlet":              {"gardenlet-extension/main.go", "charts/components/coredns/Chart.yaml", "go.sum"},
		"gardener-extension-provider-local-coredns":                {"skaffold/images/coredns/main.go", "skaffold/images/coredns/go.sum"},
		"gardener-extension-provider-local-local-path-provisioner": {"skaffold/images/local-path-provisioner/helper/volume.go", "skaffold/images/local-path-provisioner/go.mod"},
	} {
		t.Run(image, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(found).To(HaveKey(image))
			g.Expect(found[image].Context).To(Equal("."))
			var files []string
			cmd := exec.CommandContext(t.Context(), "bash", "-c", found[image].Custom.Dependencies.Command) // #nosec G204 -- as Skaffold does
			cmd.Dir = ".."
			out, err := cmd.Output()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(json.Unmarshal(out, &files)).To(Succeed())
			for _, file := range embedded {
				g.Expect(files).To(ContainElement(file))
			}
			for _, file := range files {
				g.Expect(file).NotTo(Or(HavePrefix("/"), HaveSuffix("_test.go"), ContainSubstring("testdata/")))
				g.Expect(filepath.Join("..", file)).To(BeARegularFile())
			}
		})
	}
}

func TestPathsOfOtherArtifactsAreThere(t *testing.T) {
	g := NewWithT(t)
	for image, artifact := range artifacts(t) {
		dependencies := artifact.Custom.Dependencies
		g.Expect(dependencies.Command != "" || len(dependencies.Paths) > 0).To(BeTrue(), image)
		for _, path := range dependencies.Paths {
			g.Expect(filepath.Join("..", artifact.Context, path)).To(BeAnExistingFile(), image)
		}
		if name, ok := strings.CutPrefix(image, "charts/"); ok && name != "gardenlet" && name != "networking-calico" {
			g.Expect(dependencies.Paths).To(ContainElement(image), "all of the chart")
		}
	}
}
