// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"strings"

	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
)

const (
	// seedGateways is the namespace of a seed's gateway, gardenGateways that of the virtual garden's.
	seedGateways   = v1beta1constants.DefaultSNIIngressNamespace
	gardenGateways = "virtual-garden-" + v1beta1constants.DefaultSNIIngressNamespace
	// ingressController is the name of the Service of Gardener's Ingress controller.
	ingressController = "nginx-ingress-controller"
)

// watchesNamespaces reports whether there are namespaces with a zone of their own: those of the control planes of shoots.
// They are watched as a whole, as the extension library watches them anyway; a second informer, for what is needed of
// them, would not save anything.
func (p *Provider) watchesNamespaces() bool {
	_, ok := p.Classes.Only(extensionsv1alpha1.ExtensionClassShoot)
	return ok
}

// gatewayNamespace is where the gateway is that no zone has to itself.
func (p *Provider) gatewayNamespace() string {
	if _, ok := p.Classes.Only(extensionsv1alpha1.ExtensionClassShoot, extensionsv1alpha1.ExtensionClassSeed); ok {
		return seedGateways
	}
	return gardenGateways
}

// namespaceChanged renders the names of a namespace again if its control plane is in another zone now.
func (p *Provider) namespaceChanged(object any, deleted bool) {
	namespace, ok := unwrap(object)
	if !ok {
		return
	}
	zone := ""
	if !deleted {
		zone = singleZone(namespace)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gateways.setZone(namespace.GetName(), zone) {
		p.enqueue(p.desired.namesIn(namespace.GetName()))
	}
}

// singleZone returns the zone of a control plane that is in just one, or an empty text. As gardenlet exposes it, a
// control plane in one zone is behind the gateway of that zone, any other behind the one of all zones.
func singleZone(namespace client.Object) string {
	single := ""
	for zone := range strings.SplitSeq(namespace.GetAnnotations()[resourcesv1alpha1.HighAvailabilityConfigZones], ",") {
		switch {
		case zone == "" || zone == single:
		case single != "":
			return ""
		default:
			single = zone
		}
	}
	return single
}
