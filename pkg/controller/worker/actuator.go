// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/worker"
	"github.com/gardener/gardener/extensions/pkg/controller/worker/genericactuator"
	"github.com/gardener/gardener/extensions/pkg/controller/worker/helper"
	"github.com/gardener/gardener/extensions/pkg/util"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	extensionsv1alpha1helper "github.com/gardener/gardener/pkg/api/extensions/v1alpha1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	"github.com/gardener/gardener/pkg/utils"
	"github.com/gardener/gardener/pkg/utils/flow"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	"github.com/gardener/gardener/pkg/utils/kubernetes"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// parallel is how many objects are written at a time.
	parallel = 10
	// minReadySeconds and forceDeletion are what the generic actuator has.
	minReadySeconds    = 500
	forceDeletionLabel = "force-deletion"

	// waitMax is how long something may be awaited until that is an error; the generic actuator's.
	waitMax = 5 * time.Minute
	// retryWait is when a Worker that waits is looked at again, should no watch wake it before.
	retryWait = time.Minute
	// retryConflict is for the cache to catch up.
	retryConflict = time.Second

	// stuckAfter is how old a MachineDeployment has to be whose MachineSet is missing before machine-controller-manager is
	// taken for stuck, and how old its pod before that is deleted; the former is the generic actuator's.
	stuckAfter = 2 * time.Minute
	// mcmFinalizer and driverFinalizer are those of machine-controller-manager and of a machine driver. They are not
	// imported, since that would bring all of machine-controller-manager along.
	mcmFinalizer    = "machine.sapcloud.io/machine-controller-manager"
	driverFinalizer = "machine.sapcloud.io/machine-controller"

	// DriverRole is the name of the machine driver's ClusterRole in the chart, and of its RoleBinding beside each Worker.
	DriverRole = "gardener-extension-provider-local-seed-machine-driver"
)

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Sizing is how a machine type bounds machines unless the pool's providerConfig says otherwise.
	Sizing localv1alpha1.MachineSizing
	// AllowedSizings are what the providerConfig of a pool may choose.
	AllowedSizings []localv1alpha1.MachineSizing
	// GPUResourceName is the resource for the GPUs of a machine type.
	GPUResourceName corev1.ResourceName
	// BackupHostPath is the folder of the backup buckets as the seed's nodes see it, for pools that share it.
	BackupHostPath string
	// Clusters find the machine pods of a Worker that is deleted by force. If it is nil, they are looked for in the seed.
	Clusters cluster.Clusters
	// Clock tells since when something is awaited. Default: the real one.
	Clock clock.Clock
}

// AddToManager adds the controller. It does nothing if the classes do not include shoot. It is an error if there are no classes.
//
// The client of the manager is to cache the kinds of machine.sapcloud.io, and neither Secrets nor Deployments.
//
// Needed permissions, beyond those of reconciler.Reconciler: get, list, watch, create, patch, delete and deletecollection on
// machinedeployments, machinesets, machines and machineclasses of machine.sapcloud.io; get, list, create, patch, delete and
// deletecollection on secrets; list and delete on pods, list and delete on services; get on deployments and patch on
// deployments/scale named machine-controller-manager; create and patch on rolebindings named DriverRole, and what is in it.
func AddToManager(mgr manager.Manager, opts Options) error {
	r := newReconciler(mgr, opts)
	return r.AddToManager(mgr, worker.ControllerName, func(b *builder.Builder) {
		// What Workers wait for.
		for _, kind := range []client.Object{
			&machinev1alpha1.MachineDeployment{}, &machinev1alpha1.MachineSet{}, &machinev1alpha1.Machine{}, &machinev1alpha1.MachineClass{},
		} {
			b.Watches(kind, handler.EnqueueRequestsFromMapFunc(r.UnderWay), builder.WithPredicates(awaited()))
		}
		// Machines that are updated in place by hand, as the library has it. The library looks at MachineDeployments with this
		// context, in the manager's cache. Nothing is under way when it would end.
		updated := worker.MachineConditionChangedPredicate(context.Background(), mgr.GetLogger().WithValues("controller", worker.ControllerName), mgr.GetClient())
		ours := r.Classes.Predicates(nil, localv1alpha1.Type)
		b.Watches(&machinev1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(worker.MachineToWorkerMapper(mgr.GetClient(), ours)), builder.WithPredicates(updated))
	})
}

