// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package nodes makes the fake Nodes of Workers of type mock, and has the pods on them run, so that a shoot with workers
// becomes healthy without machines (docs/usage/mock-nodes.md). The controllers of package mock say what is wanted by Apply and
// Delete of a Fleet, which is a runnable of their manager.
//
// # What there is
//
// For each pool and zone as many Nodes as the share of the pool's minimum, as there is no cluster-autoscaler that would ask for
// more. They are created Ready, each with one request, as a kubelet does it. Nodes are replaced for what Gardener replaces
// machines for, within maxSurge and maxUnavailable; what else changes is brought to those that there are. Nodes that
// somebody deletes come back.
//
// gardenlet asks more of a Node than that it is Ready; docs/usage/mock-nodes.md has the list. Of note here: the annotation
// node.machine.sapcloud.io/not-managed-by-mcm, with which neither Machines nor a lease of gardener-node-agent are expected; and
// the checksum of the operating system config, which is taken from the Secret in the shoot as soon as that is there or changes.
//
// Pods that are bound to these Nodes run, become ready, complete if they are of a Job, and go at once when they are
// deleted. nextStage says what becomes of a pod next, isAsWanted when a Node needs another status. Delays are counted from
// times in the objects, so nothing is remembered for them.
//
// # Cheap
//
// Per shoot there are three caches, of our Nodes, of bound pods, and of the operating system configs, without what is
// not needed of them; one queue in front of a fixed number of workers; and another one for Leases, in which each waits for its
// next renewal: one timer for all, and one update for each renewal. Requests are limited by the number of workers, not by rate.
//
// Leases are renewed every 20 seconds rather than 10, as a kubelet would: with a duration of 40 seconds each may fail once, and
// thousands of Nodes cost half as much.
//
// # Addresses
//
// A pod has an address from each range of its Node (spec.podCIDRs, which kube-controller-manager assigns), those on Nodes
// without one from 198.18.0.0/16; Nodes have theirs from the shoot's spec.networking.nodes, or 198.19.0.0/16. No two have
// the same. Those in use are learned from the objects in the caches.
//
// # Restart
//
// A Fleet keeps nothing on disk, and finds its Nodes by a label. When the program starts, the controller for Workers of package mock
// looks at all Workers, and calls Apply for those that were reconciled before. As one queue serves a Worker, that never overtakes
// its deletion, migration or hibernation.
//
// # Why not kwok's library
//
// kwok (sigs.k8s.io/kwok v0.8.0) is the model, and is not imported. Its controllers make no Nodes: somebody has to, so that each
// takes a second request to become Ready, and pools, their replacement and what Gardener wants of a Node would be ours
// all the same. What could be shared is its engine for stages: 42 further packages in the program, and a run of jq for each
// expression and each event, for what are two functions here.
package nodes
