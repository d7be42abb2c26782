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
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	"golang.org/x/sync/singleflight"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
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
)

// Options are what a Provider and a Server need.
type Options struct {
	SetupOptions
	// Client reads from the manager's cache and writes.
	Client client.Client
	// Reader reads from the API server.
	Reader client.Reader
	// Cache is the manager's, made with CacheOptions. It has the ConfigMaps, which Client reads from the API server.
	Cache cache.Cache
	// Exchange asks CoreDNS.
	Exchange Exchange
	Log      logr.Logger
}

// Provider is a dns.Provider and a manager.Runnable, which has to run for anything to happen.
type Provider struct {
	Options

	// questions are those that are asked right now.
	questions singleflight.Group
	// started is closed once the state of the cluster is known.
	started chan struct{}
	// queue has the names of the ConfigMaps to write, and restores how long those wait that somebody else keeps changing.
	queue    workqueue.TypedRateLimitingInterface[string]
	restores *flowcontrol.Backoff

	mu       sync.Mutex
	desired  *desired
	gateways *gateways
	shards   *shards
	// written wakes those who wait for a ConfigMap to be written.
	written *sync.Cond
	// unprepared is why the state of the cluster is not known yet.
	unprepared error
	// owner owns the ConfigMaps.
	owner metav1.OwnerReference
	// isRebuilt tells that the DNSRecords have been listed: what is said of them from then on is new.
	isRebuilt bool
}

var _ dns.Provider = (*Provider)(nil)

// New returns a Provider.
func New(opts Options) *Provider {
	gateways := gardenGateways
	if _, ok := opts.Classes.Only(extensionsv1alpha1.ExtensionClassShoot, extensionsv1alpha1.ExtensionClassSeed); ok {
		gateways = seedGateways
	}
	_, garden := opts.Classes.Only(extensionsv1alpha1.ExtensionClassGarden)
	p := &Provider{
		Options:  opts,
		started:  make(chan struct{}),
		queue:    workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstRetry, maxRetry)),
		restores: flowcontrol.NewBackOff(firstRetry, maxRestore),
		desired:  newDesired(!garden),
		gateways: newGateways(gateways),
		shards:   newShards(shardPrefix(opts.Place)),
	}
	p.written = sync.NewCond(&p.mu)
	return p
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: there is one writer.
func (p *Provider) NeedLeaderElection() bool { return true }

// Apply implements dns.Provider. It waits for at most the timeout for confirmations; what it was given stays wanted even if it
// returns an error, so trying again is to look again.
func (p *Provider) Apply(ctx context.Context, request dns.Request) error {
	record := request.Record
	if _, err := record.Zone(p.DNS.Zones); err != nil {
		return dns.ConfigurationProblem(err)
	}
	timeout := p.DNS.CoreDNS.ConfirmTimeout.Duration
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := p.waitStarted(ctx); err != nil {
		return err
	}

	p.mu.Lock()
	wanted := p.update(append(p.desired.set(record), record.Name)...)
	conflict := p.desired.conflict(record)
	p.mu.Unlock()
	if conflict != nil {
		return conflict
	}
	if err := p.await(ctx, wanted); err != nil {
		return fmt.Errorf("writing %s record %s: %w", record.Type, record.Name, err)
	}
	if err := p.confirm(ctx, record); err != nil {
		return fmt.Errorf("%s record %s is written and doesn't resolve within %s: %w", record.Type, record.Name, timeout, err)
	}
	return nil
}

