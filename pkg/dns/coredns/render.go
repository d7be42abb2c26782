// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"regexp"
	"strings"

	miekgdns "github.com/miekg/dns"

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
	// maxChunk is the length of one string in a TXT record (RFC 1035, section 3.3.14).
	maxChunk = 255
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
			lines.WriteString(resourceRecord(record, value).String())
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

// resourceRecord returns one value of a record as DNS has it.
func resourceRecord(record dns.Record, value string) miekgdns.RR {
	header := miekgdns.RR_Header{
		Name:   miekgdns.Fqdn(record.Name),
		Rrtype: miekgdns.StringToType[record.Type],
		Class:  miekgdns.ClassINET,
		Ttl:    uint32(record.TTL), // #nosec G115 -- checked to have 31 bits by dns.New.
	}
	switch record.Type {
	case dns.TypeA:
		return &miekgdns.A{Hdr: header, A: net.ParseIP(value)}
	case dns.TypeAAAA:
		return &miekgdns.AAAA{Hdr: header, AAAA: net.ParseIP(value)}
	case dns.TypeCNAME:
		return &miekgdns.CNAME{Hdr: header, Target: miekgdns.Fqdn(value)}
	default:
		return &miekgdns.TXT{Hdr: header, Txt: chunks(value)}
	}
}

// chunks cuts a text into the strings of a TXT record, escaped as in a master file.
func chunks(text string) []string {
	var out []string
	for len(text) > maxChunk {
		out = append(out, escape(text[:maxChunk]))
		text = text[maxChunk:]
	}
	return append(out, escape(text))
}

func escape(text string) string {
	var out strings.Builder
	for i := range len(text) {
		switch c := text[i]; {
		case c == '"' || c == '\\':
			out.WriteByte('\\')
			out.WriteByte(c)
		case c < ' ' || c > '~':
			fmt.Fprintf(&out, `\%03d`, c)
		default:
			out.WriteByte(c)
		}
	}
	return out.String()
}

// valueOf returns the value of a resource record in the form of dns.Record.
func valueOf(rr miekgdns.RR) string {
	switch rr := rr.(type) {
	case *miekgdns.A:
		return rr.A.String()
	case *miekgdns.AAAA:
		return rr.AAAA.String()
	case *miekgdns.CNAME:
		return strings.ToLower(strings.TrimSuffix(rr.Target, "."))
	case *miekgdns.TXT:
		return unescape(strings.Join(rr.Txt, ""))
	default:
		return rr.String()
	}
}

func unescape(text string) string {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			out.WriteByte(text[i])
			continue
		}
		i++
		if i+2 < len(text) && isDigit(text[i]) && isDigit(text[i+1]) && isDigit(text[i+2]) {
			out.WriteByte((text[i]-'0')*100 + (text[i+1]-'0')*10 + text[i+2] - '0')
			i += 2
			continue
		}
		out.WriteByte(text[i])
	}
	return out.String()
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
