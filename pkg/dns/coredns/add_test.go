// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"testing"

	. "github.com/onsi/gomega"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

func TestAFixedAddressIsForTheClustersThatHaveIt(t *testing.T) {
	for name, test := range map[string]struct{ address, network, want string }{
		"none":                     {},
		"none in a known range":    {network: "10.96.0.0/16"},
		"one in an unknown range":  {address: "10.96.0.53", want: "10.96.0.53"},
		"one of the range":         {address: "10.96.0.53", network: "10.96.0.0/16", want: "10.96.0.53"},
		"one of another range":     {address: "10.96.0.53", network: "100.104.0.0/13"},
		"one of another family":    {address: "fd00::53", network: "10.96.0.0/16"},
		"one of the range of IPv6": {address: "fd00::53", network: "fd00::/108", want: "fd00::53"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(clusterIP(configv1alpha1.CoreDNSConfiguration{ClusterIP: test.address, ServiceNetwork: test.network})).To(Equal(test.want))
		})
	}
}
