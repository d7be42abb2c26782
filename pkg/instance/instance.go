// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package instance makes a running instance of this extension out of its configuration: the manager with its caches,
// health, metrics, leader election and heartbeat. It knows no component and no controller;
// package program adds those that both programs have.
package instance

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/workqueue"
	componentbaseconfigv1alpha1 "k8s.io/component-base/config/v1alpha1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener/extensions/pkg/controller/heartbeat"
	gardenerhealthz "github.com/gardener/gardener/pkg/healthz"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// heartbeatSeconds is the time between two renewals of the Lease by which Gardener sees that the instance is alive.
const heartbeatSeconds = 30

// Options are what an instance is made of.
type Options struct {
	// Name is the instance's own name: that of its Lease for leader election and of the holder in its heartbeat.
	Name string
	// Namespace is the namespace in which the instance runs.
	Namespace string
	// Config is the defaulted and validated configuration.
	Config *configv1alpha1.ExtensionConfiguration
	// RESTConfig is the cluster in which the instance runs. If nil, it is found by Config.ClientConnection.
	RESTConfig *rest.Config
	// Kinds adds all types that the controllers use to a scheme.
	Kinds runtime.SchemeBuilder
	// ByObject narrows what is cached of a kind. Secrets and ConfigMaps are read past the cache in any case; an informer
	// for them exists only where a component asks for one, with what is given here.
	ByObject map[client.Object]cache.ByObject
	// Uncached are further kinds that are read past the cache, like Secrets and ConfigMaps.
	Uncached []client.Object
	// Log is the root of all logs.
	Log logr.Logger
	// WebhookURL is the HOST:PORT by which API servers call the webhooks of an instance that no Service leads to.
	WebhookURL string
	// WatchTimeout is the shortest time that a watch lasts; the longest is twice as long. Default: DefaultWatchTimeout.
	WatchTimeout time.Duration
	// AllowRestart lets an instance run again in the same process, as integration tests have it.
	AllowRestart bool
}

// A reconcile that failed is tried again after retryMin, then after twice the time of before, up to retryMax.
const (
	retryMin = 5 * time.Millisecond
	retryMax = 1000 * time.Second
)

// New makes the manager of an instance. Add controllers to it with ControllerOptions, then Start it.
func New(opts Options) (manager.Manager, error) {
	if opts.Namespace == "" {
		return nil, errors.New("the namespace of this instance is unknown: set the environment variable LEADER_ELECTION_NAMESPACE")
	}

	restConfig := opts.RESTConfig
	if restConfig == nil {
		var err error
		if restConfig, err = restConfigFor(opts.Config.ClientConnection); err != nil {
			return nil, err
		}
	}

	scheme, watches := runtime.NewScheme(), NewWatches(opts.WatchTimeout)
	if err := opts.Kinds.AddToScheme(scheme); err != nil {
		return nil, err
	}
	mgr, err := manager.New(restConfig, managerOptions(opts, scheme, watches))
	if err != nil {
		return nil, fmt.Errorf("making the manager of %s: %w", opts.Name, err)
	}
	if err := mgr.Add(watches); err != nil {
		return nil, err
	}

	opts.Log.Info("Serving extension objects", "extensionClasses", opts.Config.ExtensionClasses)
	if err := addHealth(mgr, opts.Log); err != nil {
		return nil, err
	}
	return mgr, heartbeat.Add(mgr, heartbeat.AddArgs{
		ExtensionName:        opts.Name,
		Namespace:            opts.Namespace,
		RenewIntervalSeconds: heartbeatSeconds,
		Clock:                clock.RealClock{},
	})
}

// ControllerOptions are the options of a controller as configured, with a queue of its own.
func ControllerOptions(config configv1alpha1.ControllerConfiguration) controller.Options {
	return controller.Options{MaxConcurrentReconciles: *config.ConcurrentSyncs, NewQueue: newQueue}
}

// newQueue makes a plain queue, not the priority queue that controllers have by default: until controller-runtime 0.25 that one can
// stall for good when it is shut while it hands out items, and a stop would then take all the time it is given. What is lost is that
// changes overtake what a start or a resync brings.
//
// Each queue has a limiter of its own, as several controllers may be made of the same options, and objects of different kinds
// have the same name. controller-runtime's for plain queues would let no more than ten requests a second through.
func newQueue(name string, _ workqueue.TypedRateLimiter[reconcile.Request]) workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](retryMin, retryMax), workqueue.TypedRateLimitingQueueConfig[reconcile.Request]{Name: name},
	)
}

