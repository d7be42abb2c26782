// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package selfhostedshootexposure

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"

	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/requests"
)

const (
	namespace        = "kube-system"
	machineNamespace = "infra-shoot--local--root"
	finalizer        = "extensions.gardener.cloud/selfhostedshootexposure"
)

var (
	key       = client.ObjectKey{Namespace: namespace, Name: "root"}
	objectKey = client.ObjectKey{Namespace: machineNamespace, Name: "exposure-root"}
)

// env is a self-hosted shoot, and the cluster in which its machines are pods.
type env struct {
	client.WithWatch
	t        *testing.T
	machines client.WithWatch
	// fail may return an error for a request to the cluster of the machines.
	fail func(verb string, obj client.Object) error
	// isLocal has the credentials contain no kubeconfig, and notFound says that there are none.
	isLocal  bool
	notFound error
	// sent are the requests of the last reconcile to the cluster of the machines.
	sent       []string
	reconciler reconcile.Reconciler
}

// Get implements cluster.Clusters.
func (e *env) find(ref corev1.SecretReference, technicalID string) (*cluster.Cluster, error) {
	NewWithT(e.t).Expect(ref).To(Equal(corev1.SecretReference{Namespace: namespace, Name: "cloudprovider"}))
	NewWithT(e.t).Expect(technicalID).To(Equal("shoot--local--root"))
	if e.notFound != nil {
		return nil, e.notFound
	}
	return &cluster.Cluster{Client: e.observed(), Namespace: machineNamespace, Remote: !e.isLocal}, nil
}

type clusters struct{ env *env }

func (c clusters) Get(_ context.Context, ref corev1.SecretReference, technicalID string) (*cluster.Cluster, error) {
	return c.env.find(ref, technicalID)
}

func newEnv(t *testing.T, change ...func(*extensionsv1alpha1.SelfHostedShootExposure)) *env {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, networkingv1.AddToScheme, discoveryv1.AddToScheme, extensionsv1alpha1.AddToScheme} {
		g.Expect(add(scheme)).To(Succeed())
	}
	build := func(objects ...client.Object) client.WithWatch {
		return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithTypeConverters(requests.TypeConverters()...).
			WithStatusSubresource(&extensionsv1alpha1.SelfHostedShootExposure{}, &corev1.Service{}, &corev1.Pod{}).Build()
	}
	exposure := &extensionsv1alpha1.SelfHostedShootExposure{
		ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, Generation: 1},
		Spec: extensionsv1alpha1.SelfHostedShootExposureSpec{
			DefaultSpec:    extensionsv1alpha1.DefaultSpec{Type: "local"},
			CredentialsRef: &corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: namespace, Name: "cloudprovider"},
			Port:           443,
			Endpoints:      []extensionsv1alpha1.ControlPlaneEndpoint{endpoint("machine-a", "10.0.0.1"), endpoint("machine-b", "10.0.0.2")},
		},
	}
	for _, change := range change {
		change(exposure)
	}
	shoot := &gardencorev1beta1.Shoot{
		TypeMeta:   metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: "Shoot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden-local", Name: "root"},
		Status:     gardencorev1beta1.ShootStatus{TechnicalID: "shoot--local--root"},
	}
	raw, err := json.Marshal(shoot)
	g.Expect(err).NotTo(HaveOccurred())
	shootCluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Raw: raw}}}

	e := &env{t: t, WithWatch: build(exposure, shootCluster), machines: build(pod("machine-a", "10.0.0.1"), pod("machine-b", "10.0.0.2"))}
	e.restart()
	return e
}

func endpoint(node string, addresses ...string) extensionsv1alpha1.ControlPlaneEndpoint {
	e := extensionsv1alpha1.ControlPlaneEndpoint{NodeName: node, Addresses: []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: node}}}
	for _, address := range addresses {
		e.Addresses = append(e.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: address})
	}
	return e
}

func pod(name string, addresses ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: machineNamespace, Name: name, Labels: machine.Labels(name)}}
	for _, address := range addresses {
		p.Status.PodIPs = append(p.Status.PodIPs, corev1.PodIP{IP: address})
	}
	return p
}

// restart makes a new reconciler, as a new process would.
func (e *env) restart() {
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"shoot"}, "shoot")
	NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
	opts := Options{Clusters: clusters{e}}
	opts.Classes = classes
	r := newReconciler(e.WithWatch, opts)
	r.Quiet = -1
	e.reconciler = r
}

