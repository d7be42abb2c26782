// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/gardener/gardener/extensions/pkg/controller/bastion"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// retryWait is for what a watch tells as well.
	retryWait = 30 * time.Second
	// retryRemote is for what is in another cluster, where there are no watches.
	retryRemote = 5 * time.Second
)

// actuator implements reconciler.Actuator.
type actuator struct {
	// client is that of the manager.
	client client.Client
	// reader asks the API server.
	reader client.Reader
	// cache has Pods as CacheOptions says, and Services.
	cache            client.Reader
	clusters         cluster.Clusters
	withoutNodePorts bool
}

type operation = reconciler.Operation[*extensionsv1alpha1.Bastion]

var _ reconciler.Actuator[*extensionsv1alpha1.Bastion] = (*actuator)(nil)

// check has a Bastion with a mistake get no finalizer, nor one whose machines are not known where: there is nothing to
// delete then.
func (a *actuator) check(ctx context.Context, op *operation) error {
	if op.Type == gardencorev1beta1.LastOperationTypeRestore {
		return refuse(op)
	}
	if _, err := newHost(op.Object, op.Cluster); err != nil {
		return err
	}
	if controllerutil.ContainsFinalizer(op.Object, bastion.FinalizerName) {
		return nil
	}
	_, err := a.cluster(ctx, op.Object)
	return err
}

// refuse is for migrate and restore, for which Gardener does not ask.
func refuse(op *operation) error {
	asked := op.Object.Annotations[v1beta1constants.GardenerOperation]
	return common.ConfigurationProblem(
		fmt.Errorf("a Bastion can't be moved to another seed, so there is nothing to %s: remove the annotation %s, or delete the Bastion", asked, v1beta1constants.GardenerOperation),
		common.RetryMistake,
	)
}

// Reconcile implements reconciler.Actuator.
func (a *actuator) Reconcile(ctx context.Context, op *operation) error {
	b := op.Object
	host, err := newHost(b, op.Cluster)
	if err != nil {
		return err
	}
	cluster, err := a.cluster(ctx, b)
	if err != nil {
		return err
	}
	objects := newObjects(keyOf(cluster.Namespace, b.Name))
	isNew := b.Status.LastOperation == nil
	err = a.apply(ctx, cluster, host, objects, isNew)
	if isNew && a.isGone(ctx, b) {
		return a.clean(ctx, cluster, b.Name)
	}

	address := addressOf(objects.service)
	switch isKnown := objects.service.ResourceVersion != ""; {
	case err == nil:
		b.Status.Ingress = address
	case isKnown && !apiequality.Semantic.DeepEqual(b.Status.Ingress, address):
		// It is not its Service's any more, and may be somebody else's.
		b.Status.Ingress = nil
	}
	return err
}

// isGone tells whether there is no such Bastion any more. A deletion that the API server began before the finalizer was
// there does not heed it.
func (a *actuator) isGone(ctx context.Context, b *extensionsv1alpha1.Bastion) bool {
	return apierrors.IsNotFound(a.reader.Get(ctx, client.ObjectKeyFromObject(b), &extensionsv1alpha1.Bastion{}))
}

// isAmiss tells of a Bastion that was ready whether its Pod and its Service in the seed are not as they were then. gardenlet
// asks for a reconcile just once in a Bastion's life, so nobody else would bring back a Pod that was drained from its node,
// or follow the Service to another address. One that has no such objects in the seed may have them in another cluster.
func (a *actuator) isAmiss(ctx context.Context, b *extensionsv1alpha1.Bastion) bool {
	objects := newObjects(keyOf(b.Namespace, b.Name))
	for _, object := range []client.Object{objects.pod, objects.service} {
		if err := a.cache.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return apierrors.IsNotFound(err)
		}
		if problem(object) != "" {
			return true
		}
	}
	return !apiequality.Semantic.DeepEqual(b.Status.Ingress, addressOf(objects.service))
}

