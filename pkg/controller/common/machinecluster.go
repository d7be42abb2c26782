// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common

import (
	"context"

	corev1 "k8s.io/api/core/v1"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
)

// MachineCluster returns the cluster with the machines of a shoot. What a user has to put right in the Secret with the
// credentials is looked at again after RetryMissing: it may come without an event on the object.
func MachineCluster(ctx context.Context, clusters cluster.Clusters, secret corev1.SecretReference, technicalID string) (*cluster.Cluster, error) {
	found, err := clusters.Get(ctx, secret, technicalID)
	if codes := v1beta1helper.ExtractErrorCodes(err); len(codes) > 0 {
		return nil, WithCode(err, codes[0], RetryMissing)
	}
	return found, err
}
