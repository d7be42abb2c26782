// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	gardencorev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
)

// extensionRefs are the references by digest that the Extension names.
type extensionRefs struct {
	chart, operatorExtension, coreDNS string
}

// extensionManifest returns the operator.gardener.cloud Extension that installs the chart, in YAML.
func extensionManifest(refs extensionRefs) ([]byte, error) {
	coreDNS := map[string]any{"coreDNS": map[string]any{"image": refs.coreDNS}}
	runtimeClusterValues, err := json.Marshal(map[string]any{"image": refs.operatorExtension, "dns": coreDNS})
	if err != nil {
		return nil, fmt.Errorf("writing values of the Extension: %w", err)
	}
	values, err := json.Marshal(map[string]any{"dns": coreDNS})
	if err != nil {
		return nil, fmt.Errorf("writing values of the Extension: %w", err)
	}

	extension := &operatorv1alpha1.Extension{
		TypeMeta: metav1.TypeMeta{APIVersion: operatorv1alpha1.SchemeGroupVersion.String(), Kind: "Extension"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "provider-local",
			// The pods mount the folder of the buckets from the node.
			Annotations: map[string]string{v1beta1constants.AnnotationPodSecurityEnforce: "privileged"},
		},
		Spec: operatorv1alpha1.ExtensionSpec{
			Resources: extensionResources(),
			Deployment: &operatorv1alpha1.Deployment{ExtensionDeployment: &operatorv1alpha1.ExtensionDeploymentSpec{
				DeploymentSpec: operatorv1alpha1.DeploymentSpec{Helm: &operatorv1alpha1.ExtensionHelm{
					OCIRepository: &gardencorev1.OCIRepository{Ref: &refs.chart},
				}},
				RuntimeClusterValues: &apiextensionsv1.JSON{Raw: runtimeClusterValues},
				Values:               &apiextensionsv1.JSON{Raw: values},
			}},
		},
	}

	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(extension)
	if err != nil {
		return nil, fmt.Errorf("writing the Extension: %w", err)
	}
	delete(object, "status")
	if metadata, ok := object["metadata"].(map[string]any); ok {
		delete(metadata, "creationTimestamp")
	}
	return yaml.Marshal(object)
}

// extensionResources are the kinds and types that this version serves.
func extensionResources() []gardencorev1beta1.ControllerResource {
	return []gardencorev1beta1.ControllerResource{
		{Kind: extensionsv1alpha1.BackupBucketResource, Type: "local"},
		{Kind: extensionsv1alpha1.BackupEntryResource, Type: "local"},
		{Kind: extensionsv1alpha1.DNSRecordResource, Type: "local"},
		{
			Kind:                 extensionsv1alpha1.ExtensionResource,
			Type:                 "local-ext-shoot",
			WorkerlessSupported:  new(true),
			ClusterCompatibility: []gardencorev1beta1.ClusterType{operatorv1alpha1.ClusterTypeGarden, gardencorev1beta1.ClusterTypeShoot},
			Lifecycle: &gardencorev1beta1.ControllerResourceLifecycle{
				Reconcile: new(gardencorev1beta1.AfterKubeAPIServer),
				Delete:    new(gardencorev1beta1.BeforeKubeAPIServer),
				Migrate:   new(gardencorev1beta1.BeforeKubeAPIServer),
			},
		},
	}
}
