// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package controlplane changes what gardenlet writes for a shoot and leaves to providers: the configuration of machines
// (OperatingSystemConfigs) and machine-controller-manager, which gets the container with our machine driver.
//
// It is a mutator of its own rather than an Ensurer for the extension library's generic one. That one decodes and writes
// anew the kubelet's unit, its configuration and the kernel settings whether or not they change, drops fields of the kubelet
// configuration that it does not know, and needs the Cluster with a Shoot in it for every OperatingSystemConfig.
package controlplane

import (
	"context"
	"errors"
	"fmt"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	controlplanewebhook "github.com/gardener/gardener/extensions/pkg/webhook/controlplane"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
)

const (
	// Name is the name of the webhook and the path below which it is served.
	Name = controlplanewebhook.WebhookName

	timeoutSeconds = 10
)

// Options are what the webhook needs.
type Options struct {
	// ControllerImage is the image of gardenlet-extension, which is run beside machine-controller-manager.
	ControllerImage string
	// AllowedCIDRs are the ranges to which servers of kubeconfigs for machines may resolve: machines.remote.allowedCIDRs of the
	// configuration. If there are none, all may.
	AllowedCIDRs []string
	// RegistryMirrors are written to the containerd configuration of all machines. They are defaulted and validated.
	RegistryMirrors []configv1alpha1.RegistryMirror
}

// New returns the webhook. It gets the objects that Gardener labels for it
// (provider.extensions.gardener.cloud/mutated-by-controlplane-webhook) in the namespaces of this provider's shoots. Its
// failure policy is Fail: a machine that comes up with the wrong configuration is never put right, while gardenlet tries
// again; nothing but these shoots waits for it.
//
// Without an image there is an error: machine-controller-manager would be deployed, but no machine would ever come.
//
// The manager's scheme must know the kinds Deployment, VerticalPodAutoscaler (autoscaling.k8s.io/v1) and those of
// extensions.gardener.cloud/v1alpha1. A seed without the CustomResourceDefinition of the second has none to change. The manager's client reads Clusters.
func New(mgr manager.Manager, opts Options) (*extensionswebhook.Webhook, error) {
	if opts.ControllerImage == "" {
		return nil, errors.New("the image of the machine controller is missing: set machines.controllerImage to that of gardenlet-extension, or disable the webhook controlPlane")
	}

	types := []extensionswebhook.Type{{Obj: &appsv1.Deployment{}}, {Obj: &extensionsv1alpha1.OperatingSystemConfig{}}}
	vpa := vpaautoscalingv1.SchemeGroupVersion.WithKind("VerticalPodAutoscaler")
	if _, err := mgr.GetRESTMapper().RESTMapping(vpa.GroupKind()); err == nil {
		types = append(types, extensionswebhook.Type{Obj: &vpaautoscalingv1.VerticalPodAutoscaler{}})
	} else if !meta.IsNoMatchError(err) {
		return nil, fmt.Errorf("asking whether the seed has VerticalPodAutoscalers: %w", err)
	}

	webhook, err := controlplanewebhook.New(mgr, controlplanewebhook.Args{
		Kind:     controlplanewebhook.KindShoot,
		Provider: localv1alpha1.Type,
		Types:    types,
		Mutator:  &mutator{client: mgr.GetClient(), image: opts.ControllerImage, allowedCIDRs: opts.AllowedCIDRs, mirrors: opts.RegistryMirrors},
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
			v1beta1constants.LabelExtensionProviderMutatedByControlplaneWebhook: "true",
		}},
	})
	if err != nil {
		return nil, err
	}
	webhook.Action = extensionswebhook.ActionMutating
	webhook.Webhook.Handler = limits.Quantities(webhook.Webhook.Handler, &appsv1.Deployment{}, &vpaautoscalingv1.VerticalPodAutoscaler{})
	webhook.FailurePolicy = new(admissionregistrationv1.Fail)
	webhook.TimeoutSeconds = new(int32(timeoutSeconds))
	return webhook, nil
}

type mutator struct {
	client       client.Reader
	image        string
	allowedCIDRs []string
	mirrors      []configv1alpha1.RegistryMirror
}

// Mutate implements extensionswebhook.Mutator. Its error denies the request; gardenlet shows it on the Shoot.
func (m *mutator) Mutate(ctx context.Context, obj, _ client.Object) error {
	if obj.GetDeletionTimestamp() != nil {
		return nil
	}

	switch obj := obj.(type) {
	case *appsv1.Deployment:
		if obj.Name == v1beta1constants.DeploymentNameMachineControllerManager {
			return m.ensureDriver(ctx, obj)
		}
	case *vpaautoscalingv1.VerticalPodAutoscaler:
		if obj.Name == machinecontrollermanager.VPAName {
			ensureDriverPolicy(obj)
		}
	case *extensionsv1alpha1.OperatingSystemConfig:
		if err := m.ensureMachine(obj); err != nil {
			return fmt.Errorf("OperatingSystemConfig %s: %w", client.ObjectKeyFromObject(obj), err)
		}
	}
	return nil
}

func (m *mutator) ensureMachine(osc *extensionsv1alpha1.OperatingSystemConfig) error {
	switch osc.Spec.Purpose {
	case extensionsv1alpha1.OperatingSystemConfigPurposeProvision:
		files, err := withHostsFiles(osc.Spec.Files, m.mirrors)
		if err != nil {
			return err
		}
		osc.Spec.Files = files
	case extensionsv1alpha1.OperatingSystemConfigPurposeReconcile:
		ensureRegistries(osc.Spec.CRIConfig, m.mirrors)
		return ensureKubeletConfig(osc.Spec.Files)
	}
	return nil
}
