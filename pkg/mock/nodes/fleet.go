// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/oauth2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/pager"
	"k8s.io/client-go/transport"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/flow"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

const (
	// nodesMax is how many Nodes a shoot may have: the most that Kubernetes is made for.
	nodesMax = 5000

	// isBound selects the pods that have a Node.
	isBound = "spec.nodeName!="
	// removalTimeout limits an attempt to remove all Nodes of a shoot.
	removalTimeout = 30 * time.Second
	// readPause is the time between two reads of a token that the API server refuses, and limits each of them.
	readPause = 5 * time.Second
)

// Options are what a Fleet needs.
type Options struct {
	// Connect returns the access to shoots, as extensioncluster.ShootAccess does.
	Connect Connector
	// Kubelet is where kube-apiservers reach the stand-in for kubelets (package kubelet).
	Kubelet KubeletEndpoint
	// GPUResourceName is the name under which Nodes have GPUs. Default: nvidia.com/gpu.
	GPUResourceName corev1.ResourceName
	// Clock is the time. Default: the real one.
	Clock clock.WithTicker
	// Log is for events beside Apply and Delete.
	Log logr.Logger

	// newClient makes the client of a shoot; unit tests have another one.
	newClient func(*rest.Config, string, Connector) (kubernetes.Interface, error)
}

// KubeletEndpoint is a name and a port. All Nodes have the name as ExternalDNS, which kube-apiserver has to prefer to their InternalIP
// (package mockcontrolplane of pkg/webhook sets that).
type KubeletEndpoint struct {
	Host string
	Port int32
}

// Fleet keeps the fake Nodes of all mock shoots of a seed alive. It is a runnable of a manager, and ends with it. Its methods are
// for the leader alone.
type Fleet struct {
	opts   Options
	lock   sync.Mutex
	shoots map[client.ObjectKey]*shoot
}

// New returns a Fleet.
func New(opts Options) *Fleet {
	opts.GPUResourceName = cmp.Or(opts.GPUResourceName, "nvidia.com/gpu")
	opts.Clock = cmp.Or[clock.WithTicker](opts.Clock, clock.RealClock{})
	if opts.newClient == nil {
		opts.newClient = newClient
	}
	return &Fleet{opts: opts, shoots: map[client.ObjectKey]*shoot{}}
}

// Start implements manager.Runnable. It returns when everything has ended.
func (f *Fleet) Start(ctx context.Context) error {
	<-ctx.Done()
	f.lock.Lock()
	defer f.lock.Unlock()
	for _, s := range f.shoots {
		s.stop()
	}
	f.shoots = nil // Nothing is started any more.
	return nil
}

// Keeps reports whether the Nodes of a Worker are kept alive.
func (f *Fleet) Keeps(w *extensionsv1alpha1.Worker) bool {
	f.lock.Lock()
	defer f.lock.Unlock()
	return f.shoots[client.ObjectKeyFromObject(w)] != nil
}

// Apply sets the wanted Nodes of a Worker to those of its pools, and keeps them so. It does not wait for them. It is for reconcile
// and restore, and may be called any number of times.
//
// A hibernated shoot loses its Nodes before Apply returns, as its API server goes to sleep after that. If it sleeps already, it
// need not answer.
//
// An error with a code of Gardener is the user's mistake, like an unknown machine type. Existing Nodes stay then.
func (f *Fleet) Apply(ctx context.Context, log logr.Logger, w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster) error {
	groups, err := groupsOf(w, cluster, f.opts.GPUResourceName)
	if err != nil {
		return err
	}
	if cluster.IsHibernated() {
		status := cluster.Shoot().Status
		return f.Delete(ctx, log, w, status.IsHibernated || status.LastOperation == nil || status.LastOperation.Type == gardencorev1beta1.LastOperationTypeCreate)
	}
	config, err := f.opts.Connect(ctx, w.Namespace)
	if err != nil {
		return err
	}

	f.lock.Lock()
	defer f.lock.Unlock()
	if f.shoots == nil {
		return errors.New("the program ends")
	}
	key, access := client.ObjectKeyFromObject(w), keyOf(config)
	s := f.shoots[key]
	isNew := s == nil || s.access != access
	if isNew {
		clients, err := f.opts.newClient(config, key.Namespace, f.opts.Connect)
		if err != nil {
			return err
		}
		if s != nil {
			log.Info("The access to the shoot has changed, connecting anew")
			s.stop()
		}
		s = newShoot(f.opts, key, clients, access)
		f.shoots[key] = s
	}
	networking := ptr.Deref(cluster.Shoot().Spec.Networking, gardencorev1beta1.Networking{})
	s.want(groups, prefixes(ptr.Deref(networking.Nodes, "")))
	if isNew {
		s.start()
	}
	return nil
}

// Release stops keeping the Nodes of a Worker alive, and leaves them as they are. It is for migrate: another seed goes on.
func (f *Fleet) Release(w *extensionsv1alpha1.Worker) {
	f.lock.Lock()
	defer f.lock.Unlock()
	key := client.ObjectKeyFromObject(w)
	if s := f.shoots[key]; s != nil {
		s.stop()
		delete(f.shoots, key)
	}
}

