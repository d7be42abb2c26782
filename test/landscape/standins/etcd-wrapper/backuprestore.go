// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	certutil "k8s.io/client-go/util/cert"
)

const (
	// maxResponse bounds what is read of a response; a configuration has about 2 KiB.
	maxResponse = 1 << 20
	// shortWait and longWait are the first and the longest pause between two requests. They are short because a fresh member
	// is initialised in milliseconds, and every API server waits for it.
	shortWait = 100 * time.Millisecond
	longWait  = time.Second
	// failedWait is the pause after a failed initialisation, which may have fetched all of a backup.
	failedWait = 3 * time.Second
	// statusTimeout and configTimeout bound a request. For the configuration backup-restore asks etcd for its members; that takes
	// it seven seconds when there is no etcd yet.
	statusTimeout = 10 * time.Second
	configTimeout = time.Minute
)

// The states of the initialisation. Whoever reads Successful or Failed puts it back to New, so each is seen once.
const (
	stateNew        = "New"
	stateInProgress = "Progress"
	stateSuccessful = "Successful"
	stateFailed     = "Failed"
)

// backupRestore is a client of the sidecar's HTTP server.
type backupRestore struct {
	url    string
	client *http.Client
}

func newBackupRestore(opts options) (*backupRestore, error) {
	b := &backupRestore{url: "http://" + opts.BackupRestore, client: &http.Client{}}
	if !opts.BackupRestoreTLS {
		return b, nil
	}
	pool, err := certutil.NewPool(opts.BackupRestoreCA)
	if err != nil {
		return nil, fmt.Errorf("reading the CAs of backup-restore: %w", err)
	}
	b.url = "https://" + opts.BackupRestore
	b.client.Transport = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	return b, nil
}

// initialize has the data checked, and restored if need be, and waits for it. It gives up only when ctx ends: backup-restore
// may start later than this container, and what it can't restore now it may restore once the store is there.
func (b *backupRestore) initialize(ctx context.Context, mode string) error {
	last, startAfter := "", time.Time{}
	return pauses().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		state, err := b.get(ctx, "/initialization/status", statusTimeout)
		if err != nil {
			state = "unreachable: " + err.Error()
		}
		if state != last {
			slog.Info("Waiting for the initialisation", "state", state)
			last = state
		}
		switch {
		case state == stateNew && time.Now().After(startAfter):
			if _, err := b.get(ctx, "/initialization/start?mode="+mode, statusTimeout); err != nil {
				slog.Info("Can't start the initialisation", "error", err)
			}
		case state == stateFailed:
			// The reason is in the log of backup-restore.
			startAfter = time.Now().Add(failedWait)
		}
		return state == stateSuccessful, nil
	})
}

// config returns etcd's configuration, as YAML.
func (b *backupRestore) config(ctx context.Context) (content string, err error) {
	err = pauses().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
		var err error
		content, err = b.get(ctx, "/config", configTimeout)
		if err != nil {
			slog.Info("Waiting for the configuration", "error", err)
		}
		return err == nil, nil
	})
	return content, err
}

func (b *backupRestore) get(ctx context.Context, path string, timeout time.Duration) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+path, nil)
	if err != nil {
		return "", err
	}
	response, err := b.client.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(io.LimitReader(response.Body, maxResponse+1))
	switch {
	case err != nil:
		return "", fmt.Errorf("reading %s: %w", path, err)
	case response.StatusCode != http.StatusOK:
		return "", fmt.Errorf("reading %s: %s", path, response.Status)
	case len(content) > maxResponse:
		return "", fmt.Errorf("reading %s: more than %d bytes", path, maxResponse)
	}
	return string(content), nil
}

// pauses are those between requests; they grow.
func pauses() wait.DelayFunc {
	return wait.Backoff{Duration: shortWait, Factor: 1.5, Cap: longWait, Steps: math.MaxInt32}.DelayFunc()
}
