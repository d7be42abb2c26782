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

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/bastion"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/controllerutils"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/pkg/controller/common"
	"github.com/gardener/gardener-extension-provider-local/pkg/extensioncluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
)

const (
	// retryWait is for what a watch tells as well.
	retryWait = 30 * time.Second
	// retryRemote is for what is in another cluster, where there are no watches.
	retryRemote = 5 * time.Second
)

// actuator implements bastion.Actuator.
type actuator struct {
	// client is that of the manager.
	client client.Client
	// reader asks the API server.
	reader           client.Reader
	clusters         cluster.Clusters
	withoutNodePorts bool
}

var _ bastion.Actuator = (*actuator)(nil)

// check does all of a reconcile, see common.WithCheck: what it waits for does not leave an error on the Bastion then. It also
// does what the library does not:
//   - A Bastion that is deleted when its shoot is gone already is deleted here, as the library needs a Cluster.
//   - Migrate and restore are refused. Gardener asks for neither, and the library would reconcile without end, as it leaves
//     these annotations there.
func (a *actuator) check(ctx context.Context, b *extensionsv1alpha1.Bastion, _ gardencorev1beta1.LastOperationType) error {
	shoot, err := a.shoot(ctx, b.Namespace)
	if err != nil {
		return err
	}
	if b.DeletionTimestamp != nil {
		return a.deleteWithoutShoot(ctx, b, shoot)
	}
	if asked := b.Annotations[v1beta1constants.GardenerOperation]; asked == v1beta1constants.GardenerOperationMigrate || asked == v1beta1constants.GardenerOperationRestore {
		return common.ConfigurationProblem(
			fmt.Errorf("a Bastion can't be moved to another seed, so there is nothing to %s: remove the annotation %s, or delete the Bastion", asked, v1beta1constants.GardenerOperation),
			common.RetryMistake,
		)
	}
	host, err := newHost(b, shoot)
	if err != nil {
		return err
	}
	cluster, err := a.cluster(ctx, b)
	if err != nil {
		return err
	}
	// Before the first object, else nobody would delete that.
	isNew := !controllerutil.ContainsFinalizer(b, bastion.FinalizerName)
	if isNew {
		if err := controllerutils.AddFinalizers(ctx, a.client, b, bastion.FinalizerName); err != nil {
			return fmt.Errorf("adding the finalizer: %w", err)
		}
	}
	objects := newObjects(keyOf(cluster.Namespace, b.Name))
	err = a.apply(ctx, cluster, host, objects)
	if isNew && a.isGone(ctx, b) {
		return a.clean(ctx, cluster, b.Name)
	}
	if err != nil {
		return a.withdraw(ctx, b, objects.service, err)
	}
	return a.setAddress(ctx, b, addressOf(objects.service))
}

// isGone tells whether there is no such Bastion any more. A deletion that the API server began before the finalizer was
// there does not heed it.
func (a *actuator) isGone(ctx context.Context, b *extensionsv1alpha1.Bastion) bool {
	return apierrors.IsNotFound(a.reader.Get(ctx, client.ObjectKeyFromObject(b), &extensionsv1alpha1.Bastion{}))
}

// clean deletes all objects of a Bastion and waits for none.
func (a *actuator) clean(ctx context.Context, cluster *cluster.Cluster, bastion string) error {
	objects := newObjects(keyOf(cluster.Namespace, bastion))
	_, err := remove(ctx, cluster, []client.Object{objects.service, objects.pod, objects.policy, objects.secret}, client.GracePeriodSeconds(0))
	return err
}

// shoot returns nil if there is no Cluster. The cache may not have one yet, or not any more, that the API server has.
func (a *actuator) shoot(ctx context.Context, namespace string) (*extensioncluster.Cluster, error) {
	shoot, err := extensioncluster.Get(ctx, a.client, namespace)
	if shoot != nil || err != nil {
		return shoot, err
	}
	return extensioncluster.Get(ctx, a.reader, namespace)
}

// withdraw returns why a Bastion waits. An address in its status that is not its Service's any more, and may be somebody
// else's, goes first. The status stays if nothing is known of the Service.
func (a *actuator) withdraw(ctx context.Context, b *extensionsv1alpha1.Bastion, service *corev1.Service, because error) error {
	if b.Status.Ingress == nil || service.ResourceVersion == "" || apiequality.Semantic.DeepEqual(b.Status.Ingress, addressOf(service)) {
		return because
	}
	if err := a.setAddress(ctx, b, nil); err != nil {
		return err
	}
	return because
}