// Delete deletes the Nodes of a Worker, their Leases and the pods on them. It returns nil when they are gone, and when there are no
// credentials: gardenlet deletes them after the API server. With force, an API server that does not answer is no error.
func (f *Fleet) Delete(ctx context.Context, log logr.Logger, w *extensionsv1alpha1.Worker, force bool) error {
	f.Release(w)
	ctx, cancel := context.WithTimeout(ctx, removalTimeout)
	defer cancel()
	config, err := f.opts.Connect(ctx, w.Namespace)
	if errors.Is(err, extensioncluster.ErrNoCredentials) {
		return nil
	}
	var clients kubernetes.Interface
	if err == nil {
		clients, err = f.opts.newClient(config, w.Namespace, f.opts.Connect)
	}
	if err == nil {
		err = removeAll(ctx, clients, w.Name)
	}
	if err != nil && force {
		log.Info("Leaving Nodes behind, as the deletion is forced or the shoot sleeps", "reason", err.Error())
		return nil
	}
	return err
}

// removeAll deletes all Nodes of a Worker, their Leases, and the pods on them. An error says what is left.
func removeAll(ctx context.Context, c kubernetes.Interface, worker string) error {
	ours := metav1.ListOptions{LabelSelector: labels.Set{LabelWorker: worker}.String()}
	names := sets.New[string]()
	if err := eachItem(ctx, ours, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.CoreV1().Nodes().List(ctx, options)
	}, func(obj runtime.Object) { names.Insert(obj.(*corev1.Node).Name) }); err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	// Nodes first, so that no pod is put on them again.
	if len(names) > 0 {
		if err := c.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, ours); err != nil {
			return fmt.Errorf("deleting Nodes: %w", err)
		}
	}
	if err := c.CoordinationV1().Leases(corev1.NamespaceNodeLease).DeleteCollection(ctx, metav1.DeleteOptions{}, ours); err != nil {
		return fmt.Errorf("deleting the Leases of Nodes: %w", err)
	}
	if len(names) == 0 {
		return nil
	}

	var tasks []flow.TaskFn
	if err := eachItem(ctx, metav1.ListOptions{FieldSelector: isBound}, func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
		return c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, options)
	}, func(obj runtime.Object) {
		if pod := obj.(*corev1.Pod); names.Has(pod.Spec.NodeName) {
			bare := &corev1.Pod{ObjectMeta: identity(pod)}
			tasks = append(tasks, func(ctx context.Context) error { return deletePod(ctx, c, bare) })
		}
	}); err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	if err := flow.ParallelN(parallel, tasks...)(ctx); err != nil {
		return err
	}

	ours.Limit = 1
	nodes, err := c.CoreV1().Nodes().List(ctx, ours)
	if err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	if len(nodes.Items) > 0 {
		return fmt.Errorf("node %s is still there, with the finalizers %v", nodes.Items[0].Name, nodes.Items[0].Finalizers)
	}
	return nil
}

// eachItem visits the items of a list by small pages: who owns the shoot decides how large they are.
func eachItem(ctx context.Context, options metav1.ListOptions, list pager.ListPageFunc, visit func(runtime.Object)) error {
	pages := pager.New(list)
	pages.PageSize, pages.PageBufferSize = 20, 1
	return pages.EachListItem(ctx, options, func(obj runtime.Object) error { visit(obj); return nil })
}

// Connector returns the access to the API server of the shoot with a namespace in the seed, as it is at present.
type Connector func(ctx context.Context, namespace string) (*rest.Config, error)

// keyOf returns a key that changes when open connections become useless, because of another address or other certificates. It
// does not depend on tokens.
func keyOf(config *rest.Config) string {
	tls := config.TLSClientConfig
	return fmt.Sprintf("%x", sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q %v", config.Host, tls.CAData, tls.CertData, tls.KeyData, tls.ServerName, tls.Insecure)))
}

// newClient returns a client. Its rate is four times what the Leases of all Nodes take, so that a shoot which undoes what is written doesn't
// have it written without end.
func newClient(config *rest.Config, namespace string, connect Connector) (kubernetes.Interface, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.Burst, config.RateLimiter = 1000, 2*nodesMax, nil
	config.UserAgent = "gardener-extension-provider-local/mock-nodes"
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	if token := config.BearerToken; token != "" {
		config.BearerToken = ""
		source := &tokens{connect: connect, namespace: namespace, current: token}
		config.Wrap(transport.ResettableTokenSourceWrapTransport(transport.NewCachedTokenSource(source)))
	}
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("making a client for shoot %s: %w", namespace, err)
	}
	return clients, nil
}

// tokens reads the token of a shoot again once the API server has refused the current one, as gardener-resource-manager renews it
// in the Secret. A request that was refused is for its sender to send again.
type tokens struct {
	connect   Connector
	namespace string
	current   string
	isUsed    bool
	isRead    time.Time
}

// Token implements oauth2.TokenSource. The cache around it calls it for the first request, and after those that were refused.
func (t *tokens) Token() (*oauth2.Token, error) {
	if t.isUsed && time.Since(t.isRead) >= readPause {
		t.isRead = time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), readPause)
		defer cancel()
		if config, err := t.connect(ctx, t.namespace); err == nil && config.BearerToken != "" {
			t.current = config.BearerToken
		}
	}
	t.isUsed = true
	return &oauth2.Token{AccessToken: t.current, Expiry: time.Now().AddDate(100, 0, 0)}, nil
}
