// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/extension"
)

const (
	garden = extensionsv1alpha1.ExtensionClassGarden
	seed   = extensionsv1alpha1.ExtensionClassSeed
	shoot  = extensionsv1alpha1.ExtensionClassShoot
	// none is an object without a class, which counts as shoot.
	none = extensionsv1alpha1.ExtensionClass("")

	// ofGarden and ofSeed are the Secrets of all that never changes its class.
	ofGarden, ofSeed = "backup-of-garden", "backup-of-seed"
)

func defaultSpec(extensionType string, class extensionsv1alpha1.ExtensionClass) extensionsv1alpha1.DefaultSpec {
	spec := extensionsv1alpha1.DefaultSpec{Type: extensionType}
	if class != none {
		spec.Class = &class
	}
	return spec
}

// secretRef names a Secret that goes with an object. The extension library puts a finalizer on it, so what changes its
// class must not share one with others.
func secretRef(name string) corev1.SecretReference {
	return corev1.SecretReference{Namespace: gardenNamespace, Name: name}
}

func newBucket(name, secret string, class extensionsv1alpha1.ExtensionClass) extensionsv1alpha1.Object {
	return &extensionsv1alpha1.BackupBucket{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: extensionsv1alpha1.BackupBucketSpec{
			DefaultSpec: defaultSpec("local", class),
			Region:      "local",
			SecretRef:   secretRef(secret),
		},
	}
}

// newEntry returns an entry whose name is technicalID--uid, of a bucket.
func newEntry(technicalID, uid, bucket, secret string, class extensionsv1alpha1.ExtensionClass) extensionsv1alpha1.Object {
	return &extensionsv1alpha1.BackupEntry{
		ObjectMeta: metav1.ObjectMeta{Name: technicalID + "--" + uid},
		Spec: extensionsv1alpha1.BackupEntrySpec{
			DefaultSpec: defaultSpec("local", class),
			Region:      "local",
			BucketName:  bucket,
			SecretRef:   secretRef(secret),
		},
	}
}

func newRecord(namespace, name string, class extensionsv1alpha1.ExtensionClass) extensionsv1alpha1.Object {
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: defaultSpec("local", class),
			SecretRef:   secretRef("dns"),
			Name:        name + "." + namespace + ".local.gardener.cloud",
			RecordType:  extensionsv1alpha1.DNSRecordTypeA,
			Values:      []string{"10.0.0.1"},
		},
	}
}

func newExtension(namespace, extensionType string, class extensionsv1alpha1.ExtensionClass) extensionsv1alpha1.Object {
	return &extensionsv1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: extensionType},
		Spec:       extensionsv1alpha1.ExtensionSpec{DefaultSpec: defaultSpec(extensionType, class)},
	}
}

// population returns 300 objects of each class. A Garden has one Extension of a type; those of class seed have a
// namespace each here, as what is deployed for one goes by its type. Every other object of class shoot does without one.
func population() []extensionsv1alpha1.Object {
	var out []extensionsv1alpha1.Object
	for i := range 100 {
		out = append(out,
			newBucket(fmt.Sprintf("of-garden-%d", i), ofGarden, garden),
			newRecord(gardenNamespace, fmt.Sprintf("of-garden-%d", i), garden),
			newRecord(gardenNamespace, fmt.Sprintf("of-seed-%d", i), seed),
			newRecord(shootNamespace(i%namespaces), fmt.Sprintf("of-shoot-%d", i), shootOrNone(i)),
		)
	}
	for i := range 99 {
		out = append(out, newEntry("garden", fmt.Sprint(i), fmt.Sprintf("of-garden-%d", i), ofGarden, garden))
	}
	out = append(out, newExtension(gardenNamespace, extension.TypeShoot, garden))

	for i := range 80 {
		out = append(out,
			newBucket(fmt.Sprintf("of-seed-%d", i), ofSeed, seed),
			newBucket(fmt.Sprintf("of-shoot-%d", i), ofSeed, shootOrNone(i)),
			newEntry(fmt.Sprintf("of-seed-%d", i), "uid", fmt.Sprintf("of-seed-%d", i), ofSeed, seed),
			newEntry(shootNamespace(i%namespaces), fmt.Sprint(i), fmt.Sprintf("of-shoot-%d", i), ofSeed, shootOrNone(i)),
		)
	}
	for i := range namespaces {
		extensionType := extension.TypeShoot
		if i%2 == 0 {
			extensionType = extension.TypeSeed
		}
		out = append(out,
			newExtension(seedNamespace(i), extension.TypeSeed, seed),
			newExtension(shootNamespace(i), extensionType, shootOrNone(i)),
		)
	}
	return out
}

func shootOrNone(i int) extensionsv1alpha1.ExtensionClass {
	if i%2 == 0 {
		return none
	}
	return shoot
}
