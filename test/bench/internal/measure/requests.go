// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/gardener/gardener-extension-provider-local/test/audit"
)

// Request is a kind of request.
type Request struct {
	// Verb is that of the API server, and Resource the plural with the group and subresource, such as
	// "dnsrecords.extensions.gardener.cloud/status".
	Verb, Resource string
	// Code is the HTTP status.
	Code int
}

// String is for tables.
func (r Request) String() string {
	return fmt.Sprintf("%s %s %d", r.Verb, r.Resource, r.Code)
}

// Requests counts requests.
type Requests map[Request]int

// Sum counts those for which a function says so; nil takes all.
func (r Requests) Sum(filter func(Request) bool) int {
	sum := 0
	for request, n := range r {
		if filter == nil || filter(request) {
			sum += n
		}
	}
	return sum
}

// Conflicts counts the writes that were refused since something else was written before.
func (r Requests) Conflicts() int {
	return r.Sum(func(request Request) bool { return request.Code == 409 && request.Verb != "create" })
}

// ByVerb counts by the verb, with "/status" for writes of a status.
func (r Requests) ByVerb() map[string]int {
	out := map[string]int{}
	for request, n := range r {
		verb := request.Verb
		if strings.HasSuffix(request.Resource, "/status") {
			verb += " status"
		}
		out[verb] += n
	}
	return out
}

// since returns what came in addition to before.
func (r Requests) since(before Requests) Requests {
	out := Requests{}
	for request, n := range r {
		if n > before[request] {
			out[request] = n - before[request]
		}
	}
	return out
}

// AuditLog counts the requests of users from the file that an API server writes. It is not safe for concurrent use.
type AuditLog struct {
	file   *os.File
	reader *bufio.Reader
	rest   []byte
	users  map[string]*user
}

type user struct {
	requests Requests
	last     time.Time
}

// OpenAuditLog counts the requests of these users from now on.
func OpenAuditLog(path string, users ...string) (*AuditLog, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if _, err := file.Seek(0, io.SeekEnd); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	log := &AuditLog{file: file, reader: bufio.NewReaderSize(file, 1<<20), users: map[string]*user{}}
	for _, name := range users {
		log.users[name] = &user{requests: Requests{}}
	}
	return log, nil
}

// Close ends it.
func (a *AuditLog) Close() error { return a.file.Close() }

// Mark is a moment in the log.
type Mark struct {
	user     string
	requests Requests
}

// Mark reads on and returns where that is.
func (a *AuditLog) Mark(name string) (Mark, error) {
	if err := a.read(); err != nil {
		return Mark{}, err
	}
	return Mark{user: name, requests: maps.Clone(a.users[name].requests)}, nil
}

// Since reads on and returns the user's requests since the mark, but for watches and those for Leases, which every
// instance renews all the time.
func (a *AuditLog) Since(mark Mark) (Requests, error) {
	if err := a.read(); err != nil {
		return nil, err
	}
	return a.users[mark.user].requests.since(mark.requests), nil
}

// Last reads on and returns when the user's last request came in; the zero time if there was none.
func (a *AuditLog) Last(name string) (time.Time, error) {
	if err := a.read(); err != nil {
		return time.Time{}, err
	}
	return a.users[name].last, nil
}

func (a *AuditLog) read() error {
	for {
		line, err := a.reader.ReadBytes('\n')
		a.rest = append(a.rest, line...)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the audit log: %w", err)
		}
		if err := a.count(a.rest); err != nil {
			return err
		}
		a.rest = a.rest[:0]
	}
}

// count takes in a line of the log. Most are of other users, so it looks for the names before it decodes.
func (a *AuditLog) count(line []byte) error {
	known := false
	for name := range a.users {
		known = known || bytes.Contains(line, []byte(name))
	}
	if !known {
		return nil
	}
	event := audit.Event{}
	if err := json.Unmarshal(line, &event); err != nil {
		return fmt.Errorf("reading the audit log: %w", err)
	}
	u, known := a.users[event.User.Username]
	if !known || event.Verb == "watch" || slices.Contains([]string{"leases", ""}, event.ObjectRef.Resource) {
		return nil
	}
	resource := event.ObjectRef.Resource
	if event.ObjectRef.Group != "" {
		resource += "." + event.ObjectRef.Group
	}
	if event.ObjectRef.Subresource != "" {
		resource += "/" + event.ObjectRef.Subresource
	}
	u.requests[Request{Verb: event.Verb, Resource: resource, Code: event.Response.Code}]++
	u.last = event.Received
	return nil
}
