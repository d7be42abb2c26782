// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"
)

// rolloutThreshold is how long something may take to come into effect before it counts as unhealthy.
const rolloutThreshold = 5 * time.Minute

// result is the outcome of a check.
type result struct {
	// status is True, Progressing or False.
	status  gardencorev1beta1.ConditionStatus
	message string
	codes   []gardencorev1beta1.ErrorCode
	// threshold is how long Progressing may take before it becomes False.
	threshold time.Duration
}

func healthy() result {
	return result{status: gardencorev1beta1.ConditionTrue, message: "All health checks successful"}
}

func unhealthy(format string, args ...any) result {
	return result{status: gardencorev1beta1.ConditionFalse, message: fmt.Sprintf(format, args...)}
}

func progressing(threshold time.Duration, format string, args ...any) result {
	return result{status: gardencorev1beta1.ConditionProgressing, message: fmt.Sprintf(format, args...), threshold: threshold}
}

// aspectOf makes an aspect of a function that returns it for one type of object, in any form that can be printed.
func aspectOf[T client.Object](aspect func(T) any) func(client.Object) string {
	return func(obj client.Object) string {
		typed, ok := obj.(T)
		if !ok {
			return ""
		}
		return fmt.Sprintf("%v", aspect(typed))
	}
}

func readManagedResource(ctx context.Context, reader client.Reader, namespace, hint string, names []string) (result, error) {
	for _, name := range names {
		mr := &resourcesv1alpha1.ManagedResource{}
		err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, mr)
		if err == nil {
			return managedResourceHealth(mr), nil
		}
		if !apierrors.IsNotFound(err) {
			return result{}, fmt.Errorf("reading ManagedResource %s/%s: %w", namespace, name, err)
		}
	}

	missing := unhealthy("ManagedResource %s/%s does not exist", namespace, names[0])
	if hint != "" {
		missing.message += ": " + hint
	}
	return missing, nil
}

func managedResourceHealth(mr *resourcesv1alpha1.ManagedResource) result {
	err := health.CheckManagedResource(mr)
	if err == nil {
		return healthy()
	}

	out := unhealthy("ManagedResource %s/%s is unhealthy: %s", mr.Namespace, mr.Name, err)
	if isBeingApplied(mr) {
		out.status, out.threshold = gardencorev1beta1.ConditionProgressing, rolloutThreshold
	}
	// So it reads if the API server did not accept an object as valid.
	if strings.Contains(out.message, "error during apply of object") && strings.Contains(out.message, " is invalid:") {
		out.codes = []gardencorev1beta1.ErrorCode{gardencorev1beta1.ErrorConfigurationProblem}
	}
	return out
}

// isBeingApplied tells whether gardener-resource-manager has not come to a verdict yet. Every change of a ManagedResource
// goes through this, which a watch sees and a poll mostly does not.
func isBeingApplied(mr *resourcesv1alpha1.ManagedResource) bool {
	if mr.Status.ObservedGeneration != mr.Generation {
		return true
	}
	for _, conditionType := range []gardencorev1beta1.ConditionType{resourcesv1alpha1.ResourcesApplied, resourcesv1alpha1.ResourcesHealthy} {
		condition := v1beta1helper.GetCondition(mr.Status.Conditions, conditionType)
		if condition == nil {
			return true
		}
		switch condition.Status {
		case gardencorev1beta1.ConditionFalse:
			return false
		case gardencorev1beta1.ConditionProgressing, gardencorev1beta1.ConditionUnknown:
			return true
		}
	}
	return false
}

func readDeployment(ctx context.Context, reader client.Reader, namespace, name string) (result, error) {
	deployment := &appsv1.Deployment{}
	err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, deployment)
	if apierrors.IsNotFound(err) {
		return unhealthy("Deployment %s/%s does not exist", namespace, name), nil
	}
	if err != nil {
		return result{}, fmt.Errorf("reading Deployment %s/%s: %w", namespace, name, err)
	}
	return deploymentHealth(deployment), nil
}

func deploymentHealth(deployment *appsv1.Deployment) result {
	err := health.CheckDeployment(deployment)
	if err == nil {
		return healthy()
	}

	out := unhealthy("Deployment %s/%s is unhealthy: %s", deployment.Namespace, deployment.Name, err)
	if isRollingOut(deployment) {
		out.status, out.threshold = gardencorev1beta1.ConditionProgressing, rolloutThreshold
	}
	return out
}

func isRollingOut(deployment *appsv1.Deployment) bool {
	if deployment.Status.ObservedGeneration < deployment.Generation {
		return true
	}
	return slices.ContainsFunc(deployment.Status.Conditions, func(condition appsv1.DeploymentCondition) bool {
		// Kubernetes gives another reason once the rollout is complete, and another status once it takes too long.
		return condition.Type == appsv1.DeploymentProgressing && condition.Status == corev1.ConditionTrue && condition.Reason != "NewReplicaSetAvailable"
	})
}
