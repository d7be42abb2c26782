// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	miekgdns "github.com/miekg/dns"
	"golang.org/x/sync/semaphore"
	"k8s.io/utils/lru"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// fudge is how many seconds the clocks of the two sides may differ by (RFC 8945, section 10).
const fudge = 300

// sessionTimeouts is how many times the timeout of one exchange all of a session may take.
const sessionTimeouts = 4

// serversMax is of how many servers it is known how many connections there are.
const serversMax = 256

// slots bounds the number of connections to each server. That to one that was not used for long is forgotten.
type slots struct {
	max   int64
	mu    sync.Mutex
	known *lru.Cache
}

func newSlots(limit int64) *slots { return &slots{max: limit, known: lru.New(serversMax)} }

func (s *slots) of(address string) *semaphore.Weighted {
	s.mu.Lock()
	defer s.mu.Unlock()
	if found, ok := s.known.Get(address); ok {
		return found.(*semaphore.Weighted)
	}
	slot := semaphore.NewWeighted(s.max)
	s.known.Add(address, slot)
	return slot
}

// session is a connection to a server.
type session struct {
	*Provider
	// address is HOST:PORT.
	address string
	key     *key
	conn    net.Conn
	slot    *semaphore.Weighted
	// end is when the last exchange has to be over: a server that is slow on purpose is not to keep a worker.
	end time.Time
}

// connect connects to a server. Close the session after use.
func (p *Provider) connect(ctx context.Context, address string, key *key) (*session, error) {
	ctx, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	slot := p.slots.of(address)
	if err := slot.Acquire(ctx, 1); err != nil {
		return nil, fmt.Errorf("server %s has %d exchanges running already: %w", address, maxConnections, err)
	}
	conn, err := p.Dial(ctx, "tcp", address)
	if err != nil {
		slot.Release(1)
	}
	if errors.Is(err, errNotAllowed) {
		return nil, dns.ConfigurationProblem(fmt.Errorf("server %s %w", address, errNotAllowed))
	}
	if err != nil {
		return nil, noAnswer(ctx, address, err)
	}
	return &session{Provider: p, address: address, key: key, conn: conn, slot: slot, end: time.Now().Add(sessionTimeouts * p.Timeout)}, nil
}

func (s *session) close() {
	// All that counts has been answered.
	_ = s.conn.Close()
	s.slot.Release(1)
}

// answer is what a server has under a name and type.
type answer struct {
	rcode int
	// values are sorted.
	values []string
	// ttl is in seconds.
	ttl int64
}

// query asks for the name and type of a record. The answer has to be the server's own.
func (s *session) query(ctx context.Context, record dns.Record) (answer, error) {
	message := new(miekgdns.Msg).SetQuestion(miekgdns.Fqdn(record.Name), miekgdns.StringToType[record.Type])
	message.RecursionDesired = false
	what := "asking for " + record.Type + " " + record.Name
	reply, err := s.exchange(ctx, message, what)
	if err != nil {
		return answer{}, err
	}
	if reply.Rcode != miekgdns.RcodeSuccess && reply.Rcode != miekgdns.RcodeNameError {
		return answer{}, s.problem(what, reply.Rcode)
	}
	if !reply.Authoritative {
		return answer{}, dns.ConfigurationProblem(fmt.Errorf("%s: server %s is not authoritative for that name: name the primary server of the zone, and the zone that really holds the name", what, s.address))
	}

	out := answer{rcode: reply.Rcode}
	for _, rr := range reply.Answer {
		if header := rr.Header(); miekgdns.CanonicalName(header.Name) == message.Question[0].Name && header.Rrtype == message.Question[0].Qtype {
			out.values = append(out.values, dns.ValueOf(rr))
			out.ttl = int64(header.Ttl)
		}
	}
	slices.Sort(out.values)
	return out, nil
}

