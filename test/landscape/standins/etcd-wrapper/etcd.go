// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"

	"go.etcd.io/etcd/server/v3/embed"
	"golang.org/x/sys/unix"
	"sigs.k8s.io/yaml"
)

// configuration makes etcd's configuration of YAML. etcd reads only files, and the image has no folder that its user may write
// to, so the file is one in memory.
func configuration(content string) (*embed.Config, error) {
	settings := map[string]any{}
	if err := yaml.Unmarshal([]byte(content), &settings); err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	// Not for programs but for people who debug a landscape.
	settings["log-format"] = "console"
	given, err := yaml.Marshal(settings)
	if err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	fd, err := unix.MemfdCreate("etcd.conf.yaml", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	file := os.NewFile(uintptr(fd), "etcd.conf.yaml")
	defer file.Close()
	if _, err := file.Write(given); err != nil {
		return nil, fmt.Errorf("writing the configuration: %w", err)
	}
	cfg, err := embed.ConfigFromFile(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	return cfg, nil
}

// startEtcd starts etcd, which need not be ready when it returns.
func startEtcd(ctx context.Context, cfg *embed.Config) (*embed.Etcd, error) {
	slog.Info("Starting etcd", "name", cfg.Name, "dataDir", cfg.Dir, "initialCluster", cfg.InitialCluster, "clusterState", cfg.ClusterState)
	type result struct {
		etcd *embed.Etcd
		err  error
	}
	started := make(chan result, 1)
	go func() {
		etcd, err := embed.StartEtcd(cfg)
		started <- result{etcd, err}
	}()
	select {
	case <-ctx.Done():
		// A member that joins waits for the others in StartEtcd, which can't be told to stop.
		return nil, errors.New("told to stop while etcd was starting")
	case r := <-started:
		if r.err != nil {
			return nil, fmt.Errorf("starting etcd: %w", r.err)
		}
		return r.etcd, nil
	}
}

// waitForEnd returns nil when ctx ends, and an error when etcd does. It leaves closing etcd to the caller.
func waitForEnd(ctx context.Context, etcd *embed.Etcd) error {
	ready := etcd.Server.ReadyNotify()
	for {
		select {
		case <-ready:
			slog.Info("etcd is ready")
			ready = nil
		case <-ctx.Done():
			slog.Info("Stopping etcd")
			return nil
		case <-etcd.Server.StopNotify():
			return errors.New("etcd ended by itself")
		case err := <-etcd.Err():
			return fmt.Errorf("etcd failed: %w", err)
		}
	}
}

// The modes of backup-restore's check before a start: full looks into every page of the database, sanity only whether the
// folders and the revision are what they should be.
const (
	full   = "full"
	sanity = "sanity"
)

// cleanEnd is what the marker says after etcd was told to stop and has. It is the name of the signal, as the original writes it.
const cleanEnd = "terminated"

// marker is the path of the file by which one run tells the next how it ended. It is in the data volume, so that it goes
// where the data goes.
type marker string

// mode tells how thorough the check has to be: only the word of a clean end makes it short.
func (m marker) mode() string {
	content, err := os.ReadFile(string(m))
	if err != nil {
		return full
	}
	// "interrupt" is what the original writes for a SIGINT.
	switch strings.TrimSpace(string(content)) {
	case cleanEnd, "interrupt":
		return sanity
	}
	return full
}

func (m marker) remove() error {
	if err := os.Remove(string(m)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing the note on the last end: %w", err)
	}
	return nil
}

func (m marker) write(end string) error {
	if err := os.WriteFile(string(m), []byte(end), 0o600); err != nil {
		return fmt.Errorf("noting how this ended: %w", err)
	}
	return nil
}
