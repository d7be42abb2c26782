// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// mark is what a row of the report says about the health of what it shows.
type mark string

const (
	good mark = "ok"
	// note is for rows without health.
	note mark = ""
	// busy is what is on its way: reconciled, deleted, or part of something that is.
	busy mark = "busy"
	bad  mark = "BAD"
)

// maxDetail bounds the last column; errors of Gardener may be whole pages.
const maxDetail = 160

type row struct {
	mark
	Kind, Name, Detail string
}

type section struct {
	title string
	rows  []row
}

func (s *section) add(m mark, kind, name, detail string) {
	detail = strings.Join(strings.Fields(detail), " ")
	if letters := []rune(detail); len(letters) > maxDetail {
		detail = string(letters[:maxDetail]) + "..."
	}
	s.rows = append(s.rows, row{m, kind, name, detail})
}

// report is what `status` shows.
type report struct {
	sections []*section
}

func (r *report) section(title string) *section {
	s := &section{title: title}
	r.sections = append(r.sections, s)
	return s
}

// marked returns the rows of all sections that have the mark.
func (r *report) marked(m mark) []row {
	var found []row
	for _, s := range r.sections {
		for _, row := range s.rows {
			if row.mark == m {
				found = append(found, row)
			}
		}
	}
	return found
}

// print writes what is not healthy first, then what is on its way, then everything by section.
func (r *report) print(out io.Writer) error {
	first := []*section{{title: "NOT HEALTHY", rows: r.marked(bad)}, {title: "ON THEIR WAY", rows: r.marked(busy)}}
	var errs []error
	for _, s := range append(first, r.sections...) {
		if len(s.rows) == 0 {
			continue
		}
		table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
		_, _ = fmt.Fprintf(table, "%s\n", s.title)
		for _, row := range s.rows {
			_, _ = fmt.Fprintf(table, "  %s\t%s\t%s\t%s\n", row.mark, row.Kind, row.Name, row.Detail)
		}
		_, _ = fmt.Fprintln(table)
		errs = append(errs, table.Flush())
	}
	return errors.Join(errs...)
}

// err says how many things are not healthy.
func (r *report) err() error {
	if count := len(r.marked(bad)); count > 0 {
		return fmt.Errorf("%d things are not healthy", count)
	}
	return nil
}
