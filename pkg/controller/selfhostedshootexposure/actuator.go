// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package selfhostedshootexposure has the controller for SelfHostedShootExposures of type local: load balancers for the API servers
// of self-hosted shoots (Gardener's docs/extensions/resources/selfhostedshootexposure.md). It runs in the self-hosted shoot. The
// machines are pods in the cluster of the shoot's credentials, and beside them it makes:
//   - a Service of type LoadBalancer without selector;
//   - an EndpointSlice per IP family with the addresses in spec.endpoints. Addresses that no machine of the shoot has are left out.
//     That of a family without addresses is empty;
//   - a NetworkPolicy that lets everybody reach the port.
//
// There is no watch on that cluster, so an operation looks again after a few seconds as long as it waits.
package selfhostedshootexposure

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener/extensions/pkg/controller/selfhostedshootexposure"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const (
	namePrefix = "exposure-"
	portName   = "kube-apiserver"
	retryWait  = 5 * time.Second
)

// Options are what the controller needs.
type Options struct {
	reconciler.Shared

	// Clusters finds the cluster in which the machines of a shoot are.
	Clusters cluster.Clusters
}

// AddToManager adds the controller, unless the instance does not serve class shoot.
//
// Needed permissions: get, list, watch, patch on SelfHostedShootExposures and patch on their status; get, list, watch on Clusters; get
// on the Secrets of credentials. In the cluster of the machines it acts by their kubeconfig, which needs list on Pods, get on
// Services, and create, patch and delete on Services, EndpointSlices and NetworkPolicies.
func AddToManager(mgr manager.Manager, opts Options) error {
	return newReconciler(mgr.GetClient(), opts).AddToManager(mgr, selfhostedshootexposure.ControllerName)
}

func newReconciler(c client.Client, opts Options) *reconciler.Reconciler[*extensionsv1alpha1.SelfHostedShootExposure] {
	a := &actuator{Options: opts}
	return reconciler.New(reconciler.Options[*extensionsv1alpha1.SelfHostedShootExposure]{
		Shared: opts.Shared, Client: c, Finalizer: selfhostedshootexposure.FinalizerName, Actuator: a, Check: a.check, AsksUsers: true,
	})
}

type actuator struct{ Options }

type operation = reconciler.Operation[*extensionsv1alpha1.SelfHostedShootExposure]

var _ reconciler.Actuator[*extensionsv1alpha1.SelfHostedShootExposure] = (*actuator)(nil)

// location is where the machines of a self-hosted shoot are.
type location struct {
	reconciler.Target
	// meta is that of all objects.
	meta metav1.ObjectMeta
}

func (a *actuator) locate(ctx context.Context, op *operation) (location, error) {
	name := namePrefix + op.Object.Name
	if messages := validation.IsDNS1035Label(name); len(messages) > 0 {
		return location{}, reconciler.ConfigurationProblem(fmt.Errorf("no Service can be named %s: %s", name, strings.Join(messages, "; ")), reconciler.RetryMistake)
	}
	ref := op.Object.Spec.CredentialsRef
	if ref == nil {
		return location{}, reconciler.ConfigurationProblem(errors.New("spec.credentialsRef is empty, so the machines are no pods that a load balancer could reach: "+
			"use exposure.dns in the Shoot's pool of the control plane"), reconciler.RetryMistake)
	}
	shoot := op.Cluster.Shoot()
	if shoot == nil || shoot.Status.TechnicalID == "" {
		return location{}, reconciler.NoCluster(op.Object.Namespace, "the technical ID of a shoot")
	}
	found, err := a.Clusters.Get(ctx, corev1.SecretReference{Namespace: ref.Namespace, Name: ref.Name}, shoot.Status.TechnicalID)
	if err != nil {
		return location{}, reconciler.RetrySlowly(err)
	}
	if !found.Remote {
		return location{}, reconciler.ConfigurationProblem(
			fmt.Errorf("the Secret %s/%s has no kubeconfig of the cluster in which the machines are pods: add it", ref.Namespace, ref.Name), reconciler.RetryMissing)
	}
	return location{
		Target: reconciler.Target{Client: found.Client, Live: found.Client, ID: found.Config},
		meta:   metav1.ObjectMeta{Namespace: found.Namespace, Name: name},
	}, nil
}

// check refuses an object with a mistake before it gets a finalizer: there is nothing to delete then.
func (a *actuator) check(ctx context.Context, op *operation) error {
	if controllerutil.ContainsFinalizer(op.Object, selfhostedshootexposure.FinalizerName) {
		return nil
	}
	_, err := a.locate(ctx, op)
	return err
}

// Reconcile implements reconciler.Actuator.
func (a *actuator) Reconcile(ctx context.Context, op *operation) error {
	at, err := a.locate(ctx, op)
	if err != nil {
		return err
	}
	service, err := at.apply(ctx, op)
	if err != nil {
		return reconciler.ExplainRemote(err)
	}
	op.Object.Status.Ingress = loadbalancer.IngressOf(service)
	if len(op.Object.Status.Ingress) == 0 {
		return reconciler.Waiting(fmt.Errorf("waiting until %s has an address", reconciler.NameOf(service)), retryWait)
	}
	return nil
}

