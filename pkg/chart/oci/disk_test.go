// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
)

func charts(t *testing.T, w *world) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(w.opts.Directory, "charts"))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func TestAfterARestartAKeptChartNeedsNoRegistry(t *testing.T) {
	for name, reference := range map[string]string{"by tag": "v1", "by digest": ""} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			registry, w := newRegistry(t), newWorld(t)
			manifest := registry.push(t, "v1", pack(t, "1.0.0", nil))
			if reference == "" {
				reference = manifest.String()
			}
			registry.guard(basicAuth("user", "right"))
			w.login(registry.host(), "user", "right")
			config := withPullSecret(ref(registry.host(), reference))
			w.expect(config, "1.0.0")
			registry.asked()

			// At once, what the registry said counts still.
			w.restart()
			w.expect(config, "1.0.0")
			g.Expect(registry.asked()).To(BeEmpty())

			// Later it is asked, and what it said before is used if it is down.
			registry.guard(down)
			w.restart()
			w.clock.Step(time.Hour)
			w.expect(config, "1.0.0")
			w.expect(config, "1.0.0")
			g.Expect(w.metric("stale_uses_total", "Unreachable")).To(Equal(2.0))
			g.Expect(w.metric("cache_hits_total", "disk")).To(Equal(1.0))

			// Others have never been allowed anything.
			w.login(registry.host(), "user", "other")
			w.clock.Step(time.Minute)
			w.refused(config, oci.ReasonUnreachable, "")

			registry.guard(basicAuth("user", "right"))
			w.login(registry.host(), "user", "right")
			w.clock.Step(time.Minute)
			w.expect(config, "1.0.0")
		})
	}
}

func TestWhatATagMeantLastIsUsedWhileTheRegistryIsDown(t *testing.T) {
	registry, w := newRegistry(t), newWorld(t)
	config := ref(registry.host(), "v1")
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	w.expect(config, "1.0.0")
	registry.push(t, "v1", pack(t, "2.0.0", nil))
	w.clock.Step(time.Minute)
	w.expect(config, "2.0.0")

	registry.guard(down)
	w.restart()
	w.clock.Step(time.Minute)
	w.expect(config, "2.0.0")

	// A tag that was moved to something that cannot be pulled at the time.
	registry.guard(nil)
	registry.push(t, "v1", pack(t, "3.0.0", nil))
	registry.guard(sends("blobs", func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }))
	w.clock.Step(time.Minute)
	w.expect(config, "2.0.0")
	registry.guard(nil)
	w.clock.Step(time.Minute)
	w.expect(config, "3.0.0")
}

func TestAChartThatIsGoneFromTheRegistryIsUsedStill(t *testing.T) {
	registry, w := newRegistry(t), newWorld(t)
	config := ref(registry.host(), "v1")
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	w.expect(config, "1.0.0")
	registry.guard(status(http.StatusNotFound))
	w.clock.Step(time.Minute)
	w.expect(config, "1.0.0")
	NewWithT(t).Expect(w.metric("stale_uses_total", "NotFound")).To(Equal(1.0))
}

func TestADamagedFileIsPulledAgain(t *testing.T) {
	for name, damage := range map[string]func(path string) error{
		"cut short": func(path string) error { return os.Truncate(path, 10) },
		"emptied":   func(path string) error { return os.Truncate(path, 0) },
		"longer":    func(path string) error { return os.Truncate(path, 10_000) },
		"other content of the same size": func(path string) error {
			raw, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			raw[len(raw)/2] ^= 1
			return os.WriteFile(path, raw, 0o600)
		},
		"removed": os.Remove,
		"a link to elsewhere": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Symlink("/etc/passwd", path)
		},
		"a folder": func(path string) error {
			if err := os.Remove(path); err != nil {
				return err
			}
			return os.Mkdir(path, 0o700)
		},
	} {
		for when, restartFirst := range map[string]bool{"while it runs": true, "before it starts": false} {
			t.Run(name+" "+when, func(t *testing.T) {
				g := NewWithT(t)
				registry, w := newRegistry(t), newWorld(t)
				config := ref(registry.host(), "v1")
				registry.push(t, "v1", pack(t, "1.0.0", nil))
				w.expect(config, "1.0.0")
				registry.asked()

				if restartFirst {
					w.restart()
				}
				g.Expect(damage(filepath.Join(w.opts.Directory, "charts", charts(t, w)[0]))).To(Succeed())
				if !restartFirst {
					w.restart()
				}
				w.expect(config, "1.0.0")
				g.Expect(registry.asked()).To(Equal([]string{"GET manifests", "GET blobs"}))

				w.restart()
				w.expect(config, "1.0.0")
				g.Expect(registry.asked()).To(BeEmpty())
			})
		}
	}
}

