// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package bastion holds the controller for Bastions of type local, which gardenlet-extension adds for class shoot. A
// Bastion is a host that lets people reach the machines of a shoot by SSH. It is a pod of the CloudProfile's machine image
// beside the machines, that is, in the shoot's namespace of the seed or in the cluster of the shoot's credentials. Four
// objects of one name are all there is:
//   - a Secret with the user data, which lets the owner of a key in;
//   - a Pod;
//   - a Service of type LoadBalancer with the ranges of spec.ingress, which gives it an address that answers;
//   - a NetworkPolicy: SSH from the ranges of spec.ingress, SSH to machines, DNS, and nothing else.
//
// The ranges stand in two places because each has a gap that the other fills: not every cluster enforces NetworkPolicies,
// and the ranges of a Service hold for its address only, not for that of the pod.
//
// No worker is held: watches on the Pods and Services of the seed wake a Bastion. There are none on other clusters, so a
// Bastion there is looked at again after a few seconds as long as an operation is under way.
package bastion