func newReconciler(mgr manager.Manager, opts Options) *reconciler.Reconciler[*extensionsv1alpha1.Worker] {
	opts.Clock = cmp.Or[clock.Clock](opts.Clock, clock.RealClock{})
	actuator := &actuator{Options: opts, client: mgr.GetClient(), reader: mgr.GetAPIReader()}
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.Worker]{
		Shared:    opts.Shared,
		Client:    mgr.GetClient(),
		Finalizer: worker.FinalizerName,
		Actuator:  actuator,
		IsAmiss:   actuator.isUpdating,
		Clock:     opts.Clock,
	})
}

// awaited lets through what may be the end of a wait: an object that is gone, a MachineSet that is new, and a change of
// what aspect returns. That all others are new is seen at the start of a program only, where all Workers that are under
// way are reconciled anyway.
func awaited() predicate.Predicate {
	changed := reconciler.Changed(aspect)
	changed.CreateFunc = func(e event.CreateEvent) bool {
		_, isSet := e.Object.(*machinev1alpha1.MachineSet)
		return isSet
	}
	return changed
}

// aspect is what awaitMachines and Delete look at.
func aspect(obj client.Object) any {
	switch o := obj.(type) {
	case *machinev1alpha1.MachineDeployment:
		// Of the conditions only their meaning counts. Their times change all the time.
		status := o.Status
		status.Conditions = nil
		return []any{status, health.CheckMachineDeployment(o)}
	case *machinev1alpha1.MachineSet:
		return []any{o.Spec.Template.Spec.Class.Name, o.Status.Replicas}
	case *machinev1alpha1.Machine:
		reason, failure := "", ""
		if condition := worker.GetMachineCondition(o, machinev1alpha1.NodeInPlaceUpdate); condition != nil {
			reason = condition.Reason
		}
		if cannotBeDeleted(o) {
			failure = o.Status.LastOperation.Description
		}
		return []string{reason, failure}
	default:
		return nil
	}
}

// actuator implements reconciler.Actuator.
type actuator struct {
	Options
	// client has the kinds of machine.sapcloud.io in its cache.
	client client.Client
	// reader asks the API server.
	reader client.Reader
}

type operation = reconciler.Operation[*extensionsv1alpha1.Worker]

// Reconcile implements reconciler.Actuator. It takes all steps of a reconciliation up to the first for which something else has to
// happen before. What it puts into the status is written when it returns.
func (a *actuator) Reconcile(ctx context.Context, op *operation) (err error) {
	defer func() { err = transient(err) }()
	w, hibernated := op.Object, op.Cluster.IsHibernated()
	if op.Type == gardencorev1beta1.LastOperationTypeRestore {
		if err := a.restore(ctx, op); err != nil {
			return err
		}
	}
	existing, err := a.observe(ctx, w.Namespace)
	if err != nil {
		return err
	}
	var keep []machinev1alpha1.MachineDeployment
	if !isRequested(w, op.Asked || a.IgnoreOperationAnnotation) {
		if slices.ContainsFunc(w.Spec.Pools, func(p extensionsv1alpha1.WorkerPool) bool {
			return v1beta1helper.IsUpdateStrategyInPlace(p.UpdateStrategy)
		}) {
			// Such a pool keeps its class. The cache may not have that of an earlier attempt yet.
			live := machinev1alpha1.MachineDeploymentList{}
			if err := a.reader.List(ctx, &live, client.InNamespace(w.Namespace)); err != nil {
				return fmt.Errorf("listing the MachineDeployments in %s: %w", w.Namespace, err)
			}
			existing.deployments = live
		}
		keep = existing.deployments.Items
	}
	machines, err := a.machinesOf(w, op.Cluster, keep)
	if err != nil {
		return err
	}

	starts := isStart(w, op.Asked)
	if err := a.deployClasses(ctx, op, machines, existing.classes.Items, starts); err != nil {
		return err
	}
	recordImages(w, machines)
	deployed, err := a.deployDeployments(ctx, op, machines, existing)
	if err != nil {
		return err
	}
	a.recordDeployments(w, machines, starts)
	if starts && op.Type == gardencorev1beta1.LastOperationTypeRestore {
		// Else an attempt that is stopped here would be followed by another restoration.
		if err := op.SaveStatus(ctx); err != nil {
			return err
		}
	}
	if err := a.awaitMachines(ctx, op, deployed, existing, hibernated); err != nil {
		return err
	}
	hashes, err := updatedInPlace(w, op.Cluster, deployed)
	if err != nil {
		return err
	}
	if !maps.Equal(hashes, inPlaceHashes(w)) {
		w.Status.InPlaceUpdates = &extensionsv1alpha1.InPlaceUpdatesWorkerStatus{WorkerPoolToHashMap: hashes}
	}
	if err := a.deleteUnwanted(ctx, op, machines, existing); err != nil {
		return err
	}
	if hibernated {
		return a.scaleMachineControllerManager(ctx, w.Namespace, 0)
	}
	return nil
}

