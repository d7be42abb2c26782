// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"testing"

	. "github.com/onsi/gomega"
)

const auditLines = `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","auditID":"1","stage":"ResponseComplete","requestURI":"/api/v1/namespaces/garden/secrets","verb":"create","user":{"username":"system:serviceaccount:ns:name","groups":["system:serviceaccounts"]},"objectRef":{"resource":"secrets","namespace":"garden","name":"a","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":201},"requestReceivedTimestamp":"2026-01-02T03:04:05.000001Z","stageTimestamp":"2026-01-02T03:04:05.000002Z"}
{"kind":"Event","verb":"patch","user":{"username":"admin"},"objectRef":{"resource":"dnsrecords","apiGroup":"extensions.gardener.cloud","namespace":"garden","name":"b","subresource":"status"},"responseStatus":{"code":409}}
{"kind":"Event","verb":"watch","user":{"username":"admin"}}
{"kind":"Event","verb":"cre`

func TestAuditEventsAreReadUpToAHalfWrittenLine(t *testing.T) {
	g := NewWithT(t)
	events, err := parseAudit([]byte(auditLines), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(events).To(HaveLen(3))

	g.Expect(events[0].User.Username).To(Equal("system:serviceaccount:ns:name"))
	g.Expect(events[0].ObjectRef).To(Equal(AuditObject{Resource: "secrets", Namespace: "garden", Name: "a"}))
	g.Expect(events[0].Done).To(BeTemporally(">", events[0].Received))
	g.Expect([]bool{events[0].IsWrite(), events[0].Succeeded()}).To(Equal([]bool{true, true}))
	g.Expect([]bool{events[1].IsWrite(), events[1].Succeeded()}).To(Equal([]bool{true, false}))
	g.Expect(events[1].String()).To(ContainSubstring("patch dnsrecords/status garden/b: 409 by admin"))
	g.Expect(events[2].IsWrite()).To(BeFalse())
}

func TestAuditEventsAreFiltered(t *testing.T) {
	g := NewWithT(t)
	events, err := parseAudit([]byte(auditLines), func(e AuditEvent) bool { return e.User.Username == "admin" && e.IsWrite() })
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(events).To(HaveExactElements(HaveField("Verb", "patch")))
}

func TestABrokenLineOfTheAuditLogIsAnError(t *testing.T) {
	_, err := parseAudit([]byte("{}\nnot JSON\n"), nil)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("reading line 2 of the audit log")))
}

func TestWithoutAnAuditLogItIsSaidHowToGetOne(t *testing.T) {
	e := &Environment{dir: t.TempDir()}
	_, err := e.AuditEvents(nil)
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("WithAuditLog")))
}
