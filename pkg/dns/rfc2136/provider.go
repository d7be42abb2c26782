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
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

// maxConnections is how many connections to one server are open at a time.
const maxConnections = 8

// DialFunc connects to an address; net.Dialer.DialContext is one.
type DialFunc func(ctx context.Context, network, address string) (net.Conn, error)

// Options are what a Provider needs.
type Options struct {
	// Reader reads the Secrets of DNSRecords, and their Namespaces; it should not cache them.
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
	// Clock is that of signatures. Default: the real one.
	Clock clock.PassiveClock
}

// Provider is a dns.Provider. It holds no state but the connections in use.
type Provider struct {
	Options
	slots   *slots
	allowed []allowedServer
}

var _ dns.Provider = (*Provider)(nil)

// New returns a Provider. An error is a mistake in the options.
func New(opts Options) (*Provider, error) {
	switch {
	case opts.Reader == nil:
		return nil, errors.New("a reader for Secrets is needed")
	case opts.Timeout <= 0:
		return nil, errors.New("the timeout must be more than 0")
	}
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	p := &Provider{Options: opts, slots: newSlots(maxConnections)}
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
func (p *Provider) Apply(ctx context.Context, request dns.Request) error {
	target, err := p.target(ctx, request)
	if err != nil {
		return err
	}
	record := request.Record
	zone, err := record.Zone(target.zones)
	if err == nil && isMarkName(record.Name) {
		err = fmt.Errorf("spec.name: names with the label %s are reserved", markLabel)
	}
	if err == nil {
		if _, err = dns.NormalizeName(markName(record.Name)); err != nil {
			err = fmt.Errorf("spec.name is too long: %w", err)
		}
	}
	if err != nil {
		return dns.ConfigurationProblem(err)
	}
	change, err := p.serve(ctx, request, target, zone)
	if err != nil {
		return err
	}
	if err := p.removeAll(ctx, target.key, change.elsewhere); err != nil {
		return fmt.Errorf("%s record %s is served, but not removed from where it was before: %w", record.Type, record.Name, err)
	}
	request.Keep(localv1alpha1.DNSRecordStatus{Provider: localv1alpha1.DNSProviderRFC2136, Written: []localv1alpha1.WrittenRecord{change.wanted}})
	return nil
}

// serve ensures that the server has a record, and returns what that took and takes. It uses one connection and has
// closed it by then: who would need a second one could wait for others that do, too.
func (p *Provider) serve(ctx context.Context, request dns.Request, target target, zone string) (change, error) {
	server, err := p.connect(ctx, target.server, target.key)
	if err != nil {
		return change{}, err
	}
	defer server.close()

	record := request.Record
	current, err := server.query(ctx, record)
	if err != nil {
		return change{}, err
	}
	change := plan(request.Written, localv1alpha1.WrittenRecord{
		Server: target.server, Zone: zone, Name: record.Name, Type: record.Type, Values: record.Values, TTL: record.TTL, Mark: markOf(request).String(),
	}, current)
	if change.isDone {
		return change, nil
	}
	claim, err := server.claim(ctx, request, zone)
	if err != nil {
		return change, err
	}
	return change, p.write(ctx, server, request, change, claim, current)
}

// write updates a server and sees whether it answers accordingly.
func (p *Provider) write(ctx context.Context, server *session, request dns.Request, change change, claim claim, current answer) error {
	record := request.Record
	if err := request.Save(ctx, change.pending(request)); err != nil {
		return err
	}

	var replaced []localv1alpha1.WrittenRecord
	for _, old := range change.replaced {
		isOwn, err := server.isOwn(ctx, old)
		if err != nil {
			return err
		}
		if isOwn {
			replaced = append(replaced, old)
		}
	}
	err := server.replace(ctx, record, change.wanted.Zone, replaced, claim, current.alias)
	if isRaced(err) {
		// Another DNSRecord of the name may have come in between.
		if claim, err = server.claim(ctx, request, change.wanted.Zone); err == nil {
			err = server.replace(ctx, record, change.wanted.Zone, replaced, claim, current.alias)
		}
	}
	if isChanged(err) {
		// Others have what was to be replaced, or some of it. What they don't have goes by itself.
		for _, old := range replaced {
			if err := server.remove(ctx, old); err != nil {
				return err
			}
		}
		if claim, err = server.claim(ctx, request, change.wanted.Zone); err == nil {
			err = server.replace(ctx, record, change.wanted.Zone, nil, claim, current.alias)
		}
	}
	var taken *dns.ConflictError
	if isRejected(err) || errors.As(err, &taken) {
		request.Keep(change.undone(request))
		return err
	}
	if err != nil {
		return err
	}

	confirmed, err := server.query(ctx, record)
	switch {
	case err != nil:
		return err
	case slices.Equal(confirmed.values, record.Values):
		return nil
	case len(confirmed.values) == 0 && confirmed.rcode == miekgdns.RcodeSuccess:
		// A server passes over what can't be, and says nothing (RFC 2136, section 3.4.2.2).
		return dns.ConfigurationProblem(fmt.Errorf("server %s has taken in %s record %s and doesn't answer with it: it has other records of that name, and an alias (CNAME) can't stand beside any; delete one of them", server.address, record.Type, record.Name))
	default:
		return fmt.Errorf("server %s has taken in %s record %s and answers %s", server.address, record.Type, record.Name, confirmed)
	}
}

// Remove implements dns.Provider. Without a note of what was written, as when the status got lost, that is taken to be
// what the spec says now.
func (p *Provider) Remove(ctx context.Context, request dns.Request) error {
	if len(request.Written) > 0 {
		key, err := p.key(ctx, request.Secret)
		if errors.Is(err, errNoSecret) {
			isGoing, goingErr := p.isGoing(ctx, request.Record.Owner.Namespace)
			if goingErr != nil {
				return goingErr
			}
			if isGoing {
				logf.FromContext(ctx).Info("Leaving a record behind, as its Secret went with the namespace", "dnsRecord", request.Record.Owner, "written", request.Written)
				return nil
			}
		}
		if err != nil {
			return err
		}
		return p.removeAll(ctx, key, request.Written)
	}

	target, err := p.target(ctx, request)
	var zone string
	if err == nil {
		if zone, err = request.Record.Zone(target.zones); err != nil {
			err = dns.ConfigurationProblem(err)
		}
	}
	switch {
	case isUsersMistake(err):
		logf.FromContext(ctx).Info("Nothing is known to be written for the DNSRecord, so nothing is removed", "dnsRecord", request.Record.Owner, "reason", err.Error())
		return nil
	case err != nil:
		return err
	}
	return p.removeAll(ctx, target.key, []localv1alpha1.WrittenRecord{{
		Server: target.server, Zone: zone, Name: request.Record.Name, Type: request.Record.Type, Values: request.Record.Values, Mark: markOf(request).String(),
	}})
}

// isGoing reports whether a namespace is being deleted. What is in it goes in any order, and a Secret does not come back.
func (p *Provider) isGoing(ctx context.Context, name string) (bool, error) {
	namespace := &corev1.Namespace{}
	if err := p.Reader.Get(ctx, client.ObjectKey{Name: name}, namespace); err != nil {
		return false, fmt.Errorf("reading Namespace %s, whose DNSRecord names a Secret that does not exist: %w", name, err)
	}
	return namespace.DeletionTimestamp != nil, nil
}

// removeAll removes records from where they are, as far as they are still as they were written.
func (p *Provider) removeAll(ctx context.Context, key *key, written []localv1alpha1.WrittenRecord) error {
	var errs []error
	for _, record := range written {
		errs = append(errs, p.remove(ctx, key, record))
	}
	return errors.Join(errs...)
}

func (p *Provider) remove(ctx context.Context, key *key, record localv1alpha1.WrittenRecord) error {
	server, err := p.connect(ctx, record.Server, key)
	if isNotAllowed(err) {
		logf.FromContext(ctx).Info("Leaving a record behind", "reason", err.Error(), "name", record.Name, "type", record.Type)
		return nil
	}
	if err != nil {
		return err
	}
	defer server.close()

	return server.remove(ctx, record)
}
