// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"encoding/json"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// FuzzDecode looks for a file that makes a program panic, or that is accepted, but not once its defaults are in it.
func FuzzDecode(f *testing.F) {
	for _, seed := range []string{
		minimal,
		minimal + "controllers: {dnsRecord: {concurrentSyncs: 7}}\n",
		minimal + "server: {metrics: {port: 9000}}\ncharts: {sources: {coredns: {ref: \"example.com/c:v1\"}}}\n",
		minimal + "loadBalancers: {hostAddresses: [172.18.255.1, \"fd00:ff::1\"], pools: [\"172.18.255.128-172.18.255.254\"]}\n",
		"{}", "---\n---\n", "apiVersion: v1\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := decode(string(data))
		if err != nil {
			return
		}
		config.SetGroupVersionKind(configv1alpha1.SchemeGroupVersion.WithKind("ExtensionConfiguration"))
		content, err := json.Marshal(config)
		if err != nil {
			t.Fatalf("encoding what was decoded: %v", err)
		}
		again, err := decode(string(content))
		if err != nil {
			t.Fatalf("what was accepted is refused with its defaults in it: %v\n%s", err, content)
		}
		again.SetGroupVersionKind(configv1alpha1.SchemeGroupVersion.WithKind("ExtensionConfiguration"))
		if !equality.Semantic.DeepEqual(config, again) {
			t.Fatalf("it changes when it is decoded again: %s", content)
		}
	})
}
