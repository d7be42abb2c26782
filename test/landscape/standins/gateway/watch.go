// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
)

// exportAnnotation says to which namespaces a Service is visible in the mesh.
const exportAnnotation = "networking.istio.io/exportTo"

// watcher keeps the table up to date.
type watcher struct {
	self                                identity
	factory                             dynamicinformer.DynamicSharedInformerFactory
	gateways, virtualServices, services cache.SharedIndexInformer
	own                                 dynamicinformer.DynamicSharedInformerFactory
	secrets                             cache.SharedIndexInformer
	rebuilding                          sync.Mutex
	current                             atomic.Pointer[table]
}

func newWatcher(client dynamic.Interface, self identity) (*watcher, error) {
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, 0)
	own := dynamicinformer.NewFilteredDynamicSharedInformerFactory(client, 0, self.namespace, nil)
	istio := schema.GroupVersion{Group: "networking.istio.io", Version: "v1beta1"}
	w := &watcher{
		self: self, factory: factory, own: own,
		gateways:        factory.ForResource(istio.WithResource("gateways")).Informer(),
		virtualServices: factory.ForResource(istio.WithResource("virtualservices")).Informer(),
		services:        factory.ForResource(corev1.SchemeGroupVersion.WithResource("services")).Informer(),
		secrets:         own.ForResource(corev1.SchemeGroupVersion.WithResource("secrets")).Informer(),
	}
	for _, informer := range []cache.SharedIndexInformer{w.gateways, w.virtualServices, w.services, w.secrets} {
		if err := informer.SetTransform(strip); err != nil {
			return nil, fmt.Errorf("preparing the watches: %w", err)
		}
	}
	// Services are looked up when they are needed, so that their changes change no table.
	for _, informer := range []cache.SharedIndexInformer{w.gateways, w.virtualServices} {
		_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(any) { w.rebuild() },
			UpdateFunc: func(any, any) { w.rebuild() },
			DeleteFunc: func(any) { w.rebuild() },
		})
		if err != nil {
			return nil, fmt.Errorf("preparing the watches: %w", err)
		}
	}
	return w, nil
}

// strip drops what nobody reads here, and what makes up most of an object.
func strip(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		accessor.SetManagedFields(nil)
	}
	if u, ok := object.(*unstructured.Unstructured); ok {
		delete(u.Object, "status")
	}
	return object, nil
}

// run watches until ctx ends.
func (w *watcher) run(ctx context.Context) {
	w.own.Start(ctx.Done())
	w.factory.Start(ctx.Done())
	w.factory.WaitForCacheSync(ctx.Done())
	w.rebuild()
	<-ctx.Done()
	w.factory.Shutdown()
	w.own.Shutdown()
}

// rebuild makes the table anew, once all objects are known.
func (w *watcher) rebuild() {
	w.rebuilding.Lock()
	defer w.rebuilding.Unlock()
	if !w.gateways.HasSynced() || !w.virtualServices.HasSynced() || !w.services.HasSynced() {
		return
	}
	t := buildTable(w.self, decode[gateway](w.gateways), decode[virtualService](w.virtualServices))
	old := w.current.Swap(t)
	if old == nil || len(old.hosts) != len(t.hosts) {
		slog.Info("Routes changed", "hosts", len(t.hosts), "httpPorts", len(t.ports))
	}
}

// ready reports whether everything has been read once.
func (w *watcher) ready() bool { return w.current.Load() != nil }

// byHost finds who serves a host.
func (w *watcher) byHost(host string) (backend, bool) {
	t := w.current.Load()
	if t == nil {
		return backend{}, false
	}
	return t.lookup(host)
}

// open reports whether a Gateway asks for HTTP on a port.
func (w *watcher) open(port int) bool {
	t := w.current.Load()
	return t != nil && t.ports[port]
}

// address tells where a backend is, as IP:port.
func (w *watcher) address(b backend) (string, error) {
	object, found, err := w.services.GetStore().GetByKey(b.namespace + "/" + b.name)
	if err != nil || !found {
		return "", fmt.Errorf("no Service %s/%s", b.namespace, b.name)
	}
	service := &corev1.Service{}
	if err := convert(object, service); err != nil {
		return "", err
	}
	if to := service.Annotations[exportAnnotation]; to != "" && !exported(strings.Split(to, ","), b.namespace, w.self.namespace) {
		return "", fmt.Errorf("%s/%s is not exported to %s", b.namespace, b.name, w.self.namespace)
	}
	if net.ParseIP(service.Spec.ClusterIP) == nil {
		return "", fmt.Errorf("%s/%s has no address", b.namespace, b.name)
	}
	port := b.port
	if port == 0 && len(service.Spec.Ports) == 1 {
		port = int(service.Spec.Ports[0].Port)
	}
	if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return int(p.Port) == port }) {
		return "", fmt.Errorf("%s/%s has no port %d", b.namespace, b.name, port)
	}
	return net.JoinHostPort(service.Spec.ClusterIP, strconv.Itoa(port)), nil
}

// certificate reads the certificate of a site.
func (w *watcher) certificate(credential string) (*tls.Certificate, error) {
	object, found, err := w.secrets.GetStore().GetByKey(w.self.namespace + "/" + credential)
	if err != nil || !found {
		return nil, fmt.Errorf("no Secret %s/%s", w.self.namespace, credential)
	}
	secret := &corev1.Secret{}
	if err := convert(object, secret); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(secret.Data[corev1.TLSCertKey], secret.Data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return nil, fmt.Errorf("reading Secret %s/%s: %w", w.self.namespace, credential, err)
	}
	return &pair, nil
}

// decode reads all objects of an informer; one that can't be read is left out, as one wrong object must not stop the others.
func decode[T any](informer cache.SharedIndexInformer) []T {
	var all []T
	for _, object := range informer.GetStore().List() {
		var item T
		if err := convert(object, &item); err != nil {
			slog.Error("Leaving an object out", "error", err)
			continue
		}
		all = append(all, item)
	}
	return all
}

func convert(object, to any) error {
	u, ok := object.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("unexpected %T", object)
	}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, to); err != nil {
		return fmt.Errorf("reading %s %s/%s: %w", u.GetKind(), u.GetNamespace(), u.GetName(), err)
	}
	return nil
}
