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
	"time"

	miekgdns "github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

const (
	firstBackoff = 5 * time.Millisecond
	maxBackoff   = 250 * time.Millisecond
	queryTimeout = 2 * time.Second
	// maxUDPSize is what the answers of a few dozen addresses fit in.
	maxUDPSize = 4096
	tcp, udp   = "tcp", "udp"
)

// Exchange asks a DNS server. network is "tcp" or "udp", server is host:port.
type Exchange func(ctx context.Context, network, server string, query *miekgdns.Msg) (*miekgdns.Msg, error)

// exchange is an Exchange that really asks.
func exchange(ctx context.Context, network, server string, query *miekgdns.Msg) (*miekgdns.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	dnsClient := miekgdns.Client{Net: network, Timeout: queryTimeout}
	answer, _, err := dnsClient.ExchangeContext(ctx, query, server)
	if network := (*net.OpError)(nil); errors.As(err, &network) {
		network.Source = nil // Our own port is another one each time.
	}
	return answer, err
}

// answer is what a server has of a name and type.
type answer struct {
	// values are sorted.
	values []string
	// aliases are the aliases that lead to the values, from the name on.
	aliases []string
	rcode   int
}

// String implements fmt.Stringer.
func (a answer) String() string {
	if len(a.values) == 0 {
		return "no such record (" + miekgdns.RcodeToString[a.rcode] + ")"
	}
	return strings.Join(a.values, ", ")
}

// expectation is an answer that a server has to give. verify returns what is wrong with one.
type expectation struct {
	network, name, recordType string
	verify                    func(answer) error
}

// isServed expects the generation of a ConfigMap, or a later one. A server that doesn't know the ConfigMap is at none.
func isServed(configMap, zone string, generation uint64) expectation {
	name := configMap + "." + dns.ReservedLabel + "." + zone
	return expectation{udp, name, dns.TypeTXT, func(a answer) error {
		served, err := strconv.ParseUint(strings.Join(a.values, " "), 10, 64)
		switch {
		case err == nil && served >= generation:
			return nil
		case err == nil || a.rcode == miekgdns.RcodeNameError:
			return fmt.Errorf("it does not serve ConfigMap %s as it is yet, but an older generation", configMap)
		default:
			return fmt.Errorf("expected a generation, got %s", a)
		}
	}}
}

// isAnswered expects just these values, or the others, be it as an alias.
func isAnswered(network, name, recordType string, values []string, others ...string) expectation {
	wanted := slices.Sorted(slices.Values(values))
	return expectation{network, name, recordType, func(a answer) error {
		isOther := slices.Equal(a.values, slices.Sorted(slices.Values(others))) || slices.Equal(a.aliases[:min(1, len(a.aliases))], others)
		if !slices.Equal(a.values, wanted) && (len(others) == 0 || !isOther) {
			return fmt.Errorf("expected %s, got %s", strings.Join(wanted, ", "), a)
		}
		return nil
	}}
}

// confirm returns nil once all servers answer with a record in both views, or what was wrong last. What is expected is worked
// out anew for each try, as a gateway may come or go meanwhile.
func (p *Provider) confirm(ctx context.Context, record dns.Record) (last error) {
	for backoff := firstBackoff; ; backoff = min(2*backoff, maxBackoff) {
		err := p.confirmOnce(ctx, record, backoff)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		if ctx.Err() != nil {
			return last
		}
	}
}

// confirmOnce returns at once if all is as expected, and else after backoff.
func (p *Provider) confirmOnce(ctx context.Context, record dns.Record, backoff time.Duration) error {
	servers, err := p.servers(ctx)
	var expected []expectation
	if err == nil {
		expected, err = p.expectations(record)
	}
	if err != nil {
		pause(ctx, backoff)
		return err
	}
	for _, server := range servers {
		for _, e := range expected {
			if err := p.check(ctx, server, e, backoff); err != nil {
				return err
			}
		}
	}
	return nil
}

