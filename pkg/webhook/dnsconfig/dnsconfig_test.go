// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package dnsconfig

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"

	"github.com/gardener/gardener-extension-provider-local/test/limitstest"
)

const (
	shootNamespace = "shoot--project--name"
	dnsNamespace   = "coredns"
	addressIPv4    = "10.2.0.53"
	addressIPv6    = "fd00::53"
)

func service(addresses ...string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: dnsNamespace, Name: "coredns"},
		Spec:       corev1.ServiceSpec{ClusterIPs: addresses},
	}
}

// machine is a Pod as a machine driver makes it.
func machine() *corev1.Pod {
	return &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: shootNamespace, Name: "machine-local-z1-5d8f9-abcde",
			Labels: map[string]string{"app": "machine", "machine-provider": "local", "networking.gardener.cloud/to-dns": "allowed"},
		},
		Spec: corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst, Containers: []corev1.Container{{Name: "node", Image: "node"}}},
	}
}

// prober is the Deployment as pkg/component/nodemanagement/dependencywatchdog of Gardener renders it, as far as it matters.
func prober() *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "garden", Name: "dependency-watchdog-prober",
			Labels: map[string]string{"app": "dependency-watchdog-prober", "high-availability-config.resources.gardener.cloud/type": "controller"},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "dependency-watchdog-prober"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "dependency-watchdog-prober", "networking.gardener.cloud/to-dns": "allowed"}},
				Spec:       corev1.PodSpec{ServiceAccountName: "dependency-watchdog-prober", Containers: []corev1.Container{{Name: "dependency-watchdog", Image: "dwd"}}},
			},
		},
	}
}

// exporter is the Deployment as pkg/component/observability/monitoring/blackboxexporter of Gardener renders it.
func exporter(namespace string) *appsv1.Deployment {
	return &appsv1.Deployment{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "blackbox-exporter",
			Labels: map[string]string{"app": "blackbox-exporter", "gardener.cloud/role": "monitoring", "origin": "gardener"},
		},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "blackbox-exporter"}},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "blackbox-exporter"}},
				Spec: corev1.PodSpec{
					Containers: []corev1.Container{{Name: "blackbox-exporter", Image: "blackbox"}},
					DNSConfig:  &corev1.PodDNSConfig{Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("3")}}},
				},
			},
		},
	}
}

// fakeManager is as much of a manager as webhooks ask for.
type fakeManager struct {
	manager.Manager
}

func (fakeManager) GetScheme() *runtime.Scheme { return kubernetesscheme.Scheme }
func (fakeManager) GetClient() client.Client   { return nil }

func mutatorWith(objects ...client.Object) *mutator {
	return &mutator{
		Options:  Options{Namespace: dnsNamespace, ClusterDomain: "cluster.local"},
		services: fake.NewClientBuilder().WithScheme(kubernetesscheme.Scheme).WithObjects(objects...).Build(),
	}
}

// made returns the webhooks by their names.
func made(tb testing.TB, m *mutator) map[string]*extensionswebhook.Webhook {
	tb.Helper()
	g := NewWithT(tb)
	webhooks, err := webhooks(fakeManager{}, m)
	g.Expect(err).NotTo(HaveOccurred())
	byName := map[string]*extensionswebhook.Webhook{}
	for _, webhook := range webhooks {
		byName[webhook.Name] = webhook
	}
	return byName
}

// handle returns what the webhook for the kind of an object answers.
func handle(t *testing.T, m *mutator, request admission.Request) admission.Response {
	t.Helper()
	name := map[string]string{"Pod": "dnsconfig-machines", "Deployment": "dnsconfig-garden"}[request.Kind.Kind]
	return made(t, m)[name].Webhook.Handler.Handle(t.Context(), request)
}

func request(t *testing.T, operation admissionv1.Operation, obj client.Object) admission.Request {
	t.Helper()
	raw, err := json.Marshal(obj)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	request := admission.Request{AdmissionRequest: limitstest.About(obj)}
	request.Operation, request.Object = operation, runtime.RawExtension{Raw: raw}
	if operation == admissionv1.Update {
		request.OldObject = request.Object
	}
	return request
}

