// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
)

// call runs the helper as local-path-provisioner does, and returns its exit code and what it said on standard error.
func call(t *testing.T, what action, path string, env map[string]string) (int, string) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	args := []string{"-p", path, "-s", "1048576", "-m", "Filesystem", "-a", string(what)}
	code := run(args, func(name string) string { return env[name] }, &stdout, &stderr)
	if code == exitOK {
		NewWithT(t).Expect(stdout.String()).To(Equal(string(what) + " of volume " + path + " is done\n"))
	}
	return code, stderr.String()
}

func TestAVolumeIsAFolderThatAnybodyMayWriteTo(t *testing.T) {
	g := NewWithT(t)
	mask := syscall.Umask(0o077)
	defer syscall.Umask(mask)
	volume := filepath.Join(t.TempDir(), "pvc-1_default_data")

	code, said := call(t, actionCreate, volume, nil)
	g.Expect(code).To(Equal(exitOK), said)
	info, err := os.Lstat(volume)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode()).To(Equal(fs.ModeDir | 0o777))
}

func TestCreateMayBeRepeatedAndKeepsWhatIsInTheVolume(t *testing.T) {
	g := NewWithT(t)
	volume := filepath.Join(t.TempDir(), "volume")
	// What a helper leaves that was killed between its two steps, and what a pod wrote since.
	g.Expect(os.Mkdir(volume, 0o700)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(volume, "file"), []byte("content"), 0o600)).To(Succeed())

	code, said := call(t, actionCreate, volume, nil)
	g.Expect(code).To(Equal(exitOK), said)
	info, err := os.Lstat(volume)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(Equal(fs.FileMode(0o777)))
	g.Expect(os.ReadFile(filepath.Join(volume, "file"))).To(BeEquivalentTo("content"))
}

func TestDeleteRemovesTheVolumeAloneAndMayBeRepeated(t *testing.T) {
	g := NewWithT(t)
	parent := t.TempDir()
	volume, other, outside := filepath.Join(parent, "volume"), filepath.Join(parent, "volume-2"), t.TempDir()
	for _, folder := range []string{volume, other, outside} {
		g.Expect(os.MkdirAll(filepath.Join(folder, "deep", "deeper"), 0o750)).To(Succeed())
		g.Expect(os.WriteFile(filepath.Join(folder, "deep", "file"), nil, 0o600)).To(Succeed())
	}
	// What a pod can do to trick the one who cleans up.
	g.Expect(os.Symlink(outside, filepath.Join(volume, "absolute"))).To(Succeed())
	g.Expect(os.Symlink("../volume-2", filepath.Join(volume, "deep", "relative"))).To(Succeed())

	for range 2 {
		code, said := call(t, actionDelete, volume, nil)
		g.Expect(code).To(Equal(exitOK), said)
		g.Expect(volume).NotTo(BeADirectory())
	}
	for _, folder := range []string{other, outside} {
		g.Expect(filepath.Join(folder, "deep", "file")).To(BeARegularFile())
	}
}

func TestDeleteOfAVolumeWhoseParentIsGoneSucceeds(t *testing.T) {
	code, said := call(t, actionDelete, filepath.Join(t.TempDir(), "gone", "volume"), nil)
	NewWithT(t).Expect(code).To(Equal(exitOK), said)
}

func TestWhatIsNotAFolderIsLeftAlone(t *testing.T) {
	for _, what := range []action{actionCreate, actionDelete} {
		t.Run(string(what)+" at a link", func(t *testing.T) {
			g := NewWithT(t)
			outside := t.TempDir()
			g.Expect(os.WriteFile(filepath.Join(outside, "file"), nil, 0o600)).To(Succeed())
			g.Expect(os.Chmod(outside, 0o700)).To(Succeed()) // #nosec G302 -- a folder
			volume := filepath.Join(t.TempDir(), "volume")
			g.Expect(os.Symlink(outside, volume)).To(Succeed())

			code, said := call(t, what, volume, nil)
			g.Expect(code).To(Equal(exitFailed))
			g.Expect(said).To(ContainSubstring("volume is not a folder but a symbolic link"))
			g.Expect(filepath.Join(outside, "file")).To(BeARegularFile())
			info, err := os.Lstat(outside)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(info.Mode().Perm()).To(Equal(fs.FileMode(0o700)))
			g.Expect(os.Readlink(volume)).To(Equal(outside))
		})
		t.Run(string(what)+" at a file", func(t *testing.T) {
			g := NewWithT(t)
			volume := filepath.Join(t.TempDir(), "volume")
			g.Expect(os.WriteFile(volume, []byte("content"), 0o600)).To(Succeed())

			code, said := call(t, what, volume, nil)
			g.Expect(code).To(Equal(exitFailed))
			g.Expect(said).To(ContainSubstring("volume is not a folder but a file"))
			g.Expect(os.ReadFile(volume)).To(BeEquivalentTo("content"))
		})
	}
}

