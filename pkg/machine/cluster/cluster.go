// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package cluster finds the cluster in which the machines of a shoot are: the seed itself, or the one whose kubeconfig is
// in the Secret with the shoot's credentials (see Gardener's docs/extensions/provider-local.md, "Credentials").
// The controllers for Infrastructures and Bastions and the machine driver use it.
package cluster

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/gardener/gardener/pkg/client/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// clientsMax is for how many Secrets clients of clusters other than the seed are kept. What was not asked for the longest
// goes first.
const clientsMax = 128

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

// New returns the clusters of machines in a seed, given a client of the seed that may read Secrets, and what it was made
// of. They may be used by several goroutines. allowed are the ranges that servers of kubeconfigs may be in (see Parse).
//
// Needed permissions: get on the Secrets with credentials. In a cluster that is not the seed, permissions are those of
// the user whose kubeconfig it is.
func New(seed client.Client, config *rest.Config, allowed ...netip.Prefix) Clusters {
	return newClusters(seed, config, clientsMax, guard{allowed: allowed})
}

func newClusters(seed client.Client, config *rest.Config, max int, guard guard) *clusters {
	c := &clusters{seed: seed, config: config, guard: guard, shared: map[kubeconfigHash]*remote{}}
	c.clients = lru.NewWithEvictionFunc(max, func(_ lru.Key, value any) { c.release(value.(*remote)) })
	return c
}

type clusters struct {
	seed   client.Client
	config *rest.Config
	guard  guard

	// lock is held from when a client is missed until there is one. Nothing is sent meanwhile.
	lock sync.Mutex
	// clients has a *remote by the client.ObjectKey of a Secret.
	clients *lru.Cache
	// shared are those of clients by what they are for. gardenlet copies the credentials of a project into the namespace of
	// each of its shoots: these have one client, with its connections.
	shared map[kubeconfigHash]*remote
}

type kubeconfigHash [sha256.Size]byte

// remote is a client that is kept, the kubeconfig it is for, and for how many Secrets it is kept.
type remote struct {
	kubeconfig kubeconfigHash
	secrets    int
	client     client.Client
	config     *rest.Config
	transport  http.RoundTripper
}

// Get implements Clusters.
func (c *clusters) Get(ctx context.Context, ref corev1.SecretReference, technicalID string) (*Cluster, error) {
	if technicalID == "" {
		return nil, errors.New("finding the cluster of machines: the technical ID of the shoot is not known")
	}
	seed := &Cluster{Client: c.seed, Config: c.config, Namespace: technicalID}
	if ref == (corev1.SecretReference{}) {
		return seed, nil
	}
	key := client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}
	if ref.Name == "" || ref.Namespace == "" {
		return nil, mistake(fmt.Errorf("the reference %q to a Secret with credentials is incomplete: set its name and namespace", key))
	}

	secret := &corev1.Secret{}
	if err := c.seed.Get(ctx, key, secret); apierrors.IsNotFound(err) {
		c.forget(key)
		return nil, mistake(fmt.Errorf("the Secret %s with the credentials does not exist: create it", key))
	} else if err != nil {
		return nil, fmt.Errorf("reading the Secret %s with the credentials: %w", key, err)
	}
	if _, ok := secret.Data[machine.UserDataKey]; ok {
		return nil, mistake(fmt.Errorf("the Secret %s with the credentials has the key %s, which would replace what machines run at boot: remove it", key, machine.UserDataKey))
	}
	kubeconfig, ok := secret.Data[kubernetes.KubeConfig]
	if !ok {
		c.forget(key)
		return seed, nil
	}

	found, err := c.remote(key, kubeconfig)
	if err != nil {
		return nil, mistake(fmt.Errorf("the kubeconfig in the Secret %s can't be used: %w", key, err))
	}
	return &Cluster{Client: found.client, Config: found.config, Namespace: machine.RemoteNamespace(technicalID), Remote: true}, nil
}

// remote returns the client that is kept for a Secret, or makes one if there is none for its kubeconfig.
func (c *clusters) remote(key client.ObjectKey, kubeconfig []byte) (*remote, error) {
	hash := kubeconfigHash(sha256.Sum256(kubeconfig))

	c.lock.Lock()
	defer c.lock.Unlock()
	if kept, ok := c.clients.Get(key); ok && kept.(*remote).kubeconfig == hash {
		return kept.(*remote), nil
	}
	c.clients.Remove(key)
	found, ok := c.shared[hash]
	if !ok {
		made, err := newRemote(kubeconfig, c.config, c.guard)
		if err != nil {
			return nil, err
		}
		made.kubeconfig = hash
		c.shared[hash], found = made, made
	}
	found.secrets++
	c.clients.Add(key, found)
	return found, nil
}

// release takes note that a client is kept for one Secret less. With the last one it lets go of connections that wait for
// another request; requests under way end as they would have. Whoever calls it holds the lock.
func (c *clusters) release(r *remote) {
	if r.secrets--; r.secrets == 0 {
		delete(c.shared, r.kubeconfig)
		utilnet.CloseIdleConnectionsFor(r.transport)
	}
}

// forget drops the client that is kept for a Secret.
func (c *clusters) forget(key client.ObjectKey) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.clients.Remove(key)
}

// newRemote makes a client. It sends nothing.
func newRemote(kubeconfig []byte, seed *rest.Config, guard guard) (*remote, error) {
	config, err := parse(kubeconfig, guard)
	if err != nil {
		return nil, err
	}
	if seed != nil {
		config.UserAgent, config.QPS, config.Burst = seed.UserAgent, seed.QPS, seed.Burst
	}
	httpClient, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{HTTPClient: httpClient, Mapper: newMapper()})
	if err != nil {
		return nil, err
	}
	return &remote{client: c, config: config, transport: httpClient.Transport}, nil
}

// newMapper returns a RESTMapper of the kinds that are used in clusters other than the seed. Discovery would keep whatever their servers
// say, which may be hundreds of megabytes.
func newMapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	mapper.Add(machine.IPPoolKind, meta.RESTScopeRoot)
	for _, kind := range []schema.GroupVersionKind{
		corev1.SchemeGroupVersion.WithKind("Pod"), corev1.SchemeGroupVersion.WithKind("Secret"), corev1.SchemeGroupVersion.WithKind("Service"),
		networkingv1.SchemeGroupVersion.WithKind("NetworkPolicy"), discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"),
	} {
		mapper.Add(kind, meta.RESTScopeNamespace)
	}
	return mapper
}

func mistake(err error) error {
	return v1beta1helper.NewErrorWithCodes(err, gardencorev1beta1.ErrorConfigurationProblem)
}
