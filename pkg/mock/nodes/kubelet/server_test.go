// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/portforward"
	"k8s.io/client-go/transport/spdy"
)

// start returns the address of a server that runs until the test ends, and a configuration that does not verify it.
func start(t *testing.T) *rest.Config {
	t.Helper()
	g := NewWithT(t)
	server, err := New("127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(server.NeedLeaderElection()).To(BeFalse())
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		NewWithT(t).Eventually(ended, "5s").Should(Receive(BeNil()))
	})
	return &rest.Config{Host: "https://" + server.Listener.Addr().String(), TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
}

func get(t *testing.T, config *rest.Config, path string) (int, string) {
	t.Helper()
	g := NewWithT(t)
	client, err := rest.HTTPClientFor(config)
	g.Expect(err).NotTo(HaveOccurred())
	response, err := client.Get(config.Host + path)
	g.Expect(err).NotTo(HaveOccurred())
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	g.Expect(err).NotTo(HaveOccurred())
	return response.StatusCode, string(body)
}

func TestAnswers(t *testing.T) {
	config := start(t)
	for path, want := range map[string]struct {
		code int
		body string
	}{
		"/healthz":                      {http.StatusOK, "ok"},
		"/containerLogs/ns/pod/c":       {http.StatusOK, message},
		"/exec/ns/pod/c?command=ls":     {http.StatusNotImplemented, message + "\n"},
		"/metrics":                      {http.StatusNotImplemented, message + "\n"},
		"/portForward/ns/pod":           {http.StatusBadRequest, ""},
		"/containerLogs/ns/pod/c/other": {http.StatusNotImplemented, message + "\n"},
	} {
		t.Run(path, func(t *testing.T) {
			g := NewWithT(t)
			code, body := get(t, config, path)
			g.Expect(code).To(Equal(want.code))
			if want.body != "" {
				g.Expect(body).To(Equal(want.body))
			}
		})
	}
}

func TestPortForward(t *testing.T) {
	g := NewWithT(t)
	config := start(t)
	transport, upgrader, err := spdy.RoundTripperFor(config)
	g.Expect(err).NotTo(HaveOccurred())
	address, err := url.Parse(config.Host + "/portForward/kube-system/vpn-shoot/some-uid")
	g.Expect(err).NotTo(HaveOccurred())
	dialer := spdy.NewDialer(upgrader, &http.Client{Transport: transport}, http.MethodPost, address)

	stop, ready := make(chan struct{}), make(chan struct{})
	forwarder, err := portforward.New(dialer, []string{"0:22"}, stop, ready, io.Discard, io.Discard)
	g.Expect(err).NotTo(HaveOccurred())
	ended := make(chan error, 1)
	go func() { ended <- forwarder.ForwardPorts() }()
	g.Eventually(ready, "5s").Should(BeClosed(), "that is all that gardenlet waits for")
	close(stop)
	g.Eventually(ended, "5s").Should(Receive())

	connection, protocol, err := dialer.Dial(portforward.PortForwardProtocolV1Name)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(protocol).To(Equal(portforward.PortForwardProtocolV1Name))
	g.Expect(connection.Close()).To(Succeed())
}

func TestStartFails(t *testing.T) {
	_, err := New("127.0.0.1:-1")
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("listening")))
}
