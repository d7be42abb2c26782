// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"maps"

	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/backupbucket"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
)

// caches says what the instance caches, beside all BackupBuckets, BackupEntries, DNSRecords and Extensions: of Services, ConfigMaps
// and EndpointSlices what CoreDNS and load balancers need, of Namespaces the metadata, which tell load balancers of a seed that is gone, of Secrets those that are generated for BackupBuckets, and the ManagedResources in the
// garden's namespace, as the instance deploys there and may not look at others.
func caches(config *configv1alpha1.ExtensionConfiguration) map[client.Object]cache.ByObject {
	byObject := coredns.CacheOptions(config.DNS.CoreDNS.Namespace)
	maps.Copy(byObject, backupbucket.CacheOptions())
	byObject[&resourcesv1alpha1.ManagedResource{}] = cache.ByObject{Namespaces: map[string]cache.Config{v1beta1constants.GardenNamespace: {}}}
	return byObject
}
