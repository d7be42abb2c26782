// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/pkg/backup"
)

const (
	bucket = "garden-0a1b2c3d"
	entry  = "shoot--foo--bar--0a1b2c3d-4e5f"
)

// newStore returns a store and its folder, which has a neighbour that nothing may touch.
func newStore(t testing.TB) (*backup.Store, string) {
	t.Helper()
	g := NewWithT(t)

	parent := t.TempDir()
	dir := filepath.Join(parent, "buckets")
	g.Expect(os.Mkdir(dir, 0o700)).To(Succeed())
	writeFile(t, filepath.Join(parent, "outside", entry, "precious"))

	store, err := backup.Open(dir)
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		g.Expect(store.Close()).To(Succeed())
		g.Expect(list(t, parent)).To(ConsistOf("buckets", "outside"), "nothing may come or go beside the root")
		g.Expect(filepath.Join(parent, "outside", entry, "precious")).To(BeARegularFile(), "nothing outside of the root may be removed")
	})
	return store, dir
}

func writeFile(t testing.TB, file string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(os.MkdirAll(filepath.Dir(file), 0o700)).To(Succeed())
	g.Expect(os.WriteFile(file, []byte("data"), 0o600)).To(Succeed())
}

func list(t testing.TB, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())

	names := make([]string, 0, len(entries))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestOpen(t *testing.T) {
	t.Run("names the folder and the remedy if it is missing", func(t *testing.T) {
		g := NewWithT(t)
		dir := filepath.Join(t.TempDir(), "nowhere")

		_, err := backup.Open(dir)
		g.Expect(err).To(MatchError(fs.ErrNotExist))
		g.Expect(err).To(MatchError(And(ContainSubstring(dir), ContainSubstring("create it on the node"))))
	})

	t.Run("refuses a file", func(t *testing.T) {
		g := NewWithT(t)
		file := filepath.Join(t.TempDir(), "file")
		writeFile(t, file)

		_, err := backup.Open(file)
		g.Expect(err).To(MatchError(ContainSubstring(file)))
	})

	t.Run("names the folder and the remedy if it is not writable", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("root may write everywhere")
		}
		g := NewWithT(t)
		dir := t.TempDir()
		g.Expect(os.Chmod(dir, 0o500)).To(Succeed())

		_, err := backup.Open(dir)
		g.Expect(err).To(MatchError(fs.ErrPermission))
		g.Expect(err).To(MatchError(And(ContainSubstring(dir), ContainSubstring("give it to user"))))
	})

	t.Run("leaves no trace of having tried to write, and keeps what it does not know", func(t *testing.T) {
		g := NewWithT(t)
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, bucket, entry, "snapshot"))
		writeFile(t, filepath.Join(dir, ".hidden"))
		writeFile(t, filepath.Join(dir, "lost+found", "file"))

		store, err := backup.Open(dir)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(store.Close()).To(Succeed())
		g.Expect(list(t, dir)).To(ConsistOf(bucket, ".hidden", "lost+found"))
		g.Expect(filepath.Join(dir, bucket, entry, "snapshot")).To(BeARegularFile())
	})

	t.Run("removes what an interrupted removal left", func(t *testing.T) {
		g := NewWithT(t)
		dir := t.TempDir()
		writeFile(t, filepath.Join(dir, ".deleting-"+bucket+"-ABC", entry, "snapshot"))
		writeFile(t, filepath.Join(dir, bucket, "other", "snapshot"))

		store, err := backup.Open(dir)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(store.Close()).To(Succeed())
		g.Expect(list(t, dir)).To(ConsistOf(bucket))
	})
}

