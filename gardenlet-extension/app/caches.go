// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/backupbucket"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/bastion"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/healthcheck"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
)

// caches says what the instance caches, beside all extension objects, Clusters, Namespaces, Ingresses and machines: only some
// objects, and of them only some fields. As each kind has one cache for all controllers, no two of these may be about the same kind.
func caches(config *configv1alpha1.ExtensionConfiguration) map[client.Object]cache.ByObject {
	coreDNS := config.DNS.CoreDNS.Namespace
	// Services of type LoadBalancer, and all of CoreDNS' namespace, as the webhook dnsConfig reads the address of CoreDNS;
	// ConfigMaps and EndpointSlices of CoreDNS.
	byObject := coredns.CacheOptions(coreDNS, coreDNS)
	maps.Copy(byObject, healthcheck.CacheOptions())  // Deployments machine-controller-manager, ManagedResources
	maps.Copy(byObject, bastion.CacheOptions())      // Pods of bastions
	maps.Copy(byObject, backupbucket.CacheOptions()) // Secrets that are generated for BackupBuckets
	return byObject
}

// uncached are further kinds that are read past the cache, as it has only some of their objects or fields.
func uncached() []client.Object { return []client.Object{&appsv1.Deployment{}, &corev1.Pod{}} }
