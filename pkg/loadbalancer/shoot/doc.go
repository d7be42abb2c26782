// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package shoot serves the Services of type LoadBalancer of one shoot by the seed's own: for each there is, in the
// namespace of the shoot's machines, a Service of type LoadBalancer without a selector, and EndpointSlices that lead to the
// node ports of the machines. There is no proxy: the seed's Service gets an address from whoever serves those of the seed
// (pkg/controller/service, in a local landscape), and kube-proxy of the seed's nodes sends on what arrives there. The
// command cloud-controller of gardenlet-extension runs it.
//
// Two controllers work on it:
//   - the service controller of k8s.io/cloud-provider, as in any cloud-controller-manager. It sees to the finalizer, the
//     Events and the status of the shoot's Services, and calls a Balancer, which implements its interface LoadBalancer;
//   - the follower, for what that one does not look at. It passes over whether Nodes are ready (since version 1.27 it leaves
//     that to health checks), where the endpoints of a Service are (also left to health checks) and whether somebody has
//     changed or deleted what is in the seed; of Nodes, it hears nothing here. The follower watches all of this and calls the same Balancer. If an address has
//     changed, it has the service controller look at the Service by repeating the event of its informer, so that each
//     thing in the shoot has one writer and no object is touched for that.
//
// Both read from informers alone: what has not changed costs no request, and nothing is polled.
//
// What is in the seed is trusted, what is in the shoot is not, as its users may write anything there. So an address is only
// sent to if both the Node says it is its own and the pod of that machine, which the seed's kubelet writes about, has it:
// else whoever can edit a Node could have the seed send traffic to anything that the seed can reach. Of a Service, only
// fields that the seed's API server checks are taken over; annotations and labels are not.
package shoot
