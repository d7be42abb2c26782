// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/controlplane"
	extensionssecretsmanager "github.com/gardener/gardener/extensions/pkg/util/secret/manager"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	machinecluster "github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

// ShootWebhooks deploys the webhooks of this extension into shoots, as ManagedResource NAMESPACE/WebhooksName.
type ShootWebhooks interface {
	// Apply writes the ManagedResource in a shoot's namespace. It does not wait until its objects are applied.
	Apply(ctx context.Context, namespace string) error
	// Delete deletes it, and tells whether it is gone.
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
	// Controller are the options of the controller, such as its concurrency.
	Controller controller.Options
	// Classes are the classes to serve. There are ControlPlanes of class shoot only.
	Classes class.Set
	// IgnoreOperationAnnotation has every change of a spec, and every change of a Cluster, reconciled.
	IgnoreOperationAnnotation bool
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
	// VPA tells whether the seed knows VerticalPodAutoscalers.
	VPA bool
	// ShootWebhooks deploys the webhooks in shoots. None if it is nil; those that there were before are removed.
	ShootWebhooks ShootWebhooks
	// Clock tells when secrets have to be renewed. Default: the real one.
	Clock clock.Clock

	// secretConfigs are the secrets of a shoot. Tests have fewer, as credentials are renewed all the time.
	secretConfigs func(namespace string) []extensionssecretsmanager.SecretConfigWithOptions
}

func (o *Options) validate() error {
	switch {
	case o.Classes.String() == "":
		return errors.New("no extension class given, name at least one")
	case o.Resources == nil:
		return errors.New("no writer of ManagedResources given")
	case o.Renderer == nil:
		return errors.New("no renderer of charts given")
	case o.Charts.LocalPathProvisioner == nil:
		return errors.New("no chart of local-path-provisioner given")
	case o.Images.LocalPathProvisioner == "":
		return errors.New("no image of local-path-provisioner given, set controlPlane.localPathProvisioner.image")
	case o.DeployCloudController && o.Charts.CloudController == nil:
		return errors.New("no chart of cloud-controller given")
	case o.DeployCloudController && o.Images.CloudController == "":
		return errors.New("no image of cloud-controller given, set controlPlane.cloudController.image")
	}
	return nil
}

// AddToManager adds the controller. It does nothing if the classes do not include shoot. It is an error if there are no
// classes or if something needed is missing, such as the image of a component that is deployed.
//
// Needed permissions, beyond those of reconciler.Reconciler and of resources.Writer: list and watch on ManagedResources; get,
// list, create, patch, delete and deletecollection on Secrets. If cloud-controller is deployed, get on Deployments and list on
// Nodes; without the latter, no seed counts as one of one node.
func AddToManager(mgr manager.Manager, opts Options) error {
	if err := opts.validate(); err != nil {
		return fmt.Errorf("adding the ControlPlane controller: %w", err)
	}
	classes, ok := opts.Classes.Only(extensionsv1alpha1.ExtensionClassShoot)
	if !ok {
		return nil
	}

	if opts.Controller.ReconciliationTimeout == 0 {
		opts.Controller.ReconciliationTimeout = controllerutils.DefaultReconciliationTimeout
	}

	opts.Classes = classes
	r := newReconciler(mgr, opts)
	wake := newWaker(mgr.GetClient(), classes, opts.IgnoreOperationAnnotation)
	b := builder.ControllerManagedBy(mgr).
		Named(controlplane.ControllerName).
		WithOptions(opts.Controller).
		Watches(&extensionsv1alpha1.ControlPlane{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(r.Predicates()...)).
		Watches(&resourcesv1alpha1.ManagedResource{}, handler.EnqueueRequestsFromMapFunc(wake.Requests), builder.WithPredicates(wake.Predicate()))
	if err := r.WatchClusters(b, &extensionsv1alpha1.ControlPlaneList{}).Complete(r); err != nil {
		return fmt.Errorf("adding the ControlPlane controller: %w", err)
	}
	return nil
}

func newReconciler(mgr manager.Manager, opts Options) *returning {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.secretConfigs == nil {
		opts.secretConfigs = secretConfigs
	}
	actuator := &actuator{
		Options: opts, client: mgr.GetClient(), reader: mgr.GetAPIReader(), shoots: reconciler.NewClusters(mgr.GetClient()),
		hibernating: &keys{keys: map[client.ObjectKey]struct{}{}}, nodes: &nodeCount{}, emptied: lru.New(emptiedMax),
	}
	return &returning{hibernating: actuator.hibernating, Reconciler: reconciler.New(reconciler.Options[*extensionsv1alpha1.ControlPlane]{
		Client:                    mgr.GetClient(),
		Kind:                      extensionsv1alpha1.ControlPlaneResource,
		NewObject:                 func() *extensionsv1alpha1.ControlPlane { return &extensionsv1alpha1.ControlPlane{} },
		Types:                     []string{localv1alpha1.Type},
		Classes:                   opts.Classes,
		Finalizer:                 controlplane.FinalizerName,
		IgnoreOperationAnnotation: opts.IgnoreOperationAnnotation,
		Clusters:                  actuator.shoots,
		Actuator:                  actuator,
		IsAmiss:                   actuator.isLeftAlone,
		Gone:                      func(key client.ObjectKey) { actuator.hibernating.set(key, false) },
		Clock:                     opts.Clock,
	})}
}
