// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

const (
	suffixOverride = ".override"
	suffixZone     = ".zone"
	// maxKeyLength is that of a key of a ConfigMap.
	maxKeyLength = 253
	// wildcardKey and hashKey stand for what a key can't hold. They are in upper case, so that no name, which never is,
	// looks like one of them.
	wildcardKey = "WILDCARD."
	hashKey     = "SHA256."
)

// entry is what is written for one name.
type entry struct {
	name, zone string
	// override is the line of the entry <name>.override; empty if there is no gateway.
	override string
	// lines are the records in master file format.
	lines string
}

// size is about how many bytes the entry adds to a ConfigMap.
func (e entry) size() int {
	size := len(e.lines)
	if e.override != "" {
		size += len(e.key()) + len(e.override) + 8
	}
	return size
}

// key is that of the override entry.
func (e entry) key() string {
	key := e.name
	if rest, ok := strings.CutPrefix(key, "*."); ok {
		key = wildcardKey + rest
	}
	if len(key)+len(suffixOverride) > maxKeyLength {
		sum := sha256.Sum256([]byte(e.name))
		key = hashKey + hex.EncodeToString(sum[:])
	}
	return key + suffixOverride
}

// render returns the entry of a name with its records. service is the name of the gateway's Service, or empty.
func render(name, zone string, records []dns.Record, service string) entry {
	e := entry{name: name, zone: zone}
	if service != "" {
		e.override = "rewrite stop name regex " + quote(name) + " " + service + " answer auto\n"
	}
	var lines strings.Builder
	for _, record := range records {
		for _, value := range record.Values {
			lines.WriteString(record.ResourceRecord(value).String())
			lines.WriteByte('\n')
		}
	}
	e.lines = lines.String()
	return e
}

// quote returns the regular expression that matches a name as a server sees it, and nothing else: in lower case with a
// dot at the end. A wildcard stands for one label or more.
func quote(name string) string {
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		return `^.+\.` + regexp.QuoteMeta(rest) + `\.$`
	}
	return `^` + regexp.QuoteMeta(name) + `\.$`
}
