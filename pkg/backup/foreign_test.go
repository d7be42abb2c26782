// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
)

const user = 65532

// asUser calls a function as a user without privileges, as far as files go: the kernel keeps that apart for every thread.
func asUser(t *testing.T, do func() error) error {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root can be another user")
	}
	out := make(chan error)
	go func() {
		// Without an unlock the thread ends with the goroutine.
		runtime.LockOSThread()
		if err := syscall.Setfsuid(user); err != nil {
			out <- err
			return
		}
		out <- do()
	}()
	return <-out
}

func newFolderOfUser(t *testing.T) (*backup.Store, string) {
	t.Helper()
	store, dir := newStore(t)
	NewWithT(t).Expect(os.Chown(dir, user, user)).To(Succeed())
	return store, filepath.Join(dir, bucket)
}

func TestABucketTakesThePlaceOfAnEmptyFolderOfRoot(t *testing.T) {
	g := NewWithT(t)
	store, folder := newFolderOfUser(t)
	g.Expect(os.Mkdir(folder, 0o755)).To(Succeed())

	g.Expect(asUser(t, func() error { return store.EnsureBucket(bucket) })).To(Succeed())
	info, err := os.Stat(folder)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(info.Mode().Perm()).To(BeEquivalentTo(0o770))
	g.Expect(info.Sys().(*syscall.Stat_t).Uid).To(BeEquivalentTo(user))
}

func TestAFolderOfRootWithSomethingInItStays(t *testing.T) {
	g := NewWithT(t)
	store, folder := newFolderOfUser(t)
	writeFile(t, filepath.Join(folder, "backup"))
	g.Expect(os.Chmod(folder, 0o755)).To(Succeed())

	g.Expect(asUser(t, func() error { return store.EnsureBucket(bucket) })).To(MatchError(ContainSubstring("give the folder to user")))
	g.Expect(filepath.Join(folder, "backup")).To(BeARegularFile())
}
