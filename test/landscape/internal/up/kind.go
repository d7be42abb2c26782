// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/binaries"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

// kindRegistry is the registry beside the cluster as machines find it: by its address (skaffold/kind/cluster), or its name.
func (l Landscape) kindRegistry() string {
	if l.Layout.Kind == "ipv6" {
		return "registry.local.gardener.cloud:5001"
	}
	return "172.18.254.1:5001"
}

// kindCluster checks what `make kind-up` made, and waits for the nodes: they may just have been started.
func (l Landscape) kindCluster(ctx context.Context, progress step.Progress) (string, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", l.Layout.RegistryAddress())
	if err != nil {
		return "", fmt.Errorf("connecting with the registry: %w", err)
	}
	_ = connection.Close()
	c, err := l.client(runtimeCluster)
	if err == nil {
		err = c.List(ctx, &corev1.NodeList{})
	}
	if err != nil {
		return "", fmt.Errorf("connecting with the kind cluster: %w", err)
	}
	return l.wait(ctx, progress, []milestone{{title: "Nodes Ready", kind: corev1.SchemeGroupVersion.WithKind("Node"), reached: nodesReady}})
}

func nodesReady(objects []unstructured.Unstructured) (bool, string) {
	return conditions(objects, "Ready")
}

// roomAndMetrics brings what kind lacks: the API of metrics, which the garden's HorizontalPodAutoscalers and `kubectl top` need, and nodes that
// claim more than a small machine has, as Gardener's requests are made for real seeds. The seed instance does so too, but comes later.
func (l Landscape) roomAndMetrics(ctx context.Context, _ step.Progress) (string, error) {
	objects, err := cluster.Kind()
	if err != nil {
		return "", err
	}
	c, err := l.client(runtimeCluster)
	if err == nil {
		err = cluster.Apply(ctx, c, objects)
	}
	if err != nil {
		return "", err
	}
	// The policy is there a moment after it is applied, and changes only what is written.
	return fmt.Sprintf("%d objects applied", len(objects)), wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, true, func(ctx context.Context) (bool, error) {
		nodes := &corev1.NodeList{}
		err := c.List(ctx, nodes)
		for i := range nodes.Items {
			err = c.Status().Patch(ctx, &nodes.Items[i], client.RawPatch(types.MergePatchType, []byte("{}")))
			if err != nil || nodes.Items[i].Status.Capacity.Cpu().String() != cluster.NodeCPU {
				return false, err
			}
		}
		return err == nil, err
	})
}

// StandIns makes the kind cluster one for machines that reach no registry: it fills the cluster's registry with the images of the bare
// landscape, and applies the policies by which stand-ins run. What those need besides is the status controller.
func (l Landscape) StandIns(ctx context.Context) error {
	bare := l
	bare.Layout.Kind = ""
	if err := l.saveOptional(); err != nil {
		return err
	}
	return step.Runner{Out: l.Out, Now: l.Now}.Run(ctx, []step.Step{
		{Name: "binaries", Title: "programs built from their Go modules", Execute: bare.binaries, Remedy: "read above what failed"},
		{Name: "images", Title: "images of others pushed", Execute: l.images, Remedy: "run make kind-up, which repairs the registry"},
		{Name: "machine-image", Title: "machine image pushed", Execute: func(ctx context.Context, progress step.Progress) (string, error) {
			builder := l.machineImages()
			builder.Registry = l.kindRegistry()
			return pushed(builder.Push(ctx, progress))
		}, Remedy: "look whether Debian's package mirror is reached"},
		{Name: "policies", Title: "policies and namespaces are there", Execute: func(ctx context.Context, _ step.Progress) (string, error) {
			count, err := l.applyBase(ctx)
			if err == nil {
				err = os.WriteFile(l.standIns(), nil, 0o600)
			}
			return fmt.Sprintf("%d objects applied", count), err
		}, Remedy: "run make kind-up, which repairs the cluster"},
	})
}

// standIns is a file that is there once StandIns was called, until `make kind-down`.
func (l Landscape) standIns() string { return l.Layout.State("stand-ins") }

// hasSecond reports whether there is a second kind cluster.
func (l Landscape) hasSecond() bool {
	return l.Layout.Kind != "" && exists(l.Layout.Second("internal.kubeconfig"))
}

// secondSeed makes the second kind cluster a seed.
func (l Landscape) secondSeed(ctx context.Context, progress step.Progress) (string, error) {
	if _, err := l.skaffold(ctx, progress, virtualGarden, "skaffold-second-seed", "run", "--module", "second-seed"); err != nil {
		return "", err
	}
	only := []client.ListOption{client.MatchingFields{"metadata.name": layout.SecondSeedName}}
	return l.wait(ctx, progress, []milestone{
		{title: "Seed " + layout.SecondSeedName + " Succeeded", on: virtualGarden, kind: seeds, options: only, reached: reconciled},
		{title: "Seed " + layout.SecondSeedName + " healthy", on: virtualGarden, kind: seeds, options: only, reached: seedHealthy},
	})
}

// programs are what the landscape builds beside the checkout of Gardener. In a kind cluster, all others come as images.
func (l Landscape) programs() []binaries.Program {
	all := slices.DeleteFunc(binaries.Programs(l.Layout.Root), func(p binaries.Program) bool { return l.isFromCheckout(p.Name) || l.isUnused(p) })
	if l.Layout.Kind == "" {
		return all
	}
	return slices.DeleteFunc(all, func(p binaries.Program) bool {
		return !slices.Contains([]string{"kubectl", "helm", "skaffold"}, p.Name)
	})
}