// Remove implements dns.Provider. It waits until it is written, not until it is served: nobody needs a name to be gone.
func (p *Provider) Remove(ctx context.Context, request dns.Request) error {
	owner := request.Record.Owner
	ctx, cancel := context.WithTimeout(ctx, p.DNS.CoreDNS.ConfirmTimeout.Duration)
	defer cancel()
	if err := p.waitStarted(ctx); err != nil {
		return err
	}

	p.mu.Lock()
	names := p.desired.remove(owner)
	wanted := p.update(names...)
	if len(names) == 0 {
		// An earlier attempt, or the start, may have left it out of what is not written yet.
		for _, s := range p.shards.all {
			wanted[s] = s.version
		}
	}
	p.mu.Unlock()
	if err := p.await(ctx, wanted); err != nil {
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
	return fmt.Errorf("the state of CoreDNS in namespace %s is not known yet: %w", p.DNS.CoreDNS.Namespace, cmp.Or(p.unprepared, ctx.Err()))
}

// Start implements manager.Runnable. It makes the state from what is in the cluster, and then writes what changes until ctx is
// done.
func (p *Provider) Start(ctx context.Context) error {
	err := p.makeState(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("making the state of CoreDNS from the cluster: %w", err)
	}
	close(p.started)
	p.write(ctx)
	return nil
}

// makeState makes the state from what is in the cluster, and follows that from then on.
func (p *Provider) makeState(ctx context.Context) error {
	configMaps, err := p.waitPrepared(ctx)
	if err != nil {
		return err
	}
	dnsRecordChanged := func(object *extensionsv1alpha1.DNSRecord, _ bool) { p.dnsRecordChanged(ctx, object) }
	if err := watch(ctx, p.Cache, &extensionsv1alpha1.DNSRecord{}, dnsRecordChanged); err != nil {
		return err
	}
	if err := watch(ctx, p.Cache, &corev1.Service{}, p.serviceChanged); err != nil {
		return err
	}
	// Namespaces with a zone of their own are those of the control planes of shoots. They are watched as a whole, as the
	// extension library watches them anyway; a second informer, for what is needed of them, would not save anything.
	if _, ok := p.Classes.Only(extensionsv1alpha1.ExtensionClassShoot); ok {
		if err := watch(ctx, p.Cache, &corev1.Namespace{}, p.namespaceChanged); err != nil {
			return err
		}
	}
	if err := p.rebuild(ctx, configMaps); err != nil {
		return err
	}
	// Whether a ConfigMap is as it should be can be told only once it is known what is to be in it.
	return watch(ctx, p.Cache, &corev1.ConfigMap{}, p.configMapChanged)
}

// waitPrepared returns the ConfigMaps once what has to be read in the namespace of CoreDNS can be. An instance whose CoreDNS is
// just being deployed isn't allowed to read there yet. An informer would wait longer and longer for that, so it is made only
// when it is known to work.
func (p *Provider) waitPrepared(ctx context.Context) (configMaps *corev1.ConfigMapList, err error) {
	backoff := wait.Backoff{Duration: firstRetry, Factor: 2, Cap: maxRetry / 2, Steps: math.MaxInt}
	err = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		var err error
		if configMaps, err = p.prepare(ctx); err != nil {
			p.Log.Info("Waiting for the namespace of CoreDNS", "namespace", p.DNS.CoreDNS.Namespace, "reason", err.Error())
			p.mu.Lock()
			defer p.mu.Unlock()
			p.unprepared = err
		}
		return err == nil, nil
	})
	return configMaps, err
}

// prepare reads in the namespace of CoreDNS and learns who owns the ConfigMaps.
func (p *Provider) prepare(ctx context.Context) (*corev1.ConfigMapList, error) {
	var err error
	if p.owner, err = ownerReference(ctx, p.Reader, p.ServiceAccount.Namespace); err != nil {
		return nil, err
	}
	namespace := p.DNS.CoreDNS.Namespace
	configMaps := &corev1.ConfigMapList{}
	if err := p.Reader.List(ctx, configMaps, client.InNamespace(namespace), client.MatchingLabels(p.labels())); err != nil {
		return nil, fmt.Errorf("listing the ConfigMaps in namespace %s: %w", namespace, err)
	}
	return configMaps, nil
}

// ownerReference returns the reference to a Namespace as an owner. Namespaced and cluster-scoped objects may have it.
func ownerReference(ctx context.Context, reader client.Reader, name string) (metav1.OwnerReference, error) {
	namespace := &corev1.Namespace{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("reading Namespace %s of this instance: %w", name, err)
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: name, UID: namespace.UID}, nil
}

