// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

// heldFor is how long a Secret that has got the finalizer is not asked about again.
const heldFor = time.Minute

// Credentials put a finalizer on the Secrets that objects refer to, as the extension library does: no Secret goes as long as
// an object needs it. Unlike there, many objects may have the same Secret, as all BackupBuckets of a Garden do: the finalizer
// goes with the last of them, and as it is one element of a set for the API server, nobody's write is a conflict with
// another's. A single request says both that the Secret is there and that it has the finalizer.
type Credentials struct {
	client    client.Client
	finalizer string
	// list returns which object refers to which Secret. It is asked once.
	list func(ctx context.Context) (map[string]corev1.SecretReference, error)
	// held has the Secrets that have got the finalizer, as long as that is believed.
	held *utilcache.Expiring

	// mu is held by whoever may write a finalizer, so that none is taken off while another object puts it on.
	mu sync.Mutex
	// users are the objects with the Secrets that they refer to or have referred to before, which may have the finalizer
	// still; nil before the list was asked.
	users map[string]sets.Set[corev1.SecretReference]
}

// Credentials returns those of the Reconciler's objects, which refer to the Secrets that refOf returns. AddToManager has them started.
func (r *Reconciler[T]) Credentials(refOf func(T) corev1.SecretReference) *Credentials {
	r.credentials = newCredentials(r.Client, r.Finalizer, func(ctx context.Context) (map[string]corev1.SecretReference, error) {
		objs, err := r.list(ctx)
		out := map[string]corev1.SecretReference{}
		for _, obj := range objs {
			out[obj.GetName()] = refOf(obj)
		}
		return out, err
	})
	return r.credentials
}

// newCredentials returns Credentials for the objects of one kind. list returns the Secrets of all of them that there are
// when the program starts, by the names of the objects.
func newCredentials(c client.Client, finalizer string, list func(context.Context) (map[string]corev1.SecretReference, error)) *Credentials {
	return &Credentials{client: c, finalizer: finalizer, list: list, held: utilcache.NewExpiring()}
}

// Hold ensures that the Secret of an object is there and stays, and then lets go of those that the object referred to
// before. It is a configuration problem if the Secret is not there.
func (c *Credentials) Hold(ctx context.Context, user string, ref corev1.SecretReference) error {
	if !isComplete(ref) {
		return ConfigurationProblem(errors.New("spec.secretRef is incomplete: set name and namespace of a Secret"), RetryMistake)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(ctx); err != nil {
		return err
	}
	c.add(user, ref)
	if err := c.putOn(ctx, ref); err != nil {
		return err
	}
	_, err := c.takeOff(ctx, user, c.users[user].Clone().Delete(ref))
	return err
}

// Release lets go of the Secret of an object, and takes the finalizer off if no other object has it. It reports whether the
// Secret is there, which it takes for granted if another object has it.
func (c *Credentials) Release(ctx context.Context, user string, ref corev1.SecretReference) (found bool, err error) {
	if !isComplete(ref) {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(ctx); err != nil {
		return false, err
	}
	c.add(user, ref)
	missing, err := c.takeOff(ctx, user, c.users[user].Clone())
	return !missing.Has(ref) && err == nil, err
}

// forget lets go of the Secrets of an object that is gone, which it may be without Release: one without our finalizer, as it was
// deleted soon after its creation, or one that was gone already when an old cache listed it.
func (c *Credentials) forget(ctx context.Context, user string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.takeOff(ctx, user, c.users[user].Clone())
	return err
}

// Start implements manager.Runnable. It notes who refers to which Secret before one of them refers to another one.
func (c *Credentials) Start(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(ctx); err != nil {
		logf.FromContext(ctx).Error(err, "Noting who refers to Secrets; trying again when one of them is needed")
	}
	return nil
}

// load asks the list unless that has been done.
func (c *Credentials) load(ctx context.Context) error {
	if c.users != nil {
		return nil
	}
	users, err := c.list(ctx)
	if err != nil {
		return fmt.Errorf("listing who refers to Secrets: %w", err)
	}
	c.users = map[string]sets.Set[corev1.SecretReference]{}
	for user, ref := range users {
		if isComplete(ref) {
			c.add(user, ref)
		}
	}
	return nil
}

// add notes that an object refers to a Secret.
func (c *Credentials) add(user string, ref corev1.SecretReference) {
	if c.users[user] == nil {
		c.users[user] = sets.New[corev1.SecretReference]()
	}
	c.users[user].Insert(ref)
}

// isUsedByOthers reports whether a Secret may be referred to by another object.
func (c *Credentials) isUsedByOthers(user string, ref corev1.SecretReference) bool {
	for other, refs := range c.users {
		if other != user && refs.Has(ref) {
			return true
		}
	}
	return false
}

// putOn puts the finalizer on a Secret unless it has been done lately.
func (c *Credentials) putOn(ctx context.Context, ref corev1.SecretReference) error {
	if _, ok := c.held.Get(ref); ok {
		return nil
	}
	err := c.patch(ctx, ref, map[string]any{"finalizers": []string{c.finalizer}})
	if apierrors.IsNotFound(err) {
		return MissingSecret(ref)
	}
	if err != nil {
		return fmt.Errorf("putting a finalizer on the Secret %s/%s which spec.secretRef names: %w", ref.Namespace, ref.Name, err)
	}
	c.held.Set(ref, true, heldFor)
	return nil
}

// takeOff takes the finalizer off the Secrets that an object does not need any more, unless another one does. It returns which
// of them do not exist.
func (c *Credentials) takeOff(ctx context.Context, user string, refs sets.Set[corev1.SecretReference]) (missing sets.Set[corev1.SecretReference], err error) {
	missing = sets.New[corev1.SecretReference]()
	for ref := range refs {
		if !c.isUsedByOthers(user, ref) {
			c.held.Delete(ref)
			err := c.patch(ctx, ref, map[string]any{"$deleteFromPrimitiveList/finalizers": []string{c.finalizer}})
			if apierrors.IsNotFound(err) {
				missing.Insert(ref)
			} else if err != nil {
				return nil, fmt.Errorf("taking the finalizer off the Secret %s/%s which spec.secretRef names or has named: %w", ref.Namespace, ref.Name, err)
			}
		}
		if c.users[user].Delete(ref); len(c.users[user]) == 0 {
			delete(c.users, user)
		}
	}
	return missing, nil
}

func isComplete(ref corev1.SecretReference) bool { return ref.Name != "" && ref.Namespace != "" }

func (c *Credentials) patch(ctx context.Context, ref corev1.SecretReference, metadata map[string]any) error {
	data, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name}}
	return c.client.Patch(ctx, secret, client.RawPatch(types.StrategicMergePatchType, data))
}

// MissingSecret returns a configuration problem for an object whose spec.secretRef names a Secret that is not there.
func MissingSecret(ref corev1.SecretReference) error {
	return ConfigurationProblem(fmt.Errorf("the Secret %s/%s which spec.secretRef names does not exist: create it", ref.Namespace, ref.Name), RetryMissing)
}
