// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package node holds the webhooks that set how much a Node has, in a seed and in its shoots, and the controller that has the
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
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
)

const (
	// NameSeed is the name of the webhook for the Nodes of the seed.
	NameSeed = "node-seed"
	// NameShoot is the name of the webhook for the Nodes of shoots.
	NameShoot = "node-shoot"

	// timeoutSeconds is half the time between two updates of a kubelet, and within what Gardener allows for Nodes in shoots.
	timeoutSeconds int32 = 5

	// maxShoots is of how many shoots the capacities are remembered. That is a few hundred bytes for each machine type of their
	// CloudProfiles.
	maxShoots = 1000
)

// Options are what the webhooks need.
type Options struct {
	// Capacity is what a Node has unless its machine type says so.
	Capacity configv1alpha1.NodeCapacity
	// GPUResourceName is the resource of which a Node has as many as its machine type has GPUs: that of the machines
	// themselves.
	GPUResourceName corev1.ResourceName
}

// New returns the webhook for the seed and the one for shoots.
//
// Needed permissions: get, list and watch on Clusters, which are read by the manager's client.
func New(mgr manager.Manager, opts Options) []*extensionswebhook.Webhook {
	handler := &handler{
		reader:   mgr.GetClient(),
		fallback: resourcesOf(opts.Capacity),
		gpu:      opts.GPUResourceName,
		shoots:   lru.New(maxShoots),
	}
	return []*extensionswebhook.Webhook{
		newWebhook(NameSeed, extensionswebhook.TargetSeed, handler),
		newWebhook(NameShoot, extensionswebhook.TargetShoot, handler),
	}
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

func resourcesOf(capacity configv1alpha1.NodeCapacity) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: *capacity.CPU, corev1.ResourceMemory: *capacity.Memory}
}

// handler answers the API server. It does without the handler of Gardener's extension library for two reasons: that one
// decodes all of a Node and encodes it twice, and answers an object that it cannot decode, or a panic, with a refusal.
type handler struct {
	reader   client.Reader
	fallback corev1.ResourceList
	// gpu is the resource for the GPUs of a machine type.
	gpu corev1.ResourceName
	// shoots has a *shootTypes for a namespace.
	shoots *lru.Cache
}

// document is what the handler looks at in a Node.
type document struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata,omitzero"`
	Status *status `json:"status,omitempty"`
}

type status struct {
	Capacity    quantities `json:"capacity,omitempty"`
	Allocatable quantities `json:"allocatable,omitempty"`
}

// quantities are those of a Node that are worth a calculation: others, which whoever has the Node's credentials can write,
// are as good as absent. A patch overwrites them.
type quantities corev1.ResourceList

// UnmarshalJSON implements json.Unmarshaler.
func (q *quantities) UnmarshalJSON(data []byte) error {
	var raw map[corev1.ResourceName]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil || raw == nil {
		return err
	}
	*q = make(quantities, len(raw))
	for name, value := range raw {
		text := strings.Trim(string(value), `"`)
		if !limits.IsQuantity(text) {
			continue
		}
		if quantity, err := resource.ParseQuantity(text); err == nil {
			(*q)[name] = quantity
		}
	}
	return nil
}

// Handle implements admission.Handler. It allows everything.
func (h *handler) Handle(ctx context.Context, request admission.Request) (response admission.Response) {
	log := logf.FromContext(ctx)
	defer func() {
		if problem := recover(); problem != nil {
			log.Error(fmt.Errorf("panic: %v", problem), "Leaving a Node as it is")
			response = admission.Allowed("")
		}
	}()

	if !carriesStatus(request) {
		return admission.Allowed("")
	}
	node := &document{}
	if err := json.Unmarshal(request.Object.Raw, node); err != nil {
		log.Error(err, "Leaving a Node as it is that cannot be decoded")
		return admission.Allowed("")
	}
	status := node.Status.withCapacity(h.capacity(ctx, node.Metadata.Labels))
	if status == nil {
		return admission.Allowed("")
	}
	before, err := json.Marshal(document{Status: node.Status})
	if err != nil {
		return admission.Allowed("")
	}
	after, err := json.Marshal(document{Status: status})
	if err != nil {
		return admission.Allowed("")
	}
	return admission.PatchResponseFromRaw(before, after)
}

// carriesStatus reports whether the API server takes the status from the request: it does from one for the subresource and
// when a Node is created, and ignores it in any other.
func carriesStatus(request admission.Request) bool {
	if request.Resource.Resource != "nodes" || len(request.Object.Raw) == 0 {
		return false
	}
	return request.SubResource == "status" || request.SubResource == "" && request.Operation == admissionv1.Create
}

// withCapacity returns a copy of the status with this much of each resource, or nil if that is what it says already. What
// the kubelet has reserved, the difference between capacity and allocatable, stays reserved if it fits.
func (s *status) withCapacity(capacity corev1.ResourceList) *status {
	result := &status{Capacity: quantities{}, Allocatable: quantities{}}
	if s != nil {
		maps.Copy(result.Capacity, s.Capacity)
		maps.Copy(result.Allocatable, s.Allocatable)
	}

	for name, quantity := range capacity {
		allocatable := quantity.DeepCopy()
		measured, known := result.Capacity[name]
		if left, ok := result.Allocatable[name]; ok && known && measured.Cmp(left) > 0 {
			reserved := measured.DeepCopy()
			reserved.Sub(left)
			allocatable.Sub(reserved)
		}
		if allocatable.Sign() <= 0 {
			// It has been reserved on a larger machine than this one is said to be, so it means nothing here.
			allocatable = quantity
		}
		result.Capacity[name], result.Allocatable[name] = quantity, allocatable
	}
	if s != nil && equal(s.Capacity, result.Capacity) && equal(s.Allocatable, result.Allocatable) {
		return nil
	}
	return result
}

