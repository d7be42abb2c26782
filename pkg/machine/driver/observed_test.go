// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"

	mcmdriver "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine/driver"
	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

type answering struct {
	mcmdriver.Driver
	err error
}

func (a answering) CreateMachine(context.Context, *mcmdriver.CreateMachineRequest) (*mcmdriver.CreateMachineResponse, error) {
	return nil, a.err
}

func (a answering) DeleteMachine(context.Context, *mcmdriver.DeleteMachineRequest) (*mcmdriver.DeleteMachineResponse, error) {
	return nil, a.err
}

func TestMachinesAreMeasuredByTheCodeOfTheAnswer(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		code string
	}{
		"no error is OK":                     {nil, "OK"},
		"a status has its code":              {status.New(codes.ResourceExhausted, "no room"), "ResourceExhausted"},
		"what is no status is of no account": {errors.New("oh"), "Unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			registry := prometheus.NewRegistry()
			m, err := metrics.NewMachines(registry)
			g.Expect(err).NotTo(HaveOccurred())
			observed := driver.Observed(answering{err: tc.err}, m)
			_, err = observed.CreateMachine(t.Context(), nil)
			g.Expect(errors.Is(err, tc.err)).To(BeTrue())
			_, err = observed.DeleteMachine(t.Context(), nil)
			g.Expect(errors.Is(err, tc.err)).To(BeTrue())

			families, err := registry.Gather()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(families).To(HaveLen(1))
			var seen []string
			for _, metric := range families[0].GetMetric() {
				g.Expect(metric.GetHistogram().GetSampleCount()).To(BeEquivalentTo(1))
				seen = append(seen, metric.GetLabel()[0].GetValue()+" "+metric.GetLabel()[1].GetValue())
			}
			g.Expect(seen).To(HaveExactElements(tc.code+" create", tc.code+" delete"))
		})
	}
}
