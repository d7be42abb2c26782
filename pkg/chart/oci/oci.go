// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package oci gets the charts of components from OCI registries. An instance has one Sources, which also hands out the
// charts that are embedded in the program; what it returns is a chart.Source like any other.
//
// A pulled chart is kept in memory and on the disk. A digest is never asked for again, a tag once a minute. While a registry
// is down, the cached chart stays in use, also after a restart.
//
// Nothing that a registry sends is trusted: content has to match its digest, and all sizes are bounded, before and after
// decompression.
//
// The registry library is go-containerregistry, as in the rest of this repository and in Gardener. oras-go v2.6 does not fit:
// it refuses a token server whose name resolves to a private address, which is the usual case in an air-gapped network.
package oci

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

// Options are the options of a Puller.
type Options struct {
	// Directory is where pulled charts are kept on the disk. It is created if it does not exist, and belongs to the Puller.
	Directory string
	// MaxBytes bounds the files in Directory together. Default 64 MiB.
	MaxBytes int64
	// Reader reads the Secrets that the configuration names, in Namespace. It should not be that of a cache, which would
	// watch all Secrets.
	Reader client.Reader
	// Namespace is where the instance runs.
	Namespace string
	// Registerer registers the metrics. None if nil.
	Registerer prometheus.Registerer
	// Log gets a line when a chart is pulled, when it is used although no registry confirmed it, and when something is wrong
	// with the directory.
	Log logr.Logger
	// Clock is for intervals. Default: the real one.
	Clock clock.PassiveClock
}

// timing holds the timeouts of a Puller.
type timing struct {
	// total bounds a pull or a check with all mirrors, pull a pull from one registry, so that a slow one leaves time for the
	// next one. check bounds the request whether a tag was moved: it is short, since the cached chart can be used without an
	// answer. headers bounds the wait for the headers of a response.
	total, pull, check, headers time.Duration
	// backoff is how often and how fast a request is retried.
	backoff remote.Backoff
}

const (
	// checkInterval is how long a tag is taken to mean what it meant: a reconcile after that sees a moved tag, while a
	// wave of reconciles makes one request (HEAD, which public registries do not count as a pull).
	checkInterval = time.Minute
	// failureMemory is how long a failure is returned again without a request, so that many reconciles that fail for the
	// same reason do not wait for it one after the other.
	failureMemory = 5 * time.Second
	// maxFailureMemory bounds that where a registry asks to be left alone for longer.
	maxFailureMemory = 5 * time.Minute
)

// Puller pulls charts and caches them. An instance has one: its directory cannot be shared. It is safe for concurrent use.
type Puller struct {
	opts    Options
	timing  timing
	metrics *metrics.Pulls
	disk    *disk
	// ctx ends with Close. Pulls use it, and not the context of the caller who began them, since others may wait for the
	// same chart.
	ctx    context.Context
	cancel context.CancelFunc
	// running is held for reading by each pull.
	running sync.RWMutex
}

