// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

const (
	// bridge begins as the interfaces of Calico do, by which scripts beside it tell pods' traffic.
	bridge = "cali0"
	// rangeTimeout is how long kube-controller-manager may take to give the node its range, and rangePause how long the pauses between two
	// looks are.
	rangeTimeout, rangePause = time.Minute, 500 * time.Millisecond
)

var errNoRange = errors.New("kube-controller-manager gave the node no range for pods")

// installation is what /opt/cni/bin/install does.
type installation struct {
	client kubernetes.Interface
	// node is the node's name.
	node string
	// folder and name are those of the configuration; plugins is the folder of the plugins.
	folder, name, plugins string
	// mtu is that of the pods' interfaces, in bytes; empty or 0 leaves it to the kernel.
	mtu string
}

func (i installation) run(ctx context.Context) error {
	for _, plugin := range []string{"bridge", "host-local", "portmap"} {
		info, err := os.Stat(filepath.Join(i.plugins, plugin))
		if err != nil {
			return fmt.Errorf("looking for the CNI plugin %s: %w", plugin, err)
		}
		if info.IsDir() || info.Mode()&0o111 == 0 {
			return fmt.Errorf("the CNI plugin %s is no program", plugin)
		}
	}
	pods, err := i.podRanges(ctx)
	if err != nil {
		return err
	}
	content, err := configuration(pods, i.mtu)
	if err != nil {
		return err
	}
	path := filepath.Join(i.folder, cmp.Or(i.name, configurationName))
	if err := writeWhole(path, content); err != nil {
		return fmt.Errorf("writing the CNI configuration: %w", err)
	}
	slog.Info("CNI configuration is in place", "path", path, "pods", pods)
	return nil
}

// podRanges waits until the node has its ranges, which it mostly has before its first Pod runs.
func (i installation) podRanges(ctx context.Context) ([]netip.Prefix, error) {
	if i.node == "" {
		return nil, errors.New("KUBERNETES_NODE_NAME is not set")
	}
	var pods []netip.Prefix
	var last error
	err := wait.PollUntilContextTimeout(ctx, rangePause, rangeTimeout, true, func(ctx context.Context) (bool, error) {
		var node *corev1.Node
		if node, last = i.client.CoreV1().Nodes().Get(ctx, i.node, metav1.GetOptions{}); last != nil {
			return false, nil
		}
		pods, last = podRangesOf(node), errNoRange
		return len(pods) > 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("waiting for the range for pods of node %s: %w: %w", i.node, err, last)
	}
	return pods, nil
}

// podRangesOf are the node's ranges, of each family one.
func podRangesOf(node *corev1.Node) (out []netip.Prefix) {
	for _, text := range node.Spec.PodCIDRs {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			out = append(out, prefix.Masked())
		}
	}
	return out
}

// configuration is a list of CNI plugins as JSON.
func configuration(pods []netip.Prefix, mtu string) ([]byte, error) {
	var ranges [][]map[string]string
	var routes []map[string]string
	for _, family := range pods {
		ranges = append(ranges, []map[string]string{{"subnet": family.String()}})
		routes = append(routes, map[string]string{"dst": map[bool]string{true: "0.0.0.0/0", false: "::/0"}[family.Addr().Is4()]})
	}
	network := map[string]any{
		"type": "bridge", "bridge": bridge, "isGateway": true, "hairpinMode": true,
		"ipam": map[string]any{"type": "host-local", "ranges": ranges, "routes": routes},
	}
	if mtu != "" && mtu != "0" {
		bytes, err := strconv.ParseUint(mtu, 10, 16)
		if err != nil {
			return nil, fmt.Errorf("reading CNI_MTU: %w", err)
		}
		network["mtu"] = bytes
	}
	content, err := json.MarshalIndent(map[string]any{
		"cniVersion": "1.0.0",
		"name":       "k8s-pod-network",
		"plugins": []any{
			network,
			map[string]any{"type": "portmap", "snat": true, "capabilities": map[string]bool{"portMappings": true}},
		},
	}, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("encoding the CNI configuration: %w", err)
	}
	return append(content, '\n'), nil
}

// writeWhole replaces a file at once, as containerd reads it as soon as it is there. Until then the file has a name that containerd ignores.
func writeWhole(path string, content []byte) error {
	if err := os.WriteFile(path+".new", content, 0o644); err != nil { // #nosec G306 -- nothing secret.
		return err
	}
	return os.Rename(path+".new", path)
}