// observed is what the cache has in the namespace of a Worker. It is shared, do not change it.
type observed struct {
	deployments machinev1alpha1.MachineDeploymentList
	sets        machinev1alpha1.MachineSetList
	machines    machinev1alpha1.MachineList
	classes     machinev1alpha1.MachineClassList
}

func (a *actuator) observe(ctx context.Context, namespace string) (*observed, error) {
	out := &observed{}
	for _, list := range []client.ObjectList{&out.deployments, &out.sets, &out.machines, &out.classes} {
		if err := a.client.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("listing what there is of machines in %s: %w", namespace, err)
		}
	}
	return out, nil
}

// isRequested reports whether Gardener has asked for what is done now, or has since the MachineDeployments were deployed last. Else
// it is a retry, or a machine has woken the Worker.
func isRequested(w *extensionsv1alpha1.Worker, asked bool) bool {
	last := w.Status.MachineDeploymentsLastUpdateTime
	return asked || last == nil || last.Time.Before(reconciler.Requested(w))
}

// isStart reports whether this is the first attempt of an operation, or an earlier one did not get as far as to the
// MachineDeployments. The time at which these were deployed last is then older than what asked for the operation.
func isStart(w *extensionsv1alpha1.Worker, asked bool) bool {
	last := w.Status.LastOperation
	return isRequested(w, asked) || last != nil && last.State == gardencorev1beta1.LastOperationStateSucceeded
}

// bindDriver allows the machine driver to make Pods and Services. It shares the ServiceAccount of machine-controller-manager, and
// Gardener's Role for that does not, as other drivers talk to a cloud.
func (a *actuator) bindDriver(ctx context.Context, op *operation) error {
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: op.Object.Namespace, Name: DriverRole},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: DriverRole},
		Subjects: []rbacv1.Subject{{
			Kind: rbacv1.ServiceAccountKind, Namespace: op.Object.Namespace, Name: v1beta1constants.DeploymentNameMachineControllerManager,
		}},
	}
	if err := controllerutil.SetOwnerReference(op.Object, binding, a.client.Scheme()); err != nil {
		return err
	}
	return op.Apply(ctx, reconciler.Target{Client: a.client}.WithoutState(), binding)
}

// deployClasses deploys the classes, each after its Secret, and before them what the driver needs to make machines. User data is
// fetched at the start of an operation, and for classes that are new: Secrets are not cached.
func (a *actuator) deployClasses(ctx context.Context, op *operation, machines []zoned, existing []machinev1alpha1.MachineClass, starts bool) error {
	if err := a.bindDriver(ctx, op); err != nil {
		return err
	}
	var tasks []flow.TaskFn
	for _, m := range machines {
		if err := m.pool.checkStays(existing); err != nil {
			return err
		}
		isThere := slices.ContainsFunc(existing, func(class machinev1alpha1.MachineClass) bool { return class.Name == m.class.Name })
		needsSecret := starts || !isThere
		if needsSecret && m.pool.userData == nil {
			data, err := worker.FetchUserData(ctx, a.client, m.class.Namespace, m.pool.WorkerPool)
			if err != nil {
				return err
			}
			m.pool.userData = data
		}
		tasks = append(tasks, func(ctx context.Context) error {
			if needsSecret {
				if err := a.deploySecret(ctx, op, classSecret(m.class, m.pool.userData), isThere); err != nil {
					return err
				}
			}
			return a.deployClass(ctx, m.class)
		})
	}
	return flow.ParallelN(parallel, tasks...)(ctx)
}

// deploySecret deploys the Secret of a class. It reads one that is there, so that one that is as it is to be is not written.
func (a *actuator) deploySecret(ctx context.Context, op *operation, desired *corev1.Secret, isThere bool) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: desired.Namespace, Name: desired.Name}}
	return op.Ensure(ctx, reconciler.Target{Client: a.client, Live: a.client}, secret, isThere, func() error {
		secret.Labels = utils.MergeStringMaps(secret.Labels, desired.Labels)
		secret.Type, secret.Data = desired.Type, desired.Data
		return nil
	})
}

func (a *actuator) deployClass(ctx context.Context, desired *machinev1alpha1.MachineClass) error {
	class := &machinev1alpha1.MachineClass{ObjectMeta: metav1.ObjectMeta{Namespace: desired.Namespace, Name: desired.Name}}
	return a.deploy(ctx, class, func() {
		class.Provider, class.ProviderSpec, class.NodeTemplate = desired.Provider, desired.ProviderSpec, desired.NodeTemplate
		class.SecretRef, class.CredentialsSecretRef = desired.SecretRef, desired.CredentialsSecretRef
		class.Labels = utils.MergeStringMaps(class.Labels, desired.Labels)
	})
}

