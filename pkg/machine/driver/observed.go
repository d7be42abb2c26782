// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"time"

	mcmdriver "github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/codes"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machinecodes/status"

	"github.com/gardener/gardener-extension-provider-local/pkg/metrics"
)

// Observed returns a driver that hands over to next and measures how long machines take to come and to go. A machine that
// takes several calls is counted with each: the code of the last one is OK.
func Observed(next mcmdriver.Driver, m *metrics.Machines) mcmdriver.Driver {
	return &observed{Driver: next, metrics: m}
}

type observed struct {
	mcmdriver.Driver
	metrics *metrics.Machines
}

// CreateMachine implements machine-controller-manager's driver.
func (o *observed) CreateMachine(ctx context.Context, req *mcmdriver.CreateMachineRequest) (*mcmdriver.CreateMachineResponse, error) {
	start := time.Now()
	response, err := o.Driver.CreateMachine(ctx, req)
	o.metrics.Operation(metrics.MachineCreate, codeName(err), time.Since(start))
	return response, err
}

// DeleteMachine implements machine-controller-manager's driver.
func (o *observed) DeleteMachine(ctx context.Context, req *mcmdriver.DeleteMachineRequest) (*mcmdriver.DeleteMachineResponse, error) {
	start := time.Now()
	response, err := o.Driver.DeleteMachine(ctx, req)
	o.metrics.Operation(metrics.MachineDelete, codeName(err), time.Since(start))
	return response, err
}

// codeName returns one of the names that machine-controller-manager has for its codes.
func codeName(err error) string {
	if err == nil {
		return codes.OK.String()
	}
	known, ok := status.FromError(err)
	if !ok {
		return codes.Unknown.String()
	}
	return known.Code().String()
}
