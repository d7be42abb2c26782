// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package chart

import (
	"sync"

	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// cache remembers the objects that were used last. It is bounded by the size of their YAML, not by their number: charts
// differ a hundredfold in size.
type cache struct {
	max    int
	recent *lru.Cache

	// lock is for additions, and size.
	lock sync.Mutex
	size int
}

type entry struct {
	objects []client.Object
	size    int
}

func newCache(max int) *cache {
	c := &cache{max: max}
	c.recent = lru.NewWithEvictionFunc(0, func(_ lru.Key, evicted any) { c.size -= evicted.(entry).size })
	return c
}

// get returns copies, so that no caller can change what others get.
func (c *cache) get(key string) ([]client.Object, bool) {
	found, ok := c.recent.Get(key)
	if !ok {
		return nil, false
	}
	return copied(found.(entry).objects), true
}

// add takes over the objects. Those which are larger than the cache are not kept.
func (c *cache) add(key string, objects []client.Object, size int) {
	c.lock.Lock()
	defer c.lock.Unlock()
	if _, ok := c.recent.Get(key); ok || size > c.max {
		return
	}
	c.recent.Add(key, entry{objects: objects, size: size})
	c.size += size
	for c.size > c.max {
		c.recent.RemoveOldest()
	}
}

func copied(objects []client.Object) []client.Object {
	out := make([]client.Object, 0, len(objects))
	for _, object := range objects {
		out = append(out, object.DeepCopyObject().(client.Object))
	}
	return out
}
