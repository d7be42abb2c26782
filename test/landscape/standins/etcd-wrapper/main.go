// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command etcd-wrapper stands in for github.com/gardener/etcd-wrapper, the container that etcd-druid runs as "etcd". The
// original is published as an image only: no module proxy has it. This one keeps its contract, so that the StatefulSet runs
// unchanged beside the real backup-restore:
//
//   - command and flags as etcd-druid v0.37.0 gives them (internal/component/statefulset/builder.go);
//   - backup-restore initialises the data first, by a sanity check only if the last etcd ended cleanly, else by a full one;
//   - the configuration comes from backup-restore, etcd runs inside of this process;
//   - GET /readyz reports whether etcd answers a linearizable read, POST /stop ends the process, which kubelet then restarts.
//
// It needs nothing of the image but itself, and writes nowhere but into the data volume. What it does not do: report metrics
// of its own and log in the original's format.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"os"
	"syscall"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/program"
)

// command is the only one that the original has.
const command = "start-etcd"

// options are what the flags say. The defaults are the original's.
type options struct {
	// BackupRestore is the host:port of backup-restore.
	BackupRestore string
	// BackupRestoreTLS says that backup-restore serves HTTPS, with a certificate of one of the CAs in BackupRestoreCA.
	BackupRestoreTLS bool
	BackupRestoreCA  string
	// ServerName is the name that etcd's server certificate is valid for; it resolves to this pod.
	ServerName string
	// Port is that of /readyz and /stop.
	Port int
	// Marker is the file that says how the last etcd ended.
	Marker string
}

func main() {
	// What etcd writes is for its user only, as with the original.
	syscall.Umask(0o077)
	program.Main(func(ctx context.Context) error {
		opts, err := parse(os.Args[1:])
		if err != nil {
			return fmt.Errorf("reading the command line: %w", err)
		}
		return run(ctx, opts)
	})
}

// parse reads the command line without the program's name.
func parse(args []string) (options, error) {
	opts := options{Marker: "/var/etcd/data/exit_code"}
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.StringVar(&opts.BackupRestore, "backup-restore-host-port", ":8080", "host:port of backup-restore, without a scheme")
	flags.BoolVar(&opts.BackupRestoreTLS, "backup-restore-tls-enabled", false, "whether backup-restore serves HTTPS")
	flags.StringVar(&opts.BackupRestoreCA, "backup-restore-ca-cert-bundle-path", "", "file with the CAs of backup-restore")
	flags.StringVar(&opts.ServerName, "etcd-server-name", "", "name of this pod in etcd's server certificate")
	for _, name := range []string{"etcd-client-cert-path", "etcd-client-key-path", "etcd-client-port", "etcd-ready-timeout"} {
		flags.String(name, "", "not used: the original asks etcd with these whether it is ready")
	}
	flags.IntVar(&opts.Port, "etcd-wrapper-port", 9095, "port of /readyz and /stop")
	if len(args) == 0 || args[0] != command {
		return opts, fmt.Errorf("the command must be %q", command)
	}
	if err := flags.Parse(args[1:]); err != nil {
		return opts, err
	}
	if flags.NArg() > 0 {
		return opts, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return opts, opts.validate()
}

func (o *options) validate() error {
	host, port, err := net.SplitHostPort(o.BackupRestore)
	if err != nil {
		return fmt.Errorf("--backup-restore-host-port: %w", err)
	}
	o.BackupRestore = net.JoinHostPort(cmp.Or(host, "localhost"), port)
	o.ServerName = cmp.Or(o.ServerName, "localhost")
	if o.BackupRestoreTLS && o.BackupRestoreCA == "" {
		return errors.New("--backup-restore-tls-enabled needs --backup-restore-ca-cert-bundle-path")
	}
	if o.Port < 1 || o.Port > 65535 {
		return fmt.Errorf("%d is not a port", o.Port)
	}
	return nil
}

// run prepares the data, runs etcd until ctx ends, /stop is called or etcd fails, and notes how it ended.
func run(ctx context.Context, opts options) error {
	sidecar, err := newBackupRestore(opts)
	if err != nil {
		return err
	}
	mode := marker(opts.Marker).mode()
	slog.Info("Having backup-restore initialise the data", "url", sidecar.url, "mode", mode)
	if err := sidecar.initialize(ctx, mode); err != nil {
		return ended(ctx, err)
	}
	content, err := sidecar.config(ctx)
	if err != nil {
		return ended(ctx, err)
	}
	cfg, err := configuration(content)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	server, err := serve(opts, cfg, stop)
	if err != nil {
		return err
	}
	defer server.close()
	// From here on only a clean end may say that a sanity check is enough.
	if err := marker(opts.Marker).remove(); err != nil {
		return err
	}
	etcd, err := startEtcd(ctx, cfg)
	if err != nil {
		return err
	}
	server.etcd.Store(etcd)
	err = waitForEnd(ctx, etcd)
	server.close()
	etcd.Close()
	if err != nil {
		return err
	}
	return marker(opts.Marker).write(cleanEnd)
}

// ended makes an error that is just the consequence of being told to stop none.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}