func (e *env) observed() client.WithWatch {
	do := func(verb string, obj client.Object, do func() error) error {
		gvk, err := e.machines.GroupVersionKindFor(obj)
		NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
		e.sent = append(e.sent, verb+" "+gvk.Kind)
		if e.fail != nil {
			if err := e.fail(verb, obj); err != nil {
				return err
			}
		}
		return do()
	}
	return interceptor.NewClient(e.machines, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return do("get", obj, func() error { return c.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			return do("list", &corev1.Pod{}, func() error { return c.List(ctx, list, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			typed, err := c.Scheme().New(obj.(client.Object).GetObjectKind().GroupVersionKind())
			NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
			return do("apply", typed.(client.Object), func() error { return c.Apply(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return do("delete", obj, func() error { return c.Delete(ctx, obj, opts...) })
		},
	})
}

func (e *env) reconcile() reconcile.Result {
	e.t.Helper()
	e.sent = nil
	result, err := e.reconciler.Reconcile(e.t.Context(), reconcile.Request{NamespacedName: key})
	NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
	return result
}

func (e *env) exposure() *extensionsv1alpha1.SelfHostedShootExposure {
	e.t.Helper()
	exposure := &extensionsv1alpha1.SelfHostedShootExposure{}
	NewWithT(e.t).Expect(e.Get(e.t.Context(), key, exposure)).To(Succeed())
	return exposure
}

// change changes the object and asks for a reconcile, as gardenlet does.
func (e *env) change(change func(*extensionsv1alpha1.SelfHostedShootExposure)) {
	e.t.Helper()
	exposure := e.exposure()
	change(exposure)
	for key, value := range requests.Asking("reconcile", time.Now().Add(time.Minute)) {
		metav1.SetMetaDataAnnotation(&exposure.ObjectMeta, key, value)
	}
	NewWithT(e.t).Expect(e.Update(e.t.Context(), exposure)).To(Succeed())
}

func (e *env) delete() {
	e.t.Helper()
	NewWithT(e.t).Expect(e.Delete(e.t.Context(), e.exposure())).To(Succeed())
}

func (e *env) isGone() bool {
	return apierrors.IsNotFound(e.Get(e.t.Context(), key, &extensionsv1alpha1.SelfHostedShootExposure{}))
}

func (e *env) setAddresses(ingress ...corev1.LoadBalancerIngress) {
	e.t.Helper()
	service := &corev1.Service{}
	NewWithT(e.t).Expect(e.machines.Get(e.t.Context(), objectKey, service)).To(Succeed())
	service.Status.LoadBalancer.Ingress = ingress
	NewWithT(e.t).Expect(e.machines.Status().Update(e.t.Context(), service)).To(Succeed())
}

// holdService keeps the Service there when it is deleted, as a controller for load balancers does.
func (e *env) holdService() *corev1.Service {
	e.t.Helper()
	service := &corev1.Service{}
	NewWithT(e.t).Expect(e.machines.Get(e.t.Context(), objectKey, service)).To(Succeed())
	service.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
	NewWithT(e.t).Expect(e.machines.Update(e.t.Context(), service)).To(Succeed())
	return service
}

func (e *env) ready() *env {
	e.t.Helper()
	e.reconcile()
	e.setAddresses(corev1.LoadBalancerIngress{IP: "172.18.255.130"})
	e.reconcile()
	NewWithT(e.t).Expect(e.exposure().Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	return e
}

// addresses are those of an EndpointSlice.
func (e *env) addresses(family string) []string {
	e.t.Helper()
	slice := &discoveryv1.EndpointSlice{}
	NewWithT(e.t).Expect(e.machines.Get(e.t.Context(), client.ObjectKey{Namespace: machineNamespace, Name: objectKey.Name + "-" + family}, slice)).To(Succeed())
	var addresses []string
	for _, endpoint := range slice.Endpoints {
		addresses = append(addresses, endpoint.Addresses...)
	}
	return addresses
}

func (e *env) left() []string {
	e.t.Helper()
	var left []string
	for kind, list := range map[string]client.ObjectList{"Service": &corev1.ServiceList{}, "NetworkPolicy": &networkingv1.NetworkPolicyList{}, "EndpointSlice": &discoveryv1.EndpointSliceList{}} {
		NewWithT(e.t).Expect(e.machines.List(e.t.Context(), list)).To(Succeed())
		if meta.LenList(list) > 0 {
			left = append(left, kind)
		}
	}
	return left
}

func TestAnAPIServerIsExposed(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t)
	g.Expect(e.reconcile().RequeueAfter).To(Equal(retryWait))
	g.Expect(e.sent).To(Equal([]string{"list Pod", "apply EndpointSlice", "apply EndpointSlice", "apply NetworkPolicy", "apply Service"}))
	exposure := e.exposure()
	g.Expect(exposure.Finalizers).To(ConsistOf(finalizer))
	g.Expect(exposure.Status.LastOperation).To(And(
		HaveField("State", gardencorev1beta1.LastOperationStateProcessing), HaveField("Description", ContainSubstring("Service infra-shoot--local--root/exposure-root has an address"))))
	g.Expect(exposure.Status.Ingress).To(BeEmpty())

	service, policy, slice := &corev1.Service{}, &networkingv1.NetworkPolicy{}, &discoveryv1.EndpointSlice{}
	g.Expect(e.machines.Get(t.Context(), objectKey, service)).To(Succeed())
	g.Expect(service.Spec.Type).To(Equal(corev1.ServiceTypeLoadBalancer))
	g.Expect(service.Spec.Selector).To(BeEmpty())
	g.Expect(service.Spec.Ports).To(ConsistOf(HaveField("Port", int32(443))))
	g.Expect(e.machines.Get(t.Context(), objectKey, policy)).To(Succeed())
	g.Expect(policy.Spec.PodSelector.MatchLabels).To(Equal(machine.Selector()))
	g.Expect(policy.Spec.Ingress).To(ConsistOf(HaveField("Ports", ConsistOf(HaveField("Port", HaveValue(HaveField("IntVal", int32(443))))))))
	g.Expect(e.machines.Get(t.Context(), client.ObjectKey{Namespace: machineNamespace, Name: "exposure-root-ipv4"}, slice)).To(Succeed())
	g.Expect(slice.Labels).To(HaveKeyWithValue("kubernetes.io/service-name", "exposure-root"))
	g.Expect(slice.Ports).To(ConsistOf(And(HaveField("Name", HaveValue(Equal(service.Spec.Ports[0].Name))), HaveField("Port", HaveValue(Equal(int32(443)))))))
	g.Expect(e.addresses("ipv4")).To(ConsistOf("10.0.0.1", "10.0.0.2"))
	g.Expect(e.addresses("ipv6")).To(BeEmpty())

	e.setAddresses(corev1.LoadBalancerIngress{IP: "172.18.255.130"}, corev1.LoadBalancerIngress{Hostname: "lb.example.org"}, corev1.LoadBalancerIngress{IP: "fe80::1%<script>"})
	g.Expect(e.reconcile().RequeueAfter).To(BeZero())
	g.Expect(e.sent).To(Equal([]string{"list Pod", "get Service"}), "what the operation has written is not written again")
	g.Expect(e.exposure().Status.Ingress).To(Equal([]corev1.LoadBalancerIngress{{IP: "172.18.255.130"}, {Hostname: "lb.example.org"}}), "any other text is left out")
}

func TestEndpointsFollowTheNodes(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t).ready()
	g.Expect(e.machines.Create(t.Context(), pod("machine-c", "10.0.0.3", "fd00::3"))).To(Succeed())
	e.change(func(exposure *extensionsv1alpha1.SelfHostedShootExposure) {
		exposure.Spec.Endpoints = []extensionsv1alpha1.ControlPlaneEndpoint{endpoint("machine-b", "10.0.0.2"), endpoint("machine-c", "10.0.0.3", "fd00::3")}
	})
	e.restart()
	e.reconcile()
	g.Expect(e.addresses("ipv4")).To(ConsistOf("10.0.0.2", "10.0.0.3"))
	g.Expect(e.addresses("ipv6")).To(ConsistOf("fd00::3"))

	e.change(func(exposure *extensionsv1alpha1.SelfHostedShootExposure) {
		exposure.Spec.Endpoints = []extensionsv1alpha1.ControlPlaneEndpoint{endpoint("machine-b", "10.0.0.2")}
	})
	e.reconcile()
	g.Expect(e.addresses("ipv4")).To(ConsistOf("10.0.0.2"))
	g.Expect(e.addresses("ipv6")).To(BeEmpty())
}

func TestTrafficIsLedToMachinesOfTheShootOnly(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, func(exposure *extensionsv1alpha1.SelfHostedShootExposure) {
		exposure.Spec.Endpoints = []extensionsv1alpha1.ControlPlaneEndpoint{
			endpoint("machine-a", "10.0.0.1", "10.1.0.9"), endpoint("machine-b", "10.0.0.1"), endpoint("coredns", "10.1.0.10"), endpoint("machine-b", "nonsense"),
			endpoint("machine-d", "10.0.0.4"),
		}
	})
	other, evicted := pod("coredns", "10.1.0.10"), pod("machine-d", "10.0.0.4")
	other.Labels = nil
	evicted.Status.Phase = corev1.PodFailed
	for _, pod := range []*corev1.Pod{other, evicted} {
		g.Expect(e.machines.Create(t.Context(), pod)).To(Succeed())
	}
	e.reconcile()
	g.Expect(e.addresses("ipv4")).To(ConsistOf("10.0.0.1"))
}

func TestMistakes(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(*extensionsv1alpha1.SelfHostedShootExposure)
		env    func(*env)
		want   string
	}{
		{name: "no credentials", change: func(e *extensionsv1alpha1.SelfHostedShootExposure) { e.Spec.CredentialsRef = nil }, want: "spec.credentialsRef is empty"},
		{name: "no kubeconfig", env: func(e *env) { e.isLocal = true }, want: "the Secret kube-system/cloudprovider has no kubeconfig"},
		{name: "no Secret", env: func(e *env) {
			e.notFound = v1beta1helper.NewErrorWithCodes(errors.New("there is no Secret"), gardencorev1beta1.ErrorConfigurationProblem)
		}, want: "there is no Secret"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t)
			if test.change != nil {
				e = newEnv(t, test.change)
			}
			if test.env != nil {
				test.env(e)
			}
			g.Expect(e.reconcile().RequeueAfter).To(BeNumerically(">=", time.Minute), "it is not retried hot")
			exposure := e.exposure()
			g.Expect(exposure.Status.LastError).To(HaveValue(And(
				HaveField("Description", ContainSubstring(test.want)), HaveField("Codes", ConsistOf(gardencorev1beta1.ErrorConfigurationProblem)))))
			g.Expect(exposure.Finalizers).To(BeEmpty())
			g.Expect(e.left()).To(BeEmpty())
			e.delete()
			g.Expect(e.isGone()).To(BeTrue())
		})
	}
}

func TestANameThatNoServiceCanHave(t *testing.T) {
	g := NewWithT(t)
	exposure := &extensionsv1alpha1.SelfHostedShootExposure{ObjectMeta: metav1.ObjectMeta{Name: "root.example"}}
	_, err := (&actuator{}).locate(t.Context(), &operation{Object: exposure})
	g.Expect(err).To(MatchError(ContainSubstring("no Service can be named exposure-root.example")))
	g.Expect(v1beta1helper.ExtractErrorCodes(reconcilerutils.ReconcileErrCauseOrErr(err))).To(ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))
}

