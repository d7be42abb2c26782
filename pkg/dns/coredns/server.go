// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

const (
	// ManagedResourceName is that of the ManagedResource with CoreDNS, which all instances of a cluster share. An
	// instance's own one, with its permissions in CoreDNS' namespace, has "-<instance>" behind it.
	ManagedResourceName = "gardener-extension-provider-local-coredns"
	// LabelDeployedBy of the shared ManagedResource is the Namespace of the instance that deploys it.
	LabelDeployedBy = "local.provider.extensions.gardener.cloud/deployed-by"

	classSeed = "seed"
)

// Server is a controller that ensures that one CoreDNS is in the cluster, though several instances may be, unless somebody
// else deploys it, and that this instance may write to it. It deploys by ManagedResources of class seed in namespace
// garden, which the garbage collector removes when the Namespaces of all instances that use them are gone.
type Server struct {
	Options
}

// AddToManager has the Server deploy at the start, and again when somebody changes or deletes what it deployed.
func (s *Server) AddToManager(mgr manager.Manager) error {
	deployed := predicate.NewPredicateFuncs(func(object client.Object) bool {
		return object.GetNamespace() == v1beta1constants.GardenNamespace && slices.Contains([]string{ManagedResourceName, s.ownName()}, object.GetName())
	})
	return builder.ControllerManagedBy(mgr).
		Named("coredns").
		WithOptions(controller.Options{
			RateLimiter:        workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](firstRetry, time.Minute),
			SkipNameValidation: new(true), // tests run several instances in one process
		}).
		Watches(&resourcesv1alpha1.ManagedResource{}, controllerutils.EnqueueAnonymously, builder.WithPredicates(deployed)).
		WatchesRawSource(controllerutils.EnqueueOnce).
		Complete(s)
}

// Reconcile implements reconcile.Reconciler.
func (s *Server) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	return reconcile.Result{}, s.Deploy(ctx)
}

// Deploy brings the ManagedResources into the state that they should have. It is idempotent.
func (s *Server) Deploy(ctx context.Context) error {
	owner, err := ownerReference(ctx, s.Reader, s.ServiceAccount.Namespace)
	if err != nil {
		return err
	}
	if *s.DNS.CoreDNS.Deploy {
		if err := s.deployShared(ctx, owner); err != nil {
			return fmt.Errorf("deploying CoreDNS: %w", err)
		}
	} else if err := s.leave(ctx, owner); err != nil {
		return fmt.Errorf("leaving CoreDNS to another instance: %w", err)
	}
	if err := s.Writer.Apply(ctx, resources.ManagedResource{
		Namespace:       v1beta1constants.GardenNamespace,
		Name:            s.ownName(),
		Class:           classSeed,
		OwnerReferences: []metav1.OwnerReference{owner},
		Objects:         s.permissions(),
	}); err != nil {
		return fmt.Errorf("deploying the permissions in namespace %s: %w", s.DNS.CoreDNS.Namespace, err)
	}
	return nil
}

// leave lets another instance deploy what this one has deployed before. It stays an owner, so that CoreDNS does not go.
func (s *Server) leave(ctx context.Context, owner metav1.OwnerReference) error {
	current := &resourcesv1alpha1.ManagedResource{}
	key := client.ObjectKey{Namespace: v1beta1constants.GardenNamespace, Name: ManagedResourceName}
	if err := s.Client.Get(ctx, key, current); err != nil || current.Labels[LabelDeployedBy] != owner.Name {
		return client.IgnoreNotFound(err)
	}
	before := current.DeepCopy()
	delete(current.Labels, LabelDeployedBy)
	return s.Client.Patch(ctx, current, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

// deployShared deploys CoreDNS if no other instance does, and joins the owners otherwise.
func (s *Server) deployShared(ctx context.Context, owner metav1.OwnerReference) error {
	current := &resourcesv1alpha1.ManagedResource{}
	key := client.ObjectKey{Namespace: v1beta1constants.GardenNamespace, Name: ManagedResourceName}
	err := s.Client.Get(ctx, key, current)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading ManagedResource %s: %w", key, err)
	}
	if err == nil && current.DeletionTimestamp != nil {
		// Its going makes an event; until then there is nothing to be done.
		s.Log.Info("Waiting until an earlier CoreDNS is gone", "managedResource", key)
		return nil
	}

	// The garbage collector removes owners that are gone. That update calls this again.
	deployer := current.Labels[LabelDeployedBy]
	if deployer != owner.Name && slices.ContainsFunc(current.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Name == deployer }) {
		return s.join(ctx, current, owner)
	}

	objects, err := s.Renderer.Render(ctx, s.Chart, chart.Release{Name: "coredns", Namespace: s.DNS.CoreDNS.Namespace}, s.values())
	if err != nil {
		return err
	}
	return s.Writer.Apply(ctx, resources.ManagedResource{
		Namespace:       key.Namespace,
		Name:            key.Name,
		Class:           classSeed,
		Labels:          map[string]string{LabelDeployedBy: owner.Name},
		OwnerReferences: kubernetesutils.MergeOwnerReferences(current.OwnerReferences, owner),
		Objects:         objects,
	})
}

// join adds this instance to the owners, so that CoreDNS outlives the instance that deployed it.
func (s *Server) join(ctx context.Context, current *resourcesv1alpha1.ManagedResource, owner metav1.OwnerReference) error {
	joined := current.DeepCopy()
	joined.OwnerReferences = kubernetesutils.MergeOwnerReferences(joined.OwnerReferences, owner)
	if len(joined.OwnerReferences) == len(current.OwnerReferences) {
		return nil
	}
	patch := client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{})
	if err := s.Client.Patch(ctx, joined, patch); err != nil {
		return fmt.Errorf("joining the owners of ManagedResource %s: %w", client.ObjectKeyFromObject(current), err)
	}
	s.Log.Info("Using the CoreDNS of another instance", "deployedBy", current.Labels[LabelDeployedBy])
	return nil
}

// permissions are what a Provider of this instance needs in CoreDNS' namespace. It finds its ConfigMaps by their label, which
// a Role can't name, nor can it the name of what is created; what is there it may change only where it is its own.
func (s *Server) permissions() []client.Object {
	meta := metav1.ObjectMeta{Namespace: s.DNS.CoreDNS.Namespace, Name: "gardener-extension-provider-local-" + s.Place}
	return []client.Object{
		&rbacv1.Role{
			ObjectMeta: meta,
			Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"list", "watch", "create"}},
				{APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: newShards(shardPrefix(s.Place)).names, Verbs: []string{"update", "delete"}},
				{APIGroups: []string{"discovery.k8s.io"}, Resources: []string{"endpointslices"}, Verbs: []string{"get", "list", "watch"}},
			},
		},
		&rbacv1.RoleBinding{
			ObjectMeta: meta,
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: meta.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.ServiceAccount.Namespace, Name: s.ServiceAccount.Name}},
		},
	}
}

func (s *Server) ownName() string { return ManagedResourceName + "-" + s.Place }

// values are those of the chart.
func (s *Server) values() map[string]any {
	config := s.DNS.CoreDNS
	values := map[string]any{
		"image":             config.Image,
		"replicas":          *config.Replicas,
		"zones":             s.DNS.Zones,
		"clusterIP":         clusterIP(config),
		"priorityClassName": config.PriorityClassName,
		"vpa":               map[string]any{"enabled": s.VPA},
	}
	if len(config.ClientNetworks) > 0 { // Else those of the chart may ask.
		values["clientNetworks"] = config.ClientNetworks
	}
	return values
}
