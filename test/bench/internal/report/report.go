// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package report turns what was measured into rows with medians, ratios and goals, and writes them: a table, JSON, and
// pages with plots.
package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/measure"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/world"
)

// Row is one metric of one scenario. What was not measured is nil.
type Row struct {
	Scenario     string   `json:"scenario"`
	Metric       string   `json:"metric"`
	Ours         *float64 `json:"ours"`
	Peer         *float64 `json:"peer"`
	PeerUncapped *float64 `json:"peer_uncapped"`
	// Ratio is Ours / PeerUncapped.
	Ratio *float64 `json:"ratio"`
	// Goal is what it should be, empty if there is no goal.
	Goal string `json:"goal"`
	// Met is nil if there is no goal, or nothing to judge it by.
	Met *bool `json:"met"`
}

// Result collects what is measured. The zero value is ready for use.
type Result struct {
	keys     []key
	samples  map[key]map[world.Program][]float64
	requests map[string]map[world.Program]map[string][]float64
}

type key struct{ scenario, metric string }

// Add takes a value of one round.
func (r *Result) Add(scenario, metric string, program world.Program, value float64) {
	if r.samples == nil {
		r.samples = map[key]map[world.Program][]float64{}
	}
	k := key{scenario, metric}
	if r.samples[k] == nil {
		r.samples[k] = map[world.Program][]float64{}
		r.keys = append(r.keys, k)
	}
	r.samples[k][program] = append(r.samples[k][program], value)
}

// AddRequests takes the requests of one round for n objects: their number, how many were conflicts, and each kind of them
// for requests.json.
func (r *Result) AddRequests(scenario string, program world.Program, requests measure.Requests, n int) {
	r.Add(scenario, RequestsPerObject, program, float64(requests.Sum(nil))/float64(n))
	r.Add(scenario, ConflictsPerObject, program, float64(requests.Conflicts())/float64(n))
	verbs := requests.ByVerb()
	for _, verb := range []string{"get", "list", "create", "update", "patch", "update status", "patch status", "delete", "deletecollection"} {
		r.Add(scenario, RequestsPerObject+", "+verb, program, float64(verbs[verb])/float64(n))
	}
	if r.requests == nil {
		r.requests = map[string]map[world.Program]map[string][]float64{}
	}
	if r.requests[scenario] == nil {
		r.requests[scenario] = map[world.Program]map[string][]float64{}
	}
	if r.requests[scenario][program] == nil {
		r.requests[scenario][program] = map[string][]float64{}
	}
	for request, count := range requests {
		r.requests[scenario][program][request.String()] = append(r.requests[scenario][program][request.String()], float64(count)/float64(n))
	}
}

// Rows are the medians, in the order in which their metrics came, without those in which all is zero.
func (r *Result) Rows() []Row {
	var out []Row
	for _, k := range r.keys {
		samples := r.samples[k]
		row := Row{Scenario: k.scenario, Metric: k.metric, Ours: median(samples[world.Ours]), Peer: median(samples[world.Peer]), PeerUncapped: median(samples[world.PeerUncapped])}
		if strings.Contains(k.metric, ", ") && isZero(row.Ours) && isZero(row.Peer) && isZero(row.PeerUncapped) {
			continue
		}
		if row.Ours != nil && row.PeerUncapped != nil && *row.PeerUncapped != 0 {
			row.Ratio = new(*row.Ours / *row.PeerUncapped)
		}
		out = append(out, row)
	}
	for i := range out {
		judge(&out[i], out)
	}
	return out
}

func isZero(value *float64) bool { return value == nil || *value == 0 }

func median(values []float64) *float64 {
	if len(values) == 0 {
		return nil
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return &sorted[middle]
	}
	return new((sorted[middle-1] + sorted[middle]) / 2)
}

// Table prints rows for people.
func Table(out io.Writer, rows []Row) error {
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	if _, err := fmt.Fprintln(table, "scenario\tmetric\tours\tpeer\tpeer uncapped\tratio\tgoal\tmet"); err != nil {
		return err
	}
	for _, row := range rows {
		if _, err := fmt.Fprintln(table, strings.Join(row.cells(), "\t")); err != nil {
			return err
		}
	}
	return table.Flush()
}

func (r Row) cells() []string {
	met := ""
	if r.Met != nil {
		met = map[bool]string{true: "yes", false: "NO"}[*r.Met]
	}
	return []string{r.Scenario, r.Metric, number(r.Ours), number(r.Peer), number(r.PeerUncapped), number(r.Ratio), r.Goal, met}
}

func number(value *float64) string {
	switch {
	case value == nil:
		return "-"
	case math.Abs(*value) >= 100:
		return fmt.Sprintf("%.0f", *value)
	case math.Abs(*value) >= 10:
		return fmt.Sprintf("%.1f", *value)
	default:
		return fmt.Sprintf("%.2f", *value)
	}
}

// WriteJSON writes result.json, with the rows, and requests.json beside it: which requests each program sent for an object.
func (r *Result) WriteJSON(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(dir, "result.json"), map[string]any{"rows": r.Rows()}); err != nil {
		return err
	}
	requests := map[string]map[world.Program]map[string]float64{}
	for scenario, programs := range r.requests {
		requests[scenario] = map[world.Program]map[string]float64{}
		for program, kinds := range programs {
			requests[scenario][program] = map[string]float64{}
			for kind, values := range kinds {
				requests[scenario][program][kind] = *median(values)
			}
		}
	}
	return writeJSON(filepath.Join(dir, "requests.json"), requests)
}

func writeJSON(path string, content any) error {
	data, err := json.MarshalIndent(content, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o644)
}

// rowsOf returns the rows of one metric.
func rowsOf(rows []Row, metric string) []Row {
	var out []Row
	for _, row := range rows {
		if row.Metric == metric && cmp.Or(row.Ours, row.PeerUncapped) != nil {
			out = append(out, row)
		}
	}
	return out
}
