// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

func TestAServiceIsWrittenOnce(t *testing.T) {
	g := NewWithT(t)
	service := newService()
	b := newBench(t, service)
	_, err := b.ensure(service)
	g.Expect(err).To(MatchError(ContainSubstring("has no address")))
	g.Expect(b.requests()).To(Equal([]string{"create services", "create endpointslices"}))
	b.give("10.1.0.0", "")
	b.requests()

	status, err := b.ensure(service)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(status.Ingress).To(ConsistOf(corev1.LoadBalancerIngress{IP: "10.1.0.0", IPMode: new(corev1.LoadBalancerIPModeVIP)}))
	g.Expect(b.UpdateLoadBalancer(t.Context(), "", service, nil)).To(Succeed())
	g.Expect(b.follow(service)).To(Succeed())
	g.Expect(b.requests()).To(BeEmpty())
	g.Expect(b.repeated).To(BeZero())
}

func TestWhatWasCutOffIsGoneOnWith(t *testing.T) {
	g := NewWithT(t)
	service := newService()
	b := newBench(t, service)
	b.refuse("create", "endpointslices", errors.New("no luck"))
	_, err := b.ensure(service)
	g.Expect(err).To(MatchError(ContainSubstring("no luck")))
	b.requests()

	_, err = b.ensure(service)
	g.Expect(err).To(MatchError(ContainSubstring("has no address")))
	g.Expect(b.requests()).To(Equal([]string{"create endpointslices"}), "although the cache does not show the Service yet")
}

func TestAWriteIsKnownBeforeTheCacheShowsIt(t *testing.T) {
	g := NewWithT(t)
	service := newService()
	b := newBench(t, service)
	_, _ = b.ensure(service)
	b.requests()
	g.Expect(b.follow(service)).To(Succeed())
	g.Expect(b.requests()).To(BeEmpty(), "the next worker has nothing to write")

	changed := newService(func(s *corev1.Service) { s.Spec.Ports[0].Port, s.Spec.Ports[0].NodePort = 8080, 30081 })
	b.show(b.cache.services.Informer(), changed)
	for _, expected := range [][]string{{"patch services", "patch endpointslices"}, {}} {
		g.Expect(b.follow(changed)).To(Succeed())
		g.Expect(b.requests()).To(Equal(expected))
	}
}

func TestWhatTheCacheShowsLaterCountsMoreThanAWrite(t *testing.T) {
	for name, test := range map[string]struct {
		change   func(*WithT, *bench)
		expected []string
	}{
		"that somebody has deleted it": {func(g *WithT, b *bench) {
			g.Expect(b.seed.CoreV1().Services(namespace).Delete(b.t.Context(), seedName, metav1.DeleteOptions{})).To(Succeed())
			g.Expect(b.seed.DiscoveryV1().EndpointSlices(namespace).Delete(b.t.Context(), seedName+"-ipv4", metav1.DeleteOptions{})).To(Succeed())
		}, []string{"create services", "create endpointslices"}},
		"that somebody has changed it": {func(g *WithT, b *bench) {
			_, err := b.seed.CoreV1().Services(namespace).Patch(b.t.Context(), seedName, types.MergePatchType, []byte(`{"spec":{"selector":{"app":"etcd"}}}`), metav1.PatchOptions{})
			g.Expect(err).NotTo(HaveOccurred())
		}, []string{"patch services"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			service := newService()
			b := newBench(t, service)
			_, _ = b.ensure(service)
			test.change(g, b)
			b.catchUp()
			b.requests()
			g.Expect(b.follow(service)).To(Succeed())
			g.Expect(b.requests()).To(Equal(test.expected))
		})
	}
}

