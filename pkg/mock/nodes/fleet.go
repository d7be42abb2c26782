// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes/stage"
)

const (
	// Type is the type of Workers whose Nodes are fake.
	Type = "mock"

	// DefaultParallel is how many requests for Nodes and pods of one shoot are under way at most.
	DefaultParallel = 16
	// DefaultRenewal is the time between two renewals of a Lease, which expires after LeaseDuration.
	DefaultRenewal = 20 * time.Second
	// LeaseDuration is that of a kubelet.
	LeaseDuration = 40 * time.Second

	// restorePause is between two attempts to take Workers up that could not be.
	restorePause = 30 * time.Second
	// removalTimeout is how long the removal of all Nodes of a shoot may take before it is to be tried again.
	removalTimeout = 30 * time.Second
)

// Options are what a Fleet needs.
type Options struct {
	// Seed reads Workers and Clusters of the seed, at the start, and the Secrets with the credentials of shoots unless
	// Connect is set. Without one nothing is taken up at the start.
	Seed client.Reader
	// Connect returns the access to shoots. Default: FromSecrets of Seed.
	Connect Connector
	// Kubelet is where kube-apiservers reach the stand-in for kubelets (package kubelet), if there is one.
	Kubelet KubeletEndpoint
	// GPUResourceName is the name under which Nodes have GPUs. Default: nvidia.com/gpu.
	GPUResourceName corev1.ResourceName
	// Parallel is how many requests for Nodes and pods of one shoot are under way at most. Default: DefaultParallel.
	Parallel int
	// Renewal is the time between two renewals of a Lease, less than half of LeaseDuration or a little more. Default: DefaultRenewal.
	Renewal time.Duration
	// Stages are others than those that are built in, in the form of stages.yaml.
	Stages []byte
	// Clock is the time. Default: the real one.
	Clock clock.WithTicker
	// Log is for what happens beside Apply and Delete.
	Log logr.Logger

	// newClient makes the client of a shoot; unit tests have another one.
	newClient func(*rest.Config, string, Connector) (kubernetes.Interface, error)
}

// KubeletEndpoint is an address. If Host is an IP address, that is the InternalIP of all Nodes. If it is a name, each Node
// has an InternalIP of its own and the name as ExternalDNS, which kube-apiserver has to prefer (package mockcontrolplane of
// pkg/webhook sets that). None at all is valid: nobody reaches a kubelet then.
type KubeletEndpoint struct {
	Host string
	Port int32
}

// Fleet are the fake Nodes of all mock shoots of a seed. It is a runnable of a manager: what keeps Nodes alive runs as long as
// Start does, and on the leader alone.
type Fleet struct {
	opts   Options
	stages *stage.Set

	lock   sync.Mutex
	ctx    context.Context
	shoots map[client.ObjectKey]*shoot
	// released are the Workers that were released while those that there are were taken up, which may not know that yet; nil
	// after that.
	released map[client.ObjectKey]struct{}
}

