// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"errors"
	"strconv"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/keymutex"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const seedName = "lb-" + uid

// bench is a follower and its Balancer between two fake API servers. Their caches show what the test puts there.
type bench struct {
	*follower
	t           *testing.T
	shoot, seed *fake.Clientset
	repeated    int
	// version is that of the last write to the seed.
	version int
}

func newBench(t *testing.T, service *corev1.Service) *bench {
	t.Helper()
	g := NewWithT(t)
	b := &bench{t: t, shoot: fake.NewClientset(), seed: fake.NewClientset(), version: 1}
	for _, verb := range []string{"create", "update", "patch"} {
		b.seed.PrependReactor(verb, "*", b.write)
	}
	caches, err := newCaches(b.shoot, b.seed, namespace)
	g.Expect(err).NotTo(HaveOccurred())
	b.follower = &follower{
		Balancer: &Balancer{
			shoot: b.shoot, seed: b.seed, namespace: namespace, wait: 10 * time.Millisecond,
			cache: caches, keys: keymutex.NewHashed(1), changes: newChanges(), progress: newProgress(),
		},
		repeat: func(*corev1.Service) { b.repeated++ },
	}
	b.catchUp()
	b.requests()
	b.show(caches.nodes.Informer(), newNode("a"))
	b.show(caches.pods.Informer(), newPod("a", "10.0.0.1"))
	if service != nil {
		b.show(caches.services.Informer(), service)
		_, err := b.shoot.CoreV1().Services(service.Namespace).Create(t.Context(), service, metav1.CreateOptions{})
		g.Expect(err).NotTo(HaveOccurred())
	}
	return b
}

// write answers a write with a new version of the object, which a fake API server does not have.
func (b *bench) write(action clienttesting.Action) (bool, runtime.Object, error) {
	_, obj, err := clienttesting.ObjectReaction(b.seed.Tracker())(action)
	if err != nil {
		return true, nil, err
	}
	object, err := meta.Accessor(obj)
	if err != nil {
		return true, nil, err
	}
	b.version++
	object.SetResourceVersion(strconv.Itoa(b.version))
	return true, obj, b.seed.Tracker().Update(action.GetResource(), obj, action.GetNamespace())
}

// show puts an object into a cache.
func (b *bench) show(informer cache.SharedIndexInformer, obj any) {
	b.t.Helper()
	NewWithT(b.t).Expect(informer.GetIndexer().Add(obj)).To(Succeed())
}

// catchUp has the caches show what the seed has.
func (b *bench) catchUp() {
	b.t.Helper()
	g := NewWithT(b.t)
	services, err := b.seed.CoreV1().Services(namespace).List(b.t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	endpointSlices, err := b.seed.DiscoveryV1().EndpointSlices(namespace).List(b.t.Context(), metav1.ListOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	var all, allSlices []any
	for i := range services.Items {
		all = append(all, &services.Items[i])
	}
	for i := range endpointSlices.Items {
		allSlices = append(allSlices, &endpointSlices.Items[i])
	}
	g.Expect(b.cache.seedServices.Informer().GetIndexer().Replace(all, strconv.Itoa(b.version))).To(Succeed())
	g.Expect(b.cache.seedSlices.GetIndexer().Replace(allSlices, strconv.Itoa(b.version))).To(Succeed())
}

// give gives the seed's Service an address, or a reason why it has none.
func (b *bench) give(address, reason string) {
	b.t.Helper()
	g := NewWithT(b.t)
	service, err := b.seed.CoreV1().Services(namespace).Get(b.t.Context(), seedName, metav1.GetOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	service.Status = corev1.ServiceStatus{}
	if address != "" {
		service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	}
	if reason != "" {
		service.Status.Conditions = []metav1.Condition{{Type: conditionReady, Status: metav1.ConditionFalse, Reason: reason, Message: "there are none left"}}
	}
	_, err = b.seed.CoreV1().Services(namespace).UpdateStatus(b.t.Context(), service, metav1.UpdateOptions{})
	g.Expect(err).NotTo(HaveOccurred())
	b.catchUp()
	b.changes.tell(seedName)
}

func (b *bench) ensure(service *corev1.Service) (*corev1.LoadBalancerStatus, error) {
	return b.EnsureLoadBalancer(b.t.Context(), "", service, nil)
}

func (b *bench) follow(service *corev1.Service) error {
	_, err := b.Reconcile(b.t.Context(), reconcile.Request{NamespacedName: keyOf(service)})
	return err
}

// requests returns those that the seed got, as "VERB RESOURCE", and forgets them.
func (b *bench) requests() []string {
	out := []string{}
	for _, action := range b.seed.Actions() {
		out = append(out, action.GetVerb()+" "+action.GetResource().Resource)
	}
	b.seed.ClearActions()
	return out
}

// refuse has the seed answer the first requests of a kind with errors.
func (b *bench) refuse(verb, resource string, errs ...error) {
	b.seed.PrependReactor(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
		if len(errs) == 0 {
			return false, nil, nil
		}
		err := errs[0]
		errs = errs[1:]
		return true, nil, err
	})
}

func conflict(resource string) error {
	return apierrors.NewConflict(schema.GroupResource{Resource: resource}, seedName, errors.New("changed"))
}
