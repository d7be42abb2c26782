// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

// Options are what a Puller needs.
type Options struct {
	// Directory is where pulled charts are kept on the disk. It is created if it is not there, and belongs to the Puller.
	Directory string
	// MaxBytes bounds the files in Directory together. Default 64 MiB.
	MaxBytes int64
	// Reader reads the Secrets that are named in the configuration, in Namespace. It should not be that of a cache, which
	// would watch them all.
	Reader client.Reader
	// Namespace is where the instance runs.
	Namespace string
	// Registerer takes the metrics. None if nil.
	Registerer prometheus.Registerer
	// Log gets a line when a chart is pulled, when it is used although the registry could not be asked, and when
	// something is wrong with the directory.
	Log logr.Logger
	// Clock is for intervals. Default: the real one.
	Clock clock.PassiveClock
}

// timing is how long a Puller waits for what.
type timing struct {
	// total bounds a pull or a check with all mirrors.
	total time.Duration
	// pull bounds a pull from one registry, so that one which sends a byte now and then leaves time for the next one.
	pull time.Duration
	// check bounds asking one registry about a chart that is there already. It is short since the chart can be used
	// without an answer.
	check time.Duration
	// headers bounds the wait for the headers of a response.
	headers time.Duration
	// backoff is how often and how fast a request is tried again if it fails in a way that may pass.
	backoff remote.Backoff
}

const (
	// checkInterval is how long a tag is taken to mean what it meant: a reconcile after that sees a tag that was moved,
	// while a wave of reconciles makes one request (HEAD, which public registries do not count as a pull).
	checkInterval = time.Minute
	// failureMemory is how long a failure is handed out again without asking again, so that many reconciles that fail
	// for the same reason do not wait for it one after the other.
	failureMemory = 5 * time.Second
	// maxFailureMemory bounds that where a registry asks to be left alone for longer.
	maxFailureMemory = 5 * time.Minute
)

// Puller pulls charts and keeps them. There is one for an instance: its directory cannot be shared. It is
// safe for concurrent use.
type Puller struct {
	opts    Options
	timing  timing
	metrics *metrics.Pulls
	disk    *disk
	// ctx is that of all pulls; it ends with Close. They do not end with the call that began them, since others may wait
	// for the same chart.
	ctx     context.Context
	cancel  context.CancelFunc
	flights singleflight.Group
	// running is held for reading by each pull.
	running sync.RWMutex

	lock    sync.Mutex
	sources map[string]*source
}

// New returns a Puller, with what is in its directory from an earlier one. Close it after use.
func New(opts Options) (*Puller, error) {
	if opts.Directory == "" {
		return nil, errors.New("no directory for pulled charts: set Directory")
	}
	if opts.MaxBytes == 0 {
		opts.MaxBytes = 64 << 20
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	m, err := metrics.NewPulls(opts.Registerer)
	if err != nil {
		return nil, err
	}
	kept, err := openDisk(opts.Directory, opts.MaxBytes)
	if err != nil {
		return nil, err
	}

	p := &Puller{opts: opts, metrics: m, disk: kept, sources: make(map[string]*source), timing: timing{
		total: time.Minute, pull: 20 * time.Second, check: 5 * time.Second, headers: 10 * time.Second,
		backoff: remote.Backoff{Duration: 500 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 3},
	}}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p, nil
}

// Close ends pulls that are under way and closes the directory. Sources return what is in memory still, or an error.
func (p *Puller) Close() error {
	p.cancel()
	p.running.Lock()
	defer p.running.Unlock()
	return p.disk.root.Close()
}

// Source returns where the chart comes from. Nothing is asked before its first Load. Sources of the same configuration
// share what they know.
//
// Errors of Load are an *Error with a Reason, or that of the context, or of reading a Secret. An error here is an *Error
// with ReasonConfiguration.
func (p *Puller) Source(config configv1alpha1.OCIChart) (chart.Source, error) {
	fail := func(err error) (chart.Source, error) {
		return nil, &Error{Ref: config.Ref, Reason: ReasonConfiguration, Err: err}
	}
	if p.opts.Reader == nil && (config.PullSecretRef != nil || config.CABundleSecretRef != nil) {
		return fail(errors.New("there is nothing to read Secrets with: set Reader"))
	}
	refs, err := parse(config)
	if err != nil {
		return fail(err)
	}
	key, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	file, err := fileName(config.Ref, config.Mirrors)
	if err != nil {
		return nil, err
	}

	p.lock.Lock()
	defer p.lock.Unlock()
	if known, ok := p.sources[string(key)]; ok {
		return known, nil
	}
	s := &source{puller: p, key: string(key), config: config, refs: refs, file: file}
	p.sources[s.key] = s
	return s, nil
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
