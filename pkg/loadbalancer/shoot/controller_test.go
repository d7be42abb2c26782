// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestAServiceIsWrittenOnce(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t, newService(func(s *corev1.Service) { s.Finalizers = nil }))
	g.Expect(b.mustReconcile()).To(Equal([]string{"create services", "create endpointslices"}))
	g.Expect(b.shoot.requests()).To(Equal([]string{"patch services"}))
	g.Expect(b.service().Finalizers).To(ConsistOf(finalizer))
	g.Expect(b.reasons()).To(Equal([]string{"EnsuringLoadBalancer"}))

	b.give("10.1.0.0", "")
	g.Expect(b.mustReconcile()).To(BeEmpty())
	g.Expect(b.shoot.requests()).To(Equal([]string{"patch services"}))
	g.Expect(b.service().Status.LoadBalancer.Ingress).To(ConsistOf(corev1.LoadBalancerIngress{IP: "10.1.0.0", IPMode: new(corev1.LoadBalancerIPModeVIP)}))
	g.Expect(b.reasons()).To(Equal([]string{"EnsuredLoadBalancer"}))

	g.Expect(b.mustReconcile()).To(BeEmpty())
	g.Expect(b.shoot.requests()).To(BeEmpty(), "although the cache shows neither the finalizer nor the status")
	g.Expect(b.reasons()).To(BeEmpty())
}

func TestAShootHasABoundedNumberOfLoadBalancers(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t, newService())
	var others []client.Object
	for i := range maxServices {
		others = append(others, &corev1.Service{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("lb-%d", i), Labels: map[string]string{LabelUID: strconv.Itoa(i)},
		}})
	}
	b.seed.show(others...)
	g.Expect(b.mustReconcile()).To(BeEmpty())
	g.Expect(b.reasons()).To(Equal([]string{"SyncLoadBalancerFailed"}))

	b.seed.show(others[1:]...)
	g.Expect(b.mustReconcile()).To(Equal([]string{"create services", "create endpointslices"}))
}

func TestAShootHasABoundedNumberOfRules(t *testing.T) {
	g := NewWithT(t)
	many := func(s *corev1.Service) {
		s.Spec.Ports = slices.Repeat(s.Spec.Ports, maxRules/3) // and there is one machine
		s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8", "172.16.0.0/12"}
	}
	b := newBench(t, newService(many))
	other := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "lb-other", Labels: map[string]string{LabelUID: "other"}},
		Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}},
	}
	pod := newPod("a", "10.0.0.1")
	b.seed.show(pod, other)
	g.Expect(b.mustReconcile()).To(BeEmpty())
	g.Expect(b.reasons()).To(Equal([]string{"SyncLoadBalancerFailed"}))

	b.seed.show(pod)
	g.Expect(b.mustReconcile()).To(Equal([]string{"create services", "create endpointslices"}))
	b.seed.show(pod, other, b.inTheSeed())
	b.shoot.show(newNode("a"), newService(many, func(s *corev1.Service) { s.Spec.Ports = s.Spec.Ports[1:] }))
	g.Expect(b.mustReconcile()).To(Equal([]string{"patch services", "patch endpointslices"}), "fewer rules than it has are fine")
}

func TestAServiceThatCanNotBeServedLeadsToNoAddressThatIsNoMachines(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t, newService())
	b.mustReconcile()
	b.catchUp()
	slice := &discoveryv1.EndpointSlice{}
	endpoints := func() []discoveryv1.Endpoint {
		g.Expect(b.seed.Get(b.t.Context(), b.inSeed(seedName+"-ipv4"), slice)).To(Succeed())
		return slice.Endpoints
	}
	g.Expect(endpoints()).To(HaveLen(1))
	broken := newService(func(s *corev1.Service) { s.Spec.LoadBalancerIP = "x" })
	b.shoot.show(newNode("a"), broken)
	g.Expect(b.mustReconcile()).To(BeEmpty(), "it keeps what it has")
	b.shoot.show(broken)
	g.Expect(b.mustReconcile()).To(Equal([]string{"patch endpointslices"}))
	g.Expect(endpoints()).To(BeEmpty())
	g.Expect(slice.Ports).NotTo(BeEmpty())
}

func TestAServiceWithoutMachinesIsTold(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t, newService())
	b.seed.show()
	b.mustReconcile()
	g.Expect(b.reasons()).To(Equal([]string{"EnsuringLoadBalancer", "UnAvailableLoadBalancer"}))
}

