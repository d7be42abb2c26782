// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

// byService is the index by NAMESPACE/NAME of a Service of the shoot.
const byService = "shootService"

// caches are the informers for all that is looked at.
type caches struct {
	factories []informers.SharedInformerFactory
	namespace string

	// Of the shoot. All Services, since one that is of another type now has to be cleaned up.
	services       coreinformers.ServiceInformer
	nodes          coreinformers.NodeInformer
	endpointSlices cache.SharedIndexInformer
	// Of the seed.
	seedServices coreinformers.ServiceInformer
	seedSlices   cache.SharedIndexInformer
	pods         coreinformers.PodInformer
	// They have what was written here before the informers show it.
	ownServices *written[*corev1.Service]
	ownSlices   *written[*discoveryv1.EndpointSlice]
}

func newCaches(shoot, seed kubernetes.Interface, namespace string) (*caches, error) {
	objects := informers.NewSharedInformerFactoryWithOptions(shoot, 0, informers.WithTransform(strip))
	// Headless Services have no node ports.
	endpoints := informers.NewSharedInformerFactoryWithOptions(shoot, 0, informers.WithTransform(strip), withLabels("!"+corev1.IsHeadlessService))
	ours := informers.NewSharedInformerFactoryWithOptions(seed, 0, informers.WithTransform(strip), informers.WithNamespace(namespace), withLabels(LabelUID))
	machines := informers.NewSharedInformerFactoryWithOptions(seed, 0, informers.WithTransform(strip), informers.WithNamespace(namespace),
		withLabels(labels.SelectorFromSet(machine.Selector()).String()))

	c := &caches{
		factories:      []informers.SharedInformerFactory{objects, endpoints, ours, machines},
		namespace:      namespace,
		services:       objects.Core().V1().Services(),
		nodes:          objects.Core().V1().Nodes(),
		endpointSlices: endpoints.Discovery().V1().EndpointSlices().Informer(),
		seedServices:   ours.Core().V1().Services(),
		seedSlices:     ours.Discovery().V1().EndpointSlices().Informer(),
		pods:           machines.Core().V1().Pods(),
	}
	c.ownServices = newWritten[*corev1.Service](c.seedServices.Informer().GetStore())
	c.ownSlices = newWritten[*discoveryv1.EndpointSlice](c.seedSlices.GetStore())
	if err := c.endpointSlices.AddIndexers(cache.Indexers{byService: func(obj any) ([]string, error) {
		slice, ok := obj.(*discoveryv1.EndpointSlice)
		if !ok || slice.Labels[discoveryv1.LabelServiceName] == "" {
			return nil, nil
		}
		return []string{slice.Namespace + "/" + slice.Labels[discoveryv1.LabelServiceName]}, nil
	}}); err != nil {
		return nil, err
	}
	for _, informer := range []cache.SharedIndexInformer{c.seedServices.Informer(), c.seedSlices} {
		if err := informer.AddIndexers(cache.Indexers{byService: func(obj any) ([]string, error) {
			if key, ok := servedKey(obj.(metav1.Object)); ok {
				return []string{key.String()}, nil
			}
			return nil, nil
		}}); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func withLabels(selector string) informers.SharedInformerOption {
	return informers.WithTweakListOptions(func(options *metav1.ListOptions) { options.LabelSelector = selector })
}

// strip leaves out what takes memory and nobody reads. What is written is a patch of what was read here, so of Services
// and of the seed's EndpointSlices only what no patch can touch may go.
func strip(obj any) (any, error) {
	switch o := obj.(type) {
	case *corev1.Node:
		o.ManagedFields, o.Annotations = nil, nil
		o.Status.Images, o.Status.VolumesInUse, o.Status.VolumesAttached = nil, nil, nil
	case *corev1.Pod:
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion, Labels: o.Labels, DeletionTimestamp: o.DeletionTimestamp},
			Spec:       corev1.PodSpec{NodeName: o.Spec.NodeName},
			Status:     corev1.PodStatus{Phase: o.Status.Phase, PodIPs: o.Status.PodIPs},
		}, nil
	case metav1.Object:
		o.SetManagedFields(nil)
	}
	return obj, nil
}

