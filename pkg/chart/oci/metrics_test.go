// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
)

func TestAPullerAfterAnotherRegistersItsMetricsAnew(t *testing.T) {
	g := NewWithT(t)
	opts := Options{Directory: t.TempDir(), Registerer: prometheus.NewRegistry()}

	first, err := New(opts)
	g.Expect(err).NotTo(HaveOccurred())
	other := opts
	other.Directory = t.TempDir()
	_, err = New(other)
	g.Expect(err).To(MatchError(ContainSubstring("registering the metrics")), "two at the same time would count into one")
	g.Expect(first.Close()).To(Succeed())

	second, err := New(opts)
	g.Expect(err).NotTo(HaveOccurred(), "an instance that runs again in the same process")
	g.Expect(second.Close()).To(Succeed())
}