// Start runs a manager until ctx ends. Up to controller-runtime 0.24, a manager whose caches have not synced, as an API server
// is unreachable, never stops. It has nothing to wait for.
func Start(ctx context.Context, mgr manager.Manager) error {
	working, ended := make(synced), make(chan error, 1)
	if err := mgr.Add(working); err != nil {
		return err
	}
	go func() { ended <- mgr.Start(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	select {
	case <-working:
		return <-ended
	default:
		return nil
	}
}

// synced is closed once the caches of a manager have synced.
type synced chan struct{}

// Start implements manager.Runnable.
func (s synced) Start(context.Context) error {
	close(s)
	return nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. The manager starts others than leaders after the caches.
func (synced) NeedLeaderElection() bool { return false }

func addHealth(mgr manager.Manager, log logr.Logger) error {
	if err := mgr.AddHealthzCheck("informer-sync", gardenerhealthz.NewCacheSyncHealthzWithDeadline(log, clock.RealClock{}, mgr.GetCache(), gardenerhealthz.DefaultCacheSyncDeadline)); err != nil {
		return err
	}
	return mgr.AddReadyzCheck("informer-sync", gardenerhealthz.NewCacheSyncHealthz(mgr.GetCache()))
}

func managerOptions(opts Options, scheme *runtime.Scheme, watches *Watches) manager.Options {
	options := ManagerOptions(opts.Config.Server, opts.Config.LeaderElection, opts.Name, opts.Namespace)
	options.Logger = opts.Log
	options.Scheme = scheme
	options.Cache = cache.Options{
		ByObject:         opts.ByObject,
		DefaultTransform: cache.TransformStripManagedFields(),
		NewInformer:      watches.NewInformer,
	}
	options.NewClient = NewClient
	options.Client = client.Options{Cache: &client.CacheOptions{
		// The memory of an instance must not grow with what others keep in the cluster, nor may it look at all of it: the
		// heartbeat, for one, needs a single Lease.
		DisableFor: append([]client.Object{&corev1.Secret{}, &corev1.ConfigMap{}, &coordinationv1.Lease{}}, opts.Uncached...),
	}}
	// For controllers without ControllerOptions; newQueue says why.
	options.Controller = controllerconfig.Controller{RecoverPanic: new(true), SkipNameValidation: &opts.AllowRestart, UsePriorityQueue: new(false)}
	return options
}

// ManagerOptions returns the options of a manager with servers and leader election as configured. Where the configuration
// names no Lease, it is the one with the given name and namespace.
func ManagerOptions(server configv1alpha1.ServerConfiguration, leaderElection componentbaseconfigv1alpha1.LeaderElectionConfiguration, name, namespace string) manager.Options {
	metrics := metricsserver.Options{BindAddress: address(server.Metrics)}
	if server.SecureMetrics {
		metrics.SecureServing = true
		metrics.FilterProvider = filters.WithAuthenticationAndAuthorization
		metrics.TLSOpts = []func(*tls.Config){func(config *tls.Config) { config.MinVersion = tls.VersionTLS12 }}
	}
	return manager.Options{
		HealthProbeBindAddress: address(server.HealthProbes),
		Metrics:                metrics,

		LeaderElection:                *leaderElection.LeaderElect,
		LeaderElectionID:              cmp.Or(leaderElection.ResourceName, name),
		LeaderElectionNamespace:       cmp.Or(leaderElection.ResourceNamespace, namespace),
		LeaderElectionResourceLock:    leaderElection.ResourceLock,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 &leaderElection.LeaseDuration.Duration,
		RenewDeadline:                 &leaderElection.RenewDeadline.Duration,
		RetryPeriod:                   &leaderElection.RetryPeriod.Duration,
	}
}

func restConfigFor(connection componentbaseconfigv1alpha1.ClientConnectionConfiguration) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", connection.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("finding the cluster to serve (clientConnection.kubeconfig, or the pod's service account): %w", err)
	}
	Connect(config, connection)
	return config, nil
}

// Connect sets how fast, and by which encoding, a client of config may send its requests.
func Connect(config *rest.Config, connection componentbaseconfigv1alpha1.ClientConnectionConfiguration) {
	config.QPS = connection.QPS
	config.Burst = int(connection.Burst)
	config.ContentType = connection.ContentType
	config.AcceptContentTypes = connection.AcceptContentTypes
}

func address(server *configv1alpha1.Server) string {
	return net.JoinHostPort(server.BindAddress, strconv.Itoa(server.Port))
}
