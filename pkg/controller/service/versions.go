// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// versions are the resource versions of Services that the cache is yet to show.
type versions struct {
	mu     sync.Mutex
	latest map[types.NamespacedName]string
}

func newVersions() *versions {
	return &versions{latest: map[types.NamespacedName]string{}}
}

// add notes that a Service was written.
func (v *versions) add(service *corev1.Service) {
	v.mu.Lock()
	defer v.mu.Unlock()

	v.latest[client.ObjectKeyFromObject(service)] = service.ResourceVersion
}

// forget is for a Service that is gone.
func (v *versions) forget(service types.NamespacedName) {
	v.mu.Lock()
	defer v.mu.Unlock()

	delete(v.latest, service)
}

// isBehind reports whether a Service from the cache is older than what was written.
func (v *versions) isBehind(service *corev1.Service) bool {
	v.mu.Lock()
	defer v.mu.Unlock()

	key := client.ObjectKeyFromObject(service)
	latest, ok := v.latest[key]
	if !ok {
		return false
	}
	if order, err := resourceversion.CompareResourceVersion(service.ResourceVersion, latest); err == nil && order < 0 {
		return true
	}
	delete(v.latest, key)
	return false
}