func (a *actuator) setAddress(ctx context.Context, b *extensionsv1alpha1.Bastion, address *corev1.LoadBalancerIngress) error {
	if apiequality.Semantic.DeepEqual(b.Status.Ingress, address) {
		return nil
	}
	patch := client.MergeFrom(b.DeepCopy())
	b.Status.Ingress = address
	if err := a.client.Status().Patch(ctx, b, patch); err != nil {
		return fmt.Errorf("writing status.ingress: %w", err)
	}
	return nil
}

func (a *actuator) deleteWithoutShoot(ctx context.Context, b *extensionsv1alpha1.Bastion, shoot *extensioncluster.Cluster) error {
	if shoot != nil || !controllerutil.ContainsFinalizer(b, bastion.FinalizerName) {
		return nil
	}
	remove := a.Delete
	if kubernetesutils.HasMetaDataAnnotation(b, v1beta1constants.AnnotationConfirmationForceDeletion, "true") {
		remove = a.ForceDelete
	}
	if err := remove(ctx, logf.FromContext(ctx), b, nil); err != nil {
		return err
	}
	return controllerutils.RemoveFinalizers(ctx, a.client, b, bastion.FinalizerName)
}

// Reconcile implements bastion.Actuator. All is done by check, without which the library does not get here.
func (a *actuator) Reconcile(context.Context, logr.Logger, *extensionsv1alpha1.Bastion, *extensionscontroller.Cluster) error {
	return nil
}

// apply writes what differs, and returns an error until the Service has an address and the Pod is ready. The NetworkPolicy
// is the first, so that the Pod is never without.
func (a *actuator) apply(ctx context.Context, cluster *cluster.Cluster, host *host, objects objects) error {
	for _, write := range []struct {
		object client.Object
		set    func()
	}{
		{objects.policy, func() { host.setNetworkPolicy(objects.policy) }},
		{objects.secret, func() { host.setSecret(objects.secret) }},
		{objects.service, func() { host.setService(objects.service, a.withoutNodePorts && !cluster.Remote) }},
	} {
		set := func() error { write.set(); return nil }
		if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, cluster.Client, write.object, set, controllerutils.SkipEmptyPatch{}); err != nil {
			return explain("writing", write.object, cluster, err)
		}
	}
	pod, err := applyPod(ctx, cluster, host)
	if err != nil {
		return err
	}

	var problems []string
	for _, object := range []client.Object{pod, objects.service} {
		if problem := problem(object); problem != "" {
			problems = append(problems, fmt.Sprintf("%s %s: %s", kindOf(object), client.ObjectKeyFromObject(object), problem))
		}
	}
	if len(problems) > 0 {
		return waitFor(cluster, fmt.Errorf("waiting for %s", strings.Join(problems, "; ")))
	}
	return nil
}

// Delete implements bastion.Actuator.
func (a *actuator) Delete(ctx context.Context, _ logr.Logger, b *extensionsv1alpha1.Bastion, _ *extensionscontroller.Cluster) error {
	cluster, err := a.cluster(ctx, b)
	if err != nil {
		return err
	}
	objects := newObjects(keyOf(cluster.Namespace, b.Name))
	left, err := remove(ctx, cluster, []client.Object{objects.service, objects.pod})
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

// ForceDelete implements bastion.Actuator. It waits for nothing, and what is in another cluster that does not answer is
// left behind.
func (a *actuator) ForceDelete(ctx context.Context, log logr.Logger, b *extensionsv1alpha1.Bastion, _ *extensionscontroller.Cluster) error {
	found, err := a.cluster(ctx, b)
	if err != nil && len(v1beta1helper.ExtractErrorCodes(reconcilerutils.ReconcileErrCauseOrErr(err))) == 0 {
		return err
	}
	if err != nil {
		log.Info("Deleting by force what is in the seed, as the cluster of the machines is not known", "reason", err.Error())
		found = a.seed(&cluster.Cluster{Client: a.client, Namespace: b.Namespace})
	}
	err = a.clean(ctx, found, b.Name)
	if err != nil && found.Remote {
		log.Info("Leaving behind what can't be deleted in the cluster of the machines", "reason", err.Error())
		return nil
	}
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
