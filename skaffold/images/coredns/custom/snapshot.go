// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

const snapshotFile = "state.json"

// snapshot keeps the ConfigMaps that are served in a file, or nothing if there is no path.
type snapshot struct {
	path string
	// configMaps has what the store serves, and written is how often the store had merged when the file was written.
	configMaps cache.Store
	store      *Store
	written    uint64
}

func newSnapshot(directory string, store *Store, configMaps cache.Store) *snapshot {
	s := &snapshot{store: store, configMaps: configMaps}
	if directory != "" {
		s.path = filepath.Join(directory, snapshotFile)
	}
	return s
}

// load returns what an earlier run has left. It is read as any ConfigMap is, so nothing in it needs to be trusted.
func (s *snapshot) load() []*corev1.ConfigMap {
	if s.path == "" {
		return nil
	}
	data, err := os.ReadFile(s.path)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			log.Warningf("Reading the state of an earlier run: %v", err)
		}
		return nil
	}
	var configMaps []*corev1.ConfigMap
	if err := json.Unmarshal(data, &configMaps); err != nil {
		log.Warningf("Reading the state of an earlier run in %s: %v", s.path, err)
		return nil
	}
	return configMaps
}

// run writes the file when something has changed, until ctx is done.
func (s *snapshot) run(ctx context.Context) {
	if s.path == "" {
		return
	}
	ticker := time.NewTicker(snapshotInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := s.save(); err != nil {
				log.Warningf("Keeping the state for the next run: %v", err)
			}
		}
	}
}

// save writes the file if the store has merged since. It is tried again if there is no room for it.
func (s *snapshot) save() error {
	served := s.store.merges.Load()
	if served == s.written {
		return nil
	}
	err := s.write(s.configMaps.List())
	if err == nil {
		s.written = served
	}
	return err
}

// write writes the file in one step: a crash leaves the old one or the new one.
func (s *snapshot) write(configMaps []any) error {
	data, err := json.Marshal(configMaps)
	if err != nil {
		return fmt.Errorf("encoding the state: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(s.path), 0o700); err != nil {
		return fmt.Errorf("making the folder of the state: %w", err)
	}
	temporary := s.path + ".new"
	if err := os.WriteFile(temporary, data, 0o600); err != nil {
		return fmt.Errorf("writing %s: %w", temporary, err)
	}
	if err := os.Rename(temporary, s.path); err != nil {
		return fmt.Errorf("replacing %s: %w", s.path, err)
	}
	return nil
}
