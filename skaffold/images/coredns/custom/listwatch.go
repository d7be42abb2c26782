// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"math/rand/v2"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	// watchTimeout is the shortest time that a watch lasts; the longest is twice as long. client-go takes 5 minutes.
	watchTimeout = 2 * time.Minute
	// watchGrace is how much longer the client waits for the end of a watch than it has told the server.
	watchGrace = 5 * time.Second
)

// newListWatch lists and watches the ConfigMaps with records. It bounds two faults that client-go leaves unbounded: a watch
// that hangs ends here, too, and not only at the server; and an API server whose resource versions went back, because etcd was
// restored from a backup, is listed anew, as it would send nothing on a watch from a resource version that it does not have yet.
func newListWatch(client kubernetes.Interface, namespace string) cache.ListerWatcher {
	configMaps := client.CoreV1().ConfigMaps(namespace)
	return cache.ToListWatcherWithWatchListSemantics(&cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			options.LabelSelector = Label + "=true"
			return configMaps.List(ctx, options)
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			options.LabelSelector = Label + "=true"
			if options.ResourceVersion != "" && options.ResourceVersion != "0" && options.SendInitialEvents == nil {
				current, err := configMaps.List(ctx, metav1.ListOptions{LabelSelector: options.LabelSelector, Limit: 1})
				if err != nil {
					return nil, err
				}
				if order, err := resourceversion.CompareResourceVersion(current.ResourceVersion, options.ResourceVersion); err == nil && order < 0 {
					return nil, apierrors.NewResourceExpired("the API server has an older state than before")
				}
			}

			timeout := watchTimeout + time.Duration(rand.Int64N(int64(watchTimeout))) // #nosec G404 -- spreads requests
			options.TimeoutSeconds = new(int64(timeout.Seconds()))
			ctx, cancel := context.WithTimeout(ctx, timeout+watchGrace)
			started, err := configMaps.Watch(ctx, options)
			if err != nil {
				cancel()
				return nil, err
			}
			return &boundedWatch{Interface: started, cancel: cancel}, nil
		},
	}, client)
}

// boundedWatch is a watch with a deadline.
type boundedWatch struct {
	watch.Interface
	cancel context.CancelFunc
}

// Stop implements watch.Interface.
func (w *boundedWatch) Stop() {
	w.Interface.Stop()
	w.cancel()
}
