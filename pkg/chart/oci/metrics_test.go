// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
)

func TestAPullerAfterAnotherGoesOnWithItsMetrics(t *testing.T) {
	g := NewWithT(t)
	opts := Options{Directory: t.TempDir(), Registerer: prometheus.NewRegistry()}
	for range 2 {
		puller, err := New(opts)
		g.Expect(err).NotTo(HaveOccurred(), "an instance that runs again in the same process")
		g.Expect(puller.Close()).To(Succeed())
	}
}
