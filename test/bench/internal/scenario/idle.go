// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/measure"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/report"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/world"
)

const (
	secretBytes    = 10 << 10
	configMapBytes = 10 << 10
	perNamespace   = 100
)

// both are the two instances of a program.
type both struct {
	garden, seed subject
}

// idle looks at both instances of each program: with no objects and with many, and then, started anew, beside many Secrets
// and ConfigMaps that are not theirs, and after they have served a ControlPlane.
func (b *Bench) idle(ctx context.Context) error {
	return b.in(ctx, func(w *world.World) error {
		for turn, program := range b.turns() {
			if err := b.withBoth(ctx, w, program, func(s both) error { return s.idleWithObjects(ctx, turn) }); err != nil {
				return err
			}
		}
		if err := unrelated(ctx, w, b.Secrets, b.ConfigMaps); err != nil {
			return err
		}
		for turn, program := range b.turns() {
			if err := b.withBoth(ctx, w, program, func(s both) error { return s.idleBesideOthers(ctx, turn) }); err != nil {
				return err
			}
		}
		return nil
	})
}

func (b *Bench) withBoth(ctx context.Context, w *world.World, program world.Program, do func(both) error) error {
	provider := map[world.Program]string{world.Ours: "coredns"}[program]
	if provider == "" {
		provider = "rfc2136"
	}
	return b.with(ctx, w, world.StartOptions{Program: program, Place: world.Garden, DNSProvider: provider}, func(garden subject) error {
		return b.with(ctx, w, world.StartOptions{Program: program, Place: world.Seed, DNSProvider: provider}, func(seed subject) error {
			return do(both{garden, seed})
		})
	})
}

func (s both) idleWithObjects(ctx context.Context, turn int) error {
	if err := s.watch(ctx, "idle, 0 objects"); err != nil {
		return err
	}
	kind, round := world.GardenKinds()[0], fmt.Sprintf("i%d", turn)
	objects := objectsOf(kind, round, s.garden.Objects)
	if err := s.garden.have(ctx, kind, round, objects); err != nil {
		return err
	}
	if err := s.watch(ctx, fmt.Sprintf("idle, %d objects", len(objects))); err != nil {
		return err
	}
	return s.garden.dropAll(ctx, kind, round, objects)
}

func (s both) idleBesideOthers(ctx context.Context, turn int) error {
	name := fmt.Sprintf("idle, %d unrelated Secrets and %d ConfigMaps", s.seed.Secrets, s.seed.ConfigMaps)
	if err := s.watch(ctx, name); err != nil {
		return err
	}
	kubeconfig, err := s.seed.world.Kubeconfig(s.seed.program, world.Seed)
	if err != nil {
		return err
	}
	round := fmt.Sprintf("u%d", turn)
	namespaces, err := s.seed.world.CreateShoots(ctx, round, 1, kubeconfig)
	if err != nil {
		return err
	}
	kinds := world.ShootKinds()
	kind := kinds[slices.IndexFunc(kinds, func(kind world.Kind) bool { return kind.Name == "ControlPlane" })]
	objects := []client.Object{kind.New(round, namespaces[0], 0)}
	if err := s.seed.have(ctx, kind, round, objects); err != nil {
		return err
	}
	if err := s.watch(ctx, name+", after a ControlPlane"); err != nil {
		return err
	}
	return s.seed.dropAll(ctx, kind, round, objects)
}

// watch measures both instances for a while in which nothing happens.
func (s both) watch(ctx context.Context, scenario string) error {
	subjects := []subject{s.garden, s.seed}
	var cpuBefore time.Duration
	marks := make([]measure.Mark, len(subjects))
	for i, one := range subjects {
		if err := one.world.Settle(ctx, one.process.User, 2*time.Second); err != nil {
			return err
		}
		cpu, err := one.process.CPU()
		if err != nil {
			return err
		}
		cpuBefore += cpu
		if marks[i], err = one.world.Log.Mark(one.process.User); err != nil {
			return err
		}
	}
	begin := time.Now()
	if err := pause(ctx, s.garden.Idle); err != nil {
		return err
	}

	var (
		requests     int
		cpuAfter     time.Duration
		rss, peakRSS float64
		minutes      = time.Since(begin).Minutes()
	)
	for i, one := range subjects {
		cpu, err := one.process.CPU()
		if err != nil {
			return err
		}
		memory, err := one.process.Memory()
		if err != nil {
			return err
		}
		sent, err := one.world.Log.Since(marks[i])
		if err != nil {
			return err
		}
		cpuAfter, rss, peakRSS, requests = cpuAfter+cpu, rss+megabytes(memory.Anonymous), peakRSS+megabytes(memory.Peak), requests+sent.Sum(nil)
	}
	result, program := s.garden.Result, s.garden.program
	result.Add(scenario, report.AnonymousRSS, program, rss)
	result.Add(scenario, report.PeakRSS, program, peakRSS)
	result.Add(scenario, report.CPUPerMinute, program, float64((cpuAfter-cpuBefore).Milliseconds())/minutes)
	result.Add(scenario, "requests per minute, but for Leases", program, float64(requests)/minutes)
	s.garden.Say("%-14s %-46s %7.1f MB anonymous", program, scenario, rss)
	return nil
}

// unrelated creates Secrets and ConfigMaps which are nobody's.
func unrelated(ctx context.Context, w *world.World, secrets, configMaps int) error {
	w.Say("creating %d Secrets and %d ConfigMaps", secrets, configMaps)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	namespace := func(i int) string { return fmt.Sprintf("unrelated-%d", i/perNamespace) }
	for i := 0; i < max(secrets, configMaps); i += perNamespace {
		if err := w.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace(i)}}); err != nil {
			return err
		}
	}
	for i := range secrets {
		group.Go(func() error {
			return w.Client.Create(ctx, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace(i), Name: fmt.Sprintf("unrelated-%d", i)},
				Data:       map[string][]byte{"data": bytes.Repeat([]byte("s"), secretBytes)},
			})
		})
	}
	for i := range configMaps {
		group.Go(func() error {
			return w.Client.Create(ctx, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace(i), Name: fmt.Sprintf("unrelated-%d", i)},
				Data:       map[string]string{"data": string(bytes.Repeat([]byte("c"), configMapBytes))},
			})
		})
	}
	return group.Wait()
}
