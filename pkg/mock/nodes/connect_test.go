// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

const testNamespace = "shoot--foo--bar"

func credentials(name, token string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: name},
		Data: map[string][]byte{"kubeconfig": []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
			"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
			"clusters": [{"name": "c", "cluster": {"server": "https://kube-apiserver"}}],
			"users": [{"name": "c", "user": {"token": "` + token + `"}}]}`)},
	}
}

func TestFromSecrets(t *testing.T) {
	connect := func(objects ...client.Object) (*rest.Config, error) {
		return FromSecrets(fakeclient.NewClientBuilder().WithObjects(objects...).Build())(t.Context(), testNamespace)
	}

	t.Run("the way inside of the seed is preferred", func(t *testing.T) {
		g := NewWithT(t)
		config, err := connect(credentials("gardener", "outside"), credentials("gardener-internal", "inside"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(config.BearerToken).To(Equal("inside"))
	})
	t.Run("the way from outside is the second choice", func(t *testing.T) {
		g := NewWithT(t)
		config, err := connect(credentials("gardener", "outside"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(config.BearerToken).To(Equal("outside"))
	})
	t.Run("the way from outside may be the only one", func(t *testing.T) {
		g := NewWithT(t)
		t.Setenv("GARDENER_SHOOT_CLIENT", "external")
		config, err := connect(credentials("gardener", "outside"), credentials("gardener-internal", "inside"))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(config.BearerToken).To(Equal("outside"))
	})
	t.Run("without credentials the error says so", func(t *testing.T) {
		_, err := connect()
		NewWithT(t).Expect(err).To(MatchError(ErrNoCredentials))
	})
	t.Run("a kubeconfig that is none, and an API server in trouble, are other errors", func(t *testing.T) {
		g := NewWithT(t)
		secret := credentials("gardener", "")
		secret.Data["kubeconfig"] = []byte("nonsense: {")
		_, err := connect(secret)
		g.Expect(err).To(MatchError(ContainSubstring("shoot--foo--bar/gardener")))
		g.Expect(err).NotTo(MatchError(ErrNoCredentials))

		broken := fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("trouble")
		}}).Build()
		_, err = FromSecrets(broken)(t.Context(), testNamespace)
		g.Expect(err).To(MatchError(ContainSubstring("trouble")))
	})
}

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
