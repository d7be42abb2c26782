// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsrecord

import (
	"context"
	"encoding/json"
	"fmt"

	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// saveStatus writes the providerStatus of a DNSRecord unless it is there already; an empty one is none.
//
// Gardener's library skips the deletion of a DNSRecord whose condition Created is False, which it sets if the first
// reconcile ends in an error. Once something may have been written that is not so certain any more, so the condition is
// Unknown from then on until the record resolves.
func saveStatus(ctx context.Context, c client.Client, object *extensionsv1alpha1.DNSRecord, status localv1alpha1.DNSRecordStatus) error {
	status.TypeMeta = metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.DNSRecordStatusKind}
	isEmpty := status.Provider == "" && len(status.Written) == 0
	if isEmpty && object.Status.ProviderStatus == nil || !isEmpty && apiequality.Semantic.DeepEqual(*localv1alpha1.DecodeDNSRecordStatus(object.Status.ProviderStatus), status) {
		return nil
	}

	patch := client.MergeFrom(object.DeepCopy())
	object.Status.ProviderStatus = nil
	if !isEmpty {
		raw, err := json.Marshal(status)
		if err != nil {
			return fmt.Errorf("encoding the provider status of DNSRecord %s: %w", client.ObjectKeyFromObject(object), err)
		}
		object.Status.ProviderStatus = &runtime.RawExtension{Raw: raw}
	}
	created := v1beta1helper.GetCondition(object.Status.Conditions, extensionsv1alpha1.ConditionTypeCreated)
	if len(status.Written) > 0 && (created == nil || created.Status == gardencorev1beta1.ConditionFalse) {
		condition := v1beta1helper.GetOrInitConditionWithClock(clock.RealClock{}, object.Status.Conditions, extensionsv1alpha1.ConditionTypeCreated)
		condition = v1beta1helper.UpdatedConditionWithClock(clock.RealClock{}, condition, gardencorev1beta1.ConditionUnknown, "Written", "The record was sent and has not been seen to resolve yet")
		object.Status.Conditions = v1beta1helper.MergeConditions(object.Status.Conditions, condition)
	}
	if err := c.Status().Patch(ctx, object, patch); err != nil {
		return fmt.Errorf("writing the status of DNSRecord %s: %w", client.ObjectKeyFromObject(object), err)
	}
	return nil
}
