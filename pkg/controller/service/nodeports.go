// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

const (
	// ReasonNodePortConflict means that a fixed node port is taken by something that cannot be moved.
	ReasonNodePortConflict = "NodePortConflict"
	// ReasonNodePortRange means that a fixed node port is not in the range of the API server.
	ReasonNodePortRange = "NodePortOutOfRange"
	// reasonMoved is the reason of the events of both Services if one gave a node port to the other.
	reasonMoved = "NodePortMoved"
	actionMove  = "MoveNodePort"

	// The API server tells why it refuses a node port by these words only: see its package
	// pkg/registry/core/service/portallocator.
	messageAllocated = "provided port is already allocated"
	messageRange     = "provided port is not in the valid range"

	// moveAttempts is how many other node ports are tried for a Service that has to give one up.
	moveAttempts = 16
	// claimAttempts is how often a node port is taken from other Services in one reconcile.
	claimAttempts = 3
	maxPort       = 65535
)

// fixNodePorts sets the node ports that a well-known Service is to have, and returns the Service as it is after that.
// Ports that the Service does not have are no concern. With an error or a problem, as many as can be are set.
func (r *reconciler) fixNodePorts(ctx context.Context, service *corev1.Service) (*corev1.Service, *loadbalancer.Problem, error) {
	entry, ok := r.allocator.WellKnown(client.ObjectKeyFromObject(service))
	if !ok || len(entry.NodePorts) == 0 {
		return service, nil, nil
	}

	var (
		wanted  = maps.Clone(entry.NodePorts)
		refused = map[int32]int{}
		problem *loadbalancer.Problem
		errs    []error
	)
	for {
		patch := newPortPatch(service)
		patch.fix(wanted)
		patched, err := r.patchPorts(ctx, patch)
		if err == nil {
			if patched != nil {
				r.remember(patched)
				service = patched
			}
			return service, problem, errors.Join(errs...)
		}

		nodePort, message := refusedNodePort(service, wanted, err)
		if nodePort == 0 {
			return service, problem, errors.Join(append(errs, outdated(err))...)
		}
		next, err := r.resolve(ctx, service, nodePort, message)
		if err != nil {
			errs = append(errs, err)
		}
		problem = join(problem, next)
		if refused[nodePort]++; next != nil || err != nil || refused[nodePort] == claimAttempts {
			maps.DeleteFunc(wanted, func(_, fixed int32) bool { return fixed == nodePort })
		}
		if refused[nodePort] == claimAttempts {
			errs = append(errs, fmt.Errorf("node port %d is taken again and again", nodePort))
		}
	}
}

// refusedNodePort returns which of the wanted node ports the API server refuses, and why. It is 0 if the error is about
// something else.
func refusedNodePort(service *corev1.Service, wanted map[int32]int32, err error) (int32, string) {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return 0, ""
	}
	for _, cause := range status.Status().Details.Causes {
		for i, port := range service.Spec.Ports {
			if cause.Field == fmt.Sprintf("spec.ports[%d].nodePort", i) && wanted[port.Port] != 0 {
				return wanted[port.Port], cause.Message
			}
		}
	}
	return 0, ""
}

// resolve makes way for a node port of a Service, or returns why it cannot. With an error, another try may be of use.
func (r *reconciler) resolve(ctx context.Context, service *corev1.Service, nodePort int32, message string) (*loadbalancer.Problem, error) {
	switch {
	case strings.Contains(message, messageRange):
		return &loadbalancer.Problem{Reason: ReasonNodePortRange, Message: fmt.Sprintf("node port %d is not in the API server's --service-node-port-range", nodePort)}, nil
	case !strings.Contains(message, messageAllocated):
		return &loadbalancer.Problem{Reason: ReasonNodePortConflict, Message: fmt.Sprintf("the API server refuses node port %d: %s", nodePort, message)}, nil
	}

	holder, used, err := r.findHolder(ctx, nodePort)
	if err != nil {
		return nil, err
	}
	if holder == nil {
		// It may have been deleted right now. If not, the API server finds out within minutes.
		err := fmt.Errorf("node port %d is allocated, but no Service has it", nodePort)
		return &loadbalancer.Problem{Reason: ReasonNodePortConflict, Message: err.Error()}, err
	}

	key := client.ObjectKeyFromObject(holder)
	if holder.Spec.HealthCheckNodePort == nodePort {
		return &loadbalancer.Problem{Reason: ReasonNodePortConflict, Message: fmt.Sprintf("node port %d is the health check node port of Service %s: delete that one, or configure another node port", nodePort, key)}, nil
	}
	if other, ok := r.allocator.WellKnown(key); ok && slices.ContainsFunc(holder.Spec.Ports, func(port corev1.ServicePort) bool {
		return other.NodePorts[port.Port] == nodePort
	}) {
		return &loadbalancer.Problem{Reason: ReasonNodePortConflict, Message: fmt.Sprintf("node port %d is fixed for Service %s, too: configure another node port for one of them", nodePort, key)}, nil
	}

	moved, err := r.move(ctx, holder, nodePort, used)
	if err != nil {
		return nil, fmt.Errorf("taking node port %d from Service %s: %w", nodePort, key, err)
	}
	logf.FromContext(ctx).Info("Moved a Service to another node port", "nodePort", nodePort, "from", key, "to", moved)
	r.events.Eventf(holder, service, corev1.EventTypeWarning, reasonMoved, actionMove, "Node port %d is fixed for Service %s, this one has %d now", nodePort, client.ObjectKeyFromObject(service), moved)
	r.events.Eventf(service, holder, corev1.EventTypeNormal, reasonMoved, actionMove, "Took node port %d from Service %s, which has %d now", nodePort, key, moved)
	return nil, nil
}

