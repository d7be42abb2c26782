// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/procfs"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/node"
)

const fieldOwner = client.FieldOwner("landscape")

// Config reads a kubeconfig for a program that may ask often.
func Config(kubeconfig string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", kubeconfig, err)
	}
	config.QPS, config.Burst = 100, 200
	return config, nil
}

// Client returns a client for the runtime cluster that reads and writes directly.
func Client(kubeconfig string) (client.WithWatch, error) {
	config, err := Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	c, err := client.NewWithWatch(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connecting with %s: %w", kubeconfig, err)
	}
	return c, nil
}

// Apply applies the objects by server-side apply. A fresh API server may not know its own newest kinds and roles for a
// moment, which is waited for. The objects stay as they are, for another cluster.
func Apply(ctx context.Context, c client.Client, objects []*unstructured.Unstructured) error {
	for _, object := range objects {
		var last error
		err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
			last = c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object.DeepCopy()), fieldOwner, client.ForceOwnership)
			// What is wrong with the object itself doesn't get better.
			return last == nil || apierrors.IsInvalid(last) || apierrors.IsBadRequest(last), nil
		})
		if last != nil {
			err = last
		}
		if err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), client.ObjectKeyFromObject(object), err)
		}
	}
	return nil
}

// sysResource is the bit of CAP_SYS_RESOURCE among capabilities.
const sysResource = 24

// ThisMachine describes the machine that this program runs on.
func ThisMachine() (Machine, error) {
	self, errSelf := procfs.Self()
	status, errStatus := self.NewStatus()
	if err := errors.Join(errSelf, errStatus); err != nil {
		return Machine{}, fmt.Errorf("reading the capabilities: %w", err)
	}
	return Machine{LacksSysResource: status.CapBnd&(1<<sysResource) == 0, Processors: node.Processors()}, nil
}

// List returns all objects of a kind that the options select, in the order of their names; none if the API server doesn't know the kind (yet).
func List(ctx context.Context, c client.Reader, kind schema.GroupVersionKind, options ...client.ListOption) ([]unstructured.Unstructured, error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.List(ctx, all, options...); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("listing the objects of kind %s: %w", kind.Kind, err)
	}
	slices.SortFunc(all.Items, func(a, b unstructured.Unstructured) int {
		return cmp.Or(cmp.Compare(a.GetNamespace(), b.GetNamespace()), cmp.Compare(a.GetName(), b.GetName()))
	})
	return all.Items, nil
}

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

// ClassOf is the class of an extension object: without one, it counts as shoot.
func ClassOf(o *unstructured.Unstructured) string {
	class, _, _ := unstructured.NestedString(o.Object, "spec", "class")
	return cmp.Or(class, "shoot")
}

// Status is what objects of Gardener's kinds report, all in the same shape.
type Status struct {
	ObservedGeneration *int64 `json:"observedGeneration"`
	LastOperation      struct {
		Type           string      `json:"type"`
		State          string      `json:"state"`
		Description    string      `json:"description"`
		Progress       *int64      `json:"progress"`
		LastUpdateTime metav1.Time `json:"lastUpdateTime"`
	} `json:"lastOperation"`
	LastError  Error       `json:"lastError"`
	LastErrors []Error     `json:"lastErrors"`
	Conditions []Condition `json:"conditions"`
	// TechnicalID and Hibernated are a Shoot's.
	TechnicalID string `json:"technicalID"`
	Hibernated  bool   `json:"hibernated"`
}

// Error is one of Status.
type Error struct {
	Description string `json:"description"`
}

// Condition is one of Status.
type Condition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	Message            string      `json:"message"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
}

// StatusOf reads the status of an object. What isn't there, or has another shape, is empty.
func StatusOf(u *unstructured.Unstructured) Status {
	var object struct {
		Status Status `json:"status"`
	}
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(map[string]any{"status": u.Object["status"]}, &object)
	return object.Status
}
