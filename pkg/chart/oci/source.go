// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/google/go-containerregistry/pkg/name"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
)

// source is one chart as configured.
type source struct {
	puller *Puller
	key    string
	config configv1alpha1.OCIChart
	// refs are where the chart may be: in the mirrors in their order, then in the registry of the reference.
	refs []name.Reference
	// file is the name of its file on the disk.
	file string

	// session belongs to the flight.
	session *session

	lock sync.Mutex
	// current is the chart in use, or nil.
	current *pulled
	// checked is when the registry was asked about it last.
	checked time.Time
	// stale is why the registry did not answer then, or "".
	stale Reason
	// failure is handed out until failed.
	failure error
	failed  time.Time
}

// pulled is what the reference led to.
type pulled struct {
	entry
	archive *chart.Archive
}

var _ chart.Source = (*source)(nil)

// Load implements chart.Source.
func (s *source) Load(ctx context.Context) (*chart.Archive, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if archive, err := s.known(); archive != nil || err != nil {
		return archive, err
	}

	flight := s.puller.flights.DoChan(s.key, func() (any, error) { return s.fly() })
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for chart %s: %w", s.config.Ref, context.Cause(ctx))
	case result := <-flight:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*chart.Archive), nil
	}
}

// known returns what needs nobody to be asked: the chart in memory, or a failure that is not old. Neither means that there
// is more to do.
func (s *source) known() (*chart.Archive, error) {
	now := s.puller.opts.Clock.Now()
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.failure != nil && now.Before(s.failed) {
		return nil, s.failure
	}
	if s.current == nil || s.due(now) {
		return nil, nil //nolint:nilnil // See above.
	}
	s.puller.metrics.Hits.WithLabelValues("memory").Inc()
	if s.stale != "" {
		s.puller.metrics.Stale.WithLabelValues(string(s.stale)).Inc()
	}
	return s.current.archive, nil
}

// due reports whether the registry has to be asked what the tag means. A time in the future is from before the clock was
// set back.
func (s *source) due(now time.Time) bool {
	age := now.Sub(s.checked)
	_, tagged := s.refs[0].(name.Tag)
	return tagged && (age < 0 || age >= checkInterval)
}

// fly is what one goroutine does for all that wait for the same chart.
func (s *source) fly() (*chart.Archive, error) {
	s.puller.running.RLock()
	defer s.puller.running.RUnlock()
	if s.puller.ctx.Err() != nil {
		return nil, fmt.Errorf("getting chart %s: the instance is about to end: %w", s.config.Ref, context.Canceled)
	}
	if archive, err := s.known(); archive != nil || err != nil {
		return archive, err
	}
	ctx, cancel := context.WithTimeout(s.puller.ctx, s.puller.timing.total)
	defer cancel()

	archive, err := s.get(ctx)
	if err == nil {
		return archive, nil
	}
	if s.puller.ctx.Err() != nil {
		return nil, fmt.Errorf("getting chart %s: %w", s.config.Ref, context.Cause(s.puller.ctx))
	}
	return nil, s.fail(err)
}

// fail remembers the failure for a while.
func (s *source) fail(err error) error {
	var known *problem
	if !errors.As(err, &known) {
		// The API server could not be asked: there is nothing to be said about the registry.
		return fmt.Errorf("getting chart %s: %w", s.config.Ref, err)
	}
	failure := &Error{Ref: s.config.Ref, Reason: known.reason, Err: err}
	pause := failureMemory
	if s.session != nil {
		pause = max(pause, s.session.retryAfter())
	}

	s.lock.Lock()
	defer s.lock.Unlock()
	s.failure, s.failed = failure, s.puller.opts.Clock.Now().Add(pause)
	return failure
}

