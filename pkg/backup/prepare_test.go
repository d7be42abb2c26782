// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
)

func owner(t *testing.T, path string) [2]int {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	return [2]int{int(stat.Uid), int(stat.Gid)}
}

func TestPrepareNeedsNothingOfTheOwner(t *testing.T) {
	g := NewWithT(t)
	dir := filepath.Join(t.TempDir(), "a", "b")

	g.Expect(backup.Prepare(dir, os.Getuid(), os.Getgid())).To(Succeed())
	g.Expect(dir).To(BeADirectory())
	g.Expect(backup.Prepare(dir, os.Getuid(), os.Getgid())).To(Succeed(), "a second time")
}

func TestPrepareGivesEverythingBelowToTheUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	g := NewWithT(t)
	var (
		dir     = t.TempDir()
		outside = filepath.Join(t.TempDir(), "outside")
		bucket  = filepath.Join(dir, "bucket")
		link    = filepath.Join(bucket, "link")
	)
	g.Expect(os.Mkdir(bucket, 0o700)).To(Succeed())
	g.Expect(os.WriteFile(outside, nil, 0o600)).To(Succeed())
	g.Expect(os.Symlink(outside, link)).To(Succeed())

	g.Expect(backup.Prepare(dir, 65532, 65532)).To(Succeed())

	for _, path := range []string{dir, bucket, link} {
		g.Expect(owner(t, path)).To(Equal([2]int{65532, 65532}), path)
	}
	g.Expect(owner(t, outside)).To(Equal([2]int{0, 0}), "what a link points to is not ours")
}

func TestPrepareGoesOnWhereItWasInterrupted(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root can give files away")
	}
	g := NewWithT(t)
	dir := t.TempDir()
	g.Expect(os.Mkdir(filepath.Join(dir, "done"), 0o700)).To(Succeed())
	g.Expect(os.Lchown(filepath.Join(dir, "done"), 65532, 65532)).To(Succeed())
	g.Expect(os.MkdirAll(filepath.Join(dir, "done", "not"), 0o700)).To(Succeed())

	g.Expect(backup.Prepare(dir, 65532, 65532)).To(Succeed())

	g.Expect(owner(t, filepath.Join(dir, "done", "not"))).To(Equal([2]int{65532, 65532}))
}
