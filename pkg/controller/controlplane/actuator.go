// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package controlplane holds the controller for ControlPlanes of type local, which gardenlet-extension adds for class
// shoot. For a shoot with workers (gardenlet makes no ControlPlane for any other) it deploys, each as a ManagedResource in
// the shoot's namespace:
//   - extension-controlplane-shoot-webhooks, the webhooks in the shoot. Nothing else is deployed before the shoot has them;
//   - extension-controlplane-seed, the cloud-controller, if it is switched on;
//   - extension-controlplane-shoot, local-path-provisioner with its StorageClass and what cloud-controller may do in the
//     shoot.
//
// The names are those of Gardener's generic actuator, so that health checks and people find what they expect. Besides,
// there are a certificate authority and what hangs on it, kept by Gardener's secrets manager (see secrets.go).
//
// The generic actuator itself is not used. It writes ManagedResources that are not compressed, renders anew in every
// reconcile, and polls the ManagedResources it waits for, which holds a worker for minutes. A client wrapped around could
// compress on the way, but nothing of the rest: it would have to recognise these Secrets, give them the hash of other
// bytes as a name, keep the references in step, and there would still be the values provider with its five methods, the
// renderer factory and the charts in Gardener's format to write. The library's Actuator interface takes five methods in
// all, and those here are a few lines each since packages chart and resources do the work.
//
// No worker is held: what has to wait is left alone, and a watch on the ManagedResources wakes it.
package controlplane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilcache "k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/controlplane"
	"github.com/gardener/gardener/extensions/pkg/controller/controlplane/genericactuator"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"

	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	loadbalancers "github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer/shoot"
	machinecluster "github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

const (
	// WebhooksName is the name of the ManagedResource with the webhooks in the shoot.
	WebhooksName = genericactuator.ShootWebhooksResourceName
	// SeedName is the name of the ManagedResource with what is deployed beside the control plane.
	SeedName = genericactuator.ControlPlaneSeedChartResourceName
	// ShootName is the name of the ManagedResource with what is deployed into the shoot.
	ShootName = genericactuator.ControlPlaneShootChartResourceName
	// FormerStorageClassesName is the name of the ManagedResource with the StorageClass alone, which Gardener's generic actuator
	// makes, and with it the provider-local of Gardener itself. Here the StorageClass is in that with all else in the shoot.
	FormerStorageClassesName = genericactuator.StorageClassesChartResourceName

	cloudController      = "cloud-controller"
	localPathProvisioner = "local-path-provisioner"

	// retryWait is when a ControlPlane that waits for a ManagedResource is reconciled again if the watch does not do so earlier.
	retryWait = 30 * time.Second
	// failAfter is how long a wait may take until it is called an error, which Gardener shows to users.
	failAfter = 30 * time.Second
	// hibernatedWait is the pause between two looks at a kube-apiserver that is to go. It is not watched.
	hibernatedWait = 2 * time.Second
	// nodesFor is how long it is remembered whether the seed has several nodes.
	nodesFor = 10 * time.Minute
	// emptiedMax is how many ControlPlanes that are being deleted are remembered.
	emptiedMax = 1024
)

// ShootWebhooks deploys the webhooks of this extension into shoots, as ManagedResource NAMESPACE/WebhooksName.
type ShootWebhooks interface {
	// Apply writes the ManagedResource in a shoot's namespace. It does not wait until its objects are applied.
	Apply(ctx context.Context, namespace string) error
	// Delete deletes it, and reports whether it is gone.
	Delete(ctx context.Context, namespace string) (gone bool, err error)
}

