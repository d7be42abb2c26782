// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

const (
	firstRetry = 100 * time.Millisecond
	maxRetry   = 5 * time.Second
)

// write writes changes until ctx is done. It is the only one who does.
func (p *Provider) write(ctx context.Context) {
	retry := firstRetry
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		}
		pause(ctx, p.BatchWindow)

		err := p.flush(ctx)
		p.mu.Lock()
		p.lastError = err
		p.mu.Unlock()
		if err == nil {
			retry = firstRetry
			continue
		}
		if ctx.Err() != nil {
			return
		}
		p.Log.Error(err, "Writing the configuration of CoreDNS, trying again", "after", retry)
		pause(ctx, retry)
		retry = min(2*retry, maxRetry)
		p.signal()
	}
}

// flush renders what has changed and writes the ConfigMaps that this touches. One that can't be written doesn't keep
// the others from it.
func (p *Provider) flush(ctx context.Context) error {
	errs := []error{p.inspect(ctx)}
	start := p.Clock.Now()

	p.mu.Lock()
	p.Metrics.Batch(len(p.pending))
	p.renderPending()
	names := len(p.shards.where)
	var dirty []string
	for name, s := range p.shards.all {
		if s.dirty {
			dirty = append(dirty, name)
		}
	}
	p.mu.Unlock()

	slices.Sort(dirty)
	for _, name := range dirty {
		if err := p.writeShard(ctx, name); err != nil {
			errs = append(errs, err)
		}
	}
	err := errors.Join(errs...)
	if len(dirty) > 0 || err != nil {
		p.Metrics.Flushed(p.Clock.Since(start), names, err)
	}
	return err
}

// renderPending puts the pending names into their shards and hands on the tickets to these.
func (p *Provider) renderPending() {
	for name, tickets := range p.pending {
		touched := p.renderName(name)
		// A shard that is dirty for another reason may hold this name in an earlier state.
		if in, ok := p.shards.where[name]; ok && in.dirty && !slices.Contains(touched, in) {
			touched = append(touched, in)
		}
		for _, t := range tickets {
			t.left += len(touched)
			for _, s := range touched {
				s.waiting = append(s.waiting, t)
			}
			t.finish()
		}
	}
	clear(p.pending)
}

func (p *Provider) renderName(name string) []*shard {
	records := p.desired.effective(name)
	zone, ok := dns.ZoneOf(name, p.Zones)
	if len(records) == 0 || !ok {
		return p.shards.remove(name)
	}
	service := ""
	if found, ok := p.gateways.find(records); ok {
		service = found.service.Name + "." + found.service.Namespace + ".svc." + p.ClusterDomain
	}
	return p.shards.put(render(name, zone, records, service))
}

// finish takes one off what a ticket waits for.
func (t *ticket) finish() {
	t.left--
	if t.left == 0 {
		close(t.done)
	}
}

// writeShard writes one ConfigMap, or deletes it if nothing is in it. What changes meanwhile leaves it dirty.
func (p *Provider) writeShard(ctx context.Context, name string) error {
	p.mu.Lock()
	s := p.shards.all[name]
	configMap := p.configMap(s)
	remove, exists := len(s.entries) == 0, s.exists
	waiting := s.waiting
	s.waiting = nil
	s.dirty = false
	p.mu.Unlock()

	var err error
	if remove {
		err = client.IgnoreNotFound(p.Client.Delete(ctx, configMap))
	} else {
		err = p.createOrUpdate(ctx, configMap, exists)
	}
	p.Metrics.Written(err)

	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil {
		s.dirty = true
		s.waiting = append(waiting, s.waiting...)
		return fmt.Errorf("writing ConfigMap %s/%s: %w", p.Namespace, name, err)
	}
	s.exists = !remove
	s.resourceVersion = configMap.ResourceVersion
	s.generation, _ = strconv.ParseUint(configMap.Annotations[AnnotationGeneration], 10, 64)
	for _, t := range waiting {
		t.finish()
	}
	if remove && len(s.entries) == 0 && !s.dirty {
		delete(p.shards.all, name)
	}
	return nil
}

