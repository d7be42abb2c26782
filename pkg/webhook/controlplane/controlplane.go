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
	"path"
	"slices"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/yaml"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	controlplanewebhook "github.com/gardener/gardener/extensions/pkg/webhook/controlplane"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/original/components"
	oscutils "github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/utils"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/bounds"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
)

const (
	// Name is the name of the webhook and the path below which it is served.
	Name = controlplanewebhook.WebhookName

	timeoutSeconds = 10

	// hostsFolder is where containerd of a machine looks for the configuration of registries, by Gardener's contract for it.
	hostsFolder = "/etc/containerd/certs.d"
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

	return NewFor(mgr, localv1alpha1.Type, types, &mutator{Options: opts, client: mgr.GetClient()}, &appsv1.Deployment{}, &vpaautoscalingv1.VerticalPodAutoscaler{})
}

// NewFor returns a webhook that fails closed for the objects that Gardener labels for it in the namespaces of a provider's shoots.
// withQuantities are those among them that have quantities.
func NewFor(mgr manager.Manager, provider string, types []extensionswebhook.Type, mutator extensionswebhook.Mutator, withQuantities ...client.Object) (*extensionswebhook.Webhook, error) {
	webhook, err := controlplanewebhook.New(mgr, controlplanewebhook.Args{
		Kind:     controlplanewebhook.KindShoot,
		Provider: provider,
		Types:    types,
		Mutator:  mutator,
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
			v1beta1constants.LabelExtensionProviderMutatedByControlplaneWebhook: "true",
		}},
	})
	if err != nil {
		return nil, err
	}
	webhook.Action = extensionswebhook.ActionMutating
	webhook.Webhook.Handler = limits.Quantities(webhook.Webhook.Handler, withQuantities...)
	webhook.FailurePolicy = new(admissionregistrationv1.Fail)
	webhook.TimeoutSeconds = new(int32(timeoutSeconds))
	return webhook, nil
}

type mutator struct {
	Options
	client client.Reader
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
		switch obj.Spec.Purpose {
		case extensionsv1alpha1.OperatingSystemConfigPurposeProvision:
			obj.Spec.Files = withHostsFiles(obj.Spec.Files, m.RegistryMirrors)
		case extensionsv1alpha1.OperatingSystemConfigPurposeReconcile:
			ensureRegistries(obj.Spec.CRIConfig, m.RegistryMirrors)
			if err := ensureKubeletConfig(obj.Spec.Files); err != nil {
				return fmt.Errorf("OperatingSystemConfig %s: %w", client.ObjectKeyFromObject(obj), err)
			}
		}
	}
	return nil
}

// ensureDriver puts the container with the machine driver beside machine-controller-manager, as Gardener wants it for all
// providers. Its arguments differ for a shoot that hosts itself; without a Cluster, or a Shoot in it, it is an ordinary one.
func (m *mutator) ensureDriver(ctx context.Context, deployment *appsv1.Deployment) error {
	cluster, err := extensioncluster.Get(ctx, m.client, deployment.Namespace)
	if err != nil {
		return err
	}
	shoot := cluster.Shoot()
	if shoot == nil {
		shoot = &gardencorev1beta1.Shoot{}
	}

	container := machinecontrollermanager.ProviderSidecarContainer(shoot, deployment.Namespace, localv1alpha1.Type, m.ControllerImage)
	// The command starts the machine driver in the image of gardenlet-extension. Gardener's arguments follow it.
	container.Command = []string{"/gardenlet-extension", "machine-controller"}
	if len(m.AllowedCIDRs) > 0 {
		container.Command = append(container.Command, "--"+machine.AllowedCIDRsFlag+"="+strings.Join(m.AllowedCIDRs, ","))
	}
	pod := &deployment.Spec.Template.Spec
	pod.Containers = extensionswebhook.EnsureContainerWithName(pod.Containers, container)
	return nil
}

// ensureDriverPolicy lets the VerticalPodAutoscaler of machine-controller-manager look after the driver's container too.
func ensureDriverPolicy(vpa *vpaautoscalingv1.VerticalPodAutoscaler) {
	if vpa.Spec.ResourcePolicy == nil {
		vpa.Spec.ResourcePolicy = &vpaautoscalingv1.PodResourcePolicy{}
	}
	policy := vpa.Spec.ResourcePolicy
	policy.ContainerPolicies = extensionswebhook.EnsureVPAContainerResourcePolicyWithName(
		policy.ContainerPolicies, machinecontrollermanager.ProviderSidecarVPAContainerPolicy(localv1alpha1.Type))
}