// Component is what it takes to deploy one.
type Component struct {
	// Chart is where its chart comes from.
	Chart chart.Source
	// Image is the reference of its image.
	Image string
}

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Resources writes the ManagedResources. It is to use the client of the manager.
	Resources *resources.Writer
	// Renderer renders for the seed. For a shoot's version another is made of it.
	Renderer *chart.Renderer
	// LocalPathProvisioner is deployed into the shoot.
	LocalPathProvisioner Component
	// CloudController is only needed if that is deployed.
	CloudController Component
	// DeployCloudController switches cloud-controller on. Where it was on before, it is removed.
	DeployCloudController bool
	// NodePorts has cloud-controller's Services in the seed made with node ports. It is to be set where the load balancers of the
	// seed are not those of our Service controller.
	NodePorts bool
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
	secretConfigs func(namespace string) []secretConfig
}

// AddToManager adds the controller. It does nothing if the classes do not include shoot. It is an error if there are no
// classes, or no image of local-path-provisioner, which the configuration may leave out.
//
// Needed permissions, beyond those of reconciler.Reconciler and of resources.Writer: list and watch on ManagedResources; get,
// list, create, patch, delete and deletecollection on Secrets. If cloud-controller is deployed, get on Deployments, list, watch
// and delete on Services, and list on Nodes; without the latter, no seed counts as one of one node.
func AddToManager(mgr manager.Manager, opts Options) error {
	if opts.LocalPathProvisioner.Image == "" {
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
	opts.Clock = cmp.Or[clock.Clock](opts.Clock, clock.RealClock{})
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

// actuator implements reconciler.Actuator.
type actuator struct {
	Options
	client client.Client
	// reader asks the API server.
	reader client.Reader
	// hibernating has the keys of ControlPlanes whose kube-apiserver is to go.
	hibernating sync.Map
	// nodes remembers whether the seed has one node.
	nodes *utilcache.Expiring
	// emptied has the UIDs of ControlPlanes that are being deleted and whose secrets are gone.
	emptied *lru.Cache
}

type operation = reconciler.Operation[*extensionsv1alpha1.ControlPlane]

var _ reconciler.Actuator[*extensionsv1alpha1.ControlPlane] = &actuator{}

// Reconcile deploys the webhooks, and all else once the shoot has them.
func (a *actuator) Reconcile(ctx context.Context, op *operation) error {
	cp := op.Object
	if op.Cluster.Shoot() == nil {
		return reconciler.NoCluster(cp.Namespace, "a shoot")
	}
	if err := checkProviderConfig(cp); err != nil {
		return err
	}
	if err := a.deployWebhooks(ctx, op); err != nil {
		return err
	}

	// One that nothing has ever been said of has none, unless a process has ended half-way: then creating them tells.
	isNew := op.Type == gardencorev1beta1.LastOperationTypeCreate && cp.Status.LastOperation == nil
	secrets, err := a.generateSecrets(ctx, op.Log, op.Cluster.Decoded(), isNew)
	if err != nil {
		return err
	}
	if err := a.deploy(ctx, op, secrets); errors.Is(err, resources.ErrDeleting) {
		return a.wait(op, err)
	} else if err != nil {
		return err
	}
	// The StorageClass stays in the shoot. A hibernated shoot has nobody to let go of it.
	if !op.Cluster.IsHibernated() {
		if err := a.discard(ctx, op, FormerStorageClassesName, a.Resources.Orphan); err != nil {
			return err
		}
	}
	if err := secrets.Cleanup(ctx); err != nil {
		return fmt.Errorf("deleting secrets that are not used any more: %w", err)
	}
	return nil
}

// Migrate removes what is in the seed. The shoot goes on without this seed, so what is in it stays, but for the webhooks:
// these call the seed. The secrets stay, too: Gardener takes those that move on from here only later, and the others go
// with the namespace.
func (a *actuator) Migrate(ctx context.Context, op *operation) error {
	return a.remove(ctx, op, leaveShoot)
}

// Delete removes everything. As long as GRM is deleting objects, it gives the worker back.
func (a *actuator) Delete(ctx context.Context, op *operation) error {
	return a.remove(ctx, op, emptyShoot)
}

// ForceDelete removes everything in the seed and waits for nothing: the shoot may be out of reach, so its objects are left
// where they are. gardenlet takes the finalizer off ManagedResources that nobody serves any more.
func (a *actuator) ForceDelete(ctx context.Context, op *operation) error {
	return a.remove(ctx, op, abandonShoot)
}

// checkProviderConfig refuses a configuration: there is no type for it, and to ignore what a user asks for is no answer.
func checkProviderConfig(cp *extensionsv1alpha1.ControlPlane) error {
	config := cp.Spec.ProviderConfig
	if config == nil || slices.Contains([]string{"", "{}", "null"}, strings.TrimSpace(string(config.Raw))) {
		return nil
	}
	return reconciler.ConfigurationProblem(
		errors.New("spec.providerConfig (of a shoot: spec.provider.controlPlaneConfig) is set, but a control plane of type local has no configuration: remove it"),
		reconciler.RetryMistake,
	)
}

// deployWebhooks deploys the webhooks and returns an error until the shoot has them: what is deployed next is to go through
// them. A hibernated shoot has nobody to apply them. Those from before they were switched off would call a server that is not
// there, so they are removed.
func (a *actuator) deployWebhooks(ctx context.Context, op *operation) error {
	namespace := op.Object.Namespace
	if a.ShootWebhooks == nil {
		return a.discard(ctx, op, WebhooksName, a.Resources.Delete)
	}
	if err := a.ShootWebhooks.Apply(ctx, namespace); errors.Is(err, resources.ErrDeleting) {
		return a.wait(op, err)
	} else if err != nil {
		return fmt.Errorf("deploying the webhooks of the shoot: %w", err)
	}
	if op.Cluster.IsHibernated() {
		return nil
	}

	mr, err := a.Resources.Check(ctx, a.reader, client.ObjectKey{Namespace: namespace, Name: WebhooksName}, isHealthy)
	if err == nil || mr == nil && !apierrors.IsNotFound(err) {
		return err
	}
	return a.wait(op, fmt.Errorf("waiting for the webhooks of the shoot: %w", err))
}

func isHealthy(mr *resourcesv1alpha1.ManagedResource) error {
	if err := health.CheckManagedResource(mr); err != nil {
		return err
	}
	return health.CheckManagedResourceProgressing(mr)
}

// deploy renders the charts and applies the ManagedResources. If nothing has changed, it renders and compresses nothing,
// and sends no request but, if cloud-controller is deployed, one for the Secret of its token and two to find its machines.
func (a *actuator) deploy(ctx context.Context, op *operation, secrets secretsmanager.Reader) error {
	volumes, err := a.renderLocalPathProvisioner(ctx, op.Cluster.Shoot())
	if err != nil {
		return err
	}
	shoot := resources.ManagedResource{
		Namespace: op.Object.Namespace, Name: ShootName, Objects: volumes,
		// Gardener is not to sweep them up with the user's objects before GRM deletes them.
		InjectedLabels: map[string]string{v1beta1constants.ShootNoCleanup: "true"},
	}
	// Machines that nobody manages have nobody who could tell where their load balancers lead.
	managed := v1beta1helper.HasManagedInfrastructure(op.Cluster.Shoot()) || !v1beta1helper.IsShootSelfHosted(op.Cluster.Shoot().Spec.Provider.Workers)
	if a.DeployCloudController && managed {
		err = a.deployCloudController(ctx, op, secrets, &shoot)
	} else {
		// What was there before it was switched off goes, and is not waited for.
		err = a.discard(ctx, op, SeedName, func(ctx context.Context, key client.ObjectKey) (bool, error) {
			if err := a.deleteAccess(ctx, op); err != nil {
				return false, err
			}
			return a.Resources.Delete(ctx, key)
		})
	}
	if err != nil {
		return err
	}
	return a.Resources.Apply(ctx, shoot)
}

// deployCloudController deploys cloud-controller beside the control plane, and adds to shoot what belongs there.
func (a *actuator) deployCloudController(ctx context.Context, op *operation, secrets secretsmanager.Reader, shoot *resources.ManagedResource) error {
	namespace := op.Object.Namespace
	if err := op.Apply(ctx, a.target(), accessSecret(namespace)); err != nil {
		return err
	}
	phase, err := a.hibernation(ctx, op)
	if err != nil {
		return err
	}
	machines, err := a.machineCluster(ctx, op.Object)
	if err != nil {
		return err
	}
	objects, err := a.renderCloudController(ctx, op, secrets, phase, machines)
	if err != nil {
		return err
	}
	seed := resources.ManagedResource{Namespace: namespace, Name: SeedName, Class: v1beta1constants.SeedResourceManagerClass}
	if phase != awake {
		seed.Labels = map[string]string{labelHibernation: phase}
	}
	addCloudController(&seed, shoot, objects)
	if err := a.Resources.Apply(ctx, seed); err != nil {
		return err
	}
	if key := client.ObjectKeyFromObject(op.Object); phase == hibernating {
		a.hibernating.Store(key, nil)
	} else {
		a.hibernating.Delete(key)
	}
	if machines["remote"] == true {
		return a.deleteLoadBalancers(ctx, op)
	}
	return nil
}

// deleteLoadBalancers deletes those in the seed, as long as there are any, of a shoot whose machines are in another cluster: they are from
// before its credentials had a kubeconfig, and lead to addresses that others may have by now. The cache has all Services of that type.
func (a *actuator) deleteLoadBalancers(ctx context.Context, op *operation) error {
	services := &corev1.ServiceList{}
	if err := a.client.List(ctx, services, client.InNamespace(op.Object.Namespace)); err != nil {
		return fmt.Errorf("listing the load balancers in the seed: %w", err)
	}
	var former []client.Object
	for i := range services.Items {
		if strings.HasPrefix(services.Items[i].Name, loadbalancers.NamePrefix) {
			former = append(former, &services.Items[i])
		}
	}
	if len(former) == 0 {
		return nil
	}
	if _, err := op.Delete(ctx, reconciler.Target{Client: a.client}.WithoutState(), former); err != nil {
		return err
	}
	return a.wait(op, fmt.Errorf("waiting until %d load balancers in the seed are gone, as the machines are in another cluster now", len(former)))
}

// addCloudController lets only that into the seed which is in the shoot's namespace there.
func addCloudController(seed, shoot *resources.ManagedResource, objects []client.Object) {
	for _, object := range objects {
		if object.GetNamespace() == seed.Namespace {
			seed.Objects = append(seed.Objects, object)
		} else {
			shoot.Objects = append(shoot.Objects, object)
		}
	}
}

func (a *actuator) renderLocalPathProvisioner(ctx context.Context, shoot *gardencorev1beta1.Shoot) ([]client.Object, error) {
	renderer, err := a.Renderer.For(shoot.Spec.Kubernetes.Version)
	if err != nil {
		return nil, err
	}
	return render(ctx, renderer, a.LocalPathProvisioner, chart.Release{Name: localPathProvisioner, Namespace: metav1.NamespaceSystem}, map[string]any{
		"vpa": map[string]any{"enabled": v1beta1helper.ShootWantsVerticalPodAutoscaler(shoot)},
	})
}

func (a *actuator) renderCloudController(ctx context.Context, op *operation, secrets secretsmanager.Reader, phase string, machines map[string]any) ([]client.Object, error) {
	server, ok := secrets.Get(serverName)
	if !ok {
		return nil, fmt.Errorf("the secrets manager has no secret %s", serverName)
	}
	replicas := 1
	if phase == hibernated {
		replicas = 0
	}

	namespace := op.Object.Namespace
	return render(ctx, a.Renderer, a.CloudController, chart.Release{Name: cloudController, Namespace: namespace}, map[string]any{
		"replicas": replicas,
		"shootAccess": map[string]any{
			"kubeconfigSecret": extensionscontroller.GenericTokenKubeconfigSecretNameFromCluster(op.Cluster.Decoded()),
			"tokenSecret":      accessSecret(namespace).Name,
		},
		"machineCluster": machines,
		"serverSecret":   server.Name,
		"vpa":            map[string]any{"enabled": a.VPA},
	})
}

func render(ctx context.Context, renderer *chart.Renderer, component Component, release chart.Release, values map[string]any) ([]client.Object, error) {
	values["image"] = component.Image
	objects, err := renderer.Render(ctx, component.Chart, release, values)
	if refused := (*chart.ValuesError)(nil); errors.As(err, &refused) {
		// Only another configuration of this extension helps. It has no code, as the mistake is not that of the shoot's owner: with one,
		// gardenlet would give up until they ask for another attempt.
		return nil, &reconcilerutils.RequeueAfterError{Cause: err, RequeueAfter: reconciler.RetryMistake}
	}
	return objects, err
}

// machineCluster are the values of the chart of cloud-controller that say where the machines are.
func (a *actuator) machineCluster(ctx context.Context, cp *extensionsv1alpha1.ControlPlane) (map[string]any, error) {
	if a.Clusters == nil {
		return a.seedOfMachines(ctx)
	}
	ref := cp.Spec.SecretRef
	cluster, err := a.Clusters.Get(ctx, ref, cp.Namespace)
	if err != nil {
		return nil, reconciler.RetrySlowly(err)
	}
	if !cluster.Remote {
		return a.seedOfMachines(ctx)
	}
	if ref.Namespace != cp.Namespace {
		return nil, reconciler.ConfigurationProblem(
			fmt.Errorf("the Secret %s/%s with the kubeconfig for the machines is not in the namespace of the shoot, %s, so cloud-controller can't use it", ref.Namespace, ref.Name, cp.Namespace),
			reconciler.RetryMistake,
		)
	}
	values := map[string]any{"remote": true, "secretName": ref.Name, "namespace": cluster.Namespace, "nodePorts": true}
	if len(a.AllowedCIDRs) > 0 {
		values["allowedCIDRs"] = a.AllowedCIDRs
	}
	return values, nil
}

// seedOfMachines looks at how many nodes the seed has, once for all ControlPlanes that come within a while. Where that is not
// to be known, it has several.
func (a *actuator) seedOfMachines(ctx context.Context) (map[string]any, error) {
	const oneNode = "oneNode"
	isOne, ok := a.nodes.Get(oneNode)
	if !ok {
		nodes := &metav1.PartialObjectMetadataList{}
		nodes.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NodeList"))
		if err := a.reader.List(ctx, nodes, client.Limit(2)); err != nil && !apierrors.IsForbidden(err) {
			return nil, fmt.Errorf("counting the nodes of the seed: %w", err)
		}
		isOne = len(nodes.Items) == 1
		a.nodes.Set(oneNode, isOne, nodesFor)
	}
	return map[string]any{oneNode: isOne, "nodePorts": a.NodePorts}, nil
}

// target is the seed. The state of what is written there is of no interest.
func (a *actuator) target() reconciler.Target {
	return reconciler.Target{Client: a.client, Unread: true}
}

// accessSecret is the Secret into which gardener-resource-manager puts the token of cloud-controller for the API server of the shoot.
func accessSecret(namespace string) *corev1.Secret {
	access := gardenerutils.NewShootAccessSecret(cloudController, namespace)
	secret := access.Secret
	secret.Type = corev1.SecretTypeOpaque
	secret.Labels = map[string]string{
		resourcesv1alpha1.ResourceManagerPurpose: resourcesv1alpha1.LabelPurposeTokenRequest,
		resourcesv1alpha1.ResourceManagerClass:   access.Class,
	}
	secret.Annotations = map[string]string{
		resourcesv1alpha1.ServiceAccountName:      access.ServiceAccountName,
		resourcesv1alpha1.ServiceAccountNamespace: metav1.NamespaceSystem,
	}
	return secret
}

func (a *actuator) deleteAccess(ctx context.Context, op *operation) error {
	_, err := op.Delete(ctx, a.target(), []client.Object{accessSecret(op.Object.Namespace)})
	return err
}

// The phases of a shoot's hibernation.
const (
	// awake is also said of a shoot that is deleted or migrated: Gardener wakes it up for that.
	awake = ""
	// hibernating means that it is to be hibernated, but kube-apiserver is still there.
	hibernating = "hibernating"
	// hibernated means that there is no kube-apiserver.
	hibernated = "hibernated"

	// labelHibernation is the label of the ManagedResource with cloud-controller that has the last phase other than awake, for
	// the next instance.
	labelHibernation = "local.provider.extensions.gardener.cloud/hibernation"
)

// hibernation returns the phase. It costs a request only for a shoot that is to be hibernated.
func (a *actuator) hibernation(ctx context.Context, op *operation) (string, error) {
	if !a.isToHibernate(op.Cluster.Shoot()) {
		return awake, nil
	}
	up, err := a.hasKubeAPIServer(ctx, op.Object.Namespace)
	if up || err != nil {
		return hibernating, err
	}
	return hibernated, nil
}

// isToHibernate reports whether cloud-controller is to be stopped once kube-apiserver is gone.
func (a *actuator) isToHibernate(shoot *gardencorev1beta1.Shoot) bool {
	last := shoot.Status.LastOperation
	return a.DeployCloudController && v1beta1helper.HibernationIsEnabled(shoot) && shoot.DeletionTimestamp == nil &&
		(last == nil || last.Type != gardencorev1beta1.LastOperationTypeMigrate)
}

func (a *actuator) hasKubeAPIServer(ctx context.Context, namespace string) (bool, error) {
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: namespace, Name: v1beta1constants.DeploymentNameKubeAPIServer}
	if err := a.reader.Get(ctx, key, deployment); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("reading Deployment %s: %w", key, err)
	}
	return ptr.Deref(deployment.Spec.Replicas, 0) > 0, nil
}

