// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	if err := p.watch(ctx); err != nil || ctx.Err() != nil {
		return err
	}
	if err := p.rebuild(ctx); err != nil {
		return fmt.Errorf("making the state of CoreDNS from the cluster: %w", err)
	}
	close(p.started)
	p.signal()
	p.write(ctx)
	return nil
}

// waitPrepared returns once prepare has succeeded. An instance whose CoreDNS is just being deployed isn't allowed to read
// there yet. An informer would wait longer and longer for that, so it is made only when it is known to work.
func (p *Provider) waitPrepared(ctx context.Context) {
	retry := firstRetry
	for ctx.Err() == nil {
		err := p.prepare(ctx)
		if err == nil {
			return
		}
		p.Log.Info("Waiting for the namespace of CoreDNS", "namespace", p.Namespace, "reason", err.Error())
		p.mu.Lock()
		p.lastError = err
		p.mu.Unlock()
		pause(ctx, retry)
		retry = min(2*retry, maxRetry/2)
	}
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

// watch reacts to what others do with the objects that the state is made of.
func (p *Provider) watch(ctx context.Context) error {
	type watched struct {
		object  client.Object
		handler toolscache.ResourceEventHandler
	}
	all := []watched{
		{&extensionsv1alpha1.DNSRecord{}, onChange(func(object client.Object) { p.dnsRecordChanged(ctx, object) })},
		{&corev1.Service{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { p.serviceChanged(object, false) },
			UpdateFunc: func(_, object any) { p.serviceChanged(object, false) },
			DeleteFunc: func(object any) { p.serviceChanged(object, true) },
		}},
		{&corev1.ConfigMap{}, onChange(func(object client.Object) { p.suspect(object.GetName()) })},
	}
	if p.watchesNamespaces() {
		all = append(all, watched{&corev1.Namespace{}, toolscache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { p.namespaceChanged(object, false) },
			UpdateFunc: func(_, object any) { p.namespaceChanged(object, false) },
			DeleteFunc: func(object any) { p.namespaceChanged(object, true) },
		}})
	}
	if len(p.Servers) == 0 {
		all = append(all, watched{&discoveryv1.EndpointSlice{}, toolscache.ResourceEventHandlerFuncs{}})
	}

	for _, w := range all {
		informer, err := p.Informers.GetInformer(ctx, w.object)
		if err != nil {
			return fmt.Errorf("watching objects of type %T: %w", w.object, err)
		}
		registration, err := informer.AddEventHandler(w.handler)
		if err != nil {
			return fmt.Errorf("watching objects of type %T: %w", w.object, err)
		}
		if !toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
			return nil
		}
	}
	return nil
}

// onChange calls a function with the object of every event.
func onChange(do func(object client.Object)) toolscache.ResourceEventHandler {
	call := func(object any) {
		if object, ok := unwrap(object); ok {
			do(object)
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    call,
		UpdateFunc: func(_, object any) { call(object) },
		DeleteFunc: call,
	}
}

func unwrap(object any) (client.Object, bool) {
	if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	out, ok := object.(client.Object)
	return out, ok
}

// dnsRecordChanged drops what no reconcile will drop: a DNSRecord that went without one, as Gardener's library skips
// the deletion of what it takes for never created, one that is another instance's or extension's now,
// and one that another provider serves. It follows the DNSRecords of another instance whose names are taken.
func (p *Provider) dnsRecordChanged(ctx context.Context, object client.Object) {
	key := client.ObjectKeyFromObject(object)
	p.mu.Lock()
	_, ok := p.desired.owners[key]
	p.mu.Unlock()
	if record, isDNSRecord := object.(*extensionsv1alpha1.DNSRecord); !ok && (!isDNSRecord || !p.isElsewhere(record)) {
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
	if err == nil && p.isElsewhere(current) {
		if record, err := dns.New(current, p.Zones, p.DefaultTTL); err == nil {
			p.mu.Lock()
			defer p.mu.Unlock()
			p.enqueue(p.desired.setElsewhere(record))
			return
		}
	}
	if !ok {
		return
	}
	p.Log.Info("Dropping the record of a DNSRecord that is gone or no more to be served here", "dnsRecord", key)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.enqueue(p.desired.remove(key))
}

// serviceChanged renders the names again whose gateway may be another now.
func (p *Provider) serviceChanged(object any, deleted bool) {
	unwrapped, ok := unwrap(object)
	if !ok {
		return
	}
	service, ok := unwrapped.(*corev1.Service)
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
	p.enqueue(p.desired.namesOf(addresses))
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

	for _, name := range p.desired.names() {
		p.renderName(name)
	}
	p.shards.prune()
	p.Log.Info("Serving the DNSRecords that were reconciled before", "names", len(p.desired.byName), "configMaps", len(p.shards.all))

	// What is right already needs no write.
	for i := range configMaps.Items {
		if s, ok := p.shards.all[configMaps.Items[i].Name]; ok {
			s.dirty = len(s.entries) == 0 || s.generation == 0 || !p.isAsWritten(&configMaps.Items[i], s)
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

// servers returns the addresses of all CoreDNS that are ready to be asked.
func (p *Provider) servers(ctx context.Context) ([]string, error) {
	if len(p.Servers) > 0 {
		return p.Servers, nil
	}
	list := &discoveryv1.EndpointSliceList{}
	if err := p.Client.List(ctx, list, client.InNamespace(p.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: ServiceName}); err != nil {
		return nil, fmt.Errorf("listing the EndpointSlices of Service %s/%s: %w", p.Namespace, ServiceName, err)
	}
	var servers []string
	for _, slice := range list.Items {
		servers = append(servers, endpoints(slice)...)
	}
	if len(servers) == 0 {
		return nil, errors.New("no pod of CoreDNS in namespace " + p.Namespace + " is ready")
	}
	slices.Sort(servers)
	return slices.Compact(servers), nil
}

// endpoints returns the ready addresses of a slice. A pod with two families is in two slices: to ask it twice is to see
// that it answers by both.
func endpoints(slice discoveryv1.EndpointSlice) []string {
	port := int32(0)
	for _, candidate := range slice.Ports {
		if candidate.Port != nil && candidate.Protocol != nil && *candidate.Protocol == corev1.ProtocolTCP {
			port = *candidate.Port
		}
	}
	var servers []string
	for _, endpoint := range slice.Endpoints {
		if port == 0 || (endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready) {
			continue
		}
		for _, address := range endpoint.Addresses {
			servers = append(servers, net.JoinHostPort(address, strconv.Itoa(int(port))))
		}
	}
	return servers
}
