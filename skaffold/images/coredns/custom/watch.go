// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
)

const (
	// startupGrace is how long a server without any state reports that it isn't ready. After that it is, since it may be
	// the only name server of a pod, whose other names it can resolve all the same.
	startupGrace = 15 * time.Second
	// snapshotInterval is how often the state is written to disk, if it has changed.
	snapshotInterval = 2 * time.Second
)

// Watch keeps a store equal to the ConfigMaps of a namespace until ctx is done. It returns an error only if it cannot
// start; an API server that is away is waited for. With a directory the state is kept there as well: a container that
// restarts while the API server is away serves what it served before.
func Watch(ctx context.Context, store *Store, client kubernetes.Interface, namespace, directory string) error {
	informer := cache.NewSharedIndexInformer(newListWatch(client, namespace), &corev1.ConfigMap{}, 0, cache.Indexers{})
	snapshot := newSnapshot(directory, store, informer.GetStore())
	if configMaps := snapshot.load(); len(configMaps) > 0 {
		log.Infof("Serving %d ConfigMaps of an earlier run until the API server answers", len(configMaps))
		store.Restore(configMaps)
		store.SetReady()
	}

	if err := informer.SetTransform(strip); err != nil {
		return fmt.Errorf("watching the ConfigMaps in namespace %s: %w", namespace, err)
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { store.Apply(object.(*corev1.ConfigMap)) },
		UpdateFunc: func(_, object any) { store.Apply(object.(*corev1.ConfigMap)) },
		DeleteFunc: func(object any) {
			if name, err := cache.DeletionHandlingObjectToName(object); err == nil {
				store.Delete(name.Name)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watching the ConfigMaps in namespace %s: %w", namespace, err)
	}
	go informer.RunWithContext(ctx)
	grace := time.AfterFunc(startupGrace, func() {
		if !store.ready.Load() {
			log.Warningf("No state after %s: serving other names, and SERVFAIL for those of the zones", startupGrace)
			store.SetReady()
		}
	})
	context.AfterFunc(ctx, func() { grace.Stop() })
	go func() {
		if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return
		}
		store.Listed(func(name string) bool {
			_, ok, _ := informer.GetStore().GetByKey(namespace + "/" + name) // It has no errors.
			return ok
		})
		// Not before: a table of half of the ConfigMaps would deny the names of the other half, and the file of an earlier run has all.
		go store.Run(ctx)
		snapshot.run(ctx)
	}()
	return nil
}

// strip leaves of a ConfigMap what is read of it.
func strip(object any) (any, error) {
	configMap, ok := object.(*corev1.ConfigMap)
	if !ok {
		return object, nil
	}
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:            configMap.Name,
			Namespace:       configMap.Namespace,
			ResourceVersion: configMap.ResourceVersion,
			Annotations:     map[string]string{AnnotationGeneration: configMap.Annotations[AnnotationGeneration]},
		},
		Data: configMap.Data,
	}, nil
}
