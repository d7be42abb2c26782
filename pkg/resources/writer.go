// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package resources turns objects into a ManagedResource whose data is compressed with Brotli. It is the only place of
// this extension that writes ManagedResources: the controllers hand it objects, gardener-resource-manager (GRM) applies
// them.
//
// What is written for a ManagedResource NAMESPACE/NAME:
//   - an immutable Secret NAMESPACE/managedresource-NAME-HASH with the one key "data.yaml.br": all objects as YAML
//     documents, sorted, in one Brotli stream. HASH is over the objects and not over the compressed bytes. So neither
//     another compression level nor a new version of the compressor renames a Secret whose objects are the same, and
//     nothing is compressed just to learn that it is there already. The Secret carries the label by which GRM collects
//     it as garbage once no ManagedResource refers to it;
//   - the ManagedResource, with the annotation that keeps GRM from collecting the Secret.
//
// An Apply that changes nothing costs no request and no compression. The resource version that the ManagedResource had
// after the last write is remembered in a bounded cache. As long as it is the same, nobody has touched the ManagedResource,
// and the Secret is there too: GRM watches the Secrets it uses and reports one that is gone in the status of the
// ManagedResource, which changes the resource version. Only when that differs, and GRM does not say that it has applied
// the ManagedResource as it is, the Secret is looked up, by its metadata alone.
package resources

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/resourcemanager/controller/garbagecollector/references"
	"github.com/gardener/gardener/pkg/utils"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

const (
	// LabelOrigin is the label which all that Writer writes carries, with the value Origin. A manager may restrict its
	// cache of ManagedResources to it: Writer copes with ManagedResources of the same name that do not have it yet.
	LabelOrigin = "origin"
	// Origin is the value of LabelOrigin. Gardener's own are "gardener" and "gardener-operator".
	Origin = "provider-local"

	secretNamePrefix = "managedresource-"
)

// ManagedResource is what a controller wants GRM to apply.
type ManagedResource struct {
	// Namespace and Name are those of the ManagedResource.
	Namespace, Name string
	// Class tells which GRM applies the objects: "seed" for the one that is responsible for the cluster in which the
	// ManagedResource is, empty for the one of the namespace, that is, the GRM of a shoot or of the virtual garden.
	Class string
	// Labels are put on the ManagedResource. Others that it has are left alone.
	Labels map[string]string
	// InjectedLabels are put on all objects by GRM.
	InjectedLabels map[string]string
	// OwnerReferences of the ManagedResource; none leaves those it has alone.
	OwnerReferences []metav1.OwnerReference
	// Objects in any order. Each needs a kind which is either set or known to the scheme of the Writer's client, and a
	// name; none may be given twice. They are not changed. None at all is valid and empties the ManagedResource.
	Objects []client.Object
}

func (m ManagedResource) key() client.ObjectKey {
	return client.ObjectKey{Namespace: m.Namespace, Name: m.Name}
}

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
	// Metrics count what it does; nil for none.
	Metrics *metrics.Resources
}

