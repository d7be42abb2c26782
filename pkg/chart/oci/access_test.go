// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
)

func TestTLSNeedsACATheSystemOrTheConfigurationTrusts(t *testing.T) {
	g := NewWithT(t)
	registry, w := newTLSRegistry(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	config := ref(registry.host(), "v1")

	w.refused(config, oci.ReasonUntrusted, "certificate signed by unknown authority: put the registry's CA")
	w.refused(withCA(config), oci.ReasonConfiguration, "Secret instance/ca does not exist")
	w.secret("ca", oci.CABundleKey, []byte("no PEM"))
	w.clock.Step(time.Minute)
	w.refused(withCA(config), oci.ReasonConfiguration, "no PEM certificate in its key bundle.crt")
	w.secret("ca", oci.CABundleKey, registry.ca())
	w.clock.Step(time.Minute)
	w.expect(withCA(config), "1.0.0")
	g.Expect(registry.asked()).To(HaveLen(2))
}

func TestPlainHTTPIsForTheLoopbackOrWhenAsked(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	// This address is reached like the loopback, but it does not say that it is one.
	_, port, _ := strings.Cut(registry.host(), ":")
	config := ref("0.0.0.0:"+port, "v1")

	w.refused(config, oci.ReasonConfiguration, "allowed only with plainHTTP")
	g.Expect(registry.asked()).To(BeEmpty())
	config.PlainHTTP = true
	w.expect(config, "1.0.0")
	w.expect(ref("localhost:"+port, "v1"), "1.0.0")
}

func TestARegistryCannotSendToPlainHTTP(t *testing.T) {
	g := NewWithT(t)
	registry, w := newTLSRegistry(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	registry.guard(func(writer http.ResponseWriter, request *http.Request) bool {
		if !strings.Contains(request.URL.Path, "/blobs/") {
			return true
		}
		http.Redirect(writer, request, "http://storage.example.invalid"+request.URL.Path+"?signature=secret", http.StatusTemporaryRedirect)
		return false
	})
	w.secret("ca", oci.CABundleKey, registry.ca())
	config := withCA(ref(registry.host(), "v1"))
	w.refused(config, oci.ReasonConfiguration, "HTTP without TLS")
	w.clock.Step(time.Minute)
	_, err := w.version(config)
	g.Expect(err.Error()).NotTo(ContainSubstring("secret"))
}

// TestARegistryCannotSendToThisMachine has a registry name another server, by a redirect or for its tokens, which only the
// program's own pod or node reaches.
func TestARegistryCannotSendToThisMachine(t *testing.T) {
	for name, target := range map[string]string{
		"an address": "http://127.0.0.1:%s", "one of IPv6": "http://[::ffff:127.0.0.1]:%s", "a name": "http://localhost:%s", "any address": "http://[::]:%s",
		"a link-local address": "http://169.254.169.254:%s",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			registry, inside, w := newRegistry(t), newRegistry(t), newWorld(t)
			_, port, _ := strings.Cut(inside.host(), ":")
			inside.push(t, "v1", pack(t, "1.0.0", nil))
			asked := 0
			registry.guard(func(writer http.ResponseWriter, request *http.Request) bool {
				asked++
				http.Redirect(writer, request, fmt.Sprintf(target+"/%d", port, asked), http.StatusTemporaryRedirect)
				return false
			})
			// This address is reached like the loopback, but it does not say that it is one.
			_, port2, _ := strings.Cut(registry.host(), ":")
			config := ref("0.0.0.0:"+port2, "v1")
			config.PlainHTTP = true
			_, err := w.version(config)
			g.Expect(err).To(MatchError(And(ContainSubstring("it leads to another server"), Not(ContainSubstring(port+"/")))))
			g.Expect(inside.asked()).To(BeEmpty())

			w.clock.Step(time.Minute)
			_, again := w.version(config)
			g.Expect(again).To(MatchError(err.Error()), "it would be written to a status each time")
		})
	}
}

