// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// status is what others get to know.
type status struct {
	networking  *extensionsv1alpha1.InfrastructureStatusNetworking
	egressCIDRs []string
	provider    localv1alpha1.InfrastructureStatus
}

// newStatus returns the status. What machines send comes from their own addresses, and from those of the seed's nodes once
// it leaves the seed; where machines are elsewhere, these are not known.
func newStatus(at place, networks networks, seed *seedRanges, pools []localv1alpha1.MachineIPPool, message string) *status {
	egress := slices.Clone(networks.nodes)
	if seed != nil && !at.remote {
		egress = minimal(append(egress, seed.nodes...))
	}
	return &status{
		networking:  networks.status(),
		egressCIDRs: toStrings(egress),
		provider: localv1alpha1.InfrastructureStatus{
			TypeMeta:         metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.InfrastructureStatusKind},
			MachineNamespace: at.namespace,
			IPPools:          pools,
			Message:          message,
		},
	}
}

// writeStatus writes nothing if the status says it already.
func (a *actuator) writeStatus(ctx context.Context, infra *extensionsv1alpha1.Infrastructure, status *status) error {
	before := infra.DeepCopy()
	infra.Status.Networking, infra.Status.EgressCIDRs = status.networking, status.egressCIDRs
	if !saysSame(infra.Status.ProviderStatus, status.provider) {
		data, err := json.Marshal(status.provider)
		if err != nil {
			return err
		}
		infra.Status.ProviderStatus = &runtime.RawExtension{Raw: data}
	}
	if equality.Semantic.DeepEqual(before.Status, infra.Status) {
		return nil
	}
	if err := a.client.Status().Patch(ctx, infra, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("writing the status: %w", err)
	}
	return nil
}

// saysSame does not look at the order of fields, which the API server changes.
func saysSame(raw *runtime.RawExtension, status localv1alpha1.InfrastructureStatus) bool {
	if raw == nil {
		return false
	}
	current := localv1alpha1.InfrastructureStatus{}
	return json.Unmarshal(raw.Raw, &current) == nil && equality.Semantic.DeepEqual(current, status)
}
