// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// Start implements manager.Runnable. It makes the state from what is in the cluster, prunes what nobody wants any more,
// and then writes what changes until ctx is done.
func (p *Provider) Start(ctx context.Context) error {
	p.waitPrepared(ctx)
	if ctx.Err() != nil {
		return nil
	}
	if err := p.watch(ctx, p.sources(ctx)); err != nil || ctx.Err() != nil {
		return err
	}
	if err := p.rebuild(ctx); err != nil {
		return fmt.Errorf("making the state of CoreDNS from the cluster: %w", err)
	}
	// What others do with the ConfigMaps can be told only once it is known what is to be in them.
	if err := p.watch(ctx, []watched{{&corev1.ConfigMap{}, p.configMapChanged}}); err != nil || ctx.Err() != nil {
		return err
	}
	close(p.started)
	p.write(ctx)
	return nil
}

// waitPrepared returns once prepare has succeeded. An instance whose CoreDNS is just being deployed isn't allowed to read
// there yet. An informer would wait longer and longer for that, so it is made only when it is known to work.
func (p *Provider) waitPrepared(ctx context.Context) {
	backoff := wait.Backoff{Duration: firstRetry, Factor: 2, Cap: maxRetry / 2, Steps: math.MaxInt}
	_ = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		err := p.prepare(ctx)
		if err != nil {
			p.Log.Info("Waiting for the namespace of CoreDNS", "namespace", p.Namespace, "reason", err.Error())
			p.mu.Lock()
			defer p.mu.Unlock()
			p.unprepared = err
		}
		return err == nil, nil
	})
}

// prepare checks that the namespace of CoreDNS can be read and learns who owns the ConfigMaps.
func (p *Provider) prepare(ctx context.Context) error {
	if p.Owner != "" {
		owner, err := OwnerReference(ctx, p.Reader, p.Owner)
		if err != nil {
			return err
		}
		p.owner = []metav1.OwnerReference{owner}
	}
	list := &corev1.ConfigMapList{}
	if err := p.Reader.List(ctx, list, client.InNamespace(p.Namespace), client.MatchingLabels(p.labels()), client.Limit(1)); err != nil {
		return fmt.Errorf("listing the ConfigMaps in namespace %s: %w", p.Namespace, err)
	}
	if len(p.Servers) > 0 {
		return nil
	}
	if err := p.Reader.List(ctx, &discoveryv1.EndpointSliceList{}, client.InNamespace(p.Namespace), client.Limit(1)); err != nil {
		return fmt.Errorf("listing the EndpointSlices in namespace %s: %w", p.Namespace, err)
	}
	return nil
}

// OwnerReference returns the reference to a Namespace as an owner. Namespaced and cluster-scoped objects may have it.
func OwnerReference(ctx context.Context, reader client.Reader, name string) (metav1.OwnerReference, error) {
	namespace := &corev1.Namespace{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return metav1.OwnerReference{}, fmt.Errorf("reading Namespace %s of this instance: %w", name, err)
	}
	return metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: name, UID: namespace.UID}, nil
}

// watched are objects whose changes matter.
type watched struct {
	object  client.Object
	changed func(object any, deleted bool)
}

// sources are the objects that the state is made of.
func (p *Provider) sources(ctx context.Context) []watched {
	all := []watched{
		{&extensionsv1alpha1.DNSRecord{}, func(object any, _ bool) { p.dnsRecordChanged(ctx, object) }},
		{&corev1.Service{}, p.serviceChanged},
	}
	if p.watchesNamespaces() {
		all = append(all, watched{&corev1.Namespace{}, p.namespaceChanged})
	}
	if len(p.Servers) == 0 {
		all = append(all, watched{&discoveryv1.EndpointSlice{}, func(any, bool) {}}) // they are read when somebody asks
	}
	return all
}

