// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Classes are the metrics of pkg/class.
type Classes struct {
	filtered *prometheus.CounterVec
}

func newClasses(b *builder) *Classes {
	return &Classes{filtered: b.counters("class_filtered_events_total",
		"Events of objects of a type of this extension that were left to the instance which serves their class (garden, seed, shoot or other), by kind.",
		"kind", "class")}
}

// Filtered tells of an event of an object of a kind that is of a class which the instance does not serve.
func (c *Classes) Filtered(kind, class string) {
	if c == nil {
		return
	}
	switch class {
	case "garden", "seed", "shoot":
	default:
		class = "other"
	}
	c.filtered.WithLabelValues(kind, class).Inc()
}
