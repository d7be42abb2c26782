// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extensioncluster_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

const namespace = "shoot--foo--bar"

func credentials(name, token string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Data: map[string][]byte{"kubeconfig": []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "c",
			"contexts": [{"name": "c", "context": {"cluster": "c", "user": "c"}}],
			"clusters": [{"name": "c", "cluster": {"server": "https://kube-apiserver"}}],
			"users": [{"name": "c", "user": {"token": "` + token + `"}}]}`)},
	}
}

func TestShootAccess(t *testing.T) {
	connect := func(objects ...client.Object) (*rest.Config, error) {
		return extensioncluster.ShootAccess(fake.NewClientBuilder().WithObjects(objects...).Build())(t.Context(), namespace)
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
		NewWithT(t).Expect(err).To(MatchError(extensioncluster.ErrNoCredentials))
	})
	t.Run("a kubeconfig that is none, and an API server in trouble, are other errors", func(t *testing.T) {
		g := NewWithT(t)
		secret := credentials("gardener", "")
		secret.Data["kubeconfig"] = []byte("nonsense: {")
		_, err := connect(secret)
		g.Expect(err).To(MatchError(ContainSubstring("shoot--foo--bar/gardener")))
		g.Expect(err).NotTo(MatchError(extensioncluster.ErrNoCredentials))

		broken := fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("trouble")
		}}).Build()
		_, err = extensioncluster.ShootAccess(broken)(t.Context(), namespace)
		g.Expect(err).To(MatchError(ContainSubstring("trouble")))
	})
}
