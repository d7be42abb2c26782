// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package common_test

import (
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
)

// managerWith has a client and nothing else.
type managerWith struct {
	manager.Manager
	client client.Client
}

func (m managerWith) GetClient() client.Client { return m.client }

func TestShootPredicatesLoseNothingThatTheyCannotTellOf(t *testing.T) {
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())
	cluster := func(name, lastOperation string) *extensionsv1alpha1.Cluster {
		shoot := `{"apiVersion": "core.gardener.cloud/v1beta1", "kind": "Shoot", "metadata": {"generation": 1}, "status": {"observedGeneration": 1` + lastOperation + `}}`
		return &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Raw: []byte(shoot)}}}
	}
	broken := cluster("broken", "")
	broken.Spec.Shoot.Raw = []byte(`{"apiVersion": "v1", "kind": "Secret"}`)
	mgr := managerWith{client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		cluster("fine", ""), cluster("failed", `, "lastOperation": {"state": "Failed", "type": "Reconcile"}`), broken).Build()}

	for namespace, passes := range map[string]bool{"fine": true, "failed": false, "broken": true, "without": true} {
		t.Run(namespace, func(t *testing.T) {
			g := NewWithT(t)
			obj := &extensionsv1alpha1.Worker{ObjectMeta: metav1.ObjectMeta{
				Namespace: namespace, Name: "one", Annotations: map[string]string{"gardener.cloud/operation": "reconcile"},
			}}
			all := predicate.And(common.ShootPredicates(mgr, false)...)
			g.Expect(all.Create(event.CreateEvent{Object: obj})).To(Equal(passes))
			g.Expect(all.Update(event.UpdateEvent{ObjectOld: &extensionsv1alpha1.Worker{}, ObjectNew: obj})).To(Equal(passes))
		})
	}
}
