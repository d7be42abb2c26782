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
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

const snapshotFile = "state.json"

// snapshot keeps the ConfigMaps that are served in a file.
type snapshot struct {
	path string

	mu         sync.Mutex
	configMaps map[string]*corev1.ConfigMap
	changed    bool
}

// newSnapshot returns a snapshot in a directory, or one that keeps nothing if there is none.
func newSnapshot(directory string) *snapshot {
	s := &snapshot{configMaps: map[string]*corev1.ConfigMap{}}
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

func (s *snapshot) apply(configMap *corev1.ConfigMap) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.configMaps[configMap.Name] = configMap
	s.changed = true
}

func (s *snapshot) delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.configMaps, name)
	s.changed = true
}

// touch makes the file be written even if there is nothing any more.
func (s *snapshot) touch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changed = true
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

// save writes the file if something has changed. It is tried again if there is no room for it.
func (s *snapshot) save() error {
	s.mu.Lock()
	if !s.changed {
		s.mu.Unlock()
		return nil
	}
	s.changed = false
	configMaps := make([]*corev1.ConfigMap, 0, len(s.configMaps))
	for _, configMap := range s.configMaps {
		configMaps = append(configMaps, configMap)
	}
	s.mu.Unlock()

	err := s.write(configMaps)
	if err != nil {
		s.touch()
	}
	return err
}

// write writes the file in one step: a crash leaves the old one or the new one.
func (s *snapshot) write(configMaps []*corev1.ConfigMap) error {
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