// replace puts a record in place of all of its name and type, and removes others in the same message. The error is one of
// the answers missing if any of the others is not as it was written, and one of those taken if the name is an alias, unless
// that is among what goes. Beside a wildcard that is an alias, the record can stand.
func (s *session) replace(ctx context.Context, record dns.Record, zone string, others []localv1alpha1.WrittenRecord, claim claim) error {
	message := new(miekgdns.Msg).SetUpdate(miekgdns.Fqdn(zone))
	mayBeAlias := record.Type == dns.TypeCNAME || claim.takesAlias()
	for _, other := range others {
		addRemoval(message, other)
		if other.Name != record.Name && other.Mark != "" {
			// Where several types have that name, each goes by itself.
			message.Used(markRecords(other.Name, 0, other.Mark))
		}
		mayBeAlias = mayBeAlias || other.Type == dns.TypeCNAME && other.Name == record.Name
	}
	records := record.ResourceRecords()
	if !mayBeAlias {
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
	message := new(miekgdns.Msg).SetUpdate(miekgdns.Fqdn(written.Zone))
	addRemoval(message, written)
	what := "removing " + written.Type + " " + written.Name
	err = s.update(ctx, message, what)
	if isAnswer(err, missing...) && written.Mark != "" {
		// If there is nothing of that name and type, the mark goes alone. Otherwise it stays: the other seed of a migration,
		// which makes the same one, has written there.
		message = new(miekgdns.Msg).SetUpdate(miekgdns.Fqdn(written.Zone))
		message.RRsetNotUsed(resourceRecords(written)[:1])
		message.Remove(markRecords(written.Name, 0, written.Mark))
		err = s.update(ctx, message, what)
	}
	if isAnswer(err, slices.Concat(taken, missing, []int{miekgdns.RcodeNotAuth})...) {
		// A server that is not one of the zone has no record of it either.
		logf.FromContext(ctx).Info("Leaving a record that is gone or another's by now", "reason", err.Error(), "server", written.Server, "name", written.Name, "type", written.Type)
		return nil
	}
	return err
}

// resourceRecords returns what was written in the form of the DNS library, which changes what it is given.
func resourceRecords(written localv1alpha1.WrittenRecord) []miekgdns.RR {
	return dns.Record{Name: written.Name, Type: written.Type, Values: written.Values}.ResourceRecords()
}

// addRemoval removes a record on the condition that it has just the values that were written (RFC 2136, sections 2.4.2
// and 2.5.2).
func addRemoval(message *miekgdns.Msg, written localv1alpha1.WrittenRecord) {
	records := resourceRecords(written)
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
		return s.problem(what, reply.Rcode)
	}
	return nil
}