// start starts the informers and waits until they have all there is, or until ctx ends.
func (c *caches) start(ctx context.Context) error {
	for _, factory := range c.factories {
		factory.StartWithContext(ctx)
	}
	for _, factory := range c.factories {
		for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
			if !synced {
				return fmt.Errorf("stopped before the informer for %s had all there is", kind)
			}
		}
	}
	return nil
}

// shutdown waits until the informers have ended, after their context has.
func (c *caches) shutdown() {
	for _, factory := range c.factories {
		factory.Shutdown()
	}
}

// synced tells whether the informers have all there is.
func (c *caches) synced() bool {
	for _, informer := range []cache.SharedIndexInformer{
		c.services.Informer(), c.nodes.Informer(), c.endpointSlices, c.seedServices.Informer(), c.seedSlices, c.pods.Informer(),
	} {
		if !informer.HasSynced() {
			return false
		}
	}
	return true
}

// service returns a Service of the shoot, nil if there is none.
func (c *caches) service(key types.NamespacedName) (*corev1.Service, error) {
	return orNil(c.services.Lister().Services(key.Namespace).Get(key.Name))
}

// seedService returns a Service of the seed, nil if there is none.
func (c *caches) seedService(name string) (*corev1.Service, error) {
	return c.ownServices.get(c.namespace + "/" + name)
}

// seedSlice returns an EndpointSlice of the seed, nil if there is none.
func (c *caches) seedSlice(name string) (*discoveryv1.EndpointSlice, error) {
	return c.ownSlices.get(c.namespace + "/" + name)
}

// seedServicesOf returns what Services the seed has for a name in the shoot: more than one if there were several Services
// of that name, one after the other.
func (c *caches) seedServicesOf(key types.NamespacedName) ([]*corev1.Service, error) {
	return indexed[*corev1.Service](c.seedServices.Informer(), key)
}

// seedSlicesOf does the same for EndpointSlices.
func (c *caches) seedSlicesOf(key types.NamespacedName) ([]*discoveryv1.EndpointSlice, error) {
	return indexed[*discoveryv1.EndpointSlice](c.seedSlices, key)
}

// backends returns all machines that take traffic.
func (c *caches) backends() ([]backend, error) {
	nodes, err := c.nodes.Lister().List(labels.Everything())
	if err != nil {
		return nil, err
	}
	var out []backend
	for _, node := range nodes {
		if !takesTraffic(node) {
			continue
		}
		// A machine's Node has the name of its pod.
		pod, err := orNil(c.pods.Lister().Pods(c.namespace).Get(node.Name))
		if err != nil {
			return nil, err
		}
		if b, ok := backendOf(node, pod); ok {
			out = append(out, b)
		}
	}
	return out, nil
}

// withLocalEndpoints returns those machines that run an endpoint of a Service.
func (c *caches) withLocalEndpoints(service *corev1.Service, family discoveryv1.AddressType, backends []backend) ([]backend, error) {
	slices, err := indexed[*discoveryv1.EndpointSlice](c.endpointSlices, keyOf(service))
	if err != nil {
		return nil, err
	}
	nodes := localNodes(slices, family)
	var out []backend
	for _, b := range backends {
		if nodes[b.node] {
			out = append(out, b)
		}
	}
	return out, nil
}

func indexed[T any](informer cache.SharedIndexInformer, key types.NamespacedName) ([]T, error) {
	objects, err := informer.GetIndexer().ByIndex(byService, key.String())
	if err != nil {
		return nil, err
	}
	var out []T
	for _, obj := range objects {
		out = append(out, obj.(T))
	}
	return out, nil
}

func orNil[T any](obj *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return obj, err
}
