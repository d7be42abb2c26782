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
	// told has what has been told, by the keys of those Ingresses only that have problems.
	told sync.Map
}

// report takes over what is wrong with an Ingress now.
func (r *reporter) report(key client.ObjectKey, ingress *networkingv1.Ingress, problems []problem) {
	value, _ := r.told.Load(key)
	told, _ := value.([]problem)
	if len(problems) == 0 {
		r.told.Delete(key)
		return
	}
	r.told.Store(key, problems)
	for _, problem := range problems {
		if !slices.Contains(told, problem) {
			r.recorder.Eventf(ingress, nil, corev1.EventTypeWarning, problem.reason, "CreateDNSRecord", "%s", problem.message)
		}
	}
}
