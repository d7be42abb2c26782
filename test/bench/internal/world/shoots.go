// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"encoding/json"
	"fmt"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

const (
	credentials = "cloudprovider"
	userData    = "user-data"
	machineType = "small"
	// Bucket is that of all BackupEntries.
	Bucket            = "bench-bucket"
	kubernetesVersion = "1.36.3"

	cloudProfileConfig = `{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"CloudProfileConfig",` +
		`"machineImages":[{"name":"local","versions":[{"version":"1.0.0","image":"registry.local/machine:1"}]}],"loadBalancer":{"image":"registry.local/envoy:1"}}`
)

// CreateShoots creates what gardenlet creates for shoots before it creates extension objects, and returns the namespaces.
// Credentials are those of the program.
func (w *World) CreateShoots(ctx context.Context, round string, n int, kubeconfig []byte) ([]string, error) {
	namespaces := make([]string, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range namespaces {
		namespace := fmt.Sprintf("shoot--%s--%d", round, i)
		namespaces[i] = namespace
		group.Go(func() error {
			objects, err := shootObjects(namespace, kubeconfig)
			if err != nil {
				return err
			}
			for _, obj := range objects {
				if err := w.Client.Create(ctx, obj); err != nil {
					return fmt.Errorf("creating %T %s: %w", obj, client.ObjectKeyFromObject(obj), err)
				}
			}
			return nil
		})
	}
	return namespaces, group.Wait()
}

func shootObjects(namespace string, kubeconfig []byte) ([]client.Object, error) {
	cluster, err := newCluster(namespace)
	if err != nil {
		return nil, err
	}
	labels := map[string]string{"app": "kubernetes", "role": machineControllerManager}
	return []client.Object{
		newNamespace(namespace, map[string]string{
			"gardener.cloud/role": "shoot", "shoot.gardener.cloud/provider": "local", "seed.gardener.cloud/provider": "local",
			"backup.gardener.cloud/provider": "local", "extensions.gardener.cloud/local": "true", "networking.shoot.gardener.cloud/provider": "calico",
		}),
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: credentials}, Data: map[string][]byte{"kubeconfig": kubeconfig}},
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: userData}, Data: map[string][]byte{"cloud_config": []byte("#!/bin/bash\n")}},
		// gardener-resource-manager applies it for the in-tree extension, which fails until it is there; it need not wait here.
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloud-provider-config"}, Data: map[string]string{"cloudprovider.conf": ""}},
		&appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: machineControllerManager},
			Spec: appsv1.DeploymentSpec{
				Selector: &metav1.LabelSelector{MatchLabels: labels},
				Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: machineControllerManager, Image: "bench"}}}},
			},
		},
		cluster,
	}, nil
}

func newCluster(namespace string) (*extensionsv1alpha1.Cluster, error) {
	typeMeta := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: kind}
	}
	raws := make([]runtime.RawExtension, 3)
	for i, obj := range []any{
		&gardencorev1beta1.CloudProfile{
			TypeMeta: typeMeta("CloudProfile"), ObjectMeta: metav1.ObjectMeta{Name: "local"},
			Spec: gardencorev1beta1.CloudProfileSpec{
				MachineTypes:   []gardencorev1beta1.MachineType{{Name: machineType, CPU: resource.MustParse("2"), Memory: resource.MustParse("4Gi"), Architecture: new("amd64")}},
				ProviderConfig: &runtime.RawExtension{Raw: []byte(cloudProfileConfig)},
			},
		},
		&gardencorev1beta1.Seed{
			TypeMeta: typeMeta("Seed"), ObjectMeta: metav1.ObjectMeta{Name: "local"},
			Spec: gardencorev1beta1.SeedSpec{Provider: gardencorev1beta1.SeedProvider{Type: "local", Region: "local", Zones: []string{"0"}}},
		},
		&gardencorev1beta1.Shoot{
			TypeMeta: typeMeta("Shoot"), ObjectMeta: metav1.ObjectMeta{Namespace: "garden-local", Name: "shoot"},
			Spec: gardencorev1beta1.ShootSpec{
				Kubernetes: gardencorev1beta1.Kubernetes{Version: kubernetesVersion},
				Region:     "local",
				Networking: &gardencorev1beta1.Networking{
					Type: new("calico"), IPFamilies: []gardencorev1beta1.IPFamily{gardencorev1beta1.IPFamilyIPv4},
					Nodes: new("10.10.0.0/16"), Pods: new("10.3.0.0/16"), Services: new("10.4.0.0/16"),
				},
				CredentialsBindingName: new("local"),
				Provider: gardencorev1beta1.Provider{Type: "local", Workers: []gardencorev1beta1.Worker{{
					Name: "pool", Machine: gardencorev1beta1.Machine{Type: machineType, Architecture: new("amd64")}, Minimum: 1, Maximum: 1,
				}}},
			},
			Status: gardencorev1beta1.ShootStatus{TechnicalID: namespace},
		},
	} {
		data, err := json.Marshal(obj)
		if err != nil {
			return nil, err
		}
		raws[i].Raw = data
	}
	return &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec:       extensionsv1alpha1.ClusterSpec{CloudProfile: raws[0], Seed: &raws[1], Shoot: raws[2]},
	}, nil
}

// otherCRDs are those of Calico that an Infrastructure needs.
func otherCRDs() []*apiextensionsv1.CustomResourceDefinition {
	return []*apiextensionsv1.CustomResourceDefinition{{
		ObjectMeta: metav1.ObjectMeta{Name: "ippools." + ipPools},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: ipPools, Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "IPPool", ListKind: "IPPoolList", Plural: "ippools", Singular: "ippool"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {Type: "object", XPreserveUnknownFields: new(true)}},
				}},
			}},
		},
	}}
}
