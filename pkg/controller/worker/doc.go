// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package worker holds the controller for Workers of type local, which gardenlet-extension adds for class shoot. It makes
// a MachineClass, its Secret with the user data, and a MachineDeployment for each pool and zone;
// machine-controller-manager and the machine driver beside it make machines of these. See Gardener's documents on the
// Worker resource and its generic actuator.
//
// # No worker is held
//
// Gardener's generic actuator asks every five seconds, up to five minutes long, whether the machines are there, and holds
// one of the controller's workers meanwhile. Here each attempt takes the same steps, in the same order and with the same
// decisions about replicas, but asks once. As long as something is awaited lastOperation is Processing and names it, and
// watches on MachineDeployments, MachineSets, Machines and MachineClasses wake the Worker. What has taken five minutes
// becomes an error, as it does there; but the Worker is still woken. The status is written once per attempt that has
// something new to say, and the first seconds of a deletion are not worth saying.
//
// Only Reconcile and Delete differ. A restoration is the library's genericactuator.RestoreWithoutReconcile with our
// delegate, and a migration is nothing, as it is there. The generic Reconcile and Delete cannot be had without their
// waits: these are in the middle, behind no interface, and what comes after them has to wait for them.
//
// In these points this is not what the generic actuator does:
//   - Classes and their Secrets are deleted when the last machine is gone, not before: they have what it takes to delete a
//     machine. MachineSets and Machines that belong to no MachineDeployment, as an interrupted restoration leaves them,
//     are deleted, too.
//   - A Worker whose pools cannot be rendered can be deleted nevertheless, and one that never had a machine needs neither
//     credentials nor a running machine-controller-manager for it.
//   - A restoration that is tried again does not bring machines back that machine-controller-manager has replaced.
//   - A forced deletion takes finalizers off and deletes the pods of machines, where the generic one leaves all as it is.
//
// # What rolls machines
//
// The name of a MachineClass has a hash; a new name replaces machines. Into the hash go
//   - pool.nodeAgentSecretName, for which Gardener hashes the Kubernetes minor version, the machine type, name and version
//     of the machine image, the volume, the kubelet configuration and the rotations of credentials;
//   - the requests and limits of the machine pod. So a machine type whose size a CloudProfile changes and another
//     sizing roll; another notation of the same size does not;
//   - the namespace of the machines if it is in another cluster than the seed: those that there are can only be found, and
//     deleted, with the class they were made with.
//
// Nothing else does: not labels, annotations, taints, minimum and maximum, surge, priority, timeouts, the
// autoscaler's options, the user data, the IP pools, nor another reference to the container image of the same version.
// New machines have them, and machine-controller-manager brings labels, annotations and taints to those there are.
//
// For pools that are updated in place the hash is the library's alone (worker.WorkerPoolHashInPlace), without the requests
// and limits or the namespace: a new class starts an update on the machine, which cannot change the pod.
// Machines that would have to move to another cluster are a configuration problem there.
package worker
