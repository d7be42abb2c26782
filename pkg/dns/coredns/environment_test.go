// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	miekgdns "github.com/miekg/dns"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns"
)

const (
	testNamespace = "coredns"
	testZone      = "local.gardener.cloud"
	gatewayIP     = "172.18.255.1"
)

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(err)
		}
	}
	return s
}

// writes counts what is written.
type writes struct {
	mu      sync.Mutex
	number  int
	bytes   int
	failure error
}

func (w *writes) record(object client.Object) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.failure != nil {
		return w.failure
	}
	w.number++
	if configMap, ok := object.(*corev1.ConfigMap); ok {
		size, _ := configMap.Marshal()
		w.bytes += len(size)
	}
	return nil
}

func (w *writes) fail(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failure = err
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.number
}

// cluster is a fake API server with informers that tell of what the test does.
type cluster struct {
	client.Client
	cache.Informers
	// unobserved is the same without counting writes.
	unobserved client.Client
	writes     *writes
	// echoes has each write of a ConfigMap told of before it returns.
	echoes    bool
	informers map[string]*controllertest.FakeInformer
}

func newCluster(objects ...client.Object) *cluster {
	c := &cluster{writes: &writes{}, informers: map[string]*controllertest.FakeInformer{}}
	objects = append(objects, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "extension-garden", UID: "garden-uid"}})
	unobserved := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(objects...).Build()
	c.unobserved = unobserved
	c.Client = interceptor.NewClient(unobserved, interceptor.Funcs{
		Create: func(ctx context.Context, w client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if err := c.writes.record(object); err != nil {
				return err
			}
			return errors.Join(w.Create(ctx, object, options...), c.echo(object))
		},
		Update: func(ctx context.Context, w client.WithWatch, object client.Object, options ...client.UpdateOption) error {
			if err := c.writes.record(object); err != nil {
				return err
			}
			return errors.Join(w.Update(ctx, object, options...), c.echo(object))
		},
		Delete: func(ctx context.Context, w client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if err := c.writes.record(&corev1.Node{}); err != nil {
				return err
			}
			return w.Delete(ctx, object, options...)
		},
	})
	for _, object := range []client.Object{&extensionsv1alpha1.DNSRecord{}, &corev1.Service{}, &corev1.ConfigMap{}, &resourcesv1alpha1.ManagedResource{}, &corev1.Namespace{}} {
		c.informers[fmt.Sprintf("%T", object)] = controllertest.NewFakeInformer(controllertest.Synced)
	}
	return c
}

func (c *cluster) GetInformer(_ context.Context, object client.Object, _ ...cache.InformerGetOption) (cache.Informer, error) {
	informer, ok := c.informers[fmt.Sprintf("%T", object)]
	if !ok {
		return nil, fmt.Errorf("no informer for %T", object)
	}
	return informer, nil
}

func (c *cluster) echo(object client.Object) error {
	if configMap, ok := object.(*corev1.ConfigMap); ok && c.echoes {
		c.tell(configMap.DeepCopy(), false)
	}
	return nil
}

func (c *cluster) tell(object client.Object, deleted bool) {
	informer := c.informers[fmt.Sprintf("%T", object)]
	if deleted {
		informer.Delete(object)
	} else {
		informer.Add(object)
	}
}

func (c *cluster) configMaps(g Gomega) []corev1.ConfigMap {
	list := &corev1.ConfigMapList{}
	g.Expect(c.List(context.Background(), list, client.InNamespace(testNamespace), client.MatchingLabels{LabelConfig: "true"})).To(Succeed())
	return list.Items
}

// data returns the entries of all ConfigMaps.
func (c *cluster) data(g Gomega) map[string]string {
	data := map[string]string{}
	for _, configMap := range c.configMaps(g) {
		for key, value := range configMap.Data {
			data[key] += value
		}
	}
	return data
}

