// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/node"
)

// Status prints what runs and how it is. The error says how many things are not healthy.
func (l Landscape) Status(ctx context.Context) error {
	if _, err := os.Stat(l.Layout.State()); errors.Is(err, os.ErrNotExist) {
		return errors.New("there is no landscape; bring it up with `make up`")
	}
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	out := tabwriter.NewWriter(l.Out, 0, 4, 2, ' ', 0)
	bad, err := l.statusProcesses(ctx, out)
	if err != nil {
		return err
	}
	c, err := cluster.Client(l.Layout.Kubeconfig())
	if err == nil {
		var clusterBad int
		clusterBad, err = statusCluster(ctx, c, out)
		bad += clusterBad
	}
	unlisted, logErr := l.unlistedImages()
	for _, image := range unlisted {
		_, _ = fmt.Fprintf(out, "image\t%s\t\tstand-in, not in the table of images\n", image)
	}
	if flushErr := errors.Join(out.Flush(), logErr); flushErr != nil {
		return flushErr
	}
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(l.Out, "\nexport KUBECONFIG=%s\n%s get dnsrecords -n garden\n", l.Layout.Kubeconfig(), l.Layout.Kubectl())
	_, _ = fmt.Fprintf(l.Out, "dig +short @%s api.virtual-garden.local.gardener.cloud\nlogs: %s\n", layout.HostDNSIP, l.Layout.State("logs"))
	if bad > 0 {
		return fmt.Errorf("%d things are not healthy", bad)
	}
	return nil
}

func (l Landscape) statusProcesses(ctx context.Context, out io.Writer) (int, error) {
	bad := 0
	_, _ = fmt.Fprintln(out, "PROCESS\tPID\tSINCE\tHEALTH")
	for _, component := range node.Components(l.Layout) {
		record, running, err := l.Processes().Find(component.Name)
		if err != nil {
			return bad, err
		}
		if !running {
			bad++
			_, _ = fmt.Fprintf(out, "%s\t-\t-\tdoes not run\n", component.Name)
			continue
		}
		health := "healthy"
		if err := component.Ready(ctx); err != nil {
			bad++
			health = err.Error()
		}
		_, _ = fmt.Fprintf(out, "%s\t%d\t%s\t%s\n", component.Name, record.PID, l.Now().Sub(record.Started).Round(time.Second), health)
	}
	return bad, nil
}

func statusCluster(ctx context.Context, c client.Client, out io.Writer) (int, error) {
	bad := 0
	nodes := &corev1.NodeList{}
	if err := c.List(ctx, nodes); err != nil {
		return bad, fmt.Errorf("listing the nodes: %w", err)
	}
	_, _ = fmt.Fprintln(out, "\nKIND\tNAME\tCLASS\tSTATE")
	for _, n := range nodes.Items {
		state := "not Ready"
		if slices.ContainsFunc(n.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		}) {
			state = "Ready"
		} else {
			bad++
		}
		_, _ = fmt.Fprintf(out, "Node\t%s\t\t%s\n", n.Name, state)
	}
	deployments := &appsv1.DeploymentList{}
	if err := c.List(ctx, deployments); err != nil {
		return bad, fmt.Errorf("listing the Deployments: %w", err)
	}
	available, later := 0, 0
	for _, d := range deployments.Items {
		if d.Spec.Replicas == nil || d.Status.AvailableReplicas >= *d.Spec.Replicas {
			available++
			continue
		}
		if d.Namespace == "garden" && strings.HasPrefix(d.Name, "virtual-garden-") {
			later++
			continue
		}
		bad++
		_, _ = fmt.Fprintf(out, "Deployment\t%s/%s\t\t%d of %d available\n", d.Namespace, d.Name, d.Status.AvailableReplicas, *d.Spec.Replicas)
	}
	_, _ = fmt.Fprintf(out, "Deployments\t%d\t\tavailable\n", available)
	if later > 0 {
		_, _ = fmt.Fprintf(out, "Deployments\t%d\t\tof the virtual garden, which is not brought up yet\n", later)
	}
	for _, kind := range cluster.ExtensionKinds() {
		objects, err := cluster.ExtensionObjects(ctx, c, kind)
		if err != nil {
			return bad, err
		}
		for _, o := range objects {
			if !o.Succeeded() {
				bad++
			}
			_, _ = fmt.Fprintf(out, "%s\t%s\t%s\t%s\n", o.Kind, strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"), o.Class, strings.TrimSpace(o.State+" "+o.Error))
		}
	}
	return bad, nil
}

var unlistedLine = regexp.MustCompile(`host=(\S+) repository=(\S+) reference=(\S+) image=\S+ listed=false`)

// unlistedImages reads from the registry's log which images were stood in for that the table doesn't name.
func (l Landscape) unlistedImages() ([]string, error) {
	content, err := os.ReadFile(filepath.Clean(l.Processes().LogPath(node.Registry)))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the registry's log: %w", err)
	}
	var found []string
	for _, match := range unlistedLine.FindAllStringSubmatch(string(content), -1) {
		if !strings.Contains(match[3], ":") {
			found = append(found, match[1]+"/"+match[2]+":"+match[3])
		}
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}