// ensureRegistries merges the mirrors into the containerd section, which gardener-node-agent writes to the machine. An
// upstream that is configured already, by an extension for registry caches for example, keeps all that is set and its
// hosts come first; ours are asked after them. Mirrors get no readiness probe: they are outside of the shoot and there
// before any machine, and a probe would hold up the machine's configuration.
func ensureRegistries(config *extensionsv1alpha1.CRIConfig, mirrors []configv1alpha1.RegistryMirror) {
	if config == nil || config.Name != extensionsv1alpha1.CRINameContainerD || config.Containerd == nil {
		return
	}
	for _, mirror := range mirrors {
		i := slices.IndexFunc(config.Containerd.Registries, func(r extensionsv1alpha1.RegistryConfig) bool { return r.Upstream == mirror.Upstream })
		if i < 0 {
			i = len(config.Containerd.Registries)
			config.Containerd.Registries = append(config.Containerd.Registries, extensionsv1alpha1.RegistryConfig{Upstream: mirror.Upstream})
		}
		registry := &config.Containerd.Registries[i]
		if registry.Server == nil && mirror.Server != "" {
			registry.Server = new(mirror.Server)
		}
		for _, url := range mirror.Hosts {
			if !slices.ContainsFunc(registry.Hosts, func(h extensionsv1alpha1.RegistryHost) bool { return h.URL == url }) {
				registry.Hosts = append(registry.Hosts, extensionsv1alpha1.RegistryHost{
					URL:          url,
					Capabilities: []extensionsv1alpha1.RegistryCapability{extensionsv1alpha1.PullCapability, extensionsv1alpha1.ResolveCapability},
				})
			}
		}
	}
}

// withHostsFiles returns the files of a new machine with those that tell containerd of the mirrors. gardener-node-agent,
// which writes the same files later on, is itself pulled from a registry first. A file that is there already is kept.
func withHostsFiles(files []extensionsv1alpha1.File, mirrors []configv1alpha1.RegistryMirror) []extensionsv1alpha1.File {
	for _, mirror := range mirrors {
		name := path.Join(hostsFolder, mirror.Upstream, "hosts.toml")
		if extensionswebhook.FileWithPath(files, name) != nil {
			continue
		}
		content := ""
		if mirror.Server != "" {
			content = fmt.Sprintf("server = %q", mirror.Server)
		}
		for _, host := range mirror.Hosts {
			content += fmt.Sprintf("\n\n[host.%q]\n  capabilities = [\"pull\", \"resolve\"]", host)
		}
		files = append(files, extensionsv1alpha1.File{
			Path:        name,
			Permissions: new(uint32(0o644)),
			Content:     extensionsv1alpha1.FileContent{Inline: &extensionsv1alpha1.FileContentInline{Data: content + "\n"}},
		})
	}
	return files
}

// ensureKubeletConfig makes the kubelet run in a pod, whatever the Shoot says: a machine has the swap and the control
// groups of its host, and the kubelet refuses by default to start on a host that swaps or that has control groups of
// version 1. It also has the disk of its host, which is not its own to judge by percent: other machines would lose their pods
// and images because of what somebody else keeps there. So Gardener's default thresholds for disks are put out of force, and
// those that a Shoot sets stay. Files without a kubelet configuration stay as they are.
//
// To the kubelet, 0% is no threshold, and images of a disk that is at most full are not deleted.
//
// failCgroupV1 is known to kubelets from 1.31 on, so to all that this version of Gardener supports.
func ensureKubeletConfig(files []extensionsv1alpha1.File) error {
	file := extensionswebhook.FileWithPath(files, v1beta1constants.OperatingSystemConfigFilePathKubeletConfig)
	if file == nil || file.Content.Inline == nil {
		return nil
	}
	if err := editKubeletConfig(file.Content.Inline); err != nil {
		return fmt.Errorf("the kubelet configuration in %s: %w", file.Path, err)
	}
	return nil
}

// editKubeletConfig keeps all other fields, also those that only a newer Gardener knows; so it does with the text if nothing
// changes.
func editKubeletConfig(content *extensionsv1alpha1.FileContentInline) error {
	codec := oscutils.NewFileContentInlineCodec()
	data, err := codec.Decode(content)
	if err != nil {
		return err
	}
	config := map[string]any{}
	if err := bounds.CheckYAML(data); err != nil {
		return err
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return err
	}
	if config["kind"] != "KubeletConfiguration" || config["apiVersion"] != kubeletconfigv1beta1.SchemeGroupVersion.String() {
		return errors.New("is not a KubeletConfiguration of " + kubeletconfigv1beta1.SchemeGroupVersion.String())
	}

	changed := false
	set := func(fields map[string]any, field string, value any) {
		changed = changed || fields[field] != value
		fields[field] = value
	}
	set(config, "failSwapOn", false)
	set(config, "failCgroupV1", false)
	// The defaults are those of pkg/component/extensions/operatingsystemconfig/original/components/kubelet in Gardener.
	for field, byDefault := range map[string]string{"evictionHard": "5%", "evictionSoft": "10%"} {
		thresholds, _ := config[field].(map[string]any)
		for _, signal := range []string{components.ImageFSAvailable, components.ImageFSInodesFree, components.NodeFSAvailable, components.NodeFSInodesFree} {
			if thresholds[signal] == byDefault {
				set(thresholds, signal, "0%")
			}
		}
	}
	const highThreshold = "imageGCHighThresholdPercent"
	if fmt.Sprint(config[highThreshold]) == "50" {
		set(config, highThreshold, 100)
	}
	if !changed {
		return nil
	}

	if data, err = yaml.Marshal(config); err != nil {
		return err
	}
	encoded, err := codec.Encode(data, content.Encoding)
	if err != nil {
		return err
	}
	*content = *encoded
	return nil
}