// expectations returns what a server that is up to date must answer: to clients from outside, who ask by TCP, the values
// as they are, and to those in the cluster, who ask by UDP, the gateway's addresses if there is one; or the values, if pods are
// outside of clientNetworks: of an alias itself, as what it leads to there is not known. Without a gateway both get the same from
// the same place, so one question is enough.
func (p *Provider) expectations(record dns.Record) ([]expectation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	in, ok := p.shards.where[record.Name]
	if !ok || !in.exists {
		return nil, errors.New("it is not written")
	}
	// No record has this label, so only the wildcard covers it.
	name := strings.Replace(record.Name, "*", "+", 1)
	expected := []expectation{
		isServed(in.name, in.entries[record.Name].zone, in.generation),
		isAnswered(tcp, name, record.Type, record.Values),
	}
	if found, ok := p.gateways.find(p.desired.effective(record.Name)); ok {
		for _, recordType := range []string{dns.TypeA, dns.TypeAAAA} {
			addresses := found.ofType(recordType)
			if len(addresses) > 0 && (record.Type == recordType || record.Type == dns.TypeCNAME) {
				expected = append(expected, isAnswered(udp, name, recordType, addresses, record.Values...))
			}
		}
	}
	return expected, nil
}

// check returns what is wrong with a server's answer. However many want to know it, a server is asked one question once at a
// time, and only as long as somebody wants to know. Whoever asks waits for backoff if the answer is wrong, and all others with
// it.
func (p *Provider) check(ctx context.Context, server string, e expectation, backoff time.Duration) error {
	what := fmt.Sprintf("asking server %s for %s %s by %s", server, e.name, e.recordType, e.network)
	everybodys := context.WithoutCancel(ctx)
	asked := p.questions.DoChan(what, func() (any, error) {
		got, err := p.ask(everybodys, server, e)
		if err != nil || e.verify(got) != nil {
			pause(everybodys, backoff)
		}
		return got, err
	})
	select {
	case result := <-asked:
		err := result.Err
		if err == nil {
			err = e.verify(result.Val.(answer))
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *Provider) ask(ctx context.Context, server string, e expectation) (answer, error) {
	query := new(miekgdns.Msg)
	query.SetQuestion(miekgdns.Fqdn(e.name), miekgdns.StringToType[e.recordType])
	query.SetEdns0(maxUDPSize, false)
	reply, err := p.Exchange(ctx, e.network, server, query)
	if err != nil {
		return answer{}, err
	}
	got := answer{rcode: reply.Rcode}
	for _, rr := range reply.Answer {
		switch rr.Header().Rrtype {
		case query.Question[0].Qtype:
			got.values = append(got.values, dns.ValueOf(rr))
		case miekgdns.TypeCNAME:
			got.aliases = append(got.aliases, dns.ValueOf(rr))
		}
	}
	slices.Sort(got.values)
	return got, nil
}

// pause returns after a duration, or when ctx is done.
func pause(ctx context.Context, duration time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, duration)
	defer cancel()
	<-ctx.Done()
}

// servers returns the addresses of all CoreDNS that are ready to be asked. A pod with two families is in two EndpointSlices: to
// ask it twice is to see that it answers by both.
func (p *Provider) servers(ctx context.Context) ([]string, error) {
	if servers := p.DNS.CoreDNS.Servers; len(servers) > 0 {
		return servers, nil
	}
	namespace := p.DNS.CoreDNS.Namespace
	list := &discoveryv1.EndpointSliceList{}
	if err := p.Client.List(ctx, list, client.InNamespace(namespace), client.MatchingLabels{discoveryv1.LabelServiceName: ServiceName}); err != nil {
		return nil, fmt.Errorf("listing the EndpointSlices of Service %s/%s: %w", namespace, ServiceName, err)
	}
	var servers []string
	for _, endpoints := range list.Items {
		port := slices.IndexFunc(endpoints.Ports, func(port discoveryv1.EndpointPort) bool {
			return port.Port != nil && ptr.Deref(port.Protocol, "") == corev1.ProtocolTCP
		})
		for _, endpoint := range endpoints.Endpoints {
			if port < 0 || !ptr.Deref(endpoint.Conditions.Ready, true) {
				continue
			}
			for _, address := range endpoint.Addresses {
				servers = append(servers, net.JoinHostPort(address, strconv.Itoa(int(*endpoints.Ports[port].Port))))
			}
		}
	}
	if len(servers) == 0 {
		return nil, errors.New("no pod of CoreDNS in namespace " + namespace + " is ready")
	}
	slices.Sort(servers)
	return slices.Compact(servers), nil
}
