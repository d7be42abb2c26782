// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/resourcemanager/controller/garbagecollector/references"
	"github.com/gardener/gardener/pkg/utils"
)

// plan is a ManagedResource with what follows from its objects.
type plan struct {
	ManagedResource
	documents  documents
	secretName string
	inputs     [sha256.Size]byte
}

func (w *Writer) plan(mr ManagedResource) (*plan, error) {
	if mr.Namespace == "" || mr.Name == "" {
		return nil, errors.New("it has no name or no namespace")
	}

	docs, err := newDocuments(mr.Objects, w.client)
	if err != nil {
		return nil, err
	}

	out := &plan{ManagedResource: mr, documents: docs, secretName: secretNamePrefix + mr.Name + "-" + docs.hash()}
	out.Labels = utils.MergeStringMaps(mr.Labels, map[string]string{LabelOrigin: Origin})

	inputs, err := json.Marshal([]any{out.secretName, mr.Class, out.Labels, mr.InjectedLabels, mr.OwnerReferences})
	if err != nil {
		return nil, err
	}
	out.inputs = sha256.Sum256(inputs)
	return out, nil
}

func (p *plan) remembered(mr *resourcesv1alpha1.ManagedResource) remembered {
	return remembered{inputs: p.inputs, uid: mr.UID, resourceVersion: mr.ResourceVersion}
}

// mutate makes mr what is wanted and leaves alone what this package does not know of.
func (p *plan) mutate(mr *resourcesv1alpha1.ManagedResource) error {
	for key, value := range p.Labels {
		metav1.SetMetaDataLabel(&mr.ObjectMeta, key, value)
	}
	if len(p.OwnerReferences) > 0 {
		mr.OwnerReferences = p.OwnerReferences
	}

	mr.Spec.Class = nil
	if p.Class != "" {
		mr.Spec.Class = &p.Class
	}
	mr.Spec.SecretRefs = []corev1.LocalObjectReference{{Name: p.secretName}}
	mr.Spec.InjectLabels = p.InjectedLabels
	mr.Spec.KeepObjects = new(false)

	// Replaces the references to former Secrets, which thereby become garbage.
	if err := references.InjectAnnotations(mr); err != nil {
		return fmt.Errorf("annotating the reference to secret %s: %w", p.secretName, err)
	}
	return nil
}

func (p *plan) isMetBy(mr *resourcesv1alpha1.ManagedResource) bool {
	mutated := mr.DeepCopy()
	return p.mutate(mutated) == nil && equality.Semantic.DeepEqual(mr, mutated)
}
