// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/procfs"
)

// OtherKubernetes lists the processes of a Kubernetes that is not the landscape's and works on this machine's own network. own
// are the landscape's processes. Without root it finds none.
func OtherKubernetes(own []int) []string {
	programs := []string{"kubelet", "kube-proxy", "k3s", "k3s-server", "k3s-agent", "rke2", "k0s", "kubelite"}
	var found []string
	for _, process := range others(own) {
		if name, err := process.Comm(); err == nil && slices.Contains(programs, name) {
			found = append(found, fmt.Sprintf("%s (PID %d)", name, process.PID))
		}
	}
	return found
}

// OtherLandscape returns the folder of the clone whose landscape runs on this machine; empty if there is none but the one with
// the processes own. Without root it finds none.
func OtherLandscape(own []int) string {
	for _, process := range others(own) {
		// Each landscape that has a cluster has a kubelet, which is a program of its clone.
		program, err := process.Executable()
		if clone, isKubelet := strings.CutSuffix(strings.TrimSuffix(program, " (deleted)"), "/bin/landscape/kubelet"); err == nil && isKubelet {
			return clone
		}
	}
	return ""
}

// others returns the processes that work on this machine's own network, without own: those in containers,
// such as kind's and the landscape's machines, have a network of their own, and may have any name.
func others(own []int) []procfs.Proc {
	ours, err := os.Readlink("/proc/self/ns/net")
	if err != nil {
		return nil
	}
	processes, err := procfs.AllProcs()
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(processes, func(process procfs.Proc) bool {
		network, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/net", process.PID))
		return err != nil || network != ours || slices.Contains(own, process.PID)
	})
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
