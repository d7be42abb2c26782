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
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/standins/internal/program"
)

// syncPeriod is after how long everything is looked at again, as others may change the node's routes and rules.
const syncPeriod = 30 * time.Second

// route leads to the range for pods of another node.
type route struct {
	to  netip.Prefix
	via netip.Addr
}

// kernel is what the agent changes.
type kernel interface {
	// forward lets the node forward packets.
	forward() error
	// masquerade has packets from pods to others than pods carry the node's address.
	masquerade(ctx context.Context, pods netip.Prefix) error
	// routes are those that the agent made.
	routes() ([]route, error)
	replace(route) error
	remove(route) error
}

// agent keeps the network of one node.
type agent struct {
	client kubernetes.Interface
	// node is the node's name.
	node string
	// pods are the ranges of all pods of the cluster; one is empty if it has no such family.
	pods []string
	// configuration is the path of the CNI configuration.
	configuration string
	kernel        kernel
	health        *health
	// available is set once the node's condition is.
	available bool
}

func newAgent(client kubernetes.Interface, node string, pods []string, configuration string) *agent {
	return &agent{client: client, node: node, pods: pods, configuration: configuration, kernel: linux{}, health: newHealth(time.Now)}
}

// run keeps the network until the end of ctx.
func (a *agent) run(ctx context.Context, socket string) error {
	if a.node == "" {
		return errors.New("NODENAME is not set")
	}
	failed := make(chan error, 1)
	go func() { failed <- program.Serve(ctx, "unix", socket, a.health) }()
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	store, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(a.client.CoreV1().RESTClient(), "nodes", "", fields.Everything()),
		ObjectType:    &corev1.Node{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { notify() },
			UpdateFunc: func(_, _ any) { notify() },
			DeleteFunc: func(any) { notify() },
		},
	})
	go informer.RunWithContext(ctx)
	ticker := time.NewTicker(syncPeriod)
	defer ticker.Stop()
	for {
		a.health.report(a.sync(ctx, informer.HasSynced(), store))
		select {
		case <-ctx.Done():
			return nil
		case err := <-failed:
			return err
		case <-changed:
		case <-ticker.C:
		}
	}
}

// sync brings the node's network to what it should be, and tells what is missing.
func (a *agent) sync(ctx context.Context, synced bool, store cache.Store) error {
	if !synced {
		return errors.New("the nodes are not known yet")
	}
	var nodes []*corev1.Node
	for _, item := range store.List() {
		if node, ok := item.(*corev1.Node); ok {
			nodes = append(nodes, node)
		}
	}
	err := errors.Join(a.kernel.forward(), a.syncRoutes(wanted(nodes, a.node)))
	for _, text := range a.pods {
		if text == "" {
			continue
		}
		pods, parseErr := netip.ParsePrefix(text)
		if parseErr != nil {
			return fmt.Errorf("reading CALICO_IPV4POOL_CIDR and CALICO_IPV6POOL_CIDR: %w", parseErr)
		}
		err = errors.Join(err, a.kernel.masquerade(ctx, pods))
	}
	if _, statErr := os.Stat(a.configuration); statErr != nil {
		err = errors.Join(err, fmt.Errorf("looking for the CNI configuration: %w", statErr))
	}
	if err == nil && !a.available {
		err = setNetworkAvailable(ctx, a.client, a.node)
		a.available = err == nil
	}
	return err
}

func (a *agent) syncRoutes(wanted []route) error {
	present, err := a.kernel.routes()
	if err != nil {
		return fmt.Errorf("listing the routes: %w", err)
	}
	var errs []error
	for _, r := range present {
		// One to the same range is replaced.
		if !slices.ContainsFunc(wanted, func(w route) bool { return w.to == r.to }) {
			slog.Info("Removing a route", "to", r.to, "via", r.via)
			if err := a.kernel.remove(r); err != nil {
				errs = append(errs, fmt.Errorf("removing the route to %s: %w", r.to, err))
			}
		}
	}
	for _, r := range wanted {
		if !slices.Contains(present, r) {
			slog.Info("Setting a route", "to", r.to, "via", r.via)
			if err := a.kernel.replace(r); err != nil {
				errs = append(errs, fmt.Errorf("setting the route to %s by %s: %w", r.to, r.via, err))
			}
		}
	}
	return errors.Join(errs...)
}

// wanted are the routes to all other nodes that have a range and an address.
func wanted(nodes []*corev1.Node, self string) []route {
	var out []route
	for _, node := range nodes {
		if node.Name == self {
			continue
		}
		for _, to := range podRangesOf(node) {
			i := slices.IndexFunc(node.Status.Addresses, func(address corev1.NodeAddress) bool {
				via, err := netip.ParseAddr(address.Address)
				return err == nil && via.Is4() == to.Addr().Is4() && address.Type == corev1.NodeInternalIP
			})
			if i >= 0 {
				out = append(out, route{to: to, via: netip.MustParseAddr(node.Status.Addresses[i].Address)})
			}
		}
	}
	slices.SortFunc(out, func(a, b route) int { return cmp.Compare(a.to.String(), b.to.String()) })
	return out
}

// setNetworkAvailable sets the condition of a node that says so, unless it is set.
func setNetworkAvailable(ctx context.Context, client kubernetes.Interface, name string) error {
	node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("getting node %s: %w", name, err)
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeNetworkUnavailable && condition.Status == corev1.ConditionFalse {
			return nil
		}
	}
	now := metav1.Now()
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []corev1.NodeCondition{{
		Type: corev1.NodeNetworkUnavailable, Status: corev1.ConditionFalse, LastHeartbeatTime: now, LastTransitionTime: now,
		Reason: "CalicoIsUp", Message: "The stand-in for Calico is running on this node",
	}}}})
	if err != nil {
		return fmt.Errorf("encoding the condition of node %s: %w", name, err)
	}
	if _, err := client.CoreV1().Nodes().PatchStatus(ctx, name, patch); err != nil {
		return fmt.Errorf("setting the condition of node %s: %w", name, err)
	}
	return nil
}

const (
	livePath  = "/live"
	readyPath = "/ready"
	// patience is after how long without a report the agent counts as stuck.
	patience = 4 * syncPeriod
)

// health tells the probes, which are programs of their own, how the agent is.
type health struct {
	now func() time.Time

	mu       sync.Mutex
	reported time.Time
	problem  error
}

func newHealth(now func() time.Time) *health {
	return &health{now: now, reported: now(), problem: errors.New("nothing was done yet")}
}

// report says how the last round ended.
func (h *health) report(problem error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if problem != nil && (h.problem == nil || problem.Error() != h.problem.Error()) {
		slog.Error("The network is not complete", "error", problem)
	}
	if problem == nil && h.problem != nil {
		slog.Info("The network is complete")
	}
	h.reported, h.problem = h.now(), problem
}

// ServeHTTP answers with status 503 and the reason if it is not as asked for.
func (h *health) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.Lock()
	problem := h.problem
	if since := h.now().Sub(h.reported); since > patience {
		problem = fmt.Errorf("nothing was done for %s", since)
	} else if r.URL.Path == livePath {
		problem = nil
	}
	h.mu.Unlock()
	switch {
	case r.URL.Path != livePath && r.URL.Path != readyPath:
		http.NotFound(w, r)
	case problem != nil:
		http.Error(w, problem.Error(), http.StatusServiceUnavailable)
	}
}
