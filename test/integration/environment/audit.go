// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/gardener/gardener-extension-provider-local/test/audit"
)

// auditPolicy has one event for each request, at its end, with who did what to which object, and for a write to a Service what
// came of it.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: RequestResponse
  verbs: [create, update, patch]
  resources:
  - resources: [services, services/status]
- level: Metadata
`

// AuditEvent is one request to the API server.
type AuditEvent = audit.Event

// AuditObject names what a request is about.
type AuditObject = audit.Object

// AuditEvents returns the requests for which filter says so, in the order of their ends; a nil filter takes all. A request
// is there a moment after its answer. It needs WithAuditLog.
func (e *Environment) AuditEvents(filter func(AuditEvent) bool) ([]AuditEvent, error) {
	file, err := os.Open(e.auditLog())
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("there is no audit log: start the environment WithAuditLog")
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return audit.Parse(file, filter)
}

func (e *Environment) auditLog() string {
	return filepath.Join(e.dir, "audit.log")
}

func (e *Environment) configureAudit() error {
	policy := filepath.Join(e.dir, "audit-policy.yaml")
	if err := os.WriteFile(policy, []byte(auditPolicy), 0o600); err != nil {
		return err
	}
	e.envs.ControlPlane.GetAPIServer().Configure().
		Set("audit-policy-file", policy).
		Set("audit-log-path", e.auditLog()).
		Set("audit-log-mode", "blocking").
		// Megabytes, before the file is rotated away.
		Set("audit-log-maxsize", "4096")
	return nil
}
