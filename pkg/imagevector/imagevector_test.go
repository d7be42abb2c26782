// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package imagevector_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/imagevector"
)

const digest = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

func configured() *configv1alpha1.ExtensionConfiguration {
	config := &configv1alpha1.ExtensionConfiguration{}
	config.DNS.CoreDNS.Image = "a/coredns" + digest
	config.ControlPlane.LocalPathProvisioner.Image = "a/local-path-provisioner" + digest
	config.ControlPlane.CloudController.Image = "a/gardenlet-extension" + digest
	return config
}

// overwrite has the environment name a file with this content.
func overwrite(t *testing.T, content string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "images.yaml")
	NewWithT(t).Expect(os.WriteFile(file, []byte(content), 0o600)).To(Succeed())
	t.Setenv("IMAGEVECTOR_OVERWRITE", file)
}

func TestImagesOfTheFileGoBeforeThoseOfTheConfiguration(t *testing.T) {
	g := NewWithT(t)
	overwrite(t, `
images:
- name: coredns
  repository: mirror.example.com/coredns
  tag: v1.2.3
- name: cloud-controller
  ref: mirror.example.com/gardenlet-extension`+digest+`
- name: machine-controller
  ref: mirror.example.com/not-deployed-here
- name: kube-apiserver
  ref: mirror.example.com/of-another
`)
	config := configured()
	g.Expect(imagevector.Apply(config)).To(Succeed())
	g.Expect(config.DNS.CoreDNS.Image).To(Equal("mirror.example.com/coredns:v1.2.3"))
	g.Expect(config.ControlPlane.CloudController.Image).To(Equal("mirror.example.com/gardenlet-extension" + digest))
	g.Expect(config.ControlPlane.LocalPathProvisioner.Image).To(Equal("a/local-path-provisioner"+digest), "not in the file")
	g.Expect(config.Machines.ControllerImage).To(BeEmpty(), "not deployed")
}

func TestWithoutAFileNothingChanges(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("IMAGEVECTOR_OVERWRITE", "")
	config := configured()
	g.Expect(imagevector.Apply(config)).To(Succeed())
	g.Expect(config).To(Equal(configured()))
}

func TestAFileThatIsWrongChangesNothing(t *testing.T) {
	for name, tc := range map[string]struct{ content, says string }{
		"no YAML":                    {"images: [", "did not find expected"},
		"an image without a name":    {"images: [{repository: a/b, tag: c}]", "name"},
		"an image without a tag":     {"images: [{name: coredns, repository: a/b}]", "has no tag"},
		"an image without a place":   {"images: [{name: coredns, tag: c}]", "repository"},
		"a reference and its pieces": {"images: [{name: coredns, ref: a/b:c, tag: c}]", "tag"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			overwrite(t, tc.content)
			config := configured()
			g.Expect(imagevector.Apply(config)).To(MatchError(And(ContainSubstring("IMAGEVECTOR_OVERWRITE"), ContainSubstring(tc.says))))
			g.Expect(config).To(Equal(configured()))
		})
	}
}

func TestAFileThatIsMissingIsAnError(t *testing.T) {
	g := NewWithT(t)
	t.Setenv("IMAGEVECTOR_OVERWRITE", filepath.Join(t.TempDir(), "none"))
	g.Expect(imagevector.Apply(configured())).To(MatchError(ContainSubstring("no such file")))
}