// New returns a Fleet. An error is of whoever wrote the options or the stages.
func New(opts Options) (*Fleet, error) {
	if opts.Connect == nil {
		if opts.Seed == nil {
			return nil, errors.New("the client for the seed is missing")
		}
		opts.Connect = FromSecrets(opts.Seed)
	}
	if opts.Kubelet.Host != "" && (opts.Kubelet.Port < 1 || opts.Kubelet.Port > 65535) {
		return nil, fmt.Errorf("the port of the kubelet is %d, but has to be from 1 to 65535", opts.Kubelet.Port)
	}
	if opts.GPUResourceName == "" {
		opts.GPUResourceName = "nvidia.com/gpu"
	}
	if opts.Parallel == 0 {
		opts.Parallel = DefaultParallel
	}
	if opts.Renewal == 0 {
		opts.Renewal = DefaultRenewal
	}
	if opts.Parallel < 0 || opts.Renewal < time.Second || opts.Renewal > LeaseDuration*3/4 {
		return nil, fmt.Errorf("bad options: parallel is %d, at least 1; renewal is %s, from 1s to %s", opts.Parallel, opts.Renewal, LeaseDuration*3/4)
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.newClient == nil {
		opts.newClient = newClient
	}
	stages, err := loadStages(opts.Stages)
	if err != nil {
		return nil, err
	}
	return &Fleet{opts: opts, stages: stages, shoots: map[client.ObjectKey]*shoot{}, released: map[client.ObjectKey]struct{}{}}, nil
}

// Start implements manager.Runnable. It takes up the Workers that there are: the extension library does not reconcile what
// was reconciled by an earlier run. It returns when all has come to an end.
func (f *Fleet) Start(ctx context.Context) error {
	f.lock.Lock()
	if f.ctx != nil {
		f.lock.Unlock()
		return errors.New("the fleet has been started before")
	}
	f.ctx = ctx
	for _, s := range f.shoots {
		s.start(ctx)
	}
	f.lock.Unlock()

	f.restore(ctx)
	f.lock.Lock()
	f.released = nil
	f.lock.Unlock()
	<-ctx.Done()

	f.lock.Lock()
	defer f.lock.Unlock()
	for _, s := range f.shoots {
		s.stop()
	}
	return nil
}

// restore takes up Workers until that has worked for all.
func (f *Fleet) restore(ctx context.Context) {
	if f.opts.Seed == nil {
		return
	}
	for {
		err := f.restoreOnce(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		f.opts.Log.Error(err, "Taking up mock Workers after a start; trying again", "after", restorePause)
		timer := f.opts.Clock.NewTimer(restorePause)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-timer.C():
		}
	}
}

func (f *Fleet) restoreOnce(ctx context.Context) error {
	workers := &extensionsv1alpha1.WorkerList{}
	if err := f.opts.Seed.List(ctx, workers); err != nil {
		return fmt.Errorf("listing Workers: %w", err)
	}
	var errs []error
	for i := range workers.Items {
		w := &workers.Items[i]
		if !isAlive(w) {
			continue
		}
		cluster, err := extensioncluster.Get(ctx, f.opts.Seed, w.Namespace)
		if err == nil && cluster.IsHibernated() {
			continue // It has no Nodes.
		}
		if err == nil {
			err = f.apply(ctx, f.opts.Log, w, cluster, false)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("taking up Worker %s: %w", client.ObjectKeyFromObject(w), err))
		}
	}
	return errors.Join(errs...)
}

// isAlive reports whether an earlier run has kept the Nodes of a Worker alive. One that never was reconciled will be, and one
// that was migrated is that of another seed.
func isAlive(w *extensionsv1alpha1.Worker) bool {
	last := w.Status.LastOperation
	return w.Spec.Type == Type && w.DeletionTimestamp == nil && last != nil && last.Type != gardencorev1beta1.LastOperationTypeMigrate
}

// Apply makes the Nodes of a Worker what its pools say, and keeps them so: it only says what is wanted and does not wait for it.
// It is for reconcile and restore, may be called any number of times, and before Start.
//
// A hibernated shoot loses its Nodes before Apply returns, as its API server goes to sleep after that.
//
// An error with a code of Gardener is the user's mistake, like an unknown machine type. Nodes that there are stay then.
func (f *Fleet) Apply(ctx context.Context, log logr.Logger, w *extensionsv1alpha1.Worker, cluster *extensionscontroller.Cluster) error {
	return f.apply(ctx, log, w, extensioncluster.From(cluster), true)
}

func (f *Fleet) apply(ctx context.Context, log logr.Logger, w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster, known bool) error {
	groups, err := groupsOf(w, cluster, f.opts.GPUResourceName)
	if err != nil {
		return err
	}
	if cluster.IsHibernated() {
		return f.hibernate(ctx, log, w, cluster)
	}
	config, err := f.opts.Connect(ctx, w.Namespace)
	if err != nil {
		return err
	}
	return f.set(log, client.ObjectKeyFromObject(w), config, groups, nodeRanges(cluster.Shoot()), known)
}

