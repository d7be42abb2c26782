// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer"
)

var resource = schema.GroupResource{Resource: "services"}

// bench is a reconciler on a fake API server that counts requests and may refuse them.
type bench struct {
	*reconciler
	client   client.WithWatch
	recorder *events.FakeRecorder
	woken    []types.NamespacedName
	writes   atomic.Int32
	// refusePorts and refuseStatus are asked before a write of ports or of a status.
	refusePorts  func(*corev1.Service) error
	refuseStatus func() error
	refuseList   error
	// stale is what the cache has instead of the API server's Services.
	stale map[string]*corev1.Service
}

func newBench(t *testing.T, pool string, services ...*corev1.Service) *bench {
	t.Helper()
	config := &configv1alpha1.ExtensionConfiguration{LoadBalancers: configv1alpha1.LoadBalancersConfiguration{
		Pools: []string{pool},
		Services: []configv1alpha1.LoadBalancerService{{
			Namespace: "garden", Name: "second", NodePorts: []configv1alpha1.LoadBalancerNodePort{{Port: 443, NodePort: 30500}},
		}},
	}}
	configv1alpha1.SetDefaults(config)
	allocator, err := loadbalancer.NewAllocator(config.LoadBalancers)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())

	b := &bench{recorder: events.NewFakeRecorder(20), stale: map[string]*corev1.Service{}}
	builder := fakeclient.NewClientBuilder().WithStatusSubresource(&corev1.Service{}).
		WithIndex(&corev1.Service{}, "spec.type", func(obj client.Object) []string {
			return []string{string(obj.(*corev1.Service).Spec.Type)}
		}).
		WithInterceptorFuncs(b.funcs())
	for _, s := range services {
		builder.WithObjects(s)
	}
	b.client = builder.Build()
	b.reconciler = &reconciler{
		live: b.client, client: b.fresh(), events: b.recorder, allocator: allocator,
		wake:      func(services []types.NamespacedName) { b.woken = append(b.woken, services...) },
		namespace: seedInstance,
		shared:    sets.New(client.ObjectKeyFromObject(gardenGateway()), types.NamespacedName{Namespace: "garden", Name: "nginx-ingress-controller"}),
	}
	return b
}

// besides returns the garden instance in the cluster of a seed instance.
func (b *bench) besides() *reconciler {
	return &reconciler{
		live: b.client, client: b.fresh(), events: b.recorder, allocator: b.allocator, wake: b.wake,
		namespace: gardenInstance, garden: true, shared: b.shared,
	}
}

func (b *bench) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if b.refuseList != nil {
				return b.refuseList
			}
			return c.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			b.writes.Add(1)
			if b.refusePorts != nil && patch.Type() == types.JSONPatchType {
				patched, err := afterwards(ctx, c, obj, patch)
				if err != nil {
					return err
				}
				if err := b.refusePorts(patched); err != nil {
					return err
				}
			}
			return c.Patch(ctx, obj, patch, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			b.writes.Add(1)
			if b.refuseStatus != nil {
				if err := b.refuseStatus(); err != nil {
					return err
				}
			}
			return c.SubResource(subresource).Patch(ctx, obj, patch, opts...)
		},
	}
}

// afterwards returns a Service as it would be after a patch of node ports. The fake client's dry run does not tell.
func afterwards(ctx context.Context, c client.Client, obj client.Object, patch client.Patch) (*corev1.Service, error) {
	patched := &corev1.Service{}
	if err := c.Get(ctx, client.ObjectKeyFromObject(obj), patched); err != nil {
		return nil, err
	}
	data, err := patch.Data(obj)
	if err != nil {
		return nil, err
	}
	var operations []struct {
		Path  string
		Value any
	}
	if err := json.Unmarshal(data, &operations); err != nil {
		return nil, err
	}
	for _, o := range operations[1:] {
		var i int
		if _, err := fmt.Sscanf(o.Path, "/spec/ports/%d/nodePort", &i); err != nil {
			return nil, err
		}
		value, _ := o.Value.(float64)
		patched.Spec.Ports[i].NodePort = int32(value)
	}
	return patched, nil
}

