// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	miekgdns "github.com/miekg/dns"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

const (
	testZone   = "example.org"
	testKey    = "seed."
	testSecret = "c2VjcmV0LXNlY3JldC1zZWNyZXQ="
)

var secretRef = corev1.SecretReference{Namespace: "garden", Name: "dns"}

// server is an authoritative server for testZone that takes updates, as far as the tests need it. Its rules for aliases
// are those of RFC 2136, section 3.4.2.2.
type server struct {
	address string

	mu      sync.Mutex
	records []miekgdns.RR
	updates []*miekgdns.Msg
	queries int
	// before may answer in place of the server: with a message, or with none, which closes the connection.
	before func(w miekgdns.ResponseWriter, m *miekgdns.Msg) (done bool)
	// unsigned has answers go out without a signature.
	unsigned bool
	// complaint is what the server says about every signature, if it is not 0.
	complaint uint16
}

func startServer(t testing.TB) *server {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	s := &server{address: listener.Addr().String()}
	dnsServer := &miekgdns.Server{
		Listener:      listener,
		Handler:       miekgdns.HandlerFunc(s.handle),
		TsigSecret:    map[string]string{testKey: testSecret},
		MsgAcceptFunc: func(miekgdns.Header) miekgdns.MsgAcceptAction { return miekgdns.MsgAccept },
	}
	done := make(chan struct{})
	go func() {
		_ = dnsServer.ActivateAndServe()
		close(done)
	}()
	t.Cleanup(func() {
		// Not Shutdown, which waits for what hangs.
		_ = listener.Close()
		<-done
	})
	return s
}

// connections counts those that a provider has open.
type connections struct {
	mu         sync.Mutex
	open, most int
}

func (c *connections) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		c.count(1)
	}
	return &countedConn{Conn: conn, connections: c}, err
}

func (c *connections) count(by int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open += by
	c.most = max(c.most, c.open)
}

type countedConn struct {
	net.Conn
	connections *connections
}

func (c *countedConn) Close() error {
	c.connections.count(-1)
	return c.Conn.Close()
}

func (s *server) handle(w miekgdns.ResponseWriter, m *miekgdns.Msg) {
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil && before(w, m) {
		return
	}
	reply := new(miekgdns.Msg).SetReply(m)
	signature := m.IsTsig()
	switch {
	case signature != nil && (w.TsigStatus() != nil || s.complaint != 0):
		// RFC 8945, section 5.3.2: such an answer has no signature, only the error.
		reply.Rcode = miekgdns.RcodeNotAuth
		code := uint16(miekgdns.RcodeBadSig)
		if signature.Hdr.Name != testKey {
			code = miekgdns.RcodeBadKey
		} else if s.complaint != 0 {
			code = s.complaint
		}
		reply.Extra = append(reply.Extra, &miekgdns.TSIG{
			Hdr:       miekgdns.RR_Header{Name: signature.Hdr.Name, Rrtype: miekgdns.TypeTSIG, Class: miekgdns.ClassANY},
			Algorithm: signature.Algorithm, TimeSigned: signature.TimeSigned, Fudge: fudge, OrigId: m.Id, Error: code,
		})
		raw, err := reply.Pack()
		if err == nil {
			_, _ = w.Write(raw)
		}
		return
	case m.Opcode == miekgdns.OpcodeUpdate:
		reply.Rcode = s.update(m)
	default:
		s.answer(m, reply)
	}
	if signature != nil && !s.unsigned {
		reply.SetTsig(signature.Hdr.Name, signature.Algorithm, fudge, time.Now().Unix())
	}
	_ = w.WriteMsg(reply)
}

func (s *server) answer(m, reply *miekgdns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries++
	question := m.Question[0]
	if !miekgdns.IsSubDomain(testZone+".", question.Name) {
		reply.Rcode = miekgdns.RcodeRefused
		return
	}
	reply.Authoritative = true
	reply.Rcode = miekgdns.RcodeNameError
	_, parent, _ := strings.Cut(question.Name, ".")
	for _, name := range []string{question.Name, "*." + parent} {
		for _, rr := range s.records {
			if rr.Header().Name != name {
				continue
			}
			reply.Rcode = miekgdns.RcodeSuccess
			if kind := rr.Header().Rrtype; kind == question.Qtype || kind == miekgdns.TypeCNAME {
				rr = miekgdns.Copy(rr)
				rr.Header().Name = question.Name
				reply.Answer = append(reply.Answer, rr)
			}
		}
		if reply.Rcode == miekgdns.RcodeSuccess {
			return
		}
	}
}

