// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

const (
	// LabelUID on a Service or EndpointSlice in the seed is the UID of the Service in the shoot that it serves.
	LabelUID = "local.provider.extensions.gardener.cloud/shoot-service-uid"
	// LabelNamespace is the namespace of that Service, for those who look for it.
	LabelNamespace = "local.provider.extensions.gardener.cloud/shoot-service-namespace"
	// LabelName is its name.
	LabelName = "local.provider.extensions.gardener.cloud/shoot-service-name"
	// AnnotationService is both as NAMESPACE/NAME.
	AnnotationService = "local.provider.extensions.gardener.cloud/shoot-service"

	// managedBy is the value of the label of an EndpointSlice that tells who writes it.
	managedBy = "cloud-controller.local.provider.extensions.gardener.cloud"
	// namePrefix makes a name of a UID that may start with a digit.
	namePrefix = "lb-"
	// providerName is the name of the cloud provider.
	providerName = localv1alpha1.Type
)

// mistake is an error that only a change of the shoot's Service ends, which is an event.
type mistake struct{ error }

// Unwrap returns what is wrong.
func (m mistake) Unwrap() error { return m.error }

func isMistake(err error) bool {
	var m mistake
	return errors.As(err, &m)
}

// nameOf returns the name of the seed's Service for one of the shoot. It holds as long as that one exists, and no other
// ever has it.
func nameOf(service *corev1.Service) (string, error) {
	name := namePrefix + string(service.UID)
	if service.UID == "" || len(validation.IsDNS1035Label(name)) > 0 {
		return "", mistake{fmt.Errorf("the UID %q of Service %s can't be part of a name", service.UID, keyOf(service))}
	}
	return name, nil
}

func sliceName(name string, family discoveryv1.AddressType) string {
	if family == discoveryv1.AddressTypeIPv6 {
		return name + "-ipv6"
	}
	return name + "-ipv4"
}

func keyOf(obj metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: obj.GetNamespace(), Name: obj.GetName()}
}

// servedKey returns which Service of the shoot an object in the seed is for.
func servedKey(obj metav1.Object) (types.NamespacedName, bool) {
	namespace, name, err := cache.SplitMetaNamespaceKey(obj.GetAnnotations()[AnnotationService])
	if err != nil || namespace == "" || name == "" {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: namespace, Name: name}, true
}

// mark puts the labels and annotations on an object in the seed that say what it is for. Others stay.
func mark(obj metav1.Object, service *corev1.Service) {
	labels, annotations := obj.GetLabels(), obj.GetAnnotations()
	if labels == nil {
		labels = map[string]string{}
	}
	if annotations == nil {
		annotations = map[string]string{}
	}
	labels[LabelUID] = string(service.UID)
	for label, value := range map[string]string{LabelNamespace: service.Namespace, LabelName: service.Name} {
		// Names of Services fit today. A shoot of another version may know longer ones.
		if len(validation.IsValidLabelValue(value)) == 0 {
			labels[label] = value
		}
	}
	annotations[AnnotationService] = keyOf(service).String()
	obj.SetLabels(labels)
	obj.SetAnnotations(annotations)
}

// isFor tells whether an object in the seed is for a Service of the shoot. One whose label was taken off is.
func isFor(obj metav1.Object, service *corev1.Service) bool {
	return obj.GetLabels()[LabelUID] == string(service.UID) || obj.GetAnnotations()[AnnotationService] == keyOf(service).String()
}
