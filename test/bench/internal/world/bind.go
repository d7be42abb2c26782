// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	miekgdns "github.com/miekg/dns"
)

const (
	// bindAddress is one that BIND finds on an interface; the peer does not let anybody set the port.
	bindAddress = "127.0.0.1"
	// peerServer is the name of the peer's name server.
	peerServer = "ns.local.gardener.cloud"
	// Zone is where all records are, as the peer has no other.
	Zone = "local.gardener.cloud"

	namedConf = `options {
  directory %[1]q;
  pid-file "%[1]s/named.pid";
  session-keyfile "%[1]s/session.key";
  listen-on port 53 { %[2]s; };
  listen-on-v6 { none; };
  recursion no;
  dnssec-validation no;
  notify no;
};
controls { };
zone %[3]q { type primary; file "zone"; allow-update { any; }; };
`
	zoneFile = "$TTL 60\n@ SOA ns.invalid. admin.invalid. 1 3600 600 86400 60\n@ NS ns.invalid.\n"
)

// Bind is a BIND 9 that takes dynamic updates of Zone.
type Bind struct {
	// Address is HOST:PORT.
	Address string

	// hosts is a file for /etc/hosts with which the peer finds it.
	hosts string
}

// Bind starts a BIND 9, once.
func (w *World) Bind(ctx context.Context) (*Bind, error) {
	if w.bind != nil {
		return w.bind, nil
	}
	named, err := findNamed()
	if err != nil {
		return nil, err
	}
	dir, err := w.folder("bind")
	if err != nil {
		return nil, err
	}
	b := &Bind{Address: net.JoinHostPort(bindAddress, "53"), hosts: filepath.Join(dir, "hosts")}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		return nil, err
	}
	for name, data := range map[string]string{
		"named.conf": fmt.Sprintf(namedConf, dir, bindAddress, Zone),
		"zone":       zoneFile,
		"hosts":      fmt.Sprintf("%s %s\n%s", bindAddress, peerServer, hosts),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o644); err != nil {
			return nil, err
		}
	}

	logs, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(named, "-g", "-c", filepath.Join(dir, "named.conf"))
	cmd.Stdout, cmd.Stderr = logs, logs
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, logs.Close())
	}
	w.stop = append(w.stop, func() error {
		err := cmd.Process.Kill()
		_ = cmd.Wait()
		return errors.Join(err, logs.Close())
	})
	if err := awaitAnswer(ctx, b.Address); err != nil {
		log, _ := os.ReadFile(logs.Name())
		return nil, fmt.Errorf("starting BIND 9 at %s, which needs root and that port: %w\n%s", b.Address, err, log)
	}
	w.bind = b
	return b, nil
}

// findNamed returns the path of BIND's server. Debian has it where only root looks.
func findNamed() (string, error) {
	if path := os.Getenv("TEST_ASSET_NAMED"); path != "" {
		return path, nil
	}
	for _, name := range []string{"named", "/usr/sbin/named"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("BIND 9 is needed: install the package bind9 (Debian), or name its server by TEST_ASSET_NAMED")
}

func awaitAnswer(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	question := new(miekgdns.Msg).SetQuestion(Zone+".", miekgdns.TypeSOA)
	for {
		answer, err := miekgdns.ExchangeContext(ctx, question, address)
		if err == nil && len(answer.Answer) == 1 {
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}
