// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"encoding/json"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sync/singleflight"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
)

// Puller pulls charts and keeps them. There is one for an instance: its metrics and its directory cannot be shared. It is
// safe for concurrent use.
type Puller struct {
	opts    Options
	metrics *metrics
	disk    *disk
	// ctx is that of all pulls; it ends with Close. They do not end with the call that began them, since others may wait
	// for the same chart.
	ctx     context.Context
	cancel  context.CancelFunc
	flights singleflight.Group
	pulls   sync.WaitGroup

	lock    sync.Mutex
	closed  bool
	memory  *lru[*chart.Archive]
	sources map[string]*source
}

// New returns a Puller, with what is in its directory from an earlier one. Close it after use.
func New(opts Options) (*Puller, error) {
	opts = opts.withDefaults()
	if err := opts.validate(); err != nil {
		return nil, err
	}
	m, err := newMetrics(opts.Registerer)
	if err != nil {
		return nil, fmt.Errorf("registering the metrics of pulled charts: %w", err)
	}
	kept, err := openDisk(opts.Directory, opts, m)
	if err != nil {
		m.unregister()
		return nil, err
	}

	p := &Puller{
		opts: opts, metrics: m, disk: kept,
		memory: newLRU[*chart.Archive](opts.MemoryBytes), sources: make(map[string]*source),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Close ends pulls that are under way and closes the directory. Sources return what is in memory still, or an error.
func (p *Puller) Close() error {
	p.lock.Lock()
	p.closed = true
	p.lock.Unlock()

	p.cancel()
	p.pulls.Wait()
	p.metrics.unregister()
	return p.disk.close()
}

// Source returns where the chart comes from. Nothing is asked before its first Load. Sources of the same configuration
// share what they know.
//
// Errors of Load are an *Error with a Reason, or that of the context, or of reading a Secret. An error here is an *Error
// with ReasonConfiguration.
func (p *Puller) Source(config configv1alpha1.OCIChart) (chart.Source, error) {
	target, err := parse(config)
	if err != nil {
		return nil, err
	}
	if p.opts.Reader == nil && (config.PullSecretRef != nil || config.CABundleSecretRef != nil) {
		return nil, &Error{Ref: config.Ref, Reason: ReasonConfiguration, Err: fmt.Errorf("there is nothing to read Secrets with: set Reader")}
	}
	key, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}

	p.lock.Lock()
	defer p.lock.Unlock()
	if known, ok := p.sources[string(key)]; ok {
		return known, nil
	}
	s := &source{puller: p, key: string(key), config: config, target: target}
	p.sources[s.key] = s
	return s, nil
}

// begin counts a pull, unless Close was called.
func (p *Puller) begin() bool {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.closed {
		return false
	}
	p.pulls.Add(1)
	return true
}

func (p *Puller) fromMemory(of digest.Digest) *chart.Archive {
	p.lock.Lock()
	defer p.lock.Unlock()
	archive, ok := p.memory.get(of.String())
	if !ok {
		return nil
	}
	p.metrics.hits.WithLabelValues(memoryLevel).Inc()
	return archive
}

// cached returns a chart from memory or from the disk, or nil.
func (p *Puller) cached(of digest.Digest) *chart.Archive {
	if archive := p.fromMemory(of); archive != nil {
		return archive
	}
	raw, ok := p.disk.chart(of)
	if !ok {
		return nil
	}
	archive, err := p.unpack(of, raw)
	if err != nil {
		// It was fine when it was put there: the limits are smaller now.
		p.opts.Log.Info("A chart on the disk cannot be used", "digest", of, "problem", err.Error())
		return nil
	}
	p.metrics.hits.WithLabelValues(diskLevel).Inc()
	return archive
}

// unpack loads a chart and keeps it in memory.
func (p *Puller) unpack(of digest.Digest, raw []byte) (*chart.Archive, error) {
	loaded, size, err := load(raw, p.opts.Limits)
	if err != nil {
		return nil, err
	}
	archive := &chart.Archive{Chart: loaded, Digest: of.String()}

	p.lock.Lock()
	defer p.lock.Unlock()
	evicted := p.memory.add(of.String(), archive, size)
	p.metrics.evictions.WithLabelValues(memoryLevel).Add(float64(len(evicted)))
	p.metrics.cacheBytes.WithLabelValues(memoryLevel).Set(float64(p.memory.size))
	p.metrics.cacheEntries.WithLabelValues(memoryLevel).Set(float64(len(p.memory.entries)))
	return archive, nil
}

// Sources are the charts of an instance's components, wherever each comes from.
type Sources struct {
	embedded   fs.FS
	puller     *Puller
	configured map[string]chart.Source
}

// NewSources returns the charts as configured. Those which are not in the configuration come from embedded, where each is
// in the folder called like the component. Without any in the configuration, there is no Puller and Options.Directory is
// not touched. Options.Directory and Options.MaxBytes are taken from the configuration. Close it after use.
func NewSources(config configv1alpha1.ChartsConfiguration, embedded fs.FS, opts Options) (*Sources, error) {
	s := &Sources{embedded: embedded, configured: make(map[string]chart.Source, len(config.Sources))}
	if len(config.Sources) == 0 {
		return s, nil
	}

	opts.Directory = config.Cache.Directory
	if config.Cache.MaxBytes != nil {
		opts.MaxBytes = config.Cache.MaxBytes.Value()
	}
	var err error
	if s.puller, err = New(opts); err != nil {
		return nil, err
	}
	for _, component := range sortedKeys(config.Sources) {
		if s.configured[component], err = s.puller.Source(config.Sources[component]); err != nil {
			_ = s.Close()
			return nil, fmt.Errorf("chart of component %s: %w", component, err)
		}
	}
	return s, nil
}

// For returns the chart of the component, which is the name of its folder in charts/components. Call it once for each
// user of the chart, since the one in the program is read once for each call.
func (s *Sources) For(component string) chart.Source {
	if source, ok := s.configured[component]; ok {
		return source
	}
	return chart.Embedded(s.embedded, component)
}

// Close closes the Puller if there is one.
func (s *Sources) Close() error {
	if s.puller == nil {
		return nil
	}
	return s.puller.Close()
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
