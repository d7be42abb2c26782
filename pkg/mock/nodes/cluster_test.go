// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package nodes

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// encoded is testCluster as it is in a seed.
func encoded(t *testing.T, name string) *extensionsv1alpha1.Cluster {
	t.Helper()
	decoded := testCluster()
	decoded.Shoot.SetGroupVersionKind(gardencorev1beta1.SchemeGroupVersion.WithKind("Shoot"))
	decoded.CloudProfile.SetGroupVersionKind(gardencorev1beta1.SchemeGroupVersion.WithKind("CloudProfile"))
	raw := func(obj any) runtime.RawExtension {
		text, err := json.Marshal(obj)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		return runtime.RawExtension{Raw: text}
	}
	return &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       extensionsv1alpha1.ClusterSpec{CloudProfile: raw(decoded.CloudProfile), Shoot: raw(decoded.Shoot)},
	}
}
