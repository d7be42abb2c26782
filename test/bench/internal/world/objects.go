// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"fmt"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
)

// Kind is a kind of extension object.
type Kind struct {
	// Name is for tables.
	Name string
	// List is an empty list of the kind.
	List func() client.ObjectList
	// New makes the i-th object of a round, which is in a namespace unless the kind has none.
	New func(round, namespace string, i int) client.Object
}

// GardenKinds are those of class garden.
func GardenKinds() []Kind {
	return []Kind{
		{"BackupBucket", func() client.ObjectList { return &extensionsv1alpha1.BackupBucketList{} }, newBackupBucket},
		{"DNSRecord", func() client.ObjectList { return &extensionsv1alpha1.DNSRecordList{} }, newGardenDNSRecord},
	}
}

// ShootKinds are those of a shoot, in the order in which gardenlet creates them.
func ShootKinds() []Kind {
	osc := func() client.ObjectList { return &extensionsv1alpha1.OperatingSystemConfigList{} }
	extension := func() client.ObjectList { return &extensionsv1alpha1.ExtensionList{} }
	return []Kind{
		{"BackupEntry", func() client.ObjectList { return &extensionsv1alpha1.BackupEntryList{} }, newBackupEntry},
		{"DNSRecord", func() client.ObjectList { return &extensionsv1alpha1.DNSRecordList{} }, newDNSRecord},
		{"Infrastructure", func() client.ObjectList { return &extensionsv1alpha1.InfrastructureList{} }, newInfrastructure},
		{"ControlPlane", func() client.ObjectList { return &extensionsv1alpha1.ControlPlaneList{} }, newControlPlane},
		{"Extension local-ext-seed", extension, extensionOf("local-ext-seed")},
		{"Extension local-ext-shoot", extension, extensionOf("local-ext-shoot")},
		{"OperatingSystemConfig provision", osc, oscOf(extensionsv1alpha1.OperatingSystemConfigPurposeProvision)},
		{"OperatingSystemConfig reconcile", osc, oscOf(extensionsv1alpha1.OperatingSystemConfigPurposeReconcile)},
		{"Worker", func() client.ObjectList { return &extensionsv1alpha1.WorkerList{} }, newWorker},
	}
}

// OfType returns the kind with another type of extension, such as "mock".
func (k Kind) OfType(extensionType string) Kind {
	inner := k.New
	k.New = func(round, namespace string, i int) client.Object {
		obj := inner(round, namespace, i)
		reflect.ValueOf(obj).Elem().FieldByName("Spec").FieldByName("Type").SetString(extensionType) // All kinds have it.
		return obj
	}
	return k
}

// WithMachines returns the kind Worker with a pool of n machines.
func (k Kind) WithMachines(n int32) Kind {
	inner := k.New
	k.New = func(round, namespace string, i int) client.Object {
		worker := inner(round, namespace, i).(*extensionsv1alpha1.Worker)
		worker.Spec.Pools[0].Minimum, worker.Spec.Pools[0].Maximum = n, n
		return worker
	}
	return k
}

func objectMeta(round, namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: namespace, Name: name,
		Labels: map[string]string{RoundLabel: round},
		// Gardener writes them with every object.
		Annotations: map[string]string{"gardener.cloud/operation": "reconcile", "gardener.cloud/timestamp": time.Now().UTC().Format(time.RFC3339Nano)},
	}
}

func secretRef(namespace, name string) corev1.SecretReference {
	return corev1.SecretReference{Namespace: namespace, Name: name}
}

func classOf(class extensionsv1alpha1.ExtensionClass) extensionsv1alpha1.DefaultSpec {
	return extensionsv1alpha1.DefaultSpec{Type: "local", Class: &class}
}

func newBackupBucket(round, _ string, i int) client.Object {
	return &extensionsv1alpha1.BackupBucket{
		ObjectMeta: objectMeta(round, "", fmt.Sprintf("%s-%d", round, i)),
		Spec: extensionsv1alpha1.BackupBucketSpec{
			DefaultSpec: classOf(extensionsv1alpha1.ExtensionClassGarden), Region: "local", SecretRef: secretRef(GardenNamespace, BackupSecret),
		},
	}
}

func newGardenDNSRecord(round, _ string, i int) client.Object {
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: objectMeta(round, GardenNamespace, fmt.Sprintf("%s-%d", round, i)),
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: classOf(extensionsv1alpha1.ExtensionClassGarden), SecretRef: secretRef(GardenNamespace, BackupSecret),
			Name: fmt.Sprintf("%d.%s.%s", i, round, Zone), RecordType: extensionsv1alpha1.DNSRecordTypeA, Values: []string{"10.1.2.3"}, TTL: new(int64(60)),
		},
	}
}

