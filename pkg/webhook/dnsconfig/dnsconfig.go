// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package dnsconfig lets the pods that dial shoots by name ask our CoreDNS: machines, dependency-watchdog's prober and the
// blackbox-exporters. The names of a local Gardener are known to no other server. CoreDNS hands on all other questions to
// the cluster's own server, so the pods lose no name by it.
package dnsconfig

import (
	"context"
	"errors"
	"fmt"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	machinepods "github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
)

const (
	// Name is the name of the controller, and the beginning of the names of the webhooks and of their paths.
	Name = "dnsconfig"

	deploymentProber   = "dependency-watchdog-prober"
	deploymentExporter = "blackbox-exporter"

	timeoutSeconds = 5

	// maxNameservers and maxSearches are how many nameservers and search domains Kubernetes allows a pod.
	maxNameservers, maxSearches = 3, 32
	// ndots is what kubelet gives a pod that asks the cluster's DNS server.
	ndots = "5"

	// labelPrefix begins the labels by which gardener-resource-manager's NetworkPolicies let pods of other namespaces reach
	// CoreDNS: the alias of its namespace and the name of its Service, both as charts/components/coredns has them. A
	// protocol and the port of CoreDNS' pods follow.
	labelPrefix = resourcesv1alpha1.NetworkPolicyLabelKeyPrefix + "to-local-dns-coredns-"
)

// gardenDeployments are the names of the Deployments in the namespace garden. Each has its name as the label app.
func gardenDeployments() []string {
	return []string{deploymentExporter, deploymentProber}
}

// networkPolicyLabels are the labels that a pod needs to reach CoreDNS.
func networkPolicyLabels() []string {
	return []string{labelPrefix + "udp-9053", labelPrefix + "tcp-9053"}
}

// Options are what the webhooks need.
type Options struct {
	// Namespace is that of CoreDNS.
	Namespace string
	// ClusterDomain is the domain of the cluster's Services, for example "cluster.local".
	ClusterDomain string
}

// New returns the webhooks, and adds to the manager a controller that calls Touch at the start, when the address changes, and
// every few minutes. The manager's cache has to have CoreDNS' Service, so that no admission makes a request.
//
// Their failure policy is Ignore, and so they act themselves: while CoreDNS has no address, a pod is left as it is.
// Deployments are mended by the controller. A machine can't be, as the DNS configuration of a Pod is immutable;
// machine-controller-manager replaces one that does not join in time.
func New(mgr manager.Manager, opts Options) ([]*extensionswebhook.Webhook, error) {
	// The controller needs the informer on the leader only, the webhooks on all replicas, which then have that of all LoadBalancer
	// Services as well. This does not wait for it, but a replica is not ready, and thus not asked, before the caches of its manager
	// have synced.
	if _, err := mgr.GetCache().GetInformer(context.Background(), &corev1.Service{}); err != nil {
		return nil, fmt.Errorf("watching CoreDNS' Service: %w", err)
	}

	webhooks, err := webhooks(mgr, &mutator{Options: opts, services: mgr.GetCache()})
	if err != nil {
		return nil, err
	}
	changes := source.Kind[client.Object](mgr.GetCache(), &corev1.Service{}, &handler.EnqueueRequestForObject{}, addressChanges(opts.Namespace))
	return webhooks, webhook.AddTouchToManager(mgr, Name, changes, func(ctx context.Context) error {
		return Touch(ctx, mgr.GetAPIReader(), mgr.GetClient(), opts.Namespace)
	})
}

// addressChanges are the events by which CoreDNS, which is in the given namespace, may have got an address that it did not have.
func addressChanges(namespace string) predicate.Predicate {
	hasAddress := func(obj client.Object) bool {
		return obj.GetNamespace() == namespace && obj.GetName() == coredns.ServiceName && len(addresses(obj.(*corev1.Service))) > 0
	}
	return predicate.And(
		predicate.NewPredicateFuncs(hasAddress),
		reconciler.Changed(func(obj client.Object) any { return addresses(obj.(*corev1.Service)) }),
	)
}

