// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"os"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

// Variables that gardenlet sets where the Extension has injectGardenKubeconfig.
const (
	gardenKubeconfig = "GARDEN_KUBECONFIG"
	seedName         = "SEED_NAME"
)

// gardenAccessAnnotation is set to the time when the instance has reached the garden. Gardener's end-to-end suite looks for it.
const gardenAccessAnnotation = "provider-local-e2e-test-garden-access"

// addGardenAccess has the instance annotate its Seed once, if gardenlet gave it a kubeconfig of the garden: the instance needs nothing
// from there, but whoever develops Gardener sees that access works.
func addGardenAccess(mgr manager.Manager) error {
	path := os.Getenv(gardenKubeconfig)
	if path == "" {
		return nil
	}
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of the garden from %s: %w", gardenKubeconfig, err)
	}
	garden, err := client.New(config, client.Options{})
	if err != nil {
		return fmt.Errorf("accessing the garden: %w", err)
	}
	log := mgr.GetLogger().WithName("garden-access")
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		err := retry.OnError(retry.DefaultBackoff, func(error) bool { return ctx.Err() == nil }, func() error {
			return annotateSeed(ctx, garden, os.Getenv(seedName))
		})
		if err != nil {
			// The garden may be down, and the seed has to be served all the same.
			log.Error(err, "Garden is not accessible")
		}
		return nil
	}))
}

func annotateSeed(ctx context.Context, garden client.Client, name string) error {
	seed := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name}}
	seed.SetGroupVersionKind(gardencorev1beta1.SchemeGroupVersion.WithKind("Seed"))
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, gardenAccessAnnotation, time.Now().UTC().Format(time.RFC3339))
	if err := garden.Patch(ctx, seed, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("annotating Seed %s in the garden: %w", name, err)
	}
	return nil
}
