// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package service_test

import (
	"context"
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/service"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

const (
	v4, v6                   = corev1.IPv4Protocol, corev1.IPv6Protocol
	single, prefer, required = corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack
)

// newService returns a Service of type LoadBalancer with ports 80 and 443.
func newService(namespace, name string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"suite": "service"}},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeLoadBalancer,
			Selector: map[string]string{"app": name},
			Ports: []corev1.ServicePort{
				{Name: "http", Port: 80, TargetPort: intstr.FromString("http"), AppProtocol: new("http")},
				{Name: "https", Port: 443, TargetPort: intstr.FromInt32(8443)},
			},
		},
	}
	for _, change := range change {
		change(s)
	}
	return s
}

func families(policy corev1.IPFamilyPolicy, families ...corev1.IPFamily) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &policy, families }
}

func ofType(serviceType corev1.ServiceType) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Type = serviceType }
}

// https gives port 443 a node port.
func https(nodePort int32) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports[1].NodePort = nodePort }
}

// create creates Services and deletes them after the spec.
func create(ctx context.Context, services ...*corev1.Service) {
	GinkgoHelper()
	for _, s := range services {
		Expect(seed.Create(ctx, s)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { remove(ctx, s) })
	}
}

// remove deletes a Service and waits until it is gone.
func remove(ctx context.Context, s *corev1.Service) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(seed.Delete(ctx, s))).To(Succeed())
}

// change changes a Service.
func change(ctx context.Context, s *corev1.Service, change func(*corev1.Service)) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(seed.Get(ctx, client.ObjectKeyFromObject(s), s)).To(Succeed())
		before := s.DeepCopy()
		change(s)
		g.Expect(seed.Patch(ctx, s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))).To(Succeed())
	}).Should(Succeed())
}

// addresses reads the addresses of a Service for Eventually, each with its mode.
func addresses(ctx context.Context, s *corev1.Service) func() ([]string, error) {
	return func() ([]string, error) {
		if err := seed.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return nil, err
		}
		return addressesOf(s), nil
	}
}

func addressesOf(s *corev1.Service) []string {
	out := []string{}
	for _, ingress := range s.Status.LoadBalancer.Ingress {
		mode := "none"
		if ingress.IPMode != nil {
			mode = string(*ingress.IPMode)
		}
		out = append(out, ingress.IP+" "+mode)
	}
	return out
}

// nodePorts reads the node ports of a Service for Eventually.
func nodePorts(ctx context.Context, s *corev1.Service) func() ([]int32, error) {
	return func() ([]int32, error) {
		if err := seed.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return nil, err
		}
		var out []int32
		for _, port := range s.Spec.Ports {
			out = append(out, port.NodePort)
		}
		return out, nil
	}
}

// condition reads the condition of a Service for Eventually as "STATUS REASON: MESSAGE".
func condition(ctx context.Context, s *corev1.Service) func() (string, error) {
	return func() (string, error) {
		if err := seed.Get(ctx, client.ObjectKeyFromObject(s), s); err != nil {
			return "", err
		}
		c := meta.FindStatusCondition(s.Status.Conditions, loadbalancer.ConditionReady)
		if c == nil {
			return "", nil
		}
		return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message), nil
	}
}

// eventsOf reads the notes of the Events about a Service for Eventually.
func eventsOf(ctx context.Context, s *corev1.Service) func() ([]string, error) {
	return func() ([]string, error) {
		list := &eventsv1.EventList{}
		if err := seed.List(ctx, list, client.InNamespace(s.Namespace)); err != nil {
			return nil, err
		}
		var out []string
		for _, e := range list.Items {
			// The API server has events of its own, such as that it repairs an address.
			if e.Regarding.UID == s.UID && e.ReportingController == service.ControllerName+"-controller" {
				out = append(out, e.Reason+": "+e.Note)
			}
		}
		return out, nil
	}
}

// inParallel calls a function for each number below n.
func inParallel(ctx context.Context, n int, call func(int)) {
	workqueue.ParallelizeUntil(ctx, 10, n, func(i int) {
		defer GinkgoRecover()
		call(i)
	})
}

// fixed is a row of the table with a node port.
func fixed(namespace, name string, port, nodePort int32) configv1alpha1.LoadBalancerService {
	return configv1alpha1.LoadBalancerService{
		Namespace: namespace, Name: name, NodePorts: []configv1alpha1.LoadBalancerNodePort{{Port: port, NodePort: nodePort}},
	}
}
