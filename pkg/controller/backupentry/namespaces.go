// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package backupentry

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// liveNamespaces is a manager whose client reads Namespaces past the cache. The generic actuator looks at one Namespace
// per reconcile; through the cache that would be a watch on all of them and a copy of each in memory.
type liveNamespaces struct {
	manager.Manager
}

// GetClient returns the manager's client but for Namespaces.
func (m liveNamespaces) GetClient() client.Client {
	return liveNamespaceClient{Client: m.Manager.GetClient(), live: m.GetAPIReader()}
}

type liveNamespaceClient struct {
	client.Client
	live client.Reader
}

// Get implements client.Reader.
func (c liveNamespaceClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, ok := obj.(*corev1.Namespace); ok {
		return c.live.Get(ctx, key, obj, opts...)
	}
	return c.Client.Get(ctx, key, obj, opts...)
}
