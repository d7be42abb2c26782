// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	miekgdns "github.com/miekg/dns"

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
	return answer, err
}

// mark is a state of a ConfigMap that is waited for.
type mark struct {
	shard, zone string
	generation  uint64
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

type poll struct {
	waiting []*waiter
	// last is why the last query didn't give a generation.
	last error
}

type waiter struct {
	generation uint64
	done       chan struct{}
}

func newConfirmer(exchanger Exchanger) *confirmer {
	return &confirmer{exchanger: exchanger, polls: map[pollKey]*poll{}}
}

// wait returns nil once a server is at a mark or after it.
func (c *confirmer) wait(ctx context.Context, server string, m mark) error {
	key := pollKey{server: server, shard: m.shard, zone: m.zone}
	w := &waiter{generation: m.generation, done: make(chan struct{})}

	c.mu.Lock()
	p, running := c.polls[key]
	if !running {
		p = &poll{}
		c.polls[key] = p
	}
	p.waiting = append(p.waiting, w)
	c.mu.Unlock()
	if !running {
		// The poll is everybody's, so it doesn't end with the context of the one who started it.
		go c.run(context.WithoutCancel(ctx), key, p)
	}

	select {
	case <-w.done:
		return nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p.waiting = slices.DeleteFunc(p.waiting, func(other *waiter) bool { return other == w })
	return fmt.Errorf("server %s does not serve generation %d of ConfigMap %s yet: %w", server, m.generation, m.shard, orElse(p.last, ctx.Err()))
}

// run polls until nobody waits any more.
func (c *confirmer) run(ctx context.Context, key pollKey, p *poll) {
	backoff := firstBackoff
	for {
		generation, err := c.generation(ctx, key)

		c.mu.Lock()
		p.last = err
		if err == nil {
			p.last = fmt.Errorf("it serves generation %d", generation)
		}
		before := len(p.waiting)
		p.waiting = slices.DeleteFunc(p.waiting, func(w *waiter) bool {
			if err == nil && w.generation <= generation {
				close(w.done)
				return true
			}
			return false
		})
		if len(p.waiting) == 0 {
			delete(c.polls, key)
			c.mu.Unlock()
			return
		}
		if len(p.waiting) < before {
			backoff = firstBackoff
		}
		c.mu.Unlock()

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
