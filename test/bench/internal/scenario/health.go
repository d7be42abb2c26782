// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/measure"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/report"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/world"
)

const (
	// peerPeriod is the time between two checks of the peer.
	peerPeriod = 30 * time.Second
	// logDelay is how long the audit log may lack a request whose effect is visible.
	logDelay = 200 * time.Millisecond
)

// health measures how long conditions take to follow what they are about, and what they cost while nothing changes. The peer
// as it is shipped takes no part: its period, not its limit, determines its times.
func (b *Bench) health(ctx context.Context) error {
	return b.in(ctx, func(w *world.World) error {
		for turn, program := range b.turns() {
			opts := world.StartOptions{Program: program, Place: world.Seed, HealthChecks: true}
			if err := b.with(ctx, w, opts, func(s subject) error { return s.healthTurn(ctx, fmt.Sprintf("h%d", turn)) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// checksOf returns the health checks of a program.
func checksOf(program world.Program) []world.HealthCheck {
	return slices.DeleteFunc(world.HealthChecks(), func(check world.HealthCheck) bool { return program != world.Ours && !check.InTree })
}

func (s subject) healthTurn(ctx context.Context, round string) error {
	kubeconfig, err := s.world.Kubeconfig(s.program, world.Seed)
	if err != nil {
		return err
	}
	namespaces, err := s.world.CreateShoots(ctx, round, s.Shoots, kubeconfig)
	if err != nil {
		return err
	}
	if err := s.world.PrepareHealth(ctx, namespaces); err != nil {
		return err
	}
	kinds, objects := map[string]world.Kind{}, map[string][]client.Object{}
	for _, kind := range world.ShootKinds() {
		if kind.Name != "ControlPlane" && kind.Name != "Worker" {
			continue
		}
		kinds[kind.Name] = kind
		for i, namespace := range namespaces {
			objects[kind.Name] = append(objects[kind.Name], kind.New(round, namespace, i))
		}
		if err := s.have(ctx, kind, round, objects[kind.Name]); err != nil {
			return fmt.Errorf("%s, creating objects of kind %s: %w", s.program, kind.Name, err)
		}
	}

	checks := checksOf(s.program)
	for _, check := range checks {
		if err := s.awaitHealth(ctx, kinds[check.Kind], round, check, true, func(context.Context) error { return nil }); err != nil {
			return err
		}
	}
	if err := s.healthIdle(ctx, fmt.Sprintf("health idle n=%d", s.Shoots)); err != nil {
		return err
	}
	for _, check := range checks {
		targets, err := s.world.Targets(ctx, check, namespaces)
		if err != nil {
			return err
		}
		for _, healthy := range []bool{false, true} {
			if err := s.healthChange(ctx, kinds[check.Kind], round, check, targets, healthy); err != nil {
				return err
			}
		}
	}
	if err := s.world.DropMachines(ctx, namespaces); err != nil {
		return err
	}
	for _, name := range []string{"Worker", "ControlPlane"} {
		if err := s.dropAll(ctx, kinds[name], round, objects[name]); err != nil {
			return fmt.Errorf("%s, deleting objects of kind %s: %w", s.program, name, err)
		}
	}
	return nil
}

// healthChange measures from a change of all objects that a check is about until the last condition shows it. For the peer,
// the change comes half a period after its last check, so that its time is the average.
func (s subject) healthChange(ctx context.Context, kind world.Kind, round string, check world.HealthCheck, targets []client.Object, healthy bool) error {
	scenario := fmt.Sprintf("health %s by %s n=%d %s", check.Kind, check.Target, len(targets), map[bool]string{true: "healthy", false: "unhealthy"}[healthy])
	if s.program != world.Ours {
		if err := s.world.Settle(ctx, s.process.User, peerPeriod/2); err != nil {
			return err
		}
	}
	marks, err := s.healthMarks()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := s.awaitHealth(ctx, kind, round, check, healthy, func(ctx context.Context) error {
		begin = time.Now()
		return s.world.SetHealth(ctx, check, targets, healthy)
	}); err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	// It does not wait for silence: the peer may be in the middle of its next checks.
	if err := pause(ctx, logDelay); err != nil {
		return err
	}
	seed, shoots, err := s.healthRequests(marks)
	if err != nil {
		return err
	}
	s.Result.Add(scenario, report.Seconds, s.program, seconds)
	s.Result.AddRequests(scenario, s.program, seed, len(targets))
	s.Result.Add(scenario, "requests to shoots per object", s.program, float64(shoots.Sum(nil))/float64(len(targets)))
	s.Say("%-14s %-46s %7.2f s  %5.2f requests, %5.2f to shoots", s.program, scenario, seconds,
		float64(seed.Sum(nil))/float64(len(targets)), float64(shoots.Sum(nil))/float64(len(targets)))
	return nil
}

// awaitHealth makes a change, and waits until the condition of all objects shows it.
func (s subject) awaitHealth(ctx context.Context, kind world.Kind, round string, check world.HealthCheck, healthy bool, change func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout(s.Shoots))
	defer cancel()
	tracker := s.world.TrackHealth(ctx, kind.List(), kind.Round(round), check, healthy)
	defer tracker.Stop()
	if err := change(ctx); err != nil {
		return err
	}
	if err := tracker.AwaitReady(ctx, s.Shoots); err != nil {
		return fmt.Errorf("%s, waiting for %s of kind %s to become %t: %w", s.program, check.Condition, check.Kind, healthy, err)
	}
	return nil
}

// healthIdle measures for a while in which nothing changes, in which the peer checks all at least once. It begins after a check.
func (s subject) healthIdle(ctx context.Context, scenario string) error {
	if err := s.world.Settle(ctx, s.process.User, quiet); err != nil {
		return err
	}
	cpu, err := s.process.CPU()
	if err != nil {
		return err
	}
	marks, err := s.healthMarks()
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := pause(ctx, max(s.Idle, peerPeriod)); err != nil {
		return err
	}
	minutes := time.Since(begin).Minutes()
	seed, shoots, err := s.healthRequests(marks)
	if err != nil {
		return err
	}
	after, err := s.process.CPU()
	if err != nil {
		return err
	}
	s.Result.Add(scenario, "requests per minute", s.program, float64(seed.Sum(nil))/minutes)
	s.Result.Add(scenario, "requests to shoots per minute", s.program, float64(shoots.Sum(nil))/minutes)
	s.Result.Add(scenario, report.CPUPerMinute, s.program, float64((after-cpu).Milliseconds())/minutes)
	s.Say("%-14s %-46s %7.1f requests per minute, %.1f to shoots", s.program, scenario, float64(seed.Sum(nil))/minutes, float64(shoots.Sum(nil))/minutes)
	return nil
}

// healthMarks returns where the requests to the seed and to shoots are in the log.
func (s subject) healthMarks() ([2]measure.Mark, error) {
	seed, err := s.world.Log.Mark(s.process.User)
	if err != nil {
		return [2]measure.Mark{}, err
	}
	shoots, err := s.world.Log.Mark(world.ShootUser)
	return [2]measure.Mark{seed, shoots}, err
}

// healthRequests returns the requests to the seed and to shoots since the marks.
func (s subject) healthRequests(marks [2]measure.Mark) (seed, shoots measure.Requests, err error) {
	if seed, err = s.world.Log.Since(marks[0]); err != nil {
		return nil, nil, err
	}
	shoots, err = s.world.Log.Since(marks[1])
	return seed, shoots, err
}
