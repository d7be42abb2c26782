// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
)

// sends answers requests for blobs or for manifests.
func sends(kind string, answer func(http.ResponseWriter)) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, request *http.Request) bool {
		if !strings.Contains(request.URL.Path, "/"+kind+"/") {
			return true
		}
		answer(w)
		return false
	}
}

func TestWhatIsNotWhatItsDigestSaysIsRefused(t *testing.T) {
	good, evil := pack(t, "1.0.0", nil), pack(t, "6.6.6", map[string]string{"app/x": "padding"})
	evil = append(evil, make([]byte, max(0, len(good)-len(evil)))...)
	same := bytes.Clone(good)
	same[len(same)/2] ^= 1

	for name, answer := range map[string]struct {
		kind string
		send func(http.ResponseWriter)
	}{
		"an archive of the same size": {"blobs", func(w http.ResponseWriter) { _, _ = w.Write(same) }},
		"a longer archive":            {"blobs", func(w http.ResponseWriter) { _, _ = w.Write(append(bytes.Clone(good), 0)) }},
		"a longer one without a size": {"blobs", func(w http.ResponseWriter) {
			_, _ = w.Write(good)
			_ = http.NewResponseController(w).Flush()
			_, _ = w.Write(evil)
		}},
		"a shorter archive": {"blobs", func(w http.ResponseWriter) { _, _ = w.Write(good[:len(good)-1]) }},
		"another manifest": {"manifests", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			_, _ = w.Write([]byte(`{"schemaVersion":2}`))
		}},
		"another manifest with the digest of this one": {"manifests", func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
			w.Header().Set("Docker-Content-Digest", descriptor("", good).Digest.String())
			_, _ = w.Write([]byte(`{"schemaVersion":2}`))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			registry, w := newRegistry(t), newWorld(t, func(o *setup) { o.Attempts = 3 })
			config := ref(registry.host(), registry.push(t, "v1", good).String())
			registry.guard(sends(answer.kind, answer.send))
			w.refused(config, oci.ReasonDigestMismatch, "push the chart again")
			g.Expect(len(registry.asked())).To(BeNumerically("<=", 2), "it is not asked for again")
			g.Expect(files(t, w)).To(BeEmpty())
			g.Expect(w.metric("pulls_total", "DigestMismatch")).To(Equal(1.0))

			// Nothing of it was kept.
			w.opts.Attempts = 1
			w.restart()
			registry.guard(down)
			w.refused(config, oci.ReasonUnreachable, "")
			registry.guard(nil)
			w.clock.Step(time.Minute)
			w.expect(config, "1.0.0")
		})
	}
}

