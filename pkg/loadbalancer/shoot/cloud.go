// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	cloudprovider "k8s.io/cloud-provider"
)

// Initialize has nothing to do: informers and clients are there.
func (b *Balancer) Initialize(cloudprovider.ControllerClientBuilder, <-chan struct{}) {}

// LoadBalancer returns the Balancer itself.
func (b *Balancer) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return b, true }

// Instances is not supported: machines are machine-controller-manager's work.
func (b *Balancer) Instances() (cloudprovider.Instances, bool) { return nil, false }

// InstancesV2 is not supported for the same reason.
func (b *Balancer) InstancesV2() (cloudprovider.InstancesV2, bool) { return nil, false }

// Zones is not supported.
func (b *Balancer) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters is not supported.
func (b *Balancer) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// Routes is not supported: the network plugin of the shoot sees to its own.
func (b *Balancer) Routes() (cloudprovider.Routes, bool) { return nil, false }

// ProviderName returns local.
func (b *Balancer) ProviderName() string { return providerName }

// HasClusterID returns true: the namespace in the seed is the cluster's alone.
func (b *Balancer) HasClusterID() bool { return true }
