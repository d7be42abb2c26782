// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
)

const (
	// column and row are the size of a cell of the dashboard's grid, gap the space between panels.
	column, row, gap = 50, 22, 6
	header           = 34
	// Around a plot: the labels of its axes, its title, its legend.
	left, right, top, bottom, legendLine = 52, 22, 26, 22, 13
	maxLegend                            = 5
	// How wide a character of the legend is.
	character = 6
)

// Plutono's colours, which are the same in the same order for each panel.
func palette() []string {
	return []string{"#7eb26d", "#eab839", "#6ed0e0", "#ef843c", "#e24d42", "#1f78c1", "#ba43a9", "#705da0", "#508642", "#cca300"}
}

// canvas writes an SVG.
type canvas struct {
	out io.Writer
}

func newCanvas(out io.Writer, b *board) *canvas {
	height := 0
	for _, panel := range b.Panels {
		height = max(height, panel.GridPos.Y+panel.GridPos.H)
	}
	c := &canvas{out: out}
	c.write(`<?xml version="1.0" encoding="UTF-8"?>
<!-- SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
     SPDX-License-Identifier: Apache-2.0
     Drawn by hack/monitoring: make dashboard -->
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="Helvetica, Arial, sans-serif" font-size="11">
<rect width="100%%" height="100%%" fill="#161719"/>
<text x="10" y="23" fill="#d8d9da" font-size="17">%s</text>
<text x="%d" y="23" fill="#8e8e8e" text-anchor="end">sample data</text>
`, 24*column, height*row+header+gap, html.EscapeString(b.Title), 24*column-10)
	return c
}

func (c *canvas) end() { c.write("</svg>\n") }

func (c *canvas) write(format string, args ...any) { _, _ = fmt.Fprintf(c.out, format, args...) }

func (c *canvas) text(x, y float64, anchor, fill, content string) {
	c.write(`<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, fill, html.EscapeString(content))
}

func (c *canvas) panel(p panel, lines []line) {
	x, y := float64(p.GridPos.X*column+gap/2), float64(p.GridPos.Y*row+header)
	width, height := float64(p.GridPos.W*column-gap), float64(p.GridPos.H*row-gap)
	if p.Type == "row" {
		c.write(`<text x="%.1f" y="%.1f" fill="#d8d9da" font-size="14">%s</text>`+"\n", x+4, y+13, html.EscapeString(p.Title))
		return
	}
	c.write(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="3" fill="#212124"/>`+"\n", x, y, width, height)
	c.text(x+width/2, y+16, "middle", "#d8d9da", p.Title)
	if p.Type == "stat" {
		c.stat(p, lines, x, y, width, height)
		return
	}
	legends := min(len(lines), maxLegend)
	c.graph(p.unit(), lines, x+left, y+top, width-left-right, height-top-bottom-float64(legends*legendLine))
	for i, line := range lines[:legends] {
		at := y + height - float64((legends-i)*legendLine) + 6
		c.write(`<rect x="%.1f" y="%.1f" width="12" height="3" fill="%s"/>`+"\n", x+10, at-4, palette()[i%len(palette())])
		c.text(x+27, at, "start", "#c7d0d9", shortened(line.legend, int(width-30)/character))
	}
}

func shortened(text string, length int) string {
	if len(text) <= length {
		return text
	}
	return text[:length-3] + "..."
}

// stat shows the last value in large letters, over a faint curve.
func (c *canvas) stat(p panel, lines []line, x, y, width, height float64) {
	value := "no data"
	if len(lines) > 0 && len(lines[0].points) > 0 {
		points := lines[0].points
		value = format(points[len(points)-1].F, p.unit())
		if p.unit() == "short" {
			value = strconv.FormatFloat(points[len(points)-1].F, 'f', p.FieldConfig.Defaults.Decimals, 64)
		}
		_, high := bounds(lines, 1)
		c.curve(lines[0], high, x, y+height*0.6, width, height*0.38, `stroke="#3274d9" stroke-opacity="0.6"`)
	}
	c.write(`<text x="%.1f" y="%.1f" text-anchor="middle" fill="#5794f2" font-size="26">%s</text>`+"\n", x+width/2, y+height*0.62, html.EscapeString(value))
}

func (c *canvas) graph(unit string, lines []line, x, y, width, height float64) {
	step, high := bounds(lines, divisor(unit))
	for value := 0.0; value <= high*1.0001; value += step {
		at := y + height - height*value/high
		c.write(`<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#34363a"/>`+"\n", x, at, x+width, at)
		c.text(x-5, at+4, "end", "#8e8e8e", format(value, unit))
	}
	for minute := 0; minute <= 60; minute += 15 {
		c.text(x+width*float64(minute)/60, y+height+16, "middle", "#8e8e8e", fmt.Sprintf("%02d:%02d", 9+minute/60, minute%60))
	}
	for i, line := range lines {
		c.curve(line, high, x, y, width, height, `stroke="`+palette()[i%len(palette())]+`"`)
	}
}

func (c *canvas) curve(l line, high, x, y, width, height float64, style string) {
	var path strings.Builder
	move := "M"
	for _, point := range l.points {
		if math.IsNaN(point.F) || math.IsInf(point.F, 0) {
			move = "M"
			continue
		}
		at := float64(point.T-startOfPicture()) / float64(window.Milliseconds())
		_, _ = fmt.Fprintf(&path, "%s%.1f %.1f", move, x+width*at, y+height-height*min(point.F/high, 1))
		move = "L"
	}
	c.write(`<path d="%s" fill="none" stroke-width="1.4" %s/>`+"\n", path.String(), style)
}

// divisor is the number that a unit's values are shown as fractions of.
func divisor(unit string) float64 {
	if unit == "bytes" {
		return 1 << 20
	}
	return 1
}

// bounds returns the distance between the lines of a grid, a round number of divisors, and its upper end.
func bounds(lines []line, divisor float64) (step, high float64) {
	for _, line := range lines {
		for _, point := range line.points {
			if !math.IsNaN(point.F) && !math.IsInf(point.F, 0) {
				high = max(high, point.F)
			}
		}
	}
	if high == 0 {
		return divisor, divisor
	}
	high /= divisor
	step = math.Pow(10, math.Floor(math.Log10(high/3)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if high <= 4*factor*step {
			step *= factor
			break
		}
	}
	return step * divisor, step * divisor * math.Ceil(high/step-1e-9)
}

// format writes a value as Plutono does for a unit.
func format(value float64, unit string) string {
	switch unit {
	case "s":
		if value < 1 {
			return number(value*1000) + " ms"
		}
		return number(value) + " s"
	case "bytes":
		return number(value/divisor(unit)) + " MiB"
	case "percentunit":
		return strconv.FormatFloat(value*100, 'f', 1, 64) + "%"
	case "ops":
		return number(value) + "/s"
	default:
		return number(value)
	}
}

func number(value float64) string {
	switch {
	case value >= 100 || value == math.Trunc(value):
		return strconv.FormatFloat(value, 'f', 0, 64)
	case value >= 10:
		return strconv.FormatFloat(math.Round(value*10)/10, 'f', -1, 64)
	default:
		return strconv.FormatFloat(math.Round(value*1000)/1000, 'f', -1, 64)
	}
}
