// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	miekgdns "github.com/miekg/dns"
	"k8s.io/apimachinery/pkg/types"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

const (
	// markLabel is the label of the name beside a record whose TXT records are the marks.
	markLabel = "_owner"
	// wildcardLabel stands for the asterisk of a wildcard, which has a meaning as the first label only.
	wildcardLabel = "_wildcard"
	markFormat    = "provider-local type=%s class=%s holder=%s"
)

// mark tells on the server whose the records of a name and type are. It is written along with them: the server is all that
// the instances which write to it share.
type mark struct {
	recordType string
	class      extensionsv1alpha1.ExtensionClass
	// holder is a hash, as everybody can read it.
	holder string
}

// markOf returns the mark of a record. Both seeds of a control plane migration make the same one.
func markOf(request dns.Request) mark {
	class := cmp.Or(request.Record.Class, extensionsv1alpha1.ExtensionClassShoot)
	sum := sha256.Sum256([]byte(string(class) + "/" + cmp.Or(request.TechnicalID, request.Record.Owner.Namespace)))
	return mark{recordType: request.Record.Type, class: class, holder: hex.EncodeToString(sum[:8])}
}

// parseMark reads a mark; whatever else a TXT record says is none.
func parseMark(text string) (mark, bool) {
	var m mark
	_, err := fmt.Sscanf(text, markFormat, &m.recordType, &m.class, &m.holder)
	return m, err == nil && m.String() == text
}

// String returns the text of the TXT record.
func (m mark) String() string { return fmt.Sprintf(markFormat, m.recordType, m.class, m.holder) }

func (m mark) rank() int { return dns.Holder{Class: m.class}.Rank() }

// isOfSame reports whether two marks are of one holder.
func (m mark) isOfSame(other mark) bool { return m.class == other.class && m.holder == other.holder }

// markName returns the name that has the marks of a record.
func markName(name string) string {
	if parent, ok := strings.CutPrefix(name, "*."); ok {
		name = wildcardLabel + "." + parent
	}
	return markLabel + "." + name
}

// isMarkName reports whether a name is among those of marks.
func isMarkName(name string) bool {
	return slices.Contains(strings.Split(name, "."), markLabel)
}

// markRecords returns the TXT records of marks beside a name. The DNS library changes what it is given, so each use needs
// its own.
func markRecords(name string, ttl int64, marks ...string) []miekgdns.RR {
	return dns.Record{Name: markName(name), Type: dns.TypeTXT, TTL: ttl, Values: marks}.ResourceRecords()
}

// marks returns the marks beside a name.
func (s *session) marks(ctx context.Context, name string) ([]mark, error) {
	answer, err := s.query(ctx, dns.Record{Name: markName(name), Type: dns.TypeTXT})
	if err != nil {
		return nil, err
	}
	var marks []mark
	for _, text := range answer.values {
		if m, ok := parseMark(text); ok {
			marks = append(marks, m)
		}
	}
	return marks, nil
}

// claim is what a holder finds out about a name before it writes there.
type claim struct {
	own mark
	// found are the marks beside the name, lower those among them whose holders have to give way.
	found, lower []mark
}

// claim returns an error if another holder has a name, or a wildcard above it: one of a higher class, or one of the same
// that came first.
func (s *session) claim(ctx context.Context, request dns.Request, zone string) (out claim, err error) {
	record := request.Record
	out.own = markOf(request)
	if out.found, err = s.marks(ctx, record.Name); err != nil {
		return out, err
	}
	isOwn := false
	for _, other := range out.found {
		switch {
		case other.isOfSame(out.own):
			isOwn = true
		case other.rank() >= out.own.rank():
			return out, record.Conflict(dns.Holder{Class: other.class}, types.NamespacedName{}, "the name is taken; choose another domain")
		default:
			out.lower = append(out.lower, other)
		}
	}
	// What is made for an Ingress in the seed is below the wildcard of the seed on purpose.
	if isOwn || record.Ingress {
		return out, nil
	}
	for _, wildcard := range dns.WildcardsAbove(record.Name) {
		if _, ok := dns.ZoneOf(strings.TrimPrefix(wildcard, "*."), []string{zone}); !ok {
			continue
		}
		marks, err := s.marks(ctx, wildcard)
		if err != nil {
			return out, err
		}
		for _, other := range marks {
			if !other.isOfSame(out.own) && other.rank() >= out.own.rank() {
				return out, record.Conflict(dns.Holder{Class: other.class}, types.NamespacedName{}, "it is a wildcard that covers the name; choose another domain")
			}
		}
	}
	return out, nil
}

// addTo has an update fail if the name is not as it was found, take the name from lower classes and mark it. A name without
// any mark may be somebody else's who knows nothing of marks: shoots don't get it.
func (c claim) addTo(message *miekgdns.Msg, record dns.Record) {
	if len(c.found) == 0 {
		message.RRsetNotUsed(markRecords(record.Name, 0, ""))
		if c.own.rank() == 0 {
			message.NameNotUsed(record.ResourceRecords()[:1])
		}
	}
	for _, found := range c.found {
		message.Used(markRecords(record.Name, 0, found.String()))
	}
	for _, lower := range c.lower {
		message.RemoveRRset([]miekgdns.RR{&miekgdns.ANY{Hdr: miekgdns.RR_Header{Name: miekgdns.Fqdn(record.Name), Rrtype: miekgdns.StringToType[lower.recordType]}}})
		message.Remove(markRecords(record.Name, 0, lower.String()))
	}
	message.Insert(markRecords(record.Name, record.TTL, c.own.String()))
}

// takesAlias reports whether an alias of that name goes with the claim.
func (c claim) takesAlias() bool {
	return slices.ContainsFunc(c.lower, func(m mark) bool { return m.recordType == dns.TypeCNAME })
}

// isOwn reports whether a record that was written is still marked as this holder's, as far as the server tells.
func (s *session) isOwn(ctx context.Context, written localv1alpha1.WrittenRecord) (bool, error) {
	if written.Mark == "" {
		return true, nil
	}
	marks, err := s.marks(ctx, written.Name)
	if isUsersMistake(err) {
		return true, nil // It doesn't answer for the name. Whether it has the zone, the update will tell.
	}
	return slices.ContainsFunc(marks, func(m mark) bool { return m.String() == written.Mark }), err
}
