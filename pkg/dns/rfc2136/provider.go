// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package rfc2136 serves records by dynamic updates (RFC 2136), which BIND 9, Knot DNS and others take. The DNSRecord
// controller uses it as its dns.Provider.
//
// A server is shared: by the seeds that a shoot may move between, and by whoever else writes to its zones. So a record is
// replaced in one message, and removed only if the server still has what was written (RFC 2136, section 2.4.2): what
// another has written since stays. What was written is in the status of the DNSRecord before it is sent, so a restart at
// any point leaves nothing behind. A TXT record beside a name marks whose it is, as of two holders the higher class, or else
// the first, has a name.
//
// All exchanges are by TCP and, if the Secret of the DNSRecord has a key, signed and their answers verified (TSIG, RFC
// 8945). The Secret has the form of that of the same provider of Gardener's external-dns-management.
package rfc2136

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	miekgdns "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

const (
	// maxConnections is how many connections to one server are open at a time.
	maxConnections = 8
	// writtenMax is how many places are remembered in which a record may be.
	writtenMax = 8
)

// DialFunc connects to an address; net.Dialer.DialContext is one.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Options are what a Provider needs.
type Options struct {
	// Reader reads the Secrets of DNSRecords, and their Namespaces, from the API server.
	Reader client.Reader
	// Server, HOST[:PORT], and Zones are those of DNSRecords which don't name any, and whose Secret doesn't either.
	Server string
	Zones  []string
	// AllowedServers are the servers that DNSRecords and their Secrets may name beside Server, as configv1alpha1 has them.
	AllowedServers []string
	// Timeout bounds the connecting to a server, and each exchange with it.
	Timeout time.Duration
	// Dial connects to a server. Default: one that really does, if the server is allowed.
	Dial DialFunc
}

// Provider is a dns.Provider. It holds no state but the connections in use and, for a moment, what Secrets say.
type Provider struct {
	Options
	slots   *slots
	allowed []allowedServer
	// secrets has credentials by their corev1.SecretReference.
	secrets *cache.LRUExpireCache
}

var _ dns.Provider = (*Provider)(nil)

// New returns a Provider. An error is a mistake in the options.
func New(opts Options) (*Provider, error) {
	p := &Provider{Options: opts, slots: newSlots(maxConnections), secrets: cache.NewLRUExpireCache(secretsMax)}
	for _, value := range opts.AllowedServers {
		addresses, port, err := configv1alpha1.ParseAllowedServer(value)
		if err != nil {
			return nil, fmt.Errorf("allowed server %w", err)
		}
		p.allowed = append(p.allowed, allowedServer{addresses, port})
	}
	if p.Dial == nil {
		p.Dial = p.dial
	}
	return p, nil
}

// Apply implements dns.Provider. If the server answers with just what was written, that is all that is asked of it.
func (p *Provider) Apply(ctx context.Context, request dns.Request) (err error) {
	defer func() { p.forget(request.Secret, err) }()
	target, err := p.target(ctx, request)
	if err != nil {
		return err
	}
	record := request.Record
	change := change{wanted: target.record(request)}
	if err := p.serve(ctx, request, target.key, &change); err != nil {
		return err
	}
	if err := p.removeAll(ctx, target.key, change.elsewhere); err != nil {
		return fmt.Errorf("%s record %s is served, but not removed from where it was before: %w", record.Type, record.Name, err)
	}
	request.Keep(localv1alpha1.DNSRecordStatus{Provider: localv1alpha1.DNSProviderRFC2136, Written: []localv1alpha1.WrittenRecord{change.wanted}})
	return nil
}

// change is what is to be done so that a record is served in place of what was written for it before.
type change struct {
	wanted localv1alpha1.WrittenRecord
	// replaced is what goes in the same message, as it is in the same zone; elsewhere is what is not.
	replaced, elsewhere []localv1alpha1.WrittenRecord
	// pending is what servers may have while the message is on its way.
	pending []localv1alpha1.WrittenRecord
}

// plan compares the written records and the server's answer with the wanted record. It reports whether the server has that record
// and none to replace.
func (c *change) plan(written []localv1alpha1.WrittenRecord, current answer) (isDone bool) {
	// A wildcard may answer for a name that isn't there, so the answer alone isn't enough.
	isWritten := false
	for _, old := range written {
		switch {
		case old.Server != c.wanted.Server || old.Zone != c.wanted.Zone:
			c.elsewhere = append(c.elsewhere, old)
		case old.Name != c.wanted.Name || old.Type != c.wanted.Type:
			c.replaced = append(c.replaced, old)
		case slices.Equal(old.Values, c.wanted.Values) && old.Mark == c.wanted.Mark:
			isWritten = true
			continue
		case !slices.Equal(old.Values, current.values):
			continue
		}
		c.pending = append(c.pending, old)
	}
	c.pending = append(c.pending, c.wanted)
	return isWritten && len(c.replaced) == 0 && slices.Equal(current.values, c.wanted.Values) && current.ttl == c.wanted.TTL
}

