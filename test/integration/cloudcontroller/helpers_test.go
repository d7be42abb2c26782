// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cloudcontroller_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
)

const (
	v4, v6 = corev1.IPv4Protocol, corev1.IPv6Protocol
)

// newService returns a Service of a shoot with port 80, TCP.
func newService(name string, change ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeLoadBalancer,
			Selector: map[string]string{"app": name},
			Ports:    []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}
	for _, change := range change {
		change(s)
	}
	return s
}

func dualStack(policy corev1.IPFamilyPolicy, families ...corev1.IPFamily) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &policy, families }
}

func local(s *corev1.Service) {
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
}

// create creates Services in the shoot. After the spec, they and all that was made for them are deleted, by whoever is
// left.
func create(ctx context.Context, services ...*corev1.Service) {
	GinkgoHelper()
	for _, s := range services {
		Expect(shootClient.Create(ctx, s)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { purge(ctx, s) })
	}
}

// purge deletes a Service even if nobody takes its finalizer off.
func purge(ctx context.Context, s *corev1.Service) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(shootClient.Delete(ctx, s))).To(Succeed())
	// Whoever serves it is given some time, and that it is in vain is no failure.
	_ = InterceptGomegaFailures(func() {
		Eventually(ctx, func() error { return shootClient.Get(ctx, client.ObjectKeyFromObject(s), &corev1.Service{}) }).
			WithTimeout(2 * time.Second).Should(Satisfy(apierrors.IsNotFound))
	})
	Eventually(ctx, func(g Gomega) {
		if err := shootClient.Get(ctx, client.ObjectKeyFromObject(s), s); !apierrors.IsNotFound(err) {
			g.Expect(err).NotTo(HaveOccurred())
			s.Finalizers = nil
			g.Expect(client.IgnoreNotFound(shootClient.Update(ctx, s))).To(Succeed())
		}
	}).Should(Succeed())
	name := "lb-" + string(s.UID)
	Expect(client.IgnoreNotFound(seed.Delete(ctx, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: technicalID, Name: name}}))).To(Succeed())
	for _, family := range []string{"-ipv4", "-ipv6"} {
		Expect(client.IgnoreNotFound(seed.Delete(ctx, &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: technicalID, Name: name + family}}))).To(Succeed())
	}
}

// change changes an object of a cluster.
func change[T client.Object](ctx context.Context, c client.Client, obj T, change func(T)) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(c.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
		before := obj.DeepCopyObject().(client.Object)
		change(obj)
		g.Expect(c.Patch(ctx, obj, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))).To(Succeed())
	}).Should(Succeed())
}

// newMachine creates a Node in the shoot and the pod of its machine in the seed, and deletes both after the spec.
func newMachine(ctx context.Context, name string, addresses ...string) *corev1.Node {
	GinkgoHelper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: technicalID, Name: machine.PodName(name), Labels: machine.Labels(name)},
		Spec:       corev1.PodSpec{NodeName: "seed-node", Containers: []corev1.Container{{Name: machine.ContainerName, Image: "machine"}}},
	}
	Expect(seed.Create(ctx, pod)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { deletePod(ctx, pod) })
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pod.Name}}
	Expect(shootClient.Create(ctx, node)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(shootClient.Delete(ctx, node))).To(Succeed()) })

	pod.Status.PodIP = addresses[0]
	for _, address := range addresses {
		pod.Status.PodIPs = append(pod.Status.PodIPs, corev1.PodIP{IP: address})
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	Expect(seed.Status().Update(ctx, pod)).To(Succeed())
	node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	Expect(shootClient.Status().Update(ctx, node)).To(Succeed())
	return node
}

func deletePod(ctx context.Context, pod *corev1.Pod) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(seed.Delete(ctx, pod, client.GracePeriodSeconds(0)))).To(Succeed())
}

// setReady writes whether a Node is ready.
func setReady(ctx context.Context, node *corev1.Node, status corev1.ConditionStatus) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(shootClient.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}}
		g.Expect(shootClient.Status().Update(ctx, node)).To(Succeed())
	}).Should(Succeed())
}

