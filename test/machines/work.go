// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Clone is where a machine has the repository.
const Clone = "/home/dev/provider-local"

// workSize is that of the disk with the clone, which is sparse.
const workSize = "40G"

// unpack completes the clone after the first boot. mke2fs keeps times to the second; by these alone, everything would count as
// changed since it was built. Git has to see the same files as before.
const unpack = `set -e
cd ` + Clone + `
tar -xf ../tree.tar
rm ../tree.tar
while read -r time path; do touch -d "@$time" "$path"; done <../times`

// kept are the folders below bin/ that spare a machine what this one has done.
var kept = []string{"landscape", "registry", "machine-image", "image-bases"}

// Work returns a disk with the home of the user dev: a clone of the repository as it is now, with the programs and images that
// are in its bin/, and what Go needs to find that `landscape` is up to date. It is made again when any of these changed.
func (s Store) Work(ctx context.Context, repository string) (string, error) {
	listed, err := output(ctx, "git", "-C", repository, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
	if err != nil {
		return "", err
	}
	sources := slices.DeleteFunc(strings.Split(strings.Trim(listed, "\x00"), "\x00"), func(name string) bool {
		_, err := os.Lstat(filepath.Join(repository, name))
		return err != nil // deleted and not committed
	})
	head, err := output(ctx, "git", "-C", repository, "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	var built []string
	for _, folder := range kept {
		err := filepath.WalkDir(filepath.Join(repository, "bin", folder), func(path string, entry fs.DirEntry, err error) error {
			if errors.Is(err, os.ErrNotExist) {
				return nil
			}
			// This one is built below, as the clone's Git is in it.
			if err == nil && !entry.IsDir() && path != filepath.Join(repository, "bin", "landscape", "landscape") {
				built = append(built, strings.TrimPrefix(path, repository+"/"))
			}
			return err
		})
		if err != nil {
			return "", fmt.Errorf("making the disk with the clone: %w", err)
		}
	}
	if !slices.Contains(built, "bin/landscape/kube-apiserver") {
		return "", errors.New("bin/landscape has no programs; run `make up UNTIL=binaries` first, which builds them")
	}
	var times strings.Builder
	for _, path := range built {
		info, err := os.Lstat(filepath.Join(repository, path))
		if err != nil {
			return "", fmt.Errorf("making the disk with the clone: %w", err)
		}
		// The second part counts for programs only: of the registry there are thousands of files.
		if strings.HasPrefix(path, "bin/landscape/") {
			_, _ = fmt.Fprintf(&times, "%d.%09d %s\n", info.ModTime().Unix(), info.ModTime().Nanosecond(), path)
		}
	}
	key := sha256.New()
	_, _ = fmt.Fprintln(key, unpack, workSize, head)
	for _, path := range slices.Concat(sources, built) {
		info, err := os.Lstat(filepath.Join(repository, path))
		if err != nil {
			return "", fmt.Errorf("making the disk with the clone: %w", err)
		}
		_, _ = fmt.Fprintln(key, path, info.Size(), info.ModTime().UnixNano())
	}
	disk := filepath.Join(s.Folder, "work-"+hex.EncodeToString(key.Sum(nil)[:6])+".img")
	if _, err := os.Stat(disk); err == nil {
		return disk, nil
	}

	begin := time.Now()
	s.Report("making the disk with the clone")
	old, err := filepath.Glob(filepath.Join(s.Folder, "work*"))
	if err != nil {
		return "", err
	}
	for _, path := range old {
		if err := os.RemoveAll(path); err != nil {
			return "", fmt.Errorf("removing an old disk: %w", err)
		}
	}
	home := filepath.Join(s.Folder, "work")
	defer func() { _ = os.RemoveAll(home) }()
	if err := s.fill(ctx, repository, home, sources, built, times.String()); err != nil {
		return "", err
	}
	if err := Mke2fs(ctx, home, disk+".part", workSize); err != nil {
		return "", err
	}
	if err := os.Rename(disk+".part", disk); err != nil {
		return "", fmt.Errorf("making the disk with the clone: %w", err)
	}
	s.Report("made it in %.0fs", time.Since(begin).Seconds())
	return disk, nil
}

// fill writes what the disk is made of into the folder home.
func (s Store) fill(ctx context.Context, repository, home string, sources, built []string, times string) error {
	clone := filepath.Join(home, filepath.Base(Clone))
	if err := run(ctx, "git", "clone", "-q", "--no-hardlinks", repository, clone); err != nil {
		return err
	}
	// The files as they are, committed or not, with their times.
	tree := filepath.Join(home, "tree.tar")
	list := filepath.Join(home, "list")
	if err := os.WriteFile(list, []byte(strings.Join(sources, "\x00")), 0o600); err != nil {
		return fmt.Errorf("copying the clone: %w", err)
	}
	for _, command := range [][]string{
		{"find", clone, "-mindepth", "1", "-maxdepth", "1", "!", "-name", ".git", "-exec", "rm", "-rf", "{}", "+"},
		{"tar", "-C", repository, "--format=posix", "--null", "--verbatim-files-from", "-T", list, "-cf", tree},
		{"tar", "-C", clone, "-xf", tree},
		{"rm", list},
	} {
		if err := run(ctx, command[0], command[1:]...); err != nil {
			return err
		}
	}
	for _, path := range built {
		target := filepath.Join(clone, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(target), 0o755), os.Link(filepath.Join(repository, path), target)); err != nil { // #nosec G301 -- build output.
			return fmt.Errorf("copying what is built: %w", err)
		}
	}
	if err := os.WriteFile(filepath.Join(home, "times"), []byte(times), 0o644); err != nil { // #nosec G306 -- nothing secret.
		return fmt.Errorf("copying what is built: %w", err)
	}
	return s.warm(ctx, clone, home)
}

// warm builds `landscape` as the Makefile does, in the clone that the machine has, and copies what Go reads to find it up to
// date: compiled packages and the modules that they are of.
func (s Store) warm(ctx context.Context, clone, home string) error {
	cache := filepath.Join(s.Folder, "go-build")
	goCommand := func(args ...string) (string, error) {
		return output(ctx, "env", slices.Concat([]string{"GOFLAGS=", "GOWORK=off", "CGO_ENABLED=0", "GOCACHE=" + cache, "go"}, args)...)
	}
	module := filepath.Join(clone, "test", "landscape")
	if _, err := goCommand("build", "-C", module, "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(clone, "bin", "landscape", "landscape"), "."); err != nil {
		return err
	}
	listed, err := goCommand("list", "-C", module, "-deps", "-f", "{{with .Module}}{{.Dir}}{{end}}", ".")
	if err != nil {
		return err
	}
	modules, err := goCommand("env", "GOMODCACHE")
	if err != nil {
		return err
	}
	modules = strings.TrimSpace(modules)
	var names bytes.Buffer
	for _, folder := range slices.Compact(slices.Sorted(strings.Lines(listed))) {
		if name, found := strings.CutPrefix(strings.TrimSpace(folder), modules+"/"); found {
			names.WriteString(name + "\x00")
		}
	}
	// Of all other modules Go reads no more than what they require.
	err = filepath.WalkDir(filepath.Join(modules, "cache", "download"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && slices.Contains([]string{".mod", ".info", ".ziphash"}, filepath.Ext(path)) {
			names.WriteString(strings.TrimPrefix(path, modules+"/") + "\x00")
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("copying modules: %w", err)
	}
	list := filepath.Join(home, "modules")
	target := filepath.Join(home, "go", "pkg", "mod")
	if err := errors.Join(os.MkdirAll(target, 0o755), os.MkdirAll(filepath.Join(home, ".cache"), 0o755), os.WriteFile(list, names.Bytes(), 0o600)); err != nil { // #nosec G301 -- a home.
		return fmt.Errorf("copying modules: %w", err)
	}
	for _, command := range []string{
		fmt.Sprintf("tar -C %s --null --verbatim-files-from -T %s -c | tar -C %s -x", quote(modules), quote(list), quote(target)),
		"rm " + quote(list),
		fmt.Sprintf("cp -a %s %s", quote(cache), quote(filepath.Join(home, ".cache", "go-build"))),
	} {
		if err := run(ctx, "bash", "-o", "pipefail", "-c", command); err != nil {
			return err
		}
	}
	return nil
}