// New returns a Puller that uses the charts which an earlier one left in its directory. Close it after use.
func New(opts Options) (*Puller, error) {
	if opts.Directory == "" {
		return nil, errors.New("no directory for pulled charts: set Directory")
	}
	opts.MaxBytes = cmp.Or(opts.MaxBytes, 64<<20)
	opts.Clock = cmp.Or[clock.PassiveClock](opts.Clock, clock.RealClock{})
	p := &Puller{opts: opts, timing: timing{
		total: time.Minute, pull: 20 * time.Second, check: 5 * time.Second, headers: 10 * time.Second,
		backoff: remote.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 3},
	}}
	var err error
	if p.metrics, err = metrics.NewPulls(opts.Registerer); err != nil {
		return nil, err
	}
	if p.disk, err = openDisk(opts.Directory, opts.MaxBytes); err != nil {
		return nil, err
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Close ends running pulls and closes the directory. Sources still return what is in memory, or an error.
func (p *Puller) Close() error {
	p.cancel()
	p.running.Lock()
	defer p.running.Unlock()
	return p.disk.root.Close()
}

// Source returns the chart with this configuration. Nothing is requested before its first Load. Call it once for each chart:
// each Source has a memory of its own.
//
// Errors of Load are an *Error with a Reason, or that of the context, or of reading a Secret. An error here is an *Error
// with ReasonConfiguration.
func (p *Puller) Source(config configv1alpha1.OCIChart) (chart.Source, error) {
	refs, err := parse(config)
	if err != nil {
		return nil, &Error{Ref: config.Ref, Reason: ReasonConfiguration, Err: err}
	}
	// Without the credentials: with others, it is still the same chart.
	location, _ := json.Marshal([]any{config.Ref, config.Mirrors})
	_, tagged := refs[0].(name.Tag)
	return &source{puller: p, config: config, refs: refs, tagged: tagged, file: fmt.Sprintf("%x", sha256.Sum256(location))}, nil
}

// Sources are the charts of an instance's components, wherever each comes from.
type Sources struct {
	embedded   fs.FS
	configured map[string]chart.Source
	close      func() error
}

// NewSources returns the charts as configured. Charts without configuration come from embedded, each from the folder named
// after the component. If none is configured, there is no Puller and Options.Directory is not touched. Options.Directory and
// Options.MaxBytes are taken from the configuration. Close it after use.
func NewSources(config configv1alpha1.ChartsConfiguration, embedded fs.FS, opts Options) (*Sources, error) {
	s := &Sources{embedded: embedded, configured: map[string]chart.Source{}, close: func() error { return nil }}
	if len(config.Sources) == 0 {
		return s, nil
	}
	opts.Directory = config.Cache.Directory
	if config.Cache.MaxBytes != nil {
		opts.MaxBytes = config.Cache.MaxBytes.Value()
	}
	puller, err := New(opts)
	if err != nil {
		return nil, err
	}
	s.close = puller.Close
	for _, component := range slices.Sorted(maps.Keys(config.Sources)) {
		if s.configured[component], err = puller.Source(config.Sources[component]); err != nil {
			return nil, errors.Join(fmt.Errorf("chart of component %s: %w", component, err), s.Close())
		}
	}
	return s, nil
}

// For returns the chart of the component, which is the name of its folder in charts/components. Call it once for each
// user of the chart, since the embedded one is read once for each call.
func (s *Sources) For(component string) chart.Source {
	if source, ok := s.configured[component]; ok {
		return source
	}
	return chart.Embedded(s.embedded, component)
}

// Close closes the Puller if there is one.
func (s *Sources) Close() error { return s.close() }

// source is one chart as configured. Load answers from memory, or else waits for the one goroutine that gets the chart from
// the disk or from a registry.
type source struct {
	puller *Puller
	config configv1alpha1.OCIChart
	// refs are where the chart may be: in the mirrors in their order, then in the registry of the reference.
	refs []name.Reference
	// tagged means that a registry has to be asked now and then what the reference means.
	tagged bool
	// file is the name of its file on the disk.
	file string

	answer  atomic.Pointer[answer]
	fetches singleflight.Group

	// The rest belongs to the goroutine. current is the chart in use, or nil.
	current *pulled
	// pullSecret and caBundle are what the Secrets contained when transport was made.
	pullSecret, caBundle string
	transport            *http.Transport
	clients              map[name.Reference]*remote.Puller
	// retryAfter is how long the registry that said so last wants to be left alone.
	retryAfter atomic.Int64
}

// answer is what Load returns until a time, or at any time if the reference is a digest.
type answer struct {
	archive *chart.Archive
	err     error
	// stale is why no registry confirmed the chart, or "".
	stale Reason
	until time.Time
}

// Load implements chart.Source.
func (s *source) Load(ctx context.Context) (*chart.Archive, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	found := s.known()
	if found == nil {
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for chart %s: %w", s.config.Ref, context.Cause(ctx))
		case result := <-s.fetches.DoChan("", s.fetch):
			found = result.Val.(*answer)
		}
	} else if found.err == nil {
		s.puller.metrics.Hits.WithLabelValues("memory").Inc()
	}
	if found.stale != "" {
		s.puller.metrics.Stale.WithLabelValues(string(found.stale)).Inc()
	}
	return found.archive, found.err
}

// known returns the last answer if it still holds, or nil.
func (s *source) known() *answer {
	last := s.answer.Load()
	if last == nil || (last.err != nil || s.tagged) && !s.puller.opts.Clock.Now().Before(last.until) {
		return nil
	}
	return last
}