// apply writes the objects, the Service last, and returns it.
func (l location) apply(ctx context.Context, op *operation) (*corev1.Service, error) {
	pods := &corev1.PodList{}
	if err := l.Live.List(ctx, pods, client.InNamespace(l.meta.Namespace), client.MatchingLabels(machine.Selector())); err != nil {
		return nil, fmt.Errorf("listing the pods of machines: %w", err)
	}
	service, policy, families := l.objects(op.Object.Spec.Port)
	isEmpty := true
	for _, slice := range families {
		slice.Endpoints = endpoints(op.Object.Spec.Endpoints, pods.Items, slice.AddressType)
		isEmpty = isEmpty && len(slice.Endpoints) == 0
	}
	if isEmpty {
		return nil, reconciler.ConfigurationProblem(
			fmt.Errorf("spec.endpoints has no InternalIP of a machine, which are pods in namespace %s: it needs names and addresses of the shoot's Nodes", l.meta.Namespace), reconciler.RetryMissing)
	}
	for _, slice := range families {
		if err := op.Apply(ctx, l.WithoutState(), slice); err != nil {
			return nil, err
		}
	}
	if err := op.Apply(ctx, l.WithoutState(), policy); err != nil {
		return nil, err
	}
	return service, op.Apply(ctx, l.Target, service)
}

// objects returns the objects for a port, without endpoints: an EndpointSlice for IPv4, and one for IPv6.
func (l location) objects(port int32) (*corev1.Service, *networkingv1.NetworkPolicy, []*discoveryv1.EndpointSlice) {
	tcp, target := corev1.ProtocolTCP, intstr.FromInt32(port)
	service := &corev1.Service{ObjectMeta: l.meta, Spec: corev1.ServiceSpec{
		Type:           corev1.ServiceTypeLoadBalancer,
		IPFamilyPolicy: new(corev1.IPFamilyPolicyPreferDualStack),
		Ports:          []corev1.ServicePort{{Name: portName, Protocol: tcp, Port: port, TargetPort: target}},
	}}
	policy := &networkingv1.NetworkPolicy{ObjectMeta: l.meta, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: machine.Selector()},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{Ports: []networkingv1.NetworkPolicyPort{{Protocol: &tcp, Port: &target}}}},
	}}
	var families []*discoveryv1.EndpointSlice
	for _, family := range []discoveryv1.AddressType{discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6} {
		meta := *l.meta.DeepCopy()
		meta.Name += "-" + strings.ToLower(string(family))
		meta.Labels = map[string]string{discoveryv1.LabelServiceName: l.meta.Name, discoveryv1.LabelManagedBy: reconciler.FieldOwner}
		families = append(families, &discoveryv1.EndpointSlice{
			ObjectMeta: meta, AddressType: family, Ports: []discoveryv1.EndpointPort{{Name: new(portName), Protocol: &tcp, Port: &port}},
		})
	}
	return service, policy, families
}

// endpoints returns one endpoint per machine with an address of a family. The Nodes' addresses can be changed in the shoot, so only
// those count that the pod of this name has: traffic must not be led to others.
func endpoints(wanted []extensionsv1alpha1.ControlPlaneEndpoint, pods []corev1.Pod, family discoveryv1.AddressType) []discoveryv1.Endpoint {
	found := []discoveryv1.Endpoint{}
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || machine.HasEnded(&pod) {
			continue
		}
		for _, ip := range pod.Status.PodIPs {
			address, err := netip.ParseAddr(ip.IP)
			if err != nil || address.Is4() != (family == discoveryv1.AddressTypeIPv4) {
				continue
			}
			if slices.ContainsFunc(wanted, func(e extensionsv1alpha1.ControlPlaneEndpoint) bool {
				return e.NodeName == pod.Name && slices.Contains(e.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: ip.IP})
			}) {
				found = append(found, discoveryv1.Endpoint{Addresses: []string{ip.IP}, Conditions: discoveryv1.EndpointConditions{Ready: new(true)}})
			}
		}
	}
	return found
}

// Migrate implements reconciler.Actuator. The load balancer stays: a self-hosted shoot has no seed that it could leave.
func (*actuator) Migrate(context.Context, *operation) error { return nil }

// Delete implements reconciler.Actuator.
func (a *actuator) Delete(ctx context.Context, op *operation) error {
	at, err := a.locate(ctx, op)
	if err != nil {
		return err
	}
	service, policy, families := at.objects(op.Object.Spec.Port)
	left, err := op.Delete(ctx, at.Target, []client.Object{service})
	if err != nil {
		return reconciler.ExplainRemote(err)
	}
	if len(left) > 0 {
		return reconciler.Waiting(fmt.Errorf("waiting until %s is gone", reconciler.NameOf(service)), retryWait)
	}
	_, err = op.Delete(ctx, at.WithoutState(), []client.Object{policy, families[0], families[1]})
	return reconciler.ExplainRemote(err)
}

// ForceDelete implements reconciler.Actuator. It waits for nothing, and leaves behind what is in a cluster that does not answer.
func (a *actuator) ForceDelete(ctx context.Context, op *operation) error {
	at, err := a.locate(ctx, op)
	if err == nil {
		service, policy, families := at.objects(op.Object.Spec.Port)
		_, err = op.Delete(ctx, at.WithoutState(), []client.Object{service, policy, families[0], families[1]})
	}
	if err != nil {
		op.Log.Info("Leaving behind what can't be deleted in the cluster of the machines", "reason", err.Error())
	}
	return nil
}
