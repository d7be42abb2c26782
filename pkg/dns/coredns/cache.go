// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CacheOptions returns how a manager has to cache what a Provider reads, so that the cache holds just that: of all
// Services those of type LoadBalancer, and the ConfigMaps and EndpointSlices of CoreDNS' namespace. The manager can read
// no others of these kinds from its cache, so other readers of them need a client that bypasses it. Namespaces, of which
// a Provider reads the zones, are all cached: the extension library asks of any whether it is one of a shoot.
func CacheOptions(namespace string) map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Service{}: {
			Field:     fields.OneTermEqualSelector("spec.type", string(corev1.ServiceTypeLoadBalancer)),
			Transform: stripService,
		},
		&corev1.ConfigMap{}: {
			Namespaces: map[string]cache.Config{namespace: {LabelSelector: labels.SelectorFromSet(labels.Set{LabelConfig: "true"})}},
		},
		&discoveryv1.EndpointSlice{}: {
			Namespaces: map[string]cache.Config{namespace: {LabelSelector: labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: ServiceName})}},
		},
	}
}

// stripService leaves of a Service what makes it a gateway, and what the controller for Services of type LoadBalancer goes
// by. What is left must not be written back as a whole: writers send patches of single fields.
func stripService(object any) (any, error) {
	service, ok := object.(*corev1.Service)
	if !ok {
		return object, nil
	}
	spec := service.Spec
	return &corev1.Service{
		TypeMeta: service.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: service.Namespace, Name: service.Name, UID: service.UID, ResourceVersion: service.ResourceVersion,
			Generation: service.Generation, CreationTimestamp: service.CreationTimestamp, DeletionTimestamp: service.DeletionTimestamp,
		},
		Spec: corev1.ServiceSpec{
			Type: spec.Type, ClusterIPs: spec.ClusterIPs, IPFamilies: spec.IPFamilies, IPFamilyPolicy: spec.IPFamilyPolicy, Ports: spec.Ports,
			LoadBalancerClass: spec.LoadBalancerClass, LoadBalancerIP: spec.LoadBalancerIP,
			AllocateLoadBalancerNodePorts: spec.AllocateLoadBalancerNodePorts,
			ExternalTrafficPolicy:         spec.ExternalTrafficPolicy, HealthCheckNodePort: spec.HealthCheckNodePort,
		},
		Status: service.Status,
	}, nil
}
