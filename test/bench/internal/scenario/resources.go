// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/utils/managedresources"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/report"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/world"
)

const (
	managedResource = "bench"
	resourceRuns    = 50
)

// writeResource makes a ManagedResource of objects.
type writeResource func(context.Context, client.Client, []client.Object) error

// resources writes the same objects with Gardener's own functions and with pkg/resources, to an API server in memory.
func (b *Bench) resources(ctx context.Context) error {
	sets, err := objectSets(ctx)
	if err != nil {
		return err
	}
	for _, set := range sets {
		for _, turn := range []struct {
			program world.Program
			write   writeResource
		}{{world.Ours, ourWriter()}, {world.PeerUncapped, gardenersRegistry}} {
			if err := b.writeResources(ctx, "ManagedResource of "+set.name, turn.program, set.objects, turn.write); err != nil {
				return fmt.Errorf("%s by %s: %w", set.name, turn.program, err)
			}
		}
	}
	return nil
}

// objectSet is what a ManagedResource is made of.
type objectSet struct {
	name    string
	objects []client.Object
}

// ourWriter keeps a Writer, as an instance does.
func ourWriter() writeResource {
	var writer *resources.Writer
	return func(ctx context.Context, c client.Client, objects []client.Object) error {
		if writer == nil {
			writer = resources.New(c)
		}
		return writer.Apply(ctx, resources.ManagedResource{Namespace: world.GardenNamespace, Name: managedResource, Class: "seed", Objects: objects})
	}
}

// gardenersRegistry is how Gardener's components and extensions write ManagedResources.
func gardenersRegistry(ctx context.Context, c client.Client, objects []client.Object) error {
	registry := managedresources.NewRegistry(kubernetes.SeedScheme, kubernetes.SeedCodec, kubernetes.SeedSerializer)
	data, err := registry.AddAllAndSerialize(objects...)
	if err != nil {
		return err
	}
	return managedresources.CreateForSeed(ctx, c, world.GardenNamespace, managedResource, false, data)
}

func (b *Bench) writeResources(ctx context.Context, scenario string, program world.Program, objects []client.Object, write writeResource) error {
	var requests atomic.Int64
	c, err := countingClient(&requests)
	if err != nil {
		return err
	}
	measure := func(name string, change func(i int)) error {
		requests.Store(0)
		begin := time.Now()
		for i := range resourceRuns {
			change(i)
			if err := write(ctx, c, objects); err != nil {
				return err
			}
		}
		b.Result.Add(scenario+", "+name, "milliseconds", program, float64(time.Since(begin).Microseconds())/1000/resourceRuns)
		b.Result.Add(scenario+", "+name, report.RequestsPerObject, program, float64(requests.Load())/resourceRuns)
		return nil
	}
	if err := measure("changed", func(i int) { objects[0].SetAnnotations(map[string]string{"bench": fmt.Sprint(i)}) }); err != nil {
		return err
	}
	if err := measure("unchanged", func(int) {}); err != nil {
		return err
	}

	secrets := &corev1.SecretList{}
	if err := c.List(ctx, secrets); err != nil {
		return err
	}
	mr := &resourcesv1alpha1.ManagedResource{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: world.GardenNamespace, Name: managedResource}, mr); err != nil {
		return err
	}
	bytes := 0
	for _, secret := range secrets.Items {
		if secret.Name != mr.Spec.SecretRefs[0].Name {
			continue
		}
		for _, data := range secret.Data {
			bytes += len(data)
		}
	}
	b.Result.Add(scenario+", changed", "bytes", program, float64(bytes))
	return nil
}

func countingClient(requests *atomic.Int64) (client.Client, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubernetesscheme.AddToScheme, resourcesv1alpha1.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	return fakeclient.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			requests.Add(1)
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			requests.Add(1)
			return c.List(ctx, list, opts...)
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			requests.Add(1)
			return c.Create(ctx, obj, opts...)
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			requests.Add(1)
			return c.Update(ctx, obj, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			requests.Add(1)
			return c.Patch(ctx, obj, patch, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			requests.Add(1)
			return c.Delete(ctx, obj, opts...)
		},
	}).Build(), nil
}

// objectSets are a single small object, the objects of a chart, and large ones.
func objectSets(ctx context.Context) ([]objectSet, error) {
	renderer, err := chart.NewRenderer("v1.36.3")
	if err != nil {
		return nil, err
	}
	objects, err := renderer.Render(ctx, chart.Embedded(components.FS, components.CoreDNS), chart.Release{Name: "coredns", Namespace: world.GardenNamespace}, map[string]any{"image": "coredns:bench"})
	if err != nil {
		return nil, err
	}
	crds, err := extensionCRDs(ctx)
	if err != nil {
		return nil, err
	}
	return []objectSet{
		{"one ServiceAccount", []client.Object{&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: world.GardenNamespace, Name: "bench"}}}},
		{"a chart's objects", objects},
		{"the extension CRDs", crds},
	}, nil
}

func extensionCRDs(ctx context.Context) ([]client.Object, error) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/gardener/gardener").Output()
	if err != nil {
		return nil, fmt.Errorf("finding gardener's module: %w", err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "example", "seed-crds", "10-crd-extensions.gardener.cloud_*.yaml"))
	if err != nil {
		return nil, err
	}
	var out []client.Object
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(data, crd); err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		out = append(out, crd)
	}
	return out, nil
}
