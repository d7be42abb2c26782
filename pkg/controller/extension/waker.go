// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extension

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

// newWaker returns what wakes Extensions of a kind when their ManagedResource is gone, or when that changes for which they
// wait.
func newWaker(reader client.Reader, kind kind, classes class.Set, healing bool) *common.Waker {
	return &common.Waker{
		Reader:  reader,
		NewList: func() client.ObjectList { return &extensionsv1alpha1.ExtensionList{} },
		Type:    kind.extensionType,
		Classes: classes,
		Healing: healing,
		Owns:    func(name string) bool { return name == kind.extensionType },
		Awaits:  func(name string) bool { return kind.waits && name == kind.extensionType },
		Health:  health.CheckManagedResource,
	}
}
