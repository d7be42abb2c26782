// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

// newWaker returns what wakes ControlPlanes when one of their ManagedResources is gone, or when that with the webhooks
// changes.
func newWaker(reader client.Reader, classes class.Set, healing bool) *common.Waker {
	return &common.Waker{
		Reader:  reader,
		NewList: func() client.ObjectList { return &extensionsv1alpha1.ControlPlaneList{} },
		Type:    localv1alpha1.Type,
		Classes: classes,
		Healing: healing,
		Owns: func(name string) bool {
			return slices.Contains([]string{WebhooksName, SeedName, ShootName, FormerStorageClassesName}, name)
		},
		Awaits: func(name string) bool { return name == WebhooksName },
		Health: isHealthy,
	}
}