// deploy compares an object with the cache, so that one that is as it is to be takes no request.
func (a *actuator) deploy(ctx context.Context, obj client.Object, change func()) error {
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, a.client, obj, func() error {
		change()
		return nil
	}, controllerutils.SkipEmptyPatch{}); err != nil {
		return fmt.Errorf("deploying %s: %w", reconciler.NameOf(obj), err)
	}
	return nil
}

// deployDeployments deploys the MachineDeployments and returns them as the API server has them then. Its answers are newer
// than the cache, so nothing is taken for the outcome of this that is from before. They are patched, not applied: replicas are
// cluster-autoscaler's as well, and only a change of ours may overwrite what it has set meanwhile.
func (a *actuator) deployDeployments(ctx context.Context, op *operation, machines []zoned, existing *observed) ([]machinev1alpha1.MachineDeployment, error) {
	w, hibernated := op.Object, op.Cluster.IsHibernated()
	if hibernated {
		if err := a.forceDeletion(ctx, existing.machines.Items); err != nil {
			return nil, err
		}
	}

	scale := scaling{hibernated: hibernated, autoscaled: extensionsv1alpha1helper.ClusterAutoscalerRequired(w.Spec.Pools)}
	out := make([]machinev1alpha1.MachineDeployment, len(machines))
	var tasks []flow.TaskFn
	for i := range machines {
		deployment, want := &out[i], &machines[i].deployment
		deployment.Namespace, deployment.Name = w.Namespace, want.Name
		tasks = append(tasks, func(ctx context.Context) error {
			return a.deploy(ctx, deployment, func() {
				deployment.Spec.Replicas = scale.replicas(deployment, want)
				mutateDeployment(deployment, want, w.Name)
			})
		})
	}
	return out, flow.ParallelN(parallel, tasks...)(ctx)
}

// scaling decides about replicas.
type scaling struct {
	hibernated, autoscaled bool
}

// replicas returns how many machines are wanted. Between minimum and maximum that is cluster-autoscaler's matter, if there
// is one, but for a deployment that is new.
func (s scaling) replicas(current *machinev1alpha1.MachineDeployment, want *worker.MachineDeployment) int32 {
	switch {
	case s.hibernated:
		return 0
	case !s.autoscaled, current.UID == "":
		return want.Minimum
	default:
		return min(max(current.Spec.Replicas, want.Minimum), want.Maximum)
	}
}

// mutateDeployment sets all but the replicas. What the template is annotated with is machine-controller-manager's.
func mutateDeployment(deployment *machinev1alpha1.MachineDeployment, want *worker.MachineDeployment, workerName string) {
	metav1.SetMetaDataLabel(&deployment.ObjectMeta, v1beta1constants.LabelWorkerPool, want.PoolName)
	for name, value := range want.ClusterAutoscalerAnnotations {
		if value == "" {
			delete(deployment.Annotations, name)
		} else {
			metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, name, value)
		}
	}

	selector := map[string]string{worker.LabelKeyMachineDeploymentName: want.Name}
	labels := maps.Clone(selector)
	if want.Strategy.Type == machinev1alpha1.InPlaceUpdateMachineDeploymentStrategyType {
		labels[v1beta1constants.LabelWorkerName] = workerName
	}

	spec := &deployment.Spec
	spec.RevisionHistoryLimit = new(int32(0))
	spec.MinReadySeconds = minReadySeconds
	spec.Strategy = want.Strategy
	spec.Selector = &metav1.LabelSelector{MatchLabels: selector}
	spec.AutoPreserveFailedMachineMax = want.AutoPreserveFailedMachineMax
	spec.Template.Labels = labels
	spec.Template.Spec = machinev1alpha1.MachineSpec{
		Class: machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: want.ClassName},
		NodeTemplateSpec: machinev1alpha1.NodeTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: want.Annotations, Labels: want.Labels},
			Spec:       corev1.NodeSpec{Taints: want.Taints},
		},
		MachineConfiguration: want.MachineConfiguration,
	}
}

