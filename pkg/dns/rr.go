// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	miekgdns "github.com/miekg/dns"
)

// maxChunk is the length of one string in a TXT record (RFC 1035, section 3.3.14).
const maxChunk = 255

// ResourceRecord returns one value of the record in the form of the DNS library. Its String is a line of a master file.
func (r Record) ResourceRecord(value string) miekgdns.RR {
	header := miekgdns.RR_Header{
		Name:   miekgdns.Fqdn(r.Name),
		Rrtype: miekgdns.StringToType[r.Type],
		Class:  miekgdns.ClassINET,
		Ttl:    uint32(r.TTL), // #nosec G115 -- checked to have 31 bits by New.
	}
	switch r.Type {
	case TypeA:
		return &miekgdns.A{Hdr: header, A: net.ParseIP(value)}
	case TypeAAAA:
		return &miekgdns.AAAA{Hdr: header, AAAA: net.ParseIP(value)}
	case TypeCNAME:
		return &miekgdns.CNAME{Hdr: header, Target: miekgdns.Fqdn(value)}
	default:
		return &miekgdns.TXT{Hdr: header, Txt: chunks(value)}
	}
}

// ResourceRecords returns all values of the record in the form of the DNS library.
func (r Record) ResourceRecords() []miekgdns.RR {
	out := make([]miekgdns.RR, 0, len(r.Values))
	for _, value := range r.Values {
		out = append(out, r.ResourceRecord(value))
	}
	return out
}

// ValueOf returns the value of a resource record in the form of Record.Values.
func ValueOf(rr miekgdns.RR) string {
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

// chunks cuts a text into the strings of a TXT record. A backslash would begin an escape sequence; the DNS library escapes all
// else.
func chunks(text string) []string {
	var out []string
	for chunk := range slices.Chunk([]byte(text), maxChunk) {
		out = append(out, strings.ReplaceAll(string(chunk), `\`, `\\`))
	}
	return out
}

// escaped is what the DNS library has in place of a byte: \DDD, or a backslash before it.
var escaped = regexp.MustCompile(`(?s)\\(\d{3}|.)`)

func unescape(text string) string {
	return escaped.ReplaceAllStringFunc(text, func(sequence string) string {
		if code, err := strconv.Atoi(sequence[1:]); err == nil && len(sequence) == 4 {
			return string([]byte{byte(code)}) // #nosec G115 -- as the library does it
		}
		return sequence[1:]
	})
}
