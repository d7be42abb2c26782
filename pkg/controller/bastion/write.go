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

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
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

// ensure has an object as set makes it. It is there already unless the Bastion is new.
func ensure[T client.Object](ctx context.Context, cluster *cluster.Cluster, object T, isNew bool, set func(T)) error {
	mutate := func(object T) error { set(object); return nil }
	return explain(cluster, common.Ensure(ctx, cluster.Client, cluster.Client, object, !isNew, mutate))
}

// ensurePod leaves a Pod as it is, or has another take its place. It may be one that is being deleted.
func ensurePod(ctx context.Context, cluster *cluster.Cluster, pod *corev1.Pod, isNew bool, host *host) error {
	wanted := host.pod(client.ObjectKeyFromObject(pod))
	set := func(pod *corev1.Pod) {
		if pod.ResourceVersion == "" {
			wanted.DeepCopyInto(pod)
		}
	}
	if err := ensure(ctx, cluster, pod, isNew, set); err != nil {
		return err
	}
	if pod.DeletionTimestamp != nil || !isOutdated(pod, wanted) {
		return nil
	}

	found, err := remove(ctx, cluster, []client.Object{pod}, client.Preconditions{UID: &pod.UID})
	if err != nil {
		return err
	}
	left, err := stillThere(ctx, cluster, found)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return waitFor(cluster, fmt.Errorf("waiting until %s is gone, another one takes its place", left[0]))
	}
	*pod = corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: wanted.Namespace, Name: wanted.Name}}
	return ensure(ctx, cluster, pod, true, set)
}

// isOutdated tells whether another Pod has to take the place of one. One that people may have connected to is not
// replaced just because the CloudProfile has another image by now.
func isOutdated(pod, wanted *corev1.Pod) bool {
	if hasEnded(pod) || pod.Annotations[AnnotationUserData] != wanted.Annotations[AnnotationUserData] {
		return true
	}
	return podProblem(pod) != "" && pod.Spec.Containers[0].Image != wanted.Spec.Containers[0].Image
}

// remove deletes objects and returns those that there were.
func remove(ctx context.Context, cluster *cluster.Cluster, objects []client.Object, opts ...client.DeleteOption) ([]client.Object, error) {
	var found []client.Object
	for _, object := range objects {
		err := cluster.Client.Delete(ctx, object, opts...)
		if err == nil {
			found = append(found, object)
		} else if !apierrors.IsNotFound(err) {
			return nil, explain(cluster, fmt.Errorf("deleting %s: %w", nameOf(object), err))
		}
	}
	return found, nil
}

// stillThere returns which of the objects are there, each as "KIND NAMESPACE/NAME".
func stillThere(ctx context.Context, cluster *cluster.Cluster, objects []client.Object) ([]string, error) {
	var left []string
	for _, object := range objects {
		name := nameOf(object)
		err := cluster.Client.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil {
			left = append(left, name)
		} else if !apierrors.IsNotFound(err) {
			return nil, explain(cluster, fmt.Errorf("reading %s: %w", name, err))
		}
	}
	return left, nil
}

// explain says of an error in a cluster other than the seed that it is from there. A namespace that is missing there is
// waited for.
func explain(cluster *cluster.Cluster, err error) error {
	if err == nil || !cluster.Remote {
		return err
	}
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return waitFor(cluster, fmt.Errorf("%w (in the cluster of the shoot's credentials): %w", err, errNoNamespace))
	}
	return fmt.Errorf("%w (in the cluster of the shoot's credentials)", err)
}

// nameOf returns "KIND NAMESPACE/NAME".
func nameOf(object client.Object) string {
	return kindOf(object) + " " + client.ObjectKeyFromObject(object).String()
}

func kindOf(object client.Object) string { return reflect.TypeOf(object).Elem().Name() }
