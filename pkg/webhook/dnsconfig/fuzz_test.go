// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsconfig

import (
	"testing"

	"github.com/gardener/gardener-extension-provider-local/test/limitstest"
)

func FuzzHandleMachine(f *testing.F) {
	seeds := []any{machine()}
	for _, spec := range limitstest.PodSpecs() {
		seeds = append(seeds, `{"apiVersion":"v1","kind":"Pod","spec":`+spec+`}`)
	}
	limitstest.Fuzz(f, made(f, mutatorWith(service(addressIPv4)))["dnsconfig-machines"].Webhook.Handler, limitstest.About(machine()), seeds...)
}

func FuzzHandleDeployment(f *testing.F) {
	seeds := []any{prober(), exporter("garden")}
	for _, spec := range limitstest.PodSpecs() {
		seeds = append(seeds, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"dependency-watchdog-prober"},"spec":{"template":{"spec":`+spec+`}}}`)
	}
	limitstest.Fuzz(f, made(f, mutatorWith(service(addressIPv4)))["dnsconfig-garden"].Webhook.Handler, limitstest.About(prober()), seeds...)
}