// isLeftAlone tells of a ControlPlane that has been reconciled whether its shoot has fallen asleep since, so that
// cloud-controller has to, too: it works until kube-apiserver is gone, which is Gardener's order. It also tells of one that an
// instance has left in between, so that this one goes on; that costs no request, as both objects are cached.
func (a *actuator) isLeftAlone(ctx context.Context, cp *extensionsv1alpha1.ControlPlane) bool {
	if _, ok := a.hibernating.Load(client.ObjectKeyFromObject(cp)); ok {
		up, err := a.hasKubeAPIServer(ctx, cp.Namespace)
		return err == nil && !up
	}
	mr, err := reconciler.Find[resourcesv1alpha1.ManagedResource](ctx, a.client, client.ObjectKey{Namespace: cp.Namespace, Name: SeedName})
	if err != nil || mr == nil || mr.Labels[labelHibernation] != hibernating {
		return false
	}
	cluster, err := a.ShootClusters.Get(ctx, cp.Namespace)
	return err == nil && cluster.Shoot() != nil && a.isToHibernate(cluster.Shoot())
}

// lookAgain has ControlPlanes looked at again that are done, but whose shoot is being hibernated. As with the generic
// actuator, the operation has succeeded meanwhile: Gardener scales kube-apiserver down after it.
func (a *actuator) lookAgain(r reconcile.Reconciler) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
		result, err := r.Reconcile(ctx, request)
		if _, ok := a.hibernating.Load(request.NamespacedName); ok && err == nil && result.IsZero() {
			// A failed shoot is not looked at: the watch on Clusters tells when it is repaired.
			if cluster, err := a.ShootClusters.Get(ctx, request.Namespace); err != nil || !extensionscontroller.IsShootFailed(cluster.Shoot()) {
				result.RequeueAfter = hibernatedWait
			}
		}
		return result, err
	})
}

