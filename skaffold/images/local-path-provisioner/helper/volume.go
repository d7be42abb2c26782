// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// volumeMode lets the pods of any user write to their volume, as nobody changes its owner.
const volumeMode = 0o777

// do makes or removes the volume's folder, from within its parent: nothing outside of it is touched, whatever is a symbolic
// link. Both may be repeated, and finish what was cut off.
func (r request) do() (err error) {
	parent, name := filepath.Split(r.path)
	root, err := os.OpenRoot(parent)
	if r.action == actionDelete && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the folder of the volumes: %w", err)
	}
	defer func() { err = errors.Join(err, root.Close()) }()

	if r.action == actionCreate {
		return create(root, name)
	}
	return remove(root, name)
}

// create makes the folder if it isn't there, and opens it to all users. It asks for the mode a second time because the
// first is subject to the process's mask.
func create(root *os.Root, name string) error {
	if err := root.Mkdir(name, volumeMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	info, err := folder(root, name)
	if err != nil || info.Mode().Perm() == volumeMode {
		return err
	}
	return root.Chmod(name, volumeMode)
}

// remove removes the folder with all that is in it. A folder that isn't there is removed already.
func remove(root *os.Root, name string) error {
	_, err := folder(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return root.RemoveAll(name)
}

// folder looks at the volume's folder. It refuses what no volume is: a file, or a link, which would lead to somebody
// else's folder.
func folder(root *os.Root, name string) (fs.FileInfo, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a folder but %s: it is left alone", name, kindOf(info))
	}
	return info, nil
}

func kindOf(info fs.FileInfo) string {
	switch {
	case info.Mode().IsRegular():
		return "a file"
	case info.Mode()&fs.ModeSymlink != 0:
		return "a symbolic link"
	default:
		return "of type " + info.Mode().Type().String()
	}
}
