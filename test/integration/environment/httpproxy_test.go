// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bufio"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
)

func TestHTTPProxyHasOnlyTheWatchesHangThatThereAre(t *testing.T) {
	g := NewWithT(t)
	events := make(chan string)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.URL.Query().Get("watch") == "" {
			return
		}
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		for {
			select {
			case event := <-events:
				fmt.Fprintln(w, event)
				_ = http.NewResponseController(w).Flush()
			case <-request.Context().Done():
				return
			}
		}
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	proxy, access, err := NewHTTPProxy(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{
		CAData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(proxy.Close)
	client, err := rest.HTTPClientFor(access)
	g.Expect(err).NotTo(HaveOccurred())

	watch := func() <-chan string {
		response, err := client.Get(access.Host + "/?watch=true")
		g.Expect(err).NotTo(HaveOccurred())
		t.Cleanup(func() { _ = response.Body.Close() })
		lines := make(chan string)
		go func() {
			for scanner := bufio.NewScanner(response.Body); scanner.Scan(); {
				lines <- scanner.Text()
			}
		}()
		return lines
	}
	get := func() error {
		response, err := client.Get(access.Host)
		if err == nil {
			_ = response.Body.Close()
		}
		return err
	}

	old := watch()
	events <- "first"
	g.Eventually(old).Should(Receive(Equal("first")))
	proxy.HangWatches()
	events <- "second"
	g.Eventually(proxy.Hung).Should(Equal(1))
	g.Consistently(old, 200*time.Millisecond).ShouldNot(Receive())
	g.Expect(get()).To(Succeed(), "the connection is in order")

	proxy.Hang(func(request *http.Request) bool { return request.URL.Query().Get("watch") == "" })
	g.Eventually(old).Should(Receive(Equal("second")), "what hung goes on")
	ended := make(chan error, 1)
	go func() { ended <- get() }()
	g.Eventually(proxy.Hung).Should(Equal(2))
	g.Expect(ended).NotTo(Receive())
	proxy.Hang(nil)
	g.Eventually(ended).Should(Receive(BeNil()))
}