// watch calls functions with what changes from now on, and with what there is already.
func (p *Provider) watch(ctx context.Context, all []watched) error {
	for _, w := range all {
		informer, err := p.Informers.GetInformer(ctx, w.object)
		if err != nil {
			return fmt.Errorf("watching objects of type %T: %w", w.object, err)
		}
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { w.changed(object, false) },
			UpdateFunc: func(_, object any) { w.changed(object, false) },
			DeleteFunc: func(object any) { w.changed(object, true) },
		})
		if err != nil {
			return fmt.Errorf("watching objects of type %T: %w", w.object, err)
		}
		if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return nil
		}
	}
	return nil
}

// unwrap returns the object of an event.
func unwrap[T client.Object](object any) (T, bool) {
	if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	out, ok := object.(T)
	return out, ok
}

// dnsRecordChanged drops what no reconcile will drop: a DNSRecord that went without one, as Gardener's library skips
// the deletion of what it takes for never created, one that is another instance's or extension's now,
// and one that another provider serves. It follows the DNSRecords of another instance whose names are taken.
func (p *Provider) dnsRecordChanged(ctx context.Context, changed any) {
	object, ok := unwrap[*extensionsv1alpha1.DNSRecord](changed)
	if !ok {
		return
	}
	key := client.ObjectKeyFromObject(object)
	p.mu.Lock()
	_, known := p.desired.owners[key]
	p.mu.Unlock()
	if !known && !p.isElsewhere(object) {
		return
	}

	// The event may be older than what is there now: a record of the same name may have been created again.
	current := &extensionsv1alpha1.DNSRecord{}
	err := p.Client.Get(ctx, key, current)
	if client.IgnoreNotFound(err) != nil {
		p.Log.Error(err, "Reading a DNSRecord from the cache", "dnsRecord", key)
		return
	}
	if err == nil && p.isMine(current) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if err == nil && p.isElsewhere(current) {
		if record, err := dns.New(current, p.Zones, p.DefaultTTL); err == nil {
			p.update(p.desired.setElsewhere(record)...)
			return
		}
	}
	if names := p.desired.remove(key); len(names) > 0 {
		p.Log.Info("Dropping the record of a DNSRecord that is gone or no more to be served here", "dnsRecord", key)
		p.update(names...)
	}
}

// serviceChanged renders the names again whose gateway may be another now.
func (p *Provider) serviceChanged(changed any, deleted bool) {
	service, ok := unwrap[*corev1.Service](changed)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var addresses []string
	if deleted {
		addresses = p.gateways.remove(client.ObjectKeyFromObject(service))
	} else {
		addresses = p.gateways.set(service)
	}
	if len(addresses) > 0 {
		p.update(p.desired.names(func(record dns.Record) bool {
			return slices.ContainsFunc(record.Values, func(value string) bool { return slices.Contains(addresses, value) })
		})...)
	}
}

