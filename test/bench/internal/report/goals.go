// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"regexp"
)

// Metrics that goals are about.
const (
	Seconds            = "seconds"
	CPUPerObject       = "CPU ms per object"
	RequestsPerObject  = "requests per object"
	ConflictsPerObject = "conflicts per object"
	AnonymousRSS       = "anonymous RSS, MB"
	PeakAnonymousRSS   = "peak anonymous RSS, MB"
	PeakRSS            = "peak RSS, MB"
	LeadsAfter         = "seconds until it leads"
	PerSecond          = "per second"
)

// compare is how a goal is judged.
type compare int

const (
	// atMostRatio is about ours / peer_uncapped.
	atMostRatio compare = iota
	// atMost and atLeast are about ours alone.
	atMost
	atLeast
)

// goal is what a metric of some scenarios should be. The first that fits counts.
type goal struct {
	scenario *regexp.Regexp
	metric   string
	compare  compare
	limit    float64
}

func goals() []goal {
	on := regexp.MustCompile
	return []goal{
		{on(`(BackupBucket|DNSRecord|ControlPlane|OperatingSystemConfig|Extension) .*create`), Seconds, atMostRatio, 1.0 / 3},
		{on(`^ManagedResource`), RequestsPerObject, atMostRatio, 1},
		{on(`^(garden|shoots) `), RequestsPerObject, atMostRatio, 0.6},
		{on(`^shoots ControlPlane`), CPUPerObject, atMostRatio, 0.25},
		{on(`^(garden|shoots) `), CPUPerObject, atMostRatio, 0.5},
		{on(`^(garden|shoots) `), ConflictsPerObject, atMost, 0},
		{on(`^idle, 5000 unrelated`), AnonymousRSS, atMost, 45},
		{on(`^restart`), LeadsAfter, atMost, 1},
		{on(`^mock objects`), PerSecond, atLeast, 300},
		{on(`^fake nodes`), PerSecond, atLeast, 200},
	}
}

func judge(row *Row) {
	for _, g := range goals() {
		if g.metric != row.Metric || !g.scenario.MatchString(row.Scenario) {
			continue
		}
		value := row.Ours
		switch g.compare {
		case atMostRatio:
			value = row.Ratio
			row.Goal = fmt.Sprintf("ratio <= %.2f", g.limit)
		case atMost:
			row.Goal = fmt.Sprintf("<= %g", g.limit)
		case atLeast:
			row.Goal = fmt.Sprintf(">= %g", g.limit)
		}
		if value != nil {
			row.Met = new(*value <= g.limit)
			if g.compare == atLeast {
				row.Met = new(*value >= g.limit)
			}
		}
		return
	}
}
