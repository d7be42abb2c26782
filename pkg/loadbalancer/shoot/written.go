// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"time"

	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// writtenTTL bounds what is remembered to what was written in that time. It is far longer than an informer needs to show
// a write.
const writtenTTL = time.Minute

// written is an informer's cache that has what was written here at once. Several workers may look at a Service one right
// after the other; without it, the later one would repeat the write of the first, which the API server refuses.
type written[T client.Object] struct {
	cache   cache.Store
	objects *utilcache.Expiring
}

func newWritten[T client.Object](store cache.Store) *written[T] {
	return &written[T]{cache: store, objects: utilcache.NewExpiring()}
}

// remember takes what the API server has answered to a write. The writes of an object are to come one after the other.
func (w *written[T]) remember(obj T) {
	w.objects.Set(keyOf(obj).String(), obj, writtenTTL)
}

// get returns an object by NAMESPACE/NAME, nil if there is none. What was written counts until the cache is as new as that,
// whatever it shows then: the object may have been changed or deleted since.
func (w *written[T]) get(key string) (T, error) {
	if value, ok := w.objects.Get(key); ok {
		own := value.(T)
		order, err := resourceversion.CompareResourceVersion(w.cache.LastStoreSyncResourceVersion(), own.GetResourceVersion())
		if err == nil && order < 0 {
			return own, nil
		}
	}
	obj, exists, err := w.cache.GetByKey(key)
	if err != nil || !exists {
		var none T
		return none, err
	}
	return obj.(T), nil
}
