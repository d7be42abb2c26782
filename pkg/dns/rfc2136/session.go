// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	miekgdns "github.com/miekg/dns"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// fudge is how many seconds the clocks of the two sides may differ by (RFC 8945, section 10).
const fudge = 300

// maxAnswerText is how much of an answer gets into an error.
const maxAnswerText = 200

// session is a connection to a server.
type session struct {
	*Provider
	// address is HOST:PORT.
	address string
	key     *key
	conn    net.Conn
	release func()
}

// connect connects to a server. Close the session after use.
func (p *Provider) connect(ctx context.Context, address string, key *key) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	release, err := p.slots.acquire(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("server %s has %d exchanges running already: %w", address, maxConnections, err)
	}
	conn, err := p.Dial(ctx, "tcp", address)
	if err != nil {
		release()
		if isNotAllowed(err) {
			return nil, dns.ConfigurationProblem(fmt.Errorf("server %s %w", address, errNotAllowed))
		}
		return nil, noAnswer(ctx, address, err)
	}
	return &session{Provider: p, address: address, key: key, conn: conn, release: release}, nil
}

func (s *session) close() {
	// All that counts has been answered.
	_ = s.conn.Close()
	s.release()
}

// answer is what a server has under a name and type.
type answer struct {
	rcode int
	// values are sorted.
	values []string
	// ttl is in seconds.
	ttl int64
	// alias tells that the name is an alias, by itself or by a wildcard, although that is not what was asked for.
	alias bool
}

// is reports whether the answer is just this.
func (a answer) is(values []string, ttl int64) bool {
	return slices.Equal(a.values, values) && a.ttl == ttl
}

// String implements fmt.Stringer.
func (a answer) String() string {
	if len(a.values) == 0 {
		return "that there is no such record (" + rcodeName(a.rcode) + ")"
	}
	text := strings.Join(a.values, ", ")
	if len(text) > maxAnswerText {
		text = strings.ToValidUTF8(text[:maxAnswerText], "") + "..."
	}
	return text
}

// query asks for the name and type of a record. The answer has to be the server's own.
func (s *session) query(ctx context.Context, record dns.Record) (answer, error) {
	message := new(miekgdns.Msg)
	message.SetQuestion(miekgdns.Fqdn(record.Name), miekgdns.StringToType[record.Type])
	message.RecursionDesired = false
	what := "asking for " + record.Type + " " + record.Name
	reply, err := s.exchange(ctx, message, what)
	if err != nil {
		return answer{}, err
	}
	if reply.Rcode != miekgdns.RcodeSuccess && reply.Rcode != miekgdns.RcodeNameError {
		return answer{}, s.problem(what, reply)
	}
	if !reply.Authoritative {
		return answer{}, dns.ConfigurationProblem(fmt.Errorf("%s: server %s is not authoritative for that name: name the primary server of the zone, and the zone that really holds the name", what, s.address))
	}

	out := answer{rcode: reply.Rcode}
	for _, rr := range reply.Answer {
		header := rr.Header()
		switch {
		case miekgdns.CanonicalName(header.Name) != message.Question[0].Name:
		case header.Rrtype == message.Question[0].Qtype:
			out.values = append(out.values, dns.ValueOf(rr))
			out.ttl = int64(header.Ttl)
		case header.Rrtype == miekgdns.TypeCNAME:
			out.alias = true
		}
	}
	slices.Sort(out.values)
	return out, nil
}

// replace puts a record in place of all of its name and type, and removes others in the same message. The error is one
// for isChanged if any of the others is not as it was written. alias tells that the name seems to be an alias: nothing is
// done if it is one by itself, and not one of the others; beside a wildcard that is one, the record can stand.
func (s *session) replace(ctx context.Context, record dns.Record, zone string, others []localv1alpha1.WrittenRecord, claim claim, alias bool) error {
	message := new(miekgdns.Msg)
	message.SetUpdate(miekgdns.Fqdn(zone))
	alias = alias && !claim.takesAlias()
	for _, other := range others {
		addRemoval(message, other)
		alias = alias && (other.Type != dns.TypeCNAME || other.Name != record.Name)
	}
	records := record.ResourceRecords()
	if alias {
		message.RRsetNotUsed([]miekgdns.RR{&miekgdns.CNAME{Hdr: miekgdns.RR_Header{Name: records[0].Header().Name, Rrtype: miekgdns.TypeCNAME}}})
	}
	message.RemoveRRset(records[:1])
	claim.addTo(message, record)
	message.Insert(records)
	return s.update(ctx, message, "setting "+record.Type+" "+record.Name)
}

