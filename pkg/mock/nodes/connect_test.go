// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

const testNamespace = "shoot--foo--bar"

func TestClientTakesARenewedToken(t *testing.T) {
	g := NewWithT(t)
	valid, refused := &atomic.Value{}, &atomic.Int32{}
	valid.Store("Bearer one")
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != valid.Load() {
			refused.Add(1)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}`))
	}))
	defer server.Close()
	secret, asked := &atomic.Value{}, 0
	secret.Store("one")
	connect := func(context.Context, string) (*rest.Config, error) {
		asked++
		return &rest.Config{Host: server.URL, BearerToken: secret.Load().(string)}, nil
	}
	config, err := connect(t.Context(), testNamespace)
	g.Expect(err).NotTo(HaveOccurred())
	clients, err := newClient(config, testNamespace, connect)
	g.Expect(err).NotTo(HaveOccurred())
	get := func() error {
		_, err := clients.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		return err
	}

	g.Expect(get()).To(Succeed())
	valid.Store("Bearer two")
	secret.Store("two")
	g.Expect(get()).NotTo(Succeed(), "the one that finds out")
	g.Expect(get()).To(Succeed())
	g.Expect(asked).To(Equal(2))

	// A token that nobody renewed is not looked for with each request.
	valid.Store("Bearer three")
	for range 5 {
		g.Expect(get()).NotTo(Succeed())
	}
	g.Expect(asked).To(Equal(2))
}

func TestKeyOf(t *testing.T) {
	g := NewWithT(t)
	base := &rest.Config{Host: "a", BearerToken: "one", TLSClientConfig: rest.TLSClientConfig{CAData: []byte("ca")}}
	token, ca, host := rest.CopyConfig(base), rest.CopyConfig(base), rest.CopyConfig(base)
	token.BearerToken, ca.CAData, host.Host = "two", []byte("other"), "b"
	g.Expect(keyOf(token)).To(Equal(keyOf(base)))
	g.Expect(keyOf(ca)).NotTo(Equal(keyOf(base)))
	g.Expect(keyOf(host)).NotTo(Equal(keyOf(base)))
}
