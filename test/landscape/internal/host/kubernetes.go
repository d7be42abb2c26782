// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// OtherKubernetes lists the processes of a Kubernetes that is not the landscape's and works on this machine's own network: those
// in containers, such as kind's and the landscape's machines, have one of their own. own are the landscape's processes. Without
// root it finds none.
func OtherKubernetes(own []int) []string {
	programs := []string{"kubelet", "kube-proxy", "k3s", "k3s-server", "k3s-agent", "rke2", "k0s", "kubelite"}
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil
	}
	paths, err := filepath.Glob("/proc/[0-9]*/comm")
	if err != nil {
		return nil
	}
	var found []string
	for _, path := range paths {
		content, err := os.ReadFile(path) // #nosec G304 -- a kernel file.
		name := strings.TrimSpace(string(content))
		pid, atoi := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil || atoi != nil || !slices.Contains(programs, name) || slices.Contains(own, pid) {
			continue
		}
		if network, err := os.Readlink(filepath.Join(filepath.Dir(path), "ns", "net")); err == nil && network == ours {
			found = append(found, fmt.Sprintf("%s (PID %d)", name, pid))
		}
	}
	return found
}

// KubernetesChains lists the iptables chains of a Kubernetes.
func KubernetesChains(ctx context.Context) ([]string, error) {
	all, err := rules(ctx)
	var found []string
	for _, rule := range all {
		if fields := strings.Fields(rule); len(fields) > 2 && strings.HasPrefix(fields[2], ":KUBE-") {
			found = append(found, fields[2][1:])
		}
	}
	slices.Sort(found)
	return slices.Compact(found), err
}

// OwnLinks lists the network devices that there are of the landscape's.
func OwnLinks() ([]string, error) {
	all, err := Links()
	return slices.DeleteFunc(all, func(name string) bool { return !slices.Contains(devices(), name) }), err
}
