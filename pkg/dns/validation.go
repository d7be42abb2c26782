// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

const (
	maxNameLength = 253
	// maxValues and maxTextLength keep an answer well below the 64 KiB of a DNS message, and a record well below what
	// one ConfigMap may hold.
	maxValues     = 100
	maxTextLength = 4000
)

// labelPattern is a label of a name: RFC 1123, and underscores as in _acme-challenge or _dmarc.
var labelPattern = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$`)

// New returns the record that a DNSRecord asks for, in one of the zones. Any error is a mistake in the object, which only
// its author can put right. spec.region and spec.zone have no meaning here: the zone is found by the name.
//
// zones are the domains in which records may be, in any spelling.
func New(object *extensionsv1alpha1.DNSRecord, zones []string, defaultTTL int64) (Record, error) {
	record, err := Parse(object, defaultTTL)
	if err != nil {
		return Record{}, err
	}
	if _, err := record.Zone(zones); err != nil {
		return Record{}, err
	}
	return record, nil
}

// Parse is New for a provider that finds the zones later, by Record.Zone.
func Parse(object *extensionsv1alpha1.DNSRecord, defaultTTL int64) (Record, error) {
	record := Identify(object)
	record.TTL = cmp.Or(ptr.Deref(object.Spec.TTL, 0), defaultTTL, DefaultTTL)
	if record.TTL < 0 || record.TTL > math.MaxInt32 {
		return Record{}, fmt.Errorf("spec.ttl: %d seconds is not between 1 and %d", record.TTL, math.MaxInt32)
	}

	var err error
	if record.Name, err = NormalizeName(object.Spec.Name); err != nil {
		return Record{}, fmt.Errorf("spec.name: %w", err)
	}
	if record.Values, err = normalizeValues(record.Type, object.Spec.Values); err != nil {
		return Record{}, err
	}
	if record.Type == TypeCNAME && record.Values[0] == record.Name {
		return Record{}, fmt.Errorf("spec.values: %s can't be an alias of itself", record.Name)
	}
	return record, nil
}

// Identify returns whose record a DNSRecord is and of which type, without anything of it that may be invalid.
func Identify(object *extensionsv1alpha1.DNSRecord) Record {
	record := Record{
		Owner:   client.ObjectKeyFromObject(object),
		Class:   classOf(object),
		Created: object.CreationTimestamp.Time,
		Type:    string(object.Spec.RecordType),
	}
	_, record.Ingress = object.Labels[LabelIngress]
	record.Internal = object.Labels[v1beta1constants.LabelRole] == v1beta1constants.LabelDNSRecordInternal
	return record
}

// Zone returns the longest of the zones that the record is in, in lower case and without a dot at the end. An error is a
// mistake in the DNSRecord: no zone has its name, or the zone can't have such a record.
func (r Record) Zone(zones []string) (string, error) {
	zone, ok := ZoneOf(r.Name, zones)
	if !ok {
		return "", fmt.Errorf("spec.name: %s is in none of the zones that are served here: %s", r.Name, strings.Join(zones, ", "))
	}
	if reserved := ReservedLabel + "." + zone; r.Name == reserved || strings.HasSuffix(r.Name, "."+reserved) {
		return "", fmt.Errorf("spec.name: names below %s are reserved", reserved)
	}
	if r.Type == TypeCNAME && r.Name == zone {
		return "", fmt.Errorf("spec.name: %s is a zone, whose own name can't be an alias (RFC 1034, section 3.6.2)", zone)
	}
	return zone, nil
}

// ZoneOf returns the longest of the zones that a name is in, in lower case and without a dot at the end.
func ZoneOf(name string, zones []string) (string, bool) {
	var longest string
	for _, zone := range zones {
		zone = strings.ToLower(strings.TrimSuffix(zone, "."))
		if (name == zone || strings.HasSuffix(name, "."+zone)) && len(zone) > len(longest) {
			longest = zone
		}
	}
	return longest, longest != ""
}

// NormalizeName returns a DNS name in lower case and without a dot at the end. It may start with "*.".
func NormalizeName(name string) (string, error) {
	normalized := strings.ToLower(strings.TrimSuffix(name, "."))
	return normalized, checkName(normalized, strings.TrimPrefix(normalized, "*."))
}

func checkName(name, labels string) error {
	if len(name) > maxNameLength {
		return fmt.Errorf("%d characters are more than the %d of a DNS name", len(name), maxNameLength)
	}
	for label := range strings.SplitSeq(labels, ".") {
		if !labelPattern.MatchString(label) {
			return fmt.Errorf("%q is not a DNS name: the label %q must be 1 to 63 letters, digits, hyphens and underscores, not start or end with a hyphen; a wildcard is the first label only", name, label)
		}
	}
	return nil
}

func normalizeValues(recordType string, values []string) ([]string, error) {
	if len(values) == 0 {
		return nil, errors.New("spec.values: at least one value is needed")
	}
	if len(values) > maxValues {
		return nil, fmt.Errorf("spec.values: %d values are more than %d", len(values), maxValues)
	}

	normalize, ok := map[string]func(string) (string, error){TypeA: ipv4, TypeAAAA: ipv6, TypeCNAME: hostname, TypeTXT: text}[recordType]
	if !ok {
		return nil, fmt.Errorf("spec.recordType: %q is none of A, AAAA, CNAME and TXT", recordType)
	}
	if recordType == TypeCNAME && len(values) != 1 {
		return nil, fmt.Errorf("spec.values: a CNAME record has exactly one value, not %d", len(values))
	}

	normalized := make([]string, 0, len(values))
	length := 0
	for i, value := range values {
		out, err := normalize(value)
		if err != nil {
			return nil, fmt.Errorf("spec.values[%d]: %w", i, err)
		}
		length += len(out)
		normalized = append(normalized, out)
	}
	if length > maxTextLength {
		return nil, fmt.Errorf("spec.values: %d characters in all are more than %d", length, maxTextLength)
	}
	slices.Sort(normalized)
	for i := 1; i < len(normalized); i++ {
		if normalized[i] == normalized[i-1] {
			return nil, fmt.Errorf("spec.values: %q is given twice", normalized[i])
		}
	}
	return normalized, nil
}

func ipv4(value string) (string, error) {
	address, err := netip.ParseAddr(value)
	if err != nil || !address.Is4() {
		return "", fmt.Errorf("%q is not an IPv4 address, which is what an A record needs", value)
	}
	return address.String(), nil
}

func ipv6(value string) (string, error) {
	address, err := netip.ParseAddr(value)
	switch {
	case err != nil || address.Zone() != "":
		return "", fmt.Errorf("%q is not an IPv6 address, which is what an AAAA record needs", value)
	case address.Is4() || address.Is4In6():
		return "", fmt.Errorf("%q is an IPv4 address, an AAAA record needs an IPv6 one: use an A record", value)
	}
	return address.String(), nil
}

func hostname(value string) (string, error) {
	normalized := strings.ToLower(strings.TrimSuffix(value, "."))
	if err := checkName(normalized, normalized); err != nil {
		return "", err
	}
	if _, err := netip.ParseAddr(normalized); err == nil {
		return "", fmt.Errorf("%q is an address, a CNAME record needs a host name", value)
	}
	return normalized, nil
}

// text lets everything through that can be printed; what DNS needs escaped is escaped where it is written.
func text(value string) (string, error) {
	if value == "" {
		return "", errors.New("a text must not be empty")
	}
	for _, c := range []byte(value) {
		if c < ' ' || c == 0x7f {
			return "", fmt.Errorf("%q holds a control character", value)
		}
	}
	return value, nil
}