// fresh returns the client of an instance, which reads from a cache.
func (b *bench) fresh() client.Client {
	return instance.NewFreshClient(interceptor.NewClient(b.client, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			service := obj.(*corev1.Service)
			if stale, ok := b.stale[key.Name]; ok {
				stale.DeepCopyInto(service)
				return nil
			}
			if err := c.Get(ctx, key, service, opts...); err != nil {
				return err
			}
			if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
				return apierrors.NewNotFound(resource, key.Name)
			}
			return nil
		},
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("nothing lists from the cache")
		},
	}), b.client)
}

func (b *bench) run(t *testing.T, service *corev1.Service) (reconcile.Result, error) {
	t.Helper()
	return b.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(service)})
}

func (b *bench) get(t *testing.T, service *corev1.Service) *corev1.Service {
	t.Helper()
	out := &corev1.Service{}
	NewWithT(t).Expect(b.client.Get(t.Context(), client.ObjectKeyFromObject(service), out)).To(Succeed())
	return out
}

func (b *bench) address(t *testing.T, service *corev1.Service) string {
	t.Helper()
	if ingress := b.get(t, service).Status.LoadBalancer.Ingress; len(ingress) > 0 {
		return ingress[0].IP
	}
	return ""
}

func (b *bench) condition(t *testing.T, service *corev1.Service) metav1.Condition {
	t.Helper()
	condition := meta.FindStatusCondition(b.get(t, service).Status.Conditions, loadbalancer.ConditionReady)
	NewWithT(t).Expect(condition).NotTo(BeNil())
	return *condition
}

// allocated refuses node ports that another Service has or that are taken by nothing that can be seen, like the API
// server.
func (b *bench) allocated(taken ...int32) func(*corev1.Service) error {
	return func(patched *corev1.Service) error {
		all := &corev1.ServiceList{}
		if err := b.client.List(context.Background(), all); err != nil {
			return err
		}
		used := map[int32]bool{}
		for _, port := range taken {
			used[port] = true
		}
		for _, s := range all.Items {
			if s.Name != patched.Name {
				used[s.Spec.HealthCheckNodePort] = true
				for _, port := range s.Spec.Ports {
					used[port.NodePort] = true
				}
			}
		}
		for i, port := range patched.Spec.Ports {
			if port.NodePort != 0 && used[port.NodePort] {
				return refusal(patched.Name, i, port.NodePort, messageAllocated)
			}
		}
		return nil
	}
}

func refusal(name string, i int, nodePort int32, message string) error {
	return apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, name, field.ErrorList{
		field.Invalid(field.NewPath("spec", "ports").Index(i).Child("nodePort"), nodePort, message),
	})
}

func newService(namespace, name string, changes ...func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, IPFamilies: []corev1.IPFamily{corev1.IPv4Protocol},
			Ports: []corev1.ServicePort{{Name: "https", Port: 443, NodePort: 31000}},
		},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func nodePort(port int32) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Spec.Ports[0].NodePort = port }
}

const gardenInstance, seedInstance = "runtime-extension-provider-local", "extension-provider-local"

// gardenGateway is a Service that a garden needs.
func gardenGateway(changes ...func(*corev1.Service)) *corev1.Service {
	return newService("virtual-garden-istio-ingress", "istio-ingressgateway", changes...)
}

func servedBy(instance string) func(*corev1.Service) {
	return func(s *corev1.Service) { s.Annotations = map[string]string{loadbalancer.AnnotationInstance: instance} }
}

func withAddress(address string) func(*corev1.Service) {
	return func(s *corev1.Service) {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address, IPMode: new(corev1.LoadBalancerIPModeVIP)}}
	}
}