func TestAnArchiveThatIsCutShortIsAskedForAgainLater(t *testing.T) {
	registry, w := newRegistry(t), newWorld(t)
	archive := pack(t, "1.0.0", nil)
	registry.push(t, "v1", archive)
	config := ref(registry.host(), "v1")
	registry.guard(func(w http.ResponseWriter, request *http.Request) bool {
		if !strings.Contains(request.URL.Path, "/blobs/") {
			return true
		}
		w.Header().Set("Content-Length", fmt.Sprint(len(archive)))
		_, _ = w.Write(archive[:len(archive)/2])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	w.refused(config, oci.ReasonUnreachable, "unexpected EOF")
	registry.guard(nil)
	w.clock.Step(5 * time.Second)
	w.expect(config, "1.0.0")
}

func TestAResponseThatHasNoEndIsNotReadToIt(t *testing.T) {
	for kind, reference := range map[string]string{"manifests": "v1", "blobs": "v1"} {
		t.Run(kind, func(t *testing.T) {
			registry, w := newRegistry(t), newWorld(t)
			registry.push(t, "v1", pack(t, "1.0.0", nil))
			registry.guard(sends(kind, func(w http.ResponseWriter) {
				w.Header().Set("Content-Type", ocispec.MediaTypeImageManifest)
				for chunk := make([]byte, 1<<20); ; {
					if _, err := w.Write(chunk); err != nil {
						return
					}
				}
			}))
			reason := map[string]oci.Reason{"manifests": oci.ReasonTooLarge, "blobs": oci.ReasonDigestMismatch}[kind]
			w.refused(ref(registry.host(), reference), reason, "")
		})
	}
}

func TestOnlyWhatMayPassIsTriedAgain(t *testing.T) {
	for code, tt := range map[int]struct {
		requests int
		reason   oci.Reason
	}{
		http.StatusInternalServerError: {3, oci.ReasonUnreachable},
		http.StatusBadGateway:          {3, oci.ReasonUnreachable},
		http.StatusServiceUnavailable:  {1, oci.ReasonUnreachable},
		http.StatusTooManyRequests:     {1, oci.ReasonUnreachable},
		http.StatusUnauthorized:        {2, oci.ReasonUnauthorized},
		http.StatusForbidden:           {1, oci.ReasonUnauthorized},
		http.StatusNotFound:            {1, oci.ReasonNotFound},
		http.StatusTeapot:              {1, oci.ReasonUnexpectedAnswer},
	} {
		t.Run(http.StatusText(code), func(t *testing.T) {
			registry, w := newRegistry(t), newWorld(t, func(o *setup) { o.Attempts = 3 })
			registry.guard(status(code))
			w.refused(ref(registry.host(), "v1"), tt.reason, registry.host()+"/"+repository+": ")
			NewWithT(t).Expect(registry.asked()).To(HaveLen(tt.requests))
		})
	}

	t.Run("a connection that breaks", func(t *testing.T) {
		registry, w := newRegistry(t), newWorld(t, func(o *setup) { o.Attempts = 3 })
		registry.guard(down)
		w.refused(ref(registry.host(), "v1"), oci.ReasonUnreachable, "EOF")
		NewWithT(t).Expect(len(registry.asked())).To(BeNumerically(">=", 3))
	})
	t.Run("nothing that listens", func(t *testing.T) {
		registry, w := newRegistry(t), newWorld(t, func(o *setup) { o.Attempts = 3 })
		registry.Close()
		w.refused(ref(registry.host(), "v1"), oci.ReasonUnreachable, "connection refused")
		NewWithT(t).Expect(w.metric("registry_requests_total", "error", "GET", registry.host())).To(Equal(2.0), "with TLS and without")
	})
}

func TestALongRetryAfterIsNotWaitedForButLeftAlone(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t, func(o *setup) { o.Attempts = 3 })
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	config := ref(registry.host(), "v1")
	registry.guard(func(writer http.ResponseWriter, _ *http.Request) bool {
		writer.Header().Set("Retry-After", w.clock.Now().Add(2*time.Minute).Format(http.TimeFormat))
		writer.WriteHeader(http.StatusServiceUnavailable)
		return false
	})
	w.refused(config, oci.ReasonUnreachable, "503")
	registry.guard(nil)
	w.clock.Step(2*time.Minute - time.Second)
	w.refused(config, oci.ReasonUnreachable, "503")
	g.Expect(registry.asked()).To(HaveLen(1))
	w.clock.Step(time.Second)
	w.expect(config, "1.0.0")
}

func TestARetryAfterIsNotThatOfALaterFailure(t *testing.T) {
	registry, w := newRegistry(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	config := withPullSecret(ref(registry.host(), "v1"))
	w.login(registry.host(), "user", "secret")
	registry.guard(func(writer http.ResponseWriter, _ *http.Request) bool {
		writer.Header().Set("Retry-After", "300")
		writer.WriteHeader(http.StatusTooManyRequests)
		return false
	})
	w.refused(config, oci.ReasonUnreachable, "429")
	w.clock.Step(5 * time.Minute)

	registry.guard(nil)
	pull := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "pull", Namespace: namespace}}
	NewWithT(t).Expect(w.client.Delete(t.Context(), pull)).To(Succeed())
	w.refused(config, oci.ReasonConfiguration, "Secret instance/pull does not exist")
	w.login(registry.host(), "user", "secret")
	w.clock.Step(5 * time.Second)
	w.expect(config, "1.0.0")
}

