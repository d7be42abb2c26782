// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/report"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/world"
)

// What no extension can do without: it takes an object up, by its finalizer and the annotation, and says what has become of
// it, which is in a subresource; at the end it takes the finalizer off.
var (
	takeUp   = client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":["extensions.gardener.cloud/bench"],"annotations":{"gardener.cloud/operation":null}}}`))
	conclude = client.RawPatch(types.MergePatchType, []byte(`{"status":{"observedGeneration":1,"lastOperation":{"type":"Create","state":"Succeeded","progress":100,"description":"Successfully reconciled DNSRecord","lastUpdateTime":"2026-01-01T00:00:00Z"}}}`))
	letGo    = client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
)

// floor measures what etcd and kube-apiserver alone take for these writes, without any program. The first round is not
// counted: an API server that has just started is slower.
func (b *Bench) floor(ctx context.Context) error {
	return b.in(ctx, func(w *world.World) error {
		kind, n := world.GardenKinds()[1], slices.Max(b.Sizes)
		for round := range b.Rounds + 1 {
			objects := objectsOf(kind, fmt.Sprintf("f%d", round), n)
			for _, half := range []struct {
				name  string
				write func(context.Context, client.Object) error
			}{
				{"create", func(ctx context.Context, obj client.Object) error {
					if err := w.Client.Create(ctx, obj); err != nil {
						return err
					}
					if err := w.Client.Patch(ctx, obj, takeUp); err != nil {
						return err
					}
					return w.Client.Status().Patch(ctx, obj, conclude)
				}},
				{"delete", func(ctx context.Context, obj client.Object) error {
					if err := w.Client.Delete(ctx, obj); err != nil {
						return err
					}
					return w.Client.Patch(ctx, obj, letGo)
				}},
			} {
				begin := time.Now()
				if err := world.Each(ctx, objects, half.write); err != nil {
					return err
				}
				seconds := time.Since(begin).Seconds()
				if round == 0 {
					continue
				}
				scenario := fmt.Sprintf("%s n=%d %s", report.FloorScenario, n, half.name)
				b.Result.Add(scenario, report.Seconds, world.Ours, seconds)
				b.Result.Add(scenario, report.PerSecond, world.Ours, float64(n)/seconds)
				b.Say("%-61s %7.2f s", scenario, seconds)
			}
		}
		return nil
	})
}