func TestBasicAuth(t *testing.T) {
	g := NewWithT(t)
	registry, w := newTLSRegistry(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	registry.guard(basicAuth("user", "right"))
	w.secret("ca", oci.CABundleKey, registry.ca())
	config := withCA(ref(registry.host(), "v1"))

	w.refused(config, oci.ReasonUnauthorized, "check the Secret in pullSecretRef")
	w.login(registry.host(), "user", "wrong")
	w.refused(withPullSecret(config), oci.ReasonUnauthorized, "401")
	registry.asked()
	w.refused(withPullSecret(config), oci.ReasonUnauthorized, "401")
	g.Expect(registry.asked()).To(BeEmpty(), "a failure is not asked for again at once")

	w.login(registry.host(), "user", "right")
	w.clock.Step(5 * time.Second)
	w.expect(withPullSecret(config), "1.0.0")
	g.Expect(registry.asked()).To(Equal([]string{"GET manifests", "GET manifests", "GET blobs"}))
}

func TestAPullSecretHasToBeADockerConfiguration(t *testing.T) {
	registry, w := newRegistry(t), newWorld(t)
	config := withPullSecret(ref(registry.host(), "v1"))
	for i, tt := range []struct{ key, value, message string }{
		{"other", "{}", "has no key .dockerconfigjson"},
		{corev1.DockerConfigJsonKey, "s3cret", "is not a Docker configuration in JSON"},
		{corev1.DockerConfigJsonKey, `{"auths":{"` + registry.host() + `":{"auth":"s3cret"}}}`, "the entry for " + registry.host()},
	} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			w.secret("pull", tt.key, []byte(tt.value))
			w.clock.Step(time.Minute)
			w.refused(config, oci.ReasonConfiguration, tt.message)
			_, err := w.version(config)
			NewWithT(t).Expect(err.Error()).NotTo(ContainSubstring("s3cret"))
		})
	}
}

func TestSecretsAreReadOncePerInterval(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	w.login(registry.host(), "user", "password")
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	config := withPullSecret(ref(registry.host(), "v1"))
	reads := w.reads
	for range 3 {
		for range 5 {
			w.expect(config, "1.0.0")
		}
		w.clock.Step(time.Minute)
	}
	g.Expect(w.reads - reads).To(Equal(3))
}

func TestCredentialsThatAreNoLongerGoodAreAnErrorByTag(t *testing.T) {
	registry, w := newRegistry(t), newWorld(t)
	manifest := registry.push(t, "v1", pack(t, "1.0.0", nil))
	registry.guard(basicAuth("user", "old"))
	w.login(registry.host(), "user", "old")
	byTag, byDigest := withPullSecret(ref(registry.host(), "v1")), withPullSecret(ref(registry.host(), manifest.String()))
	w.expect(byTag, "1.0.0")
	w.expect(byDigest, "1.0.0")

	registry.guard(basicAuth("user", "new"))
	w.clock.Step(time.Minute)
	w.refused(byTag, oci.ReasonUnauthorized, "401")
	w.expect(byDigest, "1.0.0")
	w.login(registry.host(), "user", "new")
	w.clock.Step(time.Minute)
	w.expect(byTag, "1.0.0")
}

func TestNoCredentialIsWrittenToTheDisk(t *testing.T) {
	g := NewWithT(t)
	registry, w := newRegistry(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	registry.guard(basicAuth("charly", "s3cret"))
	w.login(registry.host(), "charly", "s3cret")
	w.expect(withPullSecret(ref(registry.host(), "v1")), "1.0.0")

	files := 0
	g.Expect(filepath.WalkDir(w.opts.Directory, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		raw, err := os.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		for _, secret := range []string{"charly", "s3cret", base64.StdEncoding.EncodeToString([]byte("charly:s3cret"))} {
			g.Expect(string(raw) + path).NotTo(ContainSubstring(secret))
		}
		info, err := entry.Info()
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o600)), path)
		return nil
	})).To(Succeed())
	g.Expect(files).To(Equal(1))
}

// tokenServer gives out tokens for one user, or for a refresh token.
type tokenServer struct {
	*httptest.Server
	lock           sync.Mutex
	user, password string
	tokens         map[string]bool
	scopes         []string
}