// webhooks are three, as a webhook has but one selector for namespaces and one for objects.
func webhooks(mgr manager.Manager, mutator *mutator) ([]*extensionswebhook.Webhook, error) {
	var out []*extensionswebhook.Webhook
	for _, w := range []struct {
		name                string
		obj                 client.Object
		namespaces, objects *metav1.LabelSelector
	}{
		// The namespace of a machine is the driver's choice.
		{"machines", &corev1.Pod{}, nil, &metav1.LabelSelector{MatchLabels: machinepods.Selector()}},
		{"garden", &appsv1.Deployment{},
			&metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: v1beta1constants.GardenNamespace}},
			appIn(gardenDeployments()...)},
		{"shoots", &appsv1.Deployment{},
			&metav1.LabelSelector{MatchLabels: map[string]string{v1beta1constants.LabelShootProvider: localv1alpha1.Type}},
			appIn(deploymentExporter)},
	} {
		webhook, err := extensionswebhook.New(mgr, extensionswebhook.Args{
			Name:              Name + "-" + w.name,
			Path:              Name + "-" + w.name,
			Target:            extensionswebhook.TargetSeed,
			NamespaceSelector: w.namespaces,
			ObjectSelector:    w.objects,
			Mutators:          map[extensionswebhook.Mutator][]extensionswebhook.Type{mutator: {{Obj: w.obj}}},
		})
		if err != nil {
			return nil, err
		}
		webhook.Webhook.Handler = limits.Quantities(webhook.Webhook.Handler, w.obj)
		webhook.FailurePolicy = new(admissionregistrationv1.Ignore)
		webhook.TimeoutSeconds = new(int32(timeoutSeconds))
		out = append(out, webhook)
	}
	return out, nil
}

func appIn(names ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: v1beta1constants.LabelApp, Operator: metav1.LabelSelectorOpIn, Values: names},
	}}
}

// mutator changes Pods and Deployments.
type mutator struct {
	Options
	services client.Reader
}

// Mutate implements extensionswebhook.Mutator. It denies nothing: what it cannot change stays as it is.
func (m *mutator) Mutate(ctx context.Context, obj, old client.Object) error {
	var pod *target
	switch obj := obj.(type) {
	case *corev1.Pod:
		if old == nil { // What could be changed is immutable once the Pod exists.
			pod = &target{meta: &obj.ObjectMeta, spec: &obj.Spec}
		}
	case *appsv1.Deployment:
		if slices.Contains(gardenDeployments(), obj.Name) {
			pod = &target{meta: &obj.Spec.Template.ObjectMeta, spec: &obj.Spec.Template.Spec, namespace: obj.Namespace}
		}
	}
	if pod == nil || obj.GetDeletionTimestamp() != nil {
		return nil
	}

	servers, err := nameservers(ctx, m.services, m.Namespace)
	if err == nil && len(servers) == 0 {
		err = fmt.Errorf("the Service %s/%s of CoreDNS has no address yet", m.Namespace, coredns.ServiceName)
	}
	if err != nil {
		logf.FromContext(ctx).Info("Leaving the DNS configuration of a pod as it is", "namespace", obj.GetNamespace(), "name", obj.GetName(), "reason", err.Error())
		return nil
	}
	pod.ask(servers, m.ClusterDomain)
	return nil
}

// nameservers returns the addresses of CoreDNS' Service in a namespace, of both families where it has them.
func nameservers(ctx context.Context, reader client.Reader, namespace string) ([]string, error) {
	service := &corev1.Service{}
	if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: coredns.ServiceName}, service); err != nil {
		return nil, fmt.Errorf("reading the Service of CoreDNS: %w", err)
	}
	return addresses(service), nil
}

func addresses(service *corev1.Service) []string {
	addresses := slices.DeleteFunc(slices.Clone(service.Spec.ClusterIPs), func(ip string) bool {
		return ip == "" || ip == corev1.ClusterIPNone
	})
	return addresses[:min(len(addresses), maxNameservers)]
}

// target is a pod, or the template of one.
type target struct {
	meta *metav1.ObjectMeta
	spec *corev1.PodSpec
	// namespace is where the pod runs; empty for a machine. A machine is not to have the search domains of a pod of the
	// seed: its own pods would inherit them.
	namespace string
}

