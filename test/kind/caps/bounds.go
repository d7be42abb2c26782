// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// names are those of the capabilities, by their numbers (linux/capability.h).
var names = strings.Fields(`CHOWN DAC_OVERRIDE DAC_READ_SEARCH FOWNER FSETID KILL SETGID SETUID SETPCAP LINUX_IMMUTABLE NET_BIND_SERVICE
NET_BROADCAST NET_ADMIN NET_RAW IPC_LOCK IPC_OWNER SYS_MODULE SYS_RAWIO SYS_CHROOT SYS_PTRACE SYS_PACCT SYS_ADMIN SYS_BOOT SYS_NICE
SYS_RESOURCE SYS_TIME SYS_TTY_CONFIG MKNOD LEASE AUDIT_WRITE AUDIT_CONTROL SETFCAP MAC_OVERRIDE MAC_ADMIN SYSLOG WAKE_ALARM
BLOCK_SUSPEND AUDIT_READ PERFMON BPF CHECKPOINT_RESTORE`)

var bounding = regexp.MustCompile(`(?m)^CapBnd:\s*([0-9a-f]+)$`)

// missing returns the capabilities, such as CAP_SYS_RESOURCE, that are not in the bounding set of a process, of whose status it is.
func missing(status []byte) (map[string]bool, error) {
	match := bounding.FindSubmatch(status)
	if match == nil {
		return nil, fmt.Errorf("no bounding set in %q", status)
	}
	set, err := strconv.ParseUint(string(match[1]), 16, 64)
	if err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for i, name := range names {
		if set>>i&1 == 0 {
			found["CAP_"+name] = true
		}
	}
	return found, nil
}

// without takes capabilities out of the configuration of a container (config.json) or of a process in one (process.json).
func without(content []byte, capabilities map[string]bool) ([]byte, error) {
	decoder := json.NewDecoder(bytes.NewReader(content))
	// Limits of resources are larger than what a float64 holds.
	decoder.UseNumber()
	var config map[string]any
	if err := decoder.Decode(&config); err != nil {
		return nil, err
	}
	process, ok := config["process"].(map[string]any)
	if !ok {
		process = config
	}
	sets, _ := process["capabilities"].(map[string]any)
	for kind, set := range sets {
		kept := []any{}
		list, _ := set.([]any)
		for _, capability := range list {
			if name, _ := capability.(string); !capabilities[name] {
				kept = append(kept, capability)
			}
		}
		sets[kind] = kept
	}
	return json.Marshal(config)
}