// fetch gets the answer for all who wait for it. It remembers every answer of a registry, good or bad.
func (s *source) fetch() (any, error) {
	s.puller.running.RLock()
	defer s.puller.running.RUnlock()
	if known := s.known(); known != nil {
		return known, nil
	}
	ctx, cancel := context.WithTimeout(s.puller.ctx, s.puller.timing.total)
	defer cancel()

	stale, err := s.refresh(ctx)
	var known *Error
	switch {
	case err == nil:
		s.answer.Store(&answer{archive: s.current.archive, stale: stale, until: s.current.checked.Add(checkInterval)})
	case errors.As(err, &known) && s.puller.ctx.Err() == nil:
		pause := max(failureMemory, time.Duration(s.retryAfter.Load()))
		s.answer.Store(&answer{err: &Error{Ref: s.config.Ref, Reason: known.Reason, Err: err}, until: s.puller.opts.Clock.Now().Add(pause)})
	default:
		// The instance is about to end, or a Secret could not be read. This says nothing about the registry.
		return &answer{err: fmt.Errorf("getting chart %s: %w", s.config.Ref, cmp.Or(s.puller.ctx.Err(), err))}, nil
	}
	return s.answer.Load(), nil
}

// refresh makes current the chart to use, and returns why no registry confirmed it, or "".
func (s *source) refresh(ctx context.Context) (stale Reason, err error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	s.retryAfter.Store(0)
	if s.current == nil && s.restore() {
		// It would be in the future if the clock was set back.
		age := s.puller.opts.Clock.Since(s.current.checked)
		if !s.tagged || age >= 0 && age < checkInterval {
			return "", nil
		}
	}
	if err := s.connect(ctx); err != nil {
		return "", err
	}
	if err = s.update(ctx); err != nil {
		stale = classify(err)
		if s.current == nil || !slices.Contains([]Reason{ReasonUnreachable, ReasonNotFound, ReasonUntrusted, ReasonUnexpectedAnswer}, stale) {
			return "", err
		}
		s.puller.opts.Log.Info("No registry confirms a chart, using what was pulled before", "ref", s.config.Ref,
			"digest", s.current.Manifest, "reason", stale, "problem", withoutQueries(err))
	}
	s.current.checked = s.puller.opts.Clock.Now()
	return stale, nil
}

// restore takes the chart from the disk and reports whether it was there.
func (s *source) restore() bool {
	found, packed, err := s.puller.disk.read(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return false
	}
	if err == nil {
		err = found.unpack(packed)
	}
	if err != nil {
		s.puller.metrics.Corruptions.Inc()
		s.puller.opts.Log.Info("Removing a damaged chart from the disk", "ref", s.config.Ref, "problem",
			errors.Join(err, s.puller.disk.root.RemoveAll(s.file)).Error())
		return false
	}
	s.puller.metrics.Hits.WithLabelValues("disk").Inc()
	s.current = found
	if !s.tagged {
		s.touch()
	}
	return true
}

// update asks the registries what the reference means, and pulls the chart unless it is current.
func (s *source) update(ctx context.Context) error {
	if s.current != nil {
		digest, err := s.resolve(ctx)
		if err != nil {
			return err
		}
		if digest == s.current.Manifest {
			s.touch()
			return nil
		}
		s.puller.opts.Log.Info("The tag of a chart was moved", "ref", s.config.Ref, "from", s.current.Manifest, "to", digest)
	}

	s.puller.metrics.Misses.Inc()
	found, packed, err := s.pull(ctx)
	if err == nil {
		err = found.unpack(packed)
	}
	if err != nil {
		s.puller.metrics.Pulls.WithLabelValues(string(classify(err))).Inc()
		return err
	}
	s.current = found
	s.puller.metrics.Pulls.WithLabelValues("Success").Inc()
	s.puller.opts.Log.Info("Pulled a chart", "ref", s.config.Ref, "manifest", found.Manifest, "digest", found.Chart, "bytes", len(packed))
	if err := s.puller.disk.write(s.file, found, packed, s.puller.opts.Clock.Now()); err != nil {
		s.puller.opts.Log.Error(err, "A pulled chart is only kept in memory", "ref", s.config.Ref)
	}
	return nil
}

// touch notes on the disk that the chart was used, or that a registry confirmed what the tag means. Where it cannot, the chart
// is evicted or checked earlier than others.
func (s *source) touch() {
	now := s.puller.opts.Clock.Now()
	_ = s.puller.disk.root.Chtimes(s.file, now, now)
}
