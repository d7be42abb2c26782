// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

// FieldOwner is the field manager of objects that are applied.
const FieldOwner = "gardener-extension-provider-local"

// Target is a cluster to which an Actuator writes objects.
type Target struct {
	// Client writes.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// Cache reads what was written before, if the controller watches it; nil if it does not.
	Cache client.Reader
	// Unread is for objects whose state is of no interest: it is not read.
	Unread bool
	// ID tells the targets of one operation apart. It must be comparable.
	ID any
}

// WithoutState returns the same cluster for objects whose state is of no interest.
func (t Target) WithoutState() Target {
	t.Unread = true
	return t
}

func (t Target) reader() client.Reader {
	if t.Cache != nil {
		return t.Cache
	}
	return t.Live
}

// writtenMax is the number of extension objects whose writes are remembered.
const writtenMax = 1024

// written is what one operation on an extension object has written so far. It is kept between the attempts and dropped once
// the operation has succeeded or another one is asked for: each operation writes each object at least once, which repairs
// what others have changed.
type written struct {
	operation  gardencorev1beta1.LastOperationType
	generation int64
	// begun is when this process made the first attempt.
	begun time.Time
	// objects has the version of each target. An Actuator may write several at a time.
	objects sync.Map
}

func (w *written) get(id target) version {
	value, _ := w.objects.Load(id)
	last, _ := value.(version)
	return last
}

func (w *written) set(id target, v version) { w.objects.Store(id, v) }

type target struct {
	cluster any
	kind    reflect.Type
	key     client.ObjectKey
}

// version is what is known of an object after it was written.
type version struct {
	input           [sha256.Size]byte
	uid             types.UID
	resourceVersion string
	deleted, gone   bool
}

// Apply makes an object what obj says, by server-side apply, and puts the answer of the API server into obj. Fields that
// obj does not set are left as they are, unless an earlier Apply has set them.
//
// Nothing is sent if the operation has applied the same before. Then the state of obj is read, and it is applied again if it
// is gone. If its state is of no interest, obj stays as it is.
func (o *Operation[T]) Apply(ctx context.Context, t Target, obj client.Object) error {
	desired, err := toApply(obj, t.Client.Scheme())
	if err != nil {
		return about("applying", obj, err)
	}
	data, err := json.Marshal(desired)
	if err != nil {
		return about("applying", obj, err)
	}
	id, input := t.of(obj), sha256.Sum256(data)
	if last := o.written.get(id); last.input == input {
		if t.Unread {
			return nil
		}
		current := blank(obj)
		err := t.reader().Get(ctx, id.key, current)
		if err == nil && current.GetUID() == last.uid && !isOlder(current, last) {
			set(obj, current)
			return nil
		}
		if client.IgnoreNotFound(err) != nil {
			return about("reading", obj, err)
		}
	}

	o.written.set(id, version{})
	if err := t.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), client.FieldOwner(FieldOwner), client.ForceOwnership); err != nil {
		return about("applying", obj, err)
	}
	current := blank(obj)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(desired.Object, current); err != nil {
		return about("applying", obj, err)
	}
	set(obj, current)
	o.written.set(id, version{input: input, uid: obj.GetUID(), resourceVersion: obj.GetResourceVersion()})
	return nil
}

// Create creates an object unless there is one of its name, and puts what there is into obj. It is for objects that can't
// be changed, as Pods, and for what is generated once, as keys.
func (o *Operation[T]) Create(ctx context.Context, t Target, obj client.Object) error {
	return o.Ensure(ctx, t, obj, true, func() error { return nil })
}

