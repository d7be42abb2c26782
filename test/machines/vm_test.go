// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"context"
	"net"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/crypto/ssh"
)

// QEMU accepts a connection for a machine that reboots, and nobody ever answers on it.
func TestNobodyWaitsForAMachineThatNeverAnswers(t *testing.T) {
	g := NewWithT(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() { _ = listener.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	ended := make(chan error, 1)
	go func() {
		_, err := dial(ctx, listener.Addr().String(), &ssh.ClientConfig{HostKeyCallback: ssh.InsecureIgnoreHostKey()}) // #nosec G106 -- nobody answers.
		ended <- err
	}()
	g.Eventually(ended, "10s").Should(Receive(HaveOccurred()), "the connection is open, and silent")
}
