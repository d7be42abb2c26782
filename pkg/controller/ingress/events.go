// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Reasons of Events.
const (
	reasonNoAddress = "NoAddress"
	reasonInvalid   = "InvalidHost"
	reasonTaken     = "NameTaken"
)

// problem is why a host of an Ingress does not resolve.
type problem struct {
	reason, message string
}

// reporter tells of problems by Events on the Ingress, of each when it comes up and not whenever it is seen again.
type reporter struct {
	recorder events.EventRecorder

	mu sync.Mutex
	// told has what has been told, of those Ingresses only that have problems.
	told map[client.ObjectKey][]problem
}

// report takes over what is wrong with an Ingress now.
func (r *reporter) report(ingress *networkingv1.Ingress, problems []problem) {
	for _, problem := range r.fresh(client.ObjectKeyFromObject(ingress), problems) {
		r.recorder.Eventf(ingress, nil, corev1.EventTypeWarning, problem.reason, "CreateDNSRecord", "%s", problem.message)
	}
}

// forget drops what is known of an Ingress.
func (r *reporter) forget(key client.ObjectKey) {
	r.fresh(key, nil)
}

func (r *reporter) fresh(key client.ObjectKey, problems []problem) []problem {
	r.mu.Lock()
	defer r.mu.Unlock()

	fresh := slices.DeleteFunc(slices.Clone(problems), func(p problem) bool { return slices.Contains(r.told[key], p) })
	if len(problems) == 0 {
		delete(r.told, key)
		return nil
	}
	if r.told == nil {
		r.told = map[client.ObjectKey][]problem{}
	}
	r.told[key] = problems
	return fresh
}
