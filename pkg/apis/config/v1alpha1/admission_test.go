// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
)

const admissionHead = "apiVersion: config.local.provider.extensions.gardener.cloud/v1alpha1\nkind: AdmissionConfiguration\n"

func TestTheAdmissionGetsDefaults(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "config.yaml")
	g.Expect(os.WriteFile(path, []byte(admissionHead+"webhooks: {certificateNamespace: certificates, ownerNamespace: owner}\n"), 0o600)).To(Succeed())
	config := &AdmissionConfiguration{}
	g.Expect(Load(path, config)).To(Succeed())
	g.Expect(config.Webhooks).To(Equal(AdmissionWebhooks{ServicePort: new(443), CertificateNamespace: "certificates", OwnerNamespace: "owner"}))
	g.Expect(config.Server).To(Equal(ServerConfiguration{HealthProbes: &Server{Port: 8081}, Metrics: &Server{Port: 8080}, Webhooks: &Server{Port: 10443}}))
	g.Expect(config.LeaderElection.ResourceLock).To(Equal("leases"))
	g.Expect(*config.LeaderElection.LeaderElect).To(BeTrue())
	g.Expect(config.ClientConnection.QPS).To(BeEquivalentTo(100))
	g.Expect([]string{config.LogLevel, config.LogFormat}).To(Equal([]string{"info", "json"}))
}

func TestTheAdmissionRefusesAConfigurationThatMakesNoSense(t *testing.T) {
	const good = admissionHead + "webhooks: {certificateNamespace: certificates, ownerNamespace: owner}\n"
	for name, test := range map[string]struct{ config, message string }{
		"another kind":                 {"apiVersion: v1\nkind: Pod\n", "decoding: "},
		"a field that there is not":    {good + "seed: {}\n", `unknown field "seed"`},
		"a second document":            {good + "---\n" + good, "more than one YAML document"},
		"no namespace of certificates": {admissionHead + "webhooks: {ownerNamespace: owner}\n", "webhooks.certificateNamespace: Invalid value"},
		"no owner":                     {admissionHead + "webhooks: {certificateNamespace: certificates}\n", "webhooks.ownerNamespace: Invalid value"},
		"a Service's port that is none": {
			admissionHead + "webhooks: {certificateNamespace: certificates, ownerNamespace: owner, servicePort: 0}\n", "webhooks.servicePort: Invalid value",
		},
		"a port that is none":        {good + "server: {webhooks: {port: 70000}}\n", "server.webhooks.port: Invalid value"},
		"a port that is there twice": {good + "server: {webhooks: {port: 8081}}\n", "server.webhooks.port: Duplicate value"},
		"a range that is none":       {good + "machines: {nodeCIDRs: [10.0.0.0]}\n", "machines.nodeCIDRs[0]: Invalid value"},
		"a log level that is none":   {good + "logLevel: loud\n", "logLevel: Unsupported value"},
		"a log format that is none":  {good + "logFormat: xml\n", "logFormat: Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Decode([]byte(test.config), &AdmissionConfiguration{})).To(MatchError(ContainSubstring(test.message)))
		})
	}
}

func TestTheAdmissionNeedsTheFile(t *testing.T) {
	NewWithT(t).Expect(Load(filepath.Join(t.TempDir(), "none"), &AdmissionConfiguration{})).To(MatchError(os.ErrNotExist))
}