func TestCreateWithoutTheMountedParentFails(t *testing.T) {
	g := NewWithT(t)
	volume := filepath.Join(t.TempDir(), "not-mounted", "volume")
	code, said := call(t, actionCreate, volume, nil)
	g.Expect(code).To(Equal(exitFailed))
	g.Expect(said).To(And(ContainSubstring(volume), ContainSubstring("opening the folder of the volumes")))
}

func TestAVolumeMustBeBelowTheRootOfAllVolumes(t *testing.T) {
	root := t.TempDir()
	NewWithT(t).Expect(os.Mkdir(filepath.Join(root, "nested"), 0o750)).To(Succeed())
	for name, tc := range map[string]struct {
		root, path string
		code       int
		says       string
	}{
		"in it":                         {root, filepath.Join(root, "volume"), exitOK, ""},
		"deeper, by a path pattern":     {root, filepath.Join(root, "nested", "volume"), exitOK, ""},
		"the root of the volumes":       {root, root, exitUsage, "not below"},
		"one whose name begins alike":   {root, root + "-2/volume", exitUsage, "not below"},
		"another folder of the node":    {root, "/etc/kubernetes", exitUsage, "not below"},
		"no root that could be checked": {"volumes", filepath.Join(root, "volume"), exitUsage, "VOLUMES_ROOT"},
		"a root that would allow all":   {"/", filepath.Join(root, "volume"), exitUsage, "VOLUMES_ROOT"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			code, said := call(t, actionCreate, tc.path, map[string]string{"VOLUMES_ROOT": tc.root})
			g.Expect(code).To(Equal(tc.code), said)
			g.Expect(said).To(ContainSubstring(tc.says))
			if tc.code != exitOK {
				code, _ = call(t, actionDelete, tc.path, map[string]string{"VOLUMES_ROOT": tc.root})
				g.Expect(code).To(Equal(tc.code))
				g.Expect(root).To(BeADirectory())
			}
		})
	}
}

func TestArgumentsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		args []string
		says string
	}{
		"no path":                     {[]string{"-a", "delete"}, "-p is missing"},
		"a relative path":             {[]string{"-a", "delete", "-p", "volumes/volume"}, "not an absolute path"},
		"a path that climbs":          {[]string{"-a", "delete", "-p", "/volumes/../etc"}, ".. is not allowed in it"},
		"a path that ends in ..":      {[]string{"-a", "delete", "-p", "/volumes/volume/.."}, ".. is not allowed in it"},
		"a path with a slash more":    {[]string{"-a", "delete", "-p", "/volumes/volume/"}, "not a clean path"},
		"a path that is the parent":   {[]string{"-a", "delete", "-p", "/volumes/."}, "not a clean path"},
		"the root":                    {[]string{"-a", "delete", "-p", "/"}, "neither be the root folder"},
		"a folder of the root":        {[]string{"-a", "delete", "-p", "/etc"}, "neither be the root folder"},
		"no action":                   {[]string{"-p", "/volumes/volume"}, "expected create or delete"},
		"an unknown action":           {[]string{"-p", "/volumes/volume", "-a", "resize"}, "expected create or delete"},
		"a block volume":              {[]string{"-p", "/volumes/volume", "-a", "create", "-m", "Block"}, "only volumes of mode Filesystem"},
		"a negative size":             {[]string{"-p", "/volumes/volume", "-a", "create", "-s", "-1"}, "can't be negative"},
		"a size that isn't a number":  {[]string{"-p", "/volumes/volume", "-a", "create", "-s", "1Gi"}, "invalid value"},
		"an option that is not known": {[]string{"-f", "/volumes/volume"}, "not defined"},
		"an argument too many":        {[]string{"-p", "/volumes/volume", "-a", "create", "surplus"}, "surplus"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var stderr bytes.Buffer
			g.Expect(run(tc.args, func(string) string { return "" }, &stderr, &stderr)).To(Equal(exitUsage))
			g.Expect(stderr.String()).To(ContainSubstring(tc.says))
		})
	}
}

func TestAVolumeOfAnyModeCanBeDeleted(t *testing.T) {
	g := NewWithT(t)
	volume := filepath.Join(t.TempDir(), "volume")
	g.Expect(os.Mkdir(volume, 0o750)).To(Succeed())
	var out bytes.Buffer
	code := run([]string{"-p", volume, "-s", "0", "-m", "Block", "-a", "delete"}, func(string) string { return "" }, &out, &out)
	g.Expect(code).To(Equal(exitOK), out.String())
	g.Expect(volume).NotTo(BeADirectory())
}

func TestHelpIsNoError(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	g.Expect(run([]string{"-h"}, func(string) string { return "" }, &out, &out)).To(Equal(exitOK))
	g.Expect(out.String()).To(ContainSubstring("absolute path"))
}
