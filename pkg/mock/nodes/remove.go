// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/kubernetes"

	"github.com/gardener/gardener/pkg/utils/flow"
)

// removeAll deletes all Nodes of a Worker, their Leases, and the pods on them. An error says what is left.
func removeAll(ctx context.Context, c kubernetes.Interface, worker string, parallel int) error {
	ours := metav1.ListOptions{LabelSelector: labels.SelectorFromSet(labels.Set{LabelWorker: worker}).String()}
	list, err := c.CoreV1().Nodes().List(ctx, ours)
	if err != nil {
		return fmt.Errorf("listing Nodes: %w", err)
	}
	names := sets.New[string]()
	for i := range list.Items {
		names.Insert(list.Items[i].Name)
	}

	// Nodes first, so that no pod is put on them again.
	if names.Len() > 0 {
		if err := c.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, ours); err != nil {
			return fmt.Errorf("deleting Nodes: %w", err)
		}
	}
	if err := c.CoordinationV1().Leases(corev1.NamespaceNodeLease).DeleteCollection(ctx, metav1.DeleteOptions{}, ours); err != nil {
		return fmt.Errorf("deleting the Leases of Nodes: %w", err)
	}
	if err := removePods(ctx, c, names, parallel); err != nil {
		return err
	}

	if names.Len() > 0 {
		if list, err = c.CoreV1().Nodes().List(ctx, ours); err != nil {
			return fmt.Errorf("listing Nodes: %w", err)
		}
		if len(list.Items) > 0 {
			return fmt.Errorf("%d Nodes are still there, the first is %s with the finalizers %v", len(list.Items), list.Items[0].Name, list.Items[0].Finalizers)
		}
	}
	return nil
}

func removePods(ctx context.Context, c kubernetes.Interface, nodes sets.Set[string], parallel int) error {
	if nodes.Len() == 0 {
		return nil
	}
	pods, err := c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: fields.OneTermNotEqualSelector("spec.nodeName", "").String()})
	if err != nil {
		return fmt.Errorf("listing pods: %w", err)
	}
	var tasks []flow.TaskFn
	for i := range pods.Items {
		if pod := &pods.Items[i]; nodes.Has(pod.Spec.NodeName) {
			tasks = append(tasks, func(ctx context.Context) error { return deletePod(ctx, c, pod) })
		}
	}
	return flow.ParallelN(parallel, tasks...)(ctx)
}
