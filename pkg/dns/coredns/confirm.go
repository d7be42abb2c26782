// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	miekgdns "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

const (
	firstBackoff = 5 * time.Millisecond
	maxBackoff   = 250 * time.Millisecond
	// maxUDPSize is what the answers of a few dozen addresses fit in.
	maxUDPSize = 4096
	tcp, udp   = "tcp", "udp"
)

// Exchanger asks a DNS server. network is "tcp" or "udp", server is host:port.
type Exchanger interface {
	Exchange(ctx context.Context, network, server string, query *miekgdns.Msg) (*miekgdns.Msg, error)
}

// NewExchanger returns an Exchanger that really asks. A query takes at most timeout.
func NewExchanger(timeout time.Duration) Exchanger {
	return exchanger{timeout: timeout}
}

type exchanger struct {
	timeout time.Duration
}

// Exchange implements Exchanger.
func (e exchanger) Exchange(ctx context.Context, network, server string, query *miekgdns.Msg) (*miekgdns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, e.timeout)
	defer cancel()
	dnsClient := miekgdns.Client{Net: network, Timeout: e.timeout}
	answer, _, err := dnsClient.ExchangeContext(ctx, query, server)
	if network := (*net.OpError)(nil); errors.As(err, &network) {
		network.Source = nil // Our own port is another one each time.
	}
	return answer, err
}

// mark is a state of a ConfigMap that is waited for.
type mark struct {
	shard, zone string
	generation  uint64
}

// progress is a number that grows, and that callers wait for.
type progress struct {
	mu    sync.Mutex
	value uint64
	// last is why there was nothing to report; nil if there was.
	last    error
	changed chan struct{}
}

func newProgress() *progress { return &progress{changed: make(chan struct{})} }

// report takes over a value, or why there is none.
func (p *progress) report(value uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.value, p.last = max(p.value, value), err
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *progress) has(value uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.value >= value
}

// await returns nil once a value is reached.
func (p *progress) await(ctx context.Context, value uint64) error {
	for {
		p.mu.Lock()
		reached, last, changed := p.value >= value, p.last, p.changed
		p.mu.Unlock()
		if reached {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return orElse(last, ctx.Err())
		}
	}
}

// confirmer waits until servers serve a state. However many wait, each server is asked by one poll for each ConfigMap,
// and only as long as somebody waits.
type confirmer struct {
	exchanger Exchanger

	mu    sync.Mutex
	polls map[pollKey]*poll
}

type pollKey struct {
	server, shard, zone string
}

// poll is the generation that a server is at. waiting is how many wait for it, and wanted what the last of them waits for.
type poll struct {
	*progress
	waiting int
	wanted  uint64
}

func newConfirmer(exchanger Exchanger) *confirmer {
	return &confirmer{exchanger: exchanger, polls: map[pollKey]*poll{}}
}

// wait returns nil once a server is at a mark or after it.
func (c *confirmer) wait(ctx context.Context, server string, m mark) error {
	key := pollKey{server: server, shard: m.shard, zone: m.zone}
	c.mu.Lock()
	p, running := c.polls[key]
	if !running {
		p = &poll{progress: newProgress()}
		c.polls[key] = p
		// The poll is everybody's, so it doesn't end with the context of the one who started it.
		go c.run(context.WithoutCancel(ctx), key, p)
	}
	p.waiting++
	p.wanted = max(p.wanted, m.generation)
	c.mu.Unlock()

	err := p.await(ctx, m.generation)
	c.mu.Lock()
	defer c.mu.Unlock()
	p.waiting--
	if err != nil {
		return fmt.Errorf("server %s does not serve ConfigMap %s as it is yet: %w", server, m.shard, err)
	}
	return nil
}

