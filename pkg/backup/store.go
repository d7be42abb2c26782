// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package backup keeps backup buckets and their entries as folders below one root. The controllers for BackupBuckets and
// BackupEntries are its users; what is inside an entry belongs to etcd-backup-restore, whose provider "local" mounts the
// bucket's folder.
//
// Every path goes through an os.Root, so that neither a name nor a symbolic link leads out of the root: names come from
// objects in a cluster, and pods write below the buckets.
package backup

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// bucketMode lets etcd-backup-restore, which runs with the same user or group, write; nobody else may look.
	bucketMode fs.FileMode = 0o770
	// asidePrefix begins the names of folders that are on their way out. No bucket or entry can be called so.
	asidePrefix = ".deleting-"
)

// ErrFull tells that there is no room left for a bucket. Check with errors.Is.
var ErrFull = errors.New("make room on the disk of the node, for data and for inodes")

// Store is a folder of buckets. Its methods may be called by many goroutines, and two processes may have the same folder
// open, as in a cluster that is garden and seed at once.
type Store struct {
	dir  string
	root *os.Root
	// removeAll is the root's. A test ends a removal with it half-way.
	removeAll func(name string) error
}

// Open opens the store below dir, an existing folder in which this process may create folders, and removes what an
// interrupted removal left there. Close it after use.
func Open(dir string) (*Store, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("opening backup folder %s: %w: create it on the node and mount it there", dir, err)
	}
	// The permission bits would not tell of a mount that is read-only.
	if err := unix.Access(dir, unix.W_OK|unix.X_OK); err != nil {
		return nil, errors.Join(fmt.Errorf("writing to backup folder %s: %w: mount it writable and give it to user %d", dir, err, os.Getuid()), root.Close())
	}

	store := &Store{dir: dir, root: root, removeAll: root.RemoveAll}
	// Best effort: whoever asked for the removal that was interrupted has not been told that it is done, will ask again,
	// and then learns why it does not work.
	_ = store.sweep()
	return store, nil
}

// Close closes the store. It is not to be used any more then.
func (s *Store) Close() error {
	return s.root.Close()
}

// EnsureBucket creates the folder of the bucket unless it is there, and sets its mode to 0770 if that has been changed. An
// empty folder of another user gives way: kubelet makes one as root if a pod with the bucket starts while there is none,
// such as between the removal of a bucket and its return. An error wraps ErrBadName if the name is the reason, and ErrFull if
// there is no room for it.
func (s *Store) EnsureBucket(name string) error {
	if err := CheckBucketName(name); err != nil {
		return err
	}

	err := s.ensureFolder(name)
	if errors.Is(err, fs.ErrPermission) && s.root.Remove(name) == nil {
		err = s.ensureFolder(name)
	}
	switch {
	case errors.Is(err, fs.ErrPermission):
		err = fmt.Errorf("%w: give the folder to user %d", err, os.Getuid())
	case isFull(err):
		err = fmt.Errorf("%w: %w", err, ErrFull)
	}
	if err != nil {
		return fmt.Errorf("making bucket %s in %s: %w", name, s.dir, err)
	}
	return nil
}

func (s *Store) ensureFolder(name string) error {
	if err := s.root.Mkdir(name, bucketMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}

	info, err := s.root.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("it is a %s and not a folder: remove it", kindOf(info))
	}

	// Mkdir is subject to the umask, therefore this is needed for new folders as well.
	if info.Mode().Perm() == bucketMode {
		return nil
	}
	return s.root.Chmod(name, bucketMode)
}

// HasEntries reports whether there is a bucket of that name with anything in it.
func (s *Store) HasEntries(bucket string) (bool, error) {
	if CheckBucketName(bucket) != nil {
		return false, nil
	}
	entries, err := fs.ReadDir(s.root.FS(), bucket)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, fmt.Errorf("looking into bucket %s in %s: %w", bucket, s.dir, err)
	}
	return len(entries) > 0, nil
}

// RemoveBucket removes the bucket with all its entries; nil if there is none. A bucket that is created again with the
// same name never shows data of the removed one, even if the process ends half-way: Open goes on, or, where it can't, the
// next call. An error wraps ErrBadName if the name is the reason; there is nothing to be removed then.
func (s *Store) RemoveBucket(name string) error {
	if err := CheckBucketName(name); err != nil {
		return err
	}
	if err := s.remove(name); err != nil {
		return fmt.Errorf("removing bucket %s in %s: %w", name, s.dir, err)
	}
	return nil
}

