// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// applyAttempts is how often something is tried that somebody else changes meanwhile. After that, the event of their
// change makes another try.
const applyAttempts = 3

// errNotWanted means that a Service of the shoot is not to be served any more. Whoever deletes what there is of it sees to
// the rest.
var errNotWanted = errors.New("the Service is not to have a load balancer any more")

// apply brings the seed's Service and EndpointSlices for a Service of the shoot in line with the newest that is known of it
// and returns the former. If nothing has changed, it sends no request. It may be called from several goroutines.
func (b *Balancer) apply(ctx context.Context, service *corev1.Service) (*corev1.Service, error) {
	unlock := b.lock(service)
	defer unlock()

	// What is known may be newer than what the caller has, and there must be no write of something older after a newer one.
	newest, err := b.cache.service(keyOf(service))
	switch {
	case err != nil:
		return nil, err
	case newest == nil || newest.UID != service.UID || !wantsLoadBalancer(newest):
		return nil, errNotWanted
	}
	service = newest

	backends, err := b.cache.backends()
	if err != nil {
		return nil, err
	}
	local := service.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
	seed, err := b.applyService(ctx, service, local && b.oneNode && onOneNode(backends))
	if err != nil {
		return nil, err
	}

	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		if !hasFamily(seed, family) {
			if err := b.deleteSlice(ctx, sliceName(seed.Name, family)); err != nil {
				return nil, err
			}
			continue
		}
		served := backends
		if local {
			if served, err = b.cache.withLocalEndpoints(service, family, backends); err != nil {
				return nil, err
			}
		}
		if err := b.applySlice(ctx, seed, service, family, served); err != nil {
			return nil, err
		}
	}
	return seed, nil
}

func hasFamily(seed *corev1.Service, family discoveryv1.AddressType) bool {
	for _, f := range seed.Spec.IPFamilies {
		if string(f) == string(family) {
			return true
		}
	}
	// An API server sets them. None means that nobody has told.
	return len(seed.Spec.IPFamilies) == 0 && family == discoveryv1.AddressTypeIPv4
}