func TestWhatWasCutOffIsGoneOnWith(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t, newService())
	b.seed.refusals["create endpointslices"] = []error{errors.New("no luck")}
	_, err := b.reconcile()
	g.Expect(err).To(MatchError(ContainSubstring("no luck")))
	g.Expect(b.reasons()).To(ContainElement("SyncLoadBalancerFailed"))
	b.seed.requests()
	g.Expect(b.mustReconcile()).To(Equal([]string{"create endpointslices"}), "although the cache does not show the Service yet")
}

func TestAWriteIsKnownBeforeTheCacheShowsIt(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t, newService())
	b.mustReconcile()
	g.Expect(b.mustReconcile()).To(BeEmpty(), "the next reconcile has nothing to write")

	b.shoot.show(newNode("a"), newService(func(s *corev1.Service) { s.Spec.Ports[0].Port, s.Spec.Ports[0].NodePort = 8080, 30081 }))
	g.Expect(b.mustReconcile()).To(Equal([]string{"patch services", "patch endpointslices"}))
	g.Expect(b.mustReconcile()).To(BeEmpty())
}

func TestWhatTheCacheShowsLaterCountsMoreThanAWrite(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(*WithT, *bench)
		expected []string
	}{
		"that somebody has deleted it": {func(g *WithT, b *bench) {
			service, slice := b.inTheSeed(), &discoveryv1.EndpointSlice{}
			g.Expect(b.seed.Get(b.t.Context(), b.inSeed(seedName+"-ipv4"), slice)).To(Succeed())
			g.Expect(b.seed.Delete(b.t.Context(), service)).To(Succeed())
			g.Expect(b.seed.Delete(b.t.Context(), slice)).To(Succeed())
			showDeletion(b, service)
			showDeletion(b, slice)
		}, []string{"create services", "create endpointslices"}},
		"that somebody has changed it": {func(_ *WithT, b *bench) {
			service := b.inTheSeed()
			b.change(service, func() { service.Spec.Selector = map[string]string{"app": "etcd"} })
		}, []string{"patch services"}},
		"that somebody has taken its labels off": {func(_ *WithT, b *bench) {
			service := b.inTheSeed()
			b.change(service, func() { service.Labels = nil })
		}, []string{"patch services"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench(t, newService())
			b.mustReconcile()
			b.catchUp()
			test.change(g, b)
			b.catchUp()
			g.Expect(b.mustReconcile()).To(Equal(test.expected))
			b.catchUp()
			g.Expect(b.mustReconcile()).To(BeEmpty())
			g.Expect(b.inTheSeed().Spec.Selector).To(BeEmpty())
			g.Expect(b.inTheSeed().Labels).To(HaveKey(LabelUID))
		})
	}
}

func TestNothingIsMadeForAServiceThatIsNotToHaveIt(t *testing.T) {
	for name, service := range map[string]*corev1.Service{
		"as it is being deleted": newService(func(s *corev1.Service) {
			s.DeletionTimestamp, s.Finalizers = new(metav1.Now()), []string{"example.org/other"}
		}),
		"as it is of a class":      newService(func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("other") }),
		"as it is of another type": newService(func(s *corev1.Service) { s.Spec.Type, s.Finalizers = corev1.ServiceTypeNodePort, nil }),
		"as it is gone":            nil,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench(t, service)
			g.Expect(b.mustReconcile()).To(BeEmpty())
			g.Expect(b.shoot.requests()).To(BeEmpty(), "the finalizer may be another controller's")
			g.Expect(b.reasons()).To(BeEmpty())
		})
	}
}

func TestAMistakeIsNotTriedAgainAndAgain(t *testing.T) {
	for name, test := range map[string]struct {
		service *corev1.Service
		refusal error
	}{
		"of the user":               {newService(func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 0 }), nil},
		"that the seed has to tell": {newService(), apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, seedName, nil)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench(t, test.service)
			if test.refusal != nil {
				b.seed.refusals["create services"] = []error{test.refusal}
			}
			result, err := b.reconcile()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(Equal(retryWaiting))
			g.Expect(b.reasons()).To(Equal([]string{"SyncLoadBalancerFailed"}))
		})
	}
}

func TestAServiceOfSomebodyElseIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t, newService())
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: seedName}}
	g.Expect(b.seed.Create(t.Context(), foreign)).To(Succeed())
	_, err := b.reconcile()
	g.Expect(err).To(HaveOccurred(), "although the cache does not show it")
	g.Expect(b.seed.requests()).To(Equal([]string{"create services"}))
	b.catchUp()
	_, err = b.reconcile()
	g.Expect(err).To(MatchError(ContainSubstring("the seed has a Service " + namespace + "/" + seedName + " that is none of cloud-controller's")))
	g.Expect(b.seed.requests()).To(BeEmpty())

	b.shoot.show(newService(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP }))
	g.Expect(b.mustReconcile()).To(Equal([]string{"get services"}))
	g.Expect(b.service().Finalizers).To(BeEmpty())
	g.Expect(b.inTheSeed()).NotTo(BeNil())
}

func TestAWaitForAnAddressIsToldIfItLastsOrHasAReason(t *testing.T) {
	for name, test := range map[string]struct {
		reason   string
		age      time.Duration
		expected []string
		after    time.Duration
		cleared  bool
	}{
		"not at first":        {"", 0, []string{}, patience, false},
		"after some time":     {"", time.Minute, []string{"SyncLoadBalancerFailed"}, retryWaiting, true},
		"at once if refused":  {"PoolExhausted", 0, []string{"SyncLoadBalancerFailed"}, retryWaiting, true},
		"and if it was there": {"AddressInUse", time.Minute, []string{"SyncLoadBalancerFailed"}, retryWaiting, true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench(t, newService(func(s *corev1.Service) {
				s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.1.0.0"}}
			}))
			b.mustReconcile()
			service := b.inTheSeed()
			b.change(service, func() { service.CreationTimestamp = metav1.NewTime(time.Now().Add(-test.age)) })
			b.give("", test.reason)
			b.reasons()

			result, err := b.reconcile()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(Equal(test.after))
			g.Expect(b.reasons()).To(Equal(test.expected))
			g.Expect(b.service().Status.LoadBalancer.Ingress == nil).To(Equal(test.cleared), "an address that may be another's by now")

			b.give("10.1.0.7", "")
			b.mustReconcile()
			g.Expect(b.service().Status.LoadBalancer.Ingress).To(ConsistOf(HaveField("IP", "10.1.0.7")))
		})
	}
}

func TestADeletionLeavesNothing(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"as the Service is deleted":          nil,
		"as it is no load balancer any more": func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeClusterIP },
		"as it is another's load balancer":   func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("other") },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench(t, newService())
			b.mustReconcile()
			b.give("10.1.0.0", "")
			b.mustReconcile()
			b.reasons()
			b.shoot.requests()

			service := b.service()
			if change == nil {
				g.Expect(b.shoot.Delete(t.Context(), service)).To(Succeed())
			} else {
				change(service)
				g.Expect(b.shoot.Update(t.Context(), service)).To(Succeed())
			}
			b.shoot.show(newNode("a"), b.service())
			g.Expect(b.mustReconcile()).To(Equal([]string{"delete services", "delete endpointslices", "get services"}))
			g.Expect(b.shoot.requests()).To(Equal([]string{"patch services"}))
			g.Expect(b.service()).To(Or(BeNil(), And(HaveField("Finalizers", BeEmpty()), HaveField("Status.LoadBalancer.Ingress", BeEmpty()))))
			g.Expect(b.inTheSeed()).To(BeNil())
			g.Expect(b.reasons()).To(Equal([]string{"DeletingLoadBalancer", "DeletedLoadBalancer"}))

			b.catchUp()
			g.Expect(b.mustReconcile()).To(BeEmpty(), "although the cache of the shoot shows the finalizer")
			g.Expect(b.shoot.requests()).To(BeEmpty())
			g.Expect(b.reasons()).To(BeEmpty())
		})
	}
}

func TestAServiceIsNotReleasedBeforeItsAddressIs(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t, newService())
	b.mustReconcile()
	service := b.inTheSeed()
	b.change(service, func() { service.Finalizers = []string{"example.org/other"} })
	b.catchUp()
	b.reasons()

	b.shoot.show(newNode("a"), newService(func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) }))
	result, err := b.reconcile()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(Equal(patience))
	g.Expect(b.reasons()).To(Equal([]string{"DeletingLoadBalancer"}))
	g.Expect(b.service().Finalizers).To(ConsistOf(finalizer))

	b.catchUp()
	cached := &corev1.Service{}
	g.Expect(b.seed.cache.Get(t.Context(), b.inSeed(seedName), cached)).To(Succeed())
	g.Expect(cached.DeletionTimestamp).NotTo(BeNil())
	b.seed.requests()
	g.Expect(b.mustReconcile()).To(Equal([]string{"get services"}))

	service = b.inTheSeed()
	b.change(service, func() { service.Finalizers = nil })
	b.catchUp()
	showDeletion(b, service)
	g.Expect(b.mustReconcile()).To(Equal([]string{"get services"}))
	g.Expect(b.service().Finalizers).To(BeEmpty())
	g.Expect(b.reasons()).To(Equal([]string{"DeletedLoadBalancer"}))
}

