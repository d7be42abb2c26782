// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// touchPeriod is the time between two touches. A write that went past the webhooks is mended within it.
const touchPeriod = 5 * time.Minute

// AddTouchToManager adds a Runnable of the leader that sends an empty patch for the status of each Node of the seed, which
// changes nothing by itself, but has the API server ask the webhook. It starts when registered is closed, and repeats this
// every few minutes: a webhook that is ignored while it cannot be reached may miss any write, by a timeout as well, and
// neither the API server nor the writer tells. Nodes for which it failed, or which do not have the capacity thereafter, are tried again earlier. It is
// an error if the capacity is incomplete.
//
// Needed permissions: list on Nodes, patch on nodes/status.
func AddTouchToManager(mgr manager.Manager, nodeCapacity configv1alpha1.NodeCapacity, registered <-chan struct{}) error {
	capacity, err := resourcesOf(nodeCapacity)
	if err != nil {
		return err
	}
	toucher := &toucher{reader: mgr.GetAPIReader(), client: mgr.GetClient(), capacity: capacity}
	return mgr.Add(&runnable{registered: registered, touch: toucher.touch, clock: clock.RealClock{}})
}

// runnable calls touch once registered is closed, and every few minutes from then on. After an error it calls it again with
// a back-off.
type runnable struct {
	registered <-chan struct{}
	touch      func(ctx context.Context) error
	clock      clock.Clock
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (*runnable) NeedLeaderElection() bool { return true }

// Start implements manager.Runnable. It returns nil whatever has happened, as nothing of this is a reason to stop the
// instance.
func (r *runnable) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-r.registered:
	}

	newBackoff := func() wait.Backoff {
		return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 10, Cap: touchPeriod}
	}
	for backoff := newBackoff(); ; {
		delay := touchPeriod
		if err := r.touch(ctx); err != nil {
			delay = backoff.Step()
			logf.FromContext(ctx).WithName("touch").Info("Some Nodes are yet to be sent through the webhooks", "reason", err.Error(), "retryAfter", delay.String())
		} else {
			backoff = newBackoff()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.clock.After(delay):
		}
	}
}

// toucher touches Nodes until all of them have been touched.
type toucher struct {
	reader   client.Reader
	client   client.StatusClient
	capacity corev1.ResourceList
	// left are the names of the Nodes that need another attempt; nil if all do.
	left []string
}

// touch makes one attempt. The error is about the Nodes that are left.
func (t *toucher) touch(ctx context.Context) error {
	names := t.left
	if names == nil {
		// Metadata will do, and needs neither an informer nor memory for what all Nodes say about their images.
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		if err := t.reader.List(ctx, list); err != nil {
			return fmt.Errorf("listing Nodes: %w", err)
		}
		for _, item := range list.Items {
			names = append(names, item.Name)
		}
	}

	var (
		left []string
		errs []error
	)
	for _, name := range names {
		if err := t.touchNode(ctx, name); err != nil {
			left, errs = append(left, name), append(errs, err)
		}
	}
	t.left = left
	return errors.Join(errs...)
}

// touchNode returns an error as well if the webhook was not asked, as an API server may take a moment to learn of it.
func (t *toucher) touchNode(ctx context.Context, name string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := t.client.Status().Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte("{}")))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patching the status of Node %s: %w", name, err)
	}
	if err != nil {
		return nil // The Node is gone.
	}
	for resourceName, want := range t.capacity {
		if got := node.Status.Capacity[resourceName]; got.Cmp(want) != 0 {
			return fmt.Errorf("patching the status of Node %s: it says %s of %s, not %s", name, got.String(), resourceName, want.String())
		}
	}
	return nil
}
