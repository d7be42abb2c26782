// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/report"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/world"
)

// nodes has ours make the Nodes of a Worker of type mock, and kwok make Nodes ready that the bench creates. The shoot is the
// same API server. In the rows, kwok is in the place of the peer.
func (b *Bench) nodes(ctx context.Context) error {
	return b.in(ctx, func(w *world.World) error {
		for turn := range b.Rounds {
			for _, program := range []world.Program{world.Ours, world.Kwok} {
				opts := world.StartOptions{Program: program, Place: world.Seed, Mock: true}
				if err := b.with(ctx, w, opts, func(s subject) error { return s.nodesTurn(ctx, fmt.Sprintf("n%d", turn)) }); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

func (s subject) nodesTurn(ctx context.Context, round string) error {
	create, remove, err := s.nodesBy(ctx, round)
	if err != nil {
		return err
	}
	column := s.program
	if column == world.Kwok {
		column = world.PeerUncapped
	}
	tracker := s.world.TrackNodes(ctx)
	defer tracker.Stop()
	ctx, cancel := context.WithTimeout(ctx, s.timeout(s.Nodes))
	defer cancel()

	scenario := fmt.Sprintf("fake nodes n=%d, beside kwok v0.8.0", s.Nodes)
	cpu, err := s.process.CPU()
	if err != nil {
		return err
	}
	mark, err := s.world.Log.Mark(s.process.User)
	if err != nil {
		return err
	}
	begin := time.Now()
	if err := create(ctx); err != nil {
		return err
	}
	if err := tracker.AwaitReady(ctx, s.Nodes); err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	after, err := s.process.CPU()
	if err != nil {
		return err
	}
	requests, err := s.world.Log.Since(mark)
	if err != nil {
		return err
	}
	memory, err := s.process.Memory()
	if err != nil {
		return err
	}
	s.Result.Add(scenario, report.PerSecond, column, float64(s.Nodes)/seconds)
	s.Result.Add(scenario, report.CPUPerObject, column, float64((after-cpu).Microseconds())/1000/float64(s.Nodes))
	s.Result.Add(scenario, report.RequestsPerObject, column, float64(requests.Sum(nil))/float64(s.Nodes))
	s.Result.Add(scenario, report.AnonymousRSS, column, megabytes(memory.Anonymous))
	s.Say("%-14s %-46s %7.1f per second", s.program, scenario, float64(s.Nodes)/seconds)

	return errors.Join(remove(ctx), tracker.AwaitGone(ctx))
}

// nodesBy returns what asks for the Nodes, and what has them go.
func (s subject) nodesBy(ctx context.Context, round string) (create, remove func(context.Context) error, err error) {
	if s.program == world.Kwok {
		nodes := bareNodes(round, s.Nodes)
		return func(ctx context.Context) error { return s.world.CreateAll(ctx, nodes) },
			func(ctx context.Context) error { return s.world.DeleteAll(ctx, nodes) }, nil
	}
	kubeconfig, err := s.world.Kubeconfig(s.program, world.Seed)
	if err != nil {
		return nil, nil, err
	}
	namespaces, err := s.world.CreateShoots(ctx, round, 1, kubeconfig)
	if err != nil {
		return nil, nil, err
	}
	if err := s.world.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespaces[0], Name: "gardener"}, Data: map[string][]byte{"kubeconfig": kubeconfig},
	}); err != nil {
		return nil, nil, err
	}
	worker := mockWorker(int32(s.Nodes)).New(round, namespaces[0], 0)
	return func(ctx context.Context) error { return s.world.CreateAll(ctx, []client.Object{worker}) },
		func(ctx context.Context) error { return s.world.DeleteAll(ctx, []client.Object{worker}) }, nil
}

// bareNodes are Nodes as kwok's documentation has them, without a status.
func bareNodes(round string, n int) []client.Object {
	capacity := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"), corev1.ResourcePods: resource.MustParse("110")}
	out := make([]client.Object, n)
	for i := range out {
		name := fmt.Sprintf("%s-%d", round, i)
		out[i] = &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Annotations: map[string]string{"kwok.x-k8s.io/node": "fake", "node.alpha.kubernetes.io/ttl": "0"},
				Labels: map[string]string{"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "type": "kwok"},
			},
			Status: corev1.NodeStatus{Capacity: capacity, Allocatable: capacity},
		}
	}
	return out
}
