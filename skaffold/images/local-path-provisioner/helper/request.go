// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
)

type action string

const (
	actionCreate action = "create"
	actionDelete action = "delete"
)

// filesystem is the only volume mode of a folder.
const filesystem = "Filesystem"

// request is what local-path-provisioner asks for.
type request struct {
	action action
	// path is the volume's folder: absolute, clean, and at least two levels below the root.
	path string
}

// parse reads the arguments. The path is the user's: it comes from a PersistentVolume, or from the pattern of a StorageClass.
func parse(args []string, output io.Writer) (request, error) {
	flags := flag.NewFlagSet("local-path-helper", flag.ContinueOnError)
	flags.SetOutput(output)
	path := flags.String("p", "", "absolute `path` of the volume's folder")
	size := flags.Int64("s", 0, "requested size in `bytes`; a folder has no limit, so it is only checked")
	mode := flags.String("m", filesystem, "volume `mode`")
	what := flags.String("a", "", "`action`: create or delete")
	if err := flags.Parse(args); err != nil {
		return request{}, err
	}

	if flags.NArg() > 0 {
		return request{}, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	asked := request{action: action(*what), path: *path}
	switch asked.action {
	case actionCreate:
		if *mode != filesystem {
			return request{}, fmt.Errorf("-m %q: only volumes of mode %s can be made", *mode, filesystem)
		}
		if *size < 0 {
			return request{}, fmt.Errorf("-s %d: a size can't be negative", *size)
		}
	case actionDelete:
	default:
		return request{}, fmt.Errorf("-a %q: expected %s or %s", *what, actionCreate, actionDelete)
	}
	return asked, checkPath(asked.path)
}

func checkPath(path string) error {
	switch {
	case path == "":
		return errors.New("-p is missing: the path of the volume's folder")
	case !filepath.IsAbs(path):
		return fmt.Errorf("-p %q: not an absolute path", path)
	case slices.Contains(strings.Split(path, "/"), ".."):
		return fmt.Errorf("-p %q: .. is not allowed in it", path)
	case filepath.Clean(path) != path:
		return fmt.Errorf("-p %q: not a clean path, which would be %q", path, filepath.Clean(path))
	case filepath.Dir(path) == "/":
		return fmt.Errorf("-p %q: a volume can neither be the root folder nor stand in it", path)
	}
	return nil
}

// checkBelow refuses a volume that isn't below root; an empty root allows all.
func (r request) checkBelow(root string) error {
	if root == "" {
		return nil
	}
	if !filepath.IsAbs(root) || filepath.Clean(root) != root || root == "/" {
		return fmt.Errorf("VOLUMES_ROOT=%s: must be an absolute, clean path other than /", root)
	}
	if !strings.HasPrefix(r.path, root+"/") {
		return fmt.Errorf("-p %q: not below %s, where the volumes are", r.path, root)
	}
	return nil
}
