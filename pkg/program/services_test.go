// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestAShootIsToldFromAnotherCluster(t *testing.T) {
	g := NewWithT(t)
	shoot, err := isShoot(fake.NewClientBuilder().Build())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(shoot).To(BeFalse())

	shoot, err = isShoot(fake.NewClientBuilder().WithObjects(&corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "shoot-info"},
	}).Build())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(shoot).To(BeTrue())
}

func TestItIsAnErrorNotToKnowWhetherTheClusterIsAShoot(t *testing.T) {
	g := NewWithT(t)
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "shoot-info", nil)
	_, err := isShoot(fake.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return forbidden
		},
	}).Build())
	g.Expect(err).To(MatchError(And(ContainSubstring("kube-system/shoot-info"), ContainSubstring("forbidden"))))
}