// server is a DNS server that answers as CoreDNS does, from the ConfigMaps.
type server struct {
	cluster *cluster

	mu      sync.Mutex
	queries int
	// failure is what every query gets; wrong is the address that every answer has.
	failure error
	wrong   string
	behind  bool
	// outside has those who ask be outside of clientNetworks: the rewrites are not for them.
	outside bool
}

func (s *server) Exchange(ctx context.Context, network, _ string, query *miekgdns.Msg) (*miekgdns.Msg, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.queries++
	if s.failure != nil {
		return nil, s.failure
	}
	list := &corev1.ConfigMapList{}
	if err := s.cluster.List(ctx, list, client.InNamespace(testNamespace)); err != nil {
		return nil, err
	}
	reply := new(miekgdns.Msg)
	reply.SetReply(query)
	name, rrtype := query.Question[0].Name, query.Question[0].Qtype

	if shard, ok := strings.CutSuffix(name, "._sync."+testZone+"."); ok {
		reply.Rcode = miekgdns.RcodeNameError
		for _, configMap := range list.Items {
			if configMap.Name == shard && !s.behind {
				reply.Rcode = miekgdns.RcodeSuccess
				reply.Answer = append(reply.Answer, &miekgdns.TXT{Hdr: miekgdns.RR_Header{Name: name, Rrtype: rrtype}, Txt: []string{configMap.Annotations[AnnotationGeneration]}})
			}
		}
		return reply, nil
	}
	for _, configMap := range list.Items {
		s.answer(ctx, reply, configMap.Data, network, name, rrtype)
	}
	if s.wrong != "" {
		reply.Answer = []miekgdns.RR{dns.Record{Name: name, Type: "A"}.ResourceRecord(s.wrong)}
	}
	return reply, nil
}

func (s *server) answer(ctx context.Context, reply *miekgdns.Msg, data map[string]string, network, name string, rrtype uint16) {
	for key, value := range data {
		if fields := strings.Fields(value); network == udp && !s.outside && strings.HasSuffix(key, suffixOverride) && regexp.MustCompile(fields[4]).MatchString(name) {
			parts := strings.Split(fields[5], ".")
			service := &corev1.Service{}
			if err := s.cluster.Get(ctx, client.ObjectKey{Namespace: parts[1], Name: parts[0]}, service); err != nil {
				continue
			}
			for _, ip := range service.Spec.ClusterIPs {
				recordType := map[bool]string{true: "AAAA", false: "A"}[strings.Contains(ip, ":")]
				if miekgdns.StringToType[recordType] == rrtype {
					reply.Answer = append(reply.Answer, dns.Record{Name: name, Type: recordType}.ResourceRecord(ip))
				}
			}
			return
		}
	}
	_, parent, _ := strings.Cut(name, ".")
	for _, owner := range []string{name, "*." + parent} {
		if len(reply.Answer) > 0 {
			return
		}
		parser := miekgdns.NewZoneParser(strings.NewReader(data[testZone+suffixZone]), "", "")
		for rr, ok := parser.Next(); ok; rr, ok = parser.Next() {
			if rr.Header().Name == owner && (rr.Header().Rrtype == rrtype || rr.Header().Rrtype == miekgdns.TypeCNAME) {
				reply.Answer = append(reply.Answer, rr)
			}
		}
	}
}

func (s *server) set(change func(*server)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s)
}

// environment is a running Provider.
type environment struct {
	*Provider
	cluster *cluster
	server  *server
	stop    func()
}

