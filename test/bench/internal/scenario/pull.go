// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	gcrv1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"

	gardencorev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	gardeneroci "github.com/gardener/gardener/pkg/utils/oci"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/report"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/world"
)

const (
	chartLayer  types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	chartConfig types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	pullRuns                    = 50
)

// pullChart gets a chart by a reference.
type pullChart func(context.Context, string) error

// pull gets the same chart from a registry in this process with Gardener's puller and with pkg/chart/oci: for the first
// time, and again by tag and by digest.
func (b *Bench) pull(ctx context.Context) error {
	var requests atomic.Int64
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		handler.ServeHTTP(w, r)
	}))
	defer server.Close()
	// Gardener's puller has one cache for the process, by repository and digest: a pull is cold in another repository only.
	repositories := 0

	for _, turn := range []struct {
		program   world.Program
		newPuller func() (pullChart, func() error, error)
	}{{world.Ours, ourPuller}, {world.PeerUncapped, gardenersPuller}} {
		program := turn.program
		measure := func(scenario, reference string, runs int, pull pullChart) error {
			requests.Store(0)
			begin := time.Now()
			for range runs {
				if err := pull(ctx, reference); err != nil {
					return fmt.Errorf("%s by %s: %w", scenario, program, err)
				}
			}
			b.Result.Add(scenario, report.Milliseconds, program, float64(time.Since(begin).Microseconds())/1000/float64(runs))
			b.Result.Add(scenario, "requests", program, float64(requests.Load())/float64(runs))
			return nil
		}
		for range 2 * b.Rounds {
			repositories++
			repository := fmt.Sprintf("%s/charts/bench-%d", strings.TrimPrefix(server.URL, "http://"), repositories)
			digest, err := pushChart(ctx, repository)
			if err != nil {
				return err
			}
			pull, done, err := turn.newPuller()
			if err != nil {
				return err
			}
			err = measure("pull cold", repository+":v1", 1, pull)
			for _, warm := range []struct{ scenario, reference string }{{"pull warm by tag", repository + ":v1"}, {"pull warm by digest", repository + "@" + digest}} {
				if err == nil {
					err = pull(ctx, warm.reference)
				}
				if err == nil {
					err = measure(warm.scenario, warm.reference, pullRuns, pull)
				}
			}
			if closed := done(); err == nil {
				err = closed
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func ourPuller() (pullChart, func() error, error) {
	dir, err := os.MkdirTemp("", "bench-charts-")
	if err != nil {
		return nil, nil, err
	}
	puller, err := oci.New(oci.Options{Directory: dir, Log: logr.Discard()})
	if err != nil {
		return nil, nil, err
	}
	sources := map[string]chart.Source{}
	pull := func(ctx context.Context, reference string) error {
		if sources[reference] == nil {
			if sources[reference], err = puller.Source(configv1alpha1.OCIChart{Ref: reference}); err != nil {
				return err
			}
		}
		_, err := sources[reference].Load(ctx)
		return err
	}
	return pull, func() error {
		if err := puller.Close(); err != nil {
			return err
		}
		return os.RemoveAll(dir)
	}, nil
}

func gardenersPuller() (pullChart, func() error, error) {
	puller := gardeneroci.NewHelmRegistry(nil)
	pull := func(ctx context.Context, reference string) error {
		_, err := puller.Pull(ctx, &gardencorev1.OCIRepository{Ref: &reference})
		return err
	}
	return pull, func() error { return nil }, nil
}

// pushChart pushes the chart of CoreDNS with the tag v1 and returns its digest.
func pushChart(ctx context.Context, repository string) (string, error) {
	dir, err := os.MkdirTemp("", "bench-chart-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.CopyFS(dir, components.FS); err != nil {
		return "", err
	}
	loaded, err := loader.LoadDir(dir + "/" + components.CoreDNS)
	if err != nil {
		return "", err
	}
	archive, err := chartutil.Save(loaded, dir)
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(archive)
	if err != nil {
		return "", err
	}
	image, err := mutate.Append(mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), chartConfig),
		mutate.Addendum{Layer: static.NewLayer(data, chartLayer)})
	if err != nil {
		return "", err
	}
	tag, err := name.NewTag(repository + ":v1")
	if err != nil {
		return "", err
	}
	if err := remote.Write(tag, image, remote.WithContext(ctx)); err != nil {
		return "", fmt.Errorf("pushing the chart: %w", err)
	}
	var digest gcrv1.Hash
	digest, err = image.Digest()
	return digest.String(), err
}