func TestWhatACrashLeavesIsCleanedUp(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	config := ref(registry.host(), "v1")
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	w.expect(config, "1.0.0")
	kept := charts(t, w)

	for name, content := range map[string]string{
		"unfinished/ABC": "half of a chart",
		"charts/foreign": "x",
		"grants/broken":  "{",
		"grants/orphan":  `{"chart":"sha256:` + strings.Repeat("0", 64) + `"}`,
		"grants/evil":    `{"chart":"../../x"}`,
	} {
		g.Expect(os.WriteFile(filepath.Join(w.opts.Directory, name), []byte(content), 0o600)).To(Succeed())
	}
	registry.guard(down)
	w.restart()
	w.expect(config, "1.0.0")
	g.Expect(charts(t, w)).To(Equal(kept))
	g.Expect(filepath.Glob(filepath.Join(w.opts.Directory, "unfinished", "*"))).To(BeEmpty())
	g.Expect(filepath.Glob(filepath.Join(w.opts.Directory, "grants", "*"))).To(HaveLen(1))
}

func TestWithoutItsKeyWhatWasAllowedIsAskedForAgain(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	config := ref(registry.host(), "v1")
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	w.expect(config, "1.0.0")
	registry.asked()
	g.Expect(os.WriteFile(filepath.Join(w.opts.Directory, "key"), []byte("short"), 0o600)).To(Succeed())
	w.restart()
	w.expect(config, "1.0.0")
	g.Expect(registry.asked()).To(Equal([]string{"GET manifests"}))
}

func TestTheDiskIsBoundedAndWhatWasUsedLongestAgoGoes(t *testing.T) {
	g := NewWithT(t)
	var configs []configv1alpha1.OCIChart
	registry := newRegistry(t)
	var size int64
	for i := range 4 {
		archive := pack(t, fmt.Sprintf("%d.0.0", i), nil)
		size = max(size, int64(len(archive)))
		configs = append(configs, ref(registry.host(), registry.push(t, fmt.Sprint(i), archive).String()))
	}
	w := newWorld(t, func(o *oci.Options) { o.MaxBytes, o.MemoryBytes = 3*size+5, 1 })

	for i := range 3 {
		w.expect(configs[i], fmt.Sprintf("%d.0.0", i))
		w.clock.Step(time.Second)
	}
	w.expect(configs[0], "0.0.0")
	w.clock.Step(time.Second)
	// The order is that of use, also after a restart, and whatever the file system thinks of it.
	w.restart()
	w.expect(configs[3], "3.0.0")
	g.Expect(w.metric("cache_evictions_total", "disk")).To(Equal(1.0))
	g.Expect(w.metric("cache_entries", "disk")).To(Equal(3.0))
	g.Expect(w.metric("cache_bytes", "disk")).To(BeNumerically("<=", w.opts.MaxBytes))
	g.Expect(charts(t, w)).To(HaveLen(3))

	registry.guard(down)
	for _, i := range []int{0, 2, 3} {
		w.expect(configs[i], fmt.Sprintf("%d.0.0", i))
	}
	w.refused(configs[1], oci.ReasonUnreachable, "")

	// A smaller bound holds from the start.
	w.opts.MaxBytes = size + 5
	w.restart()
	g.Expect(charts(t, w)).To(HaveLen(1))
}

func TestAChartLargerThanTheBoundIsServed(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t, func(o *oci.Options) { o.MaxBytes, o.MemoryBytes = 10, 10 })
	config := ref(registry.host(), "v1")
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	w.expect(config, "1.0.0")
	w.expect(config, "1.0.0")
	g.Expect(registry.asked()).To(HaveLen(4))
	g.Expect(charts(t, w)).To(BeEmpty())
}

func TestADiskThatCannotBeWrittenToIsNoReasonToFail(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	config := ref(registry.host(), "v1")
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	g.Expect(os.Remove(filepath.Join(w.opts.Directory, "unfinished"))).To(Succeed())
	w.expect(config, "1.0.0")
	registry.asked()
	w.expect(config, "1.0.0")
	w.clock.Step(time.Minute)
	w.expect(config, "1.0.0")
	g.Expect(registry.asked()).To(Equal([]string{"HEAD manifests"}))
}

func TestManyChartsMayBeUsedAtOnceWithLittleRoom(t *testing.T) {
	g := NewWithT(t)
	registry := newRegistry(t)
	var configs []configv1alpha1.OCIChart
	for i := range 8 {
		configs = append(configs, ref(registry.host(), registry.push(t, fmt.Sprint(i), pack(t, fmt.Sprintf("%d.0.0", i), nil)).String()))
	}
	w := newWorld(t, func(o *oci.Options) { o.MaxBytes, o.MemoryBytes = 1000, 5000 })

	var wait sync.WaitGroup
	failures := make(chan string, 1000)
	for worker := range 8 {
		wait.Go(func() {
			for round := range 20 {
				i := (worker + round) % len(configs)
				if version, err := w.version(configs[i]); err != nil || version != fmt.Sprintf("%d.0.0", i) {
					failures <- fmt.Sprintf("%s %v", version, err)
				}
			}
		})
	}
	wait.Wait()
	close(failures)
	for failure := range failures {
		t.Error(failure)
	}
	g.Expect(w.metric("cache_bytes", "disk")).To(BeNumerically("<=", 1000))
	g.Expect(w.metric("cache_corruptions_total")).To(BeZero())
}