// ask makes the pod ask the given servers, and keeps all else about its DNS as it was: the search domains and options that
// kubelet gives a pod of policy ClusterFirst, which it does not do for policy None, and what is in dnsConfig. Doing it
// twice is the same as doing it once.
func (t *target) ask(servers []string, clusterDomain string) {
	config := t.spec.DNSConfig.DeepCopy()
	if config == nil {
		config = &corev1.PodDNSConfig{}
	}
	if t.namespace != "" && t.asksCluster() {
		searches := append([]string{t.namespace + ".svc." + clusterDomain, "svc." + clusterDomain, clusterDomain}, config.Searches...)
		config.Searches = nil
		for _, search := range searches {
			if len(config.Searches) < maxSearches && !slices.Contains(config.Searches, search) {
				config.Searches = append(config.Searches, search)
			}
		}
		if !slices.ContainsFunc(config.Options, func(o corev1.PodDNSConfigOption) bool { return o.Name == "ndots" }) {
			config.Options = append(config.Options, corev1.PodDNSConfigOption{Name: "ndots", Value: new(ndots)})
		}
	}
	config.Nameservers = servers

	t.spec.DNSPolicy = corev1.DNSNone
	t.spec.DNSConfig = config
	for _, label := range networkPolicyLabels() {
		metav1.SetMetaDataLabel(t.meta, label, v1beta1constants.LabelNetworkPolicyAllowed)
	}
}

// asksCluster reports whether kubelet would make the pod ask the cluster's DNS server.
func (t *target) asksCluster() bool {
	policy := t.spec.DNSPolicy
	return policy == corev1.DNSClusterFirstWithHostNet || !t.spec.HostNetwork && (policy == corev1.DNSClusterFirst || policy == "")
}

// Touch sends the Deployments through the webhooks, for those that were written while these could not be reached or had no
// address. gardener-resource-manager would do it too, but only every twelve hours. It is an error if one of them still asks
// another server than CoreDNS, which is in the given namespace; while that has no address, there is nothing to do. The client
// reads its Service from the cache. The reader asks the API server: this is needed too seldom to keep Namespaces in memory for it.
func Touch(ctx context.Context, reader client.Reader, c client.Client, coreDNSNamespace string) error {
	servers, err := nameservers(ctx, c, coreDNSNamespace)
	if apierrors.IsNotFound(err) || err == nil && len(servers) == 0 {
		return nil
	}
	if err != nil {
		return err
	}

	var errs []error
	for _, name := range gardenDeployments() {
		errs = append(errs, touchDeployment(ctx, c, v1beta1constants.GardenNamespace, name, servers))
	}
	namespaces := &metav1.PartialObjectMetadataList{}
	namespaces.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := reader.List(ctx, namespaces, client.MatchingLabels{v1beta1constants.LabelShootProvider: localv1alpha1.Type}); err != nil {
		errs = append(errs, fmt.Errorf("listing the namespaces of shoots: %w", err))
	}
	for _, namespace := range namespaces.Items {
		if namespace.DeletionTimestamp == nil {
			errs = append(errs, touchDeployment(ctx, c, namespace.Name, deploymentExporter, servers))
		}
	}
	return errors.Join(errs...)
}

// touchDeployment sends a Deployment through the webhooks. An empty patch changes nothing by itself, but the API server hands
// the object to the webhooks all the same, and what they do to it is written. What a webhook leaves as it is makes no new
// version of the object and wakes nobody. It is an error if the webhooks have not done their work, as an API server may take
// a moment to reach them. A Deployment that does not exist, or is being deleted, is no error.
func touchDeployment(ctx context.Context, c client.Client, namespace, name string, servers []string) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	err := c.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, []byte("{}")))
	pod := deployment.Spec.Template.Spec
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("sending Deployment %s/%s through the webhooks: %w", namespace, name, err)
	case deployment.DeletionTimestamp == nil && (pod.DNSPolicy != corev1.DNSNone || pod.DNSConfig == nil || !slices.Equal(pod.DNSConfig.Nameservers, servers)):
		return fmt.Errorf("sending Deployment %s/%s through the webhooks: they did not change it, so they were not reached", namespace, name)
	}
	return nil
}
