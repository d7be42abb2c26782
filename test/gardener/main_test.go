// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
)

func TestTheTableHasEachCaseThatRanWithItsFirstFailure(t *testing.T) {
	g := NewWithT(t)
	step := func(state types.SpecState, text, message string, containers ...string) types.SpecReport {
		return types.SpecReport{
			ContainerHierarchyTexts: containers, LeafNodeText: text, State: state, RunTime: 2 * time.Second, Failure: types.Failure{Message: message},
		}
	}
	content, err := json.Marshal([]types.Report{{SpecReports: types.SpecReports{
		step(types.SpecStatePassed, "Create Shoot", "", "Shoot Tests", "Create", "Workerless Shoot"),
		step(types.SpecStateFailed, "Wait for Shoot", "Timed out | after 30s.\nExpected more", "Shoot Tests", "Create", "Workerless Shoot", "Bastion"),
		step(types.SpecStateSkipped, "Delete Shoot", "Spec skipped because an earlier spec in an ordered container failed", "Shoot Tests", "Create", "Workerless Shoot"),
		step(types.SpecStateSkipped, "Create Shoot", "", "Shoot Tests", "Create", "Shoot with workers"),
		step(types.SpecStatePassed, "Create Project", "", "Project Tests"),
		step(types.SpecStateSkipped, "Switch class", "class not installed", "Project Tests"),
	}}})
	g.Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(t.TempDir(), "report.json")
	g.Expect(os.WriteFile(path, content, 0o600)).To(Succeed())
	var out strings.Builder
	g.Expect(run(path, &out)).To(Succeed())
	g.Expect(out.String()).To(Equal(`| case | result | steps | seconds | first failure, or why steps were skipped |
|---|---|---|---|---|
| Shoot Tests, Create, Workerless Shoot | failed | 1 of 3 | 6 | Wait for Shoot: Timed out \| after 30s. |
| Project Tests | passed | 1 of 2 | 4 | class not installed |
`))

	g.Expect(os.WriteFile(path, []byte("[{}]"), 0o600)).To(Succeed())
	g.Expect(run(path, &out)).To(MatchError(ContainSubstring("no case")))

	g.Expect(os.WriteFile(path, []byte("{"), 0o600)).To(Succeed())
	g.Expect(run(path, &out)).To(MatchError(ContainSubstring(path)))
}
