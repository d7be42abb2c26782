// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package scenario is what the bench does: each scenario sets up a world of its own, runs the programs in it one after the
// other, round after round, and hands what it measures to the report.
package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/report"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/world"
)

// quiet is for how long a program has to send nothing until what it did is over.
const quiet = 700 * time.Millisecond

// Options are how much is measured.
type Options struct {
	world.Options

	// Sizes are how many objects of class garden are made at a time, OursSizes those that are tried with ours alone, once: they
	// take the longest, and nothing is compared with them.
	Sizes, OursSizes []int
	// CappedSize is how many objects the peer gets as it is shipped, which takes it half a second for each request; 0 leaves
	// that out.
	CappedSize int
	// Shoots is how many shoots there are at a time.
	Shoots int
	// Rounds is how often the programs take turns.
	Rounds int
	// Objects is how many objects an instance has when it is idle or restarts.
	Objects int
	// Idle is for how long an idle instance is watched.
	Idle time.Duration
	// Secrets and ConfigMaps are how many unrelated ones there are.
	Secrets, ConfigMaps int
	// MockSizes are how many objects of type mock there are; each but the first once.
	MockSizes []int
	// Nodes is how many fake nodes there are.
	Nodes int
}

// Bench is one run.
type Bench struct {
	Options
	Result *report.Result

	problems []error
}

// Scenario is one of the bench's.
type Scenario struct {
	// Name is for --scenario, and Short is one line about it.
	Name, Short string
	// Run measures.
	Run func(*Bench, context.Context) error
}

// All are the scenarios in the order in which they run.
func All() []Scenario {
	return []Scenario{
		{"floor", "what etcd and kube-apiserver alone take for the fewest writes there can be", (*Bench).floor},
		{"garden", "BackupBuckets and DNSRecords of class garden, created and deleted", (*Bench).garden},
		{"shoots", "what shoots have, kind by kind, created and deleted", (*Bench).shoots},
		{"health", "health checks of ControlPlanes and Workers: time until a condition shows a change, and requests", (*Bench).health},
		{"idle", "memory, CPU and requests of both instances that have nothing to do", (*Bench).idle},
		{"restart", "an instance that comes back to objects it has reconciled", (*Bench).restart},
		{"resources", "ManagedResources: bytes, time and requests, in this process", (*Bench).resources},
		{"pull", "charts from a registry: time and requests, in this process", (*Bench).pull},
		{"mock", "objects of type mock, ours alone", (*Bench).mock},
		{"nodes", "fake nodes, beside kwok", (*Bench).nodes},
	}
}

// Run runs scenarios, and returns all that went wrong in them. One that fails does not keep others from being run.
func (b *Bench) Run(ctx context.Context, scenarios []Scenario) error {
	for _, s := range scenarios {
		begin := time.Now()
		b.Say("--- %s: %s", s.Name, s.Short)
		if err := s.Run(b, ctx); err != nil {
			b.problem(fmt.Errorf("%s: %w", s.Name, err))
		}
		if ctx.Err() != nil {
			break
		}
		b.Say("--- %s took %s", s.Name, time.Since(begin).Round(time.Second))
	}
	return errors.Join(b.problems...)
}

func (b *Bench) problem(err error) {
	b.Say("PROBLEM: %s", err)
	b.problems = append(b.problems, err)
}

// in runs a function in a new world.
func (b *Bench) in(ctx context.Context, do func(*world.World) error) (err error) {
	w, err := world.New(ctx, b.Options.Options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return do(w)
}

// subject is a program that runs, and what is measured of it.
type subject struct {
	*Bench
	world   *world.World
	process *world.Process
	program world.Program
}

// with runs a function while an instance runs.
func (b *Bench) with(ctx context.Context, w *world.World, opts world.StartOptions, do func(subject) error) (err error) {
	process, err := w.Start(ctx, opts)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, process.Stop()) }()
	return do(subject{b, w, process, opts.Program})
}

