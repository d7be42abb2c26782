// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Program monitoring draws the dashboard of charts/provider-local as an SVG: it evaluates the dashboard's own queries with
// Prometheus' engine, on sample data. Its tests evaluate the alerts in the same way.
//
// It is a module of its own, as the engine of Prometheus is no part of the product, and has dependencies that Gardener's
// libraries would have to agree with.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
)

func main() {
	input := flag.String("dashboard", "../../charts/provider-local/monitoring/dashboard.json", "the dashboard")
	output := flag.String("output", "../../docs/images/dashboard.svg", "the picture")
	flag.Parse()
	if err := run(*input, *output); err != nil {
		fmt.Fprintln(os.Stderr, "monitoring:", err)
		os.Exit(1)
	}
}

func run(input, output string) error {
	picture, err := render(input)
	if err != nil {
		return err
	}
	return os.WriteFile(output, picture, 0o600)
}

// render returns the picture of a dashboard. It is the same each time.
func render(input string) ([]byte, error) {
	board, err := readBoard(input)
	if err != nil {
		return nil, err
	}
	data, err := newData(sampleSeries())
	if err != nil {
		return nil, err
	}
	defer func() { _ = data.close() }()

	var out bytes.Buffer
	canvas := newCanvas(&out, board)
	for _, panel := range board.Panels {
		lines, err := data.evaluate(panel)
		if err != nil {
			return nil, fmt.Errorf("panel %q: %w", panel.Title, err)
		}
		canvas.panel(panel, lines)
	}
	canvas.end()
	return out.Bytes(), nil
}
