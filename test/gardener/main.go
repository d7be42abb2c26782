// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command gardener prints a Markdown table of the cases in a JSON report of Ginkgo's: the script run beside it calls it after Gardener's
// end-to-end suite.
package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/onsi/ginkgo/v2/types"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: gardener REPORT.json")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(path string, out io.Writer) error {
	content, err := os.ReadFile(path) // #nosec G304 -- the report that was asked for
	if err != nil {
		return fmt.Errorf("reading the report: %w", err)
	}
	var reports []types.Report
	if err := json.Unmarshal(content, &reports); err != nil {
		return fmt.Errorf("reading the report %s: %w", path, err)
	}
	all := cases(reports)
	if len(all) == 0 {
		return errors.New("no case of the suite ran: FILTER and FOCUS choose none")
	}
	_, err = io.WriteString(out, table(all))
	return err
}

// result is what came out of one case, which has many steps.
type result struct {
	name          string
	steps, passed int
	time          time.Duration
	// failure is the first step that failed, and why; skipped is why the suite left out some.
	failure, skipped string
}

// afterFailure begins what Ginkgo says about the steps after one that failed.
const afterFailure = "Spec skipped because an earlier spec"

// depth is how many of the containers around a step name its case: subject, title, and kind of Shoot.
const depth = 3

// cases are the cases of which steps ran, in the order in which the suite has them.
func cases(reports []types.Report) []*result {
	var all []*result
	byName := map[string]*result{}
	for _, report := range reports {
		for _, spec := range report.SpecReports {
			containers := spec.ContainerHierarchyTexts
			if len(containers) == 0 {
				continue
			}
			name := strings.Join(containers[:min(len(containers), depth)], ", ")
			c := byName[name]
			if c == nil {
				c = &result{name: name}
				byName[name], all = c, append(all, c)
			}
			switch {
			case spec.State.Is(types.SpecStatePassed):
				c.passed++
			case spec.State.Is(types.SpecStateFailureStates) && c.failure == "":
				reason, _, _ := strings.Cut(strings.TrimSpace(spec.Failure.Message), "\n")
				c.failure = spec.LeafNodeText + ": " + reason
			case spec.State.Is(types.SpecStateSkipped) && !strings.HasPrefix(spec.Failure.Message, afterFailure):
				c.skipped = spec.Failure.Message
			}
			c.steps++
			c.time += spec.RunTime
		}
	}
	// What no step ran of was not asked for.
	return slices.DeleteFunc(all, func(c *result) bool { return c.passed == 0 && c.failure == "" })
}

func table(cases []*result) string {
	var out strings.Builder
	out.WriteString("| case | result | steps | seconds | first failure, or why steps were skipped |\n|---|---|---|---|---|\n")
	for _, c := range cases {
		state := "passed"
		if c.failure != "" {
			state = "failed"
		}
		fmt.Fprintf(&out, "| %s | %s | %d of %d | %.0f | %s |\n", c.name, state, c.passed, c.steps, c.time.Seconds(), strings.ReplaceAll(cmp.Or(c.failure, c.skipped), "|", `\|`))
	}
	return out.String()
}
