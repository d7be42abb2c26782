// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes/stage"
)

// syncPod takes a pod on one of our Nodes to its next stage. Pods elsewhere are not ours to touch.
func (s *shoot) syncPod(ctx context.Context, key item) error {
	obj, ok, err := s.pods.GetStore().GetByKey(key.namespace + "/" + key.name)
	if err != nil || !ok {
		return err
	}
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil
	}
	node := s.node(pod.Spec.NodeName)
	if node == nil {
		return nil
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pod)
	if err != nil {
		return fmt.Errorf("reading pod %s/%s: %w", key.namespace, key.name, err)
	}
	facts := map[string]any{"now": s.opts.Clock.Now().UTC().Format(time.RFC3339)}
	object["facts"] = facts
	return s.pass(key, string(pod.UID), pod.ResourceVersion, object, func(next *stage.Compiled) (string, error) {
		if next.Next.Delete {
			return "", deletePod(ctx, s.client, pod)
		}
		facts["hostIPs"], facts["podIPs"] = s.podAddresses(pod, node)
		status, err := next.Status(object)
		if err != nil {
			return "", err
		}
		patched, err := s.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.StrategicMergePatchType, statusPatch(pod.UID, status), metav1.PatchOptions{}, "status")
		return versionOf(patched, gone(err)), gone(err)
	})
}

// podAddresses are those of the Node and of a pod on it: an address from each range of the Node, those of the Node itself
// for a pod in its network.
func (s *shoot) podAddresses(pod *corev1.Pod, node *corev1.Node) (hostIPs, podIPs []string) {
	for _, address := range node.Status.Addresses {
		if address.Type == corev1.NodeInternalIP {
			hostIPs = append(hostIPs, address.Address)
		}
	}
	if pod.Spec.HostNetwork {
		return hostIPs, hostIPs
	}
	var has []string
	for _, ip := range pod.Status.PodIPs {
		has = append(has, ip.IP)
	}
	if len(has) > 0 {
		return hostIPs, has
	}
	ranges := node.Spec.PodCIDRs
	if len(ranges) == 0 {
		ranges = []string{podRange}
	}
	return hostIPs, s.addresses.get(string(pod.UID), prefixes(ranges...)...)
}

// deletePod deletes a pod without grace. Its finalizers are for others to take off.
func deletePod(ctx context.Context, c kubernetes.Interface, pod *corev1.Pod) error {
	err := c.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64(0)),
		Preconditions:      metav1.NewUIDPreconditions(string(pod.UID)),
	})
	if gone(err) != nil {
		return fmt.Errorf("deleting pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return nil
}
