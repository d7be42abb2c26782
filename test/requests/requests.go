// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package requests counts what a controller sends to the API server, for tests that hold each kind to what it may cost.
package requests

import (
	"context"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
)

// Asking returns the annotations by which Gardener asks for an operation. For what it costs the time has to be later than that of
// the last one: within the same second it is a request more.
func Asking(operation string, at time.Time) map[string]string {
	return map[string]string{
		v1beta1constants.GardenerOperation: operation,
		v1beta1constants.GardenerTimestamp: at.UTC().Format(time.RFC3339Nano),
	}
}

// Log has the requests since it was last taken, as "VERB KIND".
type Log struct {
	mu   sync.Mutex
	sent []string
}

// Take returns the requests, in their order, and forgets them.
func (l *Log) Take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := l.sent
	l.sent = nil
	return out
}

func (l *Log) note(verb string, obj any) { l.noteKind(verb, reflect.TypeOf(obj).Elem().Name()) }

func (l *Log) noteKind(verb, kind string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sent = append(l.sent, verb+" "+kind)
}

// Wrap returns a client that notes its requests in the Log: all writes, and reads of what no cache has, which are Secrets,
// ConfigMaps and Namespaces.
func (l *Log) Wrap(c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			switch obj.(type) {
			case *corev1.Secret, *corev1.ConfigMap, *corev1.Namespace, *metav1.PartialObjectMetadata:
				l.note("get", obj)
			}
			return c.Get(ctx, key, obj, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			l.note("create", obj)
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			l.note("update", obj)
			return c.Update(ctx, obj, opts...)
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			l.noteKind("apply", obj.(client.Object).GetObjectKind().GroupVersionKind().Kind)
			return c.Apply(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			l.note("patch", obj)
			return c.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			l.note("delete", obj)
			return c.Delete(ctx, obj, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			l.note("patch "+sub+" of", obj)
			return c.SubResource(sub).Patch(ctx, obj, patch, opts...)
		},
	})
}
