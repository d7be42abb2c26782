// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"github.com/miekg/dns"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/cache"
)

// Reset empties the store, as the one that is registered serves all tests of the process.
func (s *Store) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards = map[string]*shard{}
	s.ready.Store(false)
	s.current.Store(nil)
}

// ParseOverride is parseOverride, for tests.
var ParseOverride = parseOverride

// ParseRecord is parseRecord, for tests.
var ParseRecord = parseRecord

// Dropped returns what is left out of a ConfigMap.
func Dropped(configMap *corev1.ConfigMap) []error { return parse(configMap).dropped }

// Find returns the records that a name of a zone has by a ConfigMap.
func Find(configMap *corev1.ConfigMap, name, zone string) []dns.RR {
	var records []dns.RR
	if found := newTable(map[string]*shard{configMap.Name: parse(configMap)}, 1).find(name, zone); found != nil {
		for _, rrs := range found.records {
			records = append(records, rrs...)
		}
	}
	return records
}

// NewSaver returns a function that writes a ConfigMap into the state of a directory, if it has not been written yet.
func NewSaver(directory string, configMap *corev1.ConfigMap) func() error {
	configMaps := cache.NewStore(cache.MetaNamespaceKeyFunc)
	_ = configMaps.Add(configMap)
	store := NewStore(prometheus.NewRegistry())
	store.merge()
	return newSnapshot(directory, store, configMaps).save
}
