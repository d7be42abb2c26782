// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package node holds the webhooks that set how much a Node has, in a seed and in its shoots, and the Runnable that has the
// webhook see the Nodes that are older than it.
//
// A kubelet reports what the host has that all Nodes of a local Gardener share. Gardener's pods request more than that
// together, so without this they would not be scheduled. A Node of a shoot has what its machine type says of CPUs, memory,
// GPUs and storage, and as much storage as the volume of its pool, whatever the sizing of the machine. That is the type in
// the Node's label node.kubernetes.io/instance-type, which the Worker controller has set, and without it that of the pool.
//
// A kubelet whose Node doesn't say what it has measured itself writes the status every ten seconds. So the handler is made
// to be cheap: it looks at a few fields of the Node, and decodes a Cluster once for each of its versions. And as a refused
// status makes a Node NotReady, there is nothing that it refuses.
package node

import (
	"context"
	"errors"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

const (
	// NameSeed is the name of the webhook for the Nodes of the seed.
	NameSeed = "node-seed"
	// NameShoot is the name of the webhook for the Nodes of shoots.
	NameShoot = "node-shoot"
	// DefaultGPUResourceName is the resource for GPUs by default.
	DefaultGPUResourceName corev1.ResourceName = "nvidia.com/gpu"

	// timeoutSeconds is half the time between two updates of a kubelet, and within what Gardener allows for Nodes in shoots.
	timeoutSeconds int32 = 5
)

// Options are what the webhooks need.
type Options struct {
	// Capacity is what a Node has unless its machine type says so; both quantities are needed.
	Capacity configv1alpha1.NodeCapacity
	// GPUResourceName is the resource of which a Node has as many as its machine type has GPUs: that of the machines
	// themselves. Default: DefaultGPUResourceName.
	GPUResourceName corev1.ResourceName
}

// New returns the webhook for the seed and the one for shoots. It is an error if the capacity is incomplete.
//
// Needed permissions: get, list and watch on Clusters, which are read by the manager's client.
func New(mgr manager.Manager, opts Options) ([]*extensionswebhook.Webhook, error) {
	capacity, err := resourcesOf(opts.Capacity)
	if err != nil {
		return nil, err
	}

	if opts.GPUResourceName == "" {
		opts.GPUResourceName = DefaultGPUResourceName
	}
	handler := &handler{capacity: newMachineTypes(mgr.GetClient(), capacity, opts.GPUResourceName).capacity}
	return []*extensionswebhook.Webhook{
		newWebhook(NameSeed, extensionswebhook.TargetSeed, handler),
		newWebhook(NameShoot, extensionswebhook.TargetShoot, handler),
	}, nil
}

func newWebhook(name, target string, handler admission.Handler) *extensionswebhook.Webhook {
	return &extensionswebhook.Webhook{
		Action: extensionswebhook.ActionMutating,
		Name:   name,
		Path:   name,
		Target: target,
		Types: []extensionswebhook.Type{
			{Obj: &corev1.Node{}, Subresource: new("status")},
			// A kubelet registers its Node with a status, which the API server keeps.
			{Obj: &corev1.Node{}},
		},
		Webhook:        &admission.Webhook{Handler: handler, RecoverPanic: new(true)},
		FailurePolicy:  new(admissionregistrationv1.Ignore),
		TimeoutSeconds: new(timeoutSeconds),
	}
}

// capacityFunc returns how much of each resource a Node with these labels has that belongs to the cluster which calls.
// The result is shared, do not change it.
type capacityFunc func(ctx context.Context, labels map[string]string) corev1.ResourceList

func resourcesOf(capacity configv1alpha1.NodeCapacity) (corev1.ResourceList, error) {
	if capacity.CPU == nil || capacity.Memory == nil {
		return nil, errors.New("the capacity of Nodes (nodes.capacity) needs cpu and memory")
	}
	return corev1.ResourceList{corev1.ResourceCPU: *capacity.CPU, corev1.ResourceMemory: *capacity.Memory}, nil
}
