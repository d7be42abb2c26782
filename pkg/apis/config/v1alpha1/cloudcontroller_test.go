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

const cloudControllerHead = "apiVersion: config.local.provider.extensions.gardener.cloud/v1alpha1\nkind: CloudControllerConfiguration\n"

func loadCloudController(t *testing.T, file string) (*CloudControllerConfiguration, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	NewWithT(t).Expect(os.WriteFile(path, []byte(file), 0o600)).To(Succeed())
	config := &CloudControllerConfiguration{}
	return config, Load(path, config)
}

func TestACloudControllerGetsDefaults(t *testing.T) {
	g := NewWithT(t)
	config, err := loadCloudController(t, cloudControllerHead+"seed: {namespace: shoot--local--foo}\nshoot: {kubeconfig: /kubeconfig}\n")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(config.Seed).To(Equal(CloudControllerSeed{Namespace: "shoot--local--foo"}))
	g.Expect(config.Server).To(Equal(CloudControllerServer{Port: 10258}))
	g.Expect([]string{config.LogLevel, config.LogFormat}).To(Equal([]string{"info", "json"}))
}

func TestACloudControllerRefusesAConfigurationThatMakesNoSense(t *testing.T) {
	const good = cloudControllerHead + "seed: {namespace: shoot--local--foo}\nshoot: {kubeconfig: /kubeconfig}\n"
	for name, test := range map[string]struct{ config, message string }{
		"another kind":              {"apiVersion: v1\nkind: Pod\n", "decoding: "},
		"a field that there is not": {good + "leaderElection: {}\n", `unknown field "leaderElection"`},
		"a second document":         {good + "---\n" + good, "more than one YAML document"},
		"no namespace":              {cloudControllerHead + "shoot: {kubeconfig: /kubeconfig}\n", "seed.namespace: Invalid value"},
		"a namespace that is none":  {cloudControllerHead + "seed: {namespace: A_B}\nshoot: {kubeconfig: /kubeconfig}\n", "seed.namespace: Invalid value"},
		"a range that is none":      {cloudControllerHead + "seed: {namespace: a, allowedCIDRs: [10.0.0.0/8, 192.0.2.1]}\nshoot: {kubeconfig: /kubeconfig}\n", "seed.allowedCIDRs[1]: Invalid value"},
		"no way to the shoot":       {cloudControllerHead + "seed: {namespace: a}\n", "shoot.kubeconfig: Required value"},
		"a port that is none":       {good + "server: {port: 70000}\n", "server.port: Invalid value"},
		"an address that is none":   {good + "server: {bindAddress: localhost}\n", "server.bindAddress: Invalid value"},
		"a log level that is none":  {good + "logLevel: loud\n", "logLevel: Unsupported value"},
		"a log format that is none": {good + "logFormat: xml\n", "logFormat: Unsupported value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := loadCloudController(t, test.config)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}

func TestACloudControllerNeedsTheFile(t *testing.T) {
	NewWithT(t).Expect(Load(filepath.Join(t.TempDir(), "none"), &CloudControllerConfiguration{})).To(MatchError(os.ErrNotExist))
}
