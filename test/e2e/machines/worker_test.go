// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines_test

import (
	"context"
	"encoding/json"

	"github.com/Masterminds/semver/v3"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig"
	"github.com/gardener/gardener/pkg/component/extensions/worker"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

const (
	// The two pools, and the machine types of the CloudProfile.
	poolOne, poolTwo   = "one", "two"
	typeSmall          = "small"
	typeLarge          = "large"
	imageName, version = "local", "1.0.0"
	zone               = "0"
)

// machineTypes have little memory, so that a pod that takes more is soon done.
func machineTypes() []gardencorev1beta1.MachineType {
	return []gardencorev1beta1.MachineType{
		{Name: typeSmall, CPU: resource.MustParse("1"), Memory: resource.MustParse("768Mi"), Usable: new(true), Architecture: new("amd64")},
		{Name: typeLarge, CPU: resource.MustParse("2"), Memory: resource.MustParse("1Gi"), Usable: new(true), Architecture: new("amd64")},
	}
}

// pools are those of the shoot at first: one machine each, of different types.
func pools() []gardencorev1beta1.Worker {
	return []gardencorev1beta1.Worker{pool(poolOne, typeSmall, 1), pool(poolTwo, typeLarge, 1)}
}

func pool(name, machineType string, machines int32) gardencorev1beta1.Worker {
	return gardencorev1beta1.Worker{
		Name:    name,
		Minimum: machines, Maximum: machines,
		MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
		Machine: gardencorev1beta1.Machine{
			Type: machineType, Architecture: new("amd64"),
			Image: &gardencorev1beta1.ShootMachineImage{Name: imageName, Version: new(version)},
		},
		CRI:            &gardencorev1beta1.CRI{Name: gardencorev1beta1.CRINameContainerD},
		Zones:          []string{zone},
		Labels:         map[string]string{"e2e": name},
		UpdateStrategy: new(gardencorev1beta1.AutoRollingUpdate),
	}
}

// cloudProfileSpec has the machine types, and the machine image that the landscape made.
func cloudProfileSpec(ctx context.Context) gardencorev1beta1.CloudProfileSpec {
	GinkgoHelper()
	config, err := json.Marshal(&localv1alpha1.CloudProfileConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.CloudProfileConfigKind},
		MachineImages: []localv1alpha1.MachineImages{{Name: imageName, Versions: []localv1alpha1.MachineImageVersion{{
			Version: version, Image: machineImage(ctx),
		}}}},
	})
	Expect(err).NotTo(HaveOccurred())
	return gardencorev1beta1.CloudProfileSpec{
		Type:         "local",
		Kubernetes:   gardencorev1beta1.KubernetesSettings{Versions: []gardencorev1beta1.ExpirableVersion{{Version: kubernetesVersion}}},
		MachineTypes: machineTypes(),
		MachineImages: []gardencorev1beta1.MachineImage{{Name: imageName, Versions: []gardencorev1beta1.MachineImageVersion{{
			ExpirableVersion: gardencorev1beta1.ExpirableVersion{Version: version, Classification: new(gardencorev1beta1.ClassificationSupported)},
			CRI:              []gardencorev1beta1.CRI{{Name: gardencorev1beta1.CRINameContainerD}}, Architectures: []string{"amd64"},
		}}}},
		Regions:        []gardencorev1beta1.Region{{Name: "local", Zones: []gardencorev1beta1.AvailabilityZone{{Name: zone}}}},
		ProviderConfig: &runtime.RawExtension{Raw: config},
	}
}

// machineImage is the reference of the image that the landscape pushes for machines.
func machineImage(ctx context.Context) string {
	GinkgoHelper()
	return "gardener-extension-provider-local/machine:" + version
}

// worker is Gardener's component for the Worker of the shoot, with these pools.
func (s *shoot) worker(infrastructureStatus *runtime.RawExtension, configs map[string]*operatingsystemconfig.OperatingSystemConfigs, pools []gardencorev1beta1.Worker) worker.Interface {
	return worker.New(GinkgoLogr, l.Client, &worker.Values{
		Namespace: namespace, Name: shootName, Type: "local", Region: "local",
		Workers:                      pools,
		KubernetesVersion:            semver.MustParse(kubernetesVersion),
		MachineTypes:                 machineTypes(),
		InfrastructureProviderStatus: infrastructureStatus,
		WorkerPoolNameToOperatingSystemConfigsMap: configs,
	}, interval, severe, timeout)
}

// reconcile has the Cluster say what the Worker is to have, as gardenlet does, and waits until it has.
func (s *shoot) reconcile(ctx context.Context, pools ...gardencorev1beta1.Worker) {
	GinkgoHelper()
	cluster := landscape.Named[*extensionsv1alpha1.Cluster]("", namespace)
	Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(cluster), cluster)).To(Succeed())
	cluster.Spec = clusterSpec(ctx, pools)
	Expect(l.Client.Update(ctx, cluster)).To(Succeed())
	component := s.worker(s.infrastructureStatus, s.configs, pools)
	Expect(component.Deploy(ctx)).To(Succeed())
	Expect(component.Wait(ctx)).To(Succeed())
}
