// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// renewalJitter is the share of the time between two renewals by which it varies, so that Leases which were created together do
// not stay together.
const renewalJitter = 0.1

// beat is the last heartbeat of a Node: all that an update of its Lease needs.
type beat struct {
	node    types.UID
	version string
}

// beat renews the Lease of a Node, as long as there is the Node. That is one request, as a rule: a Lease says nothing that is
// not known here but its version. Each renewal waits in the queue for the next.
func (s *shoot) beat(ctx context.Context, name string) error {
	node := s.node(name)
	s.lock.Lock()
	last, known := s.beats[name]
	if node == nil {
		delete(s.beats, name)
	}
	s.lock.Unlock()
	if node == nil {
		return nil // The garbage collector takes the Lease of a Node that is gone.
	}

	leases := s.client.CoordinationV1().Leases(corev1.NamespaceNodeLease)
	lease := s.newLease(node)
	var (
		written *coordinationv1.Lease
		err     error
	)
	if known && last.node == node.UID {
		lease.ResourceVersion = last.version
		written, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	} else {
		written, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
	switch {
	case apierrors.IsNotFound(err):
		lease.ResourceVersion = ""
		written, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		// From an earlier run, or by another's hand.
		var found *coordinationv1.Lease
		if found, err = leases.Get(ctx, name, metav1.GetOptions{}); err == nil {
			lease.ResourceVersion = found.ResourceVersion
			written, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		}
	}
	if err != nil {
		return fmt.Errorf("renewing the Lease of Node %s: %w", name, err)
	}

	s.lock.Lock()
	s.beats[name] = beat{node: node.UID, version: written.ResourceVersion}
	s.lock.Unlock()
	share := 1 + renewalJitter*(2*rand.Float64()-1) // #nosec G404 -- jitter
	s.leases.AddAfter(name, time.Duration(share*float64(renewal)))
	return nil
}

func (s *shoot) newLease(node *corev1.Node) *coordinationv1.Lease {
	return &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       corev1.NamespaceNodeLease,
			Name:            node.Name,
			Labels:          map[string]string{LabelWorker: s.worker},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: node.Name, UID: node.UID}},
		},
		Spec: coordinationv1.LeaseSpec{
			HolderIdentity:       new(node.Name),
			LeaseDurationSeconds: new(int32(LeaseDuration / time.Second)),
			RenewTime:            &metav1.MicroTime{Time: s.opts.Clock.Now()},
		},
	}
}