// remembered is how a ManagedResource was after it was written last, or found to be as wanted.
type remembered struct {
	// uid and resourceVersion are empty if it is not known how a write ended, or if another method changed the
	// ManagedResource: then the next Apply writes, whatever a cache says that may not have seen this yet.
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

// Apply creates or updates the ManagedResource and the Secret with its objects. It writes nothing if nothing changed,
// and writes again what was changed or deleted in the cluster. It does not wait until the objects are applied.
//
// Errors: ErrDeleting if the ManagedResource is being deleted, ErrTooLarge, what is wrong with an object, or what the
// API server said. After a conflict just call it again.
func (w *Writer) Apply(ctx context.Context, mr ManagedResource) error {
	unchanged, err := w.apply(ctx, mr)
	if unchanged {
		w.Metrics.Unchanged()
		return nil
	}
	w.Metrics.Written(err)
	if err != nil {
		return fmt.Errorf("applying ManagedResource %s: %w", mr.key(), err)
	}
	return nil
}

// apply reports whether there was nothing to write.
func (w *Writer) apply(ctx context.Context, mr ManagedResource) (bool, error) {
	want, err := w.plan(mr)
	if err != nil {
		return false, err
	}
	current := &resourcesv1alpha1.ManagedResource{}
	if err := w.client.Get(ctx, want.key(), current); apierrors.IsNotFound(err) {
		none := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Namespace: want.Namespace, Name: want.Name}}
		return false, w.write(ctx, want, none, false)
	} else if err != nil {
		return false, fmt.Errorf("reading it: %w", err)
	}
	if current.DeletionTimestamp != nil {
		return false, ErrDeleting
	}

	last, known := w.recall(want.key())
	switch {
	case known && !w.hasSeen(current), !want.isMetBy(current):
		return false, w.write(ctx, want, current, true)
	case last.resourceVersion == current.ResourceVersion:
		return true, nil
	}
	// The first time, or somebody touched it, but not what matters here: most of the time that is GRM, which writes the
	// status. It says so there if the Secret is gone, and nobody looks if GRM has read it.
	created := false
	if health.CheckManagedResourceApplied(current) != nil {
		if created, err = w.ensureSecret(ctx, want, true); err != nil {
			return false, err
		}
	}
	w.remember(current)
	return !created, nil
}

// write makes the ManagedResource what is wanted, from what the cache has. The Secret comes first: a
// ManagedResource without it would be reported as broken.
func (w *Writer) write(ctx context.Context, want *plan, current *resourcesv1alpha1.ManagedResource, isThere bool) (err error) {
	w.forget(want.key())
	if _, err := w.ensureSecret(ctx, want, slices.Contains(current.Spec.SecretRefs, corev1.LocalObjectReference{Name: want.secretName})); err != nil {
		return err
	}

	mr := current.DeepCopy()
	if !isThere {
		want.mutate(mr)
		err = w.client.Create(ctx, mr)
	}
	if isThere || apierrors.IsAlreadyExists(err) {
		// In the second case the cache has not seen it yet, or shows just those with our label, and this one was made by another
		// program.
		mr, err = w.patch(ctx, want, current)
	}
	if err != nil {
		return fmt.Errorf("writing it: %w", err)
	}
	w.remember(mr)
	return nil
}

