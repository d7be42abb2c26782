// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsrecord

import (
	"encoding/json"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// keepStatus puts the providerStatus into the status of a DNSRecord unless it is there already; an empty one is none.
//
// The deletion of a DNSRecord whose condition Created is False is skipped, which it is if the first reconcile ends in an
// error. Once something may have been written that is not so certain any more, so the condition is Unknown from then on
// until the record resolves.
func keepStatus(object *extensionsv1alpha1.DNSRecord, status localv1alpha1.DNSRecordStatus) {
	status.TypeMeta = metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.DNSRecordStatusKind}
	isEmpty := status.Provider == "" && len(status.Written) == 0
	if isEmpty && object.Status.ProviderStatus == nil || !isEmpty && apiequality.Semantic.DeepEqual(*localv1alpha1.DecodeDNSRecordStatus(object.Status.ProviderStatus), status) {
		return
	}

	object.Status.ProviderStatus = nil
	if !isEmpty {
		raw, _ := json.Marshal(status) // it is of strings and numbers, so this does not fail
		object.Status.ProviderStatus = &runtime.RawExtension{Raw: raw}
	}
	if created := createdOf(object); len(status.Written) > 0 && (created == "" || created == gardencorev1beta1.ConditionFalse) {
		changeCreated(object, gardencorev1beta1.ConditionUnknown, "Written", "The record was sent and has not been seen to resolve yet")
	}
}

// setCreated says in the condition Created what has become of a reconcile. Gardener's library has it so: what was created
// once is not said to be gone because of a later error.
func setCreated(object *extensionsv1alpha1.DNSRecord, err error) {
	switch created := createdOf(object); {
	case err == nil && created != gardencorev1beta1.ConditionTrue:
		changeCreated(object, gardencorev1beta1.ConditionTrue, "Success", "The record has been created and was seen to resolve")
	case err != nil && created == "":
		changeCreated(object, gardencorev1beta1.ConditionFalse, "Error", "The record could not be created so far")
	}
}

// isNeverWritten reports whether nothing can be there of a record.
func isNeverWritten(object *extensionsv1alpha1.DNSRecord) bool {
	return createdOf(object) == gardencorev1beta1.ConditionFalse
}

// createdOf returns the status of the condition Created; empty if there is none.
func createdOf(object *extensionsv1alpha1.DNSRecord) gardencorev1beta1.ConditionStatus {
	if created := v1beta1helper.GetCondition(object.Status.Conditions, extensionsv1alpha1.ConditionTypeCreated); created != nil {
		return created.Status
	}
	return ""
}

func changeCreated(object *extensionsv1alpha1.DNSRecord, status gardencorev1beta1.ConditionStatus, reason, message string) {
	condition := v1beta1helper.GetOrInitConditionWithClock(clock.RealClock{}, object.Status.Conditions, extensionsv1alpha1.ConditionTypeCreated)
	condition = v1beta1helper.UpdatedConditionWithClock(clock.RealClock{}, condition, status, reason, message)
	object.Status.Conditions = v1beta1helper.MergeConditions(object.Status.Conditions, condition)
}
