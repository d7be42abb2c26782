// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package probe is what the end-to-end tests of a seed's network put into pods, as there is no image of others in a landscape
// without a registry on the internet.
//
// A Server stands in for istio-ingressgateway and for nginx-ingress-controller: it takes in connections like them and tells
// who it is, so that a test sees where a name, an address or a node port leads. What the real ones do with a request
// (routing by SNI, by the rules of an Ingress) it does not. An Agent asks for names and addresses on behalf of a test, from
// inside of a pod. The program is in cmd, and uses nothing but Go's standard library: its resolver is the one that most
// programs of Gardener have.
package probe
