// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
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
	client client.Client
	reader client.Reader
	// config is that of another cluster than the seed.
	config    *rest.Config
	namespace string
	remote    bool
	// isNew tells that nothing has been made there yet, as far as is known.
	isNew bool
	// uid is that of the namespace, if it is known by now.
	uid types.UID
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
	return place{client: found.Client, reader: found.Client, config: found.Config, namespace: found.Namespace, remote: true}, nil
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
func (p *place) applyNamespace(ctx context.Context) error {
	if !p.remote {
		return nil
	}
	labels := map[string]string{
		v1beta1constants.GardenRole: roleInfra,
		labelPodSecurity:            podSecurityPrivileged,
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	err := common.Ensure(ctx, p.client, p.reader, namespace, !p.isNew, func(namespace *corev1.Namespace) error {
		switch {
		case namespace.DeletionTimestamp != nil:
			return common.Waiting(fmt.Errorf("namespace %s is being deleted", p.namespace), retryWait)
		case namespace.ResourceVersion != "" && !isOurs(namespace):
			return common.ConfigurationProblem(fmt.Errorf("namespace %s is already in the cluster of the machines, but is not labelled %s=%s: "+
				"delete it, or give it the label to have it deleted with the shoot", p.namespace, v1beta1constants.GardenRole, roleInfra), common.RetryMissing)
		}
		for name, value := range labels {
			metav1.SetMetaDataLabel(&namespace.ObjectMeta, name, value)
		}
		return nil
	})
	p.uid = namespace.UID
	return err
}

// deleteNamespace deletes the namespace if it was made for machines, and returns it if it is not gone. One that is not ours
// counts as gone.
func (p place) deleteNamespace(ctx context.Context) (*corev1.Namespace, error) {
	if !p.remote {
		return nil, nil
	}
	namespace := &corev1.Namespace{}
	if err := p.reader.Get(ctx, client.ObjectKey{Name: p.namespace}, namespace); apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("reading namespace %s: %w", p.namespace, err)
	}
	if !isOurs(namespace) {
		return nil, nil
	}
	if namespace.DeletionTimestamp != nil {
		return namespace, nil
	}
	if err := p.client.Delete(ctx, namespace, client.Preconditions{UID: &namespace.UID}); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("deleting namespace %s: %w", p.namespace, err)
	}
	return namespace, nil
}

func isOurs(namespace *corev1.Namespace) bool {
	return namespace.Labels[v1beta1constants.GardenRole] == roleInfra
}

// deletePolicies deletes the NetworkPolicies of a namespace that may be there.
func (p place) deletePolicies(ctx context.Context, namespace string, more ...string) error {
	for _, name := range append([]string{MachinesPolicy, ControlPlanePolicy}, more...) {
		policy := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
		if err := p.client.Delete(ctx, policy); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting NetworkPolicy %s/%s: %w", namespace, name, err)
		}
	}
	return nil
}