// capacity returns how much of each resource a Node with these labels has that belongs to the cluster which calls. Nodes of
// the seed, and those of which no machine type is known, have the fallback. The result is shared, do not change it.
func (h *handler) capacity(ctx context.Context, labels map[string]string) corev1.ResourceList {
	namespace, pool := webhook.ShootNamespace(ctx), labels[v1beta1constants.LabelWorkerPool]
	if namespace == "" || pool == "" {
		return h.fallback
	}
	// Its own machine type counts, which it gets as a label, where it is known: a machine keeps its size until it is replaced,
	// though the pool has another type by then or is gone.
	shoot := h.shoot(ctx, namespace)
	p := shoot.pools[pool]
	capacity, ok := shoot.types[labels[corev1.LabelInstanceTypeStable]]
	if !ok {
		capacity, ok = shoot.types[p.machineType]
	}
	switch {
	case !ok:
		return h.fallback
	case len(p.volume) == 0:
		return capacity
	}
	return with(capacity, p.volume)
}

// shootTypes are the machine types and worker pools of one version of a Cluster.
type shootTypes struct {
	resourceVersion string
	// types have the capacity of each machine type.
	types map[string]corev1.ResourceList
	pools map[string]pool
}

type pool struct {
	machineType string
	// volume is what all machines of the pool have, of whatever type.
	volume corev1.ResourceList
}

func with(list, more corev1.ResourceList) corev1.ResourceList {
	out := maps.Clone(list)
	maps.Copy(out, more)
	return out
}

// shoot returns the machine types of a shoot. If the Cluster cannot be read they are those known last.
func (h *handler) shoot(ctx context.Context, namespace string) *shootTypes {
	known := &shootTypes{}
	if value, ok := h.shoots.Get(namespace); ok {
		known = value.(*shootTypes)
	}

	// Only the version is read, so the cache need not copy the Cluster.
	cluster := &extensionsv1alpha1.Cluster{}
	err := h.reader.Get(ctx, client.ObjectKey{Name: namespace}, cluster, &client.GetOptions{UnsafeDisableDeepCopy: new(true)})
	if apierrors.IsNotFound(err) {
		h.shoots.Remove(namespace)
		return &shootTypes{}
	}
	if err == nil && known.resourceVersion == cluster.ResourceVersion && cluster.ResourceVersion != "" {
		return known
	}
	var decoded *extensioncluster.Cluster
	if err == nil {
		decoded, err = extensioncluster.Get(ctx, h.reader, namespace)
	}
	found := known
	if err == nil {
		found = h.typesOf(decoded)
	} else {
		logf.FromContext(ctx).Error(err, "The machine types of a shoot cannot be looked up", "shootNamespace", namespace)
		if cluster.ResourceVersion == "" || ctx.Err() != nil {
			return known
		}
		// It cannot be decoded, which stays like this until there is another version.
	}
	h.shoots.Add(namespace, &shootTypes{resourceVersion: cluster.ResourceVersion, types: found.types, pools: found.pools})
	return found
}

func (h *handler) typesOf(cluster *extensioncluster.Cluster) *shootTypes {
	shoot, profile := cluster.Shoot(), cluster.CloudProfile()
	if shoot == nil || profile == nil {
		return &shootTypes{}
	}
	capacities := make(map[string]corev1.ResourceList, len(profile.Spec.MachineTypes))
	for i := range profile.Spec.MachineTypes {
		machineType := &profile.Spec.MachineTypes[i]
		capacities[machineType.Name] = with(h.fallback, machine.Capacity(machineType, "", h.gpu))
	}
	pools := make(map[string]pool, len(shoot.Spec.Provider.Workers))
	for _, worker := range shoot.Spec.Provider.Workers {
		p := pool{machineType: worker.Machine.Type}
		if worker.Volume != nil {
			p.volume = machine.Capacity(nil, worker.Volume.VolumeSize, h.gpu)
		}
		pools[worker.Name] = p
	}
	return &shootTypes{types: capacities, pools: pools}
}

func equal(a, b quantities) bool {
	return maps.EqualFunc(a, b, func(a, b resource.Quantity) bool { return a.Cmp(b) == 0 })
}

// AddTouchToManager adds a controller that touches the status of each Node of the seed, as soon as registered is closed. If it
// failed for a Node, or one does not have the capacity thereafter, it is tried again earlier.
//
// Needed permissions: list on Nodes, patch on nodes/status.
func AddTouchToManager(mgr manager.Manager, nodeCapacity configv1alpha1.NodeCapacity, registered <-chan struct{}) error {
	toucher := &toucher{reader: mgr.GetAPIReader(), client: mgr.GetClient(), capacity: resourcesOf(nodeCapacity)}
	return webhook.AddTouchToManager(mgr, "node-touch", controllerutils.EnqueueOnce, func(ctx context.Context) error {
		select {
		case <-ctx.Done():
			return nil
		case <-registered:
			return toucher.touch(ctx)
		}
	})
}

// toucher touches Nodes.
type toucher struct {
	reader   client.Reader
	client   client.StatusClient
	capacity corev1.ResourceList
}

// touch touches all Nodes.
func (t *toucher) touch(ctx context.Context) error {
	// Metadata will do, and needs neither an informer nor memory for what all Nodes say about their images.
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
	if err := t.reader.List(ctx, list); err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	var errs []error
	for _, item := range list.Items {
		errs = append(errs, t.touchNode(ctx, item.Name))
	}
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