// Ensure is for objects that may be somebody else's, and for those that are to have nothing but what they are given: change sees
// what there is and makes obj, of which name and namespace are set, what it is to be. An error of change is returned as it is, and
// nothing is written then. Nothing is written either if the object is as it is to be.
//
// What is more likely is tried first, so that either takes one request: isThere says that the object should be there, so it is
// read. Else it is created, and read only if there is one. change may be called twice; an object that is there has a resource
// version. Afterwards obj has the state of the API server.
func (o *Operation[T]) Ensure(ctx context.Context, t Target, obj client.Object, isThere bool, change func() error) error {
	key, current := client.ObjectKeyFromObject(obj), blank(obj)
	var err error
	if isThere {
		err = t.reader().Get(ctx, key, current)
	}
	if !isThere || apierrors.IsNotFound(err) {
		if err := change(); err != nil {
			return err
		}
		o.written.set(t.of(obj), version{})
		if err := t.Client.Create(ctx, obj); !apierrors.IsAlreadyExists(err) {
			return about("creating", obj, err)
		}
		// The cache has not seen it yet, or leaves it out.
		err = t.Live.Get(ctx, key, current)
	}
	if err != nil {
		return about("reading", obj, err)
	}

	set(obj, current)
	before := obj.DeepCopyObject().(client.Object)
	if err := change(); err != nil {
		return err
	}
	if apiequality.Semantic.DeepEqual(before, obj) {
		return nil
	}
	// What was looked at must not be replaced meanwhile.
	return about("changing", obj, t.Client.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
}

// Delete deletes objects and returns those that are still there; none if their state is of no interest. An object that the
// operation has deleted before is only read, unless somebody has created it again. Once the cache does not show it any more,
// the API server is asked once, as the cache may not have seen yet that there was one.
func (o *Operation[T]) Delete(ctx context.Context, t Target, objs []client.Object, opts ...client.DeleteOption) (left []client.Object, err error) {
	for _, obj := range objs {
		isGone, err := o.delete(ctx, t, obj, opts)
		if err != nil {
			return nil, err
		}
		if !isGone {
			left = append(left, obj)
		}
	}
	return left, nil
}

func (o *Operation[T]) delete(ctx context.Context, t Target, obj client.Object, opts []client.DeleteOption) (isGone bool, err error) {
	id := t.of(obj)
	if last := o.written.get(id); last.deleted && !t.Unread {
		current, err := t.find(ctx, obj, last.gone)
		switch {
		case err != nil || current != nil && current.GetDeletionTimestamp() != nil:
			return false, about("reading", obj, err)
		case current == nil:
			o.written.set(id, version{deleted: true, gone: true})
			return true, nil
		}
		// Somebody has created it again, or the cache has not seen the deletion yet.
	}
	if err := t.Client.Delete(ctx, obj, opts...); client.IgnoreNotFound(err) != nil {
		return false, about("deleting", obj, err)
	} else if err != nil || t.Unread {
		return true, nil
	}
	current, err := t.find(ctx, obj, false)
	isGone = current == nil && err == nil
	o.written.set(id, version{deleted: true, gone: isGone})
	return isGone, about("reading", obj, err)
}

// DeleteAll deletes the objects of a kind that are in a namespace and have the labels, by one request however many there are, and
// returns those that are still there; none if their state is of no interest. list is an empty list of the kind. Objects that the
// operation has deleted before are only read. If the cache has none at all, the API server is asked once, as the cache may not have
// seen yet that there are some; not if t.Live is nil. Without a cache, objects without finalizers are taken for gone, and once all
// are gone nobody is asked again.
func (o *Operation[T]) DeleteAll(ctx context.Context, t Target, list client.ObjectList, namespace string, labels client.MatchingLabels) (left []client.Object, err error) {
	kind, err := apiutil.GVKForObject(list, t.Client.Scheme())
	if err != nil {
		return nil, err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	all := &metav1.PartialObjectMetadata{}
	all.SetGroupVersionKind(kind)
	explain := func(doing string, err error) error {
		return fmt.Errorf("%s each %s in %s: %w", doing, kind.Kind, namespace, err)
	}

	id := target{cluster: t.ID, kind: reflect.TypeOf(list), key: client.ObjectKey{Namespace: namespace, Name: kind.Kind}}
	if !t.Unread {
		last := o.written.get(id)
		if last.gone {
			return nil, nil
		}
		err := t.reader().List(ctx, list, client.InNamespace(namespace), labels)
		isSeen := meta.LenList(list) > 0
		if err == nil && !isSeen && !last.deleted && t.Cache != nil && t.Live != nil {
			// There may be some that the cache has not seen yet.
			err = t.Live.List(ctx, list, client.InNamespace(namespace), labels)
		}
		if err != nil {
			return nil, explain("listing", err)
		}
		isNew := false
		_ = meta.EachListItem(list, func(item runtime.Object) error {
			obj := item.(client.Object)
			last := o.written.get(t.of(obj))
			isNew = isNew || obj.GetDeletionTimestamp() == nil && (!last.deleted || last.uid != obj.GetUID())
			left = append(left, obj)
			return nil
		})
		// A cache that has not seen them yet says nothing of whether they are gone.
		o.written.set(id, version{deleted: isSeen || len(left) == 0, gone: len(left) == 0 && t.Cache == nil})
		if !isNew {
			return left, nil
		}
	}
	if err := t.Client.DeleteAllOf(ctx, all, client.InNamespace(namespace), labels); err != nil {
		return nil, explain("deleting", err)
	}
	for _, obj := range left {
		o.written.set(t.of(obj), version{uid: obj.GetUID(), deleted: true})
	}
	if t.Cache == nil && !t.Unread {
		left = slices.DeleteFunc(left, func(obj client.Object) bool { return len(obj.GetFinalizers()) == 0 })
		o.written.set(id, version{deleted: true, gone: len(left) == 0})
	}
	return left, nil
}

// Release takes all finalizers off an object, whoever waits for it to go. It is no error if there is none.
func (o *Operation[T]) Release(ctx context.Context, t Target, obj client.Object) error {
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	return about("taking the finalizers off", obj, client.IgnoreNotFound(t.Client.Patch(ctx, obj, patch)))
}

// find reads an object; it returns nil if there is none. Unless that is confirmed already, the API server is asked if the
// cache has none.
func (t Target) find(ctx context.Context, obj client.Object, confirmed bool) (client.Object, error) {
	current, key := blank(obj), client.ObjectKeyFromObject(obj)
	err := t.reader().Get(ctx, key, current)
	if apierrors.IsNotFound(err) && t.Cache != nil && !confirmed {
		err = t.Live.Get(ctx, key, current)
	}
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return current, nil
}

// Find reads an object; it returns nil if there is none.
func Find[T any, P interface {
	*T
	client.Object
}](ctx context.Context, reader client.Reader, key client.ObjectKey) (P, error) {
	obj := P(new(T))
	if err := reader.Get(ctx, key, obj); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return obj, nil
}

// writtenBy returns what earlier attempts at an operation have written.
func (r *Reconciler[T]) writtenBy(op *Operation[T]) *written {
	uid := op.Object.GetUID()
	if last, ok := r.written.Get(uid); ok && !op.Asked {
		if last := last.(*written); last.operation == op.Type && last.generation == op.Object.GetGeneration() {
			return last
		}
	}
	now := &written{operation: op.Type, generation: op.Object.GetGeneration(), begun: r.Clock.Now()}
	r.written.Add(uid, now)
	return now
}

func (t Target) of(obj client.Object) target {
	return target{cluster: t.ID, kind: reflect.TypeOf(obj), key: client.ObjectKeyFromObject(obj)}
}

// toApply returns what is sent of an object: all but its status and what the API server sets.
func toApply(obj client.Object, scheme *runtime.Scheme) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(obj, scheme)
	if err != nil {
		return nil, err
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, err
	}
	delete(content, "status")
	unstructured.RemoveNestedField(content, "metadata", "creationTimestamp")
	desired := &unstructured.Unstructured{Object: content}
	desired.SetGroupVersionKind(gvk)
	return desired, nil
}

// isOlder reports whether a cache has not seen yet what was written.
func isOlder(obj client.Object, last version) bool {
	order, err := resourceversion.CompareResourceVersion(obj.GetResourceVersion(), last.resourceVersion)
	return err != nil || order < 0
}

func blank(obj client.Object) client.Object {
	return reflect.New(reflect.TypeOf(obj).Elem()).Interface().(client.Object)
}

func set(obj, value client.Object) {
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(value).Elem())
}

// NameOf returns "KIND NAMESPACE/NAME".
func NameOf(obj client.Object) string {
	return cmp.Or(obj.GetObjectKind().GroupVersionKind().Kind, reflect.TypeOf(obj).Elem().Name()) + " " + client.ObjectKeyFromObject(obj).String()
}

func about(doing string, obj client.Object, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s %s: %w", doing, NameOf(obj), err)
}