func (b *Balancer) applyService(ctx context.Context, service *corev1.Service, local bool) (*corev1.Service, error) {
	name, err := nameOf(service)
	if err != nil {
		return nil, err
	}
	existing, err := b.cache.seedService(name)
	if err != nil {
		return nil, err
	}

	for range applyAttempts {
		desired, err := desiredService(existing, service, b.namespace, local)
		if err != nil {
			return nil, err
		}
		var written *corev1.Service
		switch {
		case existing == nil:
			written, err = b.seed.CoreV1().Services(b.namespace).Create(ctx, desired, metav1.CreateOptions{})
		case !isFor(existing, service):
			return nil, fmt.Errorf("the seed has a Service %s/%s that is none of cloud-controller's: delete it", b.namespace, name)
		case existing.DeletionTimestamp != nil:
			return nil, fmt.Errorf("the seed's Service %s/%s is being deleted, its finalizers %v tell by whom", b.namespace, name, existing.Finalizers)
		case mustBeReplaced(existing, desired):
			err = b.deleteService(ctx, existing)
		case apiequality.Semantic.DeepEqual(existing, desired):
			return existing, nil
		default:
			written, err = b.patchService(ctx, existing, desired)
		}
		switch {
		case err == nil && written != nil:
			b.cache.ownServices.remember(written)
			return written, nil
		case apierrors.IsInvalid(err):
			// The same fields were fine for the shoot, so it is about what the seed does not have, such as a family.
			return nil, mistake{fmt.Errorf("the seed refuses the Service for %s: %w", keyOf(service), err)}
		case err != nil && !isOutdated(err):
			return nil, fmt.Errorf("writing the seed's Service %s/%s: %w", b.namespace, name, err)
		}
		if existing, err = b.readService(ctx, name); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the seed's Service %s/%s is changed by somebody else again and again", b.namespace, name)
}

// isOutdated tells whether a write was about something that is not there any more in that form.
func isOutdated(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsNotFound(err) || apierrors.IsAlreadyExists(err)
}

// readService asks the API server for a Service. It returns nil if there is none.
func (b *Balancer) readService(ctx context.Context, name string) (*corev1.Service, error) {
	service, err := b.seed.CoreV1().Services(b.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the seed's Service %s/%s: %w", b.namespace, name, err)
	}
	return service, nil
}

func (b *Balancer) patchService(ctx context.Context, existing, desired *corev1.Service) (*corev1.Service, error) {
	data, err := mergePatch(existing, desired)
	if err != nil {
		return nil, err
	}
	return b.seed.CoreV1().Services(b.namespace).Patch(ctx, desired.Name, types.MergePatchType, data, metav1.PatchOptions{})
}

// mergePatch has only what differs, so that what a newer API server knows stays, and holds for the version that was read.
func mergePatch(existing, desired client.Object) ([]byte, error) {
	return client.MergeFromWithOptions(existing, client.MergeFromWithOptimisticLock{}).Data(desired)
}

// deleteService deletes the Service that was read, not another one of its name.
func (b *Balancer) deleteService(ctx context.Context, service *corev1.Service) error {
	err := b.seed.CoreV1().Services(b.namespace).Delete(ctx, service.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(service.UID))})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (b *Balancer) applySlice(ctx context.Context, seed, service *corev1.Service, family discoveryv1.AddressType, backends []backend) error {
	name := sliceName(seed.Name, family)
	existing, err := b.cache.seedSlice(name)
	if err != nil {
		return err
	}

	slices := b.seed.DiscoveryV1().EndpointSlices(b.namespace)
	for range applyAttempts {
		desired := desiredSlice(existing, seed, service, family, backends)
		var written *discoveryv1.EndpointSlice
		switch {
		case existing == nil:
			written, err = slices.Create(ctx, desired, metav1.CreateOptions{})
		case !isFor(existing, service):
			return fmt.Errorf("the seed has an EndpointSlice %s/%s that is none of cloud-controller's: delete it", b.namespace, name)
		case apiequality.Semantic.DeepEqual(existing, desired):
			return nil
		default:
			var data []byte
			if data, err = mergePatch(existing, desired); err == nil {
				written, err = slices.Patch(ctx, name, types.MergePatchType, data, metav1.PatchOptions{})
			}
		}
		if err == nil {
			b.cache.ownSlices.remember(written)
			return nil
		}
		if !isOutdated(err) {
			return fmt.Errorf("writing the seed's EndpointSlice %s/%s: %w", b.namespace, name, err)
		}
		if existing, err = slices.Get(ctx, name, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			existing = nil
		} else if err != nil {
			return fmt.Errorf("reading the seed's EndpointSlice %s/%s: %w", b.namespace, name, err)
		}
	}
	return fmt.Errorf("the seed's EndpointSlice %s/%s is changed by somebody else again and again", b.namespace, name)
}

// deleteSlice deletes an EndpointSlice if there is one.
func (b *Balancer) deleteSlice(ctx context.Context, name string) error {
	if existing, err := b.cache.seedSlice(name); err != nil || existing == nil {
		return err
	}
	err := b.seed.DiscoveryV1().EndpointSlices(b.namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the seed's EndpointSlice %s/%s: %w", b.namespace, name, err)
	}
	return nil
}

// remove deletes all that is in the seed under the name of a Service of the shoot. The Service may take longer to go.
func (b *Balancer) remove(ctx context.Context, name string) error {
	if err := b.seed.CoreV1().Services(b.namespace).Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("deleting the seed's Service %s/%s: %w", b.namespace, name, err)
	}
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		if err := b.deleteSlice(ctx, sliceName(name, family)); err != nil {
			return err
		}
	}
	return nil
}
