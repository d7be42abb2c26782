// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package driver is how machine-controller-manager makes the machines of shoots: each is a pod in the seed, or in the
// cluster of the shoot's credentials. The command machine-controller of gardenlet-extension runs it beside
// machine-controller-manager, one for each shoot.
//
// A machine is three objects. The Secret with the user data comes first, so that the pod can start at once, and the pod
// owns it and the headless Service by which the machine's name resolves, so that neither outlives a pod that was deleted
// by hand. All three are named after the Machine, so whatever a call left half made is found by the next one, also after
// a restart.
//
// The functions return errors of machine-controller-manager's status package only, because its controller reads a code
// out of the text. What the codes make it do, as of v0.62.1:
//
//	CreateMachine     ResourceExhausted: again after 10 minutes, and cluster-autoscaler tries another pool.
//	                  Unknown, DeadlineExceeded, Aborted, Unavailable: again after 5 seconds.
//	                  All others: again after 3 minutes.
//	                  The Machine fails for good, and is replaced, when its creation timeout (20 minutes) is over.
//	GetMachineStatus  NotFound before a machine was created: CreateMachine. NotFound while one is deleted: go on.
//	DeleteMachine     Unknown, DeadlineExceeded, Aborted, Unavailable: again after 5 seconds.
//	                  NotFound: go on as if it had succeeded. All others: again after 10 minutes.
package driver

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	mcmdriver "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
)

const (
	defaultCreateTimeout      = 10 * time.Minute
	defaultDeleteTimeout      = 5 * time.Minute
	defaultReadTimeout        = time.Minute
	defaultUnschedulableGrace = 15 * time.Second
)

// Options are what a driver needs.
type Options struct {
	// Clusters finds the cluster of the machines.
	Clusters cluster.Clusters
	// Machines reads Machines in the seed. With it, CreateMachine ends as soon as its Machine is to be deleted; without, the
	// deletion waits until CreateMachine is through, as machine-controller-manager does not do both at a time.
	Machines client.WithWatch
	// CreateTimeout is for how long CreateMachine waits. Default: 10 minutes.
	CreateTimeout time.Duration
	// DeleteTimeout is for how long DeleteMachine waits. Default: 5 minutes.
	DeleteTimeout time.Duration
	// UnschedulableGrace is for how long nodes may have too little room for a machine until CreateMachine says so: room that
	// the machine before it leaves is there after its last seconds. Default: 15 seconds.
	UnschedulableGrace time.Duration
	// Clock tells how long a machine has been running. Default: that of the system.
	Clock clock.PassiveClock
}

// New returns a driver.
func New(opts Options) mcmdriver.Driver {
	opts.CreateTimeout = cmp.Or(opts.CreateTimeout, defaultCreateTimeout)
	opts.DeleteTimeout = cmp.Or(opts.DeleteTimeout, defaultDeleteTimeout)
	opts.UnschedulableGrace = cmp.Or(opts.UnschedulableGrace, defaultUnschedulableGrace)
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	return &driver{Options: opts}
}

type driver struct {
	Options
}

// InitializeMachine implements machine-controller-manager's driver: Unimplemented, as there is nothing to do, which lets it
// go on.
func (*driver) InitializeMachine(context.Context, *mcmdriver.InitializeMachineRequest) (*mcmdriver.InitializeMachineResponse, error) {
	return nil, newStatus(codes.Unimplemented, "a machine is complete when its pod runs")
}

// GetVolumeIDs implements machine-controller-manager's driver: no volume is ever attached to a machine, so there are no IDs
// and no error. It then drains pods with volumes without waiting for a volume to be detached.
func (*driver) GetVolumeIDs(context.Context, *mcmdriver.GetVolumeIDsRequest) (*mcmdriver.GetVolumeIDsResponse, error) {
	return &mcmdriver.GetVolumeIDsResponse{}, nil
}

// target is where the machines of a class are.
type target struct {
	client    client.WithWatch
	namespace string
}

// target finds where the machines of a class are. The class says whether it is the seed: the credentials may have got, or
// lost, a kubeconfig since it was written, which must not make its machines impossible to find.
func (d *driver) target(ctx context.Context, class *machinev1alpha1.MachineClass) (*target, error) {
	if class.Provider != machine.Provider {
		return nil, newStatus(codes.InvalidArgument, "MachineClass %s/%s is for provider %q, this one is %q", class.Namespace, class.Name, class.Provider, machine.Provider)
	}
	credentials, namespace := corev1.SecretReference{}, namespaceOf(class)
	if namespace != class.Namespace && class.CredentialsSecretRef != nil {
		credentials = *class.CredentialsSecretRef
	}
	c, err := d.Clusters.Get(ctx, credentials, class.Namespace)
	if err != nil {
		return nil, err
	}
	if c.Namespace != namespace {
		return nil, newStatus(codes.FailedPrecondition,
			"MachineClass %s/%s has its machines in namespace %s, but the credentials in Secret %s/%s lead to namespace %s: has their kubeconfig been removed?",
			class.Namespace, class.Name, namespace, credentials.Namespace, credentials.Name, c.Namespace)
	}
	watching, ok := c.Client.(client.WithWatch)
	if !ok {
		return nil, newStatus(codes.Internal, "the client for the cluster of the machines cannot watch")
	}
	return &target{client: watching, namespace: namespace}, nil
}

// namespaceOf returns where the machines of a class are. It is lenient: a class with which no machine can be made must not
// keep its Machines from being deleted.
func namespaceOf(class *machinev1alpha1.MachineClass) string {
	spec := &localv1alpha1.MachineProviderSpec{}
	if json.Unmarshal(class.ProviderSpec.Raw, spec) != nil {
		spec.Namespace = ""
	}
	return cmp.Or(spec.Namespace, class.Namespace)
}