// createOrUpdate writes a ConfigMap whatever is there: what was edited by hand in between is not to survive.
func (p *Provider) createOrUpdate(ctx context.Context, configMap *corev1.ConfigMap, exists bool) error {
	if !exists {
		if err := p.Client.Create(ctx, configMap); !apierrors.IsAlreadyExists(err) {
			return err
		}
	}
	err := p.Client.Update(ctx, configMap)
	if !apierrors.IsNotFound(err) {
		return err
	}
	configMap.ResourceVersion = ""
	return p.Client.Create(ctx, configMap)
}

// configMap renders a shard, with the next generation.
func (p *Provider) configMap(s *shard) *corev1.ConfigMap {
	// Generations grow even if the ConfigMap with the last one is lost, as the time does.
	generation := max(s.generation+1, uint64(max(p.Clock.Now().UnixMicro(), 0))) // #nosec G115 -- not negative.
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       p.Namespace,
			Name:            s.name,
			Labels:          p.labels(),
			Annotations:     map[string]string{AnnotationGeneration: strconv.FormatUint(generation, 10)},
			OwnerReferences: p.reference(),
		},
		Data: s.data(),
	}
}

func (p *Provider) labels() map[string]string {
	return map[string]string{LabelConfig: "true", LabelInstance: p.Instance}
}

// inspect compares ConfigMaps that were touched by somebody with what they should be.
func (p *Provider) inspect(ctx context.Context) error {
	p.mu.Lock()
	suspects := slices.Sorted(maps.Keys(p.suspects))
	clear(p.suspects)
	p.mu.Unlock()

	var errs []error
	for _, name := range suspects {
		if err := p.inspectOne(ctx, name); err != nil {
			errs = append(errs, fmt.Errorf("reading ConfigMap %s/%s: %w", p.Namespace, name, err))
			p.suspect(name)
		}
	}
	return errors.Join(errs...)
}

func (p *Provider) inspectOne(ctx context.Context, name string) error {
	found := &corev1.ConfigMap{}
	err := p.Client.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, found)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	missing := err != nil

	p.mu.Lock()
	defer p.mu.Unlock()
	s, known := p.shards.all[name]
	switch {
	case missing:
		if known && s.exists {
			p.Log.Info("A ConfigMap is gone, writing it again", "configMap", name)
			s.exists, s.dirty = false, true
		}
	case !known:
		// One that nobody wants: a shard without entries is dirty until it is deleted.
		p.Log.Info("Deleting a ConfigMap that this instance doesn't need", "configMap", name)
		p.shards.get(name).dirty = true
	case s.resourceVersion == found.ResourceVersion:
	default:
		if order, err := resourceversion.CompareResourceVersion(found.ResourceVersion, s.resourceVersion); err == nil && order < 0 {
			return nil // The cache is behind the last write, whose event is still to come.
		}
		if !p.isAsWritten(found, s) {
			p.Log.Info("A ConfigMap was changed by somebody else, writing it again", "configMap", name)
			s.dirty = true
		}
	}
	return nil
}

// isAsWritten compares what matters to CoreDNS and to the garbage collector.
func (p *Provider) isAsWritten(found *corev1.ConfigMap, s *shard) bool {
	for key, value := range p.labels() {
		if found.Labels[key] != value {
			return false
		}
	}
	for _, reference := range p.owner {
		if !slices.ContainsFunc(found.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == reference.UID }) {
			return false
		}
	}
	return found.Annotations[AnnotationGeneration] == strconv.FormatUint(s.generation, 10) && len(found.BinaryData) == 0 && maps.Equal(found.Data, s.data())
}

// suspect has a ConfigMap compared with what it should be.
func (p *Provider) suspect(name string) {
	if !p.shards.may(name) {
		return
	}
	p.mu.Lock()
	p.suspects[name] = struct{}{}
	p.mu.Unlock()
	p.signal()
}