// watch calls a function with the objects of a kind that are there, and with those that are changed or deleted from now on. It
// returns once the function was called with all that are there.
func watch[T client.Object](ctx context.Context, from cache.Cache, kind T, changed func(object T, deleted bool)) error {
	informer, err := from.GetInformer(ctx, kind)
	if err != nil {
		return fmt.Errorf("watching objects of type %T: %w", kind, err)
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { changed(object.(T), false) },
		UpdateFunc: func(_, object any) { changed(object.(T), false) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			changed(object.(T), true)
		},
	})
	if err != nil {
		return fmt.Errorf("watching objects of type %T: %w", kind, err)
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return ctx.Err()
	}
	return nil
}

// dnsRecordChanged drops what no reconcile will drop: a DNSRecord that went without one, as Gardener's library skips
// the deletion of what it takes for never created, one that is another instance's or extension's now,
// and one that another provider serves. It follows the DNSRecords of another instance whose names are taken, and those that another
// process has answered, which leads as well: what is written here must have them, too.
func (p *Provider) dnsRecordChanged(ctx context.Context, changed *extensionsv1alpha1.DNSRecord) {
	key := client.ObjectKeyFromObject(changed)
	// The event may be older than what is there now: a record of the same name may have been created again.
	current := &extensionsv1alpha1.DNSRecord{}
	err := p.Client.Get(ctx, key, current)
	if client.IgnoreNotFound(err) != nil {
		p.Log.Error(err, "Reading a DNSRecord from the cache", "dnsRecord", key)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.isMine(current) && (!p.isRebuilt || !hasSucceeded(current)) {
		return
	}
	if record, ok := p.wanted(current); ok {
		p.update(p.desired.set(record)...)
	} else if names := p.desired.remove(key); len(names) > 0 {
		p.Log.Info("Dropping the record of a DNSRecord that is gone or no more to be served here", "dnsRecord", key)
		p.update(names...)
	}
}

// serviceChanged renders the names again whose gateway may be another now.
func (p *Provider) serviceChanged(service *corev1.Service, deleted bool) {
	next := gatewayOf(service)
	if deleted {
		next = gateway{service: next.service}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if addresses := sets.New(p.gateways.set(next)...); addresses.Len() > 0 {
		p.updateWhere(func(record dns.Record) bool { return addresses.HasAny(record.Values...) })
	}
}

// namespaceChanged renders the names of a namespace again if its control plane is in another zone now.
func (p *Provider) namespaceChanged(namespace *corev1.Namespace, deleted bool) {
	zone := ""
	if !deleted {
		zone = singleZone(namespace)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gateways.setZone(namespace.Name, zone) {
		p.updateWhere(func(record dns.Record) bool { return record.Owner.Namespace == namespace.Name })
	}
}

func (p *Provider) isMine(object *extensionsv1alpha1.DNSRecord) bool {
	return object.Spec.Type == dns.Type && p.Classes.Has(object) && dns.IsServedBy(configv1alpha1.DNSProviderCoreDNS, object, p.DNS.Provider)
}

// isElsewhere reports whether another instance serves a DNSRecord whose name goes before all that this one serves: the
// garden's, which the instance of a seed in the same cluster must leave alone.
func (p *Provider) isElsewhere(object *extensionsv1alpha1.DNSRecord) bool {
	return object.Spec.Type == dns.Type && object.DeletionTimestamp == nil && !p.Classes.Has(object) &&
		object.Spec.Class != nil && *object.Spec.Class == extensionsv1alpha1.ExtensionClassGarden
}

// rebuild makes the state from the DNSRecords, takes over where names are from the ConfigMaps, and prunes what nobody wants any
// more.
func (p *Provider) rebuild(ctx context.Context, configMaps *corev1.ConfigMapList) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	objects := &extensionsv1alpha1.DNSRecordList{}
	if err := p.Client.List(ctx, objects); err != nil {
		return fmt.Errorf("listing DNSRecords: %w", err)
	}
	p.isRebuilt = true
	for i := range configMaps.Items {
		if found := &configMaps.Items[i]; p.shards.may(found.Name) {
			s := p.shards.load(found.Name, found.Data)
			s.exists = true
			s.generation, _ = strconv.ParseUint(found.Annotations[AnnotationGeneration], 10, 64)
		}
	}
	// Those that were seen to resolve come first: no other may take their names.
	for _, seen := range []bool{true, false} {
		for i := range objects.Items {
			if object := &objects.Items[i]; wasSeen(object) == seen {
				if record, ok := p.wanted(object); ok {
					p.desired.set(record)
				}
			}
		}
	}
	p.update(slices.Sorted(maps.Keys(p.shards.where))...) // Names stay where they are, and make room if nobody wants them.
	p.update(slices.Sorted(maps.Keys(p.desired.byName))...)
	p.Log.Info("Serving the DNSRecords that were reconciled before", "names", len(p.desired.byName), "configMaps", len(p.shards.all))
	return nil
}

// stays reports whether a DNSRecord was reconciled and is to stay: one that wasn't yet will be, and one that is going or is
// migrated to another seed is not to come back by a restart.
func stays(object *extensionsv1alpha1.DNSRecord) bool {
	return object.DeletionTimestamp == nil && !reconciler.IsLeaving(object) &&
		v1beta1helper.GetCondition(object.Status.Conditions, extensionsv1alpha1.ConditionTypeCreated) != nil
}

// wasSeen reports whether a DNSRecord was seen to resolve.
func wasSeen(object *extensionsv1alpha1.DNSRecord) bool {
	created := v1beta1helper.GetCondition(object.Status.Conditions, extensionsv1alpha1.ConditionTypeCreated)
	return created != nil && created.Status == gardencorev1beta1.ConditionTrue
}

// hasSucceeded reports whether a DNSRecord stays and is served as it asks for.
func hasSucceeded(object *extensionsv1alpha1.DNSRecord) bool {
	last := object.Status.LastOperation
	return stays(object) && last != nil && last.State == gardencorev1beta1.LastOperationStateSucceeded && object.Status.ObservedGeneration == object.Generation
}

// wanted returns the record of a DNSRecord that was reconciled before, here or elsewhere; false if it has none.
func (p *Provider) wanted(object *extensionsv1alpha1.DNSRecord) (record dns.Record, ok bool) {
	var err error
	switch {
	case p.isElsewhere(object):
		record, err = dns.New(object, p.DNS.Zones, *p.DNS.DefaultTTL)
	case p.isMine(object) && stays(object):
		record, err = p.restored(object)
	default:
		return record, false
	}
	if err != nil {
		// Its reconcile tells its author.
		p.Log.Info("Leaving out a DNSRecord", "dnsRecord", client.ObjectKeyFromObject(object), "reason", err.Error())
	}
	return record, err == nil
}

// restored returns the record of a DNSRecord as it was served before a restart: what it asks for if it was seen to resolve;
// what the ConfigMaps have of it if its spec has become invalid since; and neither if the ConfigMaps don't have its name,
// as they do have one whose last attempt failed only after it was written, or have it for somebody else.
func (p *Provider) restored(object *extensionsv1alpha1.DNSRecord) (dns.Record, error) {
	name, nameErr := dns.NormalizeName(object.Spec.Name)
	values, ttl := p.shards.values(name, string(object.Spec.RecordType))
	record, err := dns.New(object, p.DNS.Zones, *p.DNS.DefaultTTL)
	switch {
	case err != nil && (nameErr != nil || len(values) == 0):
		return dns.Record{}, err
	case err != nil:
		record = dns.Identify(object)
		record.Name, record.Values, record.TTL = name, values, ttl
	case wasSeen(object):
	case len(values) == 0, v1beta1helper.GetCondition(object.Status.Conditions, extensionsv1alpha1.ConditionTypeCreated).Reason == dns.ReasonReserved:
		return dns.Record{}, errors.New("it was not served before")
	default:
		if err := p.desired.conflict(record); err != nil {
			return dns.Record{}, err
		}
	}
	return record, record.CheckReserved(p.DNS.ReservedDomains)
}
