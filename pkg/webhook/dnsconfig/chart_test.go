// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsconfig

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
)

// TestNetworkPolicyLabels ensures that the labels are those that gardener-resource-manager makes of the Service in the
// chart of CoreDNS.
func TestNetworkPolicyLabels(t *testing.T) {
	g := NewWithT(t)
	renderer, err := chart.NewRenderer("v1.36.0")
	g.Expect(err).NotTo(HaveOccurred())
	objects, err := renderer.Render(t.Context(), chart.Embedded(components.FS, components.CoreDNS), chart.Release{Name: "coredns", Namespace: dnsNamespace}, map[string]any{"image": "coredns"})
	g.Expect(err).NotTo(HaveOccurred())
	service := &corev1.Service{}
	for _, obj := range objects {
		if obj.GetObjectKind().GroupVersionKind().Kind == "Service" && obj.GetName() == coredns.ServiceName {
			raw, err := json.Marshal(obj)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(json.Unmarshal(raw, service)).To(Succeed())
		}
	}
	g.Expect(service.Name).To(Equal(coredns.ServiceName))

	var expected []string
	for _, port := range service.Spec.Ports {
		expected = append(expected, fmt.Sprintf("networking.resources.gardener.cloud/to-%s-%s-%s-%s",
			service.Annotations[resourcesv1alpha1.NetworkingPodLabelSelectorNamespaceAlias], service.Name, strings.ToLower(string(port.Protocol)), port.TargetPort.String()))
	}
	g.Expect(networkPolicyLabels()).To(ConsistOf(expected))

	var namespaces []metav1.LabelSelector
	g.Expect(json.Unmarshal([]byte(service.Annotations[resourcesv1alpha1.NetworkingNamespaceSelectors]), &namespaces)).To(Succeed())
	g.Expect(namespaces).To(ConsistOf(
		metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": "garden"}},
		metav1.LabelSelector{MatchLabels: map[string]string{"gardener.cloud/role": "shoot"}},
	))
}
