// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/gardener/gardener/extensions/pkg/controller/bastion"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	// retryWait is how long to wait for something that a watch reports as well.
	retryWait = 30 * time.Second
	// retryRemote is how long to wait for something in another cluster, where there are no watches.
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

// location is where a Bastion's objects are: the namespace of the shoot in the seed, or one in the cluster of its credentials.
type location struct {
	reconciler.Target
	// key is that of all objects.
	key    client.ObjectKey
	remote bool
}

// locate returns where the objects of a Bastion are.
func (a *actuator) locate(ctx context.Context, b *extensionsv1alpha1.Bastion) (location, error) {
	ref := corev1.SecretReference{Namespace: b.Namespace, Name: v1beta1constants.SecretNameCloudProvider}
	found, err := a.clusters.Get(ctx, ref, b.Namespace)
	if err != nil {
		return location{}, reconciler.RetrySlowly(err)
	}
	if !found.Remote {
		return a.inSeed(b), nil
	}
	return location{
		Target: reconciler.Target{Client: found.Client, Live: found.Client, ID: found.Config},
		key:    keyOf(found.Namespace, b.Name),
		remote: true,
	}, nil
}

func (a *actuator) inSeed(b *extensionsv1alpha1.Bastion) location {
	return location{Target: reconciler.Target{Client: a.client, Live: a.reader, Cache: a.cache}, key: keyOf(b.Namespace, b.Name)}
}

// objects returns the objects of a Bastion with nothing but their names.
func (l location) objects() (*corev1.Service, *corev1.Pod, *networkingv1.NetworkPolicy, *corev1.Secret) {
	meta := metav1.ObjectMeta{Namespace: l.key.Namespace, Name: l.key.Name}
	return &corev1.Service{ObjectMeta: meta}, &corev1.Pod{ObjectMeta: meta}, &networkingv1.NetworkPolicy{ObjectMeta: meta}, &corev1.Secret{ObjectMeta: meta}
}

// check refuses a Bastion with a mistake, or whose machines are in a cluster that is not known, before it gets a finalizer:
// there is nothing to delete then.
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
	_, err := a.locate(ctx, op.Object)
	return err
}

// refuse refuses migrate and restore, for which Gardener does not ask.
func refuse(op *operation) error {
	asked := op.Object.Annotations[v1beta1constants.GardenerOperation]
	return reconciler.ConfigurationProblem(
		fmt.Errorf("a Bastion can't be moved to another seed, so there is nothing to %s: remove the annotation %s, or delete the Bastion", asked, v1beta1constants.GardenerOperation),
		reconciler.RetryMistake,
	)
}

// Reconcile implements reconciler.Actuator.
func (a *actuator) Reconcile(ctx context.Context, op *operation) error {
	b := op.Object
	host, err := newHost(b, op.Cluster)
	if err != nil {
		return err
	}
	at, err := a.locate(ctx, b)
	if err != nil {
		return err
	}
	service := host.service(at.key, a.withoutNodePorts && !at.remote)
	err = at.explain(a.apply(ctx, op, at, host, service))
	if b.Status.LastOperation == nil && a.isGone(ctx, b) {
		return a.clean(ctx, op, at)
	}

	address := addressOf(service)
	switch isKnown := service.ResourceVersion != ""; {
	case err == nil:
		b.Status.Ingress = address
	case isKnown && !apiequality.Semantic.DeepEqual(b.Status.Ingress, address):
		// The address is not the Service's any more, and may be somebody else's.
		b.Status.Ingress = nil
	}
	return err
}

// isGone reports whether there is no such Bastion any more. A deletion that the API server began before the finalizer was
// there does not wait for it.
func (a *actuator) isGone(ctx context.Context, b *extensionsv1alpha1.Bastion) bool {
	return apierrors.IsNotFound(a.reader.Get(ctx, client.ObjectKeyFromObject(b), &extensionsv1alpha1.Bastion{}))
}

// isAmiss reports whether the Pod or the Service of a Bastion that was ready are not as they were then. gardenlet asks for
// a reconcile once in a Bastion's life, so nobody else would bring back a Pod that was drained from its node, or follow the
// Service to another address. A Bastion without objects in the seed may have them in another cluster.
func (a *actuator) isAmiss(ctx context.Context, b *extensionsv1alpha1.Bastion) bool {
	pod, service := &corev1.Pod{}, &corev1.Service{}
	for _, object := range []client.Object{pod, service} {
		if err := a.cache.Get(ctx, keyOf(b.Namespace, b.Name), object); err != nil {
			return apierrors.IsNotFound(err)
		}
		if problem(object) != "" {
			return true
		}
	}
	return !apiequality.Semantic.DeepEqual(b.Status.Ingress, addressOf(service))
}

