// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
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
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
)

const (
	// bridge begins as the interfaces of Calico do, by which scripts beside it tell pods' traffic.
	bridge = "cali0"
	// rangeTimeout is how long kube-controller-manager may take to give the node its range.
	rangeTimeout = time.Minute
)

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
	if i.name == "" {
		i.name = configurationName
	}
	path := filepath.Join(i.folder, i.name)
	if err := writeWhole(path, content); err != nil {
		return fmt.Errorf("writing the CNI configuration: %w", err)
	}
	slog.Info("CNI configuration is in place", "path", path, "pods", pods)
	return nil
}

// podRanges waits until the node has its ranges.
func (i installation) podRanges(ctx context.Context) ([]netip.Prefix, error) {
	if i.node == "" {
		return nil, errors.New("KUBERNETES_NODE_NAME is not set")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, rangeTimeout, errors.New("kube-controller-manager gave the node no range for pods"))
	defer cancel()
	only := func(opts *metav1.ListOptions) {
		opts.FieldSelector = fields.OneTermEqualSelector("metadata.name", i.node).String()
	}
	nodes := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			only(&opts)
			return i.client.CoreV1().Nodes().List(ctx, opts)
		},
		WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
			only(&opts)
			return i.client.CoreV1().Nodes().Watch(ctx, opts)
		},
	}
	var pods []netip.Prefix
	_, err := watchtools.UntilWithSync(ctx, cache.ToListWatcherWithWatchListSemantics(nodes, i.client), &corev1.Node{}, nil, func(event watch.Event) (bool, error) {
		node, ok := event.Object.(*corev1.Node)
		if !ok || node.Name != i.node || event.Type == watch.Deleted {
			return false, nil
		}
		pods = podRangesOf(node)
		return len(pods) > 0, nil
	})
	if err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, fmt.Errorf("waiting for the range for pods of node %s: %w", i.node, err)
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
	out := &bytes.Buffer{}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(map[string]any{
		"cniVersion": "1.0.0",
		"name":       "k8s-pod-network",
		"plugins": []any{
			network,
			map[string]any{"type": "portmap", "snat": true, "capabilities": map[string]bool{"portMappings": true}},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("encoding the CNI configuration: %w", err)
	}
	return out.Bytes(), nil
}

// writeWhole replaces a file at once, as containerd reads it as soon as it is there.
func writeWhole(path string, content []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".stand-in-*")
	if err != nil {
		return err
	}
	_, err = temporary.Write(content)
	if err = errors.Join(err, temporary.Chmod(0o644), temporary.Close()); err == nil {
		err = os.Rename(temporary.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temporary.Name()))
	}
	return nil
}
