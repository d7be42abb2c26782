// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/util/cert"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// timeout is more than a loaded machine needs.
const timeout = 30 * time.Second

// writeCertificate writes a new certificate and returns what it is known by.
func writeCertificate(t *testing.T, directory string) []byte {
	t.Helper()
	g := NewWithT(t)
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(directory, "tls.key"), key, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(directory, "tls.crt"), certificate, 0o600)).To(Succeed())
	pair, err := tls.X509KeyPair(certificate, key)
	g.Expect(err).NotTo(HaveOccurred())
	return pair.Certificate[0]
}

// serve runs a server on a free port until the test ends and returns where, and what tells how it ended.
func serve(t *testing.T, s *Server) (string, context.CancelFunc, <-chan error) {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ended := make(chan error, 1)
	go func() { ended <- s.serve(ctx, listener) }()
	return listener.Addr().String(), cancel, ended
}

func get(t *testing.T, client *http.Client, url string) (int, string) {
	t.Helper()
	g := NewWithT(t)
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := client.Do(request)
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(response.Body.Close()).To(Succeed()) }()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(body)
}

func TestTheServerTellsHealthAndMetrics(t *testing.T) {
	g := NewWithT(t)
	directory := t.TempDir()
	first := writeCertificate(t, directory)
	var isReady atomic.Bool
	address, stop, ended := serve(t, &Server{
		Config:  configv1alpha1.CloudControllerServer{CertificateDirectory: directory},
		Healthy: func(*http.Request) error { return nil },
		Ready: func(*http.Request) error {
			if !isReady.Load() {
				return errors.New("not yet")
			}
			return nil
		},
	})

	var seen []byte
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, // #nosec G402 -- the certificate is looked at below
		VerifyConnection: func(state tls.ConnectionState) error {
			seen = state.PeerCertificates[0].Raw
			return nil
		},
	}}}
	code, _ := get(t, client, "https://"+address+"/healthz")
	g.Expect(code).To(Equal(http.StatusOK))
	g.Expect(seen).To(Equal(first))

	code, body := get(t, client, "https://"+address+"/readyz")
	g.Expect(code).To(Equal(http.StatusInternalServerError))
	g.Expect(body).To(ContainSubstring("not yet"))
	isReady.Store(true)
	code, _ = get(t, client, "https://"+address+"/readyz")
	g.Expect(code).To(Equal(http.StatusOK))

	_, err := New(Options{Namespace: namespace, Shoot: newBench(t, nil).shoot, Seed: newBench(t, nil).seed})
	g.Expect(err).NotTo(HaveOccurred())
	code, body = get(t, client, "https://"+address+"/metrics")
	g.Expect(code).To(Equal(http.StatusOK))
	g.Expect(body).To(And(ContainSubstring("service_controller_loadbalancer_sync_total"), ContainSubstring("go_goroutines")))

	second := writeCertificate(t, directory)
	g.Eventually(func() []byte {
		get(t, client, "https://"+address+"/healthz")
		return seen
	}).WithTimeout(timeout).Should(Equal(second))

	stop()
	g.Eventually(ended).WithTimeout(timeout).Should(Receive(BeNil()))
}

func TestTheServerEndsWithoutACertificate(t *testing.T) {
	g := NewWithT(t)
	_, _, ended := serve(t, &Server{Config: configv1alpha1.CloudControllerServer{CertificateDirectory: t.TempDir()}})
	g.Eventually(ended).WithTimeout(timeout).Should(Receive(MatchError(os.ErrNotExist)))
}

func TestTheServerTakesAnAddressThatIsFree(t *testing.T) {
	g := NewWithT(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	defer func() { g.Expect(listener.Close()).To(Succeed()) }()
	config := configv1alpha1.CloudControllerServer{BindAddress: "127.0.0.1", Port: listener.Addr().(*net.TCPAddr).Port}
	g.Expect((&Server{Config: config}).Run(t.Context())).To(MatchError(ContainSubstring("address already in use")))
}