func newProvider(tb testing.TB, c *cluster, change ...func(*Options)) *environment {
	tb.Helper()
	g := NewWithT(tb)
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"garden"}, "garden")
	g.Expect(err).NotTo(HaveOccurred())
	s := &server{cluster: c}
	options := Options{
		SetupOptions: SetupOptions{
			DNS: configv1alpha1.DNSConfiguration{
				Zones: []string{testZone}, DefaultTTL: new(int64(120)), Provider: configv1alpha1.DNSProviderCoreDNS,
				CoreDNS: configv1alpha1.CoreDNSConfiguration{
					Namespace: testNamespace, ClusterDomain: "cluster.local", Servers: []string{"192.0.2.53:53"},
					BatchWindow: &metav1.Duration{Duration: time.Millisecond}, ConfirmTimeout: &metav1.Duration{Duration: 5 * time.Second},
				},
			},
			Place: "garden", ServiceAccount: types.NamespacedName{Namespace: "extension-garden"}, Classes: classes,
		},
		Client: c, Reader: c, Cache: c, Log: logr.Discard(), Exchange: s.Exchange,
	}
	for _, f := range change {
		f(&options)
	}
	provider := New(options)

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- provider.Start(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			g.Expect(err).NotTo(HaveOccurred())
		case <-time.After(10 * time.Second):
			tb.Error("the provider doesn't stop")
		}
	})
	tb.Cleanup(stop)
	return &environment{Provider: provider, cluster: c, server: s, stop: stop}
}

func record(owner, name, recordType string, values ...string) dns.Record {
	return dns.Record{Owner: types.NamespacedName{Namespace: "garden", Name: owner}, Created: time.Unix(1000, 0), Name: name, Type: recordType, TTL: 120, Values: values}
}

func service(namespace, name, ip string, clusterIPs ...string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, ClusterIPs: clusterIPs},
		Status:     corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: ip}}}},
	}
}

// dnsRecord is a DNSRecord that was reconciled before.
func dnsRecord(name, domain string, values ...string) *extensionsv1alpha1.DNSRecord {
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: name},
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local", Class: new(extensionsv1alpha1.ExtensionClass("garden"))},
			Name:        domain, RecordType: "A", Values: values,
		},
		Status: extensionsv1alpha1.DNSRecordStatus{DefaultStatus: extensionsv1alpha1.DefaultStatus{
			Conditions: []gardencorev1beta1.Condition{{Type: "Created", Status: gardencorev1beta1.ConditionTrue}},
		}},
	}
}

var (
	ctx         = context.Background()
	errAPI      = errors.New("the API server is away")
	rewriteLine = `rewrite stop name regex ^api\.local\.gardener\.cloud\.$ istio-ingressgateway.istio-ingress.svc.cluster.local answer auto` + "\n"
)

// agreeing is a server that always has what was written last.
type agreeing struct{ cluster *cluster }

func (a agreeing) Exchange(ctx context.Context, network, _ string, query *miekgdns.Msg) (*miekgdns.Msg, error) {
	reply := new(miekgdns.Msg)
	reply.SetReply(query)
	name := query.Question[0].Name
	shard, ok := strings.CutSuffix(name, "._sync."+testZone+".")
	switch {
	case ok:
		configMap := &corev1.ConfigMap{}
		if err := a.cluster.Get(ctx, client.ObjectKey{Namespace: testNamespace, Name: shard}, configMap); err != nil {
			return nil, err
		}
		reply.Answer = []miekgdns.RR{&miekgdns.TXT{Hdr: miekgdns.RR_Header{Name: name, Rrtype: miekgdns.TypeTXT}, Txt: []string{configMap.Annotations[AnnotationGeneration]}}}
	case network == udp:
		reply.Answer = []miekgdns.RR{dns.Record{Name: name, Type: "A"}.ResourceRecord("10.4.0.10")}
	default:
		reply.Answer = []miekgdns.RR{dns.Record{Name: name, Type: "A"}.ResourceRecord(gatewayIP)}
	}
	return reply, nil
}

func (p *Provider) apply(ctx context.Context, record dns.Record) error {
	return p.Apply(ctx, dns.Request{Record: record})
}

func (p *Provider) remove(ctx context.Context, owner types.NamespacedName) error {
	return p.Remove(ctx, dns.Request{Record: dns.Record{Owner: owner}})
}
