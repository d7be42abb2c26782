// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package nodes creates the fake Nodes of Workers of type mock, and lets the pods on them run, so that a shoot with workers
// becomes healthy without machines (docs/usage/mock-nodes.md). The controllers of package mock call Apply and Delete of a Fleet,
// which is a runnable of their manager.
//
// # Nodes and pods
//
// Each pool and zone has as many Nodes as its share of the pool's minimum, as there is no cluster-autoscaler that would ask for
// more. They are created Ready, each with one request, as a kubelet does. Nodes are replaced when Gardener would replace machines,
// within maxSurge and maxUnavailable; other changes are applied to existing Nodes. Deleted Nodes are created again.
//
// gardenlet does not only check that a Node is Ready; docs/usage/mock-nodes.md has the list. With the annotation
// node.machine.sapcloud.io/not-managed-by-mcm it expects neither Machines nor a lease of gardener-node-agent. The checksum of the
// operating system config comes from the Secret in the shoot, as soon as that exists or changes.
//
// Pods that are bound to these Nodes run, become ready, complete if they are of a Job, and disappear at once when they are
// deleted. nextStage decides the next step of a pod, and isAsWanted whether a Node needs another status. Delays are counted from
// times in the objects, so nothing has to be remembered for them.
//
// # Cost
//
// A shoot has three caches: of its fake Nodes, of bound pods, and of the operating system configs, without fields that are not
// needed. One queue is served by a fixed number of workers. Another one is for Leases: each waits in it for its next renewal, which
// is one request. The number of workers limits requests, and the rate only where a shoot undoes them.
//
// Leases are renewed every 20 seconds, not every 10 as by a kubelet: with a duration of 40 seconds one renewal may fail, and
// thousands of Nodes cost half as much.
//
// # Addresses
//
// A pod has an address from each range of its Node (spec.podCIDRs, which kube-controller-manager assigns), or from 198.18.0.0/16 if
// the Node has no range. Nodes have theirs from the shoot's spec.networking.nodes, or from 198.19.0.0/16. All addresses are
// different. Those in use are learned from the objects in the caches.
//
// # Restart
//
// A Fleet keeps nothing on disk, and finds its Nodes by a label. When the program starts, the controller for Workers of package mock
// looks at all Workers, and calls Apply for those that were reconciled before. As one queue serves a Worker, that never overtakes
// its deletion, migration or hibernation.
//
// # Why not kwok's library
//
// kwok (sigs.k8s.io/kwok v0.8.0) is the model, and is not imported. Its controllers create no Nodes, so each Node would take a
// second request to become Ready, and pools, their rollout and what Gardener checks would remain to be written here. Its engine for
// stages could be shared: that is 42 further packages in the program, and a run of jq for each expression and each event, in place
// of two functions.
package nodes