func TestARegistryThatHangsDoesNotHangAReconcile(t *testing.T) {
	hang := func(kind string, headers bool) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, request *http.Request) bool {
			if !strings.Contains(request.URL.Path, "/"+kind+"/") {
				return true
			}
			if headers {
				w.Header().Set("Accept-Ranges", "none")
				_ = http.NewResponseController(w).Flush()
			}
			<-request.Context().Done()
			return false
		}
	}
	for name, tt := range map[string]struct {
		change func(*setup)
		door   func(http.ResponseWriter, *http.Request) bool
	}{
		"before the headers":    {func(o *setup) { o.Headers = 200 * time.Millisecond }, hang("manifests", false)},
		"in the archive":        {func(o *setup) { o.Pull = 500 * time.Millisecond }, hang("blobs", true)},
		"longer than the total": {func(o *setup) { o.Total = 500 * time.Millisecond }, hang("blobs", false)},
	} {
		t.Run(name, func(t *testing.T) {
			registry, w := newRegistry(t), newWorld(t, tt.change)
			registry.push(t, "v1", pack(t, "1.0.0", nil))
			config := ref(registry.host(), "v1")
			registry.guard(tt.door)
			w.refused(config, oci.ReasonUnreachable, "")
			registry.guard(nil)
			w.clock.Step(time.Minute)
			w.expect(config, "1.0.0")
		})
	}

	t.Run("when the chart is there", func(t *testing.T) {
		g := NewWithT(t)
		registry, w := newRegistry(t), newWorld(t, func(o *setup) { o.Attempts, o.Check = 3, 20*time.Millisecond })
		registry.push(t, "v1", pack(t, "1.0.0", nil))
		config := ref(registry.host(), "v1")
		w.expect(config, "1.0.0")
		registry.guard(hang("manifests", false))
		w.clock.Step(time.Minute)
		registry.asked()
		for range 5 {
			w.expect(config, "1.0.0")
		}
		g.Expect(registry.asked()).To(HaveLen(1))
		g.Expect(w.metric("stale_uses_total", "Unreachable")).To(Equal(5.0))
	})
}

func TestMirrorsComeFirstAndTheRegistryLast(t *testing.T) {
	g := NewWithT(t)
	first, second, origin, w := newRegistry(t), newRegistry(t), newRegistry(t), newWorld(t)
	config := ref(origin.host(), "v1")
	config.Mirrors = []string{first.host(), second.host()}
	origin.push(t, "v1", pack(t, "0.0.0", nil))
	first.push(t, "v1", pack(t, "1.0.0", nil))
	second.push(t, "v1", pack(t, "2.0.0", nil))

	for _, step := range []struct {
		first, second func(http.ResponseWriter, *http.Request) bool
		version       string
	}{
		{nil, nil, "1.0.0"},
		{down, nil, "2.0.0"},
		{status(http.StatusNotFound), status(http.StatusServiceUnavailable), "0.0.0"},
		{status(http.StatusForbidden), sends("blobs", func(w http.ResponseWriter) { _, _ = w.Write([]byte("?")) }), "0.0.0"},
	} {
		w.opts.Directory = t.TempDir()
		w.restart()
		first.guard(step.first)
		second.guard(step.second)
		w.expect(config, step.version)
	}

	w.opts.Directory = t.TempDir()
	w.restart()
	first.guard(nil)
	origin.asked()
	w.expect(config, "1.0.0")
	g.Expect(origin.asked()).To(BeEmpty())

	// In a network without a way out.
	origin.Close()
	w.clock.Step(time.Minute)
	w.expect(config, "1.0.0")
	g.Expect(w.metric("stale_uses_total")).To(BeZero())
	first.guard(status(http.StatusForbidden))
	second.guard(down)
	w.clock.Step(time.Minute)
	w.refused(config, oci.ReasonUnauthorized, "403")
}

func TestAMirrorMayHaveAPrefix(t *testing.T) {
	mirror, w := newRegistry(t), newWorld(t)
	mirror.push(t, "v1", pack(t, "1.0.0", nil))
	w.expect(configv1alpha1.OCIChart{Ref: "registry.example.invalid/app:v1", Mirrors: []string{mirror.host() + "/charts"}}, "1.0.0")
}

