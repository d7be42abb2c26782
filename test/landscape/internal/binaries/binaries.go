// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package binaries builds the programs of the landscape from the Go module proxy. Modules below modules/ do nothing but pin
// them. One module, programs, pins most of them: Go compiles a package once for each combination of versions of what it
// imports, so programs share packages only if they have the same versions of them. An upstream project whose requirements
// contradict those of programs has a module of its own, with the same versions wherever it compiles with them. A program is
// built again only if its module's pins, its flags, the Go version or sources on this machine changed; Go's build cache then has
// all but what changed.
package binaries

import (
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/modfile"
	"golang.org/x/mod/semver"
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
	// Versions are the linker variables that take the version, or, if named gitMajor or gitMinor, that part of it.
	Versions []string
	// Called is the version by which it calls itself; empty for that of Module.
	Called string
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
	version = cmp.Or(p.Called, version)
	major, minor, _ := strings.Cut(strings.TrimPrefix(semver.MajorMinor(version), "v"), ".")
	parts := map[string]string{".gitMajor": major, ".gitMinor": minor}
	flags := []string{"-s", "-w"}
	for _, variable := range p.Versions {
		flags = append(flags, "-X", variable+"="+cmp.Or(parts[filepath.Ext(variable)], version))
	}
	return strings.Join(flags, " "), nil
}

// Build makes sure that the program is there and up to date, and reports whether it had to be built.
func (b Builder) Build(ctx context.Context, p Program) (bool, error) {
	flags, err := p.LinkerFlags()
	if err != nil {
		return false, err
	}
	replaced, err := p.hasReplacement()
	if err != nil {
		return false, err
	}
	digest, err := p.digest(flags)
	if err != nil {
		return false, err
	}
	out, stamp := filepath.Join(b.Out, p.Name), filepath.Join(b.Out, ".stamps", p.Name)
	if last, err := os.ReadFile(stamp); err == nil && string(last) == digest && !replaced { // #nosec G304 -- build output.
		if _, err := os.Stat(out); err == nil {
			return false, nil
		}
	}
	made := out + ".new"
	built, err := offer(out, made)
	if err != nil {
		return false, fmt.Errorf("building %s: %w", p.Name, err)
	}
	if err := goBuild(ctx, b.Invoker, p.Dir, p.environment(), "-tags", p.Tags, "-ldflags", flags, "-o", made, p.Package); err != nil {
		return false, fmt.Errorf("building %s (%s in %s): %w", p.Name, p.Package, p.Dir, err)
	}
	changed, err := replace(made, out, built)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(stamp), 0o755) // #nosec G301 -- build output.
	}
	if err == nil {
		err = os.WriteFile(stamp, []byte(digest), 0o644) // #nosec G306 -- build output.
	}
	if err != nil {
		return false, fmt.Errorf("building %s: %w", p.Name, err)
	}
	return changed, nil
}

// goBuild runs go build. Its error has what the compiler says.
func goBuild(ctx context.Context, user invoker.Invoker, folder string, environment []string, arguments ...string) error {
	// With the commit in them, programs of this repository would change with each.
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-buildvcs=false"}, arguments...)...) // #nosec G204 -- from the table of programs.
	cmd.Dir, cmd.Env = folder, environment
	if output, err := user.Run(cmd).CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		return fmt.Errorf("%w\n%s", err, strings.Join(lines[max(0, len(lines)-15):], "\n"))
	}
	return nil
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
		_, err = replace(made, filepath.Join(b.Out, name), time.Time{})
	}
	if err != nil {
		return fmt.Errorf("keeping a copy of this program: %w", err)
	}
	return nil
}

// offer links the program of the last build, if there is one, to where Go builds the next: Go sees by it whether anything has
// changed. It returns when the last one was built.
func offer(out, made string) (built time.Time, err error) {
	if err := os.Remove(made); err != nil && !errors.Is(err, os.ErrNotExist) {
		return built, err
	}
	if info, err := os.Stat(out); err == nil {
		built = info.ModTime()
		// Where there are no hard links, Go makes the program anew, which takes longer.
		_ = os.Link(out, made)
	}
	return built, nil
}

// replace puts made in the place of out unless they are the same program, and reports whether they differed. One that stays keeps
// its time: Go touches what is up to date, and the processes that run it would be restarted.
func replace(made, out string, built time.Time) (bool, error) {
	if exec.Command("cmp", "-s", made, out).Run() == nil { // #nosec G204 //nolint:noctx // takes a moment
		return false, errors.Join(os.Remove(made), os.Chtimes(out, time.Time{}, built))
	}
	return true, os.Rename(made, out)
}

// digest sums up what a program is built of: the versions that its module pins, or the files below Dir that Go may read for it. To
// ask Go which of them it does read takes seconds per program, and minutes where the processor is emulated.
func (p Program) digest(flags string) (string, error) {
	isInput := IsSource
	if p.Module != "" {
		isInput = func(name string, _ bool) bool { return name == "go.mod" || name == "go.sum" }
	}
	hash := sha256.New()
	_, _ = fmt.Fprintf(hash, "%s %s %s %s %s\n", runtime.Version(), runtime.GOARCH, p.Package, flags, p.Tags)
	tree := os.DirFS(p.Dir)
	err := fs.WalkDir(tree, ".", func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || name == ".":
			return err
		case !isInput(name, entry.IsDir()):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case !entry.Type().IsRegular():
			return nil
		}
		content, err := fs.ReadFile(tree, name)
		_, _ = fmt.Fprintf(hash, "%s %d\n%s", name, len(content), content)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("building %s: reading %s: %w", p.Name, p.Dir, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
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
				Name: p.Name, Dir: filepath.Join(root, "test", "landscape", entry.Folder), Package: p.Package, Module: entry.Module,
				Called: entry.Version, Versions: entry.Versions, Optional: entry.Optional, Tags: entry.Tags,
			}
			if entry.Version != "" {
				program.Name += "-" + entry.Version
			}
			programs = append(programs, program)
		}
	}
	return programs
}
