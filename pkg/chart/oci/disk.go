// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/opencontainers/go-digest"
	"k8s.io/utils/clock"
)

const (
	// charts holds the archives, each called like its digest, with "-" for ":".
	chartsFolder = "charts"
	// grantsFolder holds one grant in each file.
	grantsFolder = "grants"
	// unfinishedFolder holds what is being written.
	unfinishedFolder = "unfinished"
	// keyFile holds the key of the hashes that the files in grantsFolder are called.
	keyFile = "key"

	keyBytes = sha256.Size
	// maxGrants bounds the number of grants: short-lived credentials leave many behind.
	maxGrants = 256
)

// grant is what is remembered of an answer of the registry: some credentials may pull what a reference led to. Its name is
// a keyed hash of the reference, the mirrors and the credentials.
type grant struct {
	// Ref is for whoever looks into the folder.
	Ref string `json:"ref"`
	// Manifest and Chart are what the reference led to.
	Manifest digest.Digest `json:"manifest"`
	Chart    digest.Digest `json:"chart"`
	// Checked is when the registry last said so.
	Checked time.Time `json:"checked"`
}

// disk keeps charts by their digest, and grants. Everything is written beside its place and moved there, so that a crash
// leaves nothing that is half written. Failing to write is not fatal for whoever wants a chart.
type disk struct {
	root    *os.Root
	clock   clock.PassiveClock
	log     logr.Logger
	metrics *metrics
	key     []byte

	lock   sync.Mutex
	charts *lru[int64]
	grants map[string]grant
}

// openDisk opens the folder dir, and removes from it what a crash left there.
func openDisk(dir string, opts Options, m *metrics) (*disk, error) {
	fail := func(err error) (*disk, error) {
		return nil, fmt.Errorf("opening the folder of pulled charts %s: %w: the instance's user must be able to write to it", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return fail(err)
	}

	d := &disk{
		root: root, clock: opts.Clock, log: opts.Log, metrics: m,
		charts: newLRU[int64](opts.MaxBytes), grants: make(map[string]grant),
	}
	for _, step := range []func() error{d.makeFolders, d.readKey, d.readCharts, d.readGrants} {
		if err := step(); err != nil {
			return fail(errors.Join(err, root.Close()))
		}
	}
	d.report()
	return d, nil
}

func (d *disk) close() error { return d.root.Close() }

func (d *disk) makeFolders() error {
	if err := d.root.RemoveAll(unfinishedFolder); err != nil {
		return err
	}
	for _, name := range []string{chartsFolder, grantsFolder, unfinishedFolder} {
		if err := d.root.MkdirAll(name, 0o700); err != nil {
			return err
		}
	}
	return nil
}

// readKey reads the key or makes a new one. Without the old one, no grant can be found any more.
func (d *disk) readKey() error {
	key, err := d.root.ReadFile(keyFile)
	if err == nil && len(key) == keyBytes {
		d.key = key
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.key = make([]byte, keyBytes)
	if _, err := rand.Read(d.key); err != nil {
		return err
	}
	return d.write(keyFile, d.key)
}

// readCharts takes in what is there, what was used last as such. It is verified when it is used.
func (d *disk) readCharts() error {
	entries, err := fs.ReadDir(d.root.FS(), chartsFolder)
	if err != nil {
		return err
	}
	var infos []fs.FileInfo
	for _, entry := range entries {
		info, err := entry.Info()
		if err != nil {
			return err
		}
		if _, ok := digestOf(entry.Name()); !ok || !info.Mode().IsRegular() {
			d.discard(path.Join(chartsFolder, entry.Name()))
			continue
		}
		infos = append(infos, info)
	}
	slices.SortStableFunc(infos, func(a, b fs.FileInfo) int { return a.ModTime().Compare(b.ModTime()) })
	for _, info := range infos {
		if info.Size() > d.charts.max {
			d.discard(path.Join(chartsFolder, info.Name()))
			continue
		}
		d.evict(d.charts.add(info.Name(), info.Size(), info.Size()))
	}
	return nil
}

// readGrants forgets those whose chart is not there: they would be of no use.
func (d *disk) readGrants() error {
	entries, err := fs.ReadDir(d.root.FS(), grantsFolder)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		var (
			name      = path.Join(grantsFolder, entry.Name())
			found     grant
			data, err = d.root.ReadFile(name)
		)
		if err == nil {
			err = json.Unmarshal(data, &found)
		}
		if _, known := d.charts.entries[fileOf(found.Chart)]; err != nil || !known {
			d.discard(name)
			continue
		}
		d.grants[entry.Name()] = found
	}
	d.boundGrants()
	return nil
}

// hash returns the name for what some credentials may pull.
func (d *disk) hash(inputs ...any) (string, error) {
	raw, err := json.Marshal(inputs)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, d.key)
	mac.Write(raw)
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// chart returns an archive, verified.
func (d *disk) chart(wanted digest.Digest) ([]byte, bool) {
	name := fileOf(wanted)
	d.lock.Lock()
	size, ok := d.charts.get(name)
	d.lock.Unlock()
	if !ok {
		return nil, false
	}

	data, err := d.read(path.Join(chartsFolder, name), size)
	if err == nil && (int64(len(data)) != size || wanted.Algorithm().FromBytes(data) != wanted) {
		err = errors.New("its content is not what its digest says")
	}
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) { // Another goroutine may just have made room.
			d.metrics.corruptions.Inc()
			d.log.Info("Removing a chart from the disk that is damaged", "digest", wanted, "problem", err.Error())
		}
		d.lock.Lock()
		defer d.lock.Unlock()
		d.charts.remove(name)
		d.discard(path.Join(chartsFolder, name))
		d.report()
		return nil, false
	}
	d.touch(wanted)
	return data, true
}