// serve ensures that the server has a record.
func (p *Provider) serve(ctx context.Context, request dns.Request, key *key, change *change) error {
	server, err := p.connect(ctx, change.wanted.Server, key)
	if err != nil {
		return err
	}
	defer server.close()

	current, err := server.query(ctx, request.Record)
	if err != nil || change.plan(request.Written, current) {
		return err
	}
	if len(change.pending) > writtenMax {
		return dns.ConfigurationProblem(fmt.Errorf("%s record %s may still be at %d former servers or zones, from where it could not be removed: have %s answer, or delete the DNSRecord by force",
			request.Record.Type, request.Record.Name, len(change.pending)-1, change.pending[0].Server))
	}
	claim, err := server.claim(ctx, request, change.wanted.Zone)
	if err != nil {
		return err
	}
	if err := request.Save(ctx, localv1alpha1.DNSRecordStatus{Provider: request.Serving, Written: change.pending}); err != nil {
		return err
	}
	if err := server.write(ctx, request, change, claim); err != nil {
		var conflict *dns.ConflictError
		if isAnswer(err, slices.Concat(refusals, taken)...) || errors.As(err, &conflict) {
			// Nothing was done. After a failure of the server that isn't certain.
			request.Keep(localv1alpha1.DNSRecordStatus{Provider: request.Serving, Written: request.Written})
		}
		return err
	}
	return server.confirm(ctx, request.Record)
}

// write replaces the records written before by the wanted one.
func (s *session) write(ctx context.Context, request dns.Request, change *change, claim claim) error {
	err := s.replace(ctx, request.Record, change.wanted.Zone, change.replaced, claim)
	if !isAnswer(err, slices.Concat(taken, missing)...) {
		return err
	}
	// Another DNSRecord of the name may have come in between, or others have what was to be replaced, or some of it. What
	// they don't have goes by itself.
	for _, old := range change.replaced {
		if err := s.remove(ctx, old); err != nil {
			return err
		}
	}
	if claim, err = s.claim(ctx, request, change.wanted.Zone); err != nil {
		return err
	}
	return s.replace(ctx, request.Record, change.wanted.Zone, nil, claim)
}

// confirm sees whether the server answers with a record that it has taken in.
func (s *session) confirm(ctx context.Context, record dns.Record) error {
	confirmed, err := s.query(ctx, record)
	switch {
	case err != nil || slices.Equal(confirmed.values, record.Values):
		return err
	case len(confirmed.values) == 0 && confirmed.rcode == miekgdns.RcodeSuccess:
		// A server passes over what can't be, and says nothing (RFC 2136, section 3.4.2.2).
		return dns.ConfigurationProblem(fmt.Errorf("server %s has taken in %s record %s and doesn't answer with it: it has other records of that name, and an alias (CNAME) can't stand beside any; delete one of them", s.address, record.Type, record.Name))
	default:
		logf.FromContext(ctx).Info("A DNS server answers with another record than it has taken in", "server", s.address, "name", record.Name, "type", record.Type,
			"rcode", rcodeName(confirmed.rcode), "values", fmt.Sprintf("%.200s", fmt.Sprint(confirmed.values)))
		return fmt.Errorf("server %s has taken in %s record %s and does not answer with it yet; the log has what it answers with", s.address, record.Type, record.Name)
	}
}

// Remove implements dns.Provider. Without a note of what was written, as when the status got lost, that is taken to be
// what the spec says now.
func (p *Provider) Remove(ctx context.Context, request dns.Request) (err error) {
	defer func() { p.forget(request.Secret, err) }()
	log := logf.FromContext(ctx).WithValues("dnsRecord", request.Record.Owner, "written", request.Written)
	if len(request.Written) == 0 {
		target, err := p.target(ctx, request)
		if isUsersMistake(err) {
			log.Info("Nothing is known to be written for the DNSRecord, so nothing is removed", "reason", err.Error())
			return nil
		}
		if err != nil {
			return err
		}
		return p.removeAll(ctx, target.key, []localv1alpha1.WrittenRecord{target.record(request)})
	}

	credentials, err := p.credentials(ctx, request.Secret)
	if errors.Is(err, errNoSecret) {
		// What is in a namespace that is being deleted goes in any order, and a Secret does not come back.
		namespace := &corev1.Namespace{}
		if err := p.Reader.Get(ctx, client.ObjectKey{Name: request.Record.Owner.Namespace}, namespace); err != nil {
			return fmt.Errorf("reading the namespace of a DNSRecord whose Secret does not exist: %w", err)
		}
		if namespace.DeletionTimestamp != nil {
			log.Info("Leaving a record behind, as its Secret went with the namespace")
			return nil
		}
	}
	if err != nil {
		return err
	}
	return p.removeAll(ctx, credentials.key, request.Written)
}

// removeAll removes records from where they are, as far as they are still as they were written. All of it takes no longer than one
// session: servers that are slow on purpose are not to keep a worker.
func (p *Provider) removeAll(ctx context.Context, key *key, written []localv1alpha1.WrittenRecord) error {
	ctx, cancel := context.WithTimeout(ctx, sessionTimeouts*p.Timeout)
	defer cancel()
	remove := func(record localv1alpha1.WrittenRecord) error {
		server, err := p.connect(ctx, record.Server, key)
		if errors.Is(err, errNotAllowed) {
			logf.FromContext(ctx).Info("Leaving a record behind", "reason", err.Error(), "name", record.Name, "type", record.Type)
			return nil
		}
		if err != nil {
			return err
		}
		defer server.close()
		return server.remove(ctx, record)
	}
	var errs []error
	for _, record := range written {
		errs = append(errs, remove(record))
	}
	return errors.Join(errs...)
}
