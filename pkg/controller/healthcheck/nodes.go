// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/extensions/pkg/controller/healthcheck/worker"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

// The thresholds are those of the extension library's check of Nodes.
const (
	// scaleUpThreshold is how long a Node may take to come and to get ready.
	scaleUpThreshold = 5 * time.Minute
	// scaleDownThreshold is how long a Node may take to go.
	scaleDownThreshold = 15 * time.Minute
	// namesMax is how many Nodes a message names.
	namesMax = 5
)

// readNodes tells whether all Nodes of the Worker's machines are there and ready. The library's own check will not do: as
// of Gardener v1.149 it lists the Nodes but its outcome depends on the MachineDeployments alone.
func readNodes(ctx context.Context, reader client.Reader, shoots *shoots, namespace string) (result, error) {
	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := reader.List(ctx, deployments, client.InNamespace(namespace)); err != nil {
		if meta.IsNoMatchError(err) {
			return result{}, fmt.Errorf("this cluster does not know %s, whose CustomResourceDefinitions gardenlet installs in a seed", machinev1alpha1.SchemeGroupVersion)
		}
		return result{}, fmt.Errorf("listing MachineDeployments: %w", err)
	}
	if machine := failedMachine(deployments.Items); machine != "" {
		return unhealthy("%s", machine), nil
	}

	machines := &machinev1alpha1.MachineList{}
	if err := reader.List(ctx, machines, client.InNamespace(namespace)); err != nil {
		return result{}, fmt.Errorf("listing Machines: %w", err)
	}
	nodes, err := shoots.nodes(ctx, namespace)
	if err != nil {
		return result{}, fmt.Errorf("asking the shoot's API server for its Nodes: %w", err)
	}
	return nodesHealth(shoots.clock.Now(), deployments.Items, machines.Items, nodes), nil
}

// nodesHealth looks at what is worst first. A MachineDeployment that is unhealthy while its Nodes are fine has mostly not
// seen yet that they are.
func nodesHealth(now time.Time, deployments []machinev1alpha1.MachineDeployment, machines []machinev1alpha1.Machine, nodes []node) result {
	leaving := sets.New[string]()
	for _, machine := range machines {
		if machine.DeletionTimestamp != nil {
			leaving.Insert(machine.Labels[machinev1alpha1.NodeLabelKey])
		}
	}

	var notReady, starting []string
	staying := 0
	for _, node := range nodes {
		if leaving.Has(node.name) {
			continue
		}
		staying++
		switch {
		case node.ready:
		case now.Sub(node.created) < scaleUpThreshold:
			starting = append(starting, node.name)
		default:
			notReady = append(notReady, node.name)
		}
	}

	wanted := 0
	for _, deployment := range deployments {
		if deployment.DeletionTimestamp == nil {
			wanted += int(deployment.Spec.Replicas)
		}
	}

	switch {
	case len(notReady) > 0:
		return unhealthy("not ready: %s", list("Node", notReady))
	case staying < wanted:
		return progressing(scaleUpThreshold, "%d of %d Nodes have registered", staying, wanted)
	case len(starting) > 0:
		return progressing(scaleUpThreshold, "starting: %s", list("Node", starting))
	case staying > wanted:
		return progressing(scaleDownThreshold, "%d Nodes are registered, %d are wanted", staying, wanted)
	}

	for i := range deployments {
		if err := health.CheckMachineDeployment(&deployments[i]); err != nil {
			return progressing(scaleUpThreshold, "MachineDeployment %s is unhealthy: %s", deployments[i].Name, err)
		}
	}
	return healthy()
}

func failedMachine(deployments []machinev1alpha1.MachineDeployment) string {
	for _, deployment := range deployments {
		for _, machine := range deployment.Status.FailedMachines {
			return fmt.Sprintf("machine %s failed: %s", machine.Name, machine.LastOperation.Description)
		}
	}
	return ""
}

// list writes up some names in one message of bounded length, always in the same order.
func list(what string, names []string) string {
	slices.Sort(names)
	rest := ""
	if len(names) > namesMax {
		rest = fmt.Sprintf(" and %d more", len(names)-namesMax)
		names = names[:namesMax]
	}
	return what + " " + strings.Join(names, ", ") + rest
}

// machineAspect is what tells that the Nodes may have changed. Machines change for other reasons too.
func machineAspect(machine *machinev1alpha1.Machine) any {
	ready := corev1.ConditionUnknown
	for _, condition := range machine.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			ready = condition.Status
		}
	}
	return []any{machine.Labels[machinev1alpha1.NodeLabelKey], machine.DeletionTimestamp != nil, machine.Status.CurrentStatus.Phase, ready}
}

func machineDeploymentAspect(deployment *machinev1alpha1.MachineDeployment) any {
	return []any{
		deployment.DeletionTimestamp != nil, deployment.Spec.Replicas,
		failedMachine([]machinev1alpha1.MachineDeployment{*deployment}), health.CheckMachineDeployment(deployment),
	}
}

// node is what the check needs of a Node of machine-controller-manager.
type node struct {
	name    string
	ready   bool
	created time.Time
}

// pageSize is the number of Nodes in one answer, at some 10 KB each.
const pageSize = 100

// listNodes returns the Nodes of machine-controller-manager, page by page, so that no more than one page is in memory.
func listNodes(ctx context.Context, reader client.Reader) ([]node, error) {
	var out []node
	for next := ""; ; {
		page := &corev1.NodeList{}
		if err := reader.List(ctx, page, client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, err
		}
		for i := range page.Items {
			if isManaged(&page.Items[i]) {
				out = append(out, newNode(&page.Items[i]))
			}
		}
		if page.Continue == "" {
			return out, nil
		}
		if page.Continue == next {
			return nil, errors.New("the list of Nodes has no end")
		}
		next = page.Continue
	}
}

func isManaged(n *corev1.Node) bool {
	return n.Annotations[worker.AnnotationKeyNotManagedByMCM] != "1"
}

func newNode(n *corev1.Node) node {
	ready := slices.ContainsFunc(n.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
	return node{name: n.Name, ready: ready, created: n.CreationTimestamp.Time}
}
