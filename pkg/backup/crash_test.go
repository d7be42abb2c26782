// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

// started returns the store of a process that removes in another way from its start on.
func started(t *testing.T, dir string, removeAll func(string) error) *Store {
	t.Helper()
	root, err := os.OpenRoot(dir)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	store := &Store{dir: dir, root: root, removeAll: removeAll}
	_ = store.sweep()
	return store
}

func TestRemovalThatEndsHalfWay(t *testing.T) {
	const (
		bucket = "garden-0a1b2c3d"
		entry  = "shoot--foo--bar--0a1b2c3d-4e5f"
	)
	crash := errors.New("the process ends here")
	crashing := func(store *Store) func(string) error {
		return func(name string) error {
			if _, err := store.root.Lstat(name); err != nil {
				return nil // nothing to remove
			}
			return crash
		}
	}

	for _, test := range []struct {
		name    string
		remove  func(*Store) error
		removed string
		left    []string
	}{
		{"of a bucket", func(store *Store) error { return store.RemoveBucket(bucket) }, bucket, nil},
		{"of an entry", func(store *Store) error { return store.RemoveEntry(bucket, entry) }, filepath.Join(bucket, entry), []string{bucket}},
	} {
		for next, goOn := range map[string]func(*WithT, *Store, string){
			"the next removal": func(g *WithT, store *Store, _ string) { g.Expect(test.remove(store)).To(Succeed()) },
			"the next removal after a start that could not": func(g *WithT, _ *Store, dir string) {
				store := started(t, dir, func(string) error { return crash })
				g.Expect(test.remove(store)).To(MatchError(crash), "whoever asks learns why")
				store.removeAll = store.root.RemoveAll
				g.Expect(test.remove(store)).To(Succeed())
				g.Expect(store.Close()).To(Succeed())
			},
			"the removal after it was made again": func(g *WithT, store *Store, dir string) {
				g.Expect(os.MkdirAll(filepath.Join(dir, test.removed), 0o700)).To(Succeed())
				g.Expect(test.remove(store)).To(Succeed())
			},
			"the next start": func(g *WithT, _ *Store, dir string) {
				store, err := Open(dir)
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(store.Close()).To(Succeed())
			},
		} {
			t.Run(test.name+" shows nothing of the data, and "+next+" goes on", func(t *testing.T) {
				g := NewWithT(t)
				dir := t.TempDir()
				snapshots := filepath.Join(dir, bucket, entry, "etcd-main", "v2")
				g.Expect(os.MkdirAll(snapshots, 0o700)).To(Succeed())

				store, err := Open(dir)
				g.Expect(err).NotTo(HaveOccurred())
				t.Cleanup(func() { g.Expect(store.Close()).To(Succeed()) })

				removeAll := store.removeAll
				store.removeAll = crashing(store)
				g.Expect(test.remove(store)).To(MatchError(crash))
				g.Expect(filepath.Join(dir, test.removed)).NotTo(BeADirectory(), "what is being removed is out of sight at once")
				g.Expect(test.remove(store)).To(MatchError(crash), "it is not removed as long as data is left")
				store.removeAll = removeAll

				goOn(g, store, dir)
				entries, err := os.ReadDir(dir)
				g.Expect(err).NotTo(HaveOccurred())
				var names []string
				for _, entry := range entries {
					names = append(names, entry.Name())
				}
				g.Expect(names).To(Equal(test.left))
			})
		}
	}
}

func TestARemovalGoesOnWithItsOwnAndLeavesThoseOfOthersAlone(t *testing.T) {
	const bucket, entry = "garden-0a1b2c3d", "shoot--foo--bar--0a1b2c3d-4e5f"
	crash := errors.New("not yet")
	for file, remove := range map[string]func(*Store) error{
		bucket: func(store *Store) error { return store.RemoveBucket(bucket) },
		// The bucket has gone meanwhile.
		filepath.Join(bucket, entry): func(store *Store) error { return store.RemoveEntry(bucket, entry) },
	} {
		t.Run(file, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			others := asideOf(filepath.Join("other", filepath.Base(file)))
			for _, aside := range []string{asideOf(file), others} {
				g.Expect(os.MkdirAll(filepath.Join(dir, aside, "snapshot"), 0o700)).To(Succeed())
			}
			store := started(t, dir, func(string) error { return crash })
			t.Cleanup(func() { g.Expect(store.Close()).To(Succeed()) })

			store.removeAll = store.root.RemoveAll
			g.Expect(remove(store)).To(Succeed())
			entries, err := os.ReadDir(dir)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(entries).To(HaveExactElements(HaveField("Name()", others)))
		})
	}
}