// remove removes a record, if it is still as it was written and no other holder's by now.
func (s *session) remove(ctx context.Context, written localv1alpha1.WrittenRecord) error {
	isOwn, err := s.isOwn(ctx, written)
	if err != nil {
		return err
	}
	if !isOwn {
		logf.FromContext(ctx).Info("Leaving a record that is gone or another's by now", "server", written.Server, "name", written.Name, "type", written.Type)
		return nil
	}
	message := new(miekgdns.Msg)
	message.SetUpdate(miekgdns.Fqdn(written.Zone))
	addRemoval(message, written)
	what := "removing " + written.Type + " " + written.Name
	err = s.update(ctx, message, what)
	if isChanged(err) && written.Mark != "" {
		// If there is nothing of that name and type, the mark goes alone. Otherwise it stays: the other seed of a migration,
		// which makes the same one, has written there.
		message = new(miekgdns.Msg)
		message.SetUpdate(miekgdns.Fqdn(written.Zone))
		message.RRsetNotUsed(dns.Record{Name: written.Name, Type: written.Type, Values: written.Values}.ResourceRecords()[:1])
		message.Remove(markRecords(written.Name, 0, written.Mark))
		err = s.update(ctx, message, what)
	}
	if isRaced(err) || isChanged(err) || isOfNoZone(err) {
		logf.FromContext(ctx).Info("Leaving a record that is gone or another's by now", "reason", err.Error(), "server", written.Server, "name", written.Name, "type", written.Type)
		return nil
	}
	return err
}

// addRemoval removes a record on the condition that it has just the values that were written (RFC 2136, sections 2.4.2
// and 2.5.2).
func addRemoval(message *miekgdns.Msg, written localv1alpha1.WrittenRecord) {
	records := dns.Record{Name: written.Name, Type: written.Type, Values: written.Values}.ResourceRecords()
	message.Used(records)
	message.RemoveRRset(records[:min(1, len(records))])
	if written.Mark != "" {
		message.Remove(markRecords(written.Name, 0, written.Mark))
	}
}

func (s *session) update(ctx context.Context, message *miekgdns.Msg, what string) error {
	reply, err := s.exchange(ctx, message, what)
	if err != nil {
		return err
	}
	if reply.Rcode != miekgdns.RcodeSuccess {
		return s.problem(what, reply)
	}
	return nil
}

// exchange sends a message and returns the answer, which is the server's if there is a key.
func (s *session) exchange(ctx context.Context, message *miekgdns.Msg, what string) (*miekgdns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	// The DNS library heeds the deadline of a context, not its cancellation.
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	dnsClient := miekgdns.Client{Net: "tcp", Timeout: s.Timeout}
	if s.key != nil {
		dnsClient.TsigSecret = map[string]string{s.key.name: s.key.secret}
		message.SetTsig(s.key.name, s.key.algorithm, fudge, s.Clock.Now().Unix())
	}
	// A Conn signs each message in a row with the one before, which only zone transfers do: so one for each.
	reply, _, err := dnsClient.ExchangeWithConnContext(ctx, message, &miekgdns.Conn{Conn: s.conn})
	if reply != nil && reply.Rcode == miekgdns.RcodeNotAuth && errors.Is(err, miekgdns.ErrAuth) {
		// The library verifies no answer of this code, and there is no need to, as nothing was done.
		err = nil
	}
	if reply != nil && s.key != nil {
		if problem := s.signatureProblem(what, reply, err); problem != nil {
			return nil, problem
		}
	}
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, noAnswer(ctx, s.address, err)
	}
	return reply, nil
}