// admit returns the object as the API server has it after the admission.
func admit[T client.Object](t *testing.T, m *mutator, operation admissionv1.Operation, obj T) T {
	t.Helper()
	g := NewWithT(t)
	request := request(t, operation, obj)
	response := handle(t, m, request)
	g.Expect(response.Allowed).To(BeTrue())
	if len(response.Patches) == 0 {
		return obj.DeepCopyObject().(T)
	}

	raw, err := json.Marshal(response.Patches)
	g.Expect(err).NotTo(HaveOccurred())
	patch, err := jsonpatch.DecodePatch(raw)
	g.Expect(err).NotTo(HaveOccurred())
	patched, err := patch.Apply(request.Object.Raw)
	g.Expect(err).NotTo(HaveOccurred())
	result := obj.DeepCopyObject().(T)
	// Decoding into what is there would keep what the patch removed.
	switch empty := any(result).(type) {
	case *corev1.Pod:
		*empty = corev1.Pod{}
	case *appsv1.Deployment:
		*empty = appsv1.Deployment{}
	}
	g.Expect(json.Unmarshal(patched, result)).To(Succeed())
	return result
}

func TestMachine(t *testing.T) {
	t.Run("asks CoreDNS alone, without search domains of the seed", func(t *testing.T) {
		g := NewWithT(t)
		pod := admit(t, mutatorWith(service(addressIPv4, addressIPv6)), admissionv1.Create, machine())
		g.Expect(pod.Spec.DNSPolicy).To(Equal(corev1.DNSNone))
		g.Expect(pod.Spec.DNSConfig).To(Equal(&corev1.PodDNSConfig{Nameservers: []string{addressIPv4, addressIPv6}}))
		g.Expect(pod.Labels).To(Equal(map[string]string{
			"app": "machine", "machine-provider": "local", "networking.gardener.cloud/to-dns": "allowed",
			"networking.resources.gardener.cloud/to-local-dns-coredns-udp-9053": "allowed",
			"networking.resources.gardener.cloud/to-local-dns-coredns-tcp-9053": "allowed",
		}))
		g.Expect(pod.Spec.Containers).To(Equal(machine().Spec.Containers))
	})

	t.Run("keeps options and searches that its driver wants", func(t *testing.T) {
		g := NewWithT(t)
		pod := machine()
		pod.Spec.DNSConfig = &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1"}, Searches: []string{"example.com"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("1")}}}
		pod = admit(t, mutatorWith(service(addressIPv4)), admissionv1.Create, pod)
		g.Expect(pod.Spec.DNSConfig).To(Equal(&corev1.PodDNSConfig{
			Nameservers: []string{addressIPv4}, Searches: []string{"example.com"}, Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("1")}},
		}))
	})

	t.Run("is not touched once it exists, as its DNS configuration is immutable", func(t *testing.T) {
		g := NewWithT(t)
		g.Expect(admit(t, mutatorWith(service(addressIPv4)), admissionv1.Update, machine())).To(Equal(machine()))
	})
}

