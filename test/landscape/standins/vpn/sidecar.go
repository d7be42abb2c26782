// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"

	"golang.org/x/sys/unix"
)

// loopback is the index that the kernel gives to the loopback device of each network namespace.
const loopback = 1

// runSidecar puts the address of the kube-apiserver on the node. Unless it is told not to be a daemon, it stays.
func runSidecar(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet(roleSidecar, flag.ContinueOnError)
	address := flags.String("ip-address", "", "the address")
	daemon := flags.Bool("daemon", true, "whether to stay")
	flags.String("interface", "", "the device, which is not used")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ip, err := netip.ParseAddr(*address)
	if err != nil {
		return fmt.Errorf("reading the address: %w", err)
	}
	if !ip.Is4() {
		return fmt.Errorf("%s is not of IPv4", ip)
	}
	if err := addAddress(ip); err != nil {
		return fmt.Errorf("adding address %s: %w", ip, err)
	}
	slog.Info("The loopback device has the address", "address", ip)
	if *daemon {
		<-ctx.Done()
	}
	return nil
}

// addAddress adds an address of the host to the loopback device by rtnetlink(7); one that is there is fine.
func addAddress(ip netip.Addr) error {
	socket, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(socket) //nolint:errcheck // Nothing is lost.
	if err := unix.Sendto(socket, addressRequest(ip), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return err
	}
	answer := make([]byte, unix.Getpagesize())
	n, _, err := unix.Recvfrom(socket, answer, 0)
	if err != nil {
		return err
	}
	return addressAnswer(answer[:n])
}

// addressRequest is an RTM_NEWADDR that asks for an answer.
func addressRequest(ip netip.Addr) []byte {
	order, raw := binary.NativeEndian, ip.AsSlice()
	body := []byte{unix.AF_INET, byte(ip.BitLen()), unix.IFA_F_PERMANENT, unix.RT_SCOPE_HOST}
	body = order.AppendUint32(body, loopback)
	for _, attribute := range []uint16{unix.IFA_LOCAL, unix.IFA_ADDRESS} {
		body = order.AppendUint16(body, unix.SizeofRtAttr+uint16(len(raw))) // #nosec G115 -- four bytes.
		body = order.AppendUint16(body, attribute)
		body = append(body, raw...)
	}
	message := order.AppendUint32(nil, unix.SizeofNlMsghdr+uint32(len(body))) // #nosec G115 -- some bytes.
	message = order.AppendUint16(message, unix.RTM_NEWADDR)
	message = order.AppendUint16(message, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|unix.NLM_F_EXCL)
	message = append(message, make([]byte, 8)...) // No sequence, as there is one message only, and no port.
	return append(message, body...)
}

// addressAnswer reads the kernel's word.
func addressAnswer(answer []byte) error {
	order := binary.NativeEndian
	if len(answer) < unix.SizeofNlMsghdr+4 || order.Uint16(answer[4:]) != unix.NLMSG_ERROR {
		return errors.New("the kernel's answer is not understood")
	}
	code := int32(order.Uint32(answer[unix.SizeofNlMsghdr:])) // #nosec G115 -- the kernel has it signed.
	if code == 0 || unix.Errno(-code) == unix.EEXIST {
		return nil
	}
	return unix.Errno(-code)
}
