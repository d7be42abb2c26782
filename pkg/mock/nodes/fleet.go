// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/flow"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

const (
	// Type is the type of Workers whose Nodes are fake.
	Type = "mock"

	// LeaseDuration is that of a kubelet.
	LeaseDuration = 40 * time.Second
	// renewal is the time between two renewals of a Lease.
	renewal = 20 * time.Second

	// removalTimeout is how long the removal of all Nodes of a shoot may take before it is to be tried again.
	removalTimeout = 30 * time.Second
)

// Options are what a Fleet needs.
type Options struct {
	// Connect returns the access to shoots, as FromSecrets does.
	Connect Connector
	// Kubelet is where kube-apiservers reach the stand-in for kubelets (package kubelet), if there is one.
	Kubelet KubeletEndpoint
	// GPUResourceName is the name under which Nodes have GPUs. Default: nvidia.com/gpu.
	GPUResourceName corev1.ResourceName
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

// Fleet are the fake Nodes of all mock shoots of a seed. It is a runnable of a manager, which ends when that does. Its methods
// are for the leader alone.
type Fleet struct {
	opts Options

	// ctx ends with Start.
	ctx    context.Context
	cancel context.CancelFunc
	lock   sync.Mutex
	shoots map[client.ObjectKey]*shoot
}

// New returns a Fleet. An error is of whoever wrote the options.
func New(opts Options) (*Fleet, error) {
	if opts.Connect == nil {
		return nil, errors.New("the access to shoots is missing")
	}
	if opts.Kubelet.Host != "" && (opts.Kubelet.Port < 1 || opts.Kubelet.Port > 65535) {
		return nil, fmt.Errorf("the port of the kubelet is %d, but has to be from 1 to 65535", opts.Kubelet.Port)
	}
	if opts.GPUResourceName == "" {
		opts.GPUResourceName = "nvidia.com/gpu"
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.newClient == nil {
		opts.newClient = newClient
	}
	f := &Fleet{opts: opts, shoots: map[client.ObjectKey]*shoot{}}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f, nil
}

// Start implements manager.Runnable. It returns when all has come to an end.
func (f *Fleet) Start(ctx context.Context) error {
	<-ctx.Done()
	f.lock.Lock()
	defer f.lock.Unlock()
	f.cancel()
	for _, s := range f.shoots {
		s.stop()
	}
	return nil
}

// Keeps reports whether the Nodes of a Worker are kept alive.
func (f *Fleet) Keeps(w *extensionsv1alpha1.Worker) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.shoots[client.ObjectKeyFromObject(w)] != nil
}

// Apply makes the Nodes of a Worker what its pools say, and keeps them so: it only says what is wanted and does not wait for it.
// It is for reconcile and restore, and may be called any number of times.
//
// A hibernated shoot loses its Nodes before Apply returns, as its API server goes to sleep after that.
//
// An error with a code of Gardener is the user's mistake, like an unknown machine type. Nodes that there are stay then.
func (f *Fleet) Apply(ctx context.Context, log logr.Logger, w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster) error {
	groups, err := groupsOf(w, cluster, f.opts.GPUResourceName)
	if err != nil {
		return err
	}
	if cluster.IsHibernated() {
		return f.hibernate(ctx, log, w, cluster.Shoot())
	}
	config, err := f.opts.Connect(ctx, w.Namespace)
	if err != nil {
		return err
	}

	f.lock.Lock()
	defer f.lock.Unlock()
	key, access := client.ObjectKeyFromObject(w), keyOf(config)
	s := f.shoots[key]
	isNew := s == nil || s.access != access
	if isNew {
		clients, err := f.opts.newClient(config, key.Namespace, f.opts.Connect)
		if err != nil {
			return fmt.Errorf("making a client for shoot %s: %w", key.Namespace, err)
		}
		if s != nil {
			log.Info("The access to the shoot has changed, connecting anew")
			s.stop()
		}
		s = newShoot(f.opts, key, clients, access)
		f.shoots[key] = s
	}
	s.want(groups, nodeRanges(cluster.Shoot()))
	if isNew {
		s.start(f.ctx)
	}
	return nil
}

// Delete deletes the Nodes of a Worker, their Leases and the pods on them. It returns nil when they are gone, and when there is
// nobody to ask: gardenlet takes the credentials away after the API server. If it is forced, an API server that does not
// answer is no error.
func (f *Fleet) Delete(ctx context.Context, log logr.Logger, w *extensionsv1alpha1.Worker, force bool) error {
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
	if s := f.shoots[key]; s != nil {
		s.stop()
		delete(f.shoots, key)
	}
}

// hibernate removes the Nodes while the API server is still there. One that sleeps already has none: it is asked nothing.
func (f *Fleet) hibernate(ctx context.Context, log logr.Logger, w *extensionsv1alpha1.Worker, shoot *gardencorev1beta1.Shoot) error {
	f.Release(w)
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
	return removeAll(ctx, clients, w.Name)
}

// nodeRanges are the ranges of addresses of the shoot's nodes, if it says.
func nodeRanges(shoot *gardencorev1beta1.Shoot) []netip.Prefix {
	if shoot.Spec.Networking == nil {
		return nil
	}
	return prefixes(ptr.Deref(shoot.Spec.Networking.Nodes, ""))
}

// removeAll deletes all Nodes of a Worker, their Leases, and the pods on them. An error says what is left.
func removeAll(ctx context.Context, c kubernetes.Interface, worker string) error {
	ours := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{LabelWorker: worker}).String()}
	list, err := c.CoreV1().Nodes().List(ctx, ours)
	if err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	names := sets.New[string]()
	for i := range list.Items {
		names.Insert(list.Items[i].Name)
	}

	// Nodes first, so that no pod is put on them again.
	if names.Len() > 0 {
		if err := c.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, ours); err != nil {
			return fmt.Errorf("deleting Nodes: %w", err)
		}
	}
	if err := c.CoordinationV1().Leases(corev1.NamespaceNodeLease).DeleteCollection(ctx, metav1.DeleteOptions{}, ours); err != nil {
		return fmt.Errorf("deleting the Leases of Nodes: %w", err)
	}
	if err := removePods(ctx, c, names); err != nil {
		return err
	}

	if names.Len() > 0 {
		if list, err = c.CoreV1().Nodes().List(ctx, ours); err != nil {
			return fmt.Errorf("listing Nodes: %w", err)
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d Nodes are still there, the first is %s with the finalizers %v", len(list.Items), list.Items[0].Name, list.Items[0].Finalizers)
		}
	}
	return nil
}

func removePods(ctx context.Context, c kubernetes.Interface, nodes sets.Set[string]) error {
	if nodes.Len() == 0 {
		return nil
	}
	pods, err := c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermNotEqualSelector("spec.nodeName", "").String()})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	var tasks []flow.TaskFn
	for i := range pods.Items {
		if pod := &pods.Items[i]; nodes.Has(pod.Spec.NodeName) {
			tasks = append(tasks, func(ctx context.Context) error { return deletePod(ctx, c, pod) })
		}
	}
	return flow.ParallelN(parallel, tasks...)(ctx)
}
