// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/measure"
	"github.com/gardener/gardener-extension-provider-local/test/bench/internal/world"
)

func TestRowsAreMediansWithTheRatioToThePeerWithoutItsLimit(t *testing.T) {
	g := NewWithT(t)
	r := &Result{}
	for _, value := range []float64{3, 1, 2} {
		r.Add("garden BackupBucket n=10 create", Seconds, world.Ours, value)
	}
	for _, value := range []float64{8, 4} {
		r.Add("garden BackupBucket n=10 create", Seconds, world.PeerUncapped, value)
	}
	r.Add("garden BackupBucket n=10 create", Seconds, world.Peer, 100)

	g.Expect(r.Rows()).To(Equal([]Row{{
		Scenario: "garden BackupBucket n=10 create", Metric: Seconds, Ours: new(2.0), Peer: new(100.0), PeerUncapped: new(6.0),
		Ratio: new(2.0 / 6), Goal: "ratio <= 0.33", Met: new(true),
	}}))
}

func TestGoalsAreJudgedByWhatTheyAreAbout(t *testing.T) {
	for _, test := range []struct {
		name             string
		scenario, metric string
		ours, peer       float64
		goal             string
		met              *bool
	}{
		{"conflicts of our own making are none at all", "shoots Worker n=50 delete", ConflictsPerObject, 0.1, 0.4, "<= 0", new(false)},
		{"a control plane has a lower limit", "shoots ControlPlane n=50 create", CPUPerObject, 3, 10, "ratio <= 0.25", new(false)},
		{"others have a higher one", "shoots Worker n=50 create", CPUPerObject, 3, 10, "ratio <= 0.50", new(true)},
		{"also when it is deleted", "shoots ControlPlane n=50 delete", CPUPerObject, 2.5, 10, "ratio <= 0.25", new(true)},
		{"an Infrastructure may take as many requests as the peer's to delete", "shoots Infrastructure n=50 delete", RequestsPerObject, 4, 4, "ratio <= 1.00", new(true)},
		{"a Worker too, and no more", "shoots Worker n=50 delete", RequestsPerObject, 8.1, 8, "ratio <= 1.00", new(false)},
		{"both have to save some when they are created", "shoots Worker n=50 create", RequestsPerObject, 7, 10, "ratio <= 0.60", new(false)},
		{"an Extension has to save requests", "shoots Extension local-ext-seed n=50 create", RequestsPerObject, 4, 6.5, "ratio <= 0.60", new(false)},
		{"1,000 dynamic updates take less time", "garden DNSRecord by rfc2136 n=1000 create", Seconds, 6, 10, "ratio <= 0.60", new(true)},
		{"and fewer requests", "garden DNSRecord by rfc2136 n=1000 create", RequestsPerObject, 2.9, 4.7, "ratio <= 0.60", new(false)},
		{"a cold pull takes no longer", "pull cold", Milliseconds, 2.1, 2, "ratio <= 1.00", new(false)},
		{"a warm one has no goal", "pull warm by tag", Milliseconds, 2.1, 2, "", nil},
		{"a rate is to be high", "fake nodes n=1000, beside kwok v0.8.0", PerSecond, 199, 287, ">= 200", new(false)},
		{"memory counts with unrelated objects", "idle, 5000 unrelated Secrets and 2000 ConfigMaps", AnonymousRSS, 44, 222, "<= 45", new(true)},
		{"also after a ControlPlane", "idle, 5000 unrelated Secrets and 2000 ConfigMaps, after a ControlPlane", AnonymousRSS, 45.1, 236, "<= 45", new(false)},
		{"without them there is no goal", "idle, 0 objects", AnonymousRSS, 44, 38, "", nil},
		{"an Infrastructure may take its time", "shoots Infrastructure n=50 create", Seconds, 9, 10, "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			r := &Result{}
			r.Add(test.scenario, test.metric, world.Ours, test.ours)
			r.Add(test.scenario, test.metric, world.PeerUncapped, test.peer)
			row := r.Rows()[0]
			g.Expect(row.Goal).To(Equal(test.goal))
			g.Expect(row.Met).To(Equal(test.met))
		})
	}
}

