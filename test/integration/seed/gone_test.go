// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package seed_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener/extensions/pkg/controller/bastion"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
)

// objectsOf are one of each kind that the instance serves for a shoot.
func objectsOf(namespace string) []extensionsv1alpha1.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: "gone"}
	taken := *meta.DeepCopy()
	taken.Finalizers = []string{bastion.FinalizerName}
	spec := extensionsv1alpha1.DefaultSpec{Type: "local"}
	secretRef := corev1.SecretReference{Namespace: namespace, Name: "cloudprovider"}
	return []extensionsv1alpha1.Object{
		&extensionsv1alpha1.BackupEntry{ObjectMeta: metav1.ObjectMeta{Name: namespace + "--uid"}, Spec: extensionsv1alpha1.BackupEntrySpec{
			DefaultSpec: spec, Region: "local", BucketName: "gone", SecretRef: corev1.SecretReference{Namespace: gardenNamespace, Name: "backup"},
		}},
		// Taken up when the CloudProfile had machines for it.
		&extensionsv1alpha1.Bastion{ObjectMeta: taken, Spec: extensionsv1alpha1.BastionSpec{
			DefaultSpec: spec, UserData: []byte("#!/bin/bash"), Ingress: []extensionsv1alpha1.BastionIngressPolicy{},
		}},
		newControlPlane(namespace),
		newExtension(namespace, "local-ext-seed"),
		newExtension(namespace, "local-ext-shoot"),
		newExtension(namespace, "local-ext-shoot-after-worker"),
		&extensionsv1alpha1.Infrastructure{ObjectMeta: meta, Spec: extensionsv1alpha1.InfrastructureSpec{
			DefaultSpec: spec, Region: "local", SecretRef: secretRef,
		}},
		&extensionsv1alpha1.OperatingSystemConfig{ObjectMeta: meta, Spec: extensionsv1alpha1.OperatingSystemConfigSpec{
			DefaultSpec: spec, Purpose: extensionsv1alpha1.OperatingSystemConfigPurposeReconcile,
		}},
		&extensionsv1alpha1.Worker{ObjectMeta: meta, Spec: extensionsv1alpha1.WorkerSpec{
			DefaultSpec: spec, Region: "local", SecretRef: secretRef,
			Pools: []extensionsv1alpha1.WorkerPool{{
				Name: "small", MachineType: "small", Minimum: 1, Maximum: 1, MaxSurge: intstr.FromInt32(1), MaxUnavailable: intstr.FromInt32(0),
				MachineImage:      extensionsv1alpha1.MachineImage{Name: "local", Version: "1.0.0"},
				UserDataSecretRef: corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "user-data"}, Key: "cloud_config"},
			}},
		}},
	}
}

var _ = Describe("The objects of a shoot whose Cluster is gone", func() {
	for name, annotations := range map[string]map[string]string{
		"are deleted":          nil,
		"are deleted by force": {"confirmation.gardener.cloud/force-deletion": "true"},
	} {
		It(name, func(ctx SpecContext) {
			namespace := "shoot--local--gone"
			if annotations != nil {
				namespace += "-by-force"
			}
			createShoot(ctx, namespace)
			objects := objectsOf(namespace)
			for _, obj := range objects {
				obj.SetAnnotations(annotations)
				Expect(seed.Create(ctx, obj)).To(Succeed())
			}
			for _, obj := range objects {
				Eventually(get(ctx, seed, obj)).Should(HaveField("GetFinalizers()", Not(BeEmpty())), "%T %s is taken up", obj, obj.GetName())
			}
			Expect(seed.Delete(ctx, &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())

			for _, obj := range objects {
				Expect(seed.Delete(ctx, obj)).To(Succeed())
			}
			for _, obj := range objects {
				Eventually(isGone(ctx, seed, obj)).Should(BeTrue(), "%T %s goes", obj, obj.GetName())
			}
			for list, expected := range map[client.ObjectList]types.GomegaMatcher{
				&corev1.SecretList{}:                     HaveField("Items", ConsistOf(HaveField("Name", "cloudprovider"))),
				&resourcesv1alpha1.ManagedResourceList{}: HaveField("Items", BeEmpty()),
			} {
				Expect(seed.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
				Expect(list).To(expected)
			}
		})
	}
})
