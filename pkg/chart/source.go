// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package chart gets from a Helm chart, wherever it is, to the objects it renders to. Controllers hand the objects to
// package resources. Charts are data here: nothing is installed, no release is stored, no hook runs, and no template
// asks a cluster or a name server.
//
// A Source tells where a chart is: Embedded in the program, or in a registry, which is package oci's. A Renderer renders it
// with Helm's own engine and remembers the result, since most reconciles come with the same chart and the same values.
package chart

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"sync"

	"helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
)

// Archive is a chart that was loaded. It is shared: do not change it.
type Archive struct {
	// Chart is the chart with its subcharts, as Helm's loader returns it.
	Chart *chart.Chart
	// Digest identifies its content, in the form "ALGORITHM:HEX". Archives of the same Digest render to the same. It is
	// over the files of an embedded chart, and over the packed archive of one from a registry.
	Digest string
}

// Source tells where a chart is.
type Source interface {
	// Load returns the chart. It is called for each rendering, so it is up to the Source to remember what it loaded. It
	// is safe for concurrent use.
	Load(ctx context.Context) (*Archive, error)
}

// Embedded is the chart in the folder dir of fsys, which usually is an embed.FS. Its Digest is over the names and the
// contents of all files. Note that a go:embed pattern without the prefix "all:" leaves out files like _helpers.tpl.
// A .helmignore is not looked at.
func Embedded(fsys fs.FS, dir string) Source {
	return embedded(sync.OnceValues(func() (*Archive, error) {
		files, err := read(fsys, dir)
		if err != nil {
			return nil, fmt.Errorf("reading chart in %s: %w", dir, err)
		}
		loaded, err := loader.LoadFiles(files)
		if err != nil {
			return nil, fmt.Errorf("loading chart in %s: %w", dir, err)
		}
		// JSON tells where one file ends and the next one begins.
		content, err := json.Marshal(files)
		return &Archive{Chart: loaded, Digest: fmt.Sprintf("sha256:%x", sha256.Sum256(content))}, err
	}))
}

type embedded func() (*Archive, error)

// Load implements Source. The files are read once.
func (e embedded) Load(ctx context.Context) (*Archive, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return e()
}

// read returns all files below dir with their names relative to it, always in the same order.
func read(fsys fs.FS, dir string) (files []*loader.BufferedFile, err error) {
	root, err := fs.Sub(fsys, dir)
	if err != nil {
		return nil, err
	}
	err = fs.WalkDir(root, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := fs.ReadFile(root, path)
		files = append(files, &loader.BufferedFile{Name: path, Data: data})
		return err
	})
	return files, err
}