func TestGoalsByTheFloorAreJudgedByThatOfTheSameRun(t *testing.T) {
	const records, mock = "garden DNSRecord by coredns n=1000 create", "mock objects n=1000 create"
	for _, test := range []struct {
		name             string
		scenario, metric string
		ours             float64
		floor            string
		goal             string
		met              *bool
	}{
		{"a time is at most a multiple", records, Seconds, 13, "API server alone n=1000 create", "<= 1.30 x floor", new(true)},
		{"no more", records, Seconds, 13.1, "API server alone n=1000 create", "<= 1.30 x floor", new(false)},
		{"a rate is at least a part", mock, PerSecond, 9, "API server alone n=1000 create", ">= 0.90 x floor", new(true)},
		{"no less", mock, PerSecond, 8.9, "API server alone n=1000 create", ">= 0.90 x floor", new(false)},
		{"the floor for fewer objects does not count", records, Seconds, 9, "API server alone n=100 create", "<= 1.30 x floor", nil},
		{"that for more does not either", mock, PerSecond, 9, "API server alone n=10000 create", ">= 0.90 x floor", nil},
		{"nor does that of deletion", records, Seconds, 9, "API server alone n=1000 delete", "<= 1.30 x floor", nil},
		{"without a floor there is no judgement", records, Seconds, 9, "", "<= 1.30 x floor", nil},
		{"fewer DNSRecords have the goal of others", "garden DNSRecord by coredns n=100 create", Seconds, 9, "API server alone n=100 create", "ratio <= 0.33", nil},
		{"the deletion of mock objects has no goal", "mock objects n=1000 delete", PerSecond, 1, "API server alone n=1000 delete", "", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			r := &Result{}
			r.Add(test.scenario, test.metric, world.Ours, test.ours)
			if test.floor != "" {
				r.Add(test.floor, test.metric, world.Ours, 10)
				r.Add(test.floor, RequestsPerObject, world.Ours, 1)
			}
			row := r.Rows()[0]
			g.Expect(row.Goal).To(Equal(test.goal))
			g.Expect(row.Met).To(Equal(test.met))
		})
	}
}

func TestTheTableShowsGoalsByTheFloor(t *testing.T) {
	g := NewWithT(t)
	r := &Result{}
	r.Add("API server alone n=1000 create", Seconds, world.Ours, 5)
	r.Add("garden DNSRecord by coredns n=1000 create", Seconds, world.Ours, 6)
	var out bytes.Buffer
	g.Expect(Table(&out, r.Rows())).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`coredns n=1000 create +seconds +6\.00 +- +- +- +<= 1\.30 x floor +yes`))
}

func TestWhatWasNotMeasuredIsNull(t *testing.T) {
	g := NewWithT(t)
	r := &Result{}
	r.Add("restart", LeadsAfter, world.Ours, 0.5)
	r.AddRequests("restart", world.Ours, measure.Requests{{Verb: "get", Resource: "secrets", Code: 404}: 3}, 2)
	dir := t.TempDir()
	g.Expect(r.WriteJSON(dir)).To(Succeed())

	data, err := os.ReadFile(filepath.Join(dir, "result.json"))
	g.Expect(err).NotTo(HaveOccurred())
	var got struct{ Rows []map[string]any }
	g.Expect(json.Unmarshal(data, &got)).To(Succeed())
	g.Expect(got.Rows[0]).To(Equal(map[string]any{
		"scenario": "restart", "metric": LeadsAfter, "ours": 0.5, "peer": nil, "peer_uncapped": nil, "ratio": nil, "goal": "<= 1", "met": true,
	}))
	data, err = os.ReadFile(filepath.Join(dir, "requests.json"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(data).To(MatchJSON(`{"restart":{"ours":{"get secrets 404":1.5}}}`))

	var out bytes.Buffer
	g.Expect(Table(&out, r.Rows())).To(Succeed())
	g.Expect(out.String()).To(MatchRegexp(`restart +seconds until it leads +0\.50 +- +- +- +<= 1 +yes`))
}

func TestAPageHasPlotsAndAllRows(t *testing.T) {
	g := NewWithT(t)
	r := &Result{}
	r.Add("garden BackupBucket n=10 create", Seconds, world.Ours, 1)
	r.Add("garden BackupBucket n=10 create", Seconds, world.PeerUncapped, 4)
	r.Add("mock objects n=10", PerSecond, world.Ours, 1)
	dir := t.TempDir()
	g.Expect(WritePage(dir, About{Machine: "2 CPUs"}, r.Rows())).To(Succeed())

	page, err := os.ReadFile(filepath.Join(dir, "README.md"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(page)).To(And(ContainSubstring("| garden BackupBucket n=10 create | seconds | 1.00 | - | 4.00 | 0.25 |"), ContainSubstring("](seconds.svg)")))
	for _, name := range []string{"seconds.svg", "per-second.svg"} {
		svg, err := os.ReadFile(filepath.Join(dir, name))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(svg)).To(ContainSubstring("<svg"))
	}
}