// findHolder returns the Service that has a node port, and all node ports in use.
func (r *reconciler) findHolder(ctx context.Context, nodePort int32) (*corev1.Service, map[int32]bool, error) {
	var (
		holder *corev1.Service
		used   = map[int32]bool{}
	)
	for _, serviceType := range []corev1.ServiceType{corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer} {
		if err := r.eachService(ctx, serviceType, func(service *corev1.Service) {
			used[service.Spec.HealthCheckNodePort] = true
			for _, port := range service.Spec.Ports {
				used[port.NodePort] = true
			}
			if service.Spec.HealthCheckNodePort == nodePort || slices.ContainsFunc(service.Spec.Ports, func(port corev1.ServicePort) bool { return port.NodePort == nodePort }) {
				holder = service.DeepCopy()
			}
		}); err != nil {
			return nil, nil, err
		}
	}
	return holder, used, nil
}

// move gives a Service another node port instead of one, which it returns. The API server cannot be asked to choose: it
// keeps the node port of a port for which a write has none. So the nearest are tried, which it has most likely.
func (r *reconciler) move(ctx context.Context, holder *corev1.Service, nodePort int32, used map[int32]bool) (int32, error) {
	var err error
	attempts := 0
	for distance := int32(1); distance < maxPort && attempts < moveAttempts; distance++ {
		for _, candidate := range []int32{nodePort + distance, nodePort - distance} {
			if candidate < 1 || candidate > maxPort || used[candidate] || r.allocator.IsFixed(candidate) {
				continue
			}
			patch := newPortPatch(holder)
			for i, port := range holder.Spec.Ports {
				if port.NodePort == nodePort {
					patch.set(i, candidate)
				}
			}
			attempts++
			if _, err = r.patchPorts(ctx, patch); err == nil {
				return candidate, nil
			}
			if !apierrors.IsInvalid(err) {
				return 0, err
			}
		}
	}
	return 0, fmt.Errorf("finding another node port for it: %w", err)
}

// patchPorts returns the Service as it is after the patch, nil if there is nothing to patch.
func (r *reconciler) patchPorts(ctx context.Context, patch *portPatch) (*corev1.Service, error) {
	if len(patch.operations) == 0 {
		return nil, nil
	}
	data, err := patch.data()
	if err != nil {
		return nil, err
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: patch.service.Namespace, Name: patch.service.Name}}
	if err := r.client.Patch(ctx, service, client.RawPatch(types.JSONPatchType, data)); err != nil {
		return nil, fmt.Errorf("setting node ports: %w", err)
	}
	return service, nil
}

// portPatch is a JSON patch of node ports. A merge patch would need the whole list, of which the cache has not every
// field that there may be one day, and a strategic one takes two ports of one number for one.
type portPatch struct {
	service    *corev1.Service
	operations []operation
}

type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

func newPortPatch(service *corev1.Service) *portPatch { return &portPatch{service: service} }

// fix sets the node ports that differ from the wanted ones. Other ports of the Service that are in their way get a node
// port from the API server.
func (p *portPatch) fix(wanted map[int32]int32) {
	for i, port := range p.service.Spec.Ports {
		nodePort := wanted[port.Port]
		switch {
		case nodePort != 0 && nodePort != port.NodePort:
			p.set(i, nodePort)
		case nodePort == 0 && port.NodePort != 0 && p.has(wanted, port.NodePort):
			p.operations = append(p.operations, operation{Op: "remove", Path: nodePortPath(i)})
		}
	}
}

// has reports whether the Service has a port for which a node port is wanted.
func (p *portPatch) has(wanted map[int32]int32, nodePort int32) bool {
	return slices.ContainsFunc(p.service.Spec.Ports, func(port corev1.ServicePort) bool { return wanted[port.Port] == nodePort })
}

func (p *portPatch) set(i int, nodePort int32) {
	p.operations = append(p.operations, operation{Op: "add", Path: nodePortPath(i), Value: nodePort})
}

// data returns the patch. It only holds for the version of the Service that was read, as it addresses ports by position.
func (p *portPatch) data() ([]byte, error) {
	lock := operation{Op: "replace", Path: "/metadata/resourceVersion", Value: p.service.ResourceVersion}
	return json.Marshal(append([]operation{lock}, p.operations...))
}

func nodePortPath(i int) string { return fmt.Sprintf("/spec/ports/%d/nodePort", i) }
