// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock

import (
	"context"

	"github.com/go-logr/logr"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

// Nodes are the fake Nodes of shoots: pkg/mock/nodes' Fleet. A RequeueAfterError without error codes says that an operation
// is under way, and when to ask again; any other error is a failure.
type Nodes interface {
	// Apply gives the shoot the Nodes that the worker asks for. cluster has a shoot.
	Apply(ctx context.Context, log logr.Logger, worker *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster) error
	// Keeps reports whether the Nodes of the worker are kept alive: it was applied since the start of the program.
	Keeps(worker *extensionsv1alpha1.Worker) bool
	// Delete takes all Nodes of the worker away. With force, it does not fail because the shoot is out of reach.
	Delete(ctx context.Context, log logr.Logger, worker *extensionsv1alpha1.Worker, force bool) error
	// Release gives the Nodes of a worker that is migrated over to another seed: they stay, and nothing more is done for them.
	Release(worker *extensionsv1alpha1.Worker)
}