// ending is what becomes of the objects in the shoot.
type ending int

const (
	// emptyShoot deletes them and waits.
	emptyShoot ending = iota
	// leaveShoot keeps them, but for the webhooks, and waits until GRM has let go of them. It keeps the secrets as well.
	leaveShoot
	// abandonShoot waits for nothing. Gardener takes the finalizers off the ManagedResources then.
	abandonShoot
)

// removal removes a ManagedResource and reports whether it is gone.
type removal func(ctx context.Context, key client.ObjectKey) (gone bool, err error)

// remove removes the ManagedResources one after the other, the last deployed first, and the secrets after what uses them.
// Called again, it goes on where it was.
func (a *actuator) remove(ctx context.Context, op *operation, ending ending) error {
	fromShoot := a.Resources.Delete
	if ending == leaveShoot {
		fromShoot = a.Resources.Orphan
	}
	for _, step := range []struct {
		name   string
		remove removal
	}{
		{FormerStorageClassesName, a.ifThere(fromShoot)},
		{ShootName, fromShoot},
		{SeedName, a.Resources.Delete},
	} {
		if err := a.removeResource(ctx, op, ending, step.name, step.remove); err != nil {
			return err
		}
	}
	if _, ok := a.emptied.Get(op.Object.UID); !ok {
		if err := a.deleteAccess(ctx, op); err != nil {
			return err
		}
		if ending != leaveShoot {
			if err := a.deleteSecrets(ctx, op.Object.Namespace); err != nil {
				return err
			}
			a.emptied.Add(op.Object.UID, nil)
		}
	}
	return a.removeResource(ctx, op, ending, WebhooksName, a.deleteWebhooks)
}

