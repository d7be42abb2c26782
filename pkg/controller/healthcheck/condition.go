// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"time"

	"k8s.io/utils/clock"

	"github.com/gardener/gardener/extensions/pkg/controller/healthcheck"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
)

// conditionFor returns the condition that follows from the outcome of a check, and after how long it will be another one
// if nothing changes; 0 for never. Like the library's, a condition that is False does not become Progressing before it
// has been True, and one that has been Progressing for longer than the threshold becomes False.
func conditionFor(c clock.Clock, conditionType gardencorev1beta1.ConditionType, old *gardencorev1beta1.Condition, r result) (gardencorev1beta1.Condition, time.Duration) {
	var due time.Duration
	if r.status == gardencorev1beta1.ConditionProgressing {
		r.status, due = limit(c, old, r)
	}

	reason := map[gardencorev1beta1.ConditionStatus]string{
		gardencorev1beta1.ConditionTrue:        healthcheck.ReasonSuccessful,
		gardencorev1beta1.ConditionProgressing: healthcheck.ReasonProgressing,
		gardencorev1beta1.ConditionFalse:       healthcheck.ReasonUnsuccessful,
		gardencorev1beta1.ConditionUnknown:     gardencorev1beta1.ConditionCheckError,
	}[r.status]
	if old == nil {
		old = &gardencorev1beta1.Condition{Type: conditionType}
	}
	return v1beta1helper.UpdatedConditionWithClock(c, *old, r.status, reason, r.message, r.codes...), due
}

// limit returns whether something in progress is still Progressing, and for how long.
func limit(c clock.Clock, old *gardencorev1beta1.Condition, r result) (gardencorev1beta1.ConditionStatus, time.Duration) {
	switch {
	case old == nil || old.Status == gardencorev1beta1.ConditionTrue || old.Status == gardencorev1beta1.ConditionUnknown:
		return gardencorev1beta1.ConditionProgressing, r.threshold
	case old.Status == gardencorev1beta1.ConditionProgressing:
		if left := r.threshold - c.Since(old.LastTransitionTime.Time); left > 0 {
			return gardencorev1beta1.ConditionProgressing, left
		}
	}
	return gardencorev1beta1.ConditionFalse, 0
}
