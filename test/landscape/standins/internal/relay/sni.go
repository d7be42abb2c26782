// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package relay

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"
)

// maxHello bounds what is read for a ClientHello, in bytes: the largest handshake message that crypto/tls takes, in records.
const maxHello = 80 << 10

// ServerName reads the ClientHello within HandshakeTimeout and returns the host that it names, in lower case, without a
// trailing dot and empty if it names none. The connection that is returned reads the ClientHello again.
func ServerName(conn net.Conn) (string, net.Conn, error) {
	if err := conn.SetReadDeadline(time.Now().Add(HandshakeTimeout)); err != nil {
		return "", nil, err
	}
	var (
		read bytes.Buffer
		host string
		seen = errors.New("seen")
	)
	hello := readOnly{Conn: conn, reader: io.TeeReader(io.LimitReader(conn, maxHello), &read)}
	err := tls.Server(hello, &tls.Config{
		MinVersion: tls.VersionTLS12,
		GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
			host = info.ServerName
			return nil, seen
		},
	}).Handshake()
	if !errors.Is(err, seen) {
		return "", nil, fmt.Errorf("reading a ClientHello: %w", err)
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return "", nil, err
	}
	return strings.ToLower(strings.TrimSuffix(host, ".")), Replay(conn, read.Bytes()), nil
}

// readOnly keeps crypto/tls from answering.
type readOnly struct {
	net.Conn
	reader io.Reader
}

func (r readOnly) Read(b []byte) (int, error) { return r.reader.Read(b) }
func (readOnly) Write([]byte) (int, error)    { return 0, io.ErrClosedPipe }