func TestAServiceThatAGardenNeedsHasOneInstance(t *testing.T) {
	const own, other = "172.18.255.3", "192.0.2.1"
	for name, test := range map[string]struct {
		garden   bool
		service  *corev1.Service
		instance string
		address  string
	}{
		"the seed instance takes a new one":                                     {false, gardenGateway(), seedInstance, own},
		"the seed instance takes that of the garden instance":                   {false, gardenGateway(servedBy(gardenInstance), withAddress(own)), seedInstance, own},
		"the seed instance takes that of an earlier one":                        {false, gardenGateway(servedBy("gone"), withAddress(own)), seedInstance, own},
		"the seed instance takes one that nobody has named":                     {false, gardenGateway(withAddress(other)), seedInstance, own},
		"the garden instance takes a new one":                                   {true, gardenGateway(), gardenInstance, own},
		"the garden instance goes on with one that it has just taken":           {true, gardenGateway(servedBy(gardenInstance)), gardenInstance, own},
		"the garden instance corrects its own":                                  {true, gardenGateway(servedBy(gardenInstance), withAddress(other)), gardenInstance, own},
		"the garden instance takes one with the address that it would give":     {true, gardenGateway(withAddress(own)), gardenInstance, own},
		"the garden instance takes none to which somebody else gave an address": {true, gardenGateway(withAddress(other)), "", other},
		"the garden instance leaves that of a seed instance":                    {true, gardenGateway(servedBy(seedInstance), withAddress(other)), seedInstance, other},
		"the garden instance leaves one that a seed instance has just taken":    {true, gardenGateway(servedBy(seedInstance)), seedInstance, ""},
		"the garden instance takes that of an instance that is gone":            {true, gardenGateway(servedBy("gone"), withAddress(own)), gardenInstance, own},
		"the garden instance takes no other than those that a garden needs":     {true, newService("istio-ingress", "istio-ingressgateway"), "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			b := newBench(t, "10.1.0.0/30", test.service)
			b.createNamespace(t, seedInstance)
			if test.garden {
				b.reconciler = b.besides()
			}
			g.Expect(b.run(t, test.service)).To(BeZero())
			g.Expect(b.get(t, test.service).Annotations[loadbalancer.AnnotationInstance]).To(Equal(test.instance))
			g.Expect(b.address(t, test.service)).To(Equal(test.address))

			writes := b.writes.Load()
			g.Expect(b.run(t, test.service)).To(BeZero())
			g.Expect(b.writes.Load()).To(Equal(writes), "it is in order now")
		})
	}
}

func TestTheGardenInstanceLeavesANewServiceToTheInstanceOfTheOthers(t *testing.T) {
	g := NewWithT(t)
	s := gardenGateway()
	b := newBench(t, "10.1.0.0/30", s, newService("garden", "nginx-ingress-controller", servedBy(seedInstance)))
	namespace := b.createNamespace(t, seedInstance)
	b.reconciler = b.besides()
	g.Expect(b.run(t, s)).To(BeZero())
	g.Expect(b.writes.Load()).To(BeZero())

	g.Expect(b.client.Delete(t.Context(), namespace)).To(Succeed())
	g.Expect(b.run(t, s)).To(BeZero())
	g.Expect(b.address(t, s)).To(Equal("172.18.255.3"))
}

func (b *bench) createNamespace(t *testing.T, name string) *corev1.Namespace {
	t.Helper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	NewWithT(t).Expect(b.client.Create(t.Context(), namespace)).To(Succeed())
	return namespace
}

func TestTheGardenInstanceIsSureThatASeedInstanceIsGone(t *testing.T) {
	g := NewWithT(t)
	s := gardenGateway(servedBy(seedInstance))
	b := newBench(t, "10.1.0.0/30", s)
	garden := b.besides()
	garden.live = interceptor.NewClient(fakeclient.NewFakeClient(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("no luck")
		},
	})
	garden.restored = true
	b.reconciler = garden
	_, err := b.run(t, s)
	g.Expect(err).To(MatchError(And(ContainSubstring("reading Namespace extension-provider-local"), ContainSubstring("no luck"))))
	g.Expect(b.writes.Load()).To(BeZero())
	g.Expect(garden.allShared(t.Context(), nil)).To(ContainElement(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)}), "when a Namespace goes")
}

