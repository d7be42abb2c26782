// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package cluster finds the cluster in which the machines of a shoot are: the seed itself, or the one whose kubeconfig is
// in the Secret with the shoot's credentials (see Gardener's docs/extensions/provider-local.md, "Credentials").
// The controllers for Infrastructures and Bastions and the machine driver use it.
package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Cluster is where the machines of a shoot are.
type Cluster struct {
	// Client reads from the API server, but for what the client of the seed has in its cache.
	Client client.Client
	// Config is what Client was made of.
	Config *rest.Config
	// Namespace is that of the machines.
	Namespace string
	// Remote tells that it is not the seed.
	Remote bool
}

// Clusters finds clusters and keeps the clients of those that are not the seed until their Secrets change.
type Clusters interface {
	// Get returns the cluster for a Secret with credentials and a technical ID, the namespace of the shoot in the seed. A
	// Secret without kubeconfig means the seed, and so does an empty reference, as machines may have no credentials at all;
	// who needs some has to look at the reference first. A reference that is incomplete, a Secret that is missing, and one
	// whose kubeconfig can't be used are errors with Gardener's code ERR_CONFIGURATION_PROBLEM.
	//
	// Each call reads the Secret, and sends nothing else. What is returned works on after the Secret has changed: ask again
	// for each operation.
	Get(ctx context.Context, secret corev1.SecretReference, technicalID string) (*Cluster, error)
}
