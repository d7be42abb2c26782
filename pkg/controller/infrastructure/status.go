// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package infrastructure

import (
	"encoding/json"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

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

// keep puts it into the status of an Infrastructure, and changes nothing there that says it already.
func (s *status) keep(infra *extensionsv1alpha1.Infrastructure) error {
	infra.Status.Networking, infra.Status.EgressCIDRs = s.networking, s.egressCIDRs
	if saysSame(infra.Status.ProviderStatus, s.provider) {
		return nil
	}
	data, err := json.Marshal(s.provider)
	if err != nil {
		return err
	}
	infra.Status.ProviderStatus = &runtime.RawExtension{Raw: data}
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
