// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/opencontainers/go-digest"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
)

// source is one chart as configured.
type source struct {
	puller *Puller
	key    string
	config configv1alpha1.OCIChart
	target target

	// session belongs to the flight.
	session *session

	lock sync.Mutex
	// granted is the last grant, by its name.
	name    string
	granted grant
	// fresh is until when granted is used without asking anybody.
	fresh time.Time
	// stale is why the registry did not tell whether granted still holds, or "".
	stale Reason
	// failure is handed out until failed.
	failure error
	failed  time.Time
}

var _ chart.Source = (*source)(nil)

// Load implements chart.Source.
func (s *source) Load(ctx context.Context) (*chart.Archive, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if archive, err := s.warm(); archive != nil || err != nil {
		return archive, err
	}

	flight := s.puller.flights.DoChan(s.key, func() (any, error) { return s.fly() })
	select {
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for chart %s: %w", s.target.Ref, context.Cause(ctx))
	case result := <-flight:
		if result.Err != nil {
			return nil, result.Err
		}
		return result.Val.(*chart.Archive), nil
	}
}

// warm returns what needs nobody to be asked: the chart in memory, or a failure that is not old.
func (s *source) warm() (*chart.Archive, error) {
	now := s.puller.opts.Clock.Now()
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.failure != nil && now.Before(s.failed) {
		return nil, s.failure
	}
	if !now.Before(s.fresh) {
		return nil, nil //nolint:nilnil // Neither of both means that there is more to do.
	}
	archive := s.puller.fromMemory(s.granted.Chart)
	if archive != nil {
		s.countStale()
	}
	return archive, nil
}

// fly is what one goroutine does for all that wait for the same chart.
func (s *source) fly() (*chart.Archive, error) {
	if !s.puller.begin() {
		return nil, fmt.Errorf("getting chart %s: the instance is about to end: %w", s.target.Ref, context.Canceled)
	}
	defer s.puller.pulls.Done()
	if archive, err := s.warm(); archive != nil || err != nil {
		return archive, err
	}
	ctx, cancel := context.WithTimeout(s.puller.ctx, s.puller.opts.Timeout)
	defer cancel()

	archive, err := s.get(ctx)
	if err == nil {
		return archive, nil
	}
	if s.puller.ctx.Err() != nil {
		return nil, fmt.Errorf("getting chart %s: %w", s.target.Ref, context.Cause(s.puller.ctx))
	}
	return nil, s.fail(err)
}

// fail remembers the failure for a while.
func (s *source) fail(err error) error {
	var known *problem
	if !errors.As(err, &known) {
		// The API server could not be asked, or the disk: there is nothing to be said about the registry.
		return fmt.Errorf("getting chart %s: %w", s.target.Ref, err)
	}
	failure := &Error{Ref: s.target.Ref, Reason: known.reason, Err: err}
	until := s.puller.opts.Clock.Now().Add(min(max(failureMemory, retryAfter(err)), maxFailureMemory))

	s.lock.Lock()
	defer s.lock.Unlock()
	s.failure, s.failed, s.fresh = failure, until, time.Time{}
	return failure
}

func (s *source) get(ctx context.Context) (*chart.Archive, error) {
	s.lock.Lock()
	fresh, last := s.puller.opts.Clock.Now().Before(s.fresh), s.granted.Chart
	s.lock.Unlock()
	if fresh {
		if archive := s.puller.cached(last); archive != nil {
			s.lock.Lock()
			defer s.lock.Unlock()
			s.countStale()
			return archive, nil
		}
	}

	access, err := s.access(ctx)
	if err != nil {
		return nil, err
	}
	granted, ok := s.grant(access.grant)
	if ok {
		if archive := s.puller.cached(granted.Chart); archive != nil {
			return s.check(ctx, access, granted, archive)
		}
	}
	return s.pull(ctx, access)
}

// grant returns what is known of what the credentials may pull. It is on the disk unless its chart could not be kept
// there.
func (s *source) grant(name string) (grant, bool) {
	s.lock.Lock()
	if s.name == name {
		defer s.lock.Unlock()
		return s.granted, true
	}
	s.lock.Unlock()
	return s.puller.disk.grant(name)
}

// interval is how long an answer of the registry counts.
func (s *source) interval() time.Duration {
	if s.target.Tagged {
		return s.puller.opts.CheckInterval
	}
	return s.puller.opts.AccessInterval
}

