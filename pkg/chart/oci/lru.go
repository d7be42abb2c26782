// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import "container/list"

// lru remembers what was used last, bounded by size. An entry that is larger than the bound is not taken in. It needs a
// lock around it.
type lru[V any] struct {
	max, size int64
	recent    *list.List
	entries   map[string]*list.Element
}

type lruEntry[V any] struct {
	key   string
	value V
	size  int64
}

func newLRU[V any](max int64) *lru[V] {
	return &lru[V]{max: max, recent: list.New(), entries: make(map[string]*list.Element)}
}

func (l *lru[V]) get(key string) (value V, ok bool) {
	element, ok := l.entries[key]
	if !ok {
		return value, false
	}
	l.recent.MoveToFront(element)
	return element.Value.(*lruEntry[V]).value, true
}

// add returns the keys that had to go. What is there already becomes the one used last.
func (l *lru[V]) add(key string, value V, size int64) (evicted []string) {
	l.remove(key)
	if size > l.max {
		return nil
	}
	l.entries[key] = l.recent.PushFront(&lruEntry[V]{key: key, value: value, size: size})
	l.size += size
	for l.size > l.max {
		oldest := l.recent.Back().Value.(*lruEntry[V]).key
		l.remove(oldest)
		evicted = append(evicted, oldest)
	}
	return evicted
}

func (l *lru[V]) remove(key string) {
	element, ok := l.entries[key]
	if !ok {
		return
	}
	delete(l.entries, key)
	l.size -= l.recent.Remove(element).(*lruEntry[V]).size
}
