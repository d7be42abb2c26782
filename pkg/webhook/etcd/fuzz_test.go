// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package etcd_test

import (
	"testing"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits/limitstest"
)

const druids = `"metadata":{"name":"a","labels":{"app.kubernetes.io/managed-by":"etcd-druid"}}`

func FuzzHandleStatefulSet(f *testing.F) {
	good := rendered(f, "statefulset").Object
	seeds := []any{good}
	for _, spec := range append(limitstest.PodSpecs(), limitstest.ManyContainers(3000, 5000)) {
		seeds = append(seeds, `{"apiVersion":"apps/v1","kind":"StatefulSet",`+druids+`,"spec":{"template":{"spec":`+spec+`}}}`)
	}
	for _, quantity := range limitstest.Quantities() {
		seeds = append(seeds, `{"apiVersion":"apps/v1","kind":"StatefulSet",`+druids+`,"spec":{"volumeClaimTemplates":[{"spec":{"resources":{"requests":{"storage":`+quantity+`}}}}]}}`)
	}
	limitstest.Fuzz(f, newWebhook(f).Webhook.Handler, limitstest.About(good), seeds...)
}

func FuzzHandleJob(f *testing.F) {
	good := rendered(f, "copy-job").Object
	seeds := []any{good}
	for _, spec := range limitstest.PodSpecs() {
		seeds = append(seeds, `{"apiVersion":"batch/v1","kind":"Job",`+druids+`,"spec":{"template":{"spec":`+spec+`}}}`)
	}
	limitstest.Fuzz(f, newWebhook(f).Webhook.Handler, limitstest.About(good), seeds...)
}
