// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "gardener-extension-provider-local"

	// roleInfra is the value of gardener.cloud/role of namespaces for machines.
	roleInfra = "infra"
	// labelPodSecurity with this value lets machines be privileged.
	labelPodSecurity, podSecurityPrivileged = "pod-security.kubernetes.io/enforce", "privileged"
)

// place is a namespace for machines in a cluster.
type place struct {
	client    client.Client
	reader    client.Reader
	namespace string
	remote    bool
}

// placeOf returns where the machines of an Infrastructure are.
func (a *actuator) placeOf(ctx context.Context, infra *extensionsv1alpha1.Infrastructure) (place, error) {
	ref := infra.Spec.SecretRef
	if ref == (corev1.SecretReference{}) {
		return place{}, common.ConfigurationProblem(errors.New("spec.secretRef is empty: set name and namespace of a Secret"), common.RetryMistake)
	}
	found, err := common.MachineCluster(ctx, a.clusters, ref, infra.Namespace)
	if err != nil {
		return place{}, err
	}
	if !found.Remote {
		return place{client: a.client, reader: a.reader, namespace: found.Namespace}, nil
	}
	return place{client: found.Client, reader: found.Client, namespace: found.Namespace, remote: true}, nil
}

// explain adds Gardener's code to what a cluster that a user has named says if the credentials do not suffice.
func (p place) explain(err error) error {
	switch {
	case !p.remote:
		return err
	case apierrors.IsUnauthorized(err):
		return common.WithCode(err, gardencorev1beta1.ErrorInfraUnauthenticated, common.RetryMissing)
	case apierrors.IsForbidden(err):
		return common.WithCode(err, gardencorev1beta1.ErrorInfraUnauthorized, common.RetryMissing)
	}
	return err
}

// applyNamespace makes the namespace unless it is the shoot's in the seed, which is gardenlet's. One that somebody else has
// made is refused: it would be deleted in the end.
func (p place) applyNamespace(ctx context.Context) error {
	if !p.remote {
		return nil
	}
	labels := map[string]string{
		v1beta1constants.GardenRole: roleInfra,
		labelPodSecurity:            podSecurityPrivileged,
	}
	namespace := &corev1.Namespace{}
	err := p.reader.Get(ctx, client.ObjectKey{Name: p.namespace}, namespace)
	if apierrors.IsNotFound(err) {
		namespace = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace, Labels: labels}}
		if err := p.client.Create(ctx, namespace); err != nil {
			return fmt.Errorf("creating namespace %s: %w", p.namespace, err)
		}
		return nil
	}
	switch {
	case err != nil:
		return fmt.Errorf("reading namespace %s: %w", p.namespace, err)
	case namespace.DeletionTimestamp != nil:
		return common.Waiting(fmt.Errorf("namespace %s is being deleted", p.namespace), retryWait)
	case !isOurs(namespace):
		return common.ConfigurationProblem(fmt.Errorf("namespace %s is already in the cluster of the machines, but is not labelled %s=%s: "+
			"delete it, or give it the label to have it deleted with the shoot", p.namespace, v1beta1constants.GardenRole, roleInfra), common.RetryMissing)
	}
	before := namespace.DeepCopy()
	maps.Copy(namespace.Labels, labels)
	if equality.Semantic.DeepEqual(before, namespace) {
		return nil
	}
	if err := p.client.Patch(ctx, namespace, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("labelling namespace %s: %w", p.namespace, err)
	}
	return nil
}

// deleteNamespace deletes the namespace if it was made for machines, and tells whether it is gone. One that is not ours
// counts as gone.
func (p place) deleteNamespace(ctx context.Context) (bool, error) {
	if !p.remote {
		return true, nil
	}
	namespace := &corev1.Namespace{}
	if err := p.reader.Get(ctx, client.ObjectKey{Name: p.namespace}, namespace); apierrors.IsNotFound(err) {
		return true, nil
	} else if err != nil {
		return false, fmt.Errorf("reading namespace %s: %w", p.namespace, err)
	}
	if !isOurs(namespace) {
		return true, nil
	}
	if namespace.DeletionTimestamp != nil {
		return false, nil
	}
	if err := p.client.Delete(ctx, namespace, client.Preconditions{UID: &namespace.UID}); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("deleting namespace %s: %w", p.namespace, err)
	}
	return false, nil
}

func isOurs(namespace *corev1.Namespace) bool {
	return namespace.Labels[v1beta1constants.GardenRole] == roleInfra
}

// applyPolicy creates or changes a NetworkPolicy, and writes nothing if it is as it is to be.
func (p place) applyPolicy(ctx context.Context, desired *networkingv1.NetworkPolicy) error {
	key, current := client.ObjectKeyFromObject(desired), &networkingv1.NetworkPolicy{}
	if err := p.reader.Get(ctx, key, current); apierrors.IsNotFound(err) {
		if err := p.client.Create(ctx, desired); err != nil {
			return fmt.Errorf("creating NetworkPolicy %s: %w", key, err)
		}
		return nil
	} else if err != nil {
		return fmt.Errorf("reading NetworkPolicy %s: %w", key, err)
	}

	before := current.DeepCopy()
	for name, value := range desired.Labels {
		metav1.SetMetaDataLabel(&current.ObjectMeta, name, value)
	}
	for name, value := range desired.Annotations {
		metav1.SetMetaDataAnnotation(&current.ObjectMeta, name, value)
	}
	current.Spec = desired.Spec
	if equality.Semantic.DeepEqual(before, current) {
		return nil
	}
	if err := p.client.Patch(ctx, current, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("changing NetworkPolicy %s: %w", key, err)
	}
	return nil
}

// deletePolicies deletes the NetworkPolicies of a namespace that may be there.
func (p place) deletePolicies(ctx context.Context, namespace string) error {
	for _, name := range []string{MachinesPolicy, ControlPlanePolicy} {
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if err := p.client.Delete(ctx, policy); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting NetworkPolicy %s/%s: %w", namespace, name, err)
		}
	}
	return nil
}
