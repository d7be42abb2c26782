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

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	gardenerhealthz "github.com/gardener/gardener/pkg/healthz"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/limits"
)

const (
	// Name is the name of the controller, and the beginning of the names of the webhooks and of their paths.
	Name = "dnsconfig"

	// LabelMachine is a label of the Pods that are machines, with the value MachineApp.
	LabelMachine = v1beta1constants.LabelApp
	// MachineApp is the value of LabelMachine.
	MachineApp = "machine"
	// LabelMachineProvider is another one, with the type of this provider as its value.
	LabelMachineProvider = "machine-provider"

	deploymentProber   = "dependency-watchdog-prober"
	deploymentExporter = "blackbox-exporter"

	timeoutSeconds = 5
)

// Options are what the webhooks need.
type Options struct {
	// Controller are the options of the controller that mends Deployments.
	Controller controller.Options
	// Namespace is that of CoreDNS.
	Namespace string
	// ClusterDomain is the domain of the cluster's Services, for example "cluster.local".
	ClusterDomain string
}

// New returns the webhooks, and adds to the manager what they stand on: a cache of CoreDNS' Service alone, so that no
// admission makes a request, and a controller that sends the Deployments through the webhooks when the address changes.
//
// Their failure policy is Ignore, and so they act themselves: while CoreDNS has no address, a pod is left as it is, with a
// warning in the response. Deployments are mended by the controller, and by Touch. A machine can't be, as the DNS
// configuration of a Pod is immutable; machine-controller-manager replaces one that does not join in time.
func New(mgr manager.Manager, opts Options) ([]*extensionswebhook.Webhook, error) {
	services, err := addCache(mgr, opts.Namespace)
	if err != nil {
		return nil, err
	}
	if err := addController(mgr, services, opts); err != nil {
		return nil, fmt.Errorf("adding the controller %s: %w", Name, err)
	}
	admitter := newAdmitter(mgr.GetLogger().WithName("webhook").WithName(Name), mgr.GetScheme(), services, opts)
	return webhooks(admitter), nil
}

func newAdmitter(log logr.Logger, scheme *runtime.Scheme, services client.Reader, opts Options) *admitter {
	return &admitter{
		log:           log,
		decoder:       admission.NewDecoder(scheme),
		services:      services,
		service:       client.ObjectKey{Namespace: opts.Namespace, Name: coredns.ServiceName},
		clusterDomain: opts.ClusterDomain,
	}
}

// webhooks are three, as a webhook has but one selector for namespaces and one for objects.
func webhooks(admitter *admitter) []*extensionswebhook.Webhook {
	handler := limits.Quantities(admitter, &corev1.Pod{}, &appsv1.Deployment{})
	return []*extensionswebhook.Webhook{
		// The namespace of a machine is the driver's choice.
		webhook("machines", handler, &corev1.Pod{}, nil, &metav1.LabelSelector{
			MatchLabels: map[string]string{LabelMachine: MachineApp, LabelMachineProvider: localv1alpha1.Type},
		}),
		webhook("garden", handler, &appsv1.Deployment{},
			&metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: v1beta1constants.GardenNamespace}},
			appIn(gardenDeployments()...)),
		webhook("shoots", handler, &appsv1.Deployment{},
			&metav1.LabelSelector{MatchLabels: map[string]string{v1beta1constants.LabelShootProvider: localv1alpha1.Type}},
			appIn(deploymentExporter)),
	}
}

func webhook(name string, handler admission.Handler, obj client.Object, namespaces, objects *metav1.LabelSelector) *extensionswebhook.Webhook {
	name = Name + "-" + name
	return &extensionswebhook.Webhook{
		Action:            extensionswebhook.ActionMutating,
		Name:              name,
		Path:              name,
		Target:            extensionswebhook.TargetSeed,
		Types:             []extensionswebhook.Type{{Obj: obj}},
		Webhook:           &admission.Webhook{Handler: handler, RecoverPanic: new(true)},
		NamespaceSelector: namespaces,
		ObjectSelector:    objects,
		FailurePolicy:     new(admissionregistrationv1.Ignore),
		TimeoutSeconds:    new(int32(timeoutSeconds)),
	}
}

func appIn(names ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
		{Key: v1beta1constants.LabelApp, Operator: metav1.LabelSelectorOpIn, Values: names},
	}}
}

// gardenDeployments are the names of the Deployments in the namespace garden. Each has its name as the label app.
func gardenDeployments() []string {
	return []string{deploymentExporter, deploymentProber}
}

// serviceCache is started with the manager's caches, by every replica and before anything that reads it.
type serviceCache struct {
	cache.Cache
}

// GetCache tells the manager that this is one of its caches.
func (c serviceCache) GetCache() cache.Cache { return c.Cache }

// addCache adds a cache that holds CoreDNS' Service and nothing else. The manager's own has no Services of type ClusterIP.
func addCache(mgr manager.Manager, namespace string) (cache.Cache, error) {
	services, err := cache.New(mgr.GetConfig(), cache.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
		ByObject: map[client.Object]cache.ByObject{&corev1.Service{}: {
			Namespaces: map[string]cache.Config{namespace: {}},
			Field:      fields.OneTermEqualSelector("metadata.name", coredns.ServiceName),
		}},
		DefaultTransform: cache.TransformStripManagedFields(),
	})
	if err != nil {
		return nil, fmt.Errorf("making the cache of CoreDNS' Service: %w", err)
	}
	// The controller needs the informer on the leader only, the webhooks on all replicas. This does not wait for it.
	if _, err := services.GetInformer(context.Background(), &corev1.Service{}); err != nil {
		return nil, fmt.Errorf("watching CoreDNS' Service: %w", err)
	}
	// A replica is asked only once it is ready, so it has to know the address by then.
	return services, errors.Join(
		mgr.Add(serviceCache{services}),
		mgr.AddReadyzCheck(Name+"-informer-sync", gardenerhealthz.NewCacheSyncHealthz(services)),
	)
}