func TestNoEndpointIsOfAMachine(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t, func(exposure *extensionsv1alpha1.SelfHostedShootExposure) {
		exposure.Spec.Endpoints = []extensionsv1alpha1.ControlPlaneEndpoint{endpoint("machine-z", "10.0.0.1")}
	})
	g.Expect(e.reconcile().RequeueAfter).To(Equal(time.Minute))
	g.Expect(e.exposure().Status.LastError).To(HaveValue(HaveField("Codes", ConsistOf(gardencorev1beta1.ErrorConfigurationProblem))))
	g.Expect(e.left()).To(BeEmpty())
	e.delete()
	e.reconcile()
	g.Expect(e.isGone()).To(BeTrue(), "delete before create finished")
}

func TestWithoutClusterItIsTriedAgain(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t)
	g.Expect(e.DeleteAllOf(t.Context(), &extensionsv1alpha1.Cluster{})).To(Succeed())
	g.Expect(e.reconcile().RequeueAfter).NotTo(BeZero())
	g.Expect(e.exposure().Status.LastError).To(HaveValue(HaveField("Description", ContainSubstring("there is no Cluster kube-system"))))
	g.Expect(e.exposure().Finalizers).To(BeEmpty())

	e = newEnv(t).ready()
	g.Expect(e.DeleteAllOf(t.Context(), &extensionsv1alpha1.Cluster{})).To(Succeed())
	e.delete()
	g.Expect(e.reconcile().RequeueAfter).NotTo(BeZero())
	g.Expect(e.isGone()).To(BeFalse(), "nobody knows where its objects are")
	g.Expect(e.left()).To(ConsistOf("Service", "NetworkPolicy", "EndpointSlice"))
}

