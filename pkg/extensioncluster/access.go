// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package extensioncluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsconfigv1alpha1 "github.com/gardener/gardener/extensions/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener/extensions/pkg/util"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
)

// ErrNoCredentials is the error of ShootAccess for a shoot without credentials: it has no API server yet, or no more.
var ErrNoCredentials = errors.New("gardenlet has written no credentials for extensions")

// ShootAccess returns a function for the access to the API server of the shoot with a namespace in the seed, as it is at present. It is
// made of the credentials that gardenlet leaves there, as Gardener's extension library reads them: the Secret gardener-internal, or
// gardener if there is none, or if the variable GARDENER_SHOOT_CLIENT is "external". c reads from the API server or from a cache of
// these Secrets.
//
// The library's client is not used: it asks for the API's resources first, and does not see later changes of its config.
func ShootAccess(c client.Client) func(ctx context.Context, namespace string) (*rest.Config, error) {
	withoutRequest := client.Options{Mapper: meta.NewDefaultRESTMapper(nil)}
	return func(ctx context.Context, namespace string) (*rest.Config, error) {
		config, _, err := util.NewClientForShoot(ctx, c, namespace, withoutRequest, extensionsconfigv1alpha1.RESTOptions{})
		if apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("shoot %s: %w", namespace, ErrNoCredentials)
		}
		if err != nil {
			return nil, fmt.Errorf("reading the credentials in Secret %[1]s/%[2]s or %[1]s/%[3]s: %[4]w", namespace,
				v1beta1constants.SecretNameGardenerInternal, v1beta1constants.SecretNameGardener, err)
		}
		return config, nil
	}
}
