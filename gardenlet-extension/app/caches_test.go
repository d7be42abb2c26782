// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"reflect"
	"testing"

	. "github.com/onsi/gomega"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

func TestNoTwoCachesAreOfOneKind(t *testing.T) {
	g := NewWithT(t)
	config := &configv1alpha1.ExtensionConfiguration{}
	configv1alpha1.SetDefaults(config)
	kinds := map[reflect.Type]bool{}
	for obj := range caches(config) {
		g.Expect(kinds).NotTo(HaveKey(reflect.TypeOf(obj)))
		kinds[reflect.TypeOf(obj)] = true
	}
	g.Expect(kinds).NotTo(BeEmpty())
}
