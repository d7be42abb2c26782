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
	oscutils "github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/utils"
)

// ensureKubeletConfig makes the kubelet run in a pod, whatever the Shoot says: a machine has the swap and the control
// groups of its host, and the kubelet refuses by default to start on a host that swaps or that has control groups of
// version 1. Files without a kubelet configuration stay as they are.
//
// failCgroupV1 is known to kubelets from 1.31 on, so to all that this version of Gardener supports.
func ensureKubeletConfig(files []extensionsv1alpha1.File) error {
	file := extensionswebhook.FileWithPath(files, v1beta1constants.OperatingSystemConfigFilePathKubeletConfig)
	if file == nil || file.Content.Inline == nil {
		return nil
	}
	if err := setInKubeletConfig(file.Content.Inline, "failSwapOn", "failCgroupV1"); err != nil {
		return fmt.Errorf("the kubelet configuration in %s: %w", file.Path, err)
	}
	return nil
}

// setInKubeletConfig sets fields to false. All others are kept, also those that only a newer Gardener knows; so is the text
// if there is nothing to set.
func setInKubeletConfig(content *extensionsv1alpha1.FileContentInline, fields ...string) error {
	codec := oscutils.NewFileContentInlineCodec()
	data, err := codec.Decode(content)
	if err != nil {
		return err
	}
	config := map[string]any{}
	if err := yaml.Unmarshal(data, &config); err != nil {
		return err
	}
	if config["kind"] != "KubeletConfiguration" || config["apiVersion"] != kubeletconfigv1beta1.SchemeGroupVersion.String() {
		return errors.New("is not a KubeletConfiguration of " + kubeletconfigv1beta1.SchemeGroupVersion.String())
	}

	changed := false
	for _, field := range fields {
		changed = changed || config[field] != false
		config[field] = false
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
