// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"slices"

	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/controlplane"
	extensionssecretsmanager "github.com/gardener/gardener/extensions/pkg/util/secret/manager"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	machinecluster "github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// ShootWebhooks deploys the webhooks of this extension into shoots, as ManagedResource NAMESPACE/WebhooksName.
type ShootWebhooks interface {
	// Apply writes the ManagedResource in a shoot's namespace. It does not wait until its objects are applied.
	Apply(ctx context.Context, namespace string) error
	// Delete deletes it, and reports whether it is gone.
	Delete(ctx context.Context, namespace string) (gone bool, err error)
}

// Charts are where the charts of the components come from.
type Charts struct {
	LocalPathProvisioner chart.Source
	// CloudController is only needed if that is deployed.
	CloudController chart.Source
}

// Images are the images of the components, as references.
type Images struct {
	LocalPathProvisioner string
	// CloudController is only needed if that is deployed.
	CloudController string
}

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Resources writes the ManagedResources. It is to use the client of the manager.
	Resources *resources.Writer
	// Renderer renders for the seed. For a shoot's version another is made of it.
	Renderer *chart.Renderer
	// Charts and Images of the components.
	Charts Charts
	Images Images
	// DeployCloudController switches cloud-controller on. Where it was on before, it is removed.
	DeployCloudController bool
	// Clusters tell cloud-controller where the machines of a shoot are. If it is nil, they are in the seed.
	Clusters machinecluster.Clusters
	// AllowedCIDRs are the ranges to which servers of kubeconfigs for machines may resolve: machines.remote.allowedCIDRs of the
	// configuration. If there are none, all may.
	AllowedCIDRs []string
	// VPA reports whether the seed knows VerticalPodAutoscalers.
	VPA bool
	// ShootWebhooks deploys the webhooks in shoots. None if it is nil; those that there were before are removed.
	ShootWebhooks ShootWebhooks
	// Clock tells when secrets have to be renewed. Default: the real one.
	Clock clock.Clock

	// secretConfigs are the secrets of a shoot. Tests have fewer, as credentials are renewed all the time.
	secretConfigs func(namespace string) []extensionssecretsmanager.SecretConfigWithOptions
}

// AddToManager adds the controller. It does nothing if the classes do not include shoot. It is an error if there are no
// classes, or no image of local-path-provisioner, which the configuration may leave out.
//
// Needed permissions, beyond those of reconciler.Reconciler and of resources.Writer: list and watch on ManagedResources; get,
// list, create, patch, delete and deletecollection on Secrets. If cloud-controller is deployed, get on Deployments and list on
// Nodes; without the latter, no seed counts as one of one node.
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.Images.LocalPathProvisioner == "" {
		return errors.New("no image of local-path-provisioner given, set controlPlane.localPathProvisioner.image")
	}
	r := newReconciler(mgr, opts)
	return r.AddToManager(mgr, controlplane.ControllerName, r.WatchManagedResources(owned()))
}

// owned are the ManagedResources of a ControlPlane, of which it waits for that with the webhooks.
func owned() reconciler.ManagedResources {
	return reconciler.ManagedResources{
		Owns: func(name string) bool {
			return slices.Contains([]string{WebhooksName, SeedName, ShootName, FormerStorageClassesName}, name)
		},
		Awaits: func(name string) bool { return name == WebhooksName },
		Health: isHealthy,
	}
}

func newReconciler(mgr manager.Manager, opts Options) *reconciler.Reconciler[*extensionsv1alpha1.ControlPlane] {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.secretConfigs == nil {
		opts.secretConfigs = secretConfigs
	}
	actuator := &actuator{
		Options: opts, client: mgr.GetClient(), reader: mgr.GetAPIReader(),
		nodes: utilcache.NewExpiringWithClock(opts.Clock), emptied: lru.New(emptiedMax),
	}
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.ControlPlane]{
		Shared:    opts.Shared,
		Client:    mgr.GetClient(),
		Finalizer: controlplane.FinalizerName,
		Actuator:  actuator,
		IsAmiss:   actuator.isLeftAlone,
		Wrap:      actuator.lookAgain,
		Gone:      func(key client.ObjectKey) { actuator.hibernating.Delete(key) },
		Clock:     opts.Clock,
	})
}
