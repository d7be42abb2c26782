// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"container/list"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cache remembers the objects that were used last. It is bounded by the size of their YAML, not by their number: charts
// differ a hundredfold in size.
type cache struct {
	lock    sync.Mutex
	max     int
	size    int
	recent  *list.List
	entries map[string]*list.Element
}

type entry struct {
	key     string
	objects []client.Object
	size    int
}

func newCache(max int) *cache {
	return &cache{max: max, recent: list.New(), entries: make(map[string]*list.Element)}
}

// get returns copies, so that no caller can change what others get.
func (c *cache) get(key string) ([]client.Object, bool) {
	c.lock.Lock()
	element, ok := c.entries[key]
	if ok {
		c.recent.MoveToFront(element)
	}
	c.lock.Unlock()
	if !ok {
		return nil, false
	}
	// An entry is never changed, so the copies need no lock.
	return copied(element.Value.(*entry).objects), true
}

// add takes over the objects. Those which are larger than the cache are not kept.
func (c *cache) add(key string, objects []client.Object, size int) {
	c.lock.Lock()
	defer c.lock.Unlock()

	if _, ok := c.entries[key]; ok || size > c.max {
		return
	}
	c.entries[key] = c.recent.PushFront(&entry{key: key, objects: objects, size: size})
	c.size += size

	for c.size > c.max {
		oldest := c.recent.Remove(c.recent.Back()).(*entry)
		delete(c.entries, oldest.key)
		c.size -= oldest.size
	}
}

func copied(objects []client.Object) []client.Object {
	out := make([]client.Object, 0, len(objects))
	for _, object := range objects {
		out = append(out, object.DeepCopyObject().(client.Object))
	}
	return out
}