func TestNothingIsWrittenToAServiceThatWasTakenOverMeanwhile(t *testing.T) {
	g := NewWithT(t)
	s := gardenGateway(servedBy(gardenInstance))
	b := newBench(t, "10.1.0.0/30", s)
	b.createNamespace(t, seedInstance)
	before := b.get(t, s)
	g.Expect(b.run(t, s)).To(BeZero())
	after := b.get(t, s)

	b.stale[s.Name], b.reconciler = before, b.besides()
	g.Expect(b.run(t, s)).To(BeZero())
	g.Expect(b.get(t, s)).To(Equal(after))
}

func TestBothInstancesAtOnceChangeNoAddressAndComeToAnEnd(t *testing.T) {
	g := NewWithT(t)
	s := gardenGateway()
	b := newBench(t, "10.1.0.0/30", s)
	b.createNamespace(t, seedInstance)
	b.wake = func([]types.NamespacedName) {}
	wrong := atomic.Int32{}
	b.refuseStatus = func() error {
		if address := b.address(t, s); address != "" && address != "172.18.255.3" {
			wrong.Add(1)
		}
		return nil
	}
	var group sync.WaitGroup
	for _, instance := range []*reconciler{b.reconciler, b.besides()} {
		group.Go(func() {
			for range 20 {
				if _, err := instance.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(s)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	g.Expect(wrong.Load()).To(BeZero())
	g.Expect(b.get(t, s).Annotations).To(HaveKeyWithValue(loadbalancer.AnnotationInstance, seedInstance))
	g.Expect(b.address(t, s)).To(Equal("172.18.255.3"))
	g.Expect(b.get(t, s).Spec.Ports[0].NodePort).To(Equal(int32(31433)))
}

func TestTheGardenInstanceTakesNodePortsOnlyFromItsOwnServices(t *testing.T) {
	for name, test := range map[string]struct {
		holder *corev1.Service
		gives  bool
	}{
		"one of its own":        {newService("garden", "nginx-ingress-controller", nodePort(31433), servedBy(gardenInstance)), true},
		"one of a seed's":       {newService("garden", "nginx-ingress-controller", nodePort(31433), servedBy(seedInstance)), false},
		"one that nobody names": {newService("default", "other", nodePort(31433)), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := gardenGateway()
			b := newBench(t, "10.1.0.0/31", s, test.holder)
			b.refusePorts, b.reconciler = b.allocated(), b.besides()
			result, err := b.run(t, s)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(b.address(t, s)).To(Equal("172.18.255.3"))
			if test.gives {
				g.Expect(b.get(t, s).Spec.Ports[0].NodePort).To(Equal(int32(31433)))
				return
			}
			g.Expect(result.RequeueAfter).To(Equal(retryMistake))
			g.Expect(b.condition(t, s)).To(And(HaveField("Reason", ReasonNodePortConflict), HaveField("Message", ContainSubstring("give that one another node port"))))
			g.Expect(b.get(t, test.holder).Spec).To(Equal(test.holder.Spec))
		})
	}
}

func TestAnUnchangedServiceCostsNothing(t *testing.T) {
	g := NewWithT(t)
	s := newService("istio-ingress", "istio-ingressgateway")
	b := newBench(t, "10.1.0.0/30", s)
	g.Expect(b.run(t, s)).To(BeZero())
	g.Expect(b.writes.Load()).To(BeEquivalentTo(2), "the node port and the status")
	g.Expect(b.address(t, s)).To(Equal("172.18.255.1"))
	g.Expect(b.get(t, s).Spec.Ports[0].NodePort).To(Equal(int32(30433)))

	g.Expect(b.run(t, s)).To(BeZero())
	g.Expect(b.writes.Load()).To(BeEquivalentTo(2))
	g.Expect(b.recorder.Events).To(BeEmpty())
}

func TestNothingIsAssignedBeforeItIsKnownWhatIsInUse(t *testing.T) {
	g := NewWithT(t)
	s, other := newService("default", "it"), newService("default", "other")
	other.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "10.1.0.0"}}
	b := newBench(t, "10.1.0.0/30", s, other)
	b.refuseList = errors.New("no luck")
	_, err := b.run(t, s)
	g.Expect(err).To(MatchError(And(ContainSubstring("in use"), ContainSubstring("no luck"))))
	g.Expect(b.writes.Load()).To(BeZero())

	b.refuseList = nil
	g.Expect(b.run(t, s)).To(BeZero())
	g.Expect(b.address(t, s)).To(Equal("10.1.0.1"))
}

func TestACacheThatLagsBehindCostsNoRequest(t *testing.T) {
	g := NewWithT(t)
	s := newService("default", "it")
	b := newBench(t, "10.1.0.0/30", s)
	before := b.get(t, s)
	g.Expect(b.run(t, s)).To(BeZero())
	g.Expect(b.writes.Load()).To(BeEquivalentTo(1))

	b.stale["it"] = before
	g.Expect(b.run(t, s)).To(BeZero())
	g.Expect(b.writes.Load()).To(BeEquivalentTo(1))

	delete(b.stale, "it")
	g.Expect(b.run(t, s)).To(BeZero())
	g.Expect(b.writes.Load()).To(BeEquivalentTo(1))
}

func TestAServiceThatHasChangedMeanwhileWaitsForItsEvent(t *testing.T) {
	for name, refusal := range map[string]error{
		"as it was written to": apierrors.NewConflict(resource, "it", errors.New("changed")),
		"as it was deleted":    apierrors.NewNotFound(resource, "it"),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s, other := newService("default", "it"), newService("default", "other")
			b := newBench(t, "10.1.0.0/32", s, other)
			b.refuseStatus = func() error { return refusal }
			g.Expect(b.run(t, s)).To(BeZero())
			b.refuseStatus = nil
			g.Expect(b.run(t, other)).To(BeZero())
			g.Expect(b.condition(t, other).Reason).To(Equal(loadbalancer.ReasonExhausted), "the address is not given to another meanwhile")

			g.Expect(b.run(t, s)).To(BeZero())
			g.Expect(b.address(t, s)).To(Equal("10.1.0.0"))
		})
	}

	t.Run("nor are its node ports written", func(t *testing.T) {
		g := NewWithT(t)
		s := newService("istio-ingress", "istio-ingressgateway")
		b := newBench(t, "10.1.0.0/32", s)
		old := b.get(t, s)
		labelled := b.get(t, s)
		labelled.Labels = map[string]string{"changed": "true"}
		g.Expect(b.client.Update(t.Context(), labelled)).To(Succeed())

		b.stale[s.Name] = old
		g.Expect(b.run(t, s)).To(BeZero())
		g.Expect(b.get(t, s).Spec.Ports[0].NodePort).To(Equal(int32(31000)))
		delete(b.stale, s.Name)
		g.Expect(b.run(t, s)).To(BeZero())
		g.Expect(b.get(t, s).Spec.Ports[0].NodePort).To(Equal(int32(30433)))
	})
}

