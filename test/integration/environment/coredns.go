// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// CoreDNS is a running process of our CoreDNS.
type CoreDNS struct {
	// Address is where it answers, by UDP and TCP.
	Address string
	// HostAddress is where it answers the machine, by UDP and TCP; empty if the Corefile has no port 9054.
	HostAddress string
	// State is the folder in which it keeps what it serves for its next start.
	State string

	*Process
}

// StartCoreDNS starts our CoreDNS on a port of the loopback, with the given Corefile in which every ":9053" is replaced
// by that port and every ":9054" by a free one, and the health, ready and metrics servers are taken out (they have fixed
// ports). It reads the ConfigMaps of namespace by kubeconfig, and has its state in the folder "state" of dir.
func StartCoreDNS(corefile, kubeconfig, namespace, dir string, port int, logs io.Writer, mounts ...Tmpfs) (*CoreDNS, error) {
	binary := os.Getenv(envCoreDNS)
	if binary == "" {
		return nil, fmt.Errorf("%s does not name our CoreDNS: `make test` builds it", envCoreDNS)
	}
	hostPort, err := FreePort()
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "Corefile")
	if err := os.WriteFile(path, []byte(onPorts(corefile, port, hostPort)), 0o600); err != nil {
		return nil, err
	}

	state := filepath.Join(dir, "state")
	process, err := startProcess(logs, []string{"KUBECONFIG=" + kubeconfig, "CONFIG_NAMESPACE=" + namespace, "CONFIG_DIR=" + state}, mounts, binary, "-conf", path)
	if err != nil {
		return nil, err
	}

	c := &CoreDNS{Address: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), State: state, Process: process}
	if strings.Contains(corefile, ":9054") {
		c.HostAddress = net.JoinHostPort("127.0.0.1", strconv.Itoa(hostPort))
	}
	return c, nil
}

func onPorts(corefile string, port, hostPort int) string {
	var (
		lines    []string
		skipping bool
	)
	for line := range strings.Lines(corefile) {
		fields := strings.Fields(line)
		switch {
		case skipping:
			skipping = strings.TrimSpace(line) != "}"
		case len(fields) > 0 && slices.Contains([]string{"health", "ready", "prometheus"}, fields[0]):
			skipping = fields[len(fields)-1] == "{"
		default:
			lines = append(lines, strings.NewReplacer(":9053", ":"+strconv.Itoa(port), ":9054", ":"+strconv.Itoa(hostPort)).Replace(line))
		}
	}
	return strings.Join(lines, "")
}

// FreePort returns a port that is free for UDP and TCP. It is below those that the kernel gives to outgoing connections, which might take
// it before it is used.
func FreePort() (int, error) {
	for range 20 {
		port := 10_000 + rand.IntN(20_000) // #nosec G404 -- no secret.
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		tcp, err := net.Listen("tcp", address)
		if err != nil {
			continue
		}
		udp, err := net.ListenPacket("udp", address)
		if err = errors.Join(tcp.Close(), err); err != nil {
			continue
		}
		return port, udp.Close()
	}
	return 0, errors.New("no port is free for both UDP and TCP")
}
