// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"context"
	"net/http"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
)

func TestAChartIsPulledWithTwoRequests(t *testing.T) {
	for name, reference := range map[string]func(tag, digest string) string{
		"by tag":    func(tag, _ string) string { return tag },
		"by digest": func(_, digest string) string { return digest },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			registry, w := newRegistry(t), newWorld(t)
			archive := pack(t, "1.0.0", nil)
			manifest := registry.push(t, "v1", archive)

			loaded, err := w.source(ref(registry.host(), reference("v1", manifest.String()))).Load(t.Context())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(loaded.Chart.Metadata.Version).To(Equal("1.0.0"))
			g.Expect(loaded.Digest).To(Equal(descriptor("", archive).Digest.String()))
			g.Expect(registry.asked()).To(Equal([]string{"GET manifests", "GET blobs"}))
			g.Expect(w.metric("pulls_total", "Success")).To(Equal(1.0))
			g.Expect(w.metric("cache_misses_total")).To(Equal(1.0))
			g.Expect(w.metric("registry_requests_total", "200", "GET", registry.host())).To(Equal(2.0))
		})
	}
}

func TestAPulledChartRendersAsAnyOther(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	renderer, err := chart.NewRenderer("1.34.1")
	g.Expect(err).NotTo(HaveOccurred())

	objects, err := renderer.Render(t.Context(), w.source(ref(registry.host(), "v1")), chart.Release{Name: "a", Namespace: "b"}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(objects).To(HaveLen(1))
}

func TestAWarmDigestIsNotAskedForAgain(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	config := ref(registry.host(), registry.push(t, "v1", pack(t, "1.0.0", nil)).String())
	w.expect(config, "1.0.0")
	registry.asked()
	for range 3 {
		w.clock.Step(24 * time.Hour)
		w.expect(config, "1.0.0")
	}
	g.Expect(registry.asked()).To(BeEmpty())
	g.Expect(w.metric("cache_hits_total", "memory")).To(Equal(3.0))
}

func TestAWarmTagCostsOneHEADPerInterval(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	config := ref(registry.host(), "v1")
	w.expect(config, "1.0.0")
	registry.asked()

	for range 10 {
		for range 6 {
			w.expect(config, "1.0.0")
			w.clock.Step(10 * time.Second)
		}
	}
	w.expect(config, "1.0.0")
	g.Expect(registry.asked()).To(HaveLen(10))
	g.Expect(w.metric("cache_misses_total")).To(Equal(1.0))
}

func TestATagThatWasMovedIsFollowedAfterTheInterval(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	config := ref(registry.host(), "v1")
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	w.expect(config, "1.0.0")

	registry.push(t, "v1", pack(t, "2.0.0", nil))
	w.expect(config, "1.0.0")
	registry.asked()
	w.clock.Step(time.Minute)
	w.expect(config, "2.0.0")
	g.Expect(registry.asked()).To(Equal([]string{"HEAD manifests", "GET manifests", "GET blobs"}))
}

func TestATagIsFollowedInARegistryThatSendsNoDigestForHEAD(t *testing.T) {
	registry, w := newRegistry(t), newWorld(t)
	config := ref(registry.host(), "v1")
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	registry.guard(func(writer http.ResponseWriter, request *http.Request) bool {
		if request.Method != http.MethodHead {
			return true
		}
		writer.Header().Set("Content-Type", "application/vnd.oci.image.manifest.v1+json")
		return false
	})
	w.expect(config, "1.0.0")
	registry.push(t, "v1", pack(t, "2.0.0", nil))
	w.clock.Step(time.Minute)
	w.expect(config, "2.0.0")
}

func TestManyThatLoadAtOnceMakeOnePull(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	open := make(chan struct{})
	registry.guard(func(http.ResponseWriter, *http.Request) bool {
		<-open
		return true
	})

	var (
		wait    sync.WaitGroup
		started sync.WaitGroup
		results = make(chan error, 100)
	)
	for range 100 {
		source := w.source(ref(registry.host(), "v1"))
		started.Add(1)
		wait.Go(func() {
			started.Done()
			_, err := source.Load(t.Context())
			results <- err
		})
	}
	started.Wait()
	close(open)
	wait.Wait()
	close(results)
	for err := range results {
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(registry.asked()).To(Equal([]string{"GET manifests", "GET blobs"}))
	g.Expect(w.metric("pulls_total")).To(Equal(1.0))
}

func TestACallerWhoGivesUpDoesNotEndThePullForOthers(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	arrived, open := make(chan struct{}, 10), make(chan struct{})
	registry.guard(func(http.ResponseWriter, *http.Request) bool {
		arrived <- struct{}{}
		<-open
		return true
	})

	source := w.source(ref(registry.host(), "v1"))
	impatient, giveUp := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := source.Load(impatient)
		first <- err
	}()
	<-arrived
	go func() {
		_, err := source.Load(t.Context())
		second <- err
	}()
	giveUp()
	g.Expect(<-first).To(MatchError(context.Canceled))
	close(open)
	g.Expect(<-second).To(Succeed())
	g.Expect(registry.asked()).To(HaveLen(2))

	_, err := source.Load(impatient)
	g.Expect(err).To(MatchError(context.Canceled))
}

func TestAComponentComesFromTheProgramUnlessConfigured(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	embedded := fstest.MapFS{}
	for _, name := range []string{"coredns", "cloud-controller"} {
		embedded[name+"/Chart.yaml"] = &fstest.MapFile{Data: []byte("apiVersion: v2\nname: app\nversion: 0.0.1\n")}
	}
	version := func(s *oci.Sources, component string) string {
		archive, err := s.For(component).Load(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
		return archive.Chart.Metadata.Version
	}

	// A directory that cannot be made does not matter as long as none is needed.
	none, err := oci.NewSources(configv1alpha1.ChartsConfiguration{Cache: configv1alpha1.ChartCacheConfiguration{Directory: "/dev/null/x"}}, embedded, oci.Options{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(version(none, "coredns")).To(Equal("0.0.1"))
	g.Expect(none.Close()).To(Succeed())

	config := configv1alpha1.ChartsConfiguration{
		Sources: map[string]configv1alpha1.OCIChart{"coredns": ref(registry.host(), "v1")},
		Cache:   configv1alpha1.ChartCacheConfiguration{Directory: t.TempDir(), MaxBytes: new(resource.MustParse("1Mi"))},
	}
	w.opts.Registerer = nil
	some, err := oci.NewSources(config, embedded, w.opts.Options)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(version(some, "coredns")).To(Equal("1.0.0"))
	g.Expect(version(some, "cloud-controller")).To(Equal("0.0.1"))
	g.Expect(some.Close()).To(Succeed())

	config.Sources["coredns"] = configv1alpha1.OCIChart{Ref: "nothing"}
	_, err = oci.NewSources(config, embedded, w.opts.Options)
	g.Expect(err).To(MatchError(ContainSubstring("chart of component coredns: ")))
}

func TestConfigurationThatCannotWorkIsAnError(t *testing.T) {
	w := newWorld(t)
	for name, tt := range map[string]struct {
		config  configv1alpha1.OCIChart
		message string
	}{
		"no repository":        {configv1alpha1.OCIChart{Ref: "registry.example.org"}, "could not parse reference"},
		"no tag and no digest": {configv1alpha1.OCIChart{Ref: "registry.example.org/app"}, "could not parse reference"},
		"a digest cut short":   {configv1alpha1.OCIChart{Ref: "registry.example.org/app@sha256:12"}, "could not parse reference"},
		"no registry":          {configv1alpha1.OCIChart{Ref: "charts/app:1"}, "could not parse reference"},
		"a mirror without dot": {configv1alpha1.OCIChart{Ref: "registry.example.org/app:1", Mirrors: []string{"mirror/charts"}}, "mirror"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := w.puller.Source(tt.config)
			g.Expect(err).To(MatchError(ContainSubstring(tt.message)))
			g.Expect(reasonOf(err)).To(Equal(oci.ReasonConfiguration))
		})
	}

	g := NewWithT(t)
	_, err := oci.New(oci.Options{})
	g.Expect(err).To(MatchError(ContainSubstring("set Directory")))
	_, err = oci.New(oci.Options{Directory: "/dev/null/x"})
	g.Expect(err).To(MatchError(ContainSubstring("must be able to write")))
}

func TestAfterCloseNothingIsPulled(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	source := w.source(ref(registry.host(), "v1"))
	g.Expect(w.puller.Close()).To(Succeed())
	_, err := source.Load(t.Context())
	g.Expect(err).To(MatchError(context.Canceled))
	g.Expect(registry.asked()).To(BeEmpty())
}
