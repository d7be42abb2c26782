// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

// MockConfiguration is how the mock provider serves extension objects of type mock (docs/usage/mock.md):
// it makes every one of them ready without any infrastructure, or lets it wait and fail as the behaviours say.
type MockConfiguration struct {
	// Enabled switches the mock provider on. Default false.
	// +optional
	Enabled bool `json:"enabled,omitempty"`
	// ConcurrentSyncs is how many objects of each kind are reconciled at a time. Default 20.
	// +optional
	ConcurrentSyncs *int `json:"concurrentSyncs,omitempty"`
	// Seed is what all chance is drawn from: the same seed has the same objects wait and fail in the same way.
	// +optional
	Seed int64 `json:"seed,omitempty"`
	// Behaviours say which operations take time and which fail. For each operation on an object the first one counts that
	// fits; an operation that none fits succeeds at once.
	// +optional
	Behaviours []MockBehaviour `json:"behaviours,omitempty"`
	// Nodes configures the fake Nodes of Workers.
	// +optional
	Nodes MockNodes `json:"nodes,omitempty"`
}

// MockNodes are the fake Nodes of Workers.
type MockNodes struct {
	// Disabled has Workers succeed without Nodes, as for objects whose shoot has no API server. Default false.
	// +optional
	Disabled bool `json:"disabled,omitempty"`
	// KubeletPort is the port on which the seed's instance answers for the kubelets of all fake Nodes, on all addresses.
	// Default 10250.
	// +optional
	KubeletPort *int `json:"kubeletPort,omitempty"`
}

// MockBehaviour is how operations of a kind behave.
type MockBehaviour struct {
	// Kind is the kind of the objects, such as Infrastructure; empty for all.
	// +optional
	Kind string `json:"kind,omitempty"`
	// Operation is the operation; empty for all but ForceDelete.
	// +optional
	Operation MockOperation `json:"operation,omitempty"`
	// Delay is how long each attempt takes.
	// +optional
	Delay *metav1.Duration `json:"delay,omitempty"`
	// Jitter is how much longer an attempt may take, by chance.
	// +optional
	Jitter *metav1.Duration `json:"jitter,omitempty"`
	// Failures is how many attempts of each operation on an object fail before one may succeed.
	// +optional
	Failures int32 `json:"failures,omitempty"`
	// ErrorRate is how probable it is that any other attempt fails, from 0 to 1.
	// +optional
	ErrorRate float64 `json:"errorRate,omitempty"`
	// Error is what a failed attempt leaves on the object.
	// +optional
	Error MockError `json:"error,omitempty"`
	// RetryAfter is when a failed attempt is followed by another one, unless Gardener asks before. Default 5s.
	// +optional
	RetryAfter *metav1.Duration `json:"retryAfter,omitempty"`
}

// MockOperation is an operation on an extension object.
type MockOperation string

const (
	// MockOperationCreate is all from the first attempt on until one succeeds.
	MockOperationCreate MockOperation = "Create"
	// MockOperationReconcile is what follows after that.
	MockOperationReconcile MockOperation = "Reconcile"
	// MockOperationDelete is a deletion that nobody forces.
	MockOperationDelete MockOperation = "Delete"
	// MockOperationForceDelete is a deletion that a user has forced.
	MockOperationForceDelete MockOperation = "ForceDelete"
	// MockOperationMigrate is what an object in the old seed undergoes when a control plane is migrated.
	MockOperationMigrate MockOperation = "Migrate"
	// MockOperationRestore is what an object in the new seed undergoes.
	MockOperationRestore MockOperation = "Restore"
)

// MockError is an error that Gardener reads from an extension object.
type MockError struct {
	// Message is its description. Default: "failure injected by the configuration of the mock provider".
	// +optional
	Message string `json:"message,omitempty"`
	// Codes are its error codes, by which Gardener tells what to do about it.
	// +optional
	Codes []gardencorev1beta1.ErrorCode `json:"codes,omitempty"`
}
