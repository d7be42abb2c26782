// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package coredns serves records by a CoreDNS in the cluster (skaffold/images/coredns). The DNSRecord controller uses it
// as its dns.Provider; the programs run it, and Server, which deploys that CoreDNS, on their managers.
//
// What is wanted is kept in memory and written to ConfigMaps coredns-custom-<instance>-<n>, which CoreDNS watches:
// many changes in one write, spread so that a write stays small however many records there are. All of it can be made
// again from the DNSRecords, so the ConfigMaps are healed rather than trusted.
//
// For a name whose records point to a gateway, that is, a Service of type LoadBalancer with that address, there is an
// entry <name>.override with a line "rewrite stop name regex <quoted name> <service> answer auto": clients in the
// cluster get the Service's addresses, clients outside of it the values of the record. The form is the one of the
// provider-local documentation of Gardener.
package coredns

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

const (
	// LabelConfig marks the ConfigMaps that CoreDNS serves; its value is "true".
	LabelConfig = "local.provider.extensions.gardener.cloud/dns-config"
	// LabelInstance tells which instance writes a ConfigMap.
	LabelInstance = "local.provider.extensions.gardener.cloud/dns-instance"
	// AnnotationGeneration grows with every write of a ConfigMap; CoreDNS tells it by DNS.
	AnnotationGeneration = "local.provider.extensions.gardener.cloud/dns-generation"
	// ConfigMapPrefix is what the names of the ConfigMaps start with.
	ConfigMapPrefix = "coredns-custom-"
	// ServiceName is the name of CoreDNS' Service.
	ServiceName = "coredns"

	queryTimeout = 2 * time.Second
)

// Options are what a Provider needs.
type Options struct {
	// Client reads from the manager's cache and writes.
	Client client.Client
	// Reader reads from the API server.
	Reader client.Reader
	// Informers are those of the manager's cache, made with CacheOptions.
	Informers Informers
	Log       logr.Logger
	// Clock is that of the generations. Default: the real one.
	Clock clock.PassiveClock
	// Exchanger asks CoreDNS. Default: one that really does.
	Exchanger Exchanger
	// Metrics count the writes. None if nil.
	Metrics *metrics.DNS

	// Instance is the name of this instance, unique in the cluster: "garden" or "seed".
	Instance string
	// Owner is the Namespace of the instance: when it goes, the garbage collector takes the instance's ConfigMaps along.
	// Empty for none.
	Owner string
	// Classes are those of the DNSRecords that this instance serves.
	Classes class.Set
	// Namespace is that of CoreDNS and its ConfigMaps.
	Namespace string
	// Zones are the domains that CoreDNS serves.
	Zones []string
	// Reserved are domains that shoots may not choose names in.
	Reserved []string
	// DefaultTTL is the TTL in seconds of a record without one.
	DefaultTTL int64
	// ClusterDomain is the domain of the cluster's Services.
	ClusterDomain string
	// DefaultProvider serves the DNSRecords that don't say who is to serve them. Default: this one.
	DefaultProvider configv1alpha1.DNSProvider
	// Servers are the addresses (host:port) of CoreDNS. Default: the ready endpoints of its Service.
	Servers []string
	// BatchWindow is how long changes are collected before they are written.
	BatchWindow time.Duration
	// ConfirmTimeout bounds Apply and Remove.
	ConfirmTimeout time.Duration
}

// Informers are what is used of a controller-runtime cache.
type Informers interface {
	GetInformer(ctx context.Context, obj client.Object, opts ...cache.InformerGetOption) (cache.Informer, error)
}

// Provider is a dns.Provider and a manager.Runnable, which has to run for anything to happen.
type Provider struct {
	Options

	confirmer *confirmer
	// started is closed once the state of the cluster is known.
	started chan struct{}
	// queue has the names of the ConfigMaps to write, and restores how long those wait that somebody else keeps changing.
	queue    workqueue.TypedRateLimitingInterface[string]
	restores *flowcontrol.Backoff

	mu       sync.Mutex
	desired  *desired
	gateways *gateways
	shards   *shards
	// unprepared is why the state of the cluster is not known yet.
	unprepared error
	// owner owns the ConfigMaps.
	owner []metav1.OwnerReference
}

var _ dns.Provider = (*Provider)(nil)

// New returns a Provider. An error is a mistake in the options.
func New(opts Options) (*Provider, error) {
	switch {
	case opts.Client == nil || opts.Reader == nil || opts.Informers == nil:
		return nil, errors.New("a client, a reader and informers are needed")
	case opts.Instance == "" || opts.Namespace == "" || opts.ClusterDomain == "":
		return nil, errors.New("the name of the instance, the namespace of CoreDNS and the cluster's domain are needed")
	case len(opts.Zones) == 0:
		return nil, errors.New("at least one zone is needed")
	case opts.ConfirmTimeout <= 0 || opts.BatchWindow < 0:
		return nil, errors.New("the confirm timeout must be more than 0 and the batch window not less")
	}
	if opts.DefaultProvider == "" {
		opts.DefaultProvider = configv1alpha1.DNSProviderCoreDNS
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Exchanger == nil {
		opts.Exchanger = NewExchanger(queryTimeout)
	}
	p := &Provider{
		Options:   opts,
		confirmer: newConfirmer(opts.Exchanger),
		started:   make(chan struct{}),
		queue:     workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, maxRetry)),
		restores:  flowcontrol.NewBackOff(firstRetry, maxRestore),
		desired:   newDesired(),
		shards:    newShards(shardPrefix(opts.Instance)),
	}
	p.gateways = newGateways(p.gatewayNamespace())
	return p, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: there is one writer.
