// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

const (
	barWidth  = 9 * vg.Millimeter / 2
	rowHeight = 13 * vg.Millimeter
)

// figures are the plots, by the metric that they show.
func figures() map[string]string {
	return map[string]string{
		Seconds: "seconds", RequestsPerObject: "requests", CPUPerObject: "cpu", AnonymousRSS: "memory", PerSecond: "per-second",
	}
}

// Plot writes one SVG per metric into dir, and returns their names by metric.
func Plot(dir string, rows []Row) (map[string]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	out := map[string]string{}
	var errs []error
	for metric, name := range figures() {
		shown := rowsOf(rows, metric)
		if len(shown) == 0 {
			continue
		}
		out[metric] = name + ".svg"
		errs = append(errs, bars(filepath.Join(dir, name+".svg"), metric, shown))
	}
	return out, errors.Join(errs...)
}

// bars draws each scenario as two bars, ours and the peer's without its limit.
func bars(path, title string, rows []Row) error {
	p := plot.New()
	p.Title.Text = title
	p.X.Min = 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())

	// The first is at the top.
	var ours, peer plotter.Values
	names := make([]string, len(rows))
	for i := range rows {
		row := rows[len(rows)-1-i]
		names[i] = row.Scenario
		ours, peer = append(ours, valueOf(row.Ours)), append(peer, valueOf(row.PeerUncapped))
	}
	for _, series := range []struct {
		name   string
		values plotter.Values
		color  color.Color
		offset vg.Length
	}{
		{"ours", ours, color.RGBA{R: 0x0b, G: 0x6e, B: 0x4f, A: 0xff}, barWidth / 2},
		{"in-tree, without its limit", peer, color.RGBA{R: 0xc9, G: 0xc9, B: 0xc9, A: 0xff}, -barWidth / 2},
	} {
		chart, err := plotter.NewBarChart(series.values, barWidth)
		if err != nil {
			return fmt.Errorf("drawing %s: %w", path, err)
		}
		chart.Horizontal, chart.Color, chart.Offset, chart.LineStyle.Width = true, series.color, series.offset, 0
		p.Add(chart)
		p.Legend.Add(series.name, chart)
	}
	p.NominalY(names...)
	return p.Save(24*vg.Centimeter, vg.Length(len(rows))*rowHeight+4*vg.Centimeter, path)
}

func valueOf(value *float64) float64 {
	if value == nil {
		return 0
	}
	return *value
}

// About is what a page says of how its numbers were taken.
type About struct {
	// Machine, Versions and Command are one line each.
	Machine, Versions, Command, Date string
}

// WritePage writes README.md with all rows into dir, and the plots.
func WritePage(dir string, about About, rows []Row) error {
	plots, err := Plot(dir, rows)
	if err != nil {
		return err
	}
	var page strings.Builder
	fmt.Fprintf(&page, "# Results of `make bench`\n\nWritten by the bench itself; [performance.md](../development/performance.md) says what is measured, and how.\n\n"+
		"- Machine: %s\n- Versions: %s\n- Command: `%s`\n- Date: %s\n\n", about.Machine, about.Versions, about.Command, about.Date)
	for _, metric := range []string{Seconds, RequestsPerObject, CPUPerObject, AnonymousRSS, PerSecond} {
		if plots[metric] != "" {
			fmt.Fprintf(&page, "![%s](%s)\n\n", metric, plots[metric])
		}
	}
	page.WriteString("| scenario | metric | ours | peer | peer uncapped | ratio | goal | met |\n|---|---|---|---|---|---|---|---|\n")
	for _, row := range rows {
		fmt.Fprintf(&page, "| %s |\n", strings.Join(row.cells(), " | "))
	}
	return os.WriteFile(filepath.Join(dir, "README.md"), []byte(page.String()), 0o644)
}
