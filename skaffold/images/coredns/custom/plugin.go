// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/coredns/caddy"
	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/plugin"
	"github.com/coredns/coredns/plugin/pkg/upstream"
	"github.com/coredns/coredns/request"
	"github.com/miekg/dns"
)

const (
	pluginName = "custom"
	// maxAliases is how many CNAMEs are followed for one query.
	maxAliases = 8
	// syncTTL keeps everybody from remembering a generation.
	syncTTL = 0
	// zoneTTL is that of SOA and NS, and how long "no such name" may be remembered.
	zoneTTL = 5
)

// Register makes the plugin known to CoreDNS, with a store to read from. It is called once, before the server starts.
//
// The Corefile's directive is "custom literal" or "custom rewrite", in server blocks of the zones to serve. literal
// answers with the records as they were written; rewrite with the addresses of the Service that a name is an alias of,
// where there is one.
func Register(store *Store) error {
	// The order of directives is the order of handlers: after those that wrap an answer, before those that look one up.
	if !slices.Contains(dnsserver.Directives, pluginName) {
		index := slices.Index(dnsserver.Directives, "file")
		if index < 0 {
			return errors.New("the server has no directive named file")
		}
		dnsserver.Directives = slices.Insert(dnsserver.Directives, index, pluginName)
	}
	plugin.Register(pluginName, func(c *caddy.Controller) error { return setup(c, store) })
	return nil
}

func setup(c *caddy.Controller, store *Store) error {
	handler := &Handler{store: store}
	for c.Next() {
		args := c.RemainingArgs()
		if len(args) != 1 || (args[0] != "literal" && args[0] != "rewrite") {
			return plugin.Error(pluginName, c.Err(`one argument is needed, "literal" or "rewrite"`))
		}
		handler.rewrite = args[0] == "rewrite"
		if c.NextBlock() {
			return plugin.Error(pluginName, c.Errf("unknown property %q", c.Val()))
		}
	}
	handler.zones = plugin.OriginsFromArgsOrServerBlock(nil, c.ServerBlockKeys)

	dnsserver.GetConfig(c).AddPlugin(func(next plugin.Handler) plugin.Handler {
		handler.next = next
		return handler
	})
	return nil
}

// Handler answers the queries of one server block.
type Handler struct {
	store   *Store
	zones   []string
	rewrite bool
	next    plugin.Handler
}

// Name implements plugin.Handler.
func (h *Handler) Name() string { return pluginName }

// Ready implements ready.Readiness: not before the store has something to serve.
func (h *Handler) Ready() bool { return h.store.ready.Load() }

// ServeDNS implements plugin.Handler.
func (h *Handler) ServeDNS(ctx context.Context, w dns.ResponseWriter, r *dns.Msg) (int, error) {
	state := request.Request{W: w, Req: r}
	zone := plugin.Zones(h.zones).Matches(state.Name())
	if zone == "" {
		return plugin.NextOrFailure(h.Name(), h.next, ctx, w, r)
	}
	if state.QType() == dns.TypeAXFR || state.QType() == dns.TypeIXFR {
		return dns.RcodeRefused, nil
	}
	current := h.store.current.Load()
	if current == nil {
		return dns.RcodeServerFailure, nil
	}

	reply, err := h.answer(ctx, state, current, zone)
	if err != nil {
		return dns.RcodeServerFailure, err
	}
	if err := w.WriteMsg(reply); err != nil {
		return dns.RcodeServerFailure, err
	}
	return dns.RcodeSuccess, nil
}

func (h *Handler) answer(ctx context.Context, state request.Request, current *table, zone string) (*dns.Msg, error) {
	reply := new(dns.Msg)
	reply.SetReply(state.Req)
	reply.Authoritative = true

	name := state.Name()
	if generation, ok := current.generation(name, zone); ok {
		if state.QType() == dns.TypeTXT {
			reply.Answer = []dns.RR{&dns.TXT{Hdr: header(state.QName(), dns.TypeTXT, syncTTL), Txt: []string{generation}}}
			return reply, nil
		}
		return withSOA(reply, zone, current.serial), nil
	}

	found := current.find(name, zone)
	if found == nil {
		reply.Rcode = dns.RcodeNameError
		return withSOA(reply, zone, current.serial), nil
	}

	if h.rewrite && found.service != "" && (state.QType() == dns.TypeA || state.QType() == dns.TypeAAAA) {
		rewritten, err := addresses(ctx, state, found.service, reply)
		if err != nil {
			return nil, fmt.Errorf("looking up %s for %s: %w", found.service, name, err)
		}
		if rewritten {
			return withSOA(reply, zone, current.serial), nil
		}
	}
	if err := literal(ctx, state, found, reply); err != nil {
		return nil, err
	}
	if name == zone {
		reply.Answer = append(reply.Answer, apex(zone, state.QType(), current.serial)...)
	}
	return withSOA(reply, zone, current.serial), nil
}

