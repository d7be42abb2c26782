// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package shoot holds the webhook that makes kube-proxy run on a shoot's machines (docs/development/controllers.md,
// section "Webhook shoot"). They are containers: the host's limit for connections is not theirs to change, and kube-proxy ends if it
// cannot. With conntrack.maxPerCore 0 it leaves the limit alone.
package shoot

import (
	"context"
	"errors"
	"fmt"
	"strings"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/yaml"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	"github.com/gardener/gardener-extension-provider-local/pkg/bounds"
)

const (
	// Name is the name of the webhook.
	Name = "shoot"

	// configMapPrefix is what the name of kube-proxy's ConfigMap begins with; a hash of its data follows.
	configMapPrefix = "kube-proxy-config"
	// configKey is where the ConfigMap has the KubeProxyConfiguration.
	configKey = "config.yaml"

	timeoutSeconds int32 = 10
)

// New returns the webhook.
//
// It is the one whose failure policy is Fail. The ConfigMap is immutable, so one that gets in unchanged is wrong as long as
// it exists, and gardener-resource-manager, which writes its own version in every sync, deletes an immutable ConfigMap that
// it cannot write. Refused, it tries again and has it right once the webhook is back. What can be refused is kube-proxy's
// ConfigMaps in a shoot; no seed waits for them.
func New(mgr manager.Manager) (*extensionswebhook.Webhook, error) {
	webhook, err := extensionswebhook.New(mgr, extensionswebhook.Args{
		Name:              Name,
		Path:              Name,
		Target:            extensionswebhook.TargetShoot,
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: metav1.NamespaceSystem}},
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
			v1beta1constants.LabelApp:  v1beta1constants.LabelKubernetes,
			v1beta1constants.LabelRole: v1beta1constants.LabelProxy,
		}},
		Mutators: map[extensionswebhook.Mutator][]extensionswebhook.Type{&mutator{}: {{Obj: &corev1.ConfigMap{}}}},
	})
	if err != nil {
		return nil, fmt.Errorf("making webhook %s: %w", Name, err)
	}
	webhook.FailurePolicy = new(admissionregistrationv1.Fail)
	webhook.TimeoutSeconds = new(timeoutSeconds)
	return webhook, nil
}

type mutator struct{}

// Mutate implements extensionswebhook.Mutator. An error refuses the ConfigMap, and ends up as what its ManagedResource
// says about it.
func (*mutator) Mutate(_ context.Context, newObj, _ client.Object) error {
	configMap, ok := newObj.(*corev1.ConfigMap)
	if !ok || configMap.DeletionTimestamp != nil ||
		configMap.Namespace != metav1.NamespaceSystem || !strings.HasPrefix(configMap.Name, configMapPrefix) {
		return nil
	}
	config, ok := configMap.Data[configKey]
	if !ok {
		return nil
	}

	config, err := withoutConntrackLimit(config)
	if err != nil {
		return fmt.Errorf("%s of ConfigMap %s is no configuration of kube-proxy: %w", configKey, client.ObjectKeyFromObject(configMap), err)
	}
	configMap.Data[configKey] = config
	return nil
}

// withoutConntrackLimit returns config with conntrack.maxPerCore 0. All else stays, be it known to this version of the
// extension or not, for which reason the configuration is not decoded into its type. Gardener writes its fields in the
// order of their names, and so does this; a config that is as it should be is returned as it is.
func withoutConntrackLimit(config string) (string, error) {
	const conntrackField, maxPerCoreField = "conntrack", "maxPerCore"

	var fields map[string]any
	if err := bounds.CheckYAML([]byte(config)); err != nil {
		return "", err
	}
	if err := yaml.Unmarshal([]byte(config), &fields); err != nil {
		return "", err
	}
	if fields == nil {
		return "", errors.New("it is empty")
	}

	if fields[conntrackField] == nil {
		fields[conntrackField] = map[string]any{}
	}
	conntrack, ok := fields[conntrackField].(map[string]any)
	if !ok {
		return "", fmt.Errorf("%s is %T, not an object", conntrackField, fields[conntrackField])
	}
	if maxPerCore, ok := conntrack[maxPerCoreField].(float64); ok && maxPerCore == 0 {
		return config, nil
	}

	conntrack[maxPerCoreField] = 0
	changed, err := yaml.Marshal(fields)
	return string(changed), err
}
