// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package binaries builds the programs of the landscape from the Go module proxy. Modules below modules/ do nothing but pin
// them. One module, programs, pins most of them: Go compiles a package once for each combination of versions of what it
// imports, so programs share packages only if they have the same versions of them. An upstream project whose requirements
// contradict those of programs has a module of its own, with the same versions wherever it compiles with them. A program is
// built again only if its module's pins, its flags or the Go version changed, or the files of a folder that replaces a module;
// Go's build cache then has all but what changed.
package binaries

import (
	"bytes"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/mod/modfile"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/invoker"
)

// Program is something to build.
type Program struct {
	// Name is the file's name in the output folder.
	Name string
	// Dir is the folder of the module that pins it.
	Dir string
	// Package is what to build, inside of Dir.
	Package string
	// Versions are the linker variables that take the version of Module, or, as VARIABLE=VALUE, something else.
	Versions []string
	// Module is the upstream module whose version counts; empty for sources of this repository.
	Module string
	// Tags are those of the build, with commas.
	Tags string
	// Downloaded is whether Dir is in Go's module cache: of a vendor folder that has only a part.
	Downloaded bool
	// Optional is the name by which it is asked for; empty for a program that is always built.
	Optional string
}

// Builder builds programs into Out, as Invoker.
type Builder struct {
	Out     string
	Invoker invoker.Invoker
}

