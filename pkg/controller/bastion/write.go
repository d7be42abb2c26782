// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"context"
	"fmt"
	"reflect"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
)

// objects are the objects of a Bastion, with nothing but their names.
type objects struct {
	policy  *networkingv1.NetworkPolicy
	secret  *corev1.Secret
	service *corev1.Service
	pod     *corev1.Pod
}

func newObjects(key client.ObjectKey) objects {
	meta := metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}
	return objects{
		policy:  &networkingv1.NetworkPolicy{ObjectMeta: meta},
		secret:  &corev1.Secret{ObjectMeta: meta},
		service: &corev1.Service{ObjectMeta: meta},
		pod:     &corev1.Pod{ObjectMeta: meta},
	}
}

// applyPod returns the Pod, which may be one that is being deleted to make room for another.
func applyPod(ctx context.Context, cluster *cluster.Cluster, host *host) (*corev1.Pod, error) {
	wanted := host.pod(keyOf(cluster.Namespace, host.bastion))
	pod := &corev1.Pod{}
	err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(wanted), pod)
	if apierrors.IsNotFound(err) {
		if err := cluster.Client.Create(ctx, wanted); err != nil {
			return nil, explain("creating", wanted, cluster, err)
		}
		return wanted, nil
	}
	if err != nil {
		return nil, explain("reading", wanted, cluster, err)
	}
	if pod.DeletionTimestamp != nil || !isOutdated(pod, wanted) {
		return pod, nil
	}

	left, err := remove(ctx, cluster, []client.Object{pod}, client.Preconditions{UID: &pod.UID})
	if err != nil {
		return nil, err
	}
	if len(left) > 0 {
		return nil, waitFor(cluster, fmt.Errorf("waiting until %s is gone, another one takes its place", left[0]))
	}
	if err := cluster.Client.Create(ctx, wanted); err != nil {
		return nil, explain("creating", wanted, cluster, err)
	}
	return wanted, nil
}

// isOutdated tells whether another Pod has to take the place of one. One that people may have connected to is not
// replaced just because the CloudProfile has another image by now.
func isOutdated(pod, wanted *corev1.Pod) bool {
	if hasEnded(pod) || pod.Annotations[AnnotationUserData] != wanted.Annotations[AnnotationUserData] {
		return true
	}
	return podProblem(pod) != "" && pod.Spec.Containers[0].Image != wanted.Spec.Containers[0].Image
}

// remove deletes objects and returns which of them are still there, each as "KIND NAMESPACE/NAME".
func remove(ctx context.Context, cluster *cluster.Cluster, objects []client.Object, opts ...client.DeleteOption) ([]string, error) {
	var left []string
	for _, object := range objects {
		err := cluster.Client.Delete(ctx, object, opts...)
		if err == nil {
			err = cluster.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		}
		switch {
		case err == nil:
			left = append(left, kindOf(object)+" "+client.ObjectKeyFromObject(object).String())
		case !apierrors.IsNotFound(err):
			return nil, explain("deleting", object, cluster, err)
		}
	}
	return left, nil
}

func explain(doing string, object client.Object, cluster *cluster.Cluster, err error) error {
	err = fmt.Errorf("%s %s %s: %w", doing, kindOf(object), client.ObjectKeyFromObject(object), err)
	if !cluster.Remote {
		return err
	}
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return waitFor(cluster, fmt.Errorf("%w (in the cluster of the shoot's credentials): %w", err, errNoNamespace))
	}
	return fmt.Errorf("%w (in the cluster of the shoot's credentials)", err)
}

func kindOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }
