// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"
)

// configuration makes etcd's configuration of YAML. etcd reads only files, and the image has no folder that its user may write
// to, so the file is one in memory.
func configuration(content string) (*embed.Config, error) {
	fd, err := unix.MemfdCreate("etcd.conf.yaml", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	file := os.NewFile(uintptr(fd), "etcd.conf.yaml")
	defer file.Close()
	if _, err := file.WriteString(content); err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	cfg, err := embed.ConfigFromFile(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	cfg.LogFormat = "console"
	return cfg, nil
}

// runEtcd runs etcd until ctx ends, which is no error, or it ends by itself, which is one. When it returns nil, etcd has
// handed over the leadership, if there is another member, and closed its database.
func runEtcd(ctx context.Context, cfg *embed.Config, readyTimeout time.Duration, log *slog.Logger) error {
	log.Info("Starting etcd", "name", cfg.Name, "dataDir", cfg.Dir, "initialCluster", cfg.InitialCluster, "clusterState", cfg.ClusterState)
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	started := make(chan result, 1)
	go func() {
		etcd, err := embed.StartEtcd(cfg)
		started <- result{etcd, err}
	}()
	var etcd *embed.Etcd
	select {
	case <-ctx.Done():
		// A member that joins waits for the others in StartEtcd, which can't be told to stop.
		return errors.New("told to stop while etcd was starting")
	case r := <-started:
		if r.err != nil {
			return fmt.Errorf("starting etcd: %w", r.err)
		}
		etcd = r.etcd
	}
	defer etcd.Close()

	var late <-chan time.Time
	if readyTimeout > 0 {
		late = time.After(readyTimeout)
	}
	ready := etcd.Server.ReadyNotify()
	for {
		select {
		case <-ready:
			log.Info("etcd is ready")
			ready, late = nil, nil
		case <-late:
			log.Warn("etcd isn't ready yet", "after", readyTimeout)
			late = nil
		case <-ctx.Done():
			log.Info("Stopping etcd")
			return nil
		case <-etcd.Server.StopNotify():
			return errors.New("etcd ended by itself")
		case err := <-etcd.Err():
			return fmt.Errorf("etcd failed: %w", err)
		}
	}
}