// forceDeletion has machines deleted without regard to what runs on them.
func (a *actuator) forceDeletion(ctx context.Context, machines []machinev1alpha1.Machine) error {
	var tasks []flow.TaskFn
	for i := range machines {
		if machines[i].Labels[forceDeletionLabel] == "True" {
			continue
		}
		tasks = append(tasks, func(ctx context.Context) error {
			machine := machines[i].DeepCopy()
			metav1.SetMetaDataLabel(&machine.ObjectMeta, forceDeletionLabel, "True")
			if err := client.IgnoreNotFound(a.client.Patch(ctx, machine, client.MergeFrom(&machines[i]))); err != nil {
				return fmt.Errorf("labelling Machine %s for deletion: %w", client.ObjectKeyFromObject(machine), err)
			}
			return nil
		})
	}
	return flow.ParallelN(parallel, tasks...)(ctx)
}

// recordDeployments tells gardenlet the MachineDeployments, and in each operation anew that they have been deployed:
// gardenlet waits for a later time before it deploys cluster-autoscaler with what is there.
func (a *actuator) recordDeployments(w *extensionsv1alpha1.Worker, machines []zoned, starts bool) {
	var deployments []extensionsv1alpha1.MachineDeployment
	for _, d := range wanted(machines) {
		deployments = append(deployments, extensionsv1alpha1.MachineDeployment{Name: d.Name, Minimum: d.Minimum, Maximum: d.Maximum, Priority: d.Priority})
	}
	if starts || !apiequality.Semantic.DeepEqual(deployments, w.Status.MachineDeployments) {
		w.Status.MachineDeployments = deployments
		w.Status.MachineDeploymentsLastUpdateTime = reconciler.LaterThan(w.Status.MachineDeploymentsLastUpdateTime, a.Clock.Now(), w)
	}
}

// awaitMachines returns an error unless all machines are there, or gone in the case of a hibernation. Machines that have
// failed are an error at once, unless it is their deletion that did; what is under way only when it has taken too long. With
// either of them, a machine-controller-manager that is stuck gets another pod, unless the deployments are too new for it to
// be.
func (a *actuator) awaitMachines(ctx context.Context, op *operation, deployed []machinev1alpha1.MachineDeployment, existing *observed, hibernated bool) error {
	begin := op.Object.Status.MachineDeploymentsLastUpdateTime.Time
	err := anyFailed(deployed)
	if err == nil {
		err = a.waitSince(begin, checkMachines(deployed, existing, hibernated), retryWait)
	}
	if err == nil || reconciler.IsWaiting(err) || a.Clock.Since(begin) < stuckAfter {
		return err
	}
	if err := a.replaceStuckManager(ctx, op, deployed, existing.sets.Items); err != nil {
		op.Log.Error(err, "Replacing a machine-controller-manager that seems to be stuck")
	}
	return err
}

func anyFailed(deployments []machinev1alpha1.MachineDeployment) error {
	var failed []*machinev1alpha1.MachineSummary
	for _, deployment := range deployments {
		for _, machine := range deployment.Status.FailedMachines {
			if !failsToGo(machine) {
				failed = append(failed, machine)
			}
		}
	}
	return failedMachines(failed)
}

// failsToGo tells a machine whose deletion has failed. machine-controller-manager drains and deletes it again by itself, and
// has it so for a moment if somebody else changed the Node meanwhile.
func failsToGo(machine *machinev1alpha1.MachineSummary) bool {
	return machine.LastOperation.Type == machinev1alpha1.MachineOperationDelete
}