// Tree sums up names, sizes and times of the files below root that Go may read for a program of the module there. To ask Go which
// of them it does read takes seconds per program, and minutes where the processor is emulated.
func Tree(root string) (string, error) {
	hash := sha256.New()
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && !IsSource(name, true) {
				return filepath.SkipDir
			}
			return nil
		}
		if !IsSource(name, false) {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		_, _ = fmt.Fprintf(hash, "%s %d %d\n", name, info.Size(), info.ModTime().UnixNano())
		return nil
	})
	if err != nil {
		return "", fmt.Errorf("looking at the sources below %s: %w", root, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// IsSource reports whether a program may be made of a file of that name, or of one in a folder of that name.
func IsSource(name string, isFolder bool) bool {
	switch {
	// In a worktree of Git's, .git is a file.
	case strings.HasPrefix(name, "."):
		return false
	case isFolder:
		return name != "bin" && name != "docs"
	}
	ext := filepath.Ext(name)
	return !strings.HasSuffix(name, "_test.go") && ext != ".test" && ext != ".out"
}

// module reads the program's go.mod.
func (p Program) module() (*modfile.File, error) {
	path := filepath.Join(p.Dir, "go.mod")
	content, err := os.ReadFile(path) // #nosec G304 -- a file of this repository.
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", p.Name, err)
	}
	mod, err := modfile.Parse(path, content, nil)
	if err != nil {
		return nil, fmt.Errorf("building %s: %w", p.Name, err)
	}
	return mod, nil
}

// hasReplacement reports whether a module is replaced by a folder elsewhere, such as a checkout of Gardener, whose files change
// without a change of go.mod.
func (p Program) hasReplacement() (bool, error) {
	mod, err := p.module()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(mod.Replace, func(replace *modfile.Replace) bool {
		return replace.New.Version == "" && !filepath.IsLocal(replace.New.Path)
	}), nil
}

// Version returns the version of the upstream module that the program's module pins, or "" for our own sources.
func (p Program) Version() (string, error) {
	if p.Module == "" {
		return "", nil
	}
	mod, err := p.module()
	if err != nil {
		return "", err
	}
	for _, require := range mod.Require {
		if require.Mod.Path == p.Module {
			return require.Mod.Version, nil
		}
	}
	return "", fmt.Errorf("building %s: %s does not require %s", p.Name, filepath.Join(p.Dir, "go.mod"), p.Module)
}

// LinkerFlags are stripped symbols and the version variables. They must never vary without need: the Go build cache is
// worth many minutes.
func (p Program) LinkerFlags() (string, error) {
	version, err := p.Version()
	if err != nil {
		return "", err
	}
	flags := []string{"-s", "-w"}
	for _, variable := range p.Versions {
		if !strings.Contains(variable, "=") {
			variable += "=" + version
		}
		flags = append(flags, "-X", variable)
	}
	return strings.Join(flags, " "), nil
}

// Build makes sure that the program is there and up to date, and reports whether it had to be built.
func (b Builder) Build(ctx context.Context, p Program) (bool, error) {
	flags, err := p.LinkerFlags()
	if err != nil {
		return false, err
	}
	out := filepath.Join(b.Out, p.Name)
	replaced, err := p.hasReplacement()
	if err != nil {
		return false, err
	}
	// While the tree stays as it is, Go is not asked.
	tree := ""
	if p.Module == "" && !replaced {
		if tree, err = Tree(p.Dir); err != nil {
			return false, err
		}
		tree = fmt.Sprintf("%s %s %s %s %s", runtime.Version(), runtime.GOARCH, p.Package, flags, tree)
	}
	stampedDigest, stampedTree := b.stamped(out, p.Name)
	if tree != "" && tree == stampedTree {
		return false, nil
	}
	digest, err := p.digest(ctx, flags+p.Tags, b.Invoker, p.Module == "" || replaced)
	if err != nil {
		return false, err
	}
	if digest == stampedDigest {
		if tree == "" {
			return false, nil
		}
		return false, b.stamp(p.Name, digest, tree)
	}
	// Not to out: go build touches a file even if it has nothing to change, and the processes that run it would be restarted.
	made := out + ".new"
	cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags", p.Tags, "-ldflags", flags, "-o", made, p.Package) // #nosec G204 -- from the table of programs.
	cmd.Dir, cmd.Env = p.Dir, p.environment()
	b.Invoker.Run(cmd)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Run(); err != nil {
		return false, fmt.Errorf("building %s (%s in %s): %w\n%s", p.Name, p.Package, p.Dir, err, tail(output.String(), 15))
	}
	changed, err := replace(made, out)
	if err != nil {
		return false, fmt.Errorf("building %s: %w", p.Name, err)
	}
	return changed, b.stamp(p.Name, digest, tree)
}

// Keep copies the running program to the folder of programs: children are started from there, as the file that "go run" made
// is gone when it ends.
func (b Builder) Keep(name string) error {
	made := filepath.Join(b.Out, name+".new")
	content, err := os.ReadFile("/proc/self/exe")
	if err == nil {
		err = os.WriteFile(made, content, 0o755) // #nosec G306 -- a program.
	}
	if err == nil {
		_, err = replace(made, filepath.Join(b.Out, name))
	}
	if err != nil {
		return fmt.Errorf("keeping a copy of this program: %w", err)
	}
	return nil
}

// replace puts made in the place of out unless they are the same, and reports whether they differed.
func replace(made, out string) (bool, error) {
	same, err := equal(made, out)
	if err != nil {
		return false, err
	}
	if same {
		return false, os.Remove(made)
	}
	return true, os.Rename(made, out)
}

func equal(a, b string) (bool, error) {
	var sums [2][]byte
	for i, path := range []string{a, b} {
		file, err := os.Open(path) // #nosec G304 -- build output.
		if i == 1 && errors.Is(err, os.ErrNotExist) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		hash := sha256.New()
		_, err = io.Copy(hash, file)
		if err = errors.Join(err, file.Close()); err != nil {
			return false, err
		}
		sums[i] = hash.Sum(nil)
	}
	return bytes.Equal(sums[0], sums[1]), nil
}

func (b Builder) stampPath(name string) string { return filepath.Join(b.Out, ".stamps", name) }

// stamp notes of what a program was built: a line with the digest of its inputs, and one with the tree that they were in.
func (b Builder) stamp(name, digest, tree string) error {
	path := b.stampPath(name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { // #nosec G301 -- build output.
		return fmt.Errorf("building %s: %w", name, err)
	}
	if err := os.WriteFile(path, []byte(strings.TrimSuffix(digest+"\n"+tree, "\n")), 0o644); err != nil { // #nosec G306 -- build output.
		return fmt.Errorf("building %s: %w", name, err)
	}
	return nil
}

// stamped returns both lines; they are empty if the program is not there.
func (b Builder) stamped(out, name string) (digest, tree string) {
	if _, err := os.Stat(out); err != nil {
		return "", ""
	}
	stamp, err := os.ReadFile(b.stampPath(name))
	if err != nil {
		return "", ""
	}
	digest, tree, _ = strings.Cut(string(stamp), "\n")
	return digest, tree
}

// digest sums up what a program is built of: with its sources, or only the versions that go.mod and go.sum pin.
func (p Program) digest(ctx context.Context, flags string, user invoker.Invoker, sources bool) (string, error) {
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%s %s %s %s\n", runtime.Version(), runtime.GOARCH, p.Package, flags)
	for _, name := range []string{"go.mod", "go.sum"} {
		content, err := os.ReadFile(filepath.Join(p.Dir, name)) // #nosec G304 -- a file of this repository.
		if errors.Is(err, os.ErrNotExist) && name == "go.sum" {
			continue
		}
		if err != nil {
			return "", fmt.Errorf("building %s: %w", p.Name, err)
		}
		_, _ = hash.Write(content)
	}
	if sources {
		if err := p.sources(ctx, hash, user); err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// sources writes the files that the compiler reads for the program to hash, as far as no go.sum vouches for them. Asking which
// these are is a matter of a moment; to link the program, only to see that nothing has changed, is not.
func (p Program) sources(ctx context.Context, hash io.Writer, user invoker.Invoker) error {
	cmd := exec.CommandContext(ctx, "go", "list", "-deps", "-json=Dir,Standard,Module,GoFiles,SFiles,EmbedFiles", p.Package) // #nosec G204 -- from the table of programs.
	cmd.Dir, cmd.Env = p.Dir, p.environment()
	user.Run(cmd)
	var output bytes.Buffer
	cmd.Stderr = &output
	listed, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("building %s (%s in %s): %w\n%s", p.Name, p.Package, p.Dir, err, tail(output.String(), 15))
	}
	for decoder := json.NewDecoder(bytes.NewReader(listed)); ; {
		var pkg struct {
			Dir      string
			Standard bool
			Module   struct {
				Version string
				Replace *struct{ Version string }
			}
			GoFiles, SFiles, EmbedFiles []string
		}
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("building %s: %w", p.Name, err)
		}
		if replaced := pkg.Module.Replace; pkg.Standard || (pkg.Module.Version != "" && (replaced == nil || replaced.Version != "")) {
			continue
		}
		for _, name := range slices.Concat(pkg.GoFiles, pkg.SFiles, pkg.EmbedFiles) {
			content, err := os.ReadFile(filepath.Join(pkg.Dir, name)) // #nosec G304 -- a file of this repository.
			if err != nil {
				return fmt.Errorf("building %s: %w", p.Name, err)
			}
			_, _ = fmt.Fprintf(hash, "%s %d\n%s", name, len(content), content)
		}
	}
}

// environment is that of the Go commands. Without cgo a program is one static file, which an image from scratch and any node
// can run.
func (p Program) environment() []string {
	environment := append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	if p.Downloaded {
		environment = append(environment, "GOFLAGS="+os.Getenv("GOFLAGS")+" -mod=readonly")
	}
	return environment
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

//go:embed programs.yaml
var table []byte

// Programs lists everything that the landscape builds, in the order in which it is built. root is the repository's folder.
func Programs(root string) []Program {
	var entries []struct {
		Folder, Module, Version, Optional, Tags string
		Versions                                []string
		Programs                                []struct{ Name, Package string }
	}
	if err := yaml.UnmarshalStrict(table, &entries); err != nil {
		// The file is a part of this program.
		panic(fmt.Errorf("reading programs.yaml: %w", err))
	}
	var programs []Program
	for _, entry := range entries {
		for _, p := range entry.Programs {
			program := Program{
				Name: p.Name, Dir: filepath.Join(root, "test", "landscape", entry.Folder), Package: p.Package, Module: entry.Module, Optional: entry.Optional, Tags: entry.Tags,
			}
			for _, variable := range entry.Versions {
				if entry.Version != "" && !strings.Contains(variable, "=") {
					variable += "=" + entry.Version
				}
				program.Versions = append(program.Versions, variable)
			}
			if entry.Version != "" {
				program.Name += "-" + entry.Version
			}
			programs = append(programs, program)
		}
	}
	return programs
}
