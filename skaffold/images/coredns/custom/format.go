// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package custom is the CoreDNS plugin "custom" of our build: it serves what this extension writes into the ConfigMaps
// coredns-custom-*, as the provider-local documentation of Gardener calls them. The ConfigMaps are watched and applied
// in memory at once. The stock way - mount them, import them into the Corefile and restart the server on each change -
// takes a kubelet sync and a restart per change, compiles and tries one regular expression per name, and lets a wildcard
// rule shadow the names below it. Here nothing that a user wrote gets into a Corefile, a lookup takes as long with
// 10,000 names as with one, and both views agree on which record a name belongs to.
package custom

import (
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
)

const (
	// Label marks the ConfigMaps that are served; its value is "true".
	Label = "local.provider.extensions.gardener.cloud/dns-config"
	// AnnotationGeneration holds the writer's generation of a ConfigMap, a decimal number that only grows. It is served
	// as a TXT record, so that the writer can ask a server how far it is.
	AnnotationGeneration = "local.provider.extensions.gardener.cloud/dns-generation"
	// NamePrefix is what the names of the ConfigMaps start with.
	NamePrefix = "coredns-custom-"
	// SyncLabel is the reserved label below a zone: <name of the ConfigMap>._sync.<zone> is a TXT record with the
	// generation that is served. No other record may be there.
	SyncLabel = "_sync"

	suffixOverride = ".override"
	suffixZone     = ".zone"
)

// shard is one ConfigMap, checked and parsed. It is never changed once it is made.
type shard struct {
	generation string
	// records are the RRs of all zones, in the order of the zones' names and then that of their lines.
	records []dns.RR
	// rewrites are the Service's name by the record's name, both fully qualified.
	rewrites map[string]string
	// dropped tells which entries are not what the writer makes, and why.
	dropped []error
}

var (
	generationPattern = regexp.MustCompile(`^[0-9]{1,20}$`)
	// overridePattern is the one line that an override entry may hold. What the quoted name and the service look like
	// is checked apart.
	overridePattern = regexp.MustCompile(`^rewrite stop name regex (\^[a-z0-9_.+\\-]+\$) ([a-z0-9.-]+) answer auto$`)
	// namePattern is a fully qualified name as the writer makes it: labels in lower case, of letters, digits, hyphens and
	// underscores, and an asterisk as the first label only.
	namePattern    = regexp.MustCompile(`^(\*\.)?([a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?\.)+$`)
	servicePattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?\.[a-z0-9]([a-z0-9-]*[a-z0-9])?\.svc\.[a-z0-9.-]+[a-z0-9]$`)
)

const (
	quotedWildcard = `.+\.`
	quotedDot      = `\.`
)

// parse reads a ConfigMap. Whatever is not exactly what the writer makes is left out and reported, so that neither a
// hand edit nor a fault of the writer can make the server do anything but answer with addresses, aliases and text.
func parse(configMap *corev1.ConfigMap) *shard {
	s := &shard{rewrites: make(map[string]string, len(configMap.Data))}

	if generation := configMap.Annotations[AnnotationGeneration]; generationPattern.MatchString(generation) {
		s.generation = generation
	}

	for _, key := range slices.Sorted(maps.Keys(configMap.Data)) {
		value := configMap.Data[key]
		switch {
		case strings.HasSuffix(key, suffixOverride):
			name, service, err := parseOverride(strings.TrimSuffix(value, "\n"))
			if err != nil {
				s.dropped = append(s.dropped, fmt.Errorf("entry %q: %w", key, err))
				continue
			}
			s.rewrites[name] = service
		case strings.HasSuffix(key, suffixZone):
			s.parseZone(dns.Fqdn(strings.TrimSuffix(key, suffixZone)), key, value)
		default:
			s.dropped = append(s.dropped, fmt.Errorf("entry %q: neither %s nor %s", key, suffixOverride, suffixZone))
		}
	}
	return s
}

func (s *shard) parseZone(zone, key, value string) {
	number := 0
	for line := range strings.Lines(value) {
		number++
		line = strings.TrimSuffix(line, "\n")
		if line == "" {
			continue
		}
		rr, err := parseRecord(line, zone)
		if err != nil {
			s.dropped = append(s.dropped, fmt.Errorf("entry %q, line %d: %w", key, number, err))
			continue
		}
		s.records = append(s.records, rr)
	}
}

// parseOverride returns the name and the Service of an override line. The name is taken back out of the regular
// expression, which has to be the quoted form of exactly one name.
func parseOverride(line string) (name, service string, err error) {
	match := overridePattern.FindStringSubmatch(line)
	if match == nil {
		return "", "", fmt.Errorf("not of the form: rewrite stop name regex <quoted name> <service> answer auto")
	}

	quoted := strings.TrimSuffix(strings.TrimPrefix(match[1], "^"), "$")
	rest, wildcard := strings.CutPrefix(quoted, quotedWildcard)
	name = strings.ReplaceAll(rest, quotedDot, ".")
	if strings.ReplaceAll(name, ".", quotedDot) != rest {
		return "", "", fmt.Errorf("%s is not the quoted form of one name", match[1])
	}
	if wildcard {
		name = "*." + name
	}
	if err := checkName(name); err != nil {
		return "", "", err
	}

	service = strings.TrimSuffix(match[2], ".")
	if !servicePattern.MatchString(service) || len(service) > 253 {
		return "", "", fmt.Errorf("%s is not the name of a Service", match[2])
	}
	return name, dns.Fqdn(service), nil
}

// parseRecord returns the RR of one line of a zone.
func parseRecord(line, zone string) (dns.RR, error) {
	// A directive such as $GENERATE or $INCLUDE is no record.
	if strings.HasPrefix(line, "$") || strings.ContainsRune(line, '\r') {
		return nil, fmt.Errorf("not a record in master file format")
	}
	rr, err := dns.NewRR(line)
	if err != nil {
		return nil, fmt.Errorf("not a record in master file format: %w", err)
	}
	if rr == nil {
		return nil, fmt.Errorf("no record")
	}

	header := rr.Header()
	header.Name = strings.ToLower(header.Name)
	switch header.Rrtype {
	case dns.TypeA, dns.TypeAAAA, dns.TypeCNAME, dns.TypeTXT:
	default:
		return nil, fmt.Errorf("type %s is not served", dns.TypeToString[header.Rrtype])
	}
	if header.Class != dns.ClassINET || header.Ttl > math.MaxInt32 {
		return nil, fmt.Errorf("the class or the TTL is out of bounds")
	}
	if err := checkName(header.Name); err != nil {
		return nil, err
	}
	if !dns.IsSubDomain(zone, header.Name) {
		return nil, fmt.Errorf("%s is not in the zone %s", header.Name, zone)
	}
	if dns.IsSubDomain(SyncLabel+"."+zone, header.Name) {
		return nil, fmt.Errorf("%s is reserved", header.Name)
	}
	return rr, nil
}

// checkName returns an error if a name is none that the writer makes.
func checkName(name string) error {
	if len(name) > 254 || !namePattern.MatchString(name) {
		return fmt.Errorf("%q is not a fully qualified name in lower case", name)
	}
	return nil
}
