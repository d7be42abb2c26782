// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"encoding/json"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/cert"
	componentbaseconfigv1alpha1 "k8s.io/component-base/config/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	resourcemanagerconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/resourcemanager/v1alpha1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

const (
	shootNamespace  = "shoot--e2e--one"
	resourceManager = "gardener-resource-manager"
	// smallCPU and smallMemory are those of the machines of the shoot's pool "small".
	smallPool, smallCPU, smallMemory = "small", "2", "4Gi"
)

// createShoot creates the namespace of a shoot and its Cluster, as gardenlet does, and the shoot's
// gardener-resource-manager: the one that the landscape has for the seed, told that the shoot is this same cluster.
func createShoot(ctx context.Context) {
	GinkgoHelper()
	create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shootNamespace, Labels: map[string]string{
		v1beta1constants.GardenRole:                     v1beta1constants.GardenRoleShoot,
		v1beta1constants.LabelSeedProvider:              "local",
		v1beta1constants.LabelShootProvider:             "local",
		v1beta1constants.LabelNetworkingProvider:        "calico",
		v1beta1constants.LabelBackupProvider:            "local",
		v1beta1constants.LabelExtensionPrefix + "local": "true",
		"pod-security.kubernetes.io/enforce":            "privileged",
	}}})
	create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: shootNamespace, Name: v1beta1constants.SecretNameCloudProvider}})
	create(ctx, &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: shootNamespace}, Spec: clusterSpec(nil)})

	for _, obj := range resourceManagerObjects(ctx) {
		create(ctx, obj)
	}
	eventuallyReady(ctx, named[*appsv1.Deployment](shootNamespace, resourceManager))
}

// clusterSpec is what gardenlet writes about a shoot with one pool.
func clusterSpec(change func(*gardencorev1beta1.Shoot)) extensionsv1alpha1.ClusterSpec {
	GinkgoHelper()
	raw := func(obj runtime.Object) runtime.RawExtension {
		data, err := json.Marshal(obj)
		Expect(err).NotTo(HaveOccurred())
		return runtime.RawExtension{Raw: data}
	}
	typeMeta := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: kind}
	}
	shoot := &gardencorev1beta1.Shoot{
		TypeMeta:   typeMeta("Shoot"),
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden-e2e", Name: "one"},
		Spec: gardencorev1beta1.ShootSpec{
			Kubernetes: gardencorev1beta1.Kubernetes{Version: "1.36.3"},
			Provider: gardencorev1beta1.Provider{Type: "local", Workers: []gardencorev1beta1.Worker{{
				Name: smallPool, Machine: gardencorev1beta1.Machine{Type: "small"}, Minimum: 1, Maximum: 1,
			}}},
		},
		Status: gardencorev1beta1.ShootStatus{TechnicalID: shootNamespace},
	}
	if change != nil {
		change(shoot)
	}
	return extensionsv1alpha1.ClusterSpec{
		CloudProfile: raw(&gardencorev1beta1.CloudProfile{
			TypeMeta: typeMeta("CloudProfile"), ObjectMeta: metav1.ObjectMeta{Name: "local"},
			Spec: gardencorev1beta1.CloudProfileSpec{MachineTypes: []gardencorev1beta1.MachineType{
				{Name: "small", CPU: resource.MustParse(smallCPU), Memory: resource.MustParse(smallMemory)},
			}},
		}),
		Seed:  new(raw(&gardencorev1beta1.Seed{TypeMeta: typeMeta("Seed"), ObjectMeta: metav1.ObjectMeta{Name: seedName}})),
		Shoot: raw(shoot),
	}
}