// RemoveEntry removes the entry from the bucket, and only that; nil if there is no such entry or no such bucket. Else it
// is as RemoveBucket.
func (s *Store) RemoveEntry(bucket, entry string) error {
	if err := errors.Join(CheckBucketName(bucket), CheckEntryName(entry)); err != nil {
		return err
	}

	info, err := s.root.Lstat(bucket)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		// The bucket is gone, and the entry with it. It may be on its way out still.
	case err != nil:
		return fmt.Errorf("looking at bucket %s in %s: %w", bucket, s.dir, err)
	case !info.IsDir():
		// A link to another bucket would have us remove the entry there.
		return fmt.Errorf("bucket %s in %s is a %s and not a folder: remove it", bucket, s.dir, kindOf(info))
	}

	if err := s.remove(path.Join(bucket, entry)); err != nil {
		return fmt.Errorf("removing entry %s of bucket %s in %s: %w", entry, bucket, s.dir, err)
	}
	return nil
}

// remove renames what is at file to a hidden name in the root, which is atomic, and then removes it there. What an earlier
// attempt has left under that name goes first.
func (s *Store) remove(file string) error {
	aside := asideOf(file)
	if err := s.removeAll(aside); err != nil {
		return err
	}
	if err := s.root.Rename(file, aside); errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	return s.removeAll(aside)
}

// asideOf returns the hidden name of what was at file. It is always the same one, so that the next attempt finds it.
func asideOf(file string) string {
	sum := sha256.Sum256([]byte(file)) // buckets may have entries of the same name
	return fmt.Sprintf("%s%s-%x", asidePrefix, path.Base(file), sum[:8])
}

// sweep removes what an earlier process has put aside.
func (s *Store) sweep() error {
	entries, err := fs.ReadDir(s.root.FS(), ".")
	errs := []error{err}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), asidePrefix) {
			errs = append(errs, s.removeAll(entry.Name()))
		}
	}
	return errors.Join(errs...)
}

// isFull reports whether an error is that of a disk, or of a user's part of it, that has no room left.
func isFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

func kindOf(info fs.FileInfo) string {
	switch {
	case info.Mode().Type() == fs.ModeSymlink:
		return "symbolic link"
	case info.Mode().IsRegular():
		return "file"
	default:
		return info.Mode().Type().String()
	}
}

// MaxNameLength is the longest name of a bucket or an entry in bytes. A file name has at most 255; the difference leaves
// room for what a folder is called while it is being removed.
const MaxNameLength = 200

// ErrBadName is what errors about names wrap: no folder can have the name, and trying again does not help.
var ErrBadName = errors.New("bad name")

// CheckBucketName returns an error that wraps ErrBadName unless name is a DNS-1123 subdomain of at most MaxNameLength
// bytes. Object stores of other providers demand that as well, and it excludes slashes, "..", and hidden folders.
func CheckBucketName(name string) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("bucket %q: %w", name, err)
	}
	return nil
}

// CheckEntryName returns an error that wraps ErrBadName unless name is the name of a BackupEntry as Gardener forms it
// without the prefix "source-": TECHNICAL_ID--UID, for example shoot--foo--bar--UID or garden--UID. Requiring the UID
// keeps an entry off folders that no BackupEntry owns, such as the one of the virtual garden's etcd.
func CheckEntryName(name string) error {
	if err := checkName(name); err != nil {
		return fmt.Errorf("backup entry %q: %w", name, err)
	}
	if i := strings.LastIndex(name, "--"); i <= 0 || i+len("--") == len(name) {
		return fmt.Errorf("backup entry %q: %w: it must be a technical id, two hyphens, and a uid", name, ErrBadName)
	}
	return nil
}

func checkName(name string) error {
	if len(name) > MaxNameLength {
		return fmt.Errorf("%w: it is %d bytes long, at most %d fit", ErrBadName, len(name), MaxNameLength)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Errorf("%w: %s", ErrBadName, strings.Join(problems, ", "))
	}
	return nil
}

// Prepare creates the folder of all buckets if it is missing and gives it, with all that is in it, to the given user and
// group. It needs to run as root, once, before an instance that doesn't: a folder on a node that the kubelet made
// belongs to root. A folder that has the right owner is left as it is, so that a restart costs one stat. Links are not
// followed.
func Prepare(dir string, uid, gid int) error {
	if err := os.MkdirAll(dir, bucketMode); err != nil {
		return fmt.Errorf("creating backup folder %s: %w", dir, err)
	}

	root, err := os.OpenRoot(dir)
	if err != nil {
		return fmt.Errorf("opening backup folder %s: %w", dir, err)
	}
	err = prepare(root, uid, gid)
	if err := errors.Join(err, root.Close()); err != nil {
		return fmt.Errorf("giving backup folder %s to %d:%d: %w", dir, uid, gid, err)
	}
	return nil
}

// prepare changes the root last: it says whether the rest has been done.
func prepare(root *os.Root, uid, gid int) error {
	info, err := root.Lstat(".")
	if err != nil {
		return err
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && int(stat.Uid) == uid && int(stat.Gid) == gid {
		return nil
	}
	if err := fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		return root.Lchown(path, uid, gid)
	}); err != nil {
		return err
	}
	return root.Lchown(".", uid, gid)
}