// exchange sends a message and returns the answer, which is the server's if there is a key.
func (s *session) exchange(ctx context.Context, message *miekgdns.Msg, what string) (*miekgdns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, min(s.Timeout, time.Until(s.end)))
	defer cancel()
	// The DNS library heeds the deadline of a context, not its cancellation.
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()

	dnsClient := miekgdns.Client{Net: "tcp", Timeout: s.Timeout}
	if s.key != nil {
		dnsClient.TsigSecret = map[string]string{s.key.name: s.key.secret}
		message.SetTsig(s.key.name, s.key.algorithm, fudge, time.Now().Unix())
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

// serverError is a server's error, or that there is no answer of it.
type serverError struct {
	text string
	// rcode is the code of the answer, and cause why there is none.
	rcode int
	cause error
}

// Error implements error.
func (e *serverError) Error() string { return e.text }

// Unwrap returns the cause.
func (e *serverError) Unwrap() error { return e.cause }

// noAnswer returns the error for a server of which there is no answer. Its text is always the same: whoever names a server does
// not learn whether a port is closed, filtered, or open and of something else. The log has the cause.
func noAnswer(ctx context.Context, address string, cause error) error {
	logf.FromContext(ctx).Info("No answer of a DNS server", "server", address, "reason", cause.Error())
	return &serverError{text: "no answer of server " + address + ": see whether it runs and answers by TCP", cause: cause}
}

var (
	// refusals are answers that nothing was done because of what the server is, or allows. They need not be signed.
	refusals = []int{miekgdns.RcodeFormatError, miekgdns.RcodeNotImplemented, miekgdns.RcodeRefused, miekgdns.RcodeNotAuth, miekgdns.RcodeNotZone}
	// taken are answers that nothing was done because a name or an alias is there that should not be, missing that what was
	// there is not any more.
	taken   = []int{miekgdns.RcodeYXDomain, miekgdns.RcodeYXRrset}
	missing = []int{miekgdns.RcodeNXRrset, miekgdns.RcodeNameError}
)

// isAnswer reports whether an error is one of these answers of a server.
func isAnswer(err error, rcodes ...int) bool {
	var problem *serverError
	return errors.As(err, &problem) && slices.Contains(rcodes, problem.rcode)
}

func isUsersMistake(err error) bool {
	return err != nil && len(v1beta1helper.ExtractErrorCodes(err)) > 0
}

func rcodeName(rcode int) string {
	return cmp.Or(miekgdns.RcodeToString[rcode], "RCODE"+strconv.Itoa(rcode))
}

// meanings say what an answer means and what to do about it. Without a code it may pass by itself.
var meanings = map[int]struct {
	code gardencorev1beta1.ErrorCode
	text string
}{
	miekgdns.RcodeRefused:        {gardencorev1beta1.ErrorInfraUnauthorized, "it does not serve the zone, or does not allow this with %s; see its access lists and update policy"},
	miekgdns.RcodeNotAuth:        {gardencorev1beta1.ErrorConfigurationProblem, "it is not a server of the zone; name the primary server, and a zone that it has"},
	miekgdns.RcodeNotZone:        {gardencorev1beta1.ErrorConfigurationProblem, "the name is not in the zone; check the zones"},
	miekgdns.RcodeNotImplemented: {gardencorev1beta1.ErrorConfigurationProblem, "it takes no dynamic updates, or not of this zone; see its configuration"},
	miekgdns.RcodeFormatError:    {"", "it does not understand the message; see its log"},
	miekgdns.RcodeServerFailure:  {"", "it can't do this now; see its log"},
	miekgdns.RcodeYXRrset:        {gardencorev1beta1.ErrorConfigurationProblem, "the name is an alias (CNAME), beside which no other record can stand; delete one of them"},
	miekgdns.RcodeYXDomain:       {gardencorev1beta1.ErrorConfigurationProblem, "it has records of that name that no DNSRecord is known to own; choose another domain, or delete them there"},
	miekgdns.RcodeNXRrset:        {"", "it has not what was there before"},
	miekgdns.RcodeNameError:      {"", "it has not what was there before"},
}

// signatureMeanings say what a server's complaint about a signature means.
var signatureMeanings = map[uint16]string{
	miekgdns.RcodeBadKey:  ": it has no key of that name and algorithm; check " + KeyTSIGKeyName + " and " + KeyTSIGSecretAlgorithm,
	miekgdns.RcodeBadSig:  ": its key of that name is another; check " + KeyTSIGSecret + " and " + KeyTSIGSecretAlgorithm,
	miekgdns.RcodeBadTime: ": its clock and that of this program differ by more than " + strconv.Itoa(fudge) + " seconds; set them",
}

// problem returns the error for an answer.
func (s *session) problem(what string, rcode int) error {
	problem := &serverError{rcode: rcode, text: fmt.Sprintf("%s: server %s answers %s", what, s.address, rcodeName(rcode))}
	meaning := meanings[rcode]
	switch {
	case rcode == miekgdns.RcodeRefused && s.key != nil:
		problem.text += ": " + fmt.Sprintf(meaning.text, "the key "+s.key.name)
	case rcode == miekgdns.RcodeRefused:
		problem.text += ": " + fmt.Sprintf(meaning.text, "unsigned messages")
	case meaning.text != "":
		problem.text += ": " + meaning.text
	}
	if meaning.code == "" {
		return problem
	}
	return v1beta1helper.NewErrorWithCodes(problem, meaning.code)
}

// signatureProblem returns what is wrong with the signature of an answer, by the server's word or by ours, or nil. err is
// the one of the verification.
func (s *session) signatureProblem(what string, reply *miekgdns.Msg, err error) error {
	var (
		says      string
		signature = reply.IsTsig()
	)
	switch {
	case signature == nil && err == nil && reply.Rcode != miekgdns.RcodeServerFailure && !slices.Contains(refusals, reply.Rcode):
		says = "answers without a signature: see whether something between answers in its place"
	case signature == nil:
		return nil
	case signature.Error != miekgdns.RcodeSuccess:
		says = "answers " + rcodeName(int(signature.Error)) + cmp.Or(signatureMeanings[signature.Error], " about the signature")
	case errors.Is(err, miekgdns.ErrTime):
		says = "gives a time that differs from that of this program by more than " + strconv.Itoa(fudge) + " seconds: set the clocks"
	case err != nil:
		says = "signs its answer with another key (" + err.Error() + "): check " + KeyTSIGSecret + ", and whether something between answers in its place"
	default:
		return nil
	}
	return v1beta1helper.NewErrorWithCodes(fmt.Errorf("%s with the key %s: server %s %s", what, s.key.name, s.address, says), gardencorev1beta1.ErrorInfraUnauthorized)
}
