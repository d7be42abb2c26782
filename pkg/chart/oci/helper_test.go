// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	ggcr "github.com/google/go-containerregistry/pkg/registry"
	. "github.com/onsi/gomega"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
)

const (
	namespace  = "instance"
	repository = "charts/app"
)

// fakeRegistry is a real registry, with a door in front of it that counts and that a test may close.
type fakeRegistry struct {
	*httptest.Server
	content http.Handler

	lock     sync.Mutex
	requests []string
	door     func(http.ResponseWriter, *http.Request) bool
}

func newRegistry(t testing.TB) *fakeRegistry {
	t.Helper()
	r := unstarted()
	r.Start()
	t.Cleanup(r.Close)
	return r
}

func newTLSRegistry(t testing.TB) *fakeRegistry {
	t.Helper()
	r := unstarted()
	r.StartTLS()
	t.Cleanup(r.Close)
	return r
}

func unstarted() *fakeRegistry {
	silent := log.New(io.Discard, "", 0)
	r := &fakeRegistry{content: ggcr.New(ggcr.Logger(silent))}
	r.Server = httptest.NewUnstartedServer(r)
	r.Config.ErrorLog = silent
	return r
}

// ServeHTTP lets a request through the door.
func (r *fakeRegistry) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	kind := "other"
	for _, known := range []string{"manifests", "blobs"} {
		if strings.Contains(request.URL.Path, "/"+known+"/") {
			kind = known
		}
	}
	r.lock.Lock()
	r.requests = append(r.requests, request.Method+" "+kind)
	door := r.door
	r.lock.Unlock()
	if door == nil || door(w, request) {
		r.content.ServeHTTP(w, request)
	}
}

// guard puts a door in front of the registry. It lets in what it returns true for, and answers itself otherwise.
func (r *fakeRegistry) guard(door func(http.ResponseWriter, *http.Request) bool) {
	r.lock.Lock()
	defer r.lock.Unlock()
	r.door = door
}

// asked returns the requests since it was called last.
func (r *fakeRegistry) asked() []string {
	r.lock.Lock()
	defer r.lock.Unlock()
	asked := r.requests
	r.requests = nil
	return asked
}

func (r *fakeRegistry) host() string { return r.Listener.Addr().String() }

func (r *fakeRegistry) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: r.Certificate().Raw})
}

// put sends content to the registry without the door.
func (r *fakeRegistry) put(t testing.TB, method, path, mediaType string, content []byte) {
	t.Helper()
	request := httptest.NewRequest(method, "/v2/"+repository+path, bytes.NewReader(content))
	request.Header.Set("Content-Type", mediaType)
	recorder := httptest.NewRecorder()
	r.content.ServeHTTP(recorder, request)
	NewWithT(t).Expect(recorder.Code).To(Equal(http.StatusCreated), recorder.Body.String())
}

// push pushes an archive as Helm does, and returns the digest of the manifest.
func (r *fakeRegistry) push(t testing.TB, tag string, archive []byte) digest.Digest {
	t.Helper()
	return r.pushManifest(t, tag, oci.MediaType, archive, nil)
}

func (r *fakeRegistry) pushManifest(t testing.TB, tag, mediaType string, archive []byte, change func(*ocispec.Manifest)) digest.Digest {
	t.Helper()
	g := NewWithT(t)
	config := []byte(`{"name":"app","version":"0.1.0","apiVersion":"v2"}`)
	manifest := ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2},
		MediaType: ocispec.MediaTypeImageManifest,
		Config:    descriptor("application/vnd.cncf.helm.config.v1+json", config),
		Layers:    []ocispec.Descriptor{descriptor(mediaType, archive)},
	}
	for _, blob := range [][]byte{config, archive} {
		r.put(t, http.MethodPost, "/blobs/uploads/?digest="+digest.FromBytes(blob).String(), "application/octet-stream", blob)
	}
	if change != nil {
		change(&manifest)
	}
	raw, err := json.Marshal(manifest)
	g.Expect(err).NotTo(HaveOccurred())
	r.put(t, http.MethodPut, "/manifests/"+tag, manifest.MediaType, raw)
	return digest.FromBytes(raw)
}

func descriptor(mediaType string, content []byte) ocispec.Descriptor {
	return ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(content), Size: int64(len(content))}
}

// pack makes an archive of a chart of this version, with more files.
func pack(t testing.TB, version string, more map[string]string) []byte {
	t.Helper()
	files := map[string]string{
		"app/Chart.yaml":         "apiVersion: v2\nname: app\nversion: " + version + "\n",
		"app/values.yaml":        "replicas: 1\n",
		"app/templates/map.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: app\n",
	}
	maps.Copy(files, more)
	return archiveOf(t, files)
}

func archiveOf(t testing.TB, files map[string]string) []byte {
	t.Helper()
	g := NewWithT(t)
	out := &bytes.Buffer{}
	zipped := gzip.NewWriter(out)
	writer := tar.NewWriter(zipped)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		g.Expect(writer.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(files[name]))})).To(Succeed())
		_, err := writer.Write([]byte(files[name]))
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(writer.Close()).To(Succeed())
	g.Expect(zipped.Close()).To(Succeed())
	return out.Bytes()
}

// world is what a Puller runs in. A Puller that is opened again is as after a restart.
type world struct {
	t        testing.TB
	clock    *clocktesting.FakeClock
	client   client.Client
	reads    int
	readLock sync.Mutex
	metrics  *prometheus.Registry
	opts     setup
	puller   *oci.Puller
	lock     sync.Mutex
	sources  map[string]chart.Source
}

