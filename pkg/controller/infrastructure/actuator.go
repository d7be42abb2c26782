// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package infrastructure holds the controller for Infrastructures of type local: what the machines of a shoot need before
// there are any. That is a namespace if they are in another cluster than the seed, NetworkPolicies that let them reach
// what machines reach and be reached by what reaches machines, and Calico's IPPools, so that their addresses are of the
// shoot's node range: else control plane components would go past the VPN, as Gardener's docs on provider-local tell.
package infrastructure

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/infrastructure"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	labelManagedBy = "app.kubernetes.io/managed-by"
	managedBy      = "gardener-extension-provider-local"

	// roleInfra is the value of gardener.cloud/role of namespaces for machines.
	roleInfra = "infra"
	// labelPodSecurity with this value lets machines be privileged.
	labelPodSecurity, podSecurityPrivileged = "pod-security.kubernetes.io/enforce", "privileged"

	// retryWait is the time between two reads of a namespace that is being deleted. There are no watches in other clusters.
	retryWait = 2 * time.Second
)

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Clusters finds the cluster of the machines of a shoot.
	Clusters cluster.Clusters
	// EgressCIDRs are ranges that machines may reach besides those that every machine reaches: machines.egressCIDRs of the
	// configuration.
	EgressCIDRs []string
	// NodeCIDRs are ranges that Shoots may have for their nodes besides private ones: machines.nodeCIDRs of the configuration.
	NodeCIDRs []string
	// AllowedCIDRs are the ranges to which servers of kubeconfigs for machines may resolve: machines.remote.allowedCIDRs of the
	// configuration. The control plane of a shoot gets a way there.
	AllowedCIDRs []string
	// ResolvConf is the resolv.conf(5) with the DNS servers of the instance, in whose ranges no machine gets an address.
	// Default: /etc/resolv.conf.
	ResolvConf string
	// LoadBalancers are those of the seed. Machines may reach all addresses of theirs.
	LoadBalancers configv1alpha1.LoadBalancersConfiguration
	// CoreDNSNamespace is that of the CoreDNS which machines in the seed ask; empty if they ask none of ours.
	CoreDNSNamespace string
}

// AddToManager adds the controller. It does nothing if the classes do not include shoot. It is an error if there are no
// classes, or if a range of addresses is none.
//
// Needed permissions in the seed, beyond those of the extension library for Infrastructures, Clusters and Namespaces and
// those of cluster.Clusters: create, patch, delete and deletecollection on NetworkPolicies; list, create, patch and delete on
// ippools of crd.projectcalico.org; get on Namespaces. In another cluster the user of its kubeconfig needs the same but for
// deletecollection, and create, patch and delete on Namespaces.
func AddToManager(mgr manager.Manager, opts Options) error {
	ranges, err := newRanges(opts)
	if err != nil {
		return err
	}
	return newReconciler(mgr, opts, ranges).AddToManager(mgr, infrastructure.ControllerName)
}

func newReconciler(mgr manager.Manager, opts Options, ranges ranges) *reconciler.Reconciler[*extensionsv1alpha1.Infrastructure] {
	actuator := &actuator{Options: opts, client: mgr.GetClient(), reader: mgr.GetAPIReader(), ranges: ranges}
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.Infrastructure]{
		Shared:    opts.Shared,
		Client:    mgr.GetClient(),
		Finalizer: infrastructure.FinalizerName,
		AsksUsers: true,
		Actuator:  actuator,
		Check:     actuator.check,
	})
}

// attempt is one at an operation on an Infrastructure.
type attempt = reconciler.Operation[*extensionsv1alpha1.Infrastructure]

type actuator struct {
	Options
	client client.Client
	// reader asks the API server: what is read here is not worth an informer for the whole seed.
	reader client.Reader
	ranges ranges
}

var _ reconciler.Actuator[*extensionsv1alpha1.Infrastructure] = (*actuator)(nil)

// check refuses an Infrastructure whose machines are in a cluster that is not known, before it gets a finalizer: there is
// nothing to delete then.
func (a *actuator) check(ctx context.Context, op *attempt) error {
	if controllerutil.ContainsFinalizer(op.Object, infrastructure.FinalizerName) {
		return nil
	}
	_, err := a.placeOf(ctx, op.Object)
	return err
}