// run polls until nobody waits any more.
func (c *confirmer) run(ctx context.Context, key pollKey, p *poll) {
	backoff, before := firstBackoff, uint64(0)
	for {
		generation, err := c.generation(ctx, key)

		c.mu.Lock()
		if p.waiting == 0 || err == nil && generation >= p.wanted {
			delete(c.polls, key)
			p.report(generation, err)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
		if err == nil {
			err = errors.New("it serves an older generation")
		}
		p.report(generation, err)

		if generation > before {
			backoff, before = firstBackoff, generation
		}
		pause(ctx, backoff)
		backoff = min(2*backoff, maxBackoff)
	}
}

// pause returns after a duration, or when ctx is done.
func pause(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// generation asks a server which generation of a ConfigMap it serves. A server that doesn't know the ConfigMap is at
// none.
func (c *confirmer) generation(ctx context.Context, key pollKey) (uint64, error) {
	name := key.shard + "." + dns.ReservedLabel + "." + key.zone
	values, code, err := c.ask(ctx, udp, key.server, name, dns.TypeTXT)
	switch {
	case err != nil:
		return 0, err
	case code == miekgdns.RcodeNameError:
		return 0, nil
	case len(values) != 1:
		return 0, fmt.Errorf("asking server %s for %s TXT by %s: %s", key.server, name, udp, describe(code, values))
	}
	generation, err := strconv.ParseUint(values[0], 10, 64)
	if err != nil {
		return 0, fmt.Errorf("asking server %s for %s TXT by %s: %q is not a generation", key.server, name, udp, values[0])
	}
	return generation, nil
}

// expectation is an answer that a server has to give.
type expectation struct {
	network, name, recordType string
	values                    []string
}

// check asks a server and returns an error that says what was asked and what came back if the answer is another.
func (c *confirmer) check(ctx context.Context, server string, expected expectation) error {
	values, code, err := c.ask(ctx, expected.network, server, expected.name, expected.recordType)
	if err != nil {
		return err
	}
	wanted := slices.Sorted(slices.Values(expected.values))
	if !slices.Equal(values, wanted) {
		return fmt.Errorf("asking server %s for %s %s by %s: expected %s, got %s", server, expected.name, expected.recordType, expected.network, strings.Join(wanted, ", "), describe(code, values))
	}
	return nil
}

// ask returns the sorted values of a type in the answer to a query.
func (c *confirmer) ask(ctx context.Context, network, server, name, recordType string) ([]string, int, error) {
	query := new(miekgdns.Msg)
	query.SetQuestion(miekgdns.Fqdn(name), miekgdns.StringToType[recordType])
	query.SetEdns0(maxUDPSize, false)
	answer, err := c.exchanger.Exchange(ctx, network, server, query)
	if err != nil {
		return nil, 0, fmt.Errorf("asking server %s for %s %s by %s: %w", server, name, recordType, network, err)
	}

	var values []string
	for _, rr := range answer.Answer {
		if rr.Header().Rrtype == query.Question[0].Qtype {
			values = append(values, dns.ValueOf(rr))
		}
	}
	slices.Sort(values)
	return values, answer.Rcode, nil
}

func describe(code int, values []string) string {
	if len(values) == 0 {
		return "no such record (" + miekgdns.RcodeToString[code] + ")"
	}
	return strings.Join(values, ", ")
}

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// servers returns the addresses of all CoreDNS that are ready to be asked.
func (p *Provider) servers(ctx context.Context) ([]string, error) {
	if len(p.Servers) > 0 {
		return p.Servers, nil
	}
	list := &discoveryv1.EndpointSliceList{}
	if err := p.Client.List(ctx, list, client.InNamespace(p.Namespace), client.MatchingLabels{discoveryv1.LabelServiceName: ServiceName}); err != nil {
		return nil, fmt.Errorf("listing the EndpointSlices of Service %s/%s: %w", p.Namespace, ServiceName, err)
	}
	var servers []string
	for _, slice := range list.Items {
		servers = append(servers, endpoints(slice)...)
	}
	if len(servers) == 0 {
		return nil, errors.New("no pod of CoreDNS in namespace " + p.Namespace + " is ready")
	}
	slices.Sort(servers)
	return slices.Compact(servers), nil
}

// endpoints returns the ready addresses of a slice. A pod with two families is in two slices: to ask it twice is to see
// that it answers by both.
func endpoints(slice discoveryv1.EndpointSlice) []string {
	port := int32(0)
	for _, candidate := range slice.Ports {
		if candidate.Port != nil && candidate.Protocol != nil && *candidate.Protocol == corev1.ProtocolTCP {
			port = *candidate.Port
		}
	}
	var servers []string
	for _, endpoint := range slice.Endpoints {
		if port == 0 || (endpoint.Conditions.Ready != nil && !*endpoint.Conditions.Ready) {
			continue
		}
		for _, address := range endpoint.Addresses {
			servers = append(servers, net.JoinHostPort(address, strconv.Itoa(int(port))))
		}
	}
	return servers
}