// apply writes what differs, and returns an error until the Service has an address and the Pod is ready. The NetworkPolicy
// is the first, so that the Pod is never without.
func (a *actuator) apply(ctx context.Context, cluster *cluster.Cluster, host *host, objects objects, isNew bool) error {
	if err := ensure(ctx, cluster, objects.policy, isNew, host.setNetworkPolicy); err != nil {
		return err
	}
	if err := ensure(ctx, cluster, objects.secret, isNew, host.setSecret); err != nil {
		return err
	}
	setService := func(service *corev1.Service) { host.setService(service, a.withoutNodePorts && !cluster.Remote) }
	if err := ensure(ctx, cluster, objects.service, isNew, setService); err != nil {
		return err
	}
	if err := ensurePod(ctx, cluster, objects.pod, isNew, host); err != nil {
		return err
	}

	var problems []string
	for _, object := range []client.Object{objects.pod, objects.service} {
		if problem := problem(object); problem != "" {
			problems = append(problems, nameOf(object)+": "+problem)
		}
	}
	if len(problems) > 0 {
		return waitFor(cluster, fmt.Errorf("waiting for %s", strings.Join(problems, "; ")))
	}
	return nil
}

// Restore implements reconciler.Actuator. check does not let it get here.
func (*actuator) Restore(_ context.Context, op *operation) error { return refuse(op) }

// Migrate implements reconciler.Actuator. The annotation does not keep a Bastion from being deleted.
func (a *actuator) Migrate(ctx context.Context, op *operation) error {
	switch {
	case op.Object.DeletionTimestamp == nil:
		return refuse(op)
	case op.Force:
		return a.ForceDelete(ctx, op)
	}
	return a.Delete(ctx, op)
}

// Delete implements reconciler.Actuator.
func (a *actuator) Delete(ctx context.Context, op *operation) error {
	cluster, err := a.cluster(ctx, op.Object)
	if err != nil {
		return err
	}
	objects := newObjects(keyOf(cluster.Namespace, op.Object.Name))
	found, err := remove(ctx, cluster, []client.Object{objects.service, objects.pod})
	if err != nil {
		return err
	}
	left, err := stillThere(ctx, cluster, found)
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return waitFor(cluster, fmt.Errorf("waiting until these are gone: %s", strings.Join(left, ", ")))
	}
	// As long as there is a Pod it must not be without its NetworkPolicy.
	_, err = remove(ctx, cluster, []client.Object{objects.policy, objects.secret})
	return err
}

// ForceDelete implements reconciler.Actuator. It waits for nothing, and what is in another cluster that does not answer is
// left behind.
func (a *actuator) ForceDelete(ctx context.Context, op *operation) error {
	b := op.Object
	found, err := a.cluster(ctx, b)
	if err != nil && len(v1beta1helper.ExtractErrorCodes(reconcilerutils.ReconcileErrCauseOrErr(err))) == 0 {
		return err
	}
	if err != nil {
		op.Log.Info("Deleting by force what is in the seed, as the cluster of the machines is not known", "reason", err.Error())
		found = a.seed(&cluster.Cluster{Client: a.client, Namespace: b.Namespace})
	}
	err = a.clean(ctx, found, b.Name)
	if err != nil && found.Remote {
		op.Log.Info("Leaving behind what can't be deleted in the cluster of the machines", "reason", err.Error())
		return nil
	}
	return err
}

// clean deletes all objects of a Bastion and waits for none.
func (a *actuator) clean(ctx context.Context, cluster *cluster.Cluster, bastion string) error {
	objects := newObjects(keyOf(cluster.Namespace, bastion))
	_, err := remove(ctx, cluster, []client.Object{objects.service, objects.pod, objects.policy, objects.secret}, client.GracePeriodSeconds(0))
	return err
}

// cluster returns the cluster of the machines, with a client that reads from its API server.
func (a *actuator) cluster(ctx context.Context, b *extensionsv1alpha1.Bastion) (*cluster.Cluster, error) {
	ref := corev1.SecretReference{Namespace: b.Namespace, Name: v1beta1constants.SecretNameCloudProvider}
	found, err := common.MachineCluster(ctx, a.clusters, ref, b.Namespace)
	if err != nil {
		return nil, err
	}
	if found.Remote {
		return found, nil
	}
	return a.seed(found), nil
}

func (a *actuator) seed(found *cluster.Cluster) *cluster.Cluster {
	seed := *found
	seed.Client = &uncached{Client: found.Client, reader: a.reader}
	return &seed
}

func waitFor(cluster *cluster.Cluster, cause error) error {
	if cluster.Remote {
		return common.Waiting(cause, retryRemote)
	}
	return common.Waiting(cause, retryWait)
}

var errNoNamespace = errors.New("the namespace does not exist or is being deleted: the shoot's Infrastructure has to be reconciled first")