// Reconcile applies all that machines need, and says in the status what that is.
func (a *actuator) Reconcile(ctx context.Context, op *attempt) error {
	infra, shoot := op.Object, op.Cluster.Shoot()
	if shoot == nil {
		return reconciler.NoCluster(infra.Namespace, "a shoot")
	}
	networks, err := networksOf(shoot)
	if err != nil {
		return reconciler.ConfigurationProblem(err, reconciler.RetryMistake)
	}
	seed, err := seedRangesOf(op.Cluster.Seed())
	if err != nil {
		return reconciler.ConfigurationProblem(fmt.Errorf("spec.networks of the seed: %w", err), reconciler.RetryMistake)
	}
	at, err := a.placeOf(ctx, infra)
	if err != nil {
		return err
	}

	namespace, err := at.applyNamespace(ctx, op)
	if err != nil {
		return at.explain(err)
	}
	reach := reach{
		namespace: infra.Namespace, machines: at.namespace, remote: at.remote,
		nodes: networks.nodes, seed: seed, ranges: a.ranges, coreDNSNamespace: a.CoreDNSNamespace,
	}
	for _, policy := range reach.policies() {
		in := at
		if policy.Namespace == infra.Namespace {
			in = a.inSeed(infra)
		}
		if err := op.Apply(ctx, in.WithoutState(), policy); err != nil {
			return in.explain(err)
		}
	}
	pools, message, err := at.applyPools(ctx, op, namespace, networks, reach.refusal)
	if err != nil {
		return at.explain(err)
	}
	// Within the seed, for example at the gateway of an API server, what machines send comes from their own addresses.
	infra.Status.Networking, infra.Status.EgressCIDRs = networks.status(), toStrings(networks.nodes)
	infra.Status.ProviderStatus = &runtime.RawExtension{Object: &localv1alpha1.InfrastructureStatus{
		TypeMeta:         metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.InfrastructureStatusKind},
		MachineNamespace: at.namespace,
		IPPools:          pools,
		Message:          message,
	}}
	return nil
}

// Migrate leaves everything where it is. Machines in a cluster other than the seed go on as if nothing had happened, and
// their namespace, policies and addresses with them: the next seed finds them by the same names. Machines in the seed
// run until gardenlet, which does that last, deletes the shoot's namespace; until then they are to have their policies.
// These go with the namespace, and so do the IPPools, which it owns. There is nothing to be kept in status.state.
func (*actuator) Migrate(context.Context, *attempt) error { return nil }

// Delete removes everything. gardenlet has waited for the Worker before, so there are no machines any more. As long as a
// namespace is being deleted, it gives the worker back.
func (a *actuator) Delete(ctx context.Context, op *attempt) error {
	at, err := a.placeOf(ctx, op.Object)
	if err != nil {
		return err
	}
	isGone, err := at.deleteNamespace(ctx, op)
	if err != nil {
		return at.explain(err)
	}
	if !isGone {
		return reconciler.Waiting(fmt.Errorf("namespace %s of the machines is still being deleted, its status tells why", at.namespace), retryWait)
	}
	// The pools go after the machines, which have their addresses of them.
	if err := at.deletePools(ctx, op); err != nil {
		return at.explain(err)
	}
	return a.deletePolicies(ctx, op)
}

// ForceDelete asks for the deletion of everything and waits for nothing. The credentials or the cluster that they are for may
// be gone: what cannot be deleted is left there, and logged.
func (a *actuator) ForceDelete(ctx context.Context, op *attempt) error {
	at, err := a.placeOf(ctx, op.Object)
	if err != nil && len(v1beta1helper.ExtractErrorCodes(reconcilerutils.ReconcileErrCauseOrErr(err))) == 0 {
		return err // The seed does not answer now.
	}
	if err != nil {
		at = a.inSeed(op.Object)
	}
	// The other cluster may use up the time of the attempt.
	errPolicies := a.deletePolicies(ctx, op)
	_, errNamespace := at.deleteNamespace(ctx, op)
	if err := errors.Join(err, errPolicies, errNamespace, at.deletePools(ctx, op)); err != nil {
		op.Log.Info("Leaving behind what could not be deleted, as deletion is forced", "reason", err.Error())
	}
	return nil
}