func newDNSRecord(round, namespace string, _ int) client.Object {
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: objectMeta(round, namespace, "external"),
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: classOf(extensionsv1alpha1.ExtensionClassShoot), SecretRef: secretRef(namespace, credentials),
			Name: "api." + namespace + "." + Zone, RecordType: extensionsv1alpha1.DNSRecordTypeA, Values: []string{"10.1.2.3"}, TTL: new(int64(60)),
		},
	}
}

func newBackupEntry(round, namespace string, i int) client.Object {
	return &extensionsv1alpha1.BackupEntry{
		ObjectMeta: objectMeta(round, "", fmt.Sprintf("%s--%08d-0000-4000-8000-000000000000", namespace, i)),
		Spec: extensionsv1alpha1.BackupEntrySpec{
			DefaultSpec: classOf(extensionsv1alpha1.ExtensionClassShoot), Region: "local", BucketName: Bucket, SecretRef: secretRef(GardenNamespace, BackupSecret),
		},
	}
}

func newInfrastructure(round, namespace string, _ int) client.Object {
	return &extensionsv1alpha1.Infrastructure{
		ObjectMeta: objectMeta(round, namespace, "shoot"),
		Spec: extensionsv1alpha1.InfrastructureSpec{
			DefaultSpec: classOf(extensionsv1alpha1.ExtensionClassShoot), Region: "local", SecretRef: secretRef(namespace, credentials),
		},
	}
}

func newControlPlane(round, namespace string, _ int) client.Object {
	return &extensionsv1alpha1.ControlPlane{
		ObjectMeta: objectMeta(round, namespace, "shoot"),
		Spec: extensionsv1alpha1.ControlPlaneSpec{
			DefaultSpec: classOf(extensionsv1alpha1.ExtensionClassShoot), Region: "local", SecretRef: secretRef(namespace, credentials),
		},
	}
}

func extensionOf(extensionType string) func(string, string, int) client.Object {
	return func(round, namespace string, _ int) client.Object {
		return &extensionsv1alpha1.Extension{
			ObjectMeta: objectMeta(round+"-"+extensionType, namespace, extensionType),
			Spec:       extensionsv1alpha1.ExtensionSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: extensionType, Class: new(extensionsv1alpha1.ExtensionClassShoot)}},
		}
	}
}

func oscOf(purpose extensionsv1alpha1.OperatingSystemConfigPurpose) func(string, string, int) client.Object {
	return func(round, namespace string, _ int) client.Object {
		return &extensionsv1alpha1.OperatingSystemConfig{
			ObjectMeta: objectMeta(round+"-"+string(purpose), namespace, "pool-"+string(purpose)),
			Spec: extensionsv1alpha1.OperatingSystemConfigSpec{
				DefaultSpec: classOf(extensionsv1alpha1.ExtensionClassShoot), Purpose: purpose,
				Units: []extensionsv1alpha1.Unit{{Name: "init.service", Content: new("[Service]\nExecStart=/bin/true\n"), Enable: new(true)}},
				Files: []extensionsv1alpha1.File{{
					Path: "/opt/init.sh", Permissions: new(uint32(0o755)),
					Content: extensionsv1alpha1.FileContent{Inline: &extensionsv1alpha1.FileContentInline{Data: "#!/bin/bash\necho started\n"}},
				}},
			},
		}
	}
}

func newWorker(round, namespace string, _ int) client.Object {
	return &extensionsv1alpha1.Worker{
		ObjectMeta: objectMeta(round, namespace, "shoot"),
		Spec: extensionsv1alpha1.WorkerSpec{
			DefaultSpec: classOf(extensionsv1alpha1.ExtensionClassShoot), Region: "local", SecretRef: secretRef(namespace, credentials),
			Pools: []extensionsv1alpha1.WorkerPool{{
				Name: "pool", MachineType: machineType, Minimum: 1, Maximum: 1, Zones: []string{"0"},
				MaxSurge: intstr.FromInt32(1), MaxUnavailable: intstr.FromInt32(0),
				MachineImage: extensionsv1alpha1.MachineImage{Name: "local", Version: "1.0.0"},
				NodeTemplate: &extensionsv1alpha1.NodeTemplate{Capacity: corev1.ResourceList{
					corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("4Gi"),
				}},
				NodeAgentSecretName: new("gardener-node-agent-pool"),
				UserDataSecretRef:   corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: userData}, Key: "cloud_config"},
				KubernetesVersion:   new(kubernetesVersion),
				Architecture:        new("amd64"),
			}},
		},
	}
}

// Round returns the label that the objects of a kind of a round have.
func (k Kind) Round(round string) string {
	return k.New(round, "any", 0).GetLabels()[RoundLabel]
}
