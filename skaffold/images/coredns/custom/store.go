// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	clog "github.com/coredns/coredns/plugin/pkg/log"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
)

const (
	// minInterval is the least time between two merges. The first change after a pause is merged at once.
	minInterval = 10 * time.Millisecond
	// restFactor is how many times the duration of a merge has to pass until the next one, so that with any number of
	// records under any load at most a fifth of a core goes into merging.
	restFactor = 4
)

var log = clog.NewWithPlugin(pluginName)

// Store holds the shards and the table that is made of them. The plugin reads the table, a source writes the shards.
type Store struct {
	metrics *metrics

	current atomic.Pointer[table]
	ready   atomic.Bool
	// merges counts the tables that were served.
	merges atomic.Uint64

	mu     sync.Mutex
	shards map[string]*shard
	// changed has room for one: what is pending is whether, not what.
	changed chan struct{}
}

// NewStore returns an empty store and registers its metrics. It answers with SERVFAIL until it is filled for the first time, as
// "no such name" is something that a client would remember.
func NewStore(registerer prometheus.Registerer) *Store {
	return &Store{
		metrics: newMetrics(registerer),
		shards:  map[string]*shard{},
		changed: make(chan struct{}, 1),
	}
}

// Apply takes over a ConfigMap that was added or has changed. It is served once Run merges.
func (s *Store) Apply(configMap *corev1.ConfigMap) {
	parsed := s.parse(configMap)
	s.mu.Lock()
	s.shards[configMap.Name] = parsed
	s.mu.Unlock()
	s.notify()
}

// Delete forgets a ConfigMap.
func (s *Store) Delete(name string) {
	s.mu.Lock()
	delete(s.shards, name)
	s.mu.Unlock()
	s.notify()
}

// Restore serves ConfigMaps of an earlier run until the present ones are known.
func (s *Store) Restore(configMaps []*corev1.ConfigMap) {
	s.mu.Lock()
	for _, configMap := range configMaps {
		s.shards[configMap.Name] = s.parse(configMap)
	}
	s.mu.Unlock()
	s.merge()
}

// Listed tells that all ConfigMaps there are have been applied, and which exist: they are served, and others are forgotten.
func (s *Store) Listed(exists func(name string) bool) {
	s.mu.Lock()
	maps.DeleteFunc(s.shards, func(name string, _ *shard) bool { return !exists(name) })
	s.mu.Unlock()
	s.merge()
	s.SetReady()
}

// SetReady lets the server report that it is ready, be it that it has a state to serve or that it is not to be waited
// for any longer.
func (s *Store) SetReady() {
	s.ready.Store(true)
}

// Run merges the shards when they have changed until ctx is done. Call it after Listed.
func (s *Store) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
		}

		start := time.Now()
		s.merge()
		rest := time.NewTimer(max(minInterval, restFactor*time.Since(start)))
		select {
		case <-ctx.Done():
			rest.Stop()
			return
		case <-rest.C:
		}
	}
}

func (s *Store) parse(configMap *corev1.ConfigMap) *shard {
	parsed := parse(configMap)
	if len(parsed.dropped) > 0 {
		s.metrics.dropped.Add(float64(len(parsed.dropped)))
		// A ConfigMap may hold any number of wrong lines: the first few tell enough.
		log.Warningf("ConfigMap %s: left out %d entries that this extension doesn't write: %v", configMap.Name, len(parsed.dropped), errors.Join(parsed.dropped[:min(len(parsed.dropped), 3)]...))
	}
	return parsed
}

func (s *Store) notify() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

func (s *Store) merge() {
	start := time.Now()
	s.mu.Lock()
	shards := maps.Clone(s.shards)
	s.mu.Unlock()

	merged := newTable(shards, uint32(start.Unix())) // #nosec G115 -- serials wrap by design (RFC 1982).
	s.current.Store(merged)
	s.merges.Add(1)

	s.metrics.merges.Observe(time.Since(start).Seconds())
	s.metrics.records.Set(float64(merged.records))
	s.metrics.shards.Set(float64(len(shards)))
	s.metrics.updated.SetToCurrentTime()
}