// touch notes that a chart was used, for the order after a restart. The time of access that a file system keeps, if it
// does, is changed by backups and the like.
func (d *disk) touch(used digest.Digest) {
	now := d.clock.Now()
	d.lock.Lock()
	defer d.lock.Unlock()
	if _, ok := d.charts.get(fileOf(used)); ok {
		_ = d.root.Chtimes(path.Join(chartsFolder, fileOf(used)), now, now)
	}
}

// read reads at most one byte more than the size, so that it shows if there is more.
func (d *disk) read(name string, size int64) ([]byte, error) {
	file, err := d.root.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, size+1))
}

// addChart keeps an archive, and removes what has to go for it. What is larger than all that may be kept is not.
func (d *disk) addChart(of digest.Digest, data []byte) error {
	if int64(len(data)) > d.charts.max {
		d.log.V(1).Info("Not keeping a chart on the disk that is larger than all that may be there", "digest", of, "bytes", len(data))
		return nil
	}
	name := fileOf(of)
	if err := d.write(path.Join(chartsFolder, name), data); err != nil {
		return fmt.Errorf("keeping chart %s: %w", of, err)
	}
	now := d.clock.Now()

	d.lock.Lock()
	defer d.lock.Unlock()
	_ = d.root.Chtimes(path.Join(chartsFolder, name), now, now)
	d.evict(d.charts.add(name, int64(len(data)), int64(len(data))))
	d.report()
	return nil
}

// evict removes charts that are no longer among those which are kept, with the grants that lead to them.
func (d *disk) evict(names []string) {
	for _, name := range names {
		d.metrics.evictions.WithLabelValues(diskLevel).Inc()
		d.discard(path.Join(chartsFolder, name))
		for hash, known := range d.grants {
			if fileOf(known.Chart) == name {
				d.forget(hash)
			}
		}
	}
}

func (d *disk) grant(hash string) (grant, bool) {
	d.lock.Lock()
	defer d.lock.Unlock()
	found, ok := d.grants[hash]
	return found, ok
}

// addGrant remembers the grant if its chart is kept.
func (d *disk) addGrant(hash string, granted grant) error {
	raw, err := json.Marshal(granted)
	if err != nil {
		return err
	}
	d.lock.Lock()
	defer d.lock.Unlock()
	if _, kept := d.charts.entries[fileOf(granted.Chart)]; !kept {
		return nil
	}
	d.grants[hash] = granted
	d.boundGrants()
	if err := d.write(path.Join(grantsFolder, hash), raw); err != nil {
		return fmt.Errorf("remembering who may pull %s: %w", granted.Ref, err)
	}
	return nil
}

func (d *disk) revoke(hash string) {
	d.lock.Lock()
	defer d.lock.Unlock()
	d.forget(hash)
}

func (d *disk) forget(hash string) {
	delete(d.grants, hash)
	d.discard(path.Join(grantsFolder, hash))
}

func (d *disk) boundGrants() {
	for len(d.grants) > maxGrants {
		oldest := ""
		for hash, known := range d.grants {
			if oldest == "" || known.Checked.Before(d.grants[oldest].Checked) {
				oldest = hash
			}
		}
		d.forget(oldest)
	}
}

func (d *disk) report() {
	d.metrics.cacheBytes.WithLabelValues(diskLevel).Set(float64(d.charts.size))
	d.metrics.cacheEntries.WithLabelValues(diskLevel).Set(float64(len(d.charts.entries)))
}

// write writes a file whole or not at all.
func (d *disk) write(name string, data []byte) error {
	unfinished := path.Join(unfinishedFolder, rand.Text())
	file, err := d.root.OpenFile(unfinished, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(data)
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = d.root.Rename(unfinished, name)
	}
	if err != nil {
		d.discard(unfinished)
		return err
	}

	folder, err := d.root.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer folder.Close()
	return folder.Sync()
}

// discard removes a file as well as it can. One that stays is looked at again after a restart.
func (d *disk) discard(name string) {
	if err := d.root.RemoveAll(name); err != nil {
		d.log.Info("A file in the folder of pulled charts cannot be removed", "file", name, "problem", err.Error())
	}
}

func fileOf(of digest.Digest) string { return strings.Replace(of.String(), ":", "-", 1) }

func digestOf(name string) (digest.Digest, bool) {
	parsed, err := digest.Parse(strings.Replace(name, "-", ":", 1))
	return parsed, err == nil
}
