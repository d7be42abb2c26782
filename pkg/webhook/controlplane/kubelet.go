// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"errors"
	"fmt"

	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/yaml"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/original/components"
	oscutils "github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/utils"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
)

// ensureKubeletConfig makes the kubelet run in a pod, whatever the Shoot says: a machine has the swap and the control
// groups of its host, and the kubelet refuses by default to start on a host that swaps or that has control groups of
// version 1. It also has the disk of its host, which is not its own to judge by percent: other machines would lose their pods
// and images because of what somebody else keeps there. So Gardener's default thresholds for disks are put out of force, and
// those that a Shoot sets stay. Files without a kubelet configuration stay as they are.
//
// failCgroupV1 is known to kubelets from 1.31 on, so to all that this version of Gardener supports.
func ensureKubeletConfig(files []extensionsv1alpha1.File) error {
	file := extensionswebhook.FileWithPath(files, v1beta1constants.OperatingSystemConfigFilePathKubeletConfig)
	if file == nil || file.Content.Inline == nil {
		return nil
	}
	if err := editKubeletConfig(file.Content.Inline, runsInPod, sharesDisk); err != nil {
		return fmt.Errorf("the kubelet configuration in %s: %w", file.Path, err)
	}
	return nil
}

// runsInPod lets the kubelet start where the host swaps, and where it has control groups of version 1.
func runsInPod(config map[string]any) bool {
	changed := false
	for _, field := range []string{"failSwapOn", "failCgroupV1"} {
		changed = changed || config[field] != false
		config[field] = false
	}
	return changed
}

// sharesDisk puts Gardener's default thresholds for disks out of force (pkg/component/extensions/operatingsystemconfig/original/
// components/kubelet): to the kubelet, 0% is no threshold, and images of a disk that is at most full are not deleted.
func sharesDisk(config map[string]any) bool {
	changed := false
	for field, byDefault := range map[string]string{"evictionHard": "5%", "evictionSoft": "10%"} {
		thresholds, _ := config[field].(map[string]any)
		for _, signal := range []string{components.ImageFSAvailable, components.ImageFSInodesFree, components.NodeFSAvailable, components.NodeFSInodesFree} {
			if thresholds[signal] == byDefault {
				thresholds[signal] = "0%"
				changed = true
			}
		}
	}
	const highThreshold = "imageGCHighThresholdPercent"
	if fmt.Sprint(config[highThreshold]) == "50" {
		config[highThreshold] = 100
		changed = true
	}
	return changed
}

// editKubeletConfig applies edits, which report whether they changed something. All other fields are kept, also those that only a
// newer Gardener knows; so is the text if nothing changes.
func editKubeletConfig(content *extensionsv1alpha1.FileContentInline, edits ...func(config map[string]any) bool) error {
	codec := oscutils.NewFileContentInlineCodec()
	data, err := codec.Decode(content)
	if err != nil {
		return err
	}
	config := map[string]any{}
	if err := limits.CheckYAML(data); err != nil {
		return err
	}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return err
	}
	if config["kind"] != "KubeletConfiguration" || config["apiVersion"] != kubeletconfigv1beta1.SchemeGroupVersion.String() {
		return errors.New("is not a KubeletConfiguration of " + kubeletconfigv1beta1.SchemeGroupVersion.String())
	}

	changed := false
	for _, edit := range edits {
		changed = edit(config) || changed
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
