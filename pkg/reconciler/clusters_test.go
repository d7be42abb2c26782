// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package reconciler

import (
	"testing"

	. "github.com/onsi/gomega"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

func TestAClusterIsDecodedOnceUntilItChanges(t *testing.T) {
	e := newEnv(t, newCluster(nil))
	clusters := NewClusters(e.client)
	first, err := clusters.Get(e.ctx, namespace)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(first.Shoot().Name).To(Equal("a"))
	again, err := clusters.Get(e.ctx, namespace)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(again).To(BeIdenticalTo(first))

	changed := newCluster(func(shoot *gardencorev1beta1.Shoot) { shoot.Name = "b" })
	e.Expect(e.client.Update(e.ctx, changed)).To(Succeed())
	third, err := clusters.Get(e.ctx, namespace)
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(third.Shoot().Name).To(Equal("b"))

	none, err := clusters.Get(e.ctx, "none")
	e.Expect(err).NotTo(HaveOccurred())
	e.Expect(none.Shoot()).To(BeNil())
}
