// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extensioncluster_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
)

var (
	seed         = &gardencorev1beta1.Seed{TypeMeta: typeMeta("Seed"), ObjectMeta: metav1.ObjectMeta{Name: "local"}}
	cloudProfile = &gardencorev1beta1.CloudProfile{TypeMeta: typeMeta("CloudProfile"), ObjectMeta: metav1.ObjectMeta{Name: "local"}}
	shoot        = &gardencorev1beta1.Shoot{
		TypeMeta: typeMeta("Shoot"),
		ObjectMeta: metav1.ObjectMeta{
			Name: "foo", Namespace: "garden-local", Annotations: map[string]string{"confirmation.gardener.cloud/force-deletion": "true"},
		},
		Spec: gardencorev1beta1.ShootSpec{Hibernation: &gardencorev1beta1.Hibernation{Enabled: new(true)}},
	}
)

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: kind}
}

func raw(t *testing.T, obj any) runtime.RawExtension {
	t.Helper()
	data, err := json.Marshal(obj)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return runtime.RawExtension{Raw: data}
}

func builder(t *testing.T) *fake.ClientBuilder {
	t.Helper()
	scheme := runtime.NewScheme()
	NewWithT(t).Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())
	return fake.NewClientBuilder().WithScheme(scheme)
}

func TestGetDecodesWhatIsInTheCluster(t *testing.T) {
	g := NewWithT(t)
	inCluster := raw(t, seed)
	c := builder(t).WithObjects(&extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "shoot--local--foo"},
		Spec:       extensionsv1alpha1.ClusterSpec{CloudProfile: raw(t, cloudProfile), Seed: &inCluster, Shoot: raw(t, shoot)},
	}).Build()

	cluster, err := extensioncluster.Get(t.Context(), c, "shoot--local--foo")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cluster.Shoot()).To(Equal(shoot))
	g.Expect(cluster.Seed()).To(Equal(seed))
	g.Expect(cluster.CloudProfile()).To(Equal(cloudProfile))
	g.Expect(cluster.IsHibernated()).To(BeTrue())
	g.Expect(cluster.NeedsForceDeletion()).To(BeTrue())
}

func TestWhatIsMissingIsNil(t *testing.T) {
	c := builder(t).WithObjects(&extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: "empty"}}).Build()

	for name, get := range map[string]func() (*extensioncluster.Cluster, error){
		"no Cluster for class garden":        func() (*extensioncluster.Cluster, error) { return extensioncluster.Get(t.Context(), c, "garden") },
		"a Cluster without shoot and seed":   func() (*extensioncluster.Cluster, error) { return extensioncluster.Get(t.Context(), c, "empty") },
		"no Cluster from Gardener's library": func() (*extensioncluster.Cluster, error) { return extensioncluster.From(nil), nil },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			cluster, err := get()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(cluster.Shoot()).To(BeNil())
			g.Expect(cluster.Seed()).To(BeNil())
			g.Expect(cluster.CloudProfile()).To(BeNil())
			g.Expect(cluster.IsHibernated()).To(BeFalse())
			g.Expect(cluster.NeedsForceDeletion()).To(BeFalse())
		})
	}
}

func TestWhatCannotBeReadIsAnErrorAndNotNil(t *testing.T) {
	g := NewWithT(t)
	broken := builder(t).WithObjects(&extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: "broken"},
		Spec:       extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Raw: []byte(`{"apiVersion":"example.org/v1","kind":"Shoot"}`)}},
	}).Build()
	_, err := extensioncluster.Get(t.Context(), broken, "broken")
	g.Expect(err).To(MatchError(ContainSubstring("reading Cluster broken: ")))

	down := errors.New("connection refused")
	unreachable := builder(t).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return down
		},
	}).Build()
	_, err = extensioncluster.Get(t.Context(), unreachable, "any")
	g.Expect(err).To(MatchError(down))
}
