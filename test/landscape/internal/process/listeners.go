// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
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
	fs, err := procfs.NewDefaultFS()
	if err != nil {
		return nil, fmt.Errorf("listing the sockets in use: %w", err)
	}
	found := map[uint64]*Listener{}
	var errs []error
	add := func(network string, state uint64, sockets procfs.NetIPSocket, err error) {
		if !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
		for _, s := range sockets {
			if address, ok := netip.AddrFromSlice(s.LocalAddr); ok && s.St == state {
				found[s.Inode] = &Listener{Socket: Socket{Network: network, Address: netip.AddrPortFrom(address.Unmap(), uint16(s.LocalPort))}} // #nosec G115 -- a port.
			}
		}
	}
	// The states are those of include/net/tcp_states.h: TCP_LISTEN, and TCP_CLOSE for UDP without a peer.
	tcp, err := fs.NetTCP() //nolint:staticcheck // Netlink would be faster; this is read a few times in all.
	add("tcp", 10, procfs.NetIPSocket(tcp), err)
	tcp, err = fs.NetTCP6() //nolint:staticcheck // See above.
	add("tcp", 10, procfs.NetIPSocket(tcp), err)
	udp, err := fs.NetUDP()
	add("udp", 7, procfs.NetIPSocket(udp), err)
	udp, err = fs.NetUDP6()
	add("udp", 7, procfs.NetIPSocket(udp), err)
	processes, err := fs.AllProcs()
	if err := errors.Join(append(errs, err)...); err != nil {
		return nil, fmt.Errorf("listing the sockets in use: %w", err)
	}
	for _, p := range processes {
		// Those of other users can't be looked at, and processes end meanwhile.
		targets, _ := p.FileDescriptorTargets()
		for _, target := range targets {
			var inode uint64
			if _, err := fmt.Sscanf(target, "socket:[%d]", &inode); err != nil {
				continue
			}
			if l := found[inode]; l != nil && !slices.Contains(l.PIDs, p.PID) {
				l.PIDs = append(l.PIDs, p.PID)
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
