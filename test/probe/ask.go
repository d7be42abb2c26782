// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"time"
)

// patience is how long one question may take.
const patience = 3 * time.Second

// Resolve asks for the IPv4 and IPv6 addresses of a name, sorted. Server (host:port) is asked by network, which is "udp" or
// "tcp"; without a server it is those of /etc/resolv.conf, as any program does. A name that doesn't exist is an error.
func Resolve(ctx context.Context, network, server, name string) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	resolver := &net.Resolver{PreferGo: true}
	if server != "" {
		resolver.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, server)
		}
	}
	found, err := resolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return nil, err
	}
	var addresses []string
	for _, address := range found {
		addresses = append(addresses, address.Unmap().String())
	}
	slices.Sort(addresses)
	return slices.Compact(addresses), nil
}

// Fetch gets a URL and returns what the Server behind it says. It connects to address (host:port) whatever the host of the
// URL is, or to that host if address is empty. Certificates are not verified: a Server has one of its own making.
func Fetch(ctx context.Context, url, address string) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true}, // #nosec G402 -- see above.
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, host string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, cmp.Or(address, host))
		},
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return Answer{}, err
	}
	response, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return Answer{}, err
	}
	defer func() { _ = response.Body.Close() }()
	if response.StatusCode != http.StatusOK {
		return Answer{}, fmt.Errorf("%s answers %s", url, response.Status)
	}
	var answer Answer
	if err := json.NewDecoder(io.LimitReader(response.Body, 1<<16)).Decode(&answer); err != nil {
		return Answer{}, fmt.Errorf("%s is not answered by a probe: %w", url, err)
	}
	return answer, nil
}

// Echo sends a datagram to address (host:port) and returns what the Server there says.
func Echo(ctx context.Context, address string) (Answer, error) {
	var answer Answer
	connection, err := (&net.Dialer{Timeout: patience}).DialContext(ctx, "udp", address)
	if err != nil {
		return answer, err
	}
	defer func() { _ = connection.Close() }()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		return answer, err
	}
	if _, err := connection.Write([]byte("who is there?")); err != nil {
		return answer, err
	}
	buffer := make([]byte, 1<<16)
	n, err := connection.Read(buffer)
	if err != nil {
		return answer, err
	}
	return answer, json.Unmarshal(buffer[:n], &answer)
}

// Report is what an Agent says: what it was told, or why it was told nothing.
type Report struct {
	Addresses []string `json:"addresses,omitempty"`
	Answer    Answer   `json:"answer,omitzero"`
	Error     string   `json:"error,omitempty"`
}

// Agent asks on behalf of others: /resolve with the parameters network, server and name, /fetch with url and address, and
// /echo with address. It always answers with a Report.
func Agent() http.Handler {
	mux := http.NewServeMux()
	handle := func(path string, ask func(*http.Request, *Report) error) {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			var report Report
			if err := ask(r, &report); err != nil {
				report = Report{Error: err.Error()}
			}
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(report)
		})
	}
	handle("/resolve", func(r *http.Request, report *Report) (err error) {
		report.Addresses, err = Resolve(r.Context(), r.FormValue("network"), r.FormValue("server"), r.FormValue("name"))
		return err
	})
	handle("/fetch", func(r *http.Request, report *Report) (err error) {
		report.Answer, err = Fetch(r.Context(), r.FormValue("url"), r.FormValue("address"))
		return err
	})
	handle("/echo", func(r *http.Request, report *Report) (err error) {
		report.Answer, err = Echo(r.Context(), r.FormValue("address"))
		return err
	})
	return mux
}

// Err is the error of a Report, nil if there is none.
func (r Report) Err() error {
	if r.Error == "" {
		return nil
	}
	return errors.New(r.Error)
}