// place is where the machines of a shoot are: the shoot's namespace in the seed, or one of their own in another cluster.
type place struct {
	reconciler.Target
	namespace string
	remote    bool
}

// placeOf returns where the machines of an Infrastructure are.
func (a *actuator) placeOf(ctx context.Context, infra *extensionsv1alpha1.Infrastructure) (place, error) {
	ref := infra.Spec.SecretRef
	if ref == (corev1.SecretReference{}) {
		return place{}, reconciler.ConfigurationProblem(errors.New("spec.secretRef is empty: set name and namespace of a Secret"), reconciler.RetryMistake)
	}
	found, err := a.Clusters.Get(ctx, ref, infra.Namespace)
	if err != nil {
		return place{}, reconciler.RetrySlowly(err)
	}
	if !found.Remote {
		return a.inSeed(infra), nil
	}
	return place{Target: reconciler.Target{Client: found.Client, Live: found.Client, ID: found.Config}, namespace: found.Namespace, remote: true}, nil
}

func (a *actuator) inSeed(infra *extensionsv1alpha1.Infrastructure) place {
	return place{Target: reconciler.Target{Client: a.client, Live: a.reader}, namespace: infra.Namespace}
}

// explain adds Gardener's code to what a cluster that a user has named says if the credentials do not suffice.
func (p place) explain(err error) error {
	if !p.remote {
		return err
	}
	return reconciler.ExplainRemote(err)
}

// applyNamespace makes the namespace unless it is the shoot's in the seed, which is gardenlet's. One that somebody else has
// made is refused: it would be deleted in the end.
//
// What is there already is usually as it is to be: then it is read. Else it is created, which is one request less.
func (p place) applyNamespace(ctx context.Context, op *attempt) (*corev1.Namespace, error) {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: p.namespace}}
	if !p.remote {
		return namespace, nil
	}
	err := op.Ensure(ctx, p.Target, namespace, op.Object.Status.ProviderStatus != nil, func() error {
		switch {
		case namespace.DeletionTimestamp != nil:
			return reconciler.Waiting(fmt.Errorf("namespace %s is being deleted", p.namespace), retryWait)
		case namespace.ResourceVersion != "" && !isOurs(namespace):
			return reconciler.ConfigurationProblem(fmt.Errorf("namespace %s is already in the cluster of the machines, but is not labelled %s=%s: "+
				"delete it, or give it the label to have it deleted with the shoot", p.namespace, v1beta1constants.GardenRole, roleInfra), reconciler.RetryMissing)
		}
		metav1.SetMetaDataLabel(&namespace.ObjectMeta, v1beta1constants.GardenRole, roleInfra)
		metav1.SetMetaDataLabel(&namespace.ObjectMeta, labelPodSecurity, podSecurityPrivileged)
		return nil
	})
	return namespace, err
}

// deleteNamespace deletes the namespace if it was made for machines, and reports whether it is gone. One that is not ours
// counts as gone.
func (p place) deleteNamespace(ctx context.Context, op *attempt) (bool, error) {
	if !p.remote {
		return true, nil
	}
	namespace := &corev1.Namespace{}
	if err := p.Live.Get(ctx, client.ObjectKey{Name: p.namespace}, namespace); apierrors.IsNotFound(err) {
		return true, nil
	} else if err != nil {
		return false, fmt.Errorf("reading namespace %s: %w", p.namespace, err)
	}
	if !isOurs(namespace) || namespace.DeletionTimestamp != nil {
		return !isOurs(namespace), nil
	}
	_, err := op.Delete(ctx, p.WithoutState(), []client.Object{namespace}, client.Preconditions{UID: &namespace.UID})
	return false, err
}

func isOurs(namespace *corev1.Namespace) bool {
	return namespace.Labels[v1beta1constants.GardenRole] == roleInfra
}

// deletePolicies deletes all NetworkPolicies of a shoot in the seed. Those in a namespace of the machines go with that.
func (a *actuator) deletePolicies(ctx context.Context, op *attempt) error {
	_, err := op.DeleteAll(ctx, a.inSeed(op.Object).WithoutState(), &networkingv1.NetworkPolicyList{}, op.Object.Namespace, client.MatchingLabels{labelManagedBy: managedBy})
	return err
}
