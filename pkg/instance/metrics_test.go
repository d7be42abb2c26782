// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/client-go/rest"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// reviewer is an API server that knows the tokens "prometheus" and "somebody", of which the first may get /metrics.
func reviewer(t *testing.T) *httptest.Server {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var answer any
		switch {
		case strings.HasSuffix(r.URL.Path, "/tokenreviews"):
			review := &authenticationv1.TokenReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			review.Status.Authenticated = review.Spec.Token == "prometheus" || review.Spec.Token == "somebody"
			review.Status.User.Username = review.Spec.Token
			answer = review
		case strings.HasSuffix(r.URL.Path, "/subjectaccessreviews"):
			review := &authorizationv1.SubjectAccessReview{}
			if err := json.NewDecoder(r.Body).Decode(review); err != nil {
				http.Error(w, err.Error(), http.StatusBadRequest)
				return
			}
			asked := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Spec.User == "prometheus" && asked != nil && asked.Path == "/metrics" && asked.Verb == "get"
			answer = review
		default:
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		if err := json.NewEncoder(w).Encode(answer); err != nil {
			t.Error(err)
		}
	}))
	t.Cleanup(server.Close)
	return server
}

// serveMetrics runs the server of metrics as configured and returns its address.
func serveMetrics(t *testing.T, config configv1alpha1.ServerConfiguration) string {
	t.Helper()
	g := NewWithT(t)
	config.HealthProbes, config.Metrics = &configv1alpha1.Server{}, &configv1alpha1.Server{BindAddress: "127.0.0.1"}
	leaderElection := configv1alpha1.ExtensionConfiguration{}.LeaderElection
	leaderElection.LeaderElect = new(false)
	options := ManagerOptions(config, leaderElection, "name", "namespace")

	restConfig := &rest.Config{Host: reviewer(t).URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	server, err := metricsserver.NewServer(options.Metrics, restConfig, http.DefaultClient)
	g.Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		g.Eventually(stopped, "10s").Should(Receive(BeNil()))
	})
	bound := server.(interface{ GetBindAddr() string })
	g.Eventually(bound.GetBindAddr, "10s").ShouldNot(BeEmpty())
	return bound.GetBindAddr()
}

func get(t *testing.T, url, token string) int {
	t.Helper()
	g := NewWithT(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	g.Expect(err).NotTo(HaveOccurred())
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} // #nosec G402 -- the certificate is signed by nobody
	defer transport.CloseIdleConnections()
	response, err := (&http.Client{Transport: transport}).Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	return response.StatusCode
}

func TestMetricsAreForAllUnlessTheyAreSecured(t *testing.T) {
	g := NewWithT(t)
	g.Expect(get(t, "http://"+serveMetrics(t, configv1alpha1.ServerConfiguration{})+"/metrics", "")).To(Equal(http.StatusOK))

	url := "https://" + serveMetrics(t, configv1alpha1.ServerConfiguration{SecureMetrics: true}) + "/metrics"
	g.Expect(get(t, url, "")).To(Equal(http.StatusUnauthorized))
	g.Expect(get(t, url, "made-up")).To(BeNumerically(">=", http.StatusBadRequest))
	g.Expect(get(t, url, "somebody")).To(Equal(http.StatusForbidden))
	g.Expect(get(t, url, "prometheus")).To(Equal(http.StatusOK))
}