func TestDeployments(t *testing.T) {
	searches := func(namespace string) []string {
		return []string{namespace + ".svc.cluster.local", "svc.cluster.local", "cluster.local"}
	}

	t.Run("get the search domains and options that they had", func(t *testing.T) {
		g := NewWithT(t)
		deployment := admit(t, mutatorWith(service(addressIPv4, addressIPv6)), admissionv1.Create, prober())
		pod := deployment.Spec.Template
		g.Expect(pod.Spec.DNSPolicy).To(Equal(corev1.DNSNone))
		g.Expect(pod.Spec.DNSConfig).To(Equal(&corev1.PodDNSConfig{
			Nameservers: []string{addressIPv4, addressIPv6}, Searches: searches("garden"), Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("5")}},
		}))
		g.Expect(pod.Labels).To(HaveKeyWithValue("networking.resources.gardener.cloud/to-local-dns-coredns-udp-9053", "allowed"))
		g.Expect(pod.Labels).To(HaveKeyWithValue("app", "dependency-watchdog-prober"))
		g.Expect(deployment.Labels).To(Equal(prober().Labels), "only the pods are to be labelled")
	})

	t.Run("keep ndots of their own", func(t *testing.T) {
		g := NewWithT(t)
		for _, namespace := range []string{"garden", shootNamespace} {
			deployment := admit(t, mutatorWith(service(addressIPv4)), admissionv1.Update, exporter(namespace))
			g.Expect(deployment.Spec.Template.Spec.DNSConfig).To(Equal(&corev1.PodDNSConfig{
				Nameservers: []string{addressIPv4}, Searches: searches(namespace), Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: new("3")}},
			}))
		}
	})

	t.Run("do not change the second time, but follow a new address", func(t *testing.T) {
		g := NewWithT(t)
		once := admit(t, mutatorWith(service(addressIPv4)), admissionv1.Update, prober())
		g.Expect(admit(t, mutatorWith(service(addressIPv4)), admissionv1.Update, once)).To(Equal(once))

		moved := admit(t, mutatorWith(service("10.2.0.99")), admissionv1.Update, once)
		once.Spec.Template.Spec.DNSConfig.Nameservers = []string{"10.2.0.99"}
		g.Expect(moved).To(Equal(once))
	})

	t.Run("are left alone if they are others or are being deleted", func(t *testing.T) {
		g := NewWithT(t)
		weeder, deleted := prober(), prober()
		weeder.Name = "dependency-watchdog-weeder"
		deleted.DeletionTimestamp = new(metav1.Unix(1, 0))
		for _, deployment := range []*appsv1.Deployment{weeder, deleted} {
			g.Expect(admit(t, mutatorWith(service(addressIPv4)), admissionv1.Update, deployment)).To(Equal(deployment))
		}
	})
}

func TestSearches(t *testing.T) {
	many := make([]string, 0, maxSearches)
	for i := range maxSearches {
		many = append(many, strings.Repeat("a", i+1)+".example.com")
	}

	for _, test := range []struct {
		name     string
		spec     corev1.PodSpec
		searches []string
	}{
		{"come from the cluster by default", corev1.PodSpec{}, []string{"garden.svc.cluster.local", "svc.cluster.local", "cluster.local"}},
		{"come before the pod's own, without doubles", corev1.PodSpec{DNSConfig: &corev1.PodDNSConfig{Searches: []string{"example.com", "cluster.local"}}},
			[]string{"garden.svc.cluster.local", "svc.cluster.local", "cluster.local", "example.com"}},
		{"are none for a pod that asks the node's server", corev1.PodSpec{DNSPolicy: corev1.DNSDefault}, nil},
		{"are none for a pod in the node's network", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirst, HostNetwork: true}, nil},
		{"are the cluster's for a pod in the node's network that asks for it", corev1.PodSpec{DNSPolicy: corev1.DNSClusterFirstWithHostNet, HostNetwork: true},
			[]string{"garden.svc.cluster.local", "svc.cluster.local", "cluster.local"}},
		{"stay as they are with policy None", corev1.PodSpec{DNSPolicy: corev1.DNSNone, DNSConfig: &corev1.PodDNSConfig{Searches: []string{"example.com"}}}, []string{"example.com"}},
		{"are no more than Kubernetes allows", corev1.PodSpec{DNSConfig: &corev1.PodDNSConfig{Searches: many}},
			append([]string{"garden.svc.cluster.local", "svc.cluster.local", "cluster.local"}, many[:maxSearches-3]...)},
	} {
		t.Run(test.name, func(t *testing.T) {
			target := &target{meta: &metav1.ObjectMeta{}, spec: &test.spec, namespace: "garden"}
			target.ask([]string{addressIPv4}, "cluster.local")
			NewWithT(t).Expect(test.spec.DNSConfig.Searches).To(Equal(test.searches))
		})
	}
}