func TestAConflictIsNoError(t *testing.T) {
	g := NewWithT(t)
	service := newService()
	b := newBench(t, service)
	_, _ = b.ensure(service)
	b.give("10.1.0.0", "")
	b.requests()

	changed := newService(func(s *corev1.Service) { s.Spec.Ports[0].Port, s.Spec.Ports[0].NodePort = 8080, 30081 })
	b.show(b.cache.services.Informer(), changed)
	b.refuse("patch", "services", conflict("services"))
	b.refuse("patch", "endpointslices", conflict("endpointslices"))
	g.Expect(b.follow(changed)).To(Succeed())
	g.Expect(b.requests()).To(Equal([]string{
		"patch services", "get services", "patch services", "patch endpointslices", "get endpointslices", "patch endpointslices",
	}))

	changed = newService(func(s *corev1.Service) { s.Spec.Ports[0].Port, s.Spec.Ports[0].NodePort = 8081, 30081 })
	b.show(b.cache.services.Informer(), changed)
	b.refuse("patch", "services", conflict("services"), conflict("services"), conflict("services"))
	g.Expect(b.follow(changed)).To(MatchError(ContainSubstring("again and again")))
}

func TestTheNewestServiceCountsWhateverTheCallerHas(t *testing.T) {
	g := NewWithT(t)
	b := newBench(t, newService(func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 30081 }))
	g.Expect(b.UpdateLoadBalancer(t.Context(), "", newService(), nil)).To(Succeed())
	slice, err := b.seed.DiscoveryV1().EndpointSlices(namespace).Get(t.Context(), seedName+"-ipv4", metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(slice.Ports[0].Port).To(HaveValue(Equal(int32(30081))))
}

func TestNothingIsMadeForAServiceThatIsNotToHaveIt(t *testing.T) {
	for name, known := range map[string]*corev1.Service{
		"as it is being deleted":  newService(func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) }),
		"as it is of a class":     newService(func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("other") }),
		"as it is of another UID": newService(func(s *corev1.Service) { s.UID = "other" }),
		"as it is gone":           nil,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench(t, known)
			_, err := b.ensure(newService())
			g.Expect(err).To(HaveOccurred())
			g.Expect(b.UpdateLoadBalancer(t.Context(), "", newService(), nil)).To(Succeed())
			g.Expect(b.requests()).To(BeEmpty())
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
				b.refuse("create", "services", test.refusal, test.refusal, test.refusal)
			}
			_, err := b.ensure(test.service)
			var retry *cloudproviderapi.RetryError
			g.Expect(errors.As(err, &retry)).To(BeTrue(), "%v", err)
			g.Expect(retry.RetryAfter()).To(Equal(retryMistake))
			g.Expect(b.follow(test.service)).To(Succeed())
			g.Expect(b.UpdateLoadBalancer(t.Context(), "", test.service, nil)).To(Succeed())
			g.Expect(b.repeated).To(BeZero())
		})
	}
}

func TestAServiceOfSomebodyElseIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	service := newService()
	b := newBench(t, service)
	_, err := b.seed.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: seedName}}, metav1.CreateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	b.requests()
	_, err = b.ensure(service)
	g.Expect(err).To(MatchError(ContainSubstring("none of cloud-controller's")))
	g.Expect(b.requests()).To(Equal([]string{"create services", "get services"}))
}

func TestAWaitEndsWithTheAddressOrTheReason(t *testing.T) {
	for name, test := range map[string]struct{ address, reason, expected string }{
		"the address": {"10.1.0.0", "", ""},
		"the reason":  {"", "PoolExhausted", "PoolExhausted: there are none left"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			service := newService()
			b := newBench(t, service)
			b.wait = time.Minute
			ended := make(chan error, 1)
			go func() {
				_, err := b.ensure(service)
				ended <- err
			}()
			g.Eventually(func() error {
				_, err := b.seed.DiscoveryV1().EndpointSlices(namespace).Get(t.Context(), seedName+"-ipv4", metav1.GetOptions{})
				return err
			}).Should(Succeed())
			g.Eventually(func(g Gomega) {
				b.give(test.address, test.reason)
				g.Expect(ended).To(Receive(Or(And(BeNil(), WithTransform(func(error) string { return test.expected }, BeEmpty())), MatchError(ContainSubstring(test.expected)))))
			}).Should(Succeed())
		})
	}

	t.Run("or with the process", func(t *testing.T) {
		g := NewWithT(t)
		service := newService()
		b := newBench(t, service)
		b.wait = time.Minute
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := b.EnsureLoadBalancer(ctx, "", service, nil)
		g.Expect(err).To(MatchError(context.Canceled))
	})
}

