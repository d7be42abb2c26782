// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// ExtensionKind returns a kind of Gardener's extension API.
func ExtensionKind(kind string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "extensions.gardener.cloud", Version: "v1alpha1", Kind: kind}
}

// ExtensionKinds are all kinds of extension objects.
func ExtensionKinds() []string {
	return []string{
		"BackupBucket", "BackupEntry", "Bastion", "ContainerRuntime", "ControlPlane", "DNSRecord", "Extension", "Infrastructure",
		"Network", "OperatingSystemConfig", "SelfHostedShootExposure", "Worker",
	}
}

// ExtensionObject is the part of an extension object that a person looks at.
type ExtensionObject struct {
	Kind, Namespace, Name, Class, Type string
	// State is the state of the last operation, or what keeps the object from being up to date.
	State string
	// Error is the description of the last error.
	Error string
}

// Succeeded reports whether the object is reconciled and stays so: Gardener asks for the same.
func (o ExtensionObject) Succeeded() bool { return o.State == "Succeeded" }

// Summarize reads an extension object.
func Summarize(u *unstructured.Unstructured) ExtensionObject {
	text := func(fields ...string) string {
		value, _, _ := unstructured.NestedString(u.Object, fields...)
		return value
	}
	o := ExtensionObject{
		Kind: u.GetKind(), Namespace: u.GetNamespace(), Name: u.GetName(),
		Class: text("spec", "class"), Type: text("spec", "type"),
		State: text("status", "lastOperation", "state"), Error: text("status", "lastError", "description"),
	}
	observed, _, _ := unstructured.NestedInt64(u.Object, "status", "observedGeneration")
	switch {
	case o.State == "":
		o.State = "Unseen"
	case o.State == "Succeeded" && (observed != u.GetGeneration() || u.GetAnnotations()["gardener.cloud/operation"] != ""):
		o.State = "Outdated"
	case o.State == "Succeeded" && o.Error != "":
		o.State = "Error"
	}
	if o.Class == "" {
		// This is what Gardener takes an object without class for.
		o.Class = "shoot"
	}
	return o
}

// ExtensionObjects lists the extension objects of a kind; none if the API server doesn't know the kind (yet).
func ExtensionObjects(ctx context.Context, c client.Reader, kind string) ([]ExtensionObject, error) {
	list := &unstructured.UnstructuredList{}
	gvk := ExtensionKind(kind)
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(kind + "List"))
	if err := c.List(ctx, list); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("listing the objects of kind %s: %w", kind, err)
	}
	objects := make([]ExtensionObject, 0, len(list.Items))
	for i := range list.Items {
		objects = append(objects, Summarize(&list.Items[i]))
	}
	slices.SortFunc(objects, func(a, b ExtensionObject) int {
		return strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name)
	})
	return objects, nil
}
