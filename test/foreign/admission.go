// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	webhookcmd "github.com/gardener/gardener/extensions/pkg/webhook/cmd"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	"github.com/gardener/gardener/pkg/client/kubernetes"
)

const (
	// maxText is the longest greeting in bytes.
	maxText = 80
	// admissionHost is the Service of the admission's chart, as the virtual garden's API server reaches it.
	admissionHost = "gardener-extension-foreign-admission.garden"
)

// greeting is the providerConfig.
type greeting struct {
	Text string `json:"text"`
}

// readGreeting reads a providerConfig, or gives the usual greeting without one.
func readGreeting(config *runtime.RawExtension) (greeting, error) {
	wanted := greeting{Text: "hello"}
	if config == nil {
		return wanted, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(config.Raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&wanted); err != nil {
		return greeting{}, err
	}
	if len(wanted.Text) > maxText {
		return greeting{}, fmt.Errorf("text has more than %d bytes", maxText)
	}
	return wanted, nil
}

// admissionCommand serves the webhook of Shoots in the garden. Its certificate is in the runtime cluster.
func admissionCommand() *cobra.Command {
	server := &webhookcmd.ServerOptions{Mode: extensionswebhook.ModeURL, URL: admissionHost, Namespace: v1beta1constants.GardenNamespace, OwnerNamespace: "extension-" + name}
	webhooks := webhookcmd.NewAddToManagerOptions(name+"-admission", "", nil, nil, server, webhookcmd.NewSwitchOptions(webhookcmd.Switch(kind, newValidator)))
	return &cobra.Command{Use: "admission", Short: "Validate greetings in Shoots", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		runtimeConfig, errRuntime := rest.InClusterConfig()
		gardenConfig, errGarden := clientcmd.BuildConfigFromFlags("", os.Getenv(v1beta1constants.EnvGenericGardenKubeconfig))
		if err := errors.Join(errRuntime, errGarden, webhooks.Complete()); err != nil {
			return err
		}
		mgr, err := newManager(gardenConfig, kubernetes.GardenScheme)
		if err != nil {
			return err
		}
		runtimeCluster, err := cluster.New(runtimeConfig, func(options *cluster.Options) {
			options.Cache.DefaultNamespaces = map[string]cache.Config{v1beta1constants.GardenNamespace: {}}
		})
		if err != nil {
			return err
		}
		if _, err := webhooks.Completed().AddToManager(cmd.Context(), mgr, runtimeCluster); err != nil {
			return err
		}
		if err := mgr.Add(runtimeCluster); err != nil {
			return err
		}
		return mgr.Start(cmd.Context())
	}}
}

func newValidator(mgr ctrl.Manager) (*extensionswebhook.Webhook, error) {
	return extensionswebhook.New(mgr, extensionswebhook.Args{
		Name: kind, Path: kind, Target: extensionswebhook.TargetSeed,
		Validators:     map[extensionswebhook.Validator][]extensionswebhook.Type{validator{}: {{Obj: &gardencorev1beta1.Shoot{}}}},
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{v1beta1constants.LabelExtensionExtensionTypePrefix + kind: "true"}},
	})
}

type validator struct{}

// Validate implements extensionswebhook.Validator.
func (validator) Validate(_ context.Context, object, _ client.Object) error {
	shoot, is := object.(*gardencorev1beta1.Shoot)
	if !is {
		return fmt.Errorf("expected a Shoot, got %T", object)
	}
	if shoot.DeletionTimestamp != nil {
		return nil
	}
	for i, extension := range shoot.Spec.Extensions {
		if extension.Type != kind {
			continue
		}
		if _, err := readGreeting(extension.ProviderConfig); err != nil {
			return field.Invalid(field.NewPath("spec", "extensions").Index(i).Child("providerConfig"), "", err.Error())
		}
	}
	return nil
}