func TestAnAddressIsNotFreedBeforeTheStatusShowsThat(t *testing.T) {
	g := NewWithT(t)
	s, other := newService("default", "it"), newService("default", "other")
	b := newBench(t, "10.1.0.0/31", s, other)
	g.Expect(b.run(t, s)).To(BeZero())
	changed := b.get(t, s)
	changed.Spec.LoadBalancerIP = "10.1.0.1"
	g.Expect(b.client.Update(t.Context(), changed)).To(Succeed())
	b.refuseStatus = func() error { return errors.New("no luck") }
	_, err := b.run(t, s)
	g.Expect(err).To(MatchError(ContainSubstring("no luck")))
	b.refuseStatus = nil

	g.Expect(b.run(t, other)).To(BeZero())
	g.Expect(b.address(t, other)).To(BeEmpty())
	g.Expect(b.recorder.Events).To(Receive(ContainSubstring("Warning PoolExhausted")))
	g.Expect(b.run(t, s)).To(BeZero())
	g.Expect(b.woken).To(Equal([]types.NamespacedName{client.ObjectKeyFromObject(other)}))
	g.Expect(b.run(t, other)).To(BeZero())
	g.Expect(b.address(t, other)).To(Equal("10.1.0.0"))
	g.Expect(b.condition(t, other).Status).To(Equal(metav1.ConditionTrue))
}

func TestServicesThatAreNotOursAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*corev1.Service){
		"of another class": func(s *corev1.Service) { s.Spec.LoadBalancerClass = new("other") },
		"of another type":  func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort },
		"being deleted":    func(s *corev1.Service) { s.DeletionTimestamp, s.Finalizers = new(metav1.Now()), []string{"suite"} },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newService("istio-ingress", "istio-ingressgateway", change)
			b := newBench(t, "10.1.0.0/31", s)
			g.Expect(b.run(t, s)).To(BeZero())
			g.Expect(b.writes.Load()).To(BeZero())
		})
	}
}

func TestOtherConditionsStay(t *testing.T) {
	g := NewWithT(t)
	s := newService("default", "it")
	s.Status.Conditions = []metav1.Condition{{Type: "Other", Status: metav1.ConditionTrue, Reason: "Because"}}
	b := newBench(t, "10.1.0.0/31", s)
	g.Expect(b.run(t, s)).To(BeZero())
	g.Expect(b.get(t, s).Status.Conditions).To(ConsistOf(HaveField("Type", "Other"), HaveField("Type", loadbalancer.ConditionReady)))
}

func TestNodePortsOfOthers(t *testing.T) {
	gateway := newService("istio-ingress", "istio-ingressgateway")

	t.Run("are taken from them", func(t *testing.T) {
		g := NewWithT(t)
		other := newService("default", "other", nodePort(30433), func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeNodePort })
		b := newBench(t, "10.1.0.0/31", gateway.DeepCopy(), other)
		b.refusePorts = b.allocated(30432)
		g.Expect(b.run(t, gateway)).To(BeZero())
		g.Expect(b.get(t, gateway).Spec.Ports[0].NodePort).To(Equal(int32(30433)))
		g.Expect(b.get(t, other).Spec.Ports[0].NodePort).To(Equal(int32(30431)), "one that the API server has")
		g.Expect(b.recorder.Events).To(Receive(HavePrefix("Warning NodePortMoved")))
		g.Expect(b.recorder.Events).To(Receive(HavePrefix("Normal NodePortMoved")))
		g.Expect(b.condition(t, gateway).Status).To(Equal(metav1.ConditionTrue))
	})

	for name, test := range map[string]struct {
		services []*corev1.Service
		ports    func(b *bench) func(*corev1.Service) error
		message  string
		// err is set where another try may be of use soon.
		err string
	}{
		"are left where they are fixed, too": {
			[]*corev1.Service{newService("garden", "second", nodePort(30500))}, func(b *bench) func(*corev1.Service) error { return b.allocated() },
			"node port 30500 is fixed for Service garden/second, too", "",
		},
		"are left where health is checked at them": {
			[]*corev1.Service{newService("default", "other", func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 30500 })},
			func(b *bench) func(*corev1.Service) error { return b.allocated() },
			"health check node port of Service default/other", "",
		},
		"that cannot be found are asked for again": {
			nil, func(b *bench) func(*corev1.Service) error { return b.allocated(30500) },
			"no Service has it", "no Service has it",
		},
		"that are out of range are not asked for again": {
			nil, func(*bench) func(*corev1.Service) error {
				return func(s *corev1.Service) error {
					return refusal(s.Name, 0, 30500, messageRange+". The range of valid ports is 31000-32000")
				}
			},
			"node port 30500 is not in the API server's --service-node-port-range", "",
		},
		"that are refused for another reason are not asked for again": {
			nil, func(*bench) func(*corev1.Service) error {
				return func(s *corev1.Service) error { return refusal(s.Name, 0, 30500, "because") }
			},
			"the API server refuses node port 30500: Invalid value: 30500: because", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newService("garden", "first")
			b := newBench(t, "10.1.0.0/31", append(test.services, s)...)
			b.fixAlso(t, s, 30500)
			b.refusePorts = test.ports(b)
			result, err := b.run(t, s)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
			} else {
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(result.RequeueAfter).To(Equal(retryMistake))
			}
			g.Expect(b.get(t, s).Spec.Ports[0].NodePort).To(Equal(int32(31000)))
			g.Expect(b.condition(t, s)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring(test.message))))
			g.Expect(b.address(t, s)).NotTo(BeEmpty(), "it has its address all the same")
			for _, other := range test.services {
				g.Expect(b.get(t, other).Spec).To(Equal(other.Spec))
			}
			g.Expect(b.recorder.Events).To(HaveLen(1))
		})
	}
}