// withSOA adds to an empty answer how long it may be remembered.
func withSOA(reply *dns.Msg, zone string, serial uint32) *dns.Msg {
	if len(reply.Answer) == 0 {
		reply.Ns = []dns.RR{soa(zone, serial)}
	}
	return reply
}

// addresses answers with those of a Service, under the name that was asked for; CoreDNS asks itself for them. It returns
// false if there is no such Service: it may be gone while its last addresses in the records still work, and the writer will
// follow soon.
func addresses(ctx context.Context, state request.Request, service string, reply *dns.Msg) (bool, error) {
	answer, err := upstream.New().Lookup(ctx, state, service, state.QType())
	if err != nil {
		return false, err
	}
	if answer == nil {
		return false, errors.New("no answer")
	}
	switch answer.Rcode {
	case dns.RcodeSuccess:
	case dns.RcodeNameError:
		return false, nil
	case dns.RcodeRefused:
		// The client isn't one for whom names of the cluster are looked up. It gets what those outside get.
		return false, nil
	default:
		return false, fmt.Errorf("the answer was %s", dns.RcodeToString[answer.Rcode])
	}

	for _, rr := range answer.Answer {
		if rr.Header().Rrtype == state.QType() {
			reply.Answer = append(reply.Answer, renamed(rr, state.QName()))
		}
	}
	return true, nil
}

// literal answers with a node's own records, and with what its alias leads to.
func literal(ctx context.Context, state request.Request, found *node, reply *dns.Msg) error {
	for _, rr := range found.records[state.QType()] {
		reply.Answer = append(reply.Answer, renamed(rr, state.QName()))
	}
	aliases := found.records[dns.TypeCNAME]
	if len(reply.Answer) > 0 || len(aliases) == 0 {
		return nil
	}

	alias := renamed(aliases[0], state.QName()).(*dns.CNAME)
	reply.Answer = append(reply.Answer, alias)

	depth, _ := ctx.Value(dnsserver.LoopKey{}).(int)
	if depth >= maxAliases {
		return fmt.Errorf("%s leads through more than %d aliases", state.Name(), maxAliases)
	}
	target, err := upstream.New().Lookup(context.WithValue(ctx, dnsserver.LoopKey{}, depth+1), state, alias.Target, state.QType())
	if err != nil || target == nil {
		// The alias itself is an answer; its target may be of no server known here.
		return nil
	}
	reply.Answer = append(reply.Answer, target.Answer...)
	reply.Truncated = target.Truncated
	if len(target.Answer) == 0 {
		reply.Ns = target.Ns // How long it may be remembered that there is nothing.
	}
	// Whoever is refused the target gets the alias. All else is the answer to the whole question (RFC 6604).
	if target.Rcode != dns.RcodeRefused {
		reply.Rcode = target.Rcode
	}
	return nil
}

// generation returns that of the ConfigMap which a reserved name stands for.
func (t *table) generation(name, zone string) (string, bool) {
	shard, ok := strings.CutSuffix(name, "."+SyncLabel+"."+zone)
	if !ok {
		return "", false
	}
	generation, ok := t.generations[shard]
	return generation, ok
}

func apex(zone string, rrtype uint16, serial uint32) []dns.RR {
	switch rrtype {
	case dns.TypeSOA:
		return []dns.RR{soa(zone, serial)}
	case dns.TypeNS:
		return []dns.RR{&dns.NS{Hdr: header(zone, dns.TypeNS, zoneTTL), Ns: nameServer(zone)}}
	default:
		return nil
	}
}

func soa(zone string, serial uint32) dns.RR {
	return &dns.SOA{
		Hdr: header(zone, dns.TypeSOA, zoneTTL), Ns: nameServer(zone), Mbox: "hostmaster." + zone,
		Serial: serial, Refresh: 7200, Retry: 1800, Expire: 86400, Minttl: zoneTTL,
	}
}

// nameServer is the name that CoreDNS gives itself in the kubernetes plugin, too.
func nameServer(zone string) string { return "ns.dns." + zone }

func header(name string, rrtype uint16, ttl uint32) dns.RR_Header {
	return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET, Ttl: ttl}
}

// renamed returns a copy, since what follows in the chain may change an answer.
func renamed(rr dns.RR, name string) dns.RR {
	out := dns.Copy(rr)
	out.Header().Name = name
	return out
}
