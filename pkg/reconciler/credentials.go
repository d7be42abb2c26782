// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	// heldFor is how long a Secret that has got the finalizer is not asked about again.
	heldFor = time.Minute
	// heldMax is how many of these are remembered.
	heldMax = 1024
)

// Credentials put a finalizer on the Secrets that objects refer to, as the extension library does: no Secret goes as long as
// an object needs it. Unlike there, many objects may have the same Secret, as all BackupBuckets of a Garden do: the finalizer
// goes with the last of them, and as it is one element of a set for the API server, nobody's write is a conflict with
// another's. A single request says both that the Secret is there and that it has the finalizer.
type Credentials struct {
	client    client.Client
	finalizer string
	// list returns which object refers to which Secret. It is asked once.
	list func(ctx context.Context) (map[string]corev1.SecretReference, error)
	// held has the Secrets that have got the finalizer, and until when that is believed.
	held *lru.Cache

	mu sync.Mutex
	// users are the objects that refer to a Secret; nil before the list was asked.
	users map[string]corev1.SecretReference
	count map[corev1.SecretReference]int
	// former are the Secrets that an object has referred to before, and which may have the finalizer still.
	former map[string][]corev1.SecretReference
}

// NewCredentials returns Credentials for the objects of one kind. list returns the Secrets of all of them that there are
// when the program starts, by the names of the objects.
func NewCredentials(c client.Client, finalizer string, list func(context.Context) (map[string]corev1.SecretReference, error)) *Credentials {
	return &Credentials{client: c, finalizer: finalizer, list: list, held: lru.New(heldMax)}
}

// Hold ensures that the Secret of an object is there and stays, and then lets go of those that the object referred to
// before. It is a configuration problem if the Secret is not there.
func (c *Credentials) Hold(ctx context.Context, user string, ref corev1.SecretReference) error {
	if ref.Name == "" || ref.Namespace == "" {
		return ConfigurationProblem(errors.New("spec.secretRef is incomplete: set name and namespace of a Secret"), RetryMistake)
	}
	if err := c.use(ctx, user, ref, true); err != nil {
		return err
	}
	if err := c.putOn(ctx, ref); err != nil {
		return err
	}
	return c.releaseFormer(ctx, user)
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

// Release lets go of the Secret of an object, and takes the finalizer off if no other object has it. It reports whether the
// Secret is there, which it takes for granted if another object has it.
func (c *Credentials) Release(ctx context.Context, user string, ref corev1.SecretReference) (found bool, err error) {
	if ref.Name == "" || ref.Namespace == "" {
		return false, nil
	}
	if err := c.use(ctx, user, ref, false); err != nil {
		return false, err
	}
	if found, err = c.takeOff(ctx, ref); err != nil {
		return false, err
	}
	return found, c.releaseFormer(ctx, user)
}

// releaseFormer lets go of the Secrets that an object has referred to before, once it has the one that it refers to now.
func (c *Credentials) releaseFormer(ctx context.Context, user string) error {
	c.mu.Lock()
	former := slices.Clone(c.former[user])
	c.mu.Unlock()
	for _, ref := range former {
		if _, err := c.takeOff(ctx, ref); err != nil {
			return err
		}
	}
	if len(former) > 0 {
		c.mu.Lock()
		delete(c.former, user)
		c.mu.Unlock()
	}
	return nil
}

// putOn puts the finalizer on a Secret unless it has been done lately.
func (c *Credentials) putOn(ctx context.Context, ref corev1.SecretReference) error {
	if until, ok := c.held.Get(ref); ok && time.Now().Before(until.(time.Time)) {
		return nil
	}
	err := c.patch(ctx, ref, map[string]any{"finalizers": []string{c.finalizer}})
	if apierrors.IsNotFound(err) {
		return MissingSecret(ref)
	}
	if err != nil {
		return fmt.Errorf("putting a finalizer on the Secret %s/%s which spec.secretRef names: %w", ref.Namespace, ref.Name, err)
	}
	c.held.Add(ref, time.Now().Add(heldFor))
	return nil
}

// takeOff takes the finalizer off a Secret unless an object refers to it. It returns whether the Secret exists.
func (c *Credentials) takeOff(ctx context.Context, ref corev1.SecretReference) (found bool, err error) {
	if c.isUsed(ref) {
		return true, nil
	}
	c.held.Remove(ref)
	err = c.patch(ctx, ref, map[string]any{"$deleteFromPrimitiveList/finalizers": []string{c.finalizer}})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("taking the finalizer off the Secret %s/%s which spec.secretRef names or has named: %w", ref.Namespace, ref.Name, err)
	}
	return true, nil
}

// use notes that an object refers to a Secret, or has done so until now.
func (c *Credentials) use(ctx context.Context, user string, ref corev1.SecretReference, stays bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.load(ctx); err != nil {
		return err
	}

	if before, ok := c.users[user]; ok {
		delete(c.users, user)
		if c.count[before]--; c.count[before] == 0 {
			delete(c.count, before)
		}
		if before != ref && before.Name != "" && before.Namespace != "" {
			c.former[user] = append(c.former[user], before)
		}
	}
	if stays {
		c.users[user] = ref
		c.count[ref]++
	}
	return nil
}

// load asks the list unless that has been done. The lock is to be held.
func (c *Credentials) load(ctx context.Context) error {
	if c.users != nil {
		return nil
	}
	users, err := c.list(ctx)
	if err != nil {
		return fmt.Errorf("listing who refers to Secrets: %w", err)
	}
	c.users, c.count, c.former = map[string]corev1.SecretReference{}, map[corev1.SecretReference]int{}, map[string][]corev1.SecretReference{}
	for user, ref := range users {
		c.users[user] = ref
		c.count[ref]++
	}
	return nil
}

// isUsed reports whether an object refers to a Secret.
func (c *Credentials) isUsed(ref corev1.SecretReference) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count[ref] > 0
}

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
