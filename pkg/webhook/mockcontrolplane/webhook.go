// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package mockcontrolplane lets the kube-apiservers of mock shoots reach the fake kubelet (package kubelet of pkg/mock/nodes).
// gardenlet starts them for shoots with machines: they call a kubelet through a VPN that no fake Node opens, at the Node's own
// address, and verify a certificate of the shoot. gardenlet's check of the tunnel, which is a port-forward to the pod vpn-shoot,
// would never succeed.
package mockcontrolplane

import (
	"context"

	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	"github.com/gardener/gardener-extension-provider-local/pkg/mock"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/controlplane"
)

const (
	// Name is the name of the webhook and the path below which it is served.
	Name = "mockcontrolplane"

	// flagAddressTypes sets the order in which a Node's addresses are called.
	flagAddressTypes = "--kubelet-preferred-address-types="
	addressTypes     = "ExternalDNS,InternalIP,Hostname,ExternalIP"
)

// New returns the webhook for the Deployments kube-apiserver in the namespaces of shoots of provider type mock. Its failure policy
// is Fail, as a kube-apiserver that starts with the wrong flags is rolled once more later; only these shoots wait for it. The
// manager's scheme must know Deployments.
func New(mgr manager.Manager) (*extensionswebhook.Webhook, error) {
	webhook, err := controlplane.NewFor(mgr, mock.Type, []extensionswebhook.Type{{Obj: &appsv1.Deployment{}}}, &mutator{}, &appsv1.Deployment{})
	if err != nil {
		return nil, err
	}
	webhook.Name, webhook.Path = Name, Name
	return webhook, nil
}

type mutator struct{}

// Mutate implements extensionswebhook.Mutator.
func (m *mutator) Mutate(_ context.Context, obj, _ client.Object) error {
	deployment, ok := obj.(*appsv1.Deployment)
	if !ok || deployment.Name != v1beta1constants.DeploymentNameKubeAPIServer || deployment.DeletionTimestamp != nil {
		return nil
	}
	container := extensionswebhook.ContainerWithName(deployment.Spec.Template.Spec.Containers, v1beta1constants.DeploymentNameKubeAPIServer)
	if container == nil {
		return nil
	}
	container.Command, container.Args = changed(container.Command), changed(container.Args)
	return nil
}

// changed returns the flags without those that keep a kube-apiserver from the fake kubelet: the way through the VPN, which is also
// the way to webhooks and aggregated APIs inside the shoot, where nothing answers anyway; and the CA of kubelets. Without an order
// of addresses, the kube-apiserver does not call kubelets.
func changed(flags []string) []string {
	flags = extensionswebhook.EnsureNoStringWithPrefix(flags, "--egress-selector-config-file=")
	flags = extensionswebhook.EnsureNoStringWithPrefix(flags, "--kubelet-certificate-authority=")
	if extensionswebhook.StringWithPrefixIndex(flags, flagAddressTypes) >= 0 {
		flags = extensionswebhook.EnsureStringWithPrefix(flags, flagAddressTypes, addressTypes)
	}
	return flags
}
