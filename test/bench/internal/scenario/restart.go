// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/report"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/world"
)

// restart ends an instance of class garden as a kubelet does, with objects that it has reconciled, and starts it again.
func (b *Bench) restart(ctx context.Context) error {
	return b.in(ctx, func(w *world.World) error {
		for turn, program := range b.turns() {
			if err := b.restartTurn(ctx, w, turn, program); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *Bench) restartTurn(ctx context.Context, w *world.World, turn int, program world.Program) error {
	provider := "rfc2136"
	if program == world.Ours {
		provider = "coredns"
	}
	opts := world.StartOptions{Program: program, Place: world.Garden, DNSProvider: provider}
	objects := map[string][]client.Object{}
	round := fmt.Sprintf("r%d", turn)
	if err := b.with(ctx, w, opts, func(s subject) error {
		for _, kind := range world.GardenKinds() {
			objects[kind.Name] = objectsOf(kind, round, b.Objects/2)
			if err := s.have(ctx, kind, round, objects[kind.Name]); err != nil {
				return err
			}
		}
		return w.Settle(ctx, s.process.User, quiet)
	}); err != nil {
		return err
	}

	scenario := fmt.Sprintf("restart with %d objects", b.Objects)
	opts.KeepLease = true
	mark, err := w.Log.Mark(world.UserOf(program, world.Garden))
	if err != nil {
		return err
	}
	return b.with(ctx, w, opts, func(s subject) error {
		// Start has waited until it came to rest.
		requests, err := w.Log.Since(mark)
		if err != nil {
			return err
		}
		cpu, err := s.process.CPU()
		if err != nil {
			return err
		}
		b.Result.Add(scenario, report.LeadsAfter, program, s.process.Leads.Seconds())
		b.Result.AddRequests(scenario, program, requests, b.Objects)
		b.Result.Add(scenario, "CPU ms until quiet", program, float64(cpu.Milliseconds()))
		b.Say("%-14s %-46s leads after %s", program, scenario, s.process.Leads.Round(10*time.Millisecond))
		for _, kind := range world.GardenKinds() {
			if err := s.dropAll(ctx, kind, round, objects[kind.Name]); err != nil {
				return err
			}
		}
		return nil
	})
}
