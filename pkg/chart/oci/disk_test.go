// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
)

// files returns the names of the files that are kept.
func files(t *testing.T, w *world) []string {
	t.Helper()
	entries, err := os.ReadDir(w.opts.Directory)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	var names []string
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// sizes returns the sizes of the files that are kept.
func sizes(t *testing.T, w *world) (largest, sum int64) {
	t.Helper()
	for _, name := range files(t, w) {
		info, err := os.Stat(filepath.Join(w.opts.Directory, name))
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		largest, sum = max(largest, info.Size()), sum+info.Size()
	}
	return largest, sum
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
			config := ref(registry.host(), reference)
			w.expect(config, "1.0.0")
			registry.asked()

			// At once, what the registry said counts still.
			w.restart()
			w.expect(config, "1.0.0")
			g.Expect(registry.asked()).To(BeEmpty())

			// Later it is asked what the tag means, and the chart is used if it is down.
			registry.guard(down)
			w.restart()
			w.clock.Step(time.Hour)
			w.expect(config, "1.0.0")
			w.expect(config, "1.0.0")
			g.Expect(w.metric("cache_hits_total", "disk")).To(Equal(1.0))
			if reference == "v1" {
				g.Expect(w.metric("stale_uses_total", "Unreachable")).To(Equal(2.0))
			} else {
				g.Expect(registry.asked()).To(BeEmpty())
			}

			// Another reference has never been pulled.
			other := ref(registry.host(), "v2")
			w.refused(other, oci.ReasonUnreachable, "")
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
			raw[len(raw)-20] ^= 1
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
				g.Expect(damage(filepath.Join(w.opts.Directory, files(t, w)[0]))).To(Succeed())
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
	kept := files(t, w)

	for _, name := range []string{kept[0] + ".new", "foreign"} {
		g.Expect(os.WriteFile(filepath.Join(w.opts.Directory, name), []byte("half of a chart"), 0o600)).To(Succeed())
		g.Expect(os.Chtimes(filepath.Join(w.opts.Directory, name), time.Unix(0, 0), time.Unix(0, 0))).To(Succeed())
	}
	registry.guard(down)
	_, w.opts.MaxBytes = sizes(t, w)
	w.opts.MaxBytes--
	w.restart()
	w.expect(config, "1.0.0")
	g.Expect(files(t, w)).To(HaveLen(2), "the oldest goes when there is no room")

	registry.guard(nil)
	registry.push(t, "v1", pack(t, "2.0.0", nil))
	w.clock.Step(time.Minute)
	w.expect(config, "2.0.0")
	g.Expect(files(t, w)).To(ContainElements(kept))
}

func TestTheDiskIsBoundedAndWhatWasUsedLongestAgoGoes(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	var configs []configv1alpha1.OCIChart
	for i := range 4 {
		configs = append(configs, ref(registry.host(), registry.push(t, fmt.Sprint(i), pack(t, fmt.Sprintf("%d.0.0", i), nil)).String()))
		w.expect(configs[i], fmt.Sprintf("%d.0.0", i))
	}
	size, _ := sizes(t, w)
	w.opts.Directory, w.opts.MaxBytes = t.TempDir(), 3*size+5
	w.restart()

	for i := range 3 {
		w.clock.Step(time.Second)
		w.expect(configs[i], fmt.Sprintf("%d.0.0", i))
	}
	w.clock.Step(time.Second)
	w.restart()
	w.expect(configs[0], "0.0.0")
	w.clock.Step(time.Second)
	w.expect(configs[3], "3.0.0")
	g.Expect(files(t, w)).To(HaveLen(3))
	_, sum := sizes(t, w)
	g.Expect(sum).To(BeNumerically("<=", w.opts.MaxBytes))

	registry.guard(down)
	w.restart()
	for _, i := range []int{0, 2, 3} {
		w.expect(configs[i], fmt.Sprintf("%d.0.0", i))
	}
	w.refused(configs[1], oci.ReasonUnreachable, "")

	// A smaller bound holds from the start.
	w.opts.MaxBytes = size + 5
	w.restart()
	g.Expect(files(t, w)).To(HaveLen(1))
}

func TestAChartLargerThanTheBoundIsServed(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t, func(o *setup) { o.MaxBytes = 10 })
	config := ref(registry.host(), "v1")
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	w.expect(config, "1.0.0")
	w.expect(config, "1.0.0")
	g.Expect(registry.asked()).To(HaveLen(2))
	g.Expect(files(t, w)).To(BeEmpty())
}

func TestADiskThatCannotBeWrittenToIsNoReasonToFail(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	config := ref(registry.host(), "v1")
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	g.Expect(os.Remove(w.opts.Directory)).To(Succeed())
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
	w := newWorld(t, func(o *setup) { o.MaxBytes = 2000 })

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
	_, sum := sizes(t, w)
	g.Expect(sum).To(BeNumerically("<=", 2000))
	g.Expect(w.metric("cache_corruptions_total")).To(BeZero())
}
