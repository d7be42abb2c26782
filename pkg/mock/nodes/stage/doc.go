// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package stage reads how objects pass from one state to the next, and says which passage an object is to take. It knows
// nothing of Kubernetes but the shape of its objects: package nodes hands it Nodes and pods, and carries out what it says.
//
// The stages are data, in the manner of the Stage of kwok (https://kwok.sigs.k8s.io/docs/user/stages-configuration): a
// list in YAML, each with the kind of object it is for, a selector, a delay with jitter, and what comes next. Two things are
// different. Of several stages that select an object the first in the list is taken, by no weight and no chance, so
// that the file reads from top to bottom. And expressions are paths rather than jq, as simple as these stages need:
//
//	.status.phase                               a field
//	.metadata.annotations["example.org/key"]    a key that is no identifier
//	.metadata.ownerReferences[].kind            a field of every element
//	.status.conditions[type=Ready].status       a field of the elements with a given value in another one
package stage
