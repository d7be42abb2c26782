// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

// rememberedMax is how many ManagedResources are remembered, at about 300 bytes each. Beyond that, the ones that were
// not applied for longest cost a request again.
const rememberedMax = 8192

// ErrDeleting tells that a ManagedResource or its Secret is being deleted and cannot be written until it is gone. Check
// with errors.Is.
var ErrDeleting = errors.New("it is being deleted, wait until it is gone")

// ErrTooLarge tells that the objects do not fit in a Secret. Check with errors.Is.
var ErrTooLarge = fmt.Errorf("more than %d bytes after compression, split it into several ManagedResources", corev1.MaxSecretSize)

// Writer writes ManagedResources. It is safe for concurrent use; make it with New, one for all controllers of an
// instance.
type Writer struct {
	client     client.Client
	compressor *compressor
	remembered *lru.Cache
	metrics    *metrics.Resources
}

// remembered is what was written last for a ManagedResource, or what was found to be as wanted.
type remembered struct {
	// inputs is the hash of what was wanted.
	inputs [sha256.Size]byte
	// uid and resourceVersion are those of the ManagedResource after that. They are empty if it is not known how a write
	// ended, or if another method changed the ManagedResource: then the next Apply writes, whatever a cache says that may
	// not have seen this yet.
	uid             types.UID
	resourceVersion string
	// deleted tells that Delete has deleted it since, and uid which one that was; empty if there was none.
	deleted bool
}

// New returns a Writer. The client may read ManagedResources from a cache, which makes an Apply that changes nothing
// free. It must not read Secrets from one, that is, Secret belongs in the list CacheOptions.DisableFor of a manager's
// client: else the metadata of all Secrets would be cached.
//
// Needed permissions: get, create, patch, delete on ManagedResources (and list and watch for a cache) and on Secrets.
func New(client client.Client) *Writer {
	return &Writer{
		client:     client,
		compressor: newCompressor(defaultLevel),
		remembered: lru.New(rememberedMax),
	}
}

// WithMetrics returns a Writer that shares the memory of this one and counts what it does.
func (w *Writer) WithMetrics(m *metrics.Resources) *Writer {
	counting := *w
	counting.metrics = m
	return &counting
}

// Apply creates or updates the ManagedResource and the Secret with its objects. It writes nothing if nothing changed,
// and writes again what was changed or deleted in the cluster. It does not wait until the objects are applied.
//
// Errors: ErrDeleting if the ManagedResource is being deleted, ErrTooLarge, what is wrong with an object, or what the
// API server said. After a conflict just call it again.
func (w *Writer) Apply(ctx context.Context, mr ManagedResource) error {
	want, err := w.plan(mr)
	unchanged := false
	if err == nil {
		unchanged, err = w.apply(ctx, want)
	}
	if unchanged {
		w.metrics.Unchanged()
		return nil
	}
	w.metrics.Written(err)
	if err != nil {
		return fmt.Errorf("applying ManagedResource %s: %w", mr.key(), err)
	}
	return nil
}

// apply reports whether there was nothing to write.
func (w *Writer) apply(ctx context.Context, want *plan) (bool, error) {
	current := &resourcesv1alpha1.ManagedResource{}
	if err := w.client.Get(ctx, want.key(), current); apierrors.IsNotFound(err) {
		return false, w.create(ctx, want)
	} else if err != nil {
		return false, fmt.Errorf("reading it: %w", err)
	}
	if current.DeletionTimestamp != nil {
		return false, ErrDeleting
	}

	last, known := w.recall(want.key())
	switch {
	case known && last == want.remembered(current):
		return true, nil
	case (!known || last.inputs == want.inputs && last.resourceVersion != "") && want.isMetBy(current):
		// The first time, or somebody touched it, but not what matters here: most of the time that is GRM, which
		// writes the status. It says so there if the Secret is gone, and nobody looks if GRM has read it.
		created := false
		if !isApplied(current) {
			var err error
			if created, err = w.ensureSecret(ctx, want, true); err != nil {
				return false, err
			}
		}
		w.remembered.Add(want.key(), want.remembered(current))
		return !created, nil
	default:
		return false, w.update(ctx, want, current)
	}
}

// isApplied reports whether GRM has applied the objects as the ManagedResource is now, for which it has read the Secret.
func isApplied(mr *resourcesv1alpha1.ManagedResource) bool {
	applied := v1beta1helper.GetCondition(mr.Status.Conditions, resourcesv1alpha1.ResourcesApplied)
	return applied != nil && applied.Status == gardencorev1beta1.ConditionTrue && mr.Status.ObservedGeneration == mr.Generation
}

// create writes the Secret first: a ManagedResource without it would be reported as broken.
func (w *Writer) create(ctx context.Context, want *plan) error {
	w.forget(want.key())
	if _, err := w.ensureSecret(ctx, want, false); err != nil {
		return err
	}

	mr := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Namespace: want.Namespace, Name: want.Name}}
	if err := want.mutate(mr); err != nil {
		return err
	}

	err := w.client.Create(ctx, mr)
	if apierrors.IsAlreadyExists(err) {
		// The cache has not seen it yet, or shows just those with our label, and this one was made by another program.
		mr, err = w.patch(ctx, want, &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Namespace: want.Namespace, Name: want.Name}})
	}
	if err != nil {
		return fmt.Errorf("creating it: %w", err)
	}

	w.remembered.Add(want.key(), want.remembered(mr))
	return nil
}

func (w *Writer) update(ctx context.Context, want *plan, current *resourcesv1alpha1.ManagedResource) error {
	w.forget(want.key())
	if _, err := w.ensureSecret(ctx, want, slices.Contains(current.Spec.SecretRefs, corev1.LocalObjectReference{Name: want.secretName})); err != nil {
		return err
	}

	mr, err := w.patch(ctx, want, current)
	if err != nil {
		return fmt.Errorf("updating it: %w", err)
	}

	w.remembered.Add(want.key(), want.remembered(mr))
	return nil
}

