// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// Outcome is how a variant went.
type Outcome struct {
	Variant string `json:"variant"`
	// Passed is whether all was as expected; Failures are the first lines of what was not.
	Passed   bool     `json:"passed"`
	Failures []string `json:"failures,omitempty"`
	Seconds  float64  `json:"seconds"`
	// Accelerator is what it ran with, and Commit of what.
	Accelerator string `json:"accelerator"`
	Commit      string `json:"commit"`
}

func (o Outcome) result() string {
	if o.Passed {
		return "passed"
	}
	return "FAILED: " + strings.Join(o.Failures, "; ")
}

// Outcomes are kept in a file, so that variants can be run one after the other.
type Outcomes map[string]Outcome

// LoadOutcomes reads what earlier runs found; nothing if there were none.
func LoadOutcomes(path string) (Outcomes, error) {
	outcomes := Outcomes{}
	content, err := os.ReadFile(path) // #nosec G304 -- written below.
	if errors.Is(err, os.ErrNotExist) {
		return outcomes, nil
	}
	if err == nil {
		err = json.Unmarshal(content, &outcomes)
	}
	if err != nil {
		return nil, fmt.Errorf("reading earlier results: %w", err)
	}
	return outcomes, nil
}

// Save writes them.
func (o Outcomes) Save(path string) error {
	content, err := json.MarshalIndent(o, "", "  ")
	if err == nil {
		err = os.WriteFile(path, content, 0o644) // #nosec G306 -- nothing secret.
	}
	if err != nil {
		return fmt.Errorf("keeping results: %w", err)
	}
	return nil
}

// Table prints the outcomes of some variants.
func (o Outcomes) Table(out io.Writer, variants []Variant) error {
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "VARIANT\tEXPECTED\tSECONDS\tRESULT")
	for _, v := range variants {
		if outcome, found := o[v.Name]; found {
			_, _ = fmt.Fprintf(table, "%s\t%s\t%.0f\t%s\n", v.Name, v.Expect, outcome.Seconds, outcome.result())
		} else {
			_, _ = fmt.Fprintf(table, "%s\t%s\t\tnot run\n", v.Name, v.Expect)
		}
	}
	return table.Flush()
}

// page is docs/development/tested-machines.md but for its rows.
const page = `---
title: Tested machines
description: Machines on which make up and make down are tested, with results
---

# Tested machines

Each row is a virtual machine with a stock Debian (systemd, cgroup v2, Debian's kernel) that runs the commands of the README. *Served* means that
` + "`make up`" + ` succeeds, pods reach pods, Services, load balancers, DNS and the API server, and a machine with its own kubelet runs. *Refused* means
that ` + "`make up`" + ` names cause and remedy before it changes anything. In both cases, ` + "`make down`" + ` must leave firewall rules, routes, links, kernel
parameters, mounts, cgroups, processes and Docker's containers as they were.

` + "`make test-machines DOCS=1`" + ` writes this page, ` + "`make test-machines VARIANT=docker,ufw`" + ` runs some rows. With KVM all steps of ` + "`make up`" + ` run, with
emulation (TCG) the steps up to ` + "`dns`" + `.

| machine | | expected | result | seconds | with | commit |
|---|---|---|---|---|---|---|
`

// Page writes the page in docs. What was not run on this machine keeps its row of the former page.
func (o Outcomes) Page(variants []Variant, former string) string {
	var out strings.Builder
	out.WriteString(page)
	for _, v := range variants {
		outcome, found := o[v.Name]
		if !found {
			row := fmt.Sprintf("| %s | %s | %s | not run | | | |\n", v.Name, v.About, v.Expect)
			for line := range strings.Lines(former) {
				if strings.HasPrefix(line, "| "+v.Name+" |") {
					row = line
				}
			}
			out.WriteString(row)
			continue
		}
		result := strings.ReplaceAll(outcome.result(), "|", `\|`)
		_, _ = fmt.Fprintf(&out, "| %s | %s | %s | %s | %.0f | %s | %s |\n", v.Name, v.About, v.Expect, result, outcome.Seconds, strings.ToUpper(outcome.Accelerator), outcome.Commit)
	}
	return out.String()
}

// Select returns the variants of these names, all if there is none, in the order of the table.
func Select(variants []Variant, names string) ([]Variant, error) {
	if names == "" {
		return variants, nil
	}
	wanted := strings.Split(names, ",")
	var selected []Variant
	var known []string
	for _, v := range variants {
		known = append(known, v.Name)
		if slices.Contains(wanted, v.Name) {
			selected = append(selected, v)
		}
	}
	for _, name := range wanted {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("there is no variant %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return selected, nil
}