func (s *server) update(m *miekgdns.Msg) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.Question[0].Name != testZone+"." {
		return miekgdns.RcodeNotAuth
	}
	wanted := map[string][]string{}
	for _, rr := range m.Answer {
		recordType := miekgdns.TypeToString[rr.Header().Rrtype]
		if rr.Header().Class == miekgdns.ClassNONE && rr.Header().Rrtype == miekgdns.TypeANY {
			if slices.ContainsFunc(s.records, func(old miekgdns.RR) bool { return old.Header().Name == rr.Header().Name }) {
				return miekgdns.RcodeYXDomain
			}
			continue
		}
		if rr.Header().Class == miekgdns.ClassNONE {
			if len(s.valuesOf(rr.Header().Name, recordType)) > 0 {
				return miekgdns.RcodeYXRrset
			}
			continue
		}
		key := rr.Header().Name + " " + recordType
		wanted[key] = append(wanted[key], dns.ValueOf(rr))
	}
	for key, values := range wanted {
		name, recordType, _ := strings.Cut(key, " ")
		if !slices.Equal(slices.Sorted(slices.Values(values)), s.valuesOf(name, recordType)) {
			return miekgdns.RcodeNXRrset
		}
	}
	s.updates = append(s.updates, m)
	for _, rr := range m.Ns {
		if rr.Header().Class == miekgdns.ClassANY {
			s.records = slices.DeleteFunc(s.records, func(old miekgdns.RR) bool {
				return old.Header().Name == rr.Header().Name && old.Header().Rrtype == rr.Header().Rrtype
			})
			continue
		}
		same := func(old miekgdns.RR) bool {
			return old.Header().Name == rr.Header().Name && old.Header().Rrtype == rr.Header().Rrtype && dns.ValueOf(old) == dns.ValueOf(rr)
		}
		if rr.Header().Class == miekgdns.ClassNONE {
			s.records = slices.DeleteFunc(s.records, same)
			continue
		}
		if !slices.ContainsFunc(s.records, same) && !slices.ContainsFunc(s.records, func(old miekgdns.RR) bool {
			return old.Header().Name == rr.Header().Name && (old.Header().Rrtype == miekgdns.TypeCNAME) != (rr.Header().Rrtype == miekgdns.TypeCNAME)
		}) {
			s.records = append(s.records, rr)
		}
	}
	return miekgdns.RcodeSuccess
}

func (s *server) valuesOf(name, recordType string) []string {
	var values []string
	for _, rr := range s.records {
		if rr.Header().Name == name && rr.Header().Rrtype == miekgdns.StringToType[recordType] {
			values = append(values, dns.ValueOf(rr))
		}
	}
	slices.Sort(values)
	return values
}

// values returns what the server has.
func (s *server) values(name, recordType string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.valuesOf(name+".", recordType)
}

// served returns the records without the marks.
func (s *server) served() []miekgdns.RR {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.records), func(rr miekgdns.RR) bool { return isMarkName(rr.Header().Name) })
}

// set has the server hold a record that somebody else wrote.
func (s *server) set(record dns.Record) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records = slices.DeleteFunc(s.records, func(old miekgdns.RR) bool {
		return old.Header().Name == record.Name+"." && old.Header().Rrtype == miekgdns.StringToType[record.Type]
	})
	s.records = append(s.records, record.ResourceRecords()...)
}

func (s *server) updated() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.updates)
}

func (s *server) misbehave(before func(w miekgdns.ResponseWriter, m *miekgdns.Msg) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = before
}

// owner is a DNSRecord and what its status says.
type owner struct {
	provider *Provider
	request  dns.Request
	// saved are all states of the status, status is the last one.
	saved  []localv1alpha1.DNSRecordStatus
	status localv1alpha1.DNSRecordStatus
	// saveErr is the error of saving.
	saveErr error
}

func newOwner(provider *Provider, record dns.Record) *owner {
	o := &owner{provider: provider}
	o.request = dns.Request{Record: record, Secret: secretRef, Save: func(_ context.Context, status localv1alpha1.DNSRecordStatus) error {
		if o.saveErr != nil {
			return o.saveErr
		}
		o.saved, o.status = append(o.saved, status), status
		return nil
	}}
	o.request.Keep = func(status localv1alpha1.DNSRecordStatus) { o.saved, o.status = append(o.saved, status), status }
	return o
}

func (o *owner) apply(t testing.TB) error {
	o.request.Serving, o.request.Written = o.status.Provider, o.status.Written
	return o.provider.Apply(t.Context(), o.request)
}

func (o *owner) remove(t testing.TB) error {
	o.request.Serving, o.request.Written = o.status.Provider, o.status.Written
	return o.provider.Remove(t.Context(), o.request)
}

func record(name, recordType string, values ...string) dns.Record {
	return dns.Record{Owner: types.NamespacedName{Namespace: "garden", Name: "record"}, Name: name, Type: recordType, TTL: 60, Values: values}
}

func newSecret(data map[string]string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: secretRef.Namespace, Name: secretRef.Name}, Data: toBytes(data)}
}

func toBytes(data map[string]string) map[string][]byte {
	out := map[string][]byte{}
	for key, value := range data {
		out[key] = []byte(value)
	}
	return out
}

func reader(t testing.TB, objects ...client.Object) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(corev1.AddToScheme(scheme)).To(Succeed())
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

// allow lets DNSRecords name a server.
func allow(s *server) func(*Options) {
	return func(o *Options) { o.AllowedServers = append(o.AllowedServers, s.address) }
}

// newProvider returns a provider whose default is a server, with a Secret that has its key.
func newProvider(t testing.TB, address string, change ...func(*Options)) *Provider {
	t.Helper()
	opts := Options{
		Reader:  reader(t, newSecret(map[string]string{KeyTSIGKeyName: "seed", KeyTSIGSecret: testSecret})),
		Server:  address,
		Zones:   []string{testZone},
		Timeout: 5 * time.Second,
	}
	for _, change := range change {
		change(&opts)
	}
	provider, err := New(opts)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return provider
}