// setup are the options of a Puller and its waits.
type setup struct {
	oci.Options
	oci.Timing
}

// newWorld has an instance whose clock stands still and which tries everything once.
func newWorld(t testing.TB, change ...func(*setup)) *world {
	t.Helper()
	w := &world{t: t, clock: clocktesting.NewFakeClock(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))}
	w.client = fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
			w.readLock.Lock()
			w.reads++
			w.readLock.Unlock()
			return c.Get(ctx, key, object, opts...)
		},
	}).Build()
	w.opts.Options = oci.Options{Directory: t.TempDir(), Reader: w.client, Namespace: namespace, Log: logr.Discard(), Clock: w.clock}
	w.opts.Timing = oci.Timing{Attempts: 1}
	for _, c := range change {
		c(&w.opts)
	}
	w.open()
	t.Cleanup(func() { _ = w.puller.Close() })
	return w
}

func (w *world) open() {
	w.t.Helper()
	w.metrics = prometheus.NewPedanticRegistry()
	w.opts.Registerer = w.metrics
	var err error
	w.puller, err = oci.New(w.opts.Options)
	NewWithT(w.t).Expect(err).NotTo(HaveOccurred())
	w.puller.SetTiming(w.opts.Timing)
	w.sources = map[string]chart.Source{}
}

func (w *world) restart() {
	w.t.Helper()
	NewWithT(w.t).Expect(w.puller.Close()).To(Succeed())
	w.open()
}

func (w *world) secret(name, key string, value []byte) {
	w.t.Helper()
	g := NewWithT(w.t)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Data: map[string][]byte{key: value}}
	g.Expect(client.IgnoreNotFound(w.client.Delete(w.t.Context(), secret.DeepCopy()))).To(Succeed())
	g.Expect(w.client.Create(w.t.Context(), secret)).To(Succeed())
}

// login sets the credentials for a registry, in the Secret "pull".
func (w *world) login(host, user, password string) {
	w.t.Helper()
	config, err := json.Marshal(map[string]any{"auths": map[string]any{host: map[string]string{"username": user, "password": password}}})
	NewWithT(w.t).Expect(err).NotTo(HaveOccurred())
	w.secret("pull", corev1.DockerConfigJsonKey, config)
}

// source returns the one source with this configuration.
func (w *world) source(config configv1alpha1.OCIChart) chart.Source {
	w.t.Helper()
	g := NewWithT(w.t)
	key, err := json.Marshal(config)
	g.Expect(err).NotTo(HaveOccurred())
	w.lock.Lock()
	defer w.lock.Unlock()
	if w.sources[string(key)] == nil {
		w.sources[string(key)], err = w.puller.Source(config)
		g.Expect(err).NotTo(HaveOccurred())
	}
	return w.sources[string(key)]
}

// version loads the chart and returns its version.
func (w *world) version(config configv1alpha1.OCIChart) (string, error) {
	w.t.Helper()
	archive, err := w.source(config).Load(w.t.Context())
	if err != nil {
		return "", err
	}
	return archive.Chart.Metadata.Version, nil
}

// expect loads the chart and expects this version.
func (w *world) expect(config configv1alpha1.OCIChart, version string) {
	w.t.Helper()
	NewWithT(w.t).Expect(w.version(config)).To(Equal(version))
}

// refused loads the chart and expects an error of this reason.
func (w *world) refused(config configv1alpha1.OCIChart, reason oci.Reason, text string) {
	w.t.Helper()
	g := NewWithT(w.t)
	_, err := w.version(config)
	g.Expect(err).To(MatchError(ContainSubstring(text)))
	g.Expect(reasonOf(err)).To(Equal(reason), err.Error())
	g.Expect(err.Error()).To(HavePrefix("getting chart " + config.Ref + ": "))
}

// metric sums up the values of a metric, or those whose labels are all these values.
func (w *world) metric(name string, labels ...string) float64 {
	w.t.Helper()
	families, err := w.metrics.Gather()
	NewWithT(w.t).Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, family := range families {
		if family.GetName() != "provider_local_chart_"+name {
			continue
		}
		for _, metric := range family.GetMetric() {
			var values []string
			for _, label := range metric.GetLabel() {
				values = append(values, label.GetValue())
			}
			if len(labels) == 0 || slices.Equal(values, labels) {
				sum += metric.GetCounter().GetValue() + metric.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func ref(host string, reference string) configv1alpha1.OCIChart {
	if strings.Contains(reference, ":") {
		return configv1alpha1.OCIChart{Ref: host + "/" + repository + "@" + reference}
	}
	return configv1alpha1.OCIChart{Ref: host + "/" + repository + ":" + reference}
}

func withPullSecret(config configv1alpha1.OCIChart) configv1alpha1.OCIChart {
	config.PullSecretRef = &corev1.LocalObjectReference{Name: "pull"}
	return config
}

func withCA(config configv1alpha1.OCIChart) configv1alpha1.OCIChart {
	config.CABundleSecretRef = &corev1.LocalObjectReference{Name: "ca"}
	return config
}

// down answers nothing: the connection breaks.
func down(http.ResponseWriter, *http.Request) bool { panic(http.ErrAbortHandler) }

// status answers with a status.
func status(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(code)
		return false
	}
}

// basicAuth lets in one user.
func basicAuth(user, password string) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, request *http.Request) bool {
		if u, p, ok := request.BasicAuth(); ok && u == user && p == password {
			return true
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
		w.WriteHeader(http.StatusUnauthorized)
		return false
	}
}

func reasonOf(err error) oci.Reason {
	var known *oci.Error
	if errors.As(err, &known) {
		return known.Reason
	}
	return ""
}