func TestEnsureBucket(t *testing.T) {
	mode := func(g Gomega, dir string) fs.FileMode {
		info, err := os.Stat(filepath.Join(dir, bucket))
		g.Expect(err).NotTo(HaveOccurred())
		return info.Mode()
	}

	t.Run("creates a folder that no others than user and group can enter", func(t *testing.T) {
		g := NewWithT(t)
		store, dir := newStore(t)

		g.Expect(store.EnsureBucket(bucket)).To(Succeed())
		g.Expect(mode(g, dir)).To(Equal(fs.ModeDir | 0o770))
	})

	t.Run("keeps what is in a bucket and heals a changed mode", func(t *testing.T) {
		g := NewWithT(t)
		store, dir := newStore(t)
		snapshot := filepath.Join(dir, bucket, entry, "snapshot")

		g.Expect(store.EnsureBucket(bucket)).To(Succeed())
		writeFile(t, snapshot)
		for _, changed := range []fs.FileMode{0o777, 0o700, 0o000} {
			g.Expect(os.Chmod(filepath.Join(dir, bucket), changed)).To(Succeed())
			g.Expect(store.EnsureBucket(bucket)).To(Succeed())
			g.Expect(mode(g, dir)).To(Equal(fs.ModeDir | 0o770))
		}
		g.Expect(snapshot).To(BeARegularFile())
	})

	t.Run("does not take a file for a bucket", func(t *testing.T) {
		g := NewWithT(t)
		store, dir := newStore(t)
		writeFile(t, filepath.Join(dir, bucket))

		err := store.EnsureBucket(bucket)
		g.Expect(err).To(MatchError(ContainSubstring("is a file and not a folder")))
		g.Expect(err).NotTo(MatchError(backup.ErrBadName))
	})

	t.Run("does not take links for buckets, wherever they lead", func(t *testing.T) {
		g := NewWithT(t)
		store, dir := newStore(t)
		g.Expect(store.EnsureBucket("other")).To(Succeed())
		g.Expect(os.Chmod(filepath.Join(dir, "..", "outside"), 0o700)).To(Succeed())

		for _, target := range []string{"../outside", filepath.Join(dir, "..", "outside"), "other", "nowhere"} {
			g.Expect(os.Symlink(target, filepath.Join(dir, bucket))).To(Succeed())
			g.Expect(store.EnsureBucket(bucket)).To(MatchError(ContainSubstring("symbolic link")), target)
			g.Expect(store.RemoveEntry(bucket, entry)).To(MatchError(ContainSubstring("symbolic link")), target)
			g.Expect(store.RemoveBucket(bucket)).To(Succeed(), target)
			g.Expect(list(t, dir)).To(ConsistOf("other"), "the link is to be removed, what it leads to is not")
		}

		info, err := os.Stat(filepath.Join(dir, "..", "outside"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(Equal(fs.FileMode(0o700)), "no mode outside of the root may change")
	})
}

func TestRemoveBucket(t *testing.T) {
	t.Run("removes the bucket with its entries and no other bucket", func(t *testing.T) {
		g := NewWithT(t)
		store, dir := newStore(t)
		g.Expect(store.EnsureBucket(bucket)).To(Succeed())
		g.Expect(store.EnsureBucket(bucket + "-2")).To(Succeed())
		writeFile(t, filepath.Join(dir, bucket, entry, "etcd-main", "v2", "snapshot"))

		g.Expect(store.RemoveBucket(bucket)).To(Succeed())
		g.Expect(list(t, dir)).To(ConsistOf(bucket + "-2"))
	})

	t.Run("succeeds if there is no such bucket", func(t *testing.T) {
		store, _ := newStore(t)
		NewWithT(t).Expect(store.RemoveBucket(bucket)).To(Succeed())
	})

	t.Run("does not follow links in a bucket", func(t *testing.T) {
		g := NewWithT(t)
		store, dir := newStore(t)
		g.Expect(store.EnsureBucket(bucket)).To(Succeed())
		g.Expect(os.Symlink(filepath.Join(dir, "..", "outside"), filepath.Join(dir, bucket, entry))).To(Succeed())

		g.Expect(store.RemoveEntry(bucket, entry)).To(Succeed())
		g.Expect(list(t, filepath.Join(dir, bucket))).To(BeEmpty())

		g.Expect(os.Symlink(filepath.Join(dir, "..", "outside"), filepath.Join(dir, bucket, entry))).To(Succeed())
		g.Expect(store.RemoveBucket(bucket)).To(Succeed())
		g.Expect(list(t, dir)).To(BeEmpty())
	})

	t.Run("shows nothing of an interrupted removal in a bucket that is created again", func(t *testing.T) {
		g := NewWithT(t)
		store, dir := newStore(t)
		writeFile(t, filepath.Join(dir, ".deleting-"+bucket+"-ABC", entry, "snapshot"))

		g.Expect(store.EnsureBucket(bucket)).To(Succeed())
		g.Expect(list(t, filepath.Join(dir, bucket))).To(BeEmpty())
	})

	t.Run("leaves alone what another process with the same folder is removing", func(t *testing.T) {
		g := NewWithT(t)
		store, dir := newStore(t)
		writeFile(t, filepath.Join(dir, ".deleting-"+bucket+"-ABC", entry, "snapshot"))
		g.Expect(store.EnsureBucket(bucket)).To(Succeed())
		g.Expect(store.RemoveBucket(bucket)).To(Succeed())
		g.Expect(list(t, dir)).To(ConsistOf(".deleting-" + bucket + "-ABC"))

		other, err := backup.Open(dir)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(other.Close()).To(Succeed())
		g.Expect(list(t, dir)).To(BeEmpty(), "it goes on with that when it starts again")
	})

	t.Run("hides the bucket and reports the error if the data cannot be removed, and removes it once it can", func(t *testing.T) {
		if os.Getuid() == 0 {
			t.Skip("root may remove everything")
		}
		g := NewWithT(t)
		store, dir := newStore(t)
		writeFile(t, filepath.Join(dir, bucket, entry, "snapshot"))
		g.Expect(os.Chmod(filepath.Join(dir, bucket, entry), 0o500)).To(Succeed())

		err := store.RemoveBucket(bucket)
		g.Expect(err).To(MatchError(fs.ErrPermission))
		g.Expect(err).NotTo(MatchError(backup.ErrBadName))
		g.Expect(filepath.Join(dir, bucket)).NotTo(BeADirectory())
		g.Expect(store.RemoveBucket(bucket)).To(MatchError(fs.ErrPermission), "as long as data is left, the bucket is not removed")

		left := list(t, dir)
		g.Expect(left).To(ConsistOf(HavePrefix(".deleting-" + bucket + "-")))
		g.Expect(os.Chmod(filepath.Join(dir, left[0], entry), 0o700)).To(Succeed())
		g.Expect(store.RemoveBucket(bucket)).To(Succeed())
		g.Expect(list(t, dir)).To(BeEmpty())
	})

	t.Run("can be called by many at once", func(t *testing.T) {
		g := NewWithT(t)
		store, dir := newStore(t)
		errs := make([]error, 8)

		var wait sync.WaitGroup
		for i := range errs {
			wait.Go(func() {
				for range 20 {
					name := fmt.Sprintf("%s-%d", bucket, i%4)
					if err := store.RemoveBucket(name); err != nil {
						errs[i] = err
					}
					writeFile(t, filepath.Join(dir, fmt.Sprintf("own-%d", i), entry, "snapshot"))
					if err := store.RemoveEntry(fmt.Sprintf("own-%d", i), entry); err != nil {
						errs[i] = err
					}
				}
			})
		}
		wait.Wait()
		g.Expect(errs).To(HaveEach(Not(HaveOccurred())))
		g.Expect(list(t, dir)).To(And(HaveLen(8), HaveEach(HavePrefix("own-"))))
	})
}

func TestRemoveEntry(t *testing.T) {
	t.Run("removes just that entry", func(t *testing.T) {
		g := NewWithT(t)
		store, dir := newStore(t)
		for _, other := range []string{bucket, "other"} {
			writeFile(t, filepath.Join(dir, other, entry, "etcd-main", "v2", "snapshot"))
			writeFile(t, filepath.Join(dir, other, entry+"-2", "snapshot"))
			writeFile(t, filepath.Join(dir, other, "virtual-garden-etcd-main", "snapshot"))
		}

		g.Expect(store.RemoveEntry(bucket, entry)).To(Succeed())
		g.Expect(list(t, dir)).To(ConsistOf(bucket, "other"))
		g.Expect(list(t, filepath.Join(dir, bucket))).To(ConsistOf(entry+"-2", "virtual-garden-etcd-main"))
		g.Expect(list(t, filepath.Join(dir, "other"))).To(ConsistOf(entry, entry+"-2", "virtual-garden-etcd-main"))
	})

	t.Run("succeeds if there is no such entry or no such bucket", func(t *testing.T) {
		g := NewWithT(t)
		store, _ := newStore(t)
		g.Expect(store.RemoveEntry(bucket, entry)).To(Succeed())
		g.Expect(store.EnsureBucket(bucket)).To(Succeed())
		g.Expect(store.RemoveEntry(bucket, entry)).To(Succeed())
	})
}

func TestNames(t *testing.T) {
	for _, name := range []string{
		"garden-6b1ad2c0-97ac-4e4e-8d3b-0c4a1de35c2f", "6b1ad2c0-97ac-4e4e-8d3b-0c4a1de35c2f", "a", "my.bucket",
		strings.Repeat("a", backup.MaxNameLength),
	} {
		t.Run("accepts bucket "+name, func(t *testing.T) {
			g := NewWithT(t)
			store, dir := newStore(t)
			g.Expect(store.EnsureBucket(name)).To(Succeed())
			g.Expect(list(t, dir)).To(ConsistOf(name))
			g.Expect(store.RemoveBucket(name)).To(Succeed(), "the name put aside must fit into a file name as well")
			g.Expect(list(t, dir)).To(BeEmpty())
		})
	}

	for _, name := range append(badNames(), strings.Repeat("a", backup.MaxNameLength+1)) {
		t.Run(fmt.Sprintf("refuses %q for buckets and entries", name), func(t *testing.T) {
			g := NewWithT(t)
			store, dir := newStore(t)
			g.Expect(store.EnsureBucket(name)).To(MatchError(backup.ErrBadName))
			g.Expect(store.RemoveBucket(name)).To(MatchError(backup.ErrBadName))
			g.Expect(store.RemoveEntry(name, entry)).To(MatchError(backup.ErrBadName))
			g.Expect(store.RemoveEntry(bucket, name)).To(MatchError(backup.ErrBadName))
			g.Expect(list(t, dir)).To(BeEmpty())
		})
	}

	for _, name := range []string{entry, "garden--6b1ad2c0-97ac-4e4e-8d3b-0c4a1de35c2f", "shoot--a--b"} {
		t.Run("accepts entry "+name, func(t *testing.T) {
			NewWithT(t).Expect(backup.CheckEntryName(name)).To(Succeed())
		})
	}

	for _, name := range []string{"virtual-garden-etcd-main", "a-b", "a", "--a", "a--", "shoot--a--../b", "shoot--a--b/../../c"} {
		t.Run("refuses what no BackupEntry is called, as entry "+name, func(t *testing.T) {
			NewWithT(t).Expect(backup.CheckEntryName(name)).To(MatchError(backup.ErrBadName))
		})
	}
}

func badNames() []string {
	return []string{
		"", ".", "..", "../outside", "a/b", "/", "/etc", "a/../../outside", "a..b", ".hidden", ".deleting-a-B", "A", "a_b", "a b",
		"a\x00", "a\n", "-a", "a-", "a.", "~", "ä", `a\b`, "lost+found",
	}
}

func FuzzNames(f *testing.F) {
	for _, name := range append(badNames(), bucket, "shoot--a--b", strings.Repeat("a", 255)) {
		f.Add(name, entry)
		f.Add(bucket, name)
		f.Add(name, "../../outside/"+name)
	}

	f.Fuzz(func(t *testing.T, bucketName, entryName string) {
		g := NewWithT(t)
		store, dir := newStore(t) // its cleanup checks that nothing happened outside of the root

		created := store.EnsureBucket(bucketName)
		if created == nil {
			g.Expect(list(t, dir)).To(ConsistOf(bucketName), "a bucket is one folder directly below the root")
			writeFile(t, filepath.Join(dir, bucketName, entry, "snapshot"))
		} else {
			g.Expect(created).To(MatchError(backup.ErrBadName))
			g.Expect(list(t, dir)).To(BeEmpty())
		}

		removed := store.RemoveEntry(bucketName, entryName)
		if created == nil && entryName == entry {
			g.Expect(removed).NotTo(HaveOccurred())
			g.Expect(list(t, filepath.Join(dir, bucketName))).To(BeEmpty())
		} else {
			g.Expect(removed).To(Or(Not(HaveOccurred()), MatchError(backup.ErrBadName)))
			if created == nil {
				g.Expect(filepath.Join(dir, bucketName, entry, "snapshot")).To(BeARegularFile(), "another entry's data stays")
			}
		}

		g.Expect(store.RemoveBucket(bucketName)).To(Or(Not(HaveOccurred()), MatchError(backup.ErrBadName)))
		g.Expect(list(t, dir)).To(BeEmpty())
	})
}

// BenchmarkEnsureBucket measures what every reconcile of a BackupBucket costs: the bucket is there and in order.
func BenchmarkEnsureBucket(b *testing.B) {
	store, _ := newStore(b)
	b.ReportAllocs()
	for b.Loop() {
		if err := store.EnsureBucket(bucket); err != nil {
			b.Fatal(err)
		}
	}
}
