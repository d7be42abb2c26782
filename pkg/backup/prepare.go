// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

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
	if owned, err := isOwned(root, ".", uid, gid); err != nil || owned {
		return err
	}

	if err := fs.WalkDir(root.FS(), ".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || path == "." {
			return err
		}
		if owned, err := isOwned(root, path, uid, gid); err != nil || owned {
			return err
		}
		return root.Lchown(path, uid, gid)
	}); err != nil {
		return err
	}
	return root.Lchown(".", uid, gid)
}

func isOwned(root *os.Root, path string, uid, gid int) (bool, error) {
	info, err := root.Lstat(path)
	if err != nil {
		return false, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == uid && int(stat.Gid) == gid, nil
}
