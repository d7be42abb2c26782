// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
)

func TestShoots(t *testing.T) {
	t.Run("a client is kept while it works", func(t *testing.T) {
		f := newFixture(t)
		s := newShoots(f.open, f.clock)
		for range 3 {
			_, err := s.nodes(t.Context(), namespace)
			f.Expect(err).NotTo(HaveOccurred())
		}
		f.Expect(f.opened).To(Equal(1))
		f.Expect(f.asked).To(Equal(3))
	})

	t.Run("access that was replaced is taken anew within one check", func(t *testing.T) {
		f := newFixture(t)
		s := newShoots(f.open, f.clock)
		_, err := s.nodes(t.Context(), namespace)
		f.Expect(err).NotTo(HaveOccurred())

		f.askErr = errors.New("Unauthorized")
		refused := f.nodes
		s.open = func(ctx context.Context, namespace string) (client.Client, error) {
			f.askErr = nil
			f.setNodes(newNodeObject("node", corev1.ConditionTrue))
			return f.open(ctx, namespace)
		}
		f.Expect(s.nodes(t.Context(), namespace)).To(HaveLen(1))
		f.Expect(f.nodes).NotTo(Equal(refused))
		f.Expect(f.opened).To(Equal(2))
	})

	t.Run("an API server that does not answer is left alone for a while", func(t *testing.T) {
		f := newFixture(t)
		s := newShoots(f.open, f.clock)
		f.askErr = errDown
		for range 5 {
			_, err := s.nodes(t.Context(), namespace)
			f.Expect(err).To(MatchError("connection refused"))
		}
		f.Expect(f.asked).To(Equal(1))

		f.clock.Step(pauseAfterFailure)
		f.askErr = nil
		_, err := s.nodes(t.Context(), namespace)
		f.Expect(err).NotTo(HaveOccurred())
	})

	t.Run("an answer that does not come in time is one that says so", func(t *testing.T) {
		f := newFixture(t)
		f.askErr = fmt.Errorf("client rate limiter Wait returned an error: %w", context.DeadlineExceeded)
		_, err := newShoots(f.open, f.clock).nodes(t.Context(), namespace)
		f.Expect(err).To(MatchError("no answer within 5s"))
	})

	t.Run("the end of the program is not taken for a failure of the API server", func(t *testing.T) {
		f := newFixture(t)
		s := newShoots(f.open, f.clock)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		f.askErr = context.Canceled
		_, err := s.nodes(ctx, namespace)
		f.Expect(err).To(MatchError(context.Canceled))

		f.askErr = nil
		_, err = s.nodes(t.Context(), namespace)
		f.Expect(err).NotTo(HaveOccurred())
	})

	t.Run("a shoot that is gone is forgotten", func(t *testing.T) {
		f := newFixture(t)
		s := newShoots(f.open, f.clock)
		for range 2 {
			_, err := s.nodes(t.Context(), namespace)
			f.Expect(err).NotTo(HaveOccurred())
			s.forget(namespace)
		}
		f.Expect(f.opened).To(Equal(2))
		f.Expect(s.known.Len()).To(BeZero())
	})

	t.Run("there is a bound to what is kept", func(t *testing.T) {
		f := newFixture(t)
		s := newShoots(func(context.Context, string) (client.Client, error) { return f.nodes, nil }, f.clock)
		for i := range shootsMax + 10 {
			_, err := s.nodes(t.Context(), fmt.Sprintf("shoot-%d", i))
			f.Expect(err).NotTo(HaveOccurred())
		}
		f.Expect(s.known.Len()).To(Equal(shootsMax))
	})
}

func TestLasting(t *testing.T) {
	for in, out := range map[string]string{
		"lookup api on 10.0.0.10:53: read udp 10.1.2.3:4711->10.0.0.10:53: i/o timeout":                  "lookup api on 10.0.0.10:53: read udp 10.0.0.10:53: i/o timeout",
		"read tcp [fd00::1]:4711->[fd00::2]:443: reset":                                                  "read tcp [fd00::2]:443: reset",
		"x509: certificate has expired: current time 2026-01-02T03:04:05Z is after 2025-01-01T00:00:00Z": "x509: certificate has expired: current time is after 2025-01-01T00:00:00Z",
		"Unauthorized": "Unauthorized",
	} {
		NewWithT(t).Expect(lasting(errors.New(in))).To(MatchError(out))
	}
}

func TestNewShootClient(t *testing.T) {
	const kubeconfig = `
apiVersion: v1
kind: Config
current-context: it
contexts: [{name: it, context: {cluster: it, user: it}}]
clusters: [{name: it, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: it, user: {token: secret}}]
`
	secret := func(name string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: map[string][]byte{"kubeconfig": []byte(kubeconfig)}}
	}

	for _, test := range []struct {
		name    string
		secrets []client.Object
		message string
	}{
		{"takes the internal access first", []client.Object{secret("gardener-internal")}, ""},
		{"takes the other one if there is no internal one", []client.Object{secret("gardener")}, ""},
		{"says that there is none", nil, "the Secret with the access to it is missing"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			t.Setenv("GARDENER_SHOOT_CLIENT", "")
			open, err := newShootClient(fakeclient.NewClientBuilder().WithObjects(test.secrets...).Build())
			g.Expect(err).NotTo(HaveOccurred())

			c, err := open(t.Context(), namespace)
			if test.message != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.message)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			defer cancel()
			g.Expect(c.List(ctx, &corev1.NodeList{})).To(MatchError(ContainSubstring("/api/v1/nodes")), "the first request is the one for Nodes")
		})
	}
}