// phase measures what the program does for n objects until await returns, and whatever it still does then.
func (s subject) phase(ctx context.Context, scenarios []string, n int, do, await func(context.Context) error) error {
	mark, err := s.world.Log.Mark(s.process.User)
	if err != nil {
		return err
	}
	cpu, err := s.process.CPU()
	if err != nil {
		return err
	}
	s.process.Sampler.Peak()

	ctx, cancel := context.WithTimeout(ctx, s.timeout(n))
	defer cancel()
	begin := time.Now()
	if err := do(ctx); err != nil {
		return err
	}
	if err := await(ctx); err != nil {
		return fmt.Errorf("%s, %s: %w", s.program, scenarios[0], err)
	}
	seconds := time.Since(begin).Seconds()
	if err := s.world.Settle(ctx, s.process.User, quiet); err != nil {
		return err
	}

	requests, err := s.world.Log.Since(mark)
	if err != nil {
		return err
	}
	after, err := s.process.CPU()
	if err != nil {
		return err
	}
	memory, err := s.process.Memory()
	if err != nil {
		return err
	}
	peak := s.process.Sampler.Peak()
	for _, scenario := range scenarios {
		s.Result.Add(scenario, report.Seconds, s.program, seconds)
		s.Result.AddRequests(scenario, s.program, requests, n)
		s.Result.Add(scenario, report.CPUPerObject, s.program, float64((after-cpu).Microseconds())/1000/float64(n))
		s.Result.Add(scenario, report.PeakAnonymousRSS, s.program, megabytes(peak))
		s.Result.Add(scenario, report.PeakRSS, s.program, megabytes(memory.Peak))
	}
	s.Say("%-14s %-46s %7.2f s  %5.2f requests  %6.2f ms CPU", s.program, scenarios[0], seconds, float64(requests.Sum(nil))/float64(n), float64((after-cpu).Microseconds())/1000/float64(n))
	return nil
}

// timeout is how long n objects may take at most.
func (s subject) timeout(n int) time.Duration {
	each := time.Second / 4
	if s.program == world.Peer {
		each = 4 * time.Second
	}
	return 2*time.Minute + time.Duration(n)*each
}

// create measures how n objects of a kind become ready.
func (s subject) create(ctx context.Context, scenarios []string, kind world.Kind, round string, objects []client.Object) error {
	tracker := s.world.Track(ctx, kind.List(), kind.Round(round))
	defer tracker.Stop()
	return s.phase(ctx, scenarios, len(objects),
		func(ctx context.Context) error { return s.world.CreateAll(ctx, objects) },
		func(ctx context.Context) error { return tracker.AwaitReady(ctx, len(objects)) })
}

// remove measures how they go.
func (s subject) remove(ctx context.Context, scenarios []string, kind world.Kind, round string, objects []client.Object) error {
	tracker := s.world.Track(ctx, kind.List(), kind.Round(round))
	defer tracker.Stop()
	before, cancel := context.WithTimeout(ctx, s.timeout(0))
	defer cancel()
	if err := tracker.AwaitReady(before, len(objects)); err != nil {
		return err
	}
	return s.phase(ctx, scenarios, len(objects),
		func(ctx context.Context) error { return s.world.DeleteAll(ctx, objects) },
		func(ctx context.Context) error { return tracker.AwaitGone(ctx) })
}

// have creates objects of a kind, and waits until they are ready.
func (s subject) have(ctx context.Context, kind world.Kind, round string, objects []client.Object) error {
	tracker := s.world.Track(ctx, kind.List(), kind.Round(round))
	defer tracker.Stop()
	if err := s.world.CreateAll(ctx, objects); err != nil {
		return err
	}
	return tracker.AwaitReady(ctx, len(objects))
}

// dropAll deletes objects of a kind that are ready, and waits until they are gone.
func (s subject) dropAll(ctx context.Context, kind world.Kind, round string, objects []client.Object) error {
	tracker := s.world.Track(ctx, kind.List(), kind.Round(round))
	defer tracker.Stop()
	if err := tracker.AwaitReady(ctx, len(objects)); err != nil {
		return err
	}
	if err := s.world.DeleteAll(ctx, objects); err != nil {
		return err
	}
	return tracker.AwaitGone(ctx)
}

func objectsOf(kind world.Kind, round string, n int) []client.Object {
	out := make([]client.Object, n)
	for i := range out {
		out[i] = kind.New(round, "", i)
	}
	return out
}

// pause waits, unless the run is interrupted.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

func megabytes(bytes int64) float64 { return float64(bytes) / 1e6 }

// turns are the programs as they take turns, with ours first: A B A B.
func (b *Bench) turns() []world.Program {
	var out []world.Program
	for range b.Rounds {
		out = append(out, world.Ours, world.PeerUncapped)
	}
	return out
}

// sizesFor are how many objects of class garden a program makes in a turn.
func (b *Bench) sizesFor(program world.Program, turn int) []int {
	if program == world.Peer {
		return []int{b.CappedSize}
	}
	sizes := slices.Clone(b.Sizes)
	if program == world.Ours && turn == 0 {
		sizes = append(sizes, b.OursSizes...)
	}
	if b.CappedSize > 0 {
		sizes = append(sizes, b.CappedSize)
	}
	slices.Sort(sizes)
	return slices.Compact(sizes)
}
