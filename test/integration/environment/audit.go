// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// auditPolicy has one event for each request, at its end, with who did what to which object.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- level: Metadata
`

// AuditEvent is one request to the API server, as far as the suites look at it. See the type Event of audit.k8s.io/v1.
type AuditEvent struct {
	// Verb is "get", "create", "patch" and so on.
	Verb string `json:"verb"`
	// User is who sent the request.
	User struct {
		// Username of a ServiceAccount is "system:serviceaccount:NAMESPACE:NAME".
		Username string `json:"username"`
	} `json:"user"`
	// ObjectRef is the object, or the kind, if it is one.
	ObjectRef AuditObject `json:"objectRef"`
	// Response is the answer.
	Response struct {
		// Code is the HTTP status.
		Code int `json:"code"`
	} `json:"responseStatus"`
	// Received is when the request came in, and Done when it was answered.
	Received time.Time `json:"requestReceivedTimestamp"`
	Done     time.Time `json:"stageTimestamp"`
}

// AuditObject names what a request is about.
type AuditObject struct {
	// Group is the API group, empty for the core group.
	Group string `json:"apiGroup"`
	// Resource is the plural of the kind, such as "dnsrecords".
	Resource string `json:"resource"`
	// Subresource is, for example, "status".
	Subresource string `json:"subresource"`
	// Namespace and Name are those of the object. A list or watch has no name.
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// IsWrite tells whether the request, if it succeeded, may have changed something.
func (e AuditEvent) IsWrite() bool {
	switch e.Verb {
	case "get", "list", "watch":
		return false
	default:
		return true
	}
}

// Succeeded tells whether the answer says so.
func (e AuditEvent) Succeeded() bool {
	return e.Response.Code >= 200 && e.Response.Code < 300
}

// String is for messages.
func (e AuditEvent) String() string {
	ref := e.ObjectRef
	if ref.Subresource != "" {
		ref.Resource += "/" + ref.Subresource
	}
	return fmt.Sprintf("%s %s %s %s/%s: %d by %s", e.Received.Format(time.RFC3339Nano), e.Verb, ref.Resource, ref.Namespace, ref.Name, e.Response.Code, e.User.Username)
}

// AuditEvents returns the requests for which filter says so, in the order of their ends; a nil filter takes all. A request
// is there a moment after its answer. It needs WithAuditLog.
func (e *Environment) AuditEvents(filter func(AuditEvent) bool) ([]AuditEvent, error) {
	data, err := os.ReadFile(e.auditLog())
	if errors.Is(err, os.ErrNotExist) {
		return nil, errors.New("there is no audit log: start the environment WithAuditLog")
	}
	if err != nil {
		return nil, err
	}
	return parseAudit(data, filter)
}

func parseAudit(data []byte, filter func(AuditEvent) bool) ([]AuditEvent, error) {
	var out []AuditEvent
	for number, line := range bytes.SplitAfter(data, []byte("\n")) {
		// The last line may be half written.
		if !bytes.HasSuffix(line, []byte("\n")) {
			continue
		}
		event := AuditEvent{}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, fmt.Errorf("reading line %d of the audit log: %w", number+1, err)
		}
		if filter == nil || filter(event) {
			out = append(out, event)
		}
	}
	return out, nil
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
