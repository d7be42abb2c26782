// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"testing"

	. "github.com/onsi/gomega"
)

func TestWithoutAnAuditLogItIsSaidHowToGetOne(t *testing.T) {
	e := &Environment{dir: t.TempDir()}
	_, err := e.AuditEvents(nil)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("WithAuditLog")))
}
