// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/world"
)

// dnsProviders are those with which a program takes its turn.
func dnsProviders(program world.Program) []string {
	if program == world.Ours {
		return []string{"coredns", "rfc2136"}
	}
	return []string{"rfc2136"}
}

func (b *Bench) garden(ctx context.Context) error {
	return b.in(ctx, func(w *world.World) error {
		programs := b.turns()
		if b.CappedSize > 0 {
			programs = append(programs, world.Peer)
		}
		for turn, program := range programs {
			for _, provider := range dnsProviders(program) {
				if err := b.gardenTurn(ctx, w, turn, program, provider); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (b *Bench) gardenTurn(ctx context.Context, w *world.World, turn int, program world.Program, provider string) error {
	opts := world.StartOptions{Program: program, Place: world.Garden, DNSProvider: provider}
	return b.with(ctx, w, opts, func(s subject) error {
		for _, n := range b.sizesFor(program, turn) {
			for _, kind := range world.GardenKinds() {
				names := gardenNames(program, kind.Name, provider, n)
				if len(names) == 0 {
					continue
				}
				round := fmt.Sprintf("g%d-%s-%d", turn, provider, n)
				objects := objectsOf(kind, round, n)
				if err := s.create(ctx, suffixed(names, " create"), kind, round, objects); err != nil {
					b.problem(err)
				}
				if err := s.remove(ctx, suffixed(names, " delete"), kind, round, objects); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// gardenNames are the scenarios that a measurement is for. The peer has one DNS provider, so it stands beside both of ours.
func gardenNames(program world.Program, kind, provider string, n int) []string {
	name := func(provider string) string { return fmt.Sprintf("garden %s%s n=%d", kind, provider, n) }
	switch {
	case kind != "DNSRecord" && program == world.Ours && provider != "coredns":
		return nil
	case kind != "DNSRecord":
		return []string{name("")}
	case program == world.Ours:
		return []string{name(" by " + provider)}
	default:
		return []string{name(" by coredns"), name(" by rfc2136")}
	}
}

func suffixed(names []string, suffix string) []string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = name + suffix
	}
	return out
}
