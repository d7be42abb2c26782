// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Socket is an address on which a process is to listen, or listens.
type Socket struct {
	// Network is "tcp" or "udp".
	Network string
	Address netip.AddrPort
}

func (s Socket) String() string { return s.Network + " " + s.Address.String() }

// Collides reports whether two sockets can't be there at once. One that listens on all addresses takes the port of each.
func (s Socket) Collides(other Socket) bool {
	a, b := s.Address.Addr(), other.Address.Addr()
	return s.Network == other.Network && s.Address.Port() == other.Address.Port() && (a == b || a.IsUnspecified() || b.IsUnspecified())
}

// Listener is a socket in use.
type Listener struct {
	Socket
	// PIDs are the processes that have it, as far as they may be looked at.
	PIDs []int
}

// Owner names the process that has the socket.
func (l Listener) Owner() string {
	for _, pid := range l.PIDs {
		if content, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
			return fmt.Sprintf("%s (PID %d)", strings.TrimSpace(string(content)), pid)
		}
	}
	return "a process of another user or container"
}

// Listeners returns the sockets on which something listens in this network namespace.
func Listeners() ([]Listener, error) {
	found := map[string]*Listener{}
	for _, table := range []struct{ file, network, state string }{
		// The states are those of include/net/tcp_states.h: TCP_LISTEN, and TCP_CLOSE for UDP without a peer.
		{"tcp", "tcp", "0A"}, {"tcp6", "tcp", "0A"}, {"udp", "udp", "07"}, {"udp6", "udp", "07"},
	} {
		content, err := os.ReadFile("/proc/net/" + table.file)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("listing the sockets in use: %w", err)
		}
		for line := range strings.Lines(string(content)) {
			fields := strings.Fields(line)
			if len(fields) < 10 || fields[3] != table.state {
				continue
			}
			address, err := parseAddress(fields[1])
			if err != nil {
				return nil, fmt.Errorf("listing the sockets in use: %w", err)
			}
			found[fields[9]] = &Listener{Socket: Socket{Network: table.network, Address: address}}
		}
	}
	descriptors, err := filepath.Glob("/proc/[0-9]*/fd/*")
	if err != nil {
		return nil, fmt.Errorf("listing the sockets in use: %w", err)
	}
	for _, descriptor := range descriptors {
		target, err := os.Readlink(descriptor)
		if err != nil || !strings.HasPrefix(target, "socket:[") {
			continue
		}
		if l := found[strings.TrimSuffix(strings.TrimPrefix(target, "socket:["), "]")]; l != nil {
			if pid, err := strconv.Atoi(strings.Split(descriptor, "/")[2]); err == nil && !slices.Contains(l.PIDs, pid) {
				l.PIDs = append(l.PIDs, pid)
			}
		}
	}
	var all []Listener
	for _, l := range found {
		all = append(all, *l)
	}
	slices.SortFunc(all, func(a, b Listener) int { return strings.Compare(a.String(), b.String()) })
	return all, nil
}

// parseAddress reads an address as /proc/net has it: 32-bit words in the machine's order, in hexadecimal.
func parseAddress(text string) (netip.AddrPort, error) {
	host, port, _ := strings.Cut(text, ":")
	words, err := hex.DecodeString(host)
	if err != nil || (len(words) != 4 && len(words) != 16) {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", text)
	}
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is no address", text)
	}
	for i := 0; i < len(words); i += 4 {
		binary.NativeEndian.PutUint32(words[i:], binary.BigEndian.Uint32(words[i:]))
	}
	address, _ := netip.AddrFromSlice(words)
	return netip.AddrPortFrom(address.Unmap(), uint16(number)), nil
}