// set tells the shoot what is wanted, after making it if there is none, or none with this access.
func (f *Fleet) set(log logr.Logger, key client.ObjectKey, config *rest.Config, groups []*group, ranges []string, known bool) error {
	f.lock.Lock()
	defer f.lock.Unlock()
	s, access := f.shoots[key], keyOf(config)
	if _, released := f.released[key]; !known && (s != nil || released) {
		return nil // Apply, or Release, came first.
	}
	delete(f.released, key)
	if s != nil && s.access != access {
		log.Info("The access to the shoot has changed, connecting anew")
		s.stop()
		s = nil
	}
	if s == nil {
		clients, err := f.opts.newClient(config, key.Namespace, f.opts.Connect)
		if err != nil {
			return fmt.Errorf("making a client for shoot %s: %w", key.Namespace, err)
		}
		s = newShoot(f.opts, f.stages, key, clients, access)
		f.shoots[key] = s
		if f.ctx != nil {
			s.start(f.ctx)
		}
	}
	s.want(groups, prefixes(ranges...))
	return nil
}

// Delete deletes the Nodes of a Worker, their Leases and the pods on them. It returns nil when they are gone, and when there is
// nobody to ask: gardenlet takes the credentials away after the API server. If it is forced, an API server that does not
// answer is no error.
func (f *Fleet) Delete(ctx context.Context, log logr.Logger, w *extensionsv1alpha1.Worker, _ *extensionscontroller.Cluster, force bool) error {
	f.Release(w)
	err := f.remove(ctx, w)
	if err != nil && force {
		log.Info("Leaving Nodes behind, as the deletion is forced", "reason", err.Error())
		return nil
	}
	return err
}

// Release stops to keep the Nodes of a Worker alive, and leaves them as they are. It is for migrate: another seed goes on.
func (f *Fleet) Release(w *extensionsv1alpha1.Worker) {
	f.lock.Lock()
	defer f.lock.Unlock()
	key := client.ObjectKeyFromObject(w)
	if f.released != nil {
		f.released[key] = struct{}{}
	}
	if s := f.shoots[key]; s != nil {
		s.stop()
		delete(f.shoots, key)
	}
}

// hibernate removes the Nodes while the API server is still there. One that sleeps already has none: it is asked nothing.
func (f *Fleet) hibernate(ctx context.Context, log logr.Logger, w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster) error {
	f.Release(w)
	shoot := cluster.Shoot()
	asleep := shoot.Status.IsHibernated || shoot.Status.LastOperation == nil || shoot.Status.LastOperation.Type == gardencorev1beta1.LastOperationTypeCreate
	err := f.remove(ctx, w)
	if err != nil && asleep {
		log.Info("Not looking for Nodes, as the shoot sleeps", "reason", err.Error())
		return nil
	}
	return err
}

func (f *Fleet) remove(ctx context.Context, w *extensionsv1alpha1.Worker) error {
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	config, err := f.opts.Connect(ctx, w.Namespace)
	if errors.Is(err, ErrNoCredentials) {
		return nil
	}
	if err != nil {
		return err
	}
	clients, err := f.opts.newClient(config, w.Namespace, f.opts.Connect)
	if err != nil {
		return fmt.Errorf("making a client for shoot %s: %w", w.Namespace, err)
	}
	return removeAll(ctx, clients, w.Name, f.opts.Parallel)
}

// nodeRanges are the ranges of addresses of the shoot's nodes, if it says.
func nodeRanges(shoot *gardencorev1beta1.Shoot) []string {
	if shoot.Spec.Networking != nil && shoot.Spec.Networking.Nodes != nil {
		return []string{*shoot.Spec.Networking.Nodes}
	}
	return nil
}
