// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package resources turns objects into a ManagedResource whose data is compressed with Brotli. It is the only place of
// this extension that writes ManagedResources: the controllers hand it objects, gardener-resource-manager (GRM) applies
// them.
//
// What is written for a ManagedResource NAMESPACE/NAME:
//   - an immutable Secret NAMESPACE/managedresource-NAME-HASH with the one key "data.yaml.br": all objects as YAML
//     documents, sorted, in one Brotli stream. HASH is over the objects and not over the compressed bytes. So neither
//     another compression level nor a new version of the compressor renames a Secret whose objects are the same, and
//     nothing is compressed just to learn that it is there already. The Secret carries the label by which GRM collects
//     it as garbage once no ManagedResource refers to it;
//   - the ManagedResource, with the annotation that keeps GRM from collecting the Secret.
//
// An Apply that changes nothing costs no request and no compression. What was written last is remembered in a bounded
// cache together with the resource version that the ManagedResource had then. As long as both are the same, nobody has
// touched it, and the Secret is there too: GRM watches the Secrets it uses and reports one that is gone in the status of
// the ManagedResource, which changes the resource version. Only when that differs, and GRM does not say that it has applied
// the ManagedResource as it is, the Secret is looked up, by its metadata alone.
package resources

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// LabelOrigin is the label which all that Writer writes carries, with the value Origin. A manager may restrict its
	// cache of ManagedResources to it: Writer copes with ManagedResources of the same name that do not have it yet.
	LabelOrigin = "origin"
	// Origin is the value of LabelOrigin. Gardener's own are "gardener" and "gardener-operator".
	Origin = "provider-local"

	secretNamePrefix = "managedresource-"
)

// ManagedResource is what a controller wants GRM to apply.
type ManagedResource struct {
	// Namespace and Name are those of the ManagedResource.
	Namespace, Name string
	// Class tells which GRM applies the objects: "seed" for the one that is responsible for the cluster in which the
	// ManagedResource is, empty for the one of the namespace, that is, the GRM of a shoot or of the virtual garden.
	Class string
	// Labels are put on the ManagedResource. Others that it has are left alone.
	Labels map[string]string
	// InjectedLabels are put on all objects by GRM.
	InjectedLabels map[string]string
	// OwnerReferences of the ManagedResource; none leaves those it has alone.
	OwnerReferences []metav1.OwnerReference
	// Objects in any order. Each needs a kind which is either set or known to the scheme of the Writer's client, and a
	// name; none may be given twice. They are not changed. None at all is valid and empties the ManagedResource.
	Objects []client.Object
}

func (m ManagedResource) key() client.ObjectKey {
	return client.ObjectKey{Namespace: m.Namespace, Name: m.Name}
}