// patch makes the ManagedResource what is wanted. What was read may come from a cache that lags behind; so the answer is
// looked at, and what is still different there is patched once more. No resource version is sent: GRM writes other fields
// of the same object all the time, and there is nothing to merge.
func (w *Writer) patch(ctx context.Context, want *plan, from *resourcesv1alpha1.ManagedResource) (*resourcesv1alpha1.ManagedResource, error) {
	for range 2 {
		to := from.DeepCopy()
		if err := want.mutate(to); err != nil {
			return nil, err
		}
		if err := w.client.Patch(ctx, to, client.MergeFrom(from)); err != nil {
			return nil, err
		}
		// The client has put the answer in its place.
		if to.DeletionTimestamp != nil {
			return nil, ErrDeleting
		}
		if want.isMetBy(to) {
			return to, nil
		}
		from = to
	}
	return from, nil
}

// Check returns a ManagedResource that was applied, with what check says of it; nil if it cannot be read. The cache is asked first,
// as the watch tells when it changes. If that is fine, but not known to be what was written last, the API server is asked (live).
func (w *Writer) Check(ctx context.Context, live client.Reader, key client.ObjectKey, check func(*resourcesv1alpha1.ManagedResource) error) (*resourcesv1alpha1.ManagedResource, error) {
	var mr *resourcesv1alpha1.ManagedResource
	for _, reader := range []client.Reader{w.client, live} {
		mr = &resourcesv1alpha1.ManagedResource{}
		if err := reader.Get(ctx, key, mr); err != nil {
			return nil, fmt.Errorf("reading ManagedResource %s: %w", key, err)
		}
		if err := check(mr); err != nil || w.hasSeen(mr) {
			return mr, err
		}
	}
	return mr, nil
}

// hasSeen reports whether a ManagedResource, which may come from a cache that lags behind, is as it was after the last Apply
// of this Writer, or newer. It is false if that is not known.
func (w *Writer) hasSeen(mr *resourcesv1alpha1.ManagedResource) bool {
	last, known := w.recall(client.ObjectKeyFromObject(mr))
	if !known || last.resourceVersion == "" || last.uid != mr.UID {
		return false
	}
	order, err := resourceversion.CompareResourceVersion(mr.ResourceVersion, last.resourceVersion)
	return err == nil && order >= 0
}

// Delete deletes the ManagedResource and the Secrets it refers to, and reports whether it is gone. It is not as long as
// GRM deletes the objects; call it again when a watch tells that the ManagedResource was deleted. If ManagedResources are
// read from a cache that costs no request any more. What never was is gone.
func (w *Writer) Delete(ctx context.Context, key client.ObjectKey) (bool, error) {
	return w.delete(ctx, key, false)
}

// Orphan deletes the ManagedResource as Delete does, but has GRM leave the objects where they are.
func (w *Writer) Orphan(ctx context.Context, key client.ObjectKey) (bool, error) {
	return w.delete(ctx, key, true)
}

func (w *Writer) delete(ctx context.Context, key client.ObjectKey, keepObjects bool) (bool, error) {
	last, _ := w.recall(key)
	mr := &resourcesv1alpha1.ManagedResource{}
	err := w.client.Get(ctx, key, mr)
	unknown := apierrors.IsNotFound(err)
	switch {
	case client.IgnoreNotFound(err) != nil:
		return false, fmt.Errorf("deleting ManagedResource %s: reading it: %w", key, err)
	case unknown && last.deleted:
		return true, nil
	case !unknown && last.deleted && (mr.DeletionTimestamp != nil || last.uid != "" && last.uid == mr.UID) &&
		(!keepObjects || ptr.Deref(mr.Spec.KeepObjects, false)):
		// GRM is at it. In the second case the cache has yet to see that.
		return false, nil
	}

	w.forget(key)
	target := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
	if keepObjects {
		err := w.client.Patch(ctx, target.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"spec":{"keepObjects":true}}`)))
		if apierrors.IsNotFound(err) {
			w.remembered.Add(key, remembered{deleted: true})
			return true, nil
		}
		if err != nil {
			return false, fmt.Errorf("setting keepObjects of ManagedResource %s: %w", key, err)
		}
	}

	// The Secrets first: were it the other way round, a crash in between would leave them to the garbage collector of
	// GRM, which may be gone by then. GRM does not need them to delete the objects.
	for _, ref := range mr.Spec.SecretRefs {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: ref.Name}}
		if err := client.IgnoreNotFound(w.client.Delete(ctx, secret)); err != nil {
			return false, fmt.Errorf("deleting secret %s/%s of ManagedResource: %w", secret.Namespace, secret.Name, err)
		}
	}

	// Asked of the API server even if the cache knows of none: it may not have seen what was created just now.
	err = w.client.Delete(ctx, target)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("deleting ManagedResource %s: %w", key, err)
	}
	gone := err != nil
	if unknown && !gone {
		// Until the cache has seen it, it cannot tell when that is gone.
		return false, nil
	}
	w.remembered.Add(key, remembered{uid: mr.UID, deleted: true})
	return gone, nil
}

func (w *Writer) recall(key client.ObjectKey) (remembered, bool) {
	value, ok := w.remembered.Get(key)
	if !ok {
		return remembered{}, false
	}
	return value.(remembered), true
}

// forget is called before a write, so that one whose outcome is not known makes the next Apply write.
func (w *Writer) forget(key client.ObjectKey) {
	w.remembered.Add(key, remembered{})
}