func newTokenServer(t *testing.T) *tokenServer {
	s := &tokenServer{user: "user", password: "right", tokens: map[string]bool{}}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

// ServeHTTP implements the token endpoint of the distribution specification, GET with basic auth and POST for OAuth2.
func (s *tokenServer) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	s.lock.Lock()
	defer s.lock.Unlock()
	user, password, _ := request.BasicAuth()
	switch {
	case request.Method == http.MethodPost && request.FormValue("refresh_token") != s.password:
		http.Error(w, `{"error":"invalid_grant"}`, http.StatusBadRequest)
		return
	case request.Method == http.MethodGet && (user != s.user || password != s.password):
		http.Error(w, "{}", http.StatusUnauthorized)
		return
	}
	s.scopes = append(s.scopes, request.FormValue("scope"))
	token := fmt.Sprintf("token-%d", len(s.scopes))
	s.tokens[token] = true
	_ = json.NewEncoder(w).Encode(map[string]string{"token": token, "access_token": token})
}

func (s *tokenServer) change(f func()) {
	s.lock.Lock()
	defer s.lock.Unlock()
	f()
}

// door lets in whoever has a token.
func (s *tokenServer) door(w http.ResponseWriter, request *http.Request) bool {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.tokens[strings.TrimPrefix(request.Header.Get("Authorization"), "Bearer ")] {
		return true
	}
	w.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer realm="%s/token",service="registry",scope="repository:%s:pull"`, strings.Replace(s.URL, "127.0.0.1", "localhost", 1), repository))
	w.WriteHeader(http.StatusUnauthorized)
	return false
}

func TestTokenAuth(t *testing.T) {
	g := NewWithT(t)
	registry, tokens, w := newRegistry(t), newTokenServer(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	registry.guard(tokens.door)
	config := withPullSecret(ref(registry.host(), "v1"))

	w.login(registry.host(), "user", "wrong")
	w.refused(config, oci.ReasonUnauthorized, "401")
	w.login(registry.host(), "user", "right")
	w.clock.Step(time.Minute)
	registry.asked()
	w.expect(config, "1.0.0")
	g.Expect(registry.asked()).To(Equal([]string{"GET manifests", "GET manifests", "GET blobs"}))
	g.Expect(tokens.scopes).To(Equal([]string{"repository:" + repository + ":pull"}))

	// The token serves for as long as the registry takes it.
	tokens.change(func() { tokens.password = "changed" })
	w.clock.Step(time.Minute)
	w.expect(config, "1.0.0")
	g.Expect(registry.asked()).To(Equal([]string{"HEAD manifests"}))
	tokens.change(func() { clear(tokens.tokens) })
	w.clock.Step(time.Minute)
	w.refused(config, oci.ReasonUnauthorized, "401")
}

func TestATokenOutlivesTheFailureOfAMirror(t *testing.T) {
	mirror, registry, tokens, w := newRegistry(t), newRegistry(t), newTokenServer(t), newWorld(t)
	mirror.guard(status(http.StatusServiceUnavailable))
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	registry.guard(tokens.door)
	w.login(registry.host(), "user", "right")
	config := withPullSecret(ref(registry.host(), "v1"))
	config.Mirrors = []string{mirror.host()}
	w.expect(config, "1.0.0")
	registry.asked()
	w.clock.Step(time.Minute)
	w.expect(config, "1.0.0")
	NewWithT(t).Expect(registry.asked()).To(Equal([]string{"HEAD manifests"}))
}

func TestAnIdentityTokenIsExchanged(t *testing.T) {
	registry, tokens, w := newRegistry(t), newTokenServer(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	registry.guard(tokens.door)
	config := withPullSecret(ref(registry.host(), "v1"))

	w.secret("pull", corev1.DockerConfigJsonKey, []byte(`{"auths":{"`+registry.host()+`":{"identitytoken":"right"}}}`))
	tokens.change(func() { tokens.password = "changed" })
	w.refused(config, oci.ReasonUnauthorized, "400")
	tokens.change(func() { tokens.password = "right" })
	w.clock.Step(time.Minute)
	w.expect(config, "1.0.0")
}

func TestARegistryTokenIsSentAsItIs(t *testing.T) {
	registry, tokens, w := newRegistry(t), newTokenServer(t), newWorld(t)
	registry.push(t, "v1", pack(t, "1.0.0", nil))
	registry.guard(tokens.door)
	tokens.tokens["given"] = true
	w.secret("pull", corev1.DockerConfigJsonKey, []byte(`{"auths":{"`+registry.host()+`":{"registrytoken":"given"}}}`))
	w.expect(withPullSecret(ref(registry.host(), "v1")), "1.0.0")
	NewWithT(t).Expect(tokens.scopes).To(BeEmpty())
}
