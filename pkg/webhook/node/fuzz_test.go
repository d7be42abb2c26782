// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
	"github.com/gardener/gardener-extension-provider-local/test/limitstest"
)

func FuzzHandle(f *testing.F) {
	e := newEnvironment(f, shootCluster(f, "4"))
	request := statusUpdate("").AdmissionRequest
	seeds := []any{nodeOf("small", measured, allocatable), nodeOf("small", `null`, `{"cpu":[]}`)}
	for _, quantity := range limitstest.Quantities() {
		seeds = append(seeds,
			nodeOf("small", `{"cpu":`+quantity+`}`, `{"cpu":"1"}`),
			nodeOf("small", `{"cpu":"1","memory":"1Gi"}`, `{"cpu":`+quantity+`,"memory":`+quantity+`,"pods":`+quantity+`}`))
	}
	limitstest.Fuzz(f, admission.HandlerFunc(func(ctx context.Context, request admission.Request) admission.Response {
		return e.shoot.Handler.Handle(webhook.WithShootNamespace(ctx, shootNamespace), request)
	}), request, seeds...)
}

func TestQuantitiesThatTakeHoursAreOverwritten(t *testing.T) {
	e := newEnvironment(t, shootCluster(t, "4"))
	for _, quantity := range limitstest.Quantities() {
		got := e.ask(t, nodeOf("small", `{"cpu":`+quantity+`,"memory":"16Gi"}`, `{"cpu":"1","memory":"15Gi"}`))
		NewWithT(t).Expect(got).To(Equal(map[string]any{
			"/status/capacity/cpu": "4", "/status/capacity/memory": "8Gi", "/status/allocatable/cpu": "4", "/status/allocatable/memory": "7Gi",
		}))
	}
}