func TestCredentialsThatDoNotSuffice(t *testing.T) {
	resource := schema.GroupResource{Resource: "services"}
	for _, test := range []struct {
		err  error
		want gardencorev1beta1.ErrorCode
	}{
		{err: apierrors.NewForbidden(resource, "exposure-root", errors.New("no")), want: gardencorev1beta1.ErrorInfraUnauthorized},
		{err: apierrors.NewUnauthorized("no"), want: gardencorev1beta1.ErrorInfraUnauthenticated},
	} {
		g := NewWithT(t)
		e := newEnv(t)
		e.fail = func(string, client.Object) error { return test.err }
		g.Expect(e.reconcile().RequeueAfter).To(Equal(time.Minute))
		g.Expect(e.exposure().Status.LastError).To(HaveValue(HaveField("Codes", ConsistOf(test.want))))
	}
}

func TestAConflictIsTriedAgain(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t)
	e.fail = func(verb string, obj client.Object) error {
		if _, ok := obj.(*corev1.Service); ok && verb == "apply" {
			return apierrors.NewConflict(schema.GroupResource{Resource: "services"}, "exposure-root", errors.New("changed"))
		}
		return nil
	}
	_, err := e.reconciler.Reconcile(t.Context(), reconcile.Request{NamespacedName: key})
	g.Expect(err).To(MatchError(apierrors.IsConflict, "IsConflict"), "with the back-off of the queue")
	e.fail = nil
	e.ready()
	g.Expect(e.exposure().Status.LastError).To(BeNil())
}

