// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package audit reads audit logs of kube-apiserver, and judges from them whether the instances of the extension kept to the
// objects of their classes. The integration suites have logs with the contents of Services alone; that of the landscape has the
// contents of extension objects (test/landscape/internal/node/files/audit-policy.yaml).
package audit

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Event is one request to the API server, as far as suites look at it. See the type Event of audit.k8s.io/v1.
type Event struct {
	// Verb is "get", "create", "patch" and so on.
	Verb string `json:"verb"`
	// User is who sent the request.
	User struct {
		// Username of a ServiceAccount is "system:serviceaccount:NAMESPACE:NAME".
		Username string `json:"username"`
	} `json:"user"`
	// ObjectRef is the object, or the kind, if it is one.
	ObjectRef Object `json:"objectRef"`
	// Response is the answer.
	Response struct {
		// Code is the HTTP status.
		Code int `json:"code"`
	} `json:"responseStatus"`
	// Stored is the object as the answer has it, if the policy asks for it.
	Stored *Stored `json:"responseObject"`
	// Received is when the request came in, and Done when it was answered.
	Received time.Time `json:"requestReceivedTimestamp"`
	Done     time.Time `json:"stageTimestamp"`
}

// Object names what a request is about.
type Object struct {
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

// Stored is the part of an object that tells its class, and of a Service whose it is and what it has.
type Stored struct {
	// Metadata has the UID, which no other object ever has.
	Metadata struct {
		UID             string            `json:"uid"`
		Name            string            `json:"name"`
		ResourceVersion string            `json:"resourceVersion"`
		Annotations     map[string]string `json:"annotations"`
	} `json:"metadata"`
	// Status is not read further, as it is a text in an answer that isn't the object.
	Status json.RawMessage `json:"status"`
	// Spec is nil for an answer that isn't the whole object.
	Spec *struct {
		Class string `json:"class"`
	} `json:"spec"`
}

// IsWrite reports whether the request, if it succeeded, may have changed something.
func (e Event) IsWrite() bool {
	switch e.Verb {
	case "get", "list", "watch":
		return false
	default:
		return true
	}
}

// Succeeded reports whether the answer says so.
func (e Event) Succeeded() bool {
	return e.Response.Code >= 200 && e.Response.Code < 300
}

// String is for messages.
func (e Event) String() string {
	ref := e.ObjectRef
	if ref.Subresource != "" {
		ref.Resource += "/" + ref.Subresource
	}
	return fmt.Sprintf("%s %s %s %s/%s: %d by %s", e.Received.Format(time.RFC3339Nano), e.Verb, ref.Resource, ref.Namespace, ref.Name, e.Response.Code, e.User.Username)
}

// Parse returns the requests of a log for which filter says so, in the order of their ends; a nil filter takes all. The last
// line is left out if it is only half written, and so is what a power cut or a full disk has left of a line.
func Parse(log io.Reader, filter func(Event) bool) ([]Event, error) {
	var out []Event
	reader := bufio.NewReaderSize(log, 1<<20)
	for number := 1; ; number++ {
		line, err := reader.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading line %d of the audit log: %w", number, err)
		}
		event := Event{}
		err = json.Unmarshal(bytes.TrimSpace(line), &event)
		// The next event follows on the same line.
		if whole := bytes.LastIndex(line, []byte(`{"kind":"Event",`)); err != nil && whole > 0 {
			event = Event{}
			err = json.Unmarshal(bytes.TrimSpace(line[whole:]), &event)
		}
		if err != nil {
			return nil, fmt.Errorf("reading line %d of the audit log: %w", number, err)
		}
		if filter == nil || filter(event) {
			out = append(out, event)
		}
	}
}

// ReadFolder is Parse for all files of a log, of which older ones lie beside it and may be compressed:
// NAME-TIME.log or NAME-TIME.log.gz beside NAME.log.
func ReadFolder(log string, filter func(Event) bool) ([]Event, error) {
	older, err := filepath.Glob(strings.TrimSuffix(log, ".log") + "-*.log*")
	if err != nil {
		return nil, fmt.Errorf("looking for %s: %w", log, err)
	}
	// A file that is being compressed is there twice.
	older = slices.DeleteFunc(older, func(path string) bool {
		return strings.HasSuffix(path, ".gz") && slices.Contains(older, strings.TrimSuffix(path, ".gz"))
	})
	slices.Sort(older)
	var out []Event
	for _, path := range append(older, log) {
		events, err := readFile(path, filter)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		out = append(out, events...)
	}
	return out, nil
}

func readFile(path string, filter func(Event) bool) (events []Event, err error) {
	file, err := os.Open(path) // #nosec G304 -- a test reads what it is told to.
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if !strings.HasSuffix(path, ".gz") {
		return Parse(file, filter)
	}
	unzipped, err := gzip.NewReader(file)
	if err != nil {
		return nil, err
	}
	return Parse(unzipped, filter)
}