// setEndpoints writes the EndpointSlice of a Service in the shoot: its endpoints are on the given Nodes.
func setEndpoints(ctx context.Context, s *corev1.Service, nodes ...*corev1.Node) {
	GinkgoHelper()
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name + "-suite"}, AddressType: discoveryv1.AddressTypeIPv4}
	if err := shootClient.Get(ctx, client.ObjectKeyFromObject(slice), slice); apierrors.IsNotFound(err) {
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: s.Name}
		Expect(shootClient.Create(ctx, slice)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(shootClient.Delete(ctx, slice)).To(Succeed()) })
	}
	slice.Endpoints = nil
	for i, node := range nodes {
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{fmt.Sprintf("100.64.0.%d", i+1)}, NodeName: new(node.Name), Conditions: discoveryv1.EndpointConditions{Ready: new(true)},
		})
	}
	Expect(shootClient.Update(ctx, slice)).To(Succeed())
}

// addresses reads the addresses of a Service in the shoot for Eventually, each with its mode.
func addresses(ctx context.Context, s *corev1.Service) func() ([]string, error) {
	return func() ([]string, error) {
		err := shootClient.Get(ctx, client.ObjectKeyFromObject(s), s)
		return ingress(s), err
	}
}

func ingress(s *corev1.Service) []string {
	out := []string{}
	for _, i := range s.Status.LoadBalancer.Ingress {
		mode := "none"
		if i.IPMode != nil {
			mode = string(*i.IPMode)
		}
		out = append(out, i.IP+" "+mode)
	}
	return out
}

// inTheSeed returns the seed's Service for one of the shoot.
func inTheSeed(ctx context.Context, s *corev1.Service) *corev1.Service {
	GinkgoHelper()
	out := &corev1.Service{}
	Expect(seed.Get(ctx, client.ObjectKey{Namespace: technicalID, Name: "lb-" + string(s.UID)}, out)).To(Succeed())
	return out
}

// specInTheSeed reads the spec of the seed's Service for Eventually.
func specInTheSeed(ctx context.Context, s *corev1.Service) func() (corev1.ServiceSpec, error) {
	return func() (corev1.ServiceSpec, error) {
		out := &corev1.Service{}
		err := seed.Get(ctx, client.ObjectKey{Namespace: technicalID, Name: "lb-" + string(s.UID)}, out)
		return out.Spec, err
	}
}

// backends reads where the seed's Service leads to for Eventually, as "ADDRESS:PORT/PROTOCOL" by the names of ports.
func backends(ctx context.Context, s *corev1.Service) func() (map[string][]string, error) {
	return func() (map[string][]string, error) {
		list := &discoveryv1.EndpointSliceList{}
		err := seed.List(ctx, list, client.InNamespace(technicalID), client.MatchingLabels{discoveryv1.LabelServiceName: "lb-" + string(s.UID)})
		out := map[string][]string{}
		for _, slice := range list.Items {
			for _, port := range slice.Ports {
				for _, endpoint := range slice.Endpoints {
					out[*port.Name] = append(out[*port.Name], fmt.Sprintf("%s:%d/%s", endpoint.Addresses[0], *port.Port, *port.Protocol))
				}
			}
		}
		for _, list := range out {
			slices.Sort(list)
		}
		return out, err
	}
}

// machinesBehind reads just the addresses of the machines.
func machinesBehind(ctx context.Context, s *corev1.Service) func() ([]string, error) {
	return func() ([]string, error) {
		all, err := backends(ctx, s)()
		out := []string{}
		for _, endpoint := range all["http"] {
			out = append(out, endpoint[:strings.LastIndex(endpoint, ":")])
		}
		return out, err
	}
}

// events reads the messages of the Events about a Service for Eventually.
func events(ctx context.Context, s *corev1.Service) func() ([]string, error) {
	return func() ([]string, error) {
		list := &corev1.EventList{}
		err := shootClient.List(ctx, list, client.InNamespace(s.Namespace))
		var out []string
		for _, e := range list.Items {
			if e.InvolvedObject.UID == s.UID {
				out = append(out, e.Type+" "+e.Reason+": "+e.Message)
			}
		}
		return out, err
	}
}

// left reads the names of all that is in the seed for Services of the shoot, for Eventually.
func left(ctx context.Context) func() ([]string, error) {
	return func() ([]string, error) {
		out := []string{}
		for _, list := range []client.ObjectList{&corev1.ServiceList{}, &discoveryv1.EndpointSliceList{}} {
			if err := seed.List(ctx, list, client.InNamespace(technicalID)); err != nil {
				return nil, err
			}
			switch l := list.(type) {
			case *corev1.ServiceList:
				for _, s := range l.Items {
					out = append(out, s.Name)
				}
			case *discoveryv1.EndpointSliceList:
				for _, s := range l.Items {
					out = append(out, s.Name)
				}
			}
		}
		return out, nil
	}
}
