// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package shoot serves the Services of type LoadBalancer of one shoot. For each, it creates a Service of type LoadBalancer
// without a selector in the namespace of the shoot's machines in the seed, and EndpointSlices that lead to the node ports
// of the machines. There is no proxy: the seed's Service gets an address from the seed (pkg/controller/service in a local
// landscape), and kube-proxy of the seed's nodes forwards packets. The command cloud-controller of gardenlet-extension
// runs it.
//
// One controller reconciles the shoot's Services. It takes finalizer and Events over from the service controller of
// k8s.io/cloud-provider. That one calls a cloud's API and so watches neither the readiness of Nodes, nor where the endpoints
// of a Service are, nor what happens in the seed; this one watches all of it and needs no polling. It reads from caches, so
// an unchanged Service costs no request.
//
// The seed is trusted. The shoot is not, since its users may write anything there. So packets are only sent to an
// address that both the Node claims and the pod of that machine has, which the seed's kubelet writes: otherwise, whoever can
// edit a Node could redirect traffic of the seed to anything that the seed can reach. Names in the seed derive from UIDs. Of a
// Service, only fields that the seed's API server validates are copied, and neither annotations nor labels.
package shoot
