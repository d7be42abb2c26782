// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/imagevector"
)

func TestAnImageVectorGoesBeforeTheImagesOfTheValues(t *testing.T) {
	const overwrite = "images:\n- name: coredns\n  repository: mirror.example.com/coredns\n  tag: v1\n"
	for place, values := range places() {
		t.Run(place, func(t *testing.T) {
			g := NewWithT(t)
			name := "gardener-extension-provider-local-" + place
			with := objects(t, "here", with(values(), overwrite, "imageVectorOverwrite"))
			content := find[corev1.ConfigMap](t, with, "ConfigMap", name+"-config").Data
			pod := find[appsv1.Deployment](t, with, "Deployment", name).Spec.Template
			g.Expect(pod.Annotations).To(HaveKey("checksum/images"))
			g.Expect(pod.Spec.Containers[0].Env).To(ContainElement(corev1.EnvVar{
				Name: "IMAGEVECTOR_OVERWRITE", Value: filepath.Join(pod.Spec.Containers[0].VolumeMounts[0].MountPath, "images_overwrite.yaml")}))

			// What the program makes of it.
			file := filepath.Join(t.TempDir(), "images_overwrite.yaml")
			g.Expect(os.WriteFile(file, []byte(content["images_overwrite.yaml"]), 0o600)).To(Succeed())
			t.Setenv("IMAGEVECTOR_OVERWRITE", file)
			config := &configv1alpha1.ExtensionConfiguration{}
			g.Expect(configv1alpha1.Decode([]byte(content["config.yaml"]), config)).To(Succeed())
			g.Expect(imagevector.Apply(config)).To(Succeed())
			g.Expect(config.DNS.CoreDNS.Image).To(Equal("mirror.example.com/coredns:v1"))

			without := objects(t, "here", values())
			g.Expect(find[corev1.ConfigMap](t, without, "ConfigMap", name+"-config").Data).NotTo(HaveKey("images_overwrite.yaml"))
			for _, variable := range find[appsv1.Deployment](t, without, "Deployment", name).Spec.Template.Spec.Containers[0].Env {
				g.Expect(variable.Name).NotTo(Equal("IMAGEVECTOR_OVERWRITE"))
			}
		})
	}
}
