// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

// waitUntilHealthy gives up as long as the ManagedResource is not healthy. That of the cache is asked first, as the watch
// tells when it changes. If it is healthy, it may still be the one from before the last write, if that is not known here.
func (a *actuator) waitUntilHealthy(ctx context.Context, key client.ObjectKey) error {
	mr, err := a.resources.Check(ctx, a.reader, key, health.CheckManagedResource)
	switch {
	case apierrors.IsNotFound(err):
		return waitFor(fmt.Errorf("ManagedResource %s was written, but is not to be seen yet", key))
	case err == nil || mr == nil:
		return err
	}
	return unhealthy(mr, err)
}

// unhealthy tells what is wrong with the objects, if GRM says that something is, from what it is still to find out.
func unhealthy(mr *resourcesv1alpha1.ManagedResource, cause error) error {
	if mr.Status.ObservedGeneration == mr.Generation {
		for _, condition := range []gardencorev1beta1.ConditionType{resourcesv1alpha1.ResourcesApplied, resourcesv1alpha1.ResourcesHealthy} {
			if found := v1beta1helper.GetCondition(mr.Status.Conditions, condition); found != nil && found.Status == gardencorev1beta1.ConditionFalse {
				return &reconcilerutils.RequeueAfterError{Cause: cause, RequeueAfter: retryWait}
			}
		}
	}
	return waitFor(cause)
}

func waitFor(cause error) error { return reconciler.Waiting(cause, retryWait) }
