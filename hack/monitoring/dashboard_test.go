// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"flag"
	"math"
	"os"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/prometheus/prometheus/promql/parser"
)

const (
	dashboardFile = "../../charts/provider-local/monitoring/dashboard.json"
	pictureFile   = "../../docs/images/dashboard.svg"
)

var update = flag.Bool("update", false, "draw the picture anew")

func TestEachPanelShowsTheSampleData(t *testing.T) {
	g := NewWithT(t)
	board, err := readBoard(dashboardFile)
	g.Expect(err).NotTo(HaveOccurred())
	data, err := newData(sampleSeries())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(data.close()).To(Succeed()) })
	for _, panel := range board.Panels {
		t.Run(panel.Title, func(t *testing.T) {
			g := NewWithT(t)
			lines, err := data.evaluate(panel)
			g.Expect(err).NotTo(HaveOccurred())
			if panel.Type == "row" {
				g.Expect(lines).To(BeEmpty())
				return
			}
			g.Expect(len(lines)).To(BeNumerically(">=", len(panel.Targets)))
			legends := map[string]bool{}
			for _, line := range lines {
				g.Expect(legends).NotTo(HaveKey(line.legend), "two lines nobody can tell apart")
				legends[line.legend] = true
				g.Expect(line.legend).NotTo(HaveSuffix(" "), "a label of the legend is not in the query")
				g.Expect(line.points).NotTo(BeEmpty())
				last := line.points[len(line.points)-1]
				g.Expect(last.T).To(Equal(2 * window.Milliseconds()))
				g.Expect(math.IsInf(last.F, 0)).To(BeFalse())
			}
			if panel.Type == "stat" {
				g.Expect(lines).To(HaveLen(1), "there is room for one number")
			}
		})
	}
}

func TestThePictureIsOfThisDashboard(t *testing.T) {
	g := NewWithT(t)
	picture, err := render(dashboardFile)
	g.Expect(err).NotTo(HaveOccurred())
	again, err := render(dashboardFile)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(again)).To(Equal(string(picture)), "it is the same each time")
	if *update {
		g.Expect(os.WriteFile(pictureFile, picture, 0o600)).To(Succeed())
	}
	drawn, err := os.ReadFile(pictureFile)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(picture)).To(Equal(string(drawn)), "run 'make dashboard'")
	g.Expect(strings.Count(string(drawn), "<path")).To(BeNumerically(">", 30))
	g.Expect(string(drawn)).NotTo(ContainSubstring("no data"))
}

func TestAQueryThatIsWrongIsAnError(t *testing.T) {
	g := NewWithT(t)
	data, err := newData(sampleSeries())
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { g.Expect(data.close()).To(Succeed()) })
	wrong := panel{}
	wrong.Targets = append(wrong.Targets, struct {
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	}{Expr: "sum by (rate("})
	_, err = data.evaluate(wrong)
	g.Expect(err).To(MatchError(ContainSubstring("parse error")))
}

func TestTheQuestionsInTheDocumentsAreQueries(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile("../../docs/operations/observability.md")
	g.Expect(err).NotTo(HaveOccurred())
	_, rest, found := strings.Cut(string(content), "```promql\n")
	g.Expect(found).To(BeTrue())
	block, _, _ := strings.Cut(rest, "```")
	for _, query := range strings.Split(strings.TrimSpace(block), "\n") {
		if !strings.HasPrefix(query, "#") {
			_, err := parser.NewParser(parser.Options{}).ParseExpr(query)
			g.Expect(err).NotTo(HaveOccurred(), query)
		}
	}
}

func TestAxesHaveFewRoundNumbers(t *testing.T) {
	for name, tc := range map[string]struct{ high, step, end float64 }{
		"nothing":    {0, 1, 1},
		"small":      {0.031, 0.01, 0.04},
		"in between": {7, 2, 8},
		"just round": {10, 5, 10},
		"large":      {83e6, 5e7, 1e8},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			l := line{}
			l.points = append(l.points, point(0), point(math.NaN()), point(tc.high))
			step, end := bounds([]line{l}, 1)
			g.Expect(step).To(BeNumerically("~", tc.step, tc.step/1000))
			g.Expect(end).To(BeNumerically("~", tc.end, tc.end/1000))
		})
	}
}
