// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Machines are the metrics of pkg/machine/driver. They are not part of a Set, as machines are made by a program of its own
// (gardenlet-extension machine-controller), one for each shoot.
type Machines struct {
	operation *prometheus.HistogramVec
}

// NewMachines returns the metrics of a driver and registers them.
func NewMachines(registerer prometheus.Registerer) (*Machines, error) {
	b := &builder{registerer: registerer}
	return &Machines{operation: b.histograms("machine_operation_duration_seconds",
		"Time until a machine runs (create) or is gone (delete), by machine-controller-manager's code: OK, ResourceExhausted, DeadlineExceeded and so on.",
		[]float64{0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600}, "operation", "code")}, b.err()
}

// MachineOperation is what is done about a machine.
type MachineOperation string

// The operations.
const (
	MachineCreate MachineOperation = "create"
	MachineDelete MachineOperation = "delete"
)

// Operation tells how long it took, and machine-controller-manager's name of the code that it ended with.
func (m *Machines) Operation(operation MachineOperation, code string, took time.Duration) {
	if m != nil {
		m.operation.WithLabelValues(string(operation), code).Observe(took.Seconds())
	}
}