// fixAlso has the configuration fix a node port a second time, which its validation would refuse.
func (b *bench) fixAlso(t *testing.T, s *corev1.Service, nodePort int32) {
	t.Helper()
	config := &configv1alpha1.ExtensionConfiguration{LoadBalancers: configv1alpha1.LoadBalancersConfiguration{}}
	for _, name := range []string{s.Name, "second"} {
		config.LoadBalancers.Services = append(config.LoadBalancers.Services, configv1alpha1.LoadBalancerService{
			Namespace: s.Namespace, Name: name, NodePorts: []configv1alpha1.LoadBalancerNodePort{{Port: 443, NodePort: nodePort}},
		})
	}
	configv1alpha1.SetDefaults(config)
	var err error
	b.allocator, err = loadbalancer.NewAllocator(config.LoadBalancers)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}

func TestANodePortIsNotFoughtFor(t *testing.T) {
	t.Run("with one who takes it back at once", func(t *testing.T) {
		g := NewWithT(t)
		s, other := newService("istio-ingress", "istio-ingressgateway"), newService("default", "other", nodePort(30433))
		b := newBench(t, "10.1.0.0/31", s, other)
		attempts := 0
		b.refusePorts = func(patched *corev1.Service) error {
			if patched.Name == s.Name {
				attempts++
				return refusal(s.Name, 0, 30433, messageAllocated)
			}
			return apierrors.NewConflict(resource, "other", errors.New("changed"))
		}
		_, err := b.run(t, s)
		g.Expect(err).To(MatchError(ContainSubstring("taking node port 30433 from Service default/other")))
		g.Expect(b.address(t, s)).NotTo(BeEmpty(), "it has its address all the same")
		g.Expect(b.get(t, s).Status.Conditions).To(BeEmpty(), "it is not known yet whether it gets its node port")

		b.refusePorts = func(patched *corev1.Service) error {
			if patched.Name == s.Name {
				attempts++
				back := b.get(t, other)
				back.Spec.Ports[0].NodePort = 30433
				g.Expect(b.client.Update(t.Context(), back)).To(Succeed())
				return refusal(s.Name, 0, 30433, messageAllocated)
			}
			return nil
		}
		attempts = 0
		_, err = b.run(t, s)
		g.Expect(err).To(MatchError(ContainSubstring("node port 30433 is taken again and again")))
		g.Expect(attempts).To(Equal(claimAttempts))
	})

	t.Run("where no other is to be had", func(t *testing.T) {
		g := NewWithT(t)
		s, other := newService("istio-ingress", "istio-ingressgateway"), newService("default", "other", nodePort(30433))
		b := newBench(t, "10.1.0.0/31", s, other)
		b.refusePorts = func(patched *corev1.Service) error {
			return refusal(patched.Name, 0, patched.Spec.Ports[0].NodePort, messageAllocated)
		}
		_, err := b.run(t, s)
		g.Expect(err).To(MatchError(ContainSubstring("finding another node port for it")))
		g.Expect(b.writes.Load()).To(BeNumerically("<=", moveAttempts+4))
		g.Expect(b.get(t, other).Spec.Ports[0].NodePort).To(Equal(int32(30433)))
	})
}