// namespaceChanged renders the names of a namespace again if its control plane is in another zone now.
func (p *Provider) namespaceChanged(changed any, deleted bool) {
	namespace, ok := unwrap[client.Object](changed)
	if !ok {
		return
	}
	zone := ""
	if !deleted {
		zone = singleZone(namespace)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gateways.setZone(namespace.GetName(), zone) {
		p.update(p.desired.names(func(record dns.Record) bool { return record.Owner.Namespace == namespace.GetName() })...)
	}
}

func (p *Provider) isMine(object *extensionsv1alpha1.DNSRecord) bool {
	return object.Spec.Type == dns.Type && p.Classes.Has(object) && dns.IsServedBy(configv1alpha1.DNSProviderCoreDNS, object, p.DefaultProvider)
}

// isElsewhere reports whether another instance serves a DNSRecord whose name goes before all that this one serves: the
// garden's, which the instance of a seed in the same cluster must leave alone.
func (p *Provider) isElsewhere(object *extensionsv1alpha1.DNSRecord) bool {
	return object.Spec.Type == dns.Type && object.DeletionTimestamp == nil && !p.Classes.Has(object) &&
		object.Spec.Class != nil && *object.Spec.Class == extensionsv1alpha1.ExtensionClassGarden
}

// rebuild makes the state from the DNSRecords, and takes over where names are from the ConfigMaps.
func (p *Provider) rebuild(ctx context.Context) error {
	objects := &extensionsv1alpha1.DNSRecordList{}
	if err := p.Client.List(ctx, objects); err != nil {
		return fmt.Errorf("listing DNSRecords: %w", err)
	}
	configMaps := &corev1.ConfigMapList{}
	if err := p.Reader.List(ctx, configMaps, client.InNamespace(p.Namespace), client.MatchingLabels(p.labels())); err != nil {
		return fmt.Errorf("listing the ConfigMaps in namespace %s: %w", p.Namespace, err)
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	for i := range configMaps.Items {
		configMap := &configMaps.Items[i]
		if p.shards.may(configMap.Name) {
			loaded := p.shards.load(configMap.Name, configMap.Data)
			loaded.exists = true
			loaded.resourceVersion = configMap.ResourceVersion
			loaded.generation, _ = strconv.ParseUint(configMap.Annotations[AnnotationGeneration], 10, 64)
		}
	}
	for i := range objects.Items {
		object := &objects.Items[i]
		if p.isElsewhere(object) {
			if record, err := dns.New(object, p.Zones, p.DefaultTTL); err == nil {
				p.desired.setElsewhere(record)
			}
			continue
		}
		if !p.isMine(object) || !stays(object) {
			continue
		}
		record, err := p.restored(object)
		if err != nil {
			// Its reconcile tells its author.
			p.Log.Info("Leaving out a DNSRecord", "dnsRecord", client.ObjectKeyFromObject(object), "reason", err.Error())
			continue
		}
		p.desired.set(record)
	}

	for _, name := range slices.Sorted(maps.Keys(p.desired.byName)) {
		p.renderName(name)
	}
	p.shards.prune()
	p.Log.Info("Serving the DNSRecords that were reconciled before", "names", len(p.desired.byName), "configMaps", len(p.shards.all))

	for _, s := range p.shards.all {
		s.version++ // also one that nothing is in any more
		p.queue.Add(s.name)
	}
	for i := range configMaps.Items {
		if s, ok := p.shards.all[configMaps.Items[i].Name]; ok && s.generation > 0 && len(s.entries) > 0 {
			if s.sent = p.configMap(s, s.generation); isAsWritten(&configMaps.Items[i], s.sent) {
				s.written.report(s.version, nil)
			}
		}
	}
	return nil
}

// stays reports whether a DNSRecord was reconciled and is to stay: one that wasn't yet will be, and one that is going or is
// migrated to another seed is not to come back by a restart.
func stays(object *extensionsv1alpha1.DNSRecord) bool {
	if object.DeletionTimestamp != nil || object.Annotations[v1beta1constants.GardenerOperation] == v1beta1constants.GardenerOperationMigrate {
		return false
	}
	last := object.Status.LastOperation
	if last != nil && last.Type == gardencorev1beta1.LastOperationTypeMigrate {
		return false
	}
	return v1beta1helper.GetCondition(object.Status.Conditions, extensionsv1alpha1.ConditionTypeCreated) != nil
}

// restored returns the record of a DNSRecord as it was served before a restart: what it asks for if it was seen to resolve;
// what the ConfigMaps have of it if its spec has become invalid since; and neither if the ConfigMaps don't have its name,
// as they do have one whose last attempt failed only after it was written.
func (p *Provider) restored(object *extensionsv1alpha1.DNSRecord) (dns.Record, error) {
	record, err := dns.New(object, p.Zones, p.DefaultTTL)
	if err != nil {
		record = dns.Identify(object)
		name, nameErr := dns.NormalizeName(object.Spec.Name)
		record.Name = name
		record.Values, record.TTL = p.shards.formerValues(name, record.Type)
		if nameErr != nil || len(record.Values) == 0 {
			return dns.Record{}, err
		}
	}
	if err := record.CheckReserved(p.Reserved); err != nil {
		return dns.Record{}, err
	}
	created := v1beta1helper.GetCondition(object.Status.Conditions, extensionsv1alpha1.ConditionTypeCreated)
	if former, _ := p.shards.formerValues(record.Name, record.Type); created.Status != gardencorev1beta1.ConditionTrue && len(former) == 0 {
		return dns.Record{}, errors.New("it was not served before")
	}
	return record, nil
}
