// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
	. "github.com/onsi/gomega"
)

// quick are the options of most tests: nobody's credentials, and attempts in quick succession.
func quick() Options {
	return Options{
		Credentials: authn.NewMultiKeychain(),
		Backoff:     remote.Backoff{Duration: time.Millisecond, Factor: 1, Steps: 4},
	}
}

func newClient(t *testing.T, opts Options) *Client {
	t.Helper()
	client, err := NewClient(opts)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return client
}

func plainRegistry() http.Handler {
	return registry.New(registry.Logger(log.New(io.Discard, "", 0)))
}

// artifact is a small image.
func artifact(t *testing.T) v1.Image {
	t.Helper()
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer([]byte("content"), types.OCILayer))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return img
}

func digestOf(t *testing.T, artifact Artifact) string {
	t.Helper()
	digest, err := artifact.Digest()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return digest.String()
}

func hostOf(server *httptest.Server) string {
	_, host, _ := strings.Cut(server.URL, "://")
	return host
}

func TestWhatIsPushedTwiceHasOneDigestAndIsUploadedOnce(t *testing.T) {
	g := NewWithT(t)
	var uploads atomic.Int32
	handler := plainRegistry()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/blobs/") {
			uploads.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)

	client := newClient(t, quick())
	first, err := client.Push(t.Context(), hostOf(server)+"/a/b:one", artifact(t))
	g.Expect(err).NotTo(HaveOccurred())
	second, err := client.Push(t.Context(), hostOf(server)+"/a/b:two", artifact(t))
	g.Expect(err).NotTo(HaveOccurred())

	g.Expect(first).To(Equal(second))
	g.Expect(first).To(Equal(hostOf(server) + "/a/b@" + digestOf(t, artifact(t))))
	g.Expect(uploads.Load()).To(BeEquivalentTo(2), "the layer and the configuration")

	for _, ref := range []string{":one", ":two", "@" + digestOf(t, artifact(t))} {
		g.Expect(client.Resolve(t.Context(), hostOf(server)+"/a/b"+ref)).To(Equal(first))
	}
}

func TestAReferenceByDigestIsResolvedWithoutARegistry(t *testing.T) {
	g := NewWithT(t)
	digest := digestOf(t, artifact(t))
	client := newClient(t, quick())
	g.Expect(client.Resolve(t.Context(), "nowhere.invalid/a/b@"+digest)).To(Equal("nowhere.invalid/a/b@" + digest))
	g.Expect(client.Resolve(t.Context(), "nowhere.invalid/a/b:tag@"+digest)).To(Equal("nowhere.invalid/a/b@" + digest))
}

func TestAReferenceThatIsNotThereIsToldApart(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(plainRegistry())
	t.Cleanup(server.Close)
	_, err := newClient(t, quick()).Resolve(t.Context(), hostOf(server)+"/a/b:one")
	g.Expect(NotFound(err)).To(BeTrue())
}

func TestTLSIsCheckedAgainstTheGivenAuthority(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewUnstartedServer(plainRegistry())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)

	_, err := newClient(t, quick()).Push(t.Context(), hostOf(server)+"/a/b:c", artifact(t))
	g.Expect(err).To(MatchError(ContainSubstring("--ca-file")))

	opts := quick()
	opts.CAFile = filepath.Join(t.TempDir(), "ca.pem")
	g.Expect(os.WriteFile(opts.CAFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600)).To(Succeed())
	_, err = newClient(t, opts).Push(t.Context(), hostOf(server)+"/a/b:c", artifact(t))
	g.Expect(err).NotTo(HaveOccurred())

	opts.CAFile = filepath.Join(t.TempDir(), "none")
	g.Expect(os.WriteFile(opts.CAFile, []byte("no certificate"), 0o600)).To(Succeed())
	_, err = NewClient(opts)
	g.Expect(err).To(MatchError(ContainSubstring("no certificate in PEM")))
}

func basicAuth(user, password string, handler http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); !ok || u != user || p != password {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	})
}

func TestStoredCredentialsAreUsed(t *testing.T) {
	server := httptest.NewServer(basicAuth("user", "secret", plainRegistry()))
	t.Cleanup(server.Close)
	ref := hostOf(server) + "/a/b:c"

	for name, tc := range map[string]struct {
		config string
		says   string
	}{
		"the right ones":             {`{"auths":{"` + hostOf(server) + `":{"auth":"dXNlcjpzZWNyZXQ="}}}`, ""},
		"the wrong ones":             {`{"auths":{"` + hostOf(server) + `":{"auth":"dXNlcjp3cm9uZw=="}}}`, "log in to the registry"},
		"none for this registry":     {`{"auths":{"elsewhere":{"auth":"dXNlcjpzZWNyZXQ="}}}`, "log in to the registry"},
		"a configuration that isn't": {`{`, "config.json"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			folder := t.TempDir()
			t.Setenv("DOCKER_CONFIG", folder)
			g.Expect(os.WriteFile(filepath.Join(folder, "config.json"), []byte(tc.config), 0o600)).To(Succeed())

			client, err := NewClient(Options{Backoff: quick().Backoff})
			if err == nil {
				_, err = client.Push(t.Context(), ref, artifact(t))
			}
			if tc.says == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(tc.says)))
			}
		})
	}
}

