// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

func TestTheMockProviderIsOffByDefault(t *testing.T) {
	g := NewWithT(t)
	config, err := decode(minimal)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Mock.Enabled).To(BeFalse())
	g.Expect(*config.Mock.ConcurrentSyncs).To(Equal(20))
}

func TestTheMockProviderIsNotSlowedDownUnlessAskedFor(t *testing.T) {
	g := NewWithT(t)
	config, err := decode(minimal + "mock: {enabled: true}\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.ClientConnection.QPS).To(BeNumerically("==", -1))
	config, err = decode(minimal + "mock: {enabled: true}\nclientConnection: {qps: 7}\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.ClientConnection.QPS).To(BeNumerically("==", 7))
}

func TestBehavioursOfTheMockProviderAreDefaulted(t *testing.T) {
	g := NewWithT(t)
	config, err := decode(minimal + `
mock:
  enabled: true
  seed: -5
  behaviours:
  - kind: Worker
    operation: ForceDelete
    delay: 1m
    jitter: 10ms
    failures: 2
    errorRate: 0.25
    error: {message: none left, codes: [ERR_INFRA_QUOTA_EXCEEDED]}
    retryAfter: 1s
  - {}
`)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Mock.Seed).To(BeNumerically("==", -5))
	g.Expect(config.Mock.Behaviours).To(HaveLen(2))
	g.Expect(config.Mock.Behaviours[0].RetryAfter.Duration).To(Equal(time.Second))
	g.Expect(config.Mock.Behaviours[1].RetryAfter.Duration).To(Equal(5 * time.Second))
	g.Expect(config.Mock.Behaviours[1].Error.Message).To(ContainSubstring("injected"))
}

func TestDecodeRefusesBadBehaviours(t *testing.T) {
	for name, test := range map[string]struct{ mock, message string }{
		"no workers":                    {"{concurrentSyncs: 0}", "mock.concurrentSyncs: Invalid value"},
		"a kind that there is not":      {"{behaviours: [{kind: Shoot}]}", `mock.behaviours[0].kind: Unsupported value: "Shoot"`},
		"an operation that there isn't": {"{behaviours: [{operation: create}]}", `mock.behaviours[0].operation: Unsupported value: "create"`},
		"a port that there is not":      {"{nodes: {kubeletPort: 70000}}", "mock.nodes.kubeletPort: Invalid value"},
		"a negative delay":              {"{behaviours: [{delay: -1s}]}", "mock.behaviours[0].delay: Invalid value"},
		"a negative jitter":             {"{behaviours: [{}, {jitter: -1s}]}", "mock.behaviours[1].jitter: Invalid value"},
		"a retry without pause":         {"{behaviours: [{retryAfter: 1us}]}", "mock.behaviours[0].retryAfter: Invalid value"},
		"a negative number of failures": {"{behaviours: [{failures: -1}]}", "mock.behaviours[0].failures: Invalid value"},
		"more errors than attempts":     {"{behaviours: [{errorRate: 1.1}]}", "mock.behaviours[0].errorRate: Invalid value"},
		"fewer errors than none":        {"{behaviours: [{errorRate: -0.1}]}", "mock.behaviours[0].errorRate: Invalid value"},
		"a code that Gardener lacks":    {"{behaviours: [{error: {codes: [ERR_X]}}]}", `mock.behaviours[0].error.codes[0]: Unsupported value: "ERR_X"`},
		"a field that does not exist":   {"{behaviours: [{name: x}]}", `unknown field "mock.behaviours[0].name"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(minimal + "mock: " + test.mock + "\n")
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}
