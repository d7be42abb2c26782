// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package rfc2136

import (
	"context"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	miekgdns "github.com/miekg/dns"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

const (
	// fuzzDeadline is how long one input may take, on a machine that is busy with others.
	fuzzDeadline = 20 * time.Second
	// maxErrorText is what an error may come to, whatever a server answers: it gets into a status.
	maxErrorText = 2000
)

// FuzzAnswers has a server answer everything with the same bytes, of which only the ID may be put right. Whatever they are,
// an attempt ends soon, and what it says about them is short.
func FuzzAnswers(f *testing.F) {
	answers := []dns.Record{
		record("a.example.org", "A", "192.0.2.1"),
		record("_owner.a.example.org", "TXT", markOf(dns.Request{Record: record("a.example.org", "A")}).String()),
		record("a.example.org", "CNAME", "b.example.org"),
	}
	for _, answer := range answers {
		reply := new(miekgdns.Msg).SetQuestion(answer.Name+".", miekgdns.StringToType[answer.Type])
		reply.Response, reply.Authoritative = true, true
		reply.Answer = answer.ResourceRecords()
		packed, err := reply.Pack()
		NewWithT(f).Expect(err).NotTo(HaveOccurred())
		f.Add(packed, true)
		f.Add(packed[:len(packed)-3], true)
	}
	f.Add([]byte("SSH-2.0-OpenSSH_9.2p1 Debian-2"), false)
	f.Add([]byte{}, true)

	secrets := reader(f)
	f.Fuzz(func(t *testing.T, answer []byte, rightID bool) {
		if len(answer) > 0xffff {
			return
		}
		provider, err := New(Options{
			Reader: secrets, Server: "ns.example.org", Zones: []string{testZone}, Timeout: 200 * time.Millisecond,
			Dial: func(context.Context, string, string) (net.Conn, error) {
				ours, theirs := net.Pipe()
				go answerAll(theirs, answer, rightID)
				return ours, nil
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		o := newOwner(provider, record("a.example.org", "A", "192.0.2.1"))
		o.request.Secret = corev1.SecretReference{}
		done := make(chan struct{})
		go func() {
			defer close(done)
			for _, err := range []error{o.apply(t), o.remove(t)} {
				if err != nil && len(err.Error()) > maxErrorText {
					t.Errorf("an error of %d characters: %.200s", len(err.Error()), err)
				}
			}
		}()
		select {
		case <-done:
		case <-time.After(fuzzDeadline):
			t.Fatalf("no end after %s", fuzzDeadline)
		}
	})
}

// answerAll answers each message on a connection until that is closed.
func answerAll(conn net.Conn, answer []byte, rightID bool) {
	defer func() { _ = conn.Close() }()
	for {
		var length [2]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			return
		}
		query := make([]byte, binary.BigEndian.Uint16(length[:]))
		if _, err := io.ReadFull(conn, query); err != nil {
			return
		}
		out := append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)
		if rightID && len(answer) >= 2 && len(query) >= 2 {
			copy(out[2:4], query[:2])
		}
		if _, err := conn.Write(out); err != nil {
			return
		}
	}
}
