// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig"
	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
	machinecontroller "github.com/gardener/machine-controller-manager/pkg/util/provider/machinecontroller"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// provision makes the OperatingSystemConfig that a new machine of a pool runs once, and returns what Gardener's Worker
// component wants to know of it.
func (s *shoot) provision(ctx context.Context, pool string) *operatingsystemconfig.OperatingSystemConfigs {
	GinkgoHelper()
	osc := &extensionsv1alpha1.OperatingSystemConfig{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "gardener-node-init-" + pool,
			Labels: map[string]string{
				v1beta1constants.LabelExtensionProviderMutatedByControlplaneWebhook: "true",
				v1beta1constants.LabelWorkerPool:                                    pool,
			},
			Annotations: map[string]string{v1beta1constants.GardenerOperation: v1beta1constants.GardenerOperationReconcile},
		},
		Spec: extensionsv1alpha1.OperatingSystemConfigSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
			Purpose:     extensionsv1alpha1.OperatingSystemConfigPurposeProvision,
			CRIConfig:   &extensionsv1alpha1.CRIConfig{Name: extensionsv1alpha1.CRINameContainerD},
			Units:       nodeUnits(),
			Files:       s.nodeFiles(ctx),
		},
	}
	Expect(l.Client.Create(ctx, osc)).To(Succeed())
	landscape.EventuallySucceeded(ctx, l.Client, osc)
	Expect(osc.Status.CloudConfig).NotTo(BeNil())
	return &operatingsystemconfig.OperatingSystemConfigs{Init: operatingsystemconfig.Data{
		Object: osc, SecretName: &osc.Status.CloudConfig.SecretRef.Name, GardenerNodeAgentSecretName: "gardener-node-agent-" + pool,
	}}
}

// nodeUnits are those that bring the programs of a node, and those that run them.
func nodeUnits() []extensionsv1alpha1.Unit {
	GinkgoHelper()
	units := []extensionsv1alpha1.Unit{{Name: "join.service", Command: new(extensionsv1alpha1.CommandStart), Enable: new(true), Content: new(file("join.service", nil))}}
	for _, name := range []string{"kubelet.service", "kube-proxy.service"} {
		units = append(units, extensionsv1alpha1.Unit{Name: name, Content: new(file(name, nil))})
	}
	return units
}

// nodeFiles configure kubelet, kube-proxy and containerd's network.
func (s *shoot) nodeFiles(ctx context.Context) []extensionsv1alpha1.File {
	GinkgoHelper()
	inline := func(path, content string, mode uint32) extensionsv1alpha1.File {
		return extensionsv1alpha1.File{
			Path: path, Permissions: &mode,
			Content: extensionsv1alpha1.FileContent{Inline: &extensionsv1alpha1.FileContentInline{Data: content}},
		}
	}
	// machine-controller-manager puts the token of each machine in the place of the placeholder, which it has to see.
	bootstrap := inline("/etc/kubernetes/bootstrap.kubeconfig", string(s.kubeconfig(clientcmdv1.AuthInfo{Token: machinecontroller.BootstrapTokenPlaceholder})), 0o600)
	bootstrap.Content.TransmitUnencoded = new(true)
	return []extensionsv1alpha1.File{
		bootstrap,
		inline("/etc/kubernetes/ca.crt", string(s.ca.Data[secretsutils.DataKeyCertificateCA]), 0o644),
		inline("/etc/kubernetes/kubelet.yaml", file("kubelet.yaml", nil), 0o644),
		inline("/etc/kubernetes/kube-proxy.yaml", file("kube-proxy.yaml.tpl", map[string]any{"PodCIDR": podCIDR}), 0o644),
		inline("/etc/kubernetes/kube-proxy.kubeconfig", string(s.proxy), 0o600),
		inline("/etc/cni/net.d/10-e2e.conflist", file("cni.conflist", nil), 0o644),
		inline("/var/lib/e2e/join.sh", file("join.sh.tpl", map[string]any{"Registry": l.Registry(ctx)}), 0o755),
	}
}