func TestAnAddressThatIsLostIsTakenOutOfTheStatus(t *testing.T) {
	g := NewWithT(t)
	service := newService(func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.1.0.0"}}
	})
	b := newBench(t, service)
	_, err := b.ensure(service)
	var retry *cloudproviderapi.RetryError
	g.Expect(errors.As(err, &retry)).To(BeTrue(), "%v", err)
	cleared, err := b.shoot.CoreV1().Services(service.Namespace).Get(t.Context(), service.Name, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(cleared.Status.LoadBalancer.Ingress).To(BeEmpty())
}

func TestTheServiceControllerIsToldOfAnotherAddress(t *testing.T) {
	g := NewWithT(t)
	service := newService()
	b := newBench(t, service)
	_, err := b.ensure(service)
	g.Expect(err).To(HaveOccurred())
	g.Expect(b.follow(service)).To(Succeed())
	g.Expect(b.repeated).To(BeZero(), "there is still none")

	b.give("10.1.0.0", "")
	g.Expect(b.follow(service)).To(Succeed())
	g.Expect(b.repeated).To(Equal(1))
	_, err = b.ensure(service)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(b.follow(service)).To(Succeed())
	g.Expect(b.repeated).To(Equal(1))

	b.give("", "AddressInUse")
	g.Expect(b.follow(service)).To(Succeed())
	g.Expect(b.repeated).To(Equal(2))
}

func TestWhileACallIsUnderWayTheFollowerWaitsForItsEnd(t *testing.T) {
	g := NewWithT(t)
	service := newService()
	b := newBench(t, service)
	var settled int
	b.progress.onSettled(func(types.NamespacedName) { settled++ })
	b.progress.begin(service.UID)
	g.Expect(b.follow(service)).To(Succeed())
	g.Expect(b.requests()).To(BeEmpty())
	b.progress.end(service, nil)
	g.Expect(settled).To(Equal(1))
	b.progress.begin(service.UID)
	b.progress.end(service, nil)
	g.Expect(settled).To(Equal(1), "nobody has asked")
}

func TestADeletionLeavesNothing(t *testing.T) {
	g := NewWithT(t)
	service := newService()
	b := newBench(t, service)
	_, _ = b.ensure(service)
	_, exists, err := b.GetLoadBalancer(t.Context(), "", service)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(exists).To(BeTrue())

	for range 2 { // It may be asked for again.
		g.Expect(b.EnsureLoadBalancerDeleted(t.Context(), "", service)).To(Succeed())
	}
	_, exists, err = b.GetLoadBalancer(t.Context(), "", service)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(exists).To(BeFalse())
	slices, err := b.seed.DiscoveryV1().EndpointSlices(namespace).List(t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(slices.Items).To(BeEmpty())
}

func TestNothingIsRememberedOfAServiceThatWasNeverServed(t *testing.T) {
	g := NewWithT(t)
	mistaken := newService(func(s *corev1.Service) { s.Spec.Ports[0].NodePort = 0 })
	b := newBench(t, mistaken)
	_, err := b.ensure(mistaken)
	g.Expect(err).To(HaveOccurred())
	g.Expect(b.progress.services).To(HaveLen(1))

	// The service controller asks whether there is anything, and takes the finalizer off as there is nothing.
	mistaken.DeletionTimestamp = new(metav1.Now())
	_, exists, err := b.GetLoadBalancer(t.Context(), "", mistaken)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(exists).To(BeFalse())
	g.Expect(b.progress.services).To(BeEmpty())
}

func TestADeletionThatTakesLongIsGoneOnWithAtOnce(t *testing.T) {
	g := NewWithT(t)
	deleted := newService(func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) })
	b := newBench(t, deleted)
	b.seed.PrependReactor("get", "services", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: seedName}}, nil
	})
	g.Expect(b.EnsureLoadBalancerDeleted(t.Context(), "", deleted)).To(MatchError(ContainSubstring("is still being deleted")))
	g.Expect(b.follow(deleted)).To(Succeed())
	g.Expect(b.follow(deleted)).To(Succeed())
	g.Expect(b.repeated).To(Equal(1))
}

