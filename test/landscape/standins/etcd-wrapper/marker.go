// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

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