// check asks the registry about a chart that is there, if it is time to do so.
func (s *source) check(ctx context.Context, access *access, granted grant, archive *chart.Archive) (*chart.Archive, error) {
	now := s.puller.opts.Clock.Now()
	// A time in the future is from before the clock was set back.
	if age := now.Sub(granted.Checked); age >= 0 && age < s.interval() {
		s.keep(access.grant, granted, "")
		return archive, nil
	}

	resolved, err := s.renewed(access).resolve(ctx)
	if err == nil && resolved == granted.Manifest {
		granted.Checked = now
		s.remember(access.grant, granted)
		return archive, nil
	}
	if err == nil {
		s.puller.opts.Log.Info("The tag of a chart was moved", "ref", s.target.Ref, "from", granted.Manifest, "to", resolved)
		var moved *chart.Archive
		if moved, err = s.pull(ctx, access); err == nil {
			return moved, nil
		}
	}

	switch reason := classify(err); reason {
	case ReasonUnauthorized:
		s.revoke(access.grant)
		return nil, err
	case ReasonUnreachable, ReasonNotFound, ReasonUntrusted, ReasonUnexpectedAnswer:
		s.puller.opts.Log.Info("The registry does not tell about a chart, using what it sent before", "ref", s.target.Ref,
			"digest", granted.Manifest, "reason", reason, "problem", query.ReplaceAllString(err.Error(), "$1"))
		s.keep(access.grant, granted, reason)
		return archive, nil
	default:
		return nil, err
	}
}

// pull gets the chart, or at least the registry's word that the credentials may have it.
func (s *source) pull(ctx context.Context, access *access) (*chart.Archive, error) {
	var archive *chart.Archive
	known := func(of digest.Digest) bool {
		archive = s.puller.cached(of)
		return archive != nil
	}
	result, err := s.renewed(access).pull(ctx, known)
	if archive == nil {
		s.puller.metrics.misses.Inc()
	}
	if err == nil && result.archive != nil {
		s.puller.metrics.pulledBytes.Add(float64(len(result.archive)))
		archive, err = s.puller.unpack(result.chart, result.archive)
	}
	if err != nil {
		reason := classify(err)
		s.puller.metrics.pulls.WithLabelValues(string(reason)).Inc()
		if reason == ReasonUnauthorized {
			s.revoke(access.grant)
		}
		return nil, err
	}

	s.puller.metrics.pulls.WithLabelValues("Success").Inc()
	s.puller.opts.Log.Info("Pulled a chart", "ref", s.target.Ref, "manifest", result.manifest, "digest", result.chart, "bytes", len(result.archive))
	if result.archive != nil {
		if err := s.puller.disk.addChart(result.chart, result.archive); err != nil {
			s.puller.opts.Log.Error(err, "A chart that was pulled is only kept in memory", "ref", s.target.Ref)
		}
	}
	s.remember(access.grant, grant{Ref: s.target.Ref, Manifest: result.manifest, Chart: result.chart, Checked: s.puller.opts.Clock.Now()})
	return archive, nil
}

// renewed returns a session for these credentials that is not older than AccessInterval: the tokens that one holds are
// the registry's word of earlier.
func (s *source) renewed(access *access) *session {
	now := s.puller.opts.Clock.Now()
	if current := s.session; current == nil || current.access.fingerprint != access.fingerprint || now.Sub(current.began) >= s.puller.opts.AccessInterval {
		s.session.close()
		s.session = newSession(s, access)
	}
	return s.session
}

// remember keeps what the registry said, also for after a restart.
func (s *source) remember(name string, granted grant) {
	if err := s.puller.disk.addGrant(name, granted); err != nil {
		s.puller.opts.Log.Error(err, "A chart will be asked for again after a restart", "ref", s.target.Ref)
	}
	s.keep(name, granted, "")
}

// keep uses the chart until the Secrets are to be read again or the registry is to be asked again.
func (s *source) keep(name string, granted grant, stale Reason) {
	now := s.puller.opts.Clock.Now()
	fresh := now.Add(s.puller.opts.CheckInterval)
	if due := granted.Checked.Add(s.interval()); stale == "" && due.Before(fresh) {
		fresh = due
	}
	s.puller.disk.touch(granted.Chart)

	s.lock.Lock()
	defer s.lock.Unlock()
	s.name, s.granted, s.fresh, s.stale = name, granted, fresh, stale
	s.failure = nil
	s.countStale()
}

// revoke forgets what the credentials could pull.
func (s *source) revoke(name string) {
	s.puller.disk.revoke(name)
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.name == name {
		s.name, s.granted, s.fresh = "", grant{}, time.Time{}
	}
}

func (s *source) countStale() {
	if s.stale != "" {
		s.puller.metrics.stale.WithLabelValues(string(s.stale)).Inc()
	}
}
