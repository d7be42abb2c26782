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

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/report"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/world"
)

const mockType = "mock"

// mockKinds are one object of each kind of a shoot, but for the Worker, whose Nodes have a scenario of their own.
func mockKinds() []world.Kind {
	var out []world.Kind
	for _, kind := range world.ShootKinds() {
		if kind.Name != "Worker" && kind.Name != "Extension local-ext-seed" {
			out = append(out, kind.OfType(mockType))
		}
	}
	return out
}

// mock makes objects of mixed kinds in as many shoots as it takes.
func (b *Bench) mock(ctx context.Context) error {
	return b.in(ctx, func(w *world.World) error {
		for turn := range b.Rounds {
			for i, n := range b.MockSizes {
				if i > 0 && turn > 0 {
					continue
				}
				opts := world.StartOptions{Program: world.Ours, Place: world.Seed, Mock: true}
				round := fmt.Sprintf("m%d-%d", turn, n)
				if err := b.with(ctx, w, opts, func(s subject) error { return s.mockTurn(ctx, round, n) }); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (s subject) mockTurn(ctx context.Context, round string, n int) error {
	kinds := mockKinds()
	shoots := (n + len(kinds) - 1) / len(kinds)
	s.Say("creating %d shoots", shoots)
	namespaces, err := s.world.CreateShoots(ctx, round, shoots, nil)
	if err != nil {
		return err
	}
	var objects []client.Object
	trackers := make([]*world.Tracker, len(kinds))
	counts := make([]int, len(kinds))
	for i, kind := range kinds {
		trackers[i] = s.world.Track(ctx, kind.List(), kind.Round(round))
	}
	defer func() {
		for _, tracker := range trackers {
			tracker.Stop()
		}
	}()
	for i, namespace := range namespaces {
		for j, kind := range kinds {
			if len(objects) == n {
				break
			}
			objects = append(objects, kind.New(round, namespace, i))
			counts[j]++
		}
	}
	all := func(await func(*world.Tracker, int) error) error {
		for i, tracker := range trackers {
			if err := await(tracker, counts[i]); err != nil {
				return fmt.Errorf("%s: %w", kinds[i].Name, err)
			}
		}
		return nil
	}

	scenario := fmt.Sprintf("mock objects n=%d", n)
	begin := time.Now()
	if err := s.phase(ctx, []string{scenario + " create"}, n,
		func(ctx context.Context) error { return s.world.CreateAll(ctx, objects) },
		func(ctx context.Context) error {
			err := all(func(t *world.Tracker, n int) error { return t.AwaitReady(ctx, n) })
			s.Result.Add(scenario+" create", report.PerSecond, s.program, float64(n)/time.Since(begin).Seconds())
			return err
		}); err != nil {
		return err
	}
	return s.phase(ctx, []string{scenario + " delete"}, n,
		func(ctx context.Context) error { return s.world.DeleteAll(ctx, objects) },
		func(ctx context.Context) error {
			return all(func(t *world.Tracker, _ int) error { return t.AwaitGone(ctx) })
		})
}

// mockWorker returns the kind whose Nodes are fake, with a pool of n machines.
func mockWorker(n int32) world.Kind {
	kinds := world.ShootKinds()
	kind := kinds[slices.IndexFunc(kinds, func(kind world.Kind) bool { return kind.Name == "Worker" })].OfType(mockType)
	return kind.WithMachines(n)
}