func TestWithoutAddress(t *testing.T) {
	failing := mutatorWith()
	failing.services = fake.NewClientBuilder().WithScheme(kubernetesscheme.Scheme).WithInterceptorFuncs(interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("the cache is not started")
		},
	}).Build()

	for _, test := range []struct {
		name    string
		mutator *mutator
		reason  string
	}{
		{"because there is no Service", mutatorWith(), "not found"},
		{"because the Service has none yet", mutatorWith(service()), "coredns/coredns of CoreDNS has no address yet"},
		{"because the Service is headless", mutatorWith(service("None")), "has no address yet"},
		{"because the cache does not answer", failing, "not started"},
	} {
		for _, obj := range []client.Object{machine(), prober()} {
			t.Run("lets a "+obj.GetObjectKind().GroupVersionKind().Kind+" pass as it is "+test.name, func(t *testing.T) {
				g := NewWithT(t)
				var logged strings.Builder
				log := funcr.New(func(_, args string) { logged.WriteString(args) }, funcr.Options{})
				before := obj.DeepCopyObject()
				g.Expect(test.mutator.Mutate(logr.NewContext(t.Context(), log), obj, nil)).To(Succeed())
				g.Expect(obj).To(Equal(before))
				g.Expect(logged.String()).To(And(ContainSubstring("Leaving the DNS configuration of a pod as it is"), ContainSubstring(test.reason)))
			})
		}
	}
}

func TestBadRequests(t *testing.T) {
	g := NewWithT(t)
	for _, obj := range []client.Object{machine(), prober()} {
		broken := request(t, admissionv1.Create, obj)
		broken.Object.Raw = []byte("{")
		g.Expect(handle(t, mutatorWith(service(addressIPv4)), broken).Result.Code).To(Equal(int32(http.StatusBadRequest)))
	}

	other := machine()
	other.Kind = "ReplicaSet"
	answer := made(t, mutatorWith())["dnsconfig-machines"].Webhook.Handler.Handle(t.Context(), request(t, admissionv1.Create, other))
	g.Expect(answer.Result.Message).To(ContainSubstring("unexpected request kind"))
}

func TestWebhooks(t *testing.T) {
	g := NewWithT(t)
	byName := made(t, mutatorWith())
	g.Expect(byName).To(HaveLen(3))
	for name, webhook := range byName {
		g.Expect(webhook.Path).To(Equal(name))
		g.Expect(*webhook.FailurePolicy).To(Equal(admissionregistrationv1.Ignore))
	}

	shootLabels := map[string]string{"gardener.cloud/role": "shoot", "shoot.gardener.cloud/provider": "local"}
	for _, test := range []struct {
		name       string
		webhook    string
		obj        client.Object
		namespace  map[string]string
		isSelected bool
	}{
		{"machines are selected", "dnsconfig-machines", machine(), shootLabels, true},
		{"other pods are not", "dnsconfig-machines", &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "machine"}}}, shootLabels, false},
		{"the prober is selected", "dnsconfig-garden", prober(), map[string]string{"kubernetes.io/metadata.name": "garden"}, true},
		{"the garden's exporter is selected", "dnsconfig-garden", exporter("garden"), map[string]string{"kubernetes.io/metadata.name": "garden"}, true},
		{"an exporter elsewhere is not", "dnsconfig-garden", exporter("monitoring"), map[string]string{"kubernetes.io/metadata.name": "monitoring"}, false},
		{"a shoot's exporter is selected", "dnsconfig-shoots", exporter(shootNamespace), shootLabels, true},
		{"that of another provider's shoot is not", "dnsconfig-shoots", exporter(shootNamespace), map[string]string{"shoot.gardener.cloud/provider": "aws"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			webhook := byName[test.webhook]
			NewWithT(t).Expect(selects(t, webhook.ObjectSelector, test.obj.GetLabels()) && selects(t, webhook.NamespaceSelector, test.namespace)).To(Equal(test.isSelected))
		})
	}
}

// selects does as the API server: no selector selects all.
func selects(t *testing.T, selector *metav1.LabelSelector, set map[string]string) bool {
	t.Helper()
	if selector == nil {
		return true
	}
	parsed, err := metav1.LabelSelectorAsSelector(selector)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return parsed.Matches(labels.Set(set))
}