func TestADeletionFindsAServiceWhoseLabelsWereTakenOff(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t, newService())
	b.mustReconcile()
	service := b.inTheSeed()
	b.change(service, func() { service.Labels = nil })
	b.catchUp()
	b.shoot.show(newNode("a"), newService(func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) }))
	g.Expect(b.mustReconcile()).To(Equal([]string{"delete endpointslices", "get services", "delete services"}))
	g.Expect(b.service().Finalizers).To(ConsistOf(finalizer))
	b.catchUp()
	g.Expect(b.mustReconcile()).To(Equal([]string{"get services"}))
	g.Expect(b.service().Finalizers).To(BeEmpty())
}

func TestWhatIsLeftOfAServiceThatIsGoneIsDeleted(t *testing.T) {
	other := func(s *corev1.Service) {
		s.UID, s.Finalizers, s.Spec.Type = "other", nil, corev1.ServiceTypeClusterIP
	}
	deleted := func(s *corev1.Service) {
		s.DeletionTimestamp, s.Finalizers = new(metav1.Now()), []string{"example.org/other"}
	}
	for name, test := range map[string]struct {
		known, live *corev1.Service
		deleted     bool
		reads       int
	}{
		"as it is gone":                       {nil, nil, true, 2},
		"as there is another one now":         {newService(other), newService(other), true, 2},
		"as its finalizer was taken off":      {newService(deleted), newService(deleted), true, 0},
		"not if the cache does not show it":   {nil, newService(), false, 2},
		"not if the cache shows a former one": {newService(other), newService(), false, 2},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench(t, newService())
			b.mustReconcile()
			b.catchUp()

			after := newBench(t, test.live) // It has no memory, as after a restart.
			after.seed.Client = b.seed.Client
			after.start()
			after.catchUp()
			if test.known == nil {
				after.shoot.show()
			} else {
				after.shoot.show(test.known)
			}
			requests := after.mustReconcile()
			if test.deleted {
				g.Expect(requests).To(Equal([]string{"delete services", "delete endpointslices"}))
			} else {
				g.Expect(requests).To(BeEmpty())
			}
			g.Expect(after.shoot.requests()).To(HaveLen(test.reads))
		})
	}
}

func TestEventsThatMatter(t *testing.T) {
	g := NewWithT(t)
	service := newService()
	b := newBench(t, service)
	of := []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(service)}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}}
	g.Expect(b.ofEndpoints(t.Context(), slice)).To(BeEmpty(), "it does not matter where they are")
	b.shoot.show(newService(func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }))
	g.Expect(b.ofEndpoints(t.Context(), slice)).To(Equal(of))
	g.Expect(b.all(t.Context(), nil)).To(Equal(of))
	g.Expect(ofSeed(t.Context(), &corev1.Service{})).To(BeEmpty())

	g.Expect(ofNode(newNode("a", func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }))).To(Equal(ofNode(newNode("a"))))
	g.Expect(ofNode(newNode("a", func(n *corev1.Node) { n.Status.Conditions = nil }))).NotTo(Equal(ofNode(newNode("a"))))
	g.Expect(ofPod(newPod("a", "10.0.0.2"))).NotTo(Equal(ofPod(newPod("a", "10.0.0.1"))))
	ended := newPod("a", "10.0.0.1")
	ended.Status.Phase = corev1.PodFailed
	g.Expect(ofPod(ended)).NotTo(Equal(ofPod(newPod("a", "10.0.0.1"))))
	status := newService(func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.1.0.0"}}
	})
	g.Expect(ofService(status)).To(Equal(ofService(service)))
	g.Expect(ofService(newService(func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = new(false) }))).NotTo(Equal(ofService(service)))
	g.Expect(ofService(newService(func(s *corev1.Service) { s.Finalizers = nil }))).NotTo(Equal(ofService(service)))
}
