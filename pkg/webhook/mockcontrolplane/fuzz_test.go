// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mockcontrolplane

import (
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener-extension-provider-local/test/limitstest"
)

// fakeManager is as much of a manager as New asks for.
type fakeManager struct {
	manager.Manager
}

func (fakeManager) GetScheme() *runtime.Scheme { return kubernetesscheme.Scheme }
func (fakeManager) GetClient() client.Client   { return nil }

func FuzzHandle(f *testing.F) {
	webhook, err := New(fakeManager{})
	NewWithT(f).Expect(err).NotTo(HaveOccurred())

	good := deployment("kube-apiserver", "--kubelet-preferred-address-types=InternalIP", "--egress-selector-config-file=/a")
	good.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	seeds := []any{good}
	for _, spec := range limitstest.PodSpecs() {
		seeds = append(seeds, `{"apiVersion":"apps/v1","kind":"Deployment","metadata":{"name":"kube-apiserver"},"spec":{"template":{"spec":`+spec+`}}}`)
	}
	limitstest.Fuzz(f, webhook.Webhook.Handler, limitstest.About(good), seeds...)
}