// checkMachines returns what is still missing, in one line of bounded length; nil if nothing is. Of a hibernated shoot that
// is that all machines are gone.
func checkMachines(deployed []machinev1alpha1.MachineDeployment, existing *observed, hibernated bool) error {
	var (
		missing  []string
		sets     = gardenerutils.BuildOwnerToMachineSetsMap(existing.sets.Items)
		machines = gardenerutils.BuildMachineSetToMachinesMap(existing.machines.Items)
	)
	for i := range deployed {
		deployment := &deployed[i]
		if hibernated && deployment.Status.Replicas > 0 {
			missing = append(missing, fmt.Sprintf("machine deployment %s has %d machines that are to be hibernated", deployment.Name, deployment.Status.Replicas))
		}
		if reason := unavailable(deployment, sets, machines); !hibernated && reason != "" {
			missing = append(missing, reason)
		}
		for _, machine := range deployment.Status.FailedMachines {
			if failsToGo(machine) {
				missing = append(missing, fmt.Sprintf("machine %s is not gone yet: %s", machine.Name, machine.LastOperation.Description))
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return errors.New("waiting for machines: " + reconciler.JoinSome(missing, "; "))
}

// unavailable returns why a MachineDeployment is not as it is to be; empty if it is. The criteria are those of the generic
// actuator, which has them for the sums over all MachineDeployments.
func unavailable(deployment *machinev1alpha1.MachineDeployment, sets map[string][]machinev1alpha1.MachineSet, machines map[string][]machinev1alpha1.Machine) string {
	status, name := deployment.Status, deployment.Name
	latest := latestSet(deployment, sets)
	if latest == nil {
		return fmt.Sprintf("machine deployment %s has no machine set with its machine class yet", name)
	}

	// With updates in place by hand, old machines stay until somebody selects them. Machine sets know before the deployment
	// does how many there are.
	var left, updating int32
	if gardenerutils.IsMachineDeploymentStrategyManualInPlace(deployment.Spec.Strategy) {
		for _, set := range helper.GetOldMachineSets(sets[name], *latest) {
			left += set.Status.Replicas
			updating += beingUpdated(machines[set.Name])
		}
	}
	if updating > 0 {
		return fmt.Sprintf("machine deployment %s has %d machines that are being updated in place", name, updating)
	}

	counts := fmt.Sprintf("machine deployment %s has %d of %d machines available, %d of %d are up to date",
		name, status.AvailableReplicas, deployment.Spec.Replicas, status.UpdatedReplicas+left, status.Replicas)
	if err := health.CheckMachineDeployment(deployment); err != nil {
		return counts + ": " + err.Error()
	}
	// Machines that are kept though they have failed never become available.
	if status.UpdatedReplicas+left != status.Replicas || status.UnavailableReplicas > status.PreservedFailedReplicas {
		return counts
	}
	return ""
}

func latestSet(deployment *machinev1alpha1.MachineDeployment, sets map[string][]machinev1alpha1.MachineSet) *machinev1alpha1.MachineSet {
	return helper.GetMachineSetWithMachineClass(deployment.Name, deployment.Spec.Template.Spec.Class.Name, sets)
}

// beingUpdated counts the machines that somebody has selected, but for those with one of these reasons.
func beingUpdated(machines []machinev1alpha1.Machine, except ...string) int32 {
	var count int32
	for i := range machines {
		condition := worker.GetMachineCondition(&machines[i], machinev1alpha1.NodeInPlaceUpdate)
		if condition != nil && !slices.Contains(append(except, machinev1alpha1.CandidateForUpdate), condition.Reason) {
			count++
		}
	}
	return count
}

// replaceStuckManager deletes the pods of a machine-controller-manager that has acknowledged a MachineDeployment by its
// finalizer but made no MachineSet for it in a long time.
func (a *actuator) replaceStuckManager(ctx context.Context, op *operation, deployed []machinev1alpha1.MachineDeployment, sets []machinev1alpha1.MachineSet) error {
	byDeployment := gardenerutils.BuildOwnerToMachineSetsMap(sets)
	stuck := slices.IndexFunc(deployed, func(d machinev1alpha1.MachineDeployment) bool {
		return controllerutil.ContainsFinalizer(&d, mcmFinalizer) && a.Clock.Since(d.CreationTimestamp.Time) >= stuckAfter && latestSet(&d, byDeployment) == nil
	})
	if stuck < 0 {
		return nil
	}
	pods := metadataOf("Pod")
	isManager := client.MatchingLabels{v1beta1constants.LabelRole: v1beta1constants.DeploymentNameMachineControllerManager}
	if err := a.reader.List(ctx, pods, client.InNamespace(op.Object.Namespace), isManager); err != nil {
		return fmt.Errorf("listing the pods of machine-controller-manager: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		// One that has just been started gets its time.
		if pod.DeletionTimestamp != nil || a.Clock.Since(pod.CreationTimestamp.Time) < stuckAfter {
			continue
		}
		op.Log.Info("Deleting a pod of machine-controller-manager, which makes no machine set", "pod", pod.Name, "machineDeployment", deployed[stuck].Name)
		if err := client.IgnoreNotFound(a.client.Delete(ctx, pod)); err != nil {
			return fmt.Errorf("deleting pod %s: %w", client.ObjectKeyFromObject(pod), err)
		}
	}
	return nil
}

func (a *actuator) scaleMachineControllerManager(ctx context.Context, namespace string, replicas int32) error {
	key := client.ObjectKey{Namespace: namespace, Name: v1beta1constants.DeploymentNameMachineControllerManager}
	if err := client.IgnoreNotFound(kubernetes.ScaleDeployment(ctx, a.client, key, replicas)); err != nil {
		return fmt.Errorf("scaling Deployment %s to %d: %w", key, replicas, err)
	}
	return nil
}

// inPlaceHashes are those that the status has of pools that are updated in place and have been. Where people choose the machines
// that may take longer than an operation; the Worker is woken for each machine.
func inPlaceHashes(w *extensionsv1alpha1.Worker) map[string]string {
	return ptr.Deref(w.Status.InPlaceUpdates, extensionsv1alpha1.InPlaceUpdatesWorkerStatus{}).WorkerPoolToHashMap
}

// updatedInPlace returns the hashes of the pools that are updated in place, of those that have not been yet that of before. A
// pool whose update Gardener has not asked for yet counts among these: credentials are rotated in the Cluster first.
func updatedInPlace(w *extensionsv1alpha1.Worker, cluster *extensioncluster.Cluster, deployed []machinev1alpha1.MachineDeployment) (map[string]string, error) {
	known, hashes := inPlaceHashes(w), map[string]string{}
	for _, p := range w.Spec.Pools {
		if !v1beta1helper.IsUpdateStrategyInPlace(p.UpdateStrategy) {
			continue
		}
		class, err := (&pool{WorkerPool: p}).newHash(cluster)
		if err != nil {
			return nil, fmt.Errorf("worker pool %s: %w", p.Name, err)
		}
		isLeft := slices.ContainsFunc(deployed, func(d machinev1alpha1.MachineDeployment) bool {
			hash := classHash(&d)
			isRequested := hash == "" || hash == class
			isOutdated := v1beta1helper.IsUpdateStrategyManualInPlace(p.UpdateStrategy) && d.Status.UpdatedReplicas < d.Status.Replicas
			return d.Labels[v1beta1constants.LabelWorkerPool] == p.Name && (!isRequested || isOutdated)
		})
		if isLeft {
			if hash, ok := known[p.Name]; ok {
				hashes[p.Name] = hash
			}
			continue
		}
		hash, err := gardenerutils.CalculateWorkerPoolHashForInPlaceUpdate(p.Name, p.KubernetesVersion, p.KubeletConfig, p.MachineImage.Version, cluster.Shoot().Status.Credentials)
		if err != nil {
			return nil, fmt.Errorf("worker pool %s: calculating the hash for updates in place: %w", p.Name, err)
		}
		hashes[p.Name] = hash
	}
	return hashes, nil
}

// isUpdating tells of a Worker that has been reconciled whether people have chosen machines to be updated in place since, or
// whether all of a pool are updated by now.
func (a *actuator) isUpdating(ctx context.Context, w *extensionsv1alpha1.Worker) bool {
	isManual := func(p extensionsv1alpha1.WorkerPool) bool {
		return v1beta1helper.IsUpdateStrategyManualInPlace(p.UpdateStrategy)
	}
	if !slices.ContainsFunc(w.Spec.Pools, isManual) {
		return false
	}
	cluster, err := a.ShootClusters.Get(ctx, w.Namespace)
	if err != nil || cluster.Shoot() == nil {
		return false
	}
	existing, err := a.observe(ctx, w.Namespace)
	if err != nil {
		return false
	}
	hashes, err := updatedInPlace(w, cluster, existing.deployments.Items)
	// The condition of a machine that has been updated stays.
	return beingUpdated(existing.machines.Items, machinev1alpha1.UpdateSuccessful) > 0 || err == nil && !maps.Equal(hashes, inPlaceHashes(w))
}

// restore brings back what another seed had of machines, once: Reconcile puts into the status when it has deployed the
// MachineDeployments, and from then on machines that are not there any more have been replaced. The API server is asked
// for the status, as the cache may be behind.
func (a *actuator) restore(ctx context.Context, op *operation) error {
	w := op.Object
	live := &extensionsv1alpha1.Worker{}
	if err := a.reader.Get(ctx, client.ObjectKeyFromObject(w), live); err != nil {
		return fmt.Errorf("reading the Worker: %w", err)
	}
	if live.Status.MachineDeploymentsLastUpdateTime != nil {
		w.Status.MachineDeploymentsLastUpdateTime = live.Status.MachineDeploymentsLastUpdateTime
		if !isRequested(w, false) || op.Cluster.IsHibernated() {
			return nil
		}
		// gardenlet has begun anew, and scales it down as long as no MachineDeployment has a status.
		return a.scaleMachineControllerManager(ctx, w.Namespace, 1)
	}
	// The library would wrap these errors.
	machines, err := a.machinesOf(w, op.Cluster, nil)
	if err != nil {
		return err
	}

	// gardenlet puts the state there, so it need not be looked for in the garden.
	if state := live.Status.State; state == nil || len(state.Raw) == 0 {
		op.Log.Info("There is no state to restore")
		if op.Cluster.IsHibernated() {
			return nil
		}
		return a.scaleMachineControllerManager(ctx, w.Namespace, 1)
	}
	w.Status.State = live.Status.State
	return genericactuator.RestoreWithoutReconcile(ctx, op.Log, nil, a.client, &restoration{actuator: a, op: op, machines: machines}, w, op.Cluster.Decoded())
}

// delegate is an interface of which a restoration calls two methods.
type delegate = genericactuator.WorkerDelegate

// restoration implements these two, and genericactuator.DelegateFactory.
type restoration struct {
	delegate
	actuator *actuator
	op       *operation
	machines []zoned
}

// WorkerDelegate implements genericactuator.DelegateFactory.
func (r *restoration) WorkerDelegate(context.Context, *extensionsv1alpha1.Worker, *extensionscontroller.Cluster) (genericactuator.WorkerDelegate, error) {
	return r, nil
}

// GenerateMachineDeployments implements genericactuator.WorkerDelegate.
func (r *restoration) GenerateMachineDeployments(context.Context) (worker.MachineDeployments, error) {
	return wanted(r.machines), nil
}

// DeployMachineClasses implements genericactuator.WorkerDelegate.
func (r *restoration) DeployMachineClasses(ctx context.Context) error {
	return r.actuator.deployClasses(ctx, r.op, r.machines, nil, true)
}

// Migrate implements reconciler.Actuator. As with the generic actuator there is nothing to do: the machines stay, and gardenlet
// takes the objects of machine-controller-manager away without it.
func (a *actuator) Migrate(context.Context, *operation) error {
	return nil
}

var (
	quotaExceeded = regexp.MustCompile("(?i)exceeded quota")
	exhausted     = regexp.MustCompile(`(?i)code = \[ResourceExhausted\]`)

	// knownCodes are Gardener's for what machine-controller-manager says of a machine. The machine driver returns status codes,
	// which are in these messages as "code = [ResourceExhausted]".
	knownCodes = map[gardencorev1beta1.ErrorCode]func(string) bool{
		gardencorev1beta1.ErrorInfraQuotaExceeded: quotaExceeded.MatchString,
		gardencorev1beta1.ErrorInfraResourcesDepleted: func(message string) bool {
			return exhausted.MatchString(message) && !quotaExceeded.MatchString(message)
		},
		gardencorev1beta1.ErrorConfigurationProblem: regexp.MustCompile(`(?i)code = \[InvalidArgument\]`).MatchString,
		gardencorev1beta1.ErrorInfraUnauthenticated: regexp.MustCompile(`(?i)code = \[Unauthenticated\]`).MatchString,
		gardencorev1beta1.ErrorInfraUnauthorized:    regexp.MustCompile(`(?i)code = \[PermissionDenied\]`).MatchString,
	}
)

// failedMachines returns an error with codes if there are machines that have failed, always with the same text for the same
// failures: the library's report is in the order of a map, so it is asked for one description at a time.
func failedMachines(machines []*machinev1alpha1.MachineSummary) error {
	if len(machines) == 0 {
		return nil
	}
	byDescription := map[string][]*machinev1alpha1.MachineSummary{}
	for _, machine := range slices.SortedFunc(slices.Values(machines), func(a, b *machinev1alpha1.MachineSummary) int { return cmp.Compare(a.Name, b.Name) }) {
		description := machine.LastOperation.Description
		byDescription[description] = append(byDescription[description], machine)
	}
	var errs []error
	for _, description := range slices.Sorted(maps.Keys(byDescription)) {
		errs = append(errs, helper.ReportFailedMachines(machinev1alpha1.MachineDeploymentStatus{FailedMachines: byDescription[description]}))
	}
	return failure(errors.Join(errs...))
}

// failure is for what will not go on without somebody's help: it is an error at once. A watch wakes the Worker if it does.
func failure(cause error) error {
	return &reconcilerutils.RequeueAfterError{Cause: v1beta1helper.NewErrorWithCodes(cause, util.DetermineErrorCodes(cause, knownCodes)...), RequeueAfter: retryWait}
}

// waitSince is for what goes on by itself, until it has taken waitMax since start. Without a cause there is nothing to wait for.
func (a *actuator) waitSince(start time.Time, cause error, retryAfter time.Duration) error {
	if cause == nil {
		return nil
	}
	if a.Clock.Since(start) > waitMax {
		return failure(fmt.Errorf("this takes more than %s: %w", waitMax, cause))
	}
	return reconciler.Waiting(cause, retryAfter)
}

// transient has what another client was faster with tried again soon, without calling it an error.
func transient(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return reconciler.Waiting(fmt.Errorf("trying again, as something has changed meanwhile: %w", err), retryConflict)
	}
	return err
}
