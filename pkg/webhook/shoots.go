// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/keymutex"
	"sigs.k8s.io/controller-runtime/pkg/client"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/flow"

	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/certificate"
)

const (
	// ManagedResourceName is the name of the ManagedResource with the registration in a shoot. Gardener's documentation of
	// provider-local names it.
	ManagedResourceName = "extension-controlplane-shoot-webhooks"

	// concurrentUpdates is how many shoots are updated at a time when the CA changes.
	concurrentUpdates = 10
)

// ShootWebhooks registers the webhooks for shoots in shoots, by a ManagedResource in each shoot's namespace. The URL of a
// webhook there is "https://NAME.NAMESPACE:PORT/PATH/SHOOT-NAMESPACE".
//
// Its methods are for controllers, that is, for the leader. They may be called concurrently.
type ShootWebhooks struct {
	// config is what to register, nil if there is nothing.
	config *admissionregistrationv1.MutatingWebhookConfiguration
	writer *resources.Writer
	// client does not cache.
	client client.Client
	// observed returns the certificates to trust as the Secrets tell; published are those that the leader has told clients.
	// A new leader uses the first until it has looked at the Secrets itself.
	observed   func() []byte
	published  atomic.Pointer[[]byte]
	registered chan struct{}
	// locks are one per namespace, so that an update doesn't bring back what is deleted meanwhile.
	locks keymutex.KeyMutex
	// updated is the bundle with which all shoots were updated last. Only update uses it.
	updated []byte
}

func newShootWebhooks(config *admissionregistrationv1.MutatingWebhookConfiguration, writer *resources.Writer, c client.Client, observed func() []byte) *ShootWebhooks {
	return &ShootWebhooks{
		config:     config,
		writer:     writer,
		client:     c,
		observed:   observed,
		registered: make(chan struct{}),
		locks:      keymutex.NewHashed(256),
	}
}

// Registered is closed when this replica is the leader, the registration in the cluster itself is up to date, and this
// replica has a certificate. The Service may still take the time of a readiness probe to route requests to the replica.
func (s *ShootWebhooks) Registered() <-chan struct{} {
	return s.registered
}

// Apply registers the webhooks in the shoot whose namespace in the seed is given: it writes the ManagedResource and does
// not wait until it is applied. When the CA changes later, all ManagedResources are updated without another call. If the
// instance has no webhooks for shoots, it removes what an earlier one has registered.
//
// The error is or wraps certificate.ErrNone as long as there is no CA, which is for a moment after the very first start:
// just call it again. Otherwise it is one of resources.Writer.Apply.
func (s *ShootWebhooks) Apply(ctx context.Context, namespace string) error {
	if s.config == nil {
		_, err := s.Delete(ctx, namespace)
		return err
	}

	s.locks.LockKey(namespace)
	defer func() { _ = s.locks.UnlockKey(namespace) }()
	return s.write(ctx, namespace)
}

// Delete removes the registration from the shoot and reports whether it is gone. It is not as long as
// gardener-resource-manager deletes it; call it again when a watch tells that the ManagedResource was deleted.
func (s *ShootWebhooks) Delete(ctx context.Context, namespace string) (bool, error) {
	s.locks.LockKey(namespace)
	defer func() { _ = s.locks.UnlockKey(namespace) }()
	return s.writer.Delete(ctx, client.ObjectKey{Namespace: namespace, Name: ManagedResourceName})
}

// write writes the ManagedResource, and once more if the CA has changed meanwhile: the update of all shoots may have come
// too early to find it.
func (s *ShootWebhooks) write(ctx context.Context, namespace string) error {
	for {
		bundle := s.bundle()
		if len(bundle) == 0 {
			return fmt.Errorf("registering webhooks for shoot %s: %w", namespace, certificate.ErrNone)
		}

		config := s.config.DeepCopy()
		for i := range config.Webhooks {
			config.Webhooks[i].ClientConfig.CABundle = bundle
			config.Webhooks[i].ClientConfig.URL = new(*config.Webhooks[i].ClientConfig.URL + "/" + namespace)
		}
		if err := s.writer.Apply(ctx, resources.ManagedResource{
			Namespace: namespace,
			Name:      ManagedResourceName,
			Objects:   []client.Object{config},
		}); err != nil {
			return fmt.Errorf("registering webhooks for shoot %s: %w", namespace, err)
		}

		if bytes.Equal(bundle, s.bundle()) {
			return nil
		}
	}
}

func (s *ShootWebhooks) bundle() []byte {
	if published := s.published.Load(); published != nil {
		return *published
	}
	return s.observed()
}

// update makes all shoots that have the webhooks trust the bundle, or removes the webhooks from them if there are none
// any more. It does nothing if all shoots are up to date. The error is of all shoots that could not be updated.
func (s *ShootWebhooks) update(ctx context.Context, bundle []byte) error {
	if s.writer == nil || s.updated != nil && bytes.Equal(s.updated, bundle) {
		return nil
	}
	s.published.Store(&bundle)

	// Not from a cache: what Apply has written just now may not be there yet.
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(resourcesv1alpha1.SchemeGroupVersion.WithKind("ManagedResourceList"))
	if err := s.client.List(ctx, list, client.MatchingFields{metav1.ObjectNameField: ManagedResourceName}, client.MatchingLabels{resources.LabelOrigin: resources.Origin}); err != nil {
		return fmt.Errorf("listing shoots with webhooks: %w", err)
	}

	var updates []flow.TaskFn
	for _, item := range list.Items {
		if item.DeletionTimestamp == nil {
			updates = append(updates, func(ctx context.Context) error { return s.updateOne(ctx, item.Namespace) })
		}
	}
	if err := flow.ParallelN(concurrentUpdates, updates...)(ctx); err != nil {
		return err
	}
	s.updated = append([]byte{}, bundle...)
	return nil
}

func (s *ShootWebhooks) updateOne(ctx context.Context, namespace string) error {
	if s.config == nil {
		_, err := s.Delete(ctx, namespace)
		return err
	}

	s.locks.LockKey(namespace)
	defer func() { _ = s.locks.UnlockKey(namespace) }()

	mr := &metav1.PartialObjectMetadata{}
	mr.SetGroupVersionKind(resourcesv1alpha1.SchemeGroupVersion.WithKind("ManagedResource"))
	if err := s.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: ManagedResourceName}, mr); apierrors.IsNotFound(err) {
		return nil
	} else if err != nil {
		return fmt.Errorf("reading ManagedResource %s/%s: %w", namespace, ManagedResourceName, err)
	}
	if mr.DeletionTimestamp != nil {
		return nil
	}

	err := s.write(ctx, namespace)
	if goesAway(err) {
		return nil
	}
	return err
}

// goesAway reports whether a write failed because the ManagedResource or its namespace is being deleted.
func goesAway(err error) bool {
	return errors.Is(err, resources.ErrDeleting) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
