// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"fmt"
	"sync"
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
	snapshot := newSnapshot(directory)
	if configMaps := snapshot.load(); len(configMaps) > 0 {
		log.Infof("Serving %d ConfigMaps of an earlier run until the API server answers", len(configMaps))
		store.Restore(configMaps)
		store.SetReady()
	}

	informer := cache.NewSharedIndexInformer(newListWatch(client, namespace), &corev1.ConfigMap{}, 0, cache.Indexers{})
	if err := informer.SetTransform(strip); err != nil {
		return fmt.Errorf("watching the ConfigMaps in namespace %s: %w", namespace, err)
	}
	events := &events{store: store, snapshot: snapshot, names: map[string]struct{}{}}
	registration, err := informer.AddEventHandler(events)
	if err != nil {
		return fmt.Errorf("watching the ConfigMaps in namespace %s: %w", namespace, err)
	}
	go informer.RunWithContext(ctx)
	go store.Run(ctx)
	go snapshot.run(ctx)
	go func() {
		grace := time.AfterFunc(startupGrace, func() {
			log.Warningf("No state after %s: serving other names, and SERVFAIL for those of the zones", startupGrace)
			store.SetReady()
		})
		defer grace.Stop()
		if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return
		}
		events.listed()
	}()
	return nil
}

// events hands changes on to the store. Its methods are called one after the other, but for listed.
type events struct {
	store    *Store
	snapshot *snapshot

	mu    sync.Mutex
	names map[string]struct{}
}

// OnAdd implements cache.ResourceEventHandler.
func (e *events) OnAdd(object any, _ bool) {
	configMap, ok := object.(*corev1.ConfigMap)
	if !ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.names[configMap.Name] = struct{}{}
	e.snapshot.apply(configMap)
	e.store.Apply(configMap)
}

// OnUpdate implements cache.ResourceEventHandler.
func (e *events) OnUpdate(_, object any) {
	e.OnAdd(object, false)
}

// OnDelete implements cache.ResourceEventHandler.
func (e *events) OnDelete(object any) {
	if tombstone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	configMap, ok := object.(*corev1.ConfigMap)
	if !ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.names, configMap.Name)
	e.snapshot.delete(configMap.Name)
	e.store.Delete(configMap.Name)
}

// listed is called once the first list has been handed on.
func (e *events) listed() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.snapshot.touch()
	e.store.Listed(e.names)
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