func TestWhatIsNotOneChartIsAnErrorThatTellsWhatToDo(t *testing.T) {
	good, zeros := pack(t, "1.0.0", nil), map[string]string{}
	for i := range 7 {
		zeros[fmt.Sprintf("app/%d", i)] = strings.Repeat("\x00", 5<<20)
	}
	for name, tt := range map[string]struct {
		push    func(*fakeRegistry) error
		reason  oci.Reason
		message string
	}{
		"an index": {func(r *fakeRegistry) error {
			raw, err := json.Marshal(ocispec.Index{MediaType: ocispec.MediaTypeImageIndex})
			r.put(t, http.MethodPut, "/manifests/v1", ocispec.MediaTypeImageIndex, raw)
			return err
		}, oci.ReasonNotAChart, "name one of them by its digest: ref must lead to one chart that was pushed by helm push"},
		"a container image": {func(r *fakeRegistry) error {
			r.pushManifest(t, "v1", ocispec.MediaTypeImageLayerGzip, good, nil)
			return nil
		}, oci.ReasonNotAChart, "0 layers of type " + oci.MediaType},
		"two charts": {func(r *fakeRegistry) error {
			r.pushManifest(t, "v1", oci.MediaType, good, func(m *ocispec.Manifest) { m.Layers = append(m.Layers, m.Layers[0]) })
			return nil
		}, oci.ReasonNotAChart, "2 layers"},
		"a huge manifest": {func(r *fakeRegistry) error {
			r.pushManifest(t, "v1", oci.MediaType, good, func(m *ocispec.Manifest) {
				m.Annotations = map[string]string{"x": strings.Repeat("x", 300<<10)}
			})
			return nil
		}, oci.ReasonTooLarge, "make the chart smaller"},
		"an archive that says it is huge": {func(r *fakeRegistry) error {
			r.pushManifest(t, "v1", oci.MediaType, good, func(m *ocispec.Manifest) { m.Layers[0].Size = 1 << 40 })
			return nil
		}, oci.ReasonTooLarge, "more than 8388608"},
		"an archive with a digest that is none": {func(r *fakeRegistry) error {
			r.pushManifest(t, "v1", oci.MediaType, good, func(m *ocispec.Manifest) { m.Layers[0].Digest = "../../etc/passwd" })
			return nil
		}, oci.ReasonNotAChart, "reading the manifest"},
		"no archive": {func(r *fakeRegistry) error {
			r.push(t, "v1", []byte("text"))
			return nil
		}, oci.ReasonNotAChart, "decompressing it"},
		"an archive without a chart": {func(r *fakeRegistry) error {
			r.push(t, "v1", archiveOf(t, map[string]string{"app/README.md": "x"}))
			return nil
		}, oci.ReasonNotAChart, "Chart.yaml file is missing"},
		"a bomb": {func(r *fakeRegistry) error {
			r.push(t, "v1", pack(t, "1.0.0", zeros))
			return nil
		}, oci.ReasonTooLarge, "decompressed it has more than 33554432 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			registry, w := newRegistry(t), newWorld(t)
			NewWithT(t).Expect(tt.push(registry)).To(Succeed())
			w.refused(ref(registry.host(), "v1"), tt.reason, tt.message)
			NewWithT(t).Expect(files(t, w)).To(BeEmpty())
		})
	}
}

func TestABrokenChartUnderAMovedTagIsNotHidden(t *testing.T) {
	registry, w := newRegistry(t), newWorld(t)
	config := ref(registry.host(), "v1")
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	w.expect(config, "1.0.0")
	registry.push(t, "v1", []byte("text"))
	w.clock.Step(time.Minute)
	w.refused(config, oci.ReasonNotAChart, "decompressing it")
}

func TestWhatARegistryWritesIsNotRepeated(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	var asked atomic.Int32
	registry.guard(func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = fmt.Fprintf(w, `{"errors":[{"code":"NAME_INVALID","message":"request %d of somebody"}]}`, asked.Add(1))
		return false
	})
	config := ref(registry.host(), "v1")
	_, first := w.version(config)
	g.Expect(first).To(MatchError(And(ContainSubstring("response status code 400: Bad Request"), Not(ContainSubstring("somebody")))))
	before := asked.Load()
	w.clock.Step(time.Hour)
	_, second := w.version(config)
	g.Expect(asked.Load()).To(BeNumerically(">", before))
	g.Expect(second).To(MatchError(first.Error()))
}
