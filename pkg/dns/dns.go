// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package dns holds what a DNSRecord asks for, checked, and the interface of those who serve it. The DNSRecord
// controller makes a Record of an object and hands it to a Provider; the providers are the packages below this one. The
// rules for names and values are here, apart from both, as they are those of DNS and the same for all providers.
package dns

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// Type is the extension type of the DNSRecords that this extension serves.
	Type = "local"
	// DefaultTTL is the TTL in seconds of a record that doesn't say (DNSRecord.spec.ttl).
	DefaultTTL int64 = 120
	// ReservedLabel is a label at the top of a zone below which no record may be: <something>._sync.<zone> tells which
	// state a server is at.
	ReservedLabel = "_sync"
	// LabelIngress is on a DNSRecord that the Ingress controller made. Its value is the name of the Ingress; that there is
	// one tells that the record leads to an Ingress controller rather than to an API server.
	LabelIngress = "local.provider.extensions.gardener.cloud/ingress"
)

// Record types that are served.
const (
	TypeA     = "A"
	TypeAAAA  = "AAAA"
	TypeCNAME = "CNAME"
	TypeTXT   = "TXT"
)

// Record is what one DNSRecord asks for. Make it with New, which checks and normalises it.
type Record struct {
	// Owner is the DNSRecord.
	Owner types.NamespacedName
	// Created is the creation timestamp of the DNSRecord; the newest owner of a (Name, Type) wins.
	Created time.Time
	// Name is in lower case and without a dot at the end; it may start with "*.".
	Name string
	// Type is A, AAAA, CNAME or TXT.
	Type string
	// TTL is in seconds.
	TTL int64
	// Values are in the form that DNS gives them back in: addresses in their shortest form, a host name in lower case
	// without a dot at the end, a text as it is. They are sorted.
	Values []string
	// Ingress tells that the DNSRecord has LabelIngress.
	Ingress bool
}

// Provider serves records.
type Provider interface {
	// Apply serves a record in place of what its owner had before. It returns nil only once the record resolves. The
	// error is a ConflictError if another DNSRecord stands against it; any other may pass by itself.
	Apply(ctx context.Context, record Record) error
	// Remove forgets what an owner had; nil if there was nothing.
	Remove(ctx context.Context, owner types.NamespacedName) error
}

// ConflictError tells that a record can't be served because of another one.
type ConflictError struct {
	// Record is the one that is not served, Other the owner of the one that stands against it.
	Record Record
	Other  types.NamespacedName
	// Reason says why both can't be.
	Reason string
}

// Error implements error.
func (e *ConflictError) Error() string {
	return e.Record.Type + " record " + e.Record.Name + " is not served because of DNSRecord " + e.Other.String() + ": " + e.Reason
}