func (s *source) get(ctx context.Context) (*chart.Archive, error) {
	if s.current == nil {
		s.restore()
		if s.current != nil && !s.due(s.puller.opts.Clock.Now()) {
			return s.current.archive, nil
		}
	}
	if err := s.connect(ctx); err != nil {
		return nil, err
	}
	if s.current == nil {
		return s.pull(ctx)
	}

	digest, err := s.session.resolve(ctx)
	if err == nil && digest == s.current.Manifest {
		s.touch()
		return s.use(s.current, ""), nil
	}
	if err == nil {
		s.puller.opts.Log.Info("The tag of a chart was moved", "ref", s.config.Ref, "from", s.current.Manifest, "to", digest)
		var archive *chart.Archive
		if archive, err = s.pull(ctx); err == nil {
			return archive, nil
		}
	}
	switch reason := classify(err); reason {
	case ReasonUnreachable, ReasonNotFound, ReasonUntrusted, ReasonUnexpectedAnswer:
		s.puller.opts.Log.Info("The registry does not tell about a chart, using what it sent before", "ref", s.config.Ref,
			"digest", s.current.Manifest, "reason", reason, "problem", withoutQueries(err.Error()))
		return s.use(s.current, reason), nil
	default:
		return nil, err
	}
}

// connect reads the Secrets and makes a new session if they changed.
func (s *source) connect(ctx context.Context) error {
	access, err := s.readAccess(ctx)
	if err != nil {
		return err
	}
	if s.session != nil && s.session.access.equal(access) {
		return nil
	}
	if s.session != nil {
		s.session.base.CloseIdleConnections()
	}
	s.session, err = newSession(s, access)
	return err
}

// restore takes the chart from the disk if it is there.
func (s *source) restore() {
	found, raw, checked, err := s.puller.disk.read(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var archive *chart.Archive
	if err == nil {
		archive, err = s.unpack(found, raw)
	}
	if err != nil {
		s.puller.metrics.Corruptions.Inc()
		s.puller.opts.Log.Info("Removing a chart from the disk that is damaged", "ref", s.config.Ref, "problem",
			errors.Join(err, s.puller.disk.remove(s.file)).Error())
		return
	}
	s.puller.metrics.Hits.WithLabelValues("disk").Inc()
	if _, tagged := s.refs[0].(name.Tag); !tagged {
		s.touch()
	}
	s.lock.Lock()
	defer s.lock.Unlock()
	s.current, s.checked = &pulled{entry: found, archive: archive}, checked
}

// touch notes on the disk that the chart was used, or that the registry confirmed what the tag means.
func (s *source) touch() {
	if err := s.puller.disk.touch(s.file, s.puller.opts.Clock.Now()); err != nil {
		s.puller.opts.Log.V(1).Info("The time of a file in the folder of pulled charts cannot be set", "ref", s.config.Ref, "problem", err.Error())
	}
}

func (s *source) unpack(of entry, raw []byte) (*chart.Archive, error) {
	loaded, err := load(raw, chartLimits())
	if err != nil {
		return nil, err
	}
	return &chart.Archive{Chart: loaded, Digest: of.Chart}, nil
}

// pull gets the chart and keeps it.
func (s *source) pull(ctx context.Context) (*chart.Archive, error) {
	s.puller.metrics.Misses.Inc()
	found, raw, err := s.session.pull(ctx)
	var archive *chart.Archive
	if err == nil {
		archive, err = s.unpack(found, raw)
	}
	if err != nil {
		s.puller.metrics.Pulls.WithLabelValues(string(classify(err))).Inc()
		return nil, err
	}

	s.puller.metrics.Pulls.WithLabelValues("Success").Inc()
	s.puller.opts.Log.Info("Pulled a chart", "ref", s.config.Ref, "manifest", found.Manifest, "digest", found.Chart, "bytes", len(raw))
	if err := s.puller.disk.write(s.file, found, raw, s.puller.opts.Clock.Now()); err != nil {
		s.puller.opts.Log.Error(err, "A chart that was pulled is only kept in memory", "ref", s.config.Ref)
	}
	return s.use(&pulled{entry: found, archive: archive}, ""), nil
}

// use hands out a chart until the registry is to be asked again.
func (s *source) use(current *pulled, stale Reason) *chart.Archive {
	s.lock.Lock()
	defer s.lock.Unlock()
	s.current, s.checked, s.stale, s.failure = current, s.puller.opts.Clock.Now(), stale, nil
	if stale != "" {
		s.puller.metrics.Stale.WithLabelValues(string(stale)).Inc()
	}
	return current.archive
}
