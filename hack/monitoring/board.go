// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/promqltest"
)

const (
	// resolution is the time between two samples, window what the picture shows; before it there is as much again, so that
	// a query over the last hour has one everywhere.
	resolution = time.Minute
	window     = time.Hour
	// rateInterval is what Plutono puts in for $__rate_interval at that resolution.
	rateInterval = "4m"
)

// board is a dashboard of Plutono, as far as it is drawn.
type board struct {
	Title  string  `json:"title"`
	Panels []panel `json:"panels"`
}

type panel struct {
	Title   string `json:"title"`
	Type    string `json:"type"`
	GridPos struct {
		X, Y, W, H int
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit     string `json:"unit"`
			Decimals int    `json:"decimals"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	YAxes []struct {
		Format string `json:"format"`
	} `json:"yaxes"`
	Targets []struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

func (p panel) unit() string {
	if len(p.YAxes) > 0 {
		return p.YAxes[0].Format
	}
	return p.FieldConfig.Defaults.Unit
}

func readBoard(path string) (*board, error) {
	content, err := os.ReadFile(path) // #nosec G304 -- the file that the user names
	if err != nil {
		return nil, err
	}
	content = []byte(strings.ReplaceAll(string(content), "PLACE", "seed"))
	out := &board{}
	if err := json.Unmarshal(content, out); err != nil {
		return nil, fmt.Errorf("reading dashboard %s: %w", path, err)
	}
	return out, nil
}

// data is a Prometheus with samples.
type data struct {
	loader *promqltest.LazyLoader
	engine *promql.Engine
}

// newData returns a Prometheus with series in the notation of promtool.
func newData(series string) (*data, error) {
	loader, err := promqltest.NewLazyLoader(series, promqltest.LazyLoaderOpts{EnableAtModifier: true, EnableNegativeOffset: true})
	if err != nil {
		return nil, fmt.Errorf("reading the sample data: %w", err)
	}
	var loading error
	loader.WithSamplesTill(time.Unix(0, 0).Add(2*window), func(err error) { loading = err })
	if loading != nil {
		return nil, fmt.Errorf("loading the sample data: %w", loading)
	}
	engine := promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true})
	return &data{loader: loader, engine: engine}, nil
}

func (d *data) close() error { return d.loader.Close() }

// line is one series of a panel.
type line struct {
	legend string
	points []promql.FPoint
}

// evaluate returns what the targets of a panel give, sorted by legend.
func (d *data) evaluate(panel panel) ([]line, error) {
	var out []line
	for _, target := range panel.Targets {
		expr := strings.ReplaceAll(target.Expr, "$__rate_interval", rateInterval)
		end := time.Unix(0, 0).Add(2 * window)
		query, err := d.engine.NewRangeQuery(context.Background(), d.loader.Storage(), nil, expr, end.Add(-window), end, resolution)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", expr, err)
		}
		matrix, err := query.Exec(context.Background()).Matrix()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", expr, err)
		}
		for _, series := range matrix {
			out = append(out, line{legend: legend(target.LegendFormat, series.Metric), points: slices.Clone(series.Floats)})
		}
		query.Close()
	}
	slices.SortFunc(out, func(a, b line) int { return cmp.Compare(a.legend, b.legend) })
	return out, nil
}

var inLegend = regexp.MustCompile(`{{ *(\w+) *}}`)

func legend(format string, metric labels.Labels) string {
	return inLegend.ReplaceAllStringFunc(format, func(name string) string {
		return metric.Get(inLegend.FindStringSubmatch(name)[1])
	})
}