func TestTouch(t *testing.T) {
	namespace := func(name string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"shoot.gardener.cloud/provider": "local"}}}
	}
	// run returns which Deployments were patched; patches in the namespace fail are refused, those in missed go past the
	// webhooks.
	run := func(t *testing.T, fail, missed string, addresses ...string) (patched []string, err error) {
		t.Helper()
		c := fake.NewClientBuilder().WithScheme(kubernetesscheme.Scheme).WithObjects(
			namespace("shoot--a--one"), namespace("shoot--a--two"), prober(), exporter("garden"), exporter("shoot--a--one"), exporter("monitoring"),
			service(addresses...),
		).WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				if obj.GetNamespace() == fail {
					return errors.New("forbidden")
				}
				if err := c.Patch(ctx, obj, patch, opts...); err != nil {
					return err
				}
				patched = append(patched, client.ObjectKeyFromObject(obj).String())
				if deployment := obj.(*appsv1.Deployment); deployment.Namespace != missed {
					(&target{meta: &deployment.Spec.Template.ObjectMeta, spec: &deployment.Spec.Template.Spec}).ask(addresses, "cluster.local")
				}
				return nil
			},
		}).Build()
		err = Touch(t.Context(), c, c, dnsNamespace)
		return patched, err
	}

	t.Run("patches those that there are", func(t *testing.T) {
		g := NewWithT(t)
		patched, err := run(t, "", "", addressIPv4, addressIPv6)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(patched).To(ConsistOf("garden/dependency-watchdog-prober", "garden/blackbox-exporter", "shoot--a--one/blackbox-exporter"))
	})

	t.Run("goes on after one that the webhooks have missed and reports it", func(t *testing.T) {
		g := NewWithT(t)
		patched, err := run(t, "", "garden", addressIPv4)
		g.Expect(err).To(MatchError(ContainSubstring("garden/blackbox-exporter")))
		g.Expect(patched).To(ContainElement("shoot--a--one/blackbox-exporter"))
	})

	t.Run("goes on after a failure and reports it", func(t *testing.T) {
		g := NewWithT(t)
		patched, err := run(t, "garden", "", addressIPv4)
		g.Expect(err).To(MatchError(And(ContainSubstring("garden/blackbox-exporter"), ContainSubstring("forbidden"))))
		g.Expect(patched).To(ConsistOf("shoot--a--one/blackbox-exporter"))
	})
}

func TestTouchSeesWhatTheWebhooksHaveMissed(t *testing.T) {
	g := NewWithT(t)
	stale := prober()
	stale.Spec.Template.Spec.DNSPolicy, stale.Spec.Template.Spec.DNSConfig = corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{addressIPv6}}
	for name, deployment := range map[string]*appsv1.Deployment{"as it is without the webhooks": prober(), "with an old address": stale} {
		c := fake.NewClientBuilder().WithScheme(kubernetesscheme.Scheme).WithObjects(deployment, service(addressIPv4)).Build()
		g.Expect(Touch(t.Context(), c, c, dnsNamespace)).To(MatchError(And(ContainSubstring("garden/dependency-watchdog-prober"), ContainSubstring("were not reached"))), name)
	}

	c := fake.NewClientBuilder().WithScheme(kubernetesscheme.Scheme).WithObjects(prober()).Build()
	g.Expect(Touch(t.Context(), c, c, dnsNamespace)).To(Succeed(), "there is no address yet")
}

func TestAddressChanges(t *testing.T) {
	g := NewWithT(t)
	changes := addressChanges(dnsNamespace)
	update := func(before, after *corev1.Service) bool {
		return changes.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}
	g.Expect(changes.Create(event.CreateEvent{Object: service(addressIPv4)})).To(BeTrue())
	g.Expect(update(service(), service(addressIPv4))).To(BeTrue())
	g.Expect(update(service(addressIPv4), service(addressIPv4, addressIPv6))).To(BeTrue())
	g.Expect(update(service(addressIPv4), service())).To(BeFalse(), "pods would be left as they are")
	g.Expect(changes.Create(event.CreateEvent{Object: service()})).To(BeFalse())
	g.Expect(update(service(addressIPv4), service(addressIPv4))).To(BeFalse())

	host, elsewhere := service(addressIPv4), service(addressIPv4)
	host.Name, elsewhere.Namespace = "coredns-host", "other"
	for _, other := range []*corev1.Service{host, elsewhere} {
		g.Expect(changes.Create(event.CreateEvent{Object: other})).To(BeFalse())
	}
}
