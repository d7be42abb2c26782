// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package certificate

import (
	"crypto/tls"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

// ErrNone tells that there is no certificate yet: the leader is about to make one. Check with errors.Is.
var ErrNone = errors.New("there is no certificate yet, the leader makes one")

// Store holds in memory what an authority's Secrets hold. It is a handler for the events of an informer on these Secrets.
// Make it with NewStore.
type Store struct {
	log   logr.Logger
	clock clock.PassiveClock

	lock    sync.Mutex
	secrets map[string]*corev1.Secret

	inventory atomic.Pointer[inventory]
	serving   atomic.Pointer[pair]
	present   chan struct{}
}

var _ toolscache.ResourceEventHandler = &Store{}

// NewStore returns an empty Store.
func NewStore(log logr.Logger, clock clock.PassiveClock) *Store {
	store := &Store{log: log, clock: clock, secrets: map[string]*corev1.Secret{}, present: make(chan struct{})}
	store.inventory.Store(&inventory{})
	return store
}

// OnAdd implements ResourceEventHandler.
func (s *Store) OnAdd(obj any, _ bool) {
	if secret, ok := obj.(*corev1.Secret); ok {
		s.change(func() { s.secrets[secret.Name] = secret })
	}
}

// OnUpdate implements ResourceEventHandler.
func (s *Store) OnUpdate(_, obj any) {
	s.OnAdd(obj, false)
}

// OnDelete implements ResourceEventHandler. A certificate whose Secret is deleted is served until there is another one.
func (s *Store) OnDelete(obj any) {
	if tombstone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
		obj = tombstone.Obj
	}
	if secret, ok := obj.(*corev1.Secret); ok {
		s.change(func() { delete(s.secrets, secret.Name) })
	}
}

func (s *Store) change(mutate func()) {
	s.lock.Lock()
	defer s.lock.Unlock()

	mutate()
	inv := newInventory(slices.Collect(maps.Values(s.secrets)))
	s.inventory.Store(inv)

	server := inv.server()
	if server == nil {
		return
	}
	before := s.serving.Swap(server)
	if before == nil {
		close(s.present)
	}
	if before == nil || !before.cert().Equal(server.cert()) {
		s.log.Info("Serving a certificate", "secret", server.secret.Name, "notAfter", server.cert().NotAfter)
	}
}

// GetCertificate is for tls.Config. It returns ErrNone if there is no certificate yet.
func (s *Store) GetCertificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	server := s.serving.Load()
	if server == nil {
		return nil, ErrNone
	}
	return server.tls, nil
}

// Present is closed as soon as there is a certificate to serve.
func (s *Store) Present() <-chan struct{} {
	return s.present
}

// Bundle returns the certificates that clients have to trust, as PEM, or nil if there are none yet.
func (s *Store) Bundle() []byte {
	return s.inventory.Load().bundle(s.clock.Now())
}
