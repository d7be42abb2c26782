// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
)

// CacheOptions returns how a manager has to cache what the controllers read, so that its cache does not grow with what
// others keep in the cluster: of all Deployments those named machine-controller-manager without what they run, and
// ManagedResources without the list of what they hold.
//
// The manager's cache has no other Deployments then. So Deployment belongs in the list CacheOptions.DisableFor of its
// client, which makes everybody else read them from the API server. The controllers here read from the cache itself.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&appsv1.Deployment{}: {
			Field:     fields.OneTermEqualSelector(metav1.ObjectNameField, v1beta1constants.DeploymentNameMachineControllerManager),
			Transform: stripDeployment,
		},
		&resourcesv1alpha1.ManagedResource{}: {Transform: stripManagedResource},
	}
}

// stripDeployment leaves of a Deployment what its health depends on.
func stripDeployment(object any) (any, error) {
	deployment, ok := object.(*appsv1.Deployment)
	if !ok {
		return object, nil
	}
	return &appsv1.Deployment{
		TypeMeta: deployment.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: deployment.Namespace, Name: deployment.Name, UID: deployment.UID, ResourceVersion: deployment.ResourceVersion,
			Generation: deployment.Generation, DeletionTimestamp: deployment.DeletionTimestamp,
		},
		Spec:   appsv1.DeploymentSpec{Replicas: deployment.Spec.Replicas},
		Status: deployment.Status,
	}, nil
}

// stripManagedResource takes off only what no write of the spec can lose: the status is a subresource.
func stripManagedResource(object any) (any, error) {
	if mr, ok := object.(*resourcesv1alpha1.ManagedResource); ok {
		mr.ManagedFields = nil
		mr.Status.Resources = nil
	}
	return object, nil
}