// apply writes the objects, and returns an error until the Service has an address and the Pod is ready. The NetworkPolicy is
// the first, so that there is never a Pod without it.
func (a *actuator) apply(ctx context.Context, op *operation, at location, host *host, service *corev1.Service) error {
	if err := op.Apply(ctx, at.WithoutState(), host.networkPolicy(at.key)); err != nil {
		return err
	}
	if err := op.Apply(ctx, at.WithoutState(), host.secret(at.key)); err != nil {
		return err
	}
	if err := op.Apply(ctx, at.Target, service); err != nil {
		return err
	}
	pod := host.pod(at.key)
	if err := a.applyPod(ctx, op, at, pod); err != nil {
		return err
	}

	var problems []string
	for _, object := range []client.Object{pod, service} {
		if problem := problem(object); problem != "" {
			problems = append(problems, reconciler.NameOf(object)+": "+problem)
		}
	}
	if len(problems) > 0 {
		return at.waitFor(fmt.Errorf("waiting for %s", strings.Join(problems, "; ")))
	}
	return nil
}

// applyPod creates the Pod, or replaces one that is outdated, and puts what there is into pod.
func (a *actuator) applyPod(ctx context.Context, op *operation, at location, pod *corev1.Pod) error {
	wanted := pod.DeepCopy()
	if err := op.Create(ctx, at.Target, pod); err != nil {
		return err
	}
	if pod.DeletionTimestamp != nil || !isOutdated(pod, wanted) {
		return nil
	}
	left, err := op.Delete(ctx, at.Target, []client.Object{pod}, client.Preconditions{UID: &pod.UID})
	if err != nil {
		return err
	}
	if len(left) > 0 {
		return at.waitFor(fmt.Errorf("waiting until %s is gone, another one takes its place", reconciler.NameOf(pod)))
	}
	wanted.DeepCopyInto(pod)
	return op.Create(ctx, at.Target, pod)
}

// isOutdated reports whether a Pod must be replaced. One to which people may have connected is not replaced just because
// the CloudProfile has another image by now.
func isOutdated(pod, wanted *corev1.Pod) bool {
	if hasEnded(pod) || pod.Annotations[AnnotationUserData] != wanted.Annotations[AnnotationUserData] {
		return true
	}
	hasImage := slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return c.Image == wanted.Spec.Containers[0].Image })
	return podProblem(pod) != "" && !hasImage
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

// Delete implements reconciler.Actuator. There is never a Pod without its NetworkPolicy.
func (a *actuator) Delete(ctx context.Context, op *operation) error {
	at, err := a.locate(ctx, op.Object)
	if err != nil {
		return err
	}
	service, pod, policy, secret := at.objects()
	left, err := op.Delete(ctx, at.Target, []client.Object{service, pod})
	if err == nil && len(left) == 0 {
		_, err = op.Delete(ctx, at.WithoutState(), []client.Object{policy, secret})
	}
	if err != nil || len(left) == 0 {
		return at.explain(err)
	}
	var names []string
	for _, object := range left {
		names = append(names, reconciler.NameOf(object))
	}
	return at.waitFor(fmt.Errorf("waiting until these are gone: %s", strings.Join(names, ", ")))
}

// ForceDelete implements reconciler.Actuator. It waits for nothing, and leaves behind what is in another cluster that does
// not answer.
func (a *actuator) ForceDelete(ctx context.Context, op *operation) error {
	at, err := a.locate(ctx, op.Object)
	if err != nil && len(v1beta1helper.ExtractErrorCodes(reconcilerutils.ReconcileErrCauseOrErr(err))) == 0 {
		return err
	}
	if err != nil {
		op.Log.Info("Deleting by force what is in the seed, as the cluster of the machines is not known", "reason", err.Error())
		at = a.inSeed(op.Object)
	}
	err = a.clean(ctx, op, at)
	if err != nil && at.remote {
		op.Log.Info("Leaving behind what can't be deleted in the cluster of the machines", "reason", err.Error())
		return nil
	}
	return err
}

// clean deletes all objects of a Bastion and waits for none.
func (a *actuator) clean(ctx context.Context, op *operation, at location) error {
	service, pod, policy, secret := at.objects()
	_, err := op.Delete(ctx, at.WithoutState(), []client.Object{service, pod, policy, secret}, client.GracePeriodSeconds(0))
	return at.explain(err)
}

// explain says of an error in a cluster other than the seed that it is from there. A namespace that is missing there is
// waited for.
func (l location) explain(err error) error {
	if err == nil || !l.remote || reconciler.IsWaiting(err) {
		return err
	}
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return l.waitFor(fmt.Errorf("%w (in the cluster of the shoot's credentials): %w", err, errNoNamespace))
	}
	return fmt.Errorf("%w (in the cluster of the shoot's credentials)", err)
}

func (l location) waitFor(cause error) error {
	if l.remote {
		return reconciler.Waiting(cause, retryRemote)
	}
	return reconciler.Waiting(cause, retryWait)
}

var errNoNamespace = errors.New("the namespace does not exist or is being deleted: the shoot's Infrastructure has to be reconciled first")