func TestDeletionWaitsForTheService(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t).ready()
	service := e.holdService()
	e.delete()

	g.Expect(e.reconcile().RequeueAfter).To(Equal(retryWait))
	g.Expect(e.exposure().Status.LastOperation.Description).To(ContainSubstring("exposure-root is gone"))
	g.Expect(e.left()).To(ConsistOf("Service", "NetworkPolicy", "EndpointSlice"))

	g.Expect(e.machines.Get(t.Context(), objectKey, service)).To(Succeed())
	service.Finalizers = nil
	g.Expect(e.machines.Update(t.Context(), service)).To(Succeed())
	e.restart()
	e.reconcile()
	g.Expect(e.isGone()).To(BeTrue())
	g.Expect(e.left()).To(BeEmpty())
}

func TestForcedDeletionWaitsForNothing(t *testing.T) {
	for name, fail := range map[string]func(string, client.Object) error{
		"the Service is not released":    nil,
		"the cluster cannot be reached":  func(string, client.Object) error { return errors.New("no route to host") },
		"the credentials do not suffice": func(string, client.Object) error { return apierrors.NewUnauthorized("no") },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := newEnv(t).ready()
			e.holdService()
			e.change(func(exposure *extensionsv1alpha1.SelfHostedShootExposure) {
				metav1.SetMetaDataAnnotation(&exposure.ObjectMeta, "confirmation.gardener.cloud/force-deletion", "true")
			})
			e.delete()
			e.fail = fail
			e.reconcile()
			g.Expect(e.isGone()).To(BeTrue())
			if fail == nil {
				g.Expect(e.left()).To(ConsistOf("Service"))
			}
		})
	}
}

func TestMigrationLeavesTheLoadBalancer(t *testing.T) {
	g := NewWithT(t)
	e := newEnv(t).ready()
	exposure := e.exposure()
	metav1.SetMetaDataAnnotation(&exposure.ObjectMeta, "gardener.cloud/operation", "migrate")
	g.Expect(e.Update(t.Context(), exposure)).To(Succeed())
	e.reconcile()
	g.Expect(e.left()).To(ConsistOf("Service", "NetworkPolicy", "EndpointSlice"))
	g.Expect(e.sent).To(BeEmpty())

	exposure = e.exposure()
	metav1.SetMetaDataAnnotation(&exposure.ObjectMeta, "gardener.cloud/operation", "restore")
	g.Expect(e.Update(t.Context(), exposure)).To(Succeed())
	e.reconcile()
	g.Expect(e.exposure().Status).To(And(
		HaveField("LastOperation.Type", gardencorev1beta1.LastOperationTypeRestore), HaveField("Ingress", ConsistOf(HaveField("IP", "172.18.255.130")))))
}
