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
	if err := checkFolder(root, name); err != nil {
		return err
	}
	return root.Chmod(name, volumeMode)
}

// remove removes the folder with all that is in it. A folder that isn't there is removed already.
func remove(root *os.Root, name string) error {
	err := checkFolder(root, name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return root.RemoveAll(name)
}

// checkFolder refuses what no volume is: a file, or a link, which would lead to somebody else's folder.
func checkFolder(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is not a folder but of type %s: it is left alone", name, info.Mode().Type())
	}
	return nil
}
