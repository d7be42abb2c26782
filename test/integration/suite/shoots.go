// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"context"
	"encoding/json"
	"slices"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// NewCluster returns what gardenlet writes of a shoot. The shoot has a name, and what change gives to it unless that is nil.
func NewCluster(namespace string, change func(*gardencorev1beta1.Shoot)) *extensionsv1alpha1.Cluster {
	GinkgoHelper()
	raw := func(obj runtime.Object) runtime.RawExtension {
		data, err := json.Marshal(obj)
		Expect(err).NotTo(HaveOccurred())
		return runtime.RawExtension{Raw: data}
	}
	typeMeta := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: kind}
	}
	shoot := &gardencorev1beta1.Shoot{TypeMeta: typeMeta("Shoot"), ObjectMeta: metav1.ObjectMeta{Namespace: "garden-local", Name: namespace}}
	if change != nil {
		change(shoot)
	}
	return &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: extensionsv1alpha1.ClusterSpec{
			CloudProfile: raw(&gardencorev1beta1.CloudProfile{TypeMeta: typeMeta("CloudProfile"), ObjectMeta: metav1.ObjectMeta{Name: "local"}}),
			Seed:         new(raw(&gardencorev1beta1.Seed{TypeMeta: typeMeta("Seed"), ObjectMeta: metav1.ObjectMeta{Name: "local"}})),
			Shoot:        raw(shoot),
		},
	}
}

// CreateShoot creates the namespace of a shoot and its Cluster.
func CreateShoot(ctx context.Context, c client.Client, cluster *extensionsv1alpha1.Cluster) {
	GinkgoHelper()
	Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: cluster.Name, Labels: map[string]string{"gardener.cloud/role": "shoot"}}})).To(Succeed())
	Expect(c.Create(ctx, cluster)).To(Succeed())
}

// DisableControllers disables all controllers of config but the given ones, which are pointers into it.
func DisableControllers(config *configv1alpha1.ExtensionConfiguration, but ...*configv1alpha1.ControllerConfiguration) {
	c := &config.Controllers
	for _, controller := range []*configv1alpha1.ControllerConfiguration{
		&c.BackupBucket, &c.BackupEntry, &c.Bastion, &c.ControlPlane, &c.DNSRecord, &c.Extension, &c.HealthCheck.ControllerConfiguration,
		&c.Infrastructure, &c.Ingress, &c.OperatingSystemConfig, &c.Service, &c.Worker,
	} {
		controller.Disabled = !slices.Contains(but, controller)
	}
}

// DisableWebhooks is for suites whose API server cannot reach the instance.
func DisableWebhooks(config *configv1alpha1.ExtensionConfiguration) {
	webhooks := &config.Webhooks
	for _, webhook := range []*configv1alpha1.WebhookConfiguration{
		&webhooks.ControlPlane, &webhooks.DNSConfig, &webhooks.Node, &webhooks.Shoot,
	} {
		webhook.Disabled = true
	}
}