func TestWhatIsLeftOfAServiceThatIsGoneIsDeleted(t *testing.T) {
	for name, test := range map[string]struct {
		known, live *corev1.Service
		deleted     bool
	}{
		"as it is gone":                          {nil, nil, true},
		"as there is another one now":            {newService(func(s *corev1.Service) { s.UID, s.Finalizers = "other", nil }), newService(func(s *corev1.Service) { s.UID, s.Finalizers = "other", nil }), true},
		"not if the cache does not show it yet":  {nil, newService(), false},
		"not if the service controller is at it": {newService(func(s *corev1.Service) { s.DeletionTimestamp = new(metav1.Now()) }), newService(), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench(t, newService())
			_, _ = b.ensure(newService())
			b.catchUp()
			b.requests()
			g.Expect(b.cache.services.Informer().GetIndexer().Replace(nil, "")).To(Succeed())
			g.Expect(b.shoot.CoreV1().Services("default").Delete(t.Context(), "web", metav1.DeleteOptions{})).To(Succeed())
			if test.known != nil {
				b.show(b.cache.services.Informer(), test.known)
			}
			if test.live != nil {
				_, err := b.shoot.CoreV1().Services("default").Create(t.Context(), test.live, metav1.CreateOptions{})
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(b.follow(newService())).To(Succeed())
			if test.deleted {
				g.Expect(b.requests()).To(ContainElements("delete services", "delete endpointslices"))
			} else {
				g.Expect(b.requests()).To(BeEmpty())
			}
		})
	}
}

func TestEventsThatMatter(t *testing.T) {
	g := NewWithT(t)
	service := newService()
	b := newBench(t, service)
	of := []reconcile.Request{{NamespacedName: keyOf(service)}}
	slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}}}
	g.Expect(b.ofEndpoints(t.Context(), slice)).To(BeEmpty(), "it does not matter where they are")
	b.show(b.cache.services.Informer(), newService(func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal }))
	g.Expect(b.ofEndpoints(t.Context(), slice)).To(Equal(of))
	g.Expect(b.all(t.Context(), nil)).To(Equal(of))
	g.Expect(b.ofSeed(t.Context(), &corev1.Service{})).To(BeEmpty())

	g.Expect(sameNode(newNode("a"), newNode("a", func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }))).To(BeTrue())
	g.Expect(sameNode(newNode("a"), newNode("a", func(n *corev1.Node) { n.Status.Conditions = nil }))).To(BeFalse())
	g.Expect(samePod(newPod("a", "10.0.0.1"), newPod("a", "10.0.0.2"))).To(BeFalse())
	ended := newPod("a", "10.0.0.1")
	ended.Status.Phase = corev1.PodFailed
	g.Expect(samePod(newPod("a", "10.0.0.1"), ended)).To(BeFalse())
	g.Expect(sameSpec(service, newService())).To(BeTrue())
	g.Expect(sameSpec(service, newService(func(s *corev1.Service) { s.Spec.AllocateLoadBalancerNodePorts = new(false) }))).To(BeFalse())
}