func (p *Provider) NeedLeaderElection() bool { return true }

// Apply implements dns.Provider. It waits for at most ConfirmTimeout; what it was given stays wanted even if it returns
// an error, so trying again is to look again.
func (p *Provider) Apply(ctx context.Context, request dns.Request) error {
	record := request.Record
	if _, err := record.Zone(p.Zones); err != nil {
		return dns.ConfigurationProblem(err)
	}
	ctx, cancel := context.WithTimeout(ctx, p.ConfirmTimeout)
	defer cancel()
	if err := p.waitStarted(ctx); err != nil {
		return err
	}

	p.mu.Lock()
	pending := p.update(append(p.desired.set(record), record.Name)...)
	conflict := p.desired.conflict(record)
	p.mu.Unlock()
	if conflict != nil {
		return conflict
	}
	if err := pending.await(ctx); err != nil {
		return fmt.Errorf("writing %s record %s: %w", record.Type, record.Name, err)
	}
	if err := p.confirm(ctx, record); err != nil {
		return fmt.Errorf("%s record %s is written and doesn't resolve within %s: %w", record.Type, record.Name, p.ConfirmTimeout, err)
	}
	return nil
}

// Remove implements dns.Provider. It waits until it is written, not until it is served: nobody needs a name to be gone.
func (p *Provider) Remove(ctx context.Context, request dns.Request) error {
	owner := request.Record.Owner
	ctx, cancel := context.WithTimeout(ctx, p.ConfirmTimeout)
	defer cancel()
	if err := p.waitStarted(ctx); err != nil {
		return err
	}

	p.mu.Lock()
	names := p.desired.remove(owner)
	pending := p.update(names...)
	if len(names) == 0 {
		// An earlier attempt, or the start, may have left it out of what is not written yet.
		for _, s := range p.shards.all {
			pending[s] = s.version
		}
	}
	p.mu.Unlock()
	if err := pending.await(ctx); err != nil {
		return fmt.Errorf("removing the record of DNSRecord %s: %w", owner, err)
	}
	return nil
}

func (p *Provider) waitStarted(ctx context.Context) error {
	select {
	case <-p.started:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return fmt.Errorf("the state of CoreDNS in namespace %s is not known yet: %w", p.Namespace, orElse(p.unprepared, ctx.Err()))
}

// confirm returns nil once all servers answer with a record in both views. What is expected is worked out anew for each
// try, as a gateway may come or go meanwhile.
func (p *Provider) confirm(ctx context.Context, record dns.Record) error {
	backoff := firstBackoff
	for {
		err := p.confirmOnce(ctx, record)
		if err == nil {
			return nil
		}
		pause(ctx, backoff)
		if ctx.Err() != nil {
			return err
		}
		backoff = min(2*backoff, maxBackoff)
	}
}

func (p *Provider) confirmOnce(ctx context.Context, record dns.Record) error {
	servers, err := p.servers(ctx)
	if err != nil {
		return err
	}
	m, expected, err := p.expectations(record)
	if err != nil {
		return err
	}
	for _, server := range servers {
		if err := p.confirmer.wait(ctx, server, m); err != nil {
			return err
		}
		for _, e := range expected {
			if err := p.confirmer.check(ctx, server, e); err != nil {
				return err
			}
		}
	}
	return nil
}

// expectations returns what a server that is up to date must answer: to clients from outside, who ask by TCP, the values
// as they are, and to those in the cluster, who ask by UDP, the gateway's addresses if there is one. Without one both get
// the same from the same place, so one question is enough.
func (p *Provider) expectations(record dns.Record) (mark, []expectation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	in, ok := p.shards.where[record.Name]
	if !ok || !in.exists {
		return mark{}, nil, errors.New("it is not written")
	}
	m := mark{shard: in.name, zone: in.entries[record.Name].zone, generation: in.generation}

	name := p.probe(record.Name)
	expected := []expectation{{network: tcp, name: name, recordType: record.Type, values: record.Values}}
	if found, ok := p.gateways.find(p.desired.effective(record.Name)); ok {
		for _, recordType := range []string{dns.TypeA, dns.TypeAAAA} {
			addresses := found.ofType(recordType)
			if len(addresses) > 0 && (record.Type == recordType || record.Type == dns.TypeCNAME) {
				expected = append(expected, expectation{network: udp, name: name, recordType: recordType, values: addresses})
			}
		}
	}
	return m, expected, nil
}

// probe returns the name to ask for: of a wildcard, one that only the wildcard covers.
func (p *Provider) probe(name string) string {
	if len(name) < 2 || name[:2] != "*." {
		return name
	}
	for _, label := range []string{"provider-local-probe", "probe", "p"} {
		candidate := label + name[1:]
		if _, taken := p.desired.byName[candidate]; !taken && len(candidate) <= maxKeyLength {
			return candidate
		}
	}
	return "0" + name[1:]
}
