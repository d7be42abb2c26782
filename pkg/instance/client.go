// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// ttlOf is how long a write is remembered, zero for not at all: at least as long as a cache should take to see it. What is remembered
// at a time is what was written in that time. By the replicas of a MachineDeployment a hibernation is told from a waking, so these must not
// be older than the last write however long a watch hangs.
func ttlOf(kind schema.GroupVersionKind) time.Duration {
	switch {
	case kind.Group == extensionsv1alpha1.SchemeGroupVersion.Group, kind == corev1.SchemeGroupVersion.WithKind("Service"):
		return 10 * time.Second
	case kind.Group == "machine.sapcloud.io" && kind.Kind == "MachineDeployment":
		return 2*DefaultWatchTimeout + time.Minute
	}
	return 0
}

const (
	// conflictsMax is after how many conflicts in a row the API server is asked.
	conflictsMax = 2
	// conflictsTTL is how long a conflict is remembered, longer than the pause after it.
	conflictsTTL = time.Minute
)

// NewClient makes the client of an instance (a client.NewClientFunc). It reads as the default one, except that its Get of
// an extension object, a MachineDeployment or a Service returns what this client has written itself if the cache has not seen
// that yet, and asks the API server after two conflicts in a row: the cache may be far behind, as when a watch hangs.
//
// The extension library's reconcilers write an object several times in a reconcile and are then called once more for
// these very writes. With a cache that lags, they would see the state before: repeat a migration, and take away the
// annotation of the operation that has been asked for meanwhile. controller-runtime has such a client only from 0.25 on
// (kubernetes-sigs/controller-runtime#3472).
func NewClient(config *rest.Config, options client.Options) (client.Client, error) {
	c, err := client.New(config, options)
	if err != nil {
		return nil, err
	}
	options.Cache = nil
	live, err := client.New(config, options)
	if err != nil {
		return nil, err
	}
	return NewFreshClient(c, live), nil
}

// NewFreshClient returns such a client, given one that reads from the cache and one that reads from the API server.
func NewFreshClient(c client.Client, live client.Reader) client.Client {
	return &freshClient{Client: c, live: live, writes: utilcache.NewExpiring(), conflicts: utilcache.NewExpiring()}
}

// freshClient remembers the objects that it has written, and those that it could not write because of a conflict.
type freshClient struct {
	client.Client
	// live reads from the API server.
	live client.Reader
	// writes has the objects, and conflicts how many writes of an object in a row were a conflict.
	writes, conflicts *utilcache.Expiring
}

// writtenObject identifies one object.
type writtenObject struct {
	schema.GroupVersionKind
	types.NamespacedName
}

func (c *freshClient) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	id, ok := c.identify(obj, key)
	if ok && c.conflictsOf(id) >= conflictsMax {
		return c.live.Get(ctx, key, obj, opts...)
	}
	if err := c.Client.Get(ctx, key, obj, opts...); err != nil || !ok {
		return err
	}
	value, ok := c.writes.Get(id)
	if !ok {
		return nil
	}
	written := value.(client.Object)
	if !newer(written, obj) {
		return nil
	}
	if written.GetDeletionTimestamp() != nil && len(written.GetFinalizers()) == 0 {
		return apierrors.NewNotFound(schema.GroupResource{Group: id.Group, Resource: id.Kind}, key.Name)
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(written.DeepCopyObject()).Elem())
	return nil
}

func (c *freshClient) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return c.remember(obj, c.Client.Update(ctx, obj, opts...))
}

func (c *freshClient) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.remember(obj, c.Client.Patch(ctx, obj, patch, opts...))
}

func (c *freshClient) Status() client.SubResourceWriter {
	return &freshStatus{SubResourceWriter: c.Client.Status(), client: c}
}

// remember keeps a copy of what the API server has answered to a write, and counts conflicts.
func (c *freshClient) remember(obj client.Object, err error) error {
	id, ok := c.identify(obj, client.ObjectKeyFromObject(obj))
	switch {
	case !ok:
		return err
	case apierrors.IsConflict(err):
		c.conflicts.Set(id, c.conflictsOf(id)+1, conflictsTTL)
		return err
	case err != nil:
		return err
	}
	c.conflicts.Delete(id)
	if known, ok := c.writes.Get(id); ok && newer(known.(client.Object), obj) {
		return nil
	}
	written := obj.DeepCopyObject().(client.Object)
	written.SetManagedFields(nil)
	c.writes.Set(id, written, ttlOf(id.GroupVersionKind))
	return nil
}

func (c *freshClient) conflictsOf(id writtenObject) int {
	if value, ok := c.conflicts.Get(id); ok {
		return value.(int)
	}
	return 0
}

// newer says whether a is a later state of an object than b.
func newer(a, b client.Object) bool {
	order, err := resourceversion.CompareResourceVersion(a.GetResourceVersion(), b.GetResourceVersion())
	return err == nil && order > 0
}

// identify says which object it is, and whether it is one to remember, in its own Go type.
func (c *freshClient) identify(obj client.Object, key client.ObjectKey) (writtenObject, bool) {
	gvk, err := c.GroupVersionKindFor(obj)
	if err != nil || ttlOf(gvk) == 0 {
		return writtenObject{}, false
	}
	if typed, err := c.Scheme().New(gvk); err != nil || reflect.TypeOf(typed) != reflect.TypeOf(obj) {
		return writtenObject{}, false
	}
	return writtenObject{gvk, key}, true
}

// freshStatus has its client remember what it writes.
type freshStatus struct {
	client.SubResourceWriter
	client *freshClient
}

func (s *freshStatus) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return s.client.remember(obj, s.SubResourceWriter.Update(ctx, obj, opts...))
}

func (s *freshStatus) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return s.client.remember(obj, s.SubResourceWriter.Patch(ctx, obj, patch, opts...))
}