// changeShoot writes to the Cluster what changed in the shoot; nothing if change is nil.
func changeShoot(ctx context.Context, change func(*gardencorev1beta1.Shoot)) {
	GinkgoHelper()
	cluster := named[*extensionsv1alpha1.Cluster]("", shootNamespace)
	Expect(c.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
	cluster.Spec = clusterSpec(change)
	Expect(c.Update(ctx, cluster)).To(Succeed())
}

func resourceManagerObjects(ctx context.Context) []client.Object {
	GinkgoHelper()
	ofTheSeed := named[*appsv1.Deployment](gardenNamespace, resourceManager)
	Expect(c.Get(ctx, client.ObjectKeyFromObject(ofTheSeed), ofTheSeed)).To(Succeed())
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	Expect(err).NotTo(HaveOccurred())

	meta := metav1.ObjectMeta{Namespace: shootNamespace, Name: resourceManager}
	labels := map[string]string{"app": resourceManager}
	mount := func(name, path string) corev1.VolumeMount {
		return corev1.VolumeMount{Name: name, MountPath: path, ReadOnly: true}
	}
	return []client.Object{
		&corev1.ServiceAccount{ObjectMeta: meta},
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: shootNamespace + ":" + resourceManager},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: meta.Namespace, Name: meta.Name}},
		},
		&corev1.ConfigMap{ObjectMeta: meta, Data: map[string]string{"config.yaml": resourceManagerConfig(), "kubeconfig": ownKubeconfig}},
		&corev1.Secret{ObjectMeta: meta, Data: map[string][]byte{"tls.crt": certificate, "tls.key": key}},
		&appsv1.Deployment{
			ObjectMeta: meta,
			Spec: appsv1.DeploymentSpec{
				Replicas: new(int32(1)),
				Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{
					ObjectMeta: metav1.ObjectMeta{Labels: labels},
					Spec: corev1.PodSpec{
						ServiceAccountName:            resourceManager,
						TerminationGracePeriodSeconds: new(int64(5)),
						Containers: []corev1.Container{{
							Name:         resourceManager,
							Image:        ofTheSeed.Spec.Template.Spec.Containers[0].Image,
							Args:         []string{"--config=/etc/resource-manager/config.yaml"},
							VolumeMounts: []corev1.VolumeMount{mount("config", "/etc/resource-manager"), mount("tls", "/etc/tls")},
						}},
						Volumes: []corev1.Volume{
							{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: meta.Name}}}},
							{Name: "tls", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: meta.Name}}},
						},
					},
				},
			},
		},
	}
}

// ownKubeconfig is the access of the pod itself to its own cluster.
const ownKubeconfig = `apiVersion: v1
kind: Config
current-context: own
contexts:
- name: own
  context: {cluster: own, user: own}
clusters:
- name: own
  cluster:
    server: https://kubernetes.default.svc
    certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
users:
- name: own
  user: {tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token}
`

// resourceManagerConfig limits it to what the shoot's namespace has, without class. The garbage is that of the seed's
// gardener-resource-manager, as this is the same cluster.
func resourceManagerConfig() string {
	GinkgoHelper()
	config := &resourcemanagerconfigv1alpha1.ResourceManagerConfiguration{
		TypeMeta:               metav1.TypeMeta{APIVersion: resourcemanagerconfigv1alpha1.SchemeGroupVersion.String(), Kind: "ResourceManagerConfiguration"},
		SourceClientConnection: resourcemanagerconfigv1alpha1.ClientConnection{Namespaces: []string{shootNamespace}},
		TargetClientConnection: &resourcemanagerconfigv1alpha1.ClientConnection{ClientConnectionConfiguration: componentbaseconfigv1alpha1.ClientConnectionConfiguration{
			Kubeconfig: "/etc/resource-manager/kubeconfig",
		}},
		LeaderElection: componentbaseconfigv1alpha1.LeaderElectionConfiguration{LeaderElect: new(false)},
		Server: resourcemanagerconfigv1alpha1.ServerConfiguration{
			Webhooks: resourcemanagerconfigv1alpha1.HTTPSServer{TLS: resourcemanagerconfigv1alpha1.TLSServer{ServerCertDir: "/etc/tls"}},
		},
		Controllers: resourcemanagerconfigv1alpha1.ResourceManagerControllerConfiguration{
			ClusterID: new("e2e"),
			Health:    resourcemanagerconfigv1alpha1.HealthControllerConfig{SyncPeriod: &metav1.Duration{Duration: 15 * time.Second}},
		},
	}
	data, err := yaml.Marshal(config)
	Expect(err).NotTo(HaveOccurred())
	return string(data)
}
