// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom

import corev1 "k8s.io/api/core/v1"

// Reset empties the store, as the one that is registered serves all tests of the process.
func (s *Store) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shards = map[string]*shard{}
	s.listed = false
	s.ready.Store(false)
	s.current.Store(nil)
}

// ParseOverride is parseOverride, for tests.
var ParseOverride = parseOverride

// ParseRecord is parseRecord, for tests.
var ParseRecord = parseRecord

// Dropped returns what is left out of a ConfigMap.
func Dropped(configMap *corev1.ConfigMap) []error { return parse(configMap).dropped }
