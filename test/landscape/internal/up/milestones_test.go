// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

// clock is a time that only a test moves.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time                 { return c.now }
func (c *clock) pass(d time.Duration)           { c.now = c.now.Add(d) }
func (c *clock) times(path string) *times       { return &times{path: path, now: c.Now} }
func newClock() *clock                          { return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)} }
func milestonesFile(t *testing.T) (path string) { return filepath.Join(t.TempDir(), "milestones.json") }

func TestMilestonesAreReportedAndKept(t *testing.T) {
	g := NewWithT(t)
	c, path := newClock(), milestonesFile(t)
	first := c.times(path)
	g.Expect(first.begin()).To(Succeed())
	c.pass(10 * time.Second)
	first.reach("Node Ready")
	c.pass(130*time.Second + 42*time.Millisecond)
	first.reach("Garden Succeeded")

	c.pass(time.Hour)
	second := c.times(path)
	g.Expect(second.begin()).To(Succeed())
	c.pass(time.Second)
	second.reach("Garden Succeeded")
	second.reach("Seed healthy")
	var out bytes.Buffer
	g.Expect(second.finish(&out, 7_250_000_000)).To(Succeed())
	g.Expect(out.String()).To(And(
		MatchRegexp(`Node Ready +10\.0\n`), MatchRegexp(`Garden Succeeded +140\.0\n`), MatchRegexp(`Seed healthy +1\.0\n`), MatchRegexp(`memory in use +7\.2 GB\n`),
	))
	content, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	var file timesFile
	g.Expect(json.Unmarshal(content, &file)).To(Succeed())
	g.Expect(file).To(Equal(timesFile{
		Steps: map[string]float64{},
		Milestones: []reachedMilestone{
			{Title: "Node Ready", Seconds: 10}, {Title: "Garden Succeeded", Seconds: 140}, {Title: "Seed healthy", Seconds: 1},
		},
	}))
}

func TestEndsOfStepsAreNoted(t *testing.T) {
	g := NewWithT(t)
	c, path := newClock(), milestonesFile(t)
	kept := c.times(path)
	g.Expect(kept.begin()).To(Succeed())
	does := func(took time.Duration, err error) func(context.Context, step.Progress) (string, error) {
		return func(context.Context, step.Progress) (string, error) { c.pass(took); return "", err }
	}
	steps := []step.Step{
		{Name: "binaries", Execute: does(2*time.Second, nil)},
		{Name: "node", Execute: does(3*time.Second, nil)},
		{Name: "garden", Execute: does(4*time.Second, errors.New("stuck"))},
	}
	err := step.Runner{Out: &bytes.Buffer{}, Now: c.Now, Done: kept.end}.Run(t.Context(), steps)
	g.Expect(err).To(MatchError(ContainSubstring("stuck")))
	g.Expect(kept.content.Steps).To(Equal(map[string]float64{"binaries": 2, "node": 5}))
}

func TestMilestonesSayWhatIsWrongWithTheirFile(t *testing.T) {
	g := NewWithT(t)
	c, path := newClock(), milestonesFile(t)
	g.Expect(os.WriteFile(path, []byte("{"), 0o600)).To(Succeed())
	g.Expect(c.times(path).begin()).To(MatchError(ContainSubstring("reading " + path)))
	g.Expect(c.times(filepath.Join(path, "none")).begin()).NotTo(Succeed())

	kept := c.times(filepath.Join(t.TempDir(), "none", "milestones.json"))
	g.Expect(kept.begin()).To(MatchError(ContainSubstring("writing the milestones")))
	var nothing *times
	nothing.reach("x") // keeps nothing, and does no harm
}
