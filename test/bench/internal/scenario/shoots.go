// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/world"
)

func (b *Bench) shoots(ctx context.Context) error {
	return b.in(ctx, func(w *world.World) error {
		for turn, program := range b.turns() {
			opts := world.StartOptions{Program: program, Place: world.Seed, DNSProvider: "coredns"}
			if err := b.with(ctx, w, opts, func(s subject) error { return s.shootsTurn(ctx, fmt.Sprintf("s%d", turn)) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// shootsTurn creates all kinds and deletes them in the reverse order. A kind that fails is left as it is.
func (s subject) shootsTurn(ctx context.Context, round string) error {
	removeBucket, err := s.bucket(ctx, round)
	if err != nil {
		return err
	}
	kubeconfig, err := s.world.Kubeconfig(s.program, world.Seed)
	if err != nil {
		return err
	}
	namespaces, err := s.world.CreateShoots(ctx, round, s.Shoots, kubeconfig)
	if err != nil {
		return err
	}

	var created []world.Kind
	objects := map[string][]client.Object{}
	for _, kind := range world.ShootKinds() {
		for i, namespace := range namespaces {
			objects[kind.Name] = append(objects[kind.Name], kind.New(round, namespace, i))
		}
		if err := s.create(ctx, []string{fmt.Sprintf("shoots %s n=%d create", kind.Name, s.Shoots)}, kind, round, objects[kind.Name]); err != nil {
			s.problem(err)
			continue
		}
		created = append(created, kind)
	}
	for _, kind := range slices.Backward(created) {
		if err := s.remove(ctx, []string{fmt.Sprintf("shoots %s n=%d delete", kind.Name, s.Shoots)}, kind, round, objects[kind.Name]); err != nil {
			s.problem(err)
		}
	}
	return removeBucket()
}

// bucket makes the bucket of the BackupEntries, and returns what removes it.
func (s subject) bucket(ctx context.Context, round string) (func() error, error) {
	kind := world.GardenKinds()[0]
	bucket := kind.New(round, "", 0).(*extensionsv1alpha1.BackupBucket)
	bucket.Name = world.Bucket
	bucket.Spec.Class = new(extensionsv1alpha1.ExtensionClassShoot)
	tracker := s.world.Track(ctx, kind.List(), round)
	if err := s.world.CreateAll(ctx, []client.Object{bucket}); err != nil {
		tracker.Stop()
		return nil, err
	}
	if err := tracker.AwaitReady(ctx, 1); err != nil {
		tracker.Stop()
		return nil, err
	}
	return func() error {
		defer tracker.Stop()
		if err := s.world.DeleteAll(ctx, []client.Object{bucket}); err != nil {
			return err
		}
		return tracker.AwaitGone(ctx)
	}, nil
}
