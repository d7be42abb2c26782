// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"regexp"
)

// Metrics that several scenarios or goals are about.
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
	Milliseconds       = "milliseconds"
	CPUPerMinute       = "CPU ms per minute"
)

// FloorScenario is how the rows begin that say what the API server alone takes. " n=N create" or " n=N delete" follows.
const FloorScenario = "API server alone"

// compare is how a goal is judged.
type compare int

const (
	// atMostRatio is about ours / peer_uncapped.
	atMostRatio compare = iota
	// atMost and atLeast are about ours alone.
	atMost
	atLeast
	// atMostFloor and atLeastFloor are about ours as a multiple of the floor: of the same run, for as many objects.
	atMostFloor
	atLeastFloor
)

// operation is the end of the names of scenarios that create or delete a number of objects.
var operation = regexp.MustCompile(` n=\d+ (create|delete)$`)

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
		{on(`^garden DNSRecord by coredns n=1000 create`), Seconds, atMostFloor, 1.3},
		{on(`^garden DNSRecord by rfc2136 n=1000 `), Seconds, atMostRatio, 0.6},
		{on(`(BackupBucket|DNSRecord|ControlPlane|OperatingSystemConfig|Extension) .*create`), Seconds, atMostRatio, 1.0 / 3},
		{on(`^ManagedResource`), RequestsPerObject, atMostRatio, 1},
		{on(`^shoots (Infrastructure|Worker) .*delete`), RequestsPerObject, atMostRatio, 1},
		{on(`^(garden|shoots) `), RequestsPerObject, atMostRatio, 0.6},
		{on(`^shoots ControlPlane`), CPUPerObject, atMostRatio, 0.25},
		{on(`^(garden|shoots) `), CPUPerObject, atMostRatio, 0.5},
		{on(`^(garden|shoots) `), ConflictsPerObject, atMost, 0},
		{on(`^idle, 5000 unrelated`), AnonymousRSS, atMost, 45},
		{on(`^restart`), LeadsAfter, atMost, 1},
		{on(`^pull cold`), Milliseconds, atMostRatio, 1},
		{on(`^mock objects .*create`), PerSecond, atLeastFloor, 0.9},
		{on(`^fake nodes`), PerSecond, atLeast, 200},
	}
}

// judge sets the goal of a row, and whether it is met. The rows are those of the whole run, for the floor.
func judge(row *Row, rows []Row) {
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
		case atMostFloor:
			value = timesFloor(*row, rows)
			row.Goal = fmt.Sprintf("<= %.2f x floor", g.limit)
		case atLeastFloor:
			value = timesFloor(*row, rows)
			row.Goal = fmt.Sprintf(">= %.2f x floor", g.limit)
		}
		if value == nil {
			return
		}
		switch g.compare {
		case atLeast, atLeastFloor:
			row.Met = new(*value >= g.limit)
		default:
			row.Met = new(*value <= g.limit)
		}
		return
	}
}

// timesFloor returns ours as a multiple of the floor for as many objects; nil if one of the two was not measured.
func timesFloor(row Row, rows []Row) *float64 {
	scenario := operation.FindString(row.Scenario)
	if scenario == "" || row.Ours == nil {
		return nil
	}
	for _, floor := range rows {
		if floor.Scenario == FloorScenario+scenario && floor.Metric == row.Metric && !isZero(floor.Ours) {
			return new(*row.Ours / *floor.Ours)
		}
	}
	return nil
}
