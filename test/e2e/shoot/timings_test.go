// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// timing is how long an operation took.
type timing struct {
	shoot, operation string
	took             time.Duration
}

var timings []timing

// timed does something and notes how long it took, if it succeeded.
func timed(shoot, operation string, do func()) {
	GinkgoHelper()
	By(operation + " of " + shoot)
	begin := time.Now()
	do()
	t := timing{shoot: shoot, operation: operation, took: time.Since(begin)}
	timings = append(timings, t)
	AddReportEntry(fmt.Sprintf("%s of %s: %.0f s", operation, shoot, t.took.Seconds()), ReportEntryVisibilityAlways)
}

// writeTimings writes all of them down at the end of the suite.
func writeTimings() {
	GinkgoHelper()
	if len(timings) == 0 {
		return
	}
	var out strings.Builder
	table := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	for _, t := range timings {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%.0f s\n", t.shoot, t.operation, t.took.Seconds())
	}
	Expect(table.Flush()).To(Succeed())
	GinkgoWriter.Printf("seconds per operation\n%s", out.String())
	Expect(os.WriteFile(landscape.Artefact("timings.txt"), []byte(out.String()), 0o600)).To(Succeed())
}