// deleteWebhooks also deletes those of an instance that had some before they were switched off.
func (a *actuator) deleteWebhooks(ctx context.Context, key client.ObjectKey) (bool, error) {
	if a.ShootWebhooks == nil {
		return a.Resources.Delete(ctx, key)
	}
	return a.ShootWebhooks.Delete(ctx, key.Namespace)
}

func (a *actuator) removeResource(ctx context.Context, op *operation, ending ending, name string, remove removal) error {
	key := client.ObjectKey{Namespace: op.Object.Namespace, Name: name}
	gone, err := remove(ctx, key)
	if err == nil && !gone && ending != abandonShoot {
		err = a.wait(op, fmt.Errorf("ManagedResource %s is still being deleted, gardener-resource-manager's status on it tells why", key))
	}
	return err
}

// discard removes a ManagedResource that is not wanted any more, if there is one, and waits for nothing.
func (a *actuator) discard(ctx context.Context, op *operation, name string, remove removal) error {
	return a.removeResource(ctx, op, abandonShoot, name, a.ifThere(remove))
}

// ifThere spares the request for what the cache does not have: that is enough for what this instance does not make.
func (a *actuator) ifThere(remove removal) removal {
	return func(ctx context.Context, key client.ObjectKey) (bool, error) {
		if mr, err := reconciler.Find[resourcesv1alpha1.ManagedResource](ctx, a.client, key); mr == nil {
			return err == nil, err
		}
		return remove(ctx, key)
	}
}

// wait returns what has an operation go on when the watch on ManagedResources wakes the ControlPlane.
func (a *actuator) wait(op *operation, cause error) error {
	start := reconciler.NotBefore(reconciler.Requested(op.Object), op.Object.CreationTimestamp.Time)
	if op.Object.DeletionTimestamp != nil {
		start = op.Object.DeletionTimestamp.Time
	}
	taken := a.Clock.Since(start)
	if taken >= failAfter {
		return &reconcilerutils.RequeueAfterError{Cause: cause, RequeueAfter: retryWait}
	}
	return reconciler.Waiting(cause, min(retryWait, failAfter-taken))
}
