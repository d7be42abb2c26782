// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
)

// handler answers the API server. It does without the handler of Gardener's extension library for two reasons: that one
// decodes all of a Node and encodes it twice, and answers an object that it cannot decode, or a panic, with a refusal.
type handler struct {
	capacity capacityFunc
}

// partialNode is what the handler looks at in a Node.
type partialNode struct {
	Metadata struct {
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Status *partialStatus `json:"status"`
}

type partialStatus struct {
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
	node := &partialNode{}
	if err := json.Unmarshal(request.Object.Raw, node); err != nil {
		log.Error(err, "Leaving a Node as it is that cannot be decoded")
		return admission.Allowed("")
	}

	status := node.Status.withCapacity(h.capacity(ctx, node.Metadata.Labels))
	if status == nil {
		return admission.Allowed("")
	}
	return patch(node.Status, status)
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
func (s *partialStatus) withCapacity(capacity corev1.ResourceList) *partialStatus {
	result := &partialStatus{Capacity: quantities{}, Allocatable: quantities{}}
	if s != nil {
		maps.Copy(result.Capacity, s.Capacity)
		maps.Copy(result.Allocatable, s.Allocatable)
	}

	changed := false
	for name, quantity := range capacity {
		allocatable := quantity.DeepCopy()
		allocatable.Sub(reserved(result, name))
		if allocatable.Sign() <= 0 {
			// It has been reserved on a larger machine than this one is said to be, so it means nothing here.
			allocatable = quantity
		}
		changed = set(result.Capacity, name, quantity) || changed
		changed = set(result.Allocatable, name, allocatable) || changed
	}
	if !changed {
		return nil
	}
	return result
}

func reserved(status *partialStatus, name corev1.ResourceName) resource.Quantity {
	capacity, measured := status.Capacity[name]
	allocatable, known := status.Allocatable[name]
	if !measured || !known || capacity.Cmp(allocatable) < 0 {
		return resource.Quantity{}
	}
	difference := capacity.DeepCopy()
	difference.Sub(allocatable)
	return difference
}

func set(list quantities, name corev1.ResourceName, quantity resource.Quantity) bool {
	if current, ok := list[name]; ok && current.Cmp(quantity) == 0 {
		return false
	}
	list[name] = quantity
	return true
}

// patch returns a response with what makes after of before.
func patch(before, after *partialStatus) admission.Response {
	type document struct {
		Status *partialStatus `json:"status,omitempty"`
	}
	original, err := json.Marshal(document{before})
	if err != nil {
		return admission.Allowed("")
	}
	changed, err := json.Marshal(document{after})
	if err != nil {
		return admission.Allowed("")
	}
	return admission.PatchResponseFromRaw(original, changed)
}