func TestAPasswordIsNotSentInTheClearUnlessAsked(t *testing.T) {
	var authorized atomic.Int32
	handler := basicAuth("user", "secret", plainRegistry())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" {
			authorized.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)

	opts := quick()
	opts.Credentials = credentials{Username: "user", Password: "secret"}
	push := func(opts Options) error {
		base := http.DefaultTransport.(*http.Transport).Clone()
		base.Proxy = nil
		base.DialContext = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, hostOf(server))
		}
		client := newClient(t, opts)
		client.remote = append(client.remote, remote.WithTransport(cautious{base: base, plainHTTP: opts.PlainHTTP}))
		_, err := client.Push(t.Context(), "10.0.0.1:5000/a/b:c", artifact(t))
		return err
	}

	g := NewWithT(t)
	g.Expect(push(opts)).NotTo(Succeed())
	g.Expect(authorized.Load()).To(BeZero())

	opts.PlainHTTP = true
	g.Expect(push(opts)).To(Succeed())
	g.Expect(authorized.Load()).NotTo(BeZero())
}

func TestOnlyLocalRegistriesGetPlainHTTPUnasked(t *testing.T) {
	for host, local := range map[string]bool{
		"localhost:5001": true, "127.0.0.1:5001": true, "[::1]:5001": true, "172.18.255.1:5001": true, "10.0.0.1": true,
		"192.168.1.1:80": true, "registry.local.gardener.cloud:5001": true, "registry.local.gardener.cloud": true,
		"172.32.0.1": false, "8.8.8.8:5000": false, "example.com": false, "localhost.example.com": false, "evil-registry.local.gardener.cloud.example.com": false,
	} {
		g := NewWithT(t)
		parsed, _, err := newClient(t, quick()).parse(host + "/a/b:c")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(parsed.Context().Scheme()).To(Equal(map[bool]string{true: "http", false: "https"}[local]), host)
	}
}

// credentials are the same for each registry.
type credentials authn.AuthConfig

func (c credentials) Resolve(authn.Resource) (authn.Authenticator, error) {
	return authn.FromConfig(authn.AuthConfig(c)), nil
}

func TestFailuresThatPassAreTriedAgainAndOthersAreNot(t *testing.T) {
	for name, tc := range map[string]struct {
		status   int
		failures int32
		succeeds bool
		requests int32
	}{
		"a fault that passes":          {http.StatusServiceUnavailable, 2, true, 3},
		"too many requests for now":    {http.StatusTooManyRequests, 1, true, 2},
		"a fault that stays":           {http.StatusBadGateway, 100, false, 4},
		"a refusal is final at once":   {http.StatusForbidden, 100, false, 1},
		"nothing to find, likewise so": {http.StatusNotFound, 100, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			var manifests atomic.Int32
			handler := plainRegistry()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/manifests/") {
					if n := manifests.Add(1); n <= tc.failures {
						w.WriteHeader(tc.status)
						return
					}
				}
				handler.ServeHTTP(w, r)
			}))
			t.Cleanup(server.Close)

			_, err := newClient(t, quick()).Push(t.Context(), hostOf(server)+"/a/b:c", artifact(t))
			g.Expect(err == nil).To(Equal(tc.succeeds), "%v", err)
			g.Expect(manifests.Load()).To(Equal(tc.requests))
		})
	}
}

func TestAnUploadThatBreaksOffStartsAnew(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(plainRegistry())
	t.Cleanup(server.Close)

	broken := &brokenLayer{Layer: static.NewLayer([]byte("content"), types.OCILayer)}
	img, err := mutate.AppendLayers(empty.Image, broken)
	g.Expect(err).NotTo(HaveOccurred())
	_, err = newClient(t, quick()).Push(t.Context(), hostOf(server)+"/a/b:c", img)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(broken.opened).To(BeNumerically(">", 1))
}

// brokenLayer breaks off when it is read for the first time.
type brokenLayer struct {
	v1.Layer
	opened int
}

func (b *brokenLayer) Compressed() (io.ReadCloser, error) {
	if b.opened++; b.opened == 1 {
		return io.NopCloser(io.MultiReader(strings.NewReader("c"), brokenReader{})), nil
	}
	return b.Layer.Compressed()
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

func TestARegistryThatIsDownIsAnErrorThatSaysSo(t *testing.T) {
	g := NewWithT(t)
	server := httptest.NewServer(plainRegistry())
	host := hostOf(server)
	server.Close()
	_, err := newClient(t, quick()).Push(t.Context(), host+"/a/b:c", artifact(t))
	g.Expect(err).To(MatchError(ContainSubstring("is the registry up")))
}

func TestAnEndedContextEndsTheAttempts(t *testing.T) {
	g := NewWithT(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		cancel(errors.New("enough"))
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(server.Close)
	opts := quick()
	opts.Backoff = remote.Backoff{Duration: time.Millisecond, Steps: 10}
	_, err := newClient(t, opts).Push(ctx, hostOf(server)+"/a/b:c", artifact(t))
	g.Expect(err).To(HaveOccurred())
}

func TestReferencesThatAreNoneAreRefused(t *testing.T) {
	for _, ref := range []string{"", "a", "host/a:b", "a.b/UPPER:tag", "a.b/c/d", "a.b/c/d:e:f", "a.b/c/d@sha256:1"} {
		_, err := newClient(t, quick()).Push(t.Context(), ref, artifact(t))
		NewWithT(t).Expect(err).To(HaveOccurred(), ref)
	}
}

func TestRenameChangesTheRegistryOnly(t *testing.T) {
	g := NewWithT(t)
	g.Expect(Rename("127.0.0.1:5001/x/a@d", "127.0.0.1:5001", "registry:5001")).To(Equal("registry:5001/x/a@d"))
	g.Expect(Rename("127.0.0.1:5001/x/a@d", "127.0.0.1:5001", "")).To(Equal("127.0.0.1:5001/x/a@d"))
	g.Expect(Rename("other/x/a@d", "127.0.0.1:5001", "registry:5001")).To(Equal("other/x/a@d"))
}
