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
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "gardener-extension-provider-local"

	// roleInfra is the value of gardener.cloud/role of namespaces for machines.
	roleInfra = "infra"
	// labelPodSecurity with this value lets machines be privileged.
	labelPodSecurity, podSecurityPrivileged = "pod-security.kubernetes.io/enforce", "privileged"
)

// place is where the machines of a shoot are: the shoot's namespace in the seed, or one of their own in another cluster.
type place struct {
	reconciler.Target
	namespace string
	remote    bool
}

// placeOf returns where the machines of an Infrastructure are.
func (a *actuator) placeOf(ctx context.Context, infra *extensionsv1alpha1.Infrastructure) (place, error) {
	ref := infra.Spec.SecretRef
	if ref == (corev1.SecretReference{}) {
		return place{}, reconciler.ConfigurationProblem(errors.New("spec.secretRef is empty: set name and namespace of a Secret"), reconciler.RetryMistake)
	}
	found, err := a.clusters.Get(ctx, ref, infra.Namespace)
	if err != nil {
		return place{}, reconciler.RetrySlowly(err)
	}
	if !found.Remote {
		return a.inSeed(infra), nil
	}
	return place{Target: reconciler.Target{Client: found.Client, Live: found.Client, ID: found.Config}, namespace: found.Namespace, remote: true}, nil
}

func (a *actuator) inSeed(infra *extensionsv1alpha1.Infrastructure) place {
	return place{Target: reconciler.Target{Client: a.client, Live: a.reader}, namespace: infra.Namespace}
}

// explain adds Gardener's code to what a cluster that a user has named says if the credentials do not suffice.
func (p place) explain(err error) error {
	switch {
	case !p.remote:
		return err
	case apierrors.IsUnauthorized(err):
		return reconciler.WithCode(err, gardencorev1beta1.ErrorInfraUnauthenticated, reconciler.RetryMissing)
	case apierrors.IsForbidden(err):
		return reconciler.WithCode(err, gardencorev1beta1.ErrorInfraUnauthorized, reconciler.RetryMissing)
	}
	return err
}

// applyNamespace makes the namespace unless it is the shoot's in the seed, which is gardenlet's. One that somebody else has
// made is refused: it would be deleted in the end.
//
// What is there already is usually as it is to be: then it is read. Else it is created, which is one request less.
func (p place) applyNamespace(ctx context.Context, op *attempt) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	if !p.remote {
		return namespace, nil
	}
	err := op.Ensure(ctx, p.Target, namespace, op.Object.Status.ProviderStatus != nil, func() error {
		switch {
		case namespace.DeletionTimestamp != nil:
			return reconciler.Waiting(fmt.Errorf("namespace %s is being deleted", p.namespace), retryWait)
		case namespace.ResourceVersion != "" && !isOurs(namespace):
			return reconciler.ConfigurationProblem(fmt.Errorf("namespace %s is already in the cluster of the machines, but is not labelled %s=%s: "+
				"delete it, or give it the label to have it deleted with the shoot", p.namespace, v1beta1constants.GardenRole, roleInfra), reconciler.RetryMissing)
		}
		metav1.SetMetaDataLabel(&namespace.ObjectMeta, v1beta1constants.GardenRole, roleInfra)
		metav1.SetMetaDataLabel(&namespace.ObjectMeta, labelPodSecurity, podSecurityPrivileged)
		return nil
	})
	return namespace, err
}

// deleteNamespace deletes the namespace if it was made for machines, and reports whether it is gone. One that is not ours
// counts as gone.
func (p place) deleteNamespace(ctx context.Context, op *attempt) (bool, error) {
	if !p.remote {
		return true, nil
	}
	namespace := &corev1.Namespace{}
	if err := p.Live.Get(ctx, client.ObjectKey{Name: p.namespace}, namespace); apierrors.IsNotFound(err) {
		return true, nil
	} else if err != nil {
		return false, fmt.Errorf("reading namespace %s: %w", p.namespace, err)
	}
	if !isOurs(namespace) || namespace.DeletionTimestamp != nil {
		return !isOurs(namespace), nil
	}
	_, err := op.Delete(ctx, p.WithoutState(), []client.Object{namespace}, client.Preconditions{UID: &namespace.UID})
	return false, err
}

func isOurs(namespace *corev1.Namespace) bool {
	return namespace.Labels[v1beta1constants.GardenRole] == roleInfra
}

// deletePolicies deletes all NetworkPolicies of a shoot in the seed. Those in a namespace of the machines go with that.
func (a *actuator) deletePolicies(ctx context.Context, op *attempt) error {
	at := a.inSeed(op.Object)
	_, err := op.DeleteAll(ctx, at.WithoutState(), &networkingv1.NetworkPolicyList{}, at.namespace, client.MatchingLabels{labelManagedBy: managedBy})
	return err
}