// patch makes the ManagedResource what is wanted. What was read may come from a cache that lags behind; so the answer is
// looked at, and what is still different there is patched once more. No resource version is sent: GRM writes other fields
// of the same object all the time, and there is nothing to merge.
func (w *Writer) patch(ctx context.Context, want *plan, from *resourcesv1alpha1.ManagedResource) (*resourcesv1alpha1.ManagedResource, error) {
	for range 2 {
		to := from.DeepCopy()
		want.mutate(to)
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
	last, _ := w.recall(client.ObjectKeyFromObject(mr))
	order, err := resourceversion.CompareResourceVersion(mr.ResourceVersion, last.resourceVersion)
	return err == nil && order >= 0 && last.uid == mr.UID
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

func (w *Writer) remember(mr *resourcesv1alpha1.ManagedResource) {
	w.remembered.Add(client.ObjectKeyFromObject(mr), remembered{uid: mr.UID, resourceVersion: mr.ResourceVersion})
}

func (w *Writer) recall(key client.ObjectKey) (remembered, bool) {
	value, known := w.remembered.Get(key)
	last, _ := value.(remembered)
	return last, known
}

// forget is called before a write, so that one whose outcome is not known makes the next Apply write.
func (w *Writer) forget(key client.ObjectKey) {
	w.remembered.Add(key, remembered{})
}

// plan is a ManagedResource with what follows from its objects.
type plan struct {
	ManagedResource
	documents  documents
	secretName string
}

func (w *Writer) plan(mr ManagedResource) (*plan, error) {
	if mr.Namespace == "" || mr.Name == "" {
		return nil, errors.New("it has no name or no namespace")
	}

	docs, err := newDocuments(mr.Objects, w.client)
	if err != nil {
		return nil, err
	}

	out := &plan{ManagedResource: mr, documents: docs, secretName: secretNamePrefix + mr.Name + "-" + docs.hash()}
	out.Labels = utils.MergeStringMaps(mr.Labels, map[string]string{LabelOrigin: Origin})
	return out, nil
}

// mutate makes mr what is wanted and leaves alone what this package does not know of.
func (p *plan) mutate(mr *resourcesv1alpha1.ManagedResource) {
	mr.Labels = utils.MergeStringMaps(mr.Labels, p.Labels)
	if len(p.OwnerReferences) > 0 {
		mr.OwnerReferences = p.OwnerReferences
	}

	mr.Spec.Class = nil
	if p.Class != "" {
		mr.Spec.Class = &p.Class
	}
	mr.Spec.SecretRefs = []corev1.LocalObjectReference{{Name: p.secretName}}
	mr.Spec.InjectLabels = p.InjectedLabels
	mr.Spec.KeepObjects = new(false)

	// Replaces the references to former Secrets, which thereby become garbage. It knows this kind, so it does not fail.
	_ = references.InjectAnnotations(mr)
}

func (p *plan) isMetBy(mr *resourcesv1alpha1.ManagedResource) bool {
	mutated := mr.DeepCopy()
	p.mutate(mutated)
	return equality.Semantic.DeepEqual(mr, mutated)
}

// ensureSecret creates the Secret unless it is there. Where it probably is, a look at its metadata saves the compression
// and the request with all the data. It reports whether the Secret had to be created.
func (w *Writer) ensureSecret(ctx context.Context, want *plan, probablyThere bool) (bool, error) {
	if probablyThere {
		if found, err := w.checkSecret(ctx, want); found || err != nil {
			return false, err
		}
	}

	err := w.createSecret(ctx, want)
	if !apierrors.IsAlreadyExists(err) {
		return err == nil, err
	}

	// Left by a run that ended half-way, or by a former state of the ManagedResource to which it now returns.
	found, err := w.checkSecret(ctx, want)
	if err == nil && !found {
		return false, fmt.Errorf("secret %s/%s was deleted just now: %w", want.Namespace, want.secretName, ErrDeleting)
	}
	return false, err
}

// checkSecret reports whether the Secret is there. Its data is not read: it is immutable, and its name tells which it is.
func (w *Writer) checkSecret(ctx context.Context, want *plan) (bool, error) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))

	key := client.ObjectKey{Namespace: want.Namespace, Name: want.secretName}
	if err := w.client.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		return false, nil
	} else if err != nil {
		return false, fmt.Errorf("reading metadata of secret %s: %w", key, err)
	}

	if secret.DeletionTimestamp != nil {
		return false, fmt.Errorf("secret %s: %w", key, ErrDeleting)
	}
	if secret.Labels[references.LabelKeyGarbageCollectable] == references.LabelValueGarbageCollectable {
		return true, nil
	}

	// Without the label it would stay forever once it is not used any more.
	data := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, references.LabelKeyGarbageCollectable, references.LabelValueGarbageCollectable)
	if err := w.client.Patch(ctx, secret, client.RawPatch(types.MergePatchType, data)); err != nil {
		return false, fmt.Errorf("labelling secret %s as garbage-collectable: %w", key, err)
	}
	return true, nil
}

func (w *Writer) createSecret(ctx context.Context, want *plan) error {
	text, err := want.documents.yaml()
	if err != nil {
		return err
	}
	data, err := w.compressor.compress(text)
	if err != nil {
		return err
	}
	if len(data) > corev1.MaxSecretSize {
		return fmt.Errorf("%d objects take %d bytes: %w", len(want.documents), len(data), ErrTooLarge)
	}

	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: want.Namespace,
			Name:      want.secretName,
			Labels: map[string]string{
				LabelOrigin:                           Origin,
				references.LabelKeyGarbageCollectable: references.LabelValueGarbageCollectable,
			},
		},
		Type:      corev1.SecretTypeOpaque,
		Immutable: new(true),
		Data:      map[string][]byte{resourcesv1alpha1.CompressedDataKey: data},
	}

	if err := w.client.Create(ctx, secret); err != nil {
		return fmt.Errorf("creating secret %s/%s: %w", secret.Namespace, secret.Name, err)
	}
	w.Metrics.Compressed(len(text), len(data))
	return nil
}
