// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package ingress

import (
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// CacheOptions returns how a manager has to cache Ingresses: without anything but their names, class, hosts and addresses.
// Services and Namespaces are cached as package coredns says, as both need them.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{&networkingv1.Ingress{}: {Transform: stripIngress}}
}

func stripIngress(object any) (any, error) {
	ingress, ok := object.(*networkingv1.Ingress)
	if !ok {
		return object, nil
	}
	stripped := &networkingv1.Ingress{
		TypeMeta: ingress.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: ingress.Namespace, Name: ingress.Name, UID: ingress.UID, ResourceVersion: ingress.ResourceVersion,
			Generation: ingress.Generation, DeletionTimestamp: ingress.DeletionTimestamp,
		},
		Spec:   networkingv1.IngressSpec{IngressClassName: ingress.Spec.IngressClassName},
		Status: ingress.Status,
	}
	for _, rule := range ingress.Spec.Rules {
		stripped.Spec.Rules = append(stripped.Spec.Rules, networkingv1.IngressRule{Host: rule.Host})
	}
	return stripped, nil
}
