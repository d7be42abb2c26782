// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/service"
)

// shootInfoTimeout is for the one question whether the seed is a shoot.
const shootInfoTimeout = 30 * time.Second

// addServices adds the controller of load balancers, unless the seed is a shoot itself (a ManagedSeed): then they are the
// matter of that shoot's cloud-controller, and two that write to one status never come to an end.
func (s *seed) addServices() error {
	shoot, err := isShoot(s.GetAPIReader())
	if err != nil {
		return err
	}
	if shoot {
		s.opts.Log.Info("The seed is a shoot, whose cloud-controller serves its load balancers: not adding the Service controller")
		return nil
	}
	return service.AddToManager(s, service.Options{
		Controller:    s.ControllerOptions(s.config.Controllers.Service),
		LoadBalancers: s.config.LoadBalancers,
	})
}

// isShoot reports whether a cluster is a Gardener shoot: only those have the ConfigMap kube-system/shoot-info.
func isShoot(reader client.Reader) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), shootInfoTimeout)
	defer cancel()
	key := client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: v1beta1constants.ConfigMapNameShootInfo}
	err := reader.Get(ctx, key, &corev1.ConfigMap{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("reading ConfigMap %s, to see whether the seed is a shoot: %w", key, err)
	}
	return err == nil, nil
}
