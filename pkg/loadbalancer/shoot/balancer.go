// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	"k8s.io/utils/keymutex"
)

const (
	// retryMistake is when a Service that cannot be served as it is gets looked at again, should no event tell of a change.
	retryMistake = 10 * time.Minute
	// retryAddress is the same for one that waits for an address.
	retryAddress = 5 * time.Minute
)

// Balancer implements the interfaces of k8s.io/cloud-provider for a cloud that has nothing but load balancers.
//
// The Nodes that it is given are only taken as a sign to look: those of the informer may be newer, and are not only the
// ready ones.
type Balancer struct {
	shoot, seed kubernetes.Interface
	namespace   string
	oneNode     bool
	// wait is how long a call waits for an address, or for a Service to go.
	wait time.Duration

	cache    *caches
	keys     keymutex.KeyMutex
	changes  *changes
	progress *progress
}

var (
	_ cloudprovider.Interface    = &Balancer{}
	_ cloudprovider.LoadBalancer = &Balancer{}
)

func (b *Balancer) lock(service *corev1.Service) func() {
	key := string(service.UID)
	b.keys.LockKey(key)
	return func() { _ = b.keys.UnlockKey(key) }
}

// GetLoadBalancer tells what the seed has for a Service of the shoot. It asks the API server, since a Service loses its
// finalizer if there is nothing.
func (b *Balancer) GetLoadBalancer(ctx context.Context, _ string, service *corev1.Service) (*corev1.LoadBalancerStatus, bool, error) {
	name, err := nameOf(service)
	if err != nil {
		return nil, false, nil //nolint:nilerr // There has never been any.
	}
	seed, err := b.readService(ctx, name)
	if err != nil {
		return nil, false, err
	}
	if seed == nil || !isFor(seed, service) {
		slices, err := b.cache.seedSlicesOf(keyOf(service))
		if err == nil && len(slices) == 0 && !wantsLoadBalancer(service) {
			b.progress.forget(service.UID) // Nothing is to be deleted, so nobody asks for that.
		}
		return &corev1.LoadBalancerStatus{}, len(slices) > 0, err
	}
	if status := statusFor(seed, service); status != nil {
		return status, true, nil
	}
	return &corev1.LoadBalancerStatus{}, true, nil
}

// GetLoadBalancerName returns the name of the seed's Service.
func (b *Balancer) GetLoadBalancerName(_ context.Context, _ string, service *corev1.Service) string {
	return namePrefix + string(service.UID)
}

// EnsureLoadBalancer writes what the seed is to have and waits a little for the address. Without one, it returns a
// RetryError: as soon as there is one, the follower sees to another call. Addresses that are not the Service's any more are
// taken out of its status.
func (b *Balancer) EnsureLoadBalancer(ctx context.Context, _ string, service *corev1.Service, _ []*corev1.Node) (*corev1.LoadBalancerStatus, error) {
	var status *corev1.LoadBalancerStatus
	b.progress.begin(service.UID)
	defer func() { b.progress.end(service, status) }()

	seed, err := b.apply(ctx, service)
	switch {
	case errors.Is(err, errNotWanted):
		return nil, cloudproviderapi.NewRetryError(err.Error(), retryMistake)
	case isMistake(err):
		return nil, cloudproviderapi.NewRetryError(err.Error(), retryMistake)
	case err != nil:
		return nil, err
	}

	found, err := b.awaitAddress(ctx, seed, service)
	if err != nil {
		return nil, errors.Join(err, b.clearStatus(service))
	}
	status = found
	return status, nil
}

// awaitAddress waits for the address of the seed's Service.
func (b *Balancer) awaitAddress(ctx context.Context, seed, service *corev1.Service) (*corev1.LoadBalancerStatus, error) {
	var status *corev1.LoadBalancerStatus
	because := "whoever serves Services of type LoadBalancer in the seed has not given it one"
	err := b.changes.await(ctx, seed.Name, b.wait, func() (bool, error) {
		newest, err := b.cache.seedService(seed.Name)
		if err != nil || newest == nil {
			return false, err // Without it, there is a call as soon as it is there again.
		}
		if status = statusFor(newest, service); status != nil {
			return true, nil
		}
		if reason := refusal(newest); reason != "" {
			because = reason
			return true, nil
		}
		return false, nil
	})
	if err != nil && !errors.Is(err, errStillWaiting) {
		return nil, err
	}
	if status == nil {
		return nil, cloudproviderapi.NewRetryError(fmt.Sprintf("the seed's Service %s/%s has no address: %s", b.namespace, seed.Name, because), retryAddress)
	}
	return status, nil
}

// clearStatus takes addresses out of the status that may be another's by now.
func (b *Balancer) clearStatus(service *corev1.Service) error {
	if len(service.Status.LoadBalancer.Ingress) == 0 {
		return nil
	}
	cleared := service.DeepCopy()
	cleared.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	if _, err := servicehelpers.PatchService(b.shoot.CoreV1(), service, cleared); err != nil {
		return fmt.Errorf("taking the addresses out of the status: %w", err)
	}
	return nil
}

// UpdateLoadBalancer writes what the seed is to have, after Nodes have changed.
func (b *Balancer) UpdateLoadBalancer(ctx context.Context, _ string, service *corev1.Service, _ []*corev1.Node) error {
	_, err := b.apply(ctx, service)
	if errors.Is(err, errNotWanted) || isMistake(err) {
		return nil // EnsureLoadBalancer has said so.
	}
	return err
}

// EnsureLoadBalancerDeleted deletes all that the seed has for a Service of the shoot and waits a little until the seed's
// Service is gone, which frees its address. If that takes longer, it returns an error, and the follower sees to another
// call once it is gone.
func (b *Balancer) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *corev1.Service) error {
	name, err := nameOf(service)
	if err != nil {
		return nil //nolint:nilerr // There has never been any.
	}
	unlock := b.lock(service)
	err = b.remove(ctx, name)
	unlock()
	if err != nil {
		return err
	}

	err = b.changes.await(ctx, name, b.wait, func() (bool, error) {
		existing, err := b.readService(ctx, name)
		return existing == nil, err
	})
	if errors.Is(err, errStillWaiting) {
		b.progress.deleting(service.UID, true)
		return fmt.Errorf("the seed's Service %s/%s is still being deleted, its finalizers tell by whom", b.namespace, name)
	}
	if err == nil {
		b.progress.forget(service.UID)
	}
	return err
}

// isStale tells whether the status that the last EnsureLoadBalancer has returned is not what the seed's Service says, and
// no call is under way that will see it.
func (b *Balancer) isStale(seed, service *corev1.Service) bool {
	status := statusFor(seed, service)
	known, settled := b.progress.last(service.UID)
	if !settled {
		return false
	}
	if status == nil || known == nil {
		return status != known
	}
	return !apiequality.Semantic.DeepEqual(status.Ingress, known.Ingress)
}
