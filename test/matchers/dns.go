// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package matchers

import (
	"context"
	"slices"
	"time"

	"github.com/miekg/dns"
)

// Resolve asks a server (host:port) for a name and returns the sorted data of the answers, or the rcode, such as
// NXDOMAIN, if it is an error. Network is "udp" for a client in the cluster and "tcp" for one from outside.
func Resolve(ctx context.Context, network, server, name string, qtype uint16) ([]string, error) {
	query := new(dns.Msg)
	query.SetQuestion(dns.Fqdn(name), qtype)
	reply, _, err := (&dns.Client{Net: network, Timeout: 2 * time.Second}).ExchangeContext(ctx, query, server)
	if err != nil {
		return nil, err
	}
	if reply.Rcode != dns.RcodeSuccess {
		return []string{dns.RcodeToString[reply.Rcode]}, nil
	}

	var data []string
	for _, rr := range reply.Answer {
		switch rr := rr.(type) {
		case *dns.A:
			data = append(data, rr.A.String())
		case *dns.AAAA:
			data = append(data, rr.AAAA.String())
		case *dns.CNAME:
			data = append(data, rr.Target)
		case *dns.TXT:
			data = append(data, rr.Txt...)
		}
	}
	slices.Sort(data)
	return data, nil
}
