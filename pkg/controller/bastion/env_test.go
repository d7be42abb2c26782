// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/requests"
)

const (
	namespace = "shoot--local--foo"
	// name is that of the Bastion, objectName that of all of its objects.
	name       = "cli-0"
	objectName = "bastion-cli-0"
	// holder is a finalizer that stands for a kubelet which still runs a pod.
	holder = "example.org/kubelet"
)

var bastionKey = client.ObjectKey{Namespace: namespace, Name: name}

// env is a fake seed, a fake cluster of machines that may be the same, and the controller.
type env struct {
	client.WithWatch
	t *testing.T
	// machines is where the machines are, in machineNamespace.
	machines         client.WithWatch
	machineNamespace string
	remote           bool
	// isQuiet has a reconciler not say at once what it waits for.
	isQuiet bool
	// notFound is why there is no cluster of machines.
	notFound error
	// fail may return an error for a request.
	fail func(verb string, obj client.Object) error
	// sent are the requests of the last reconcile, and written those of them that write but not the Bastion's status, in the
	// form "VERB KIND".
	sent, written []string
	reconciler    reconcile.Reconciler
}

// Get implements cluster.Clusters.
func (e *env) find(ref corev1.SecretReference, technicalID string) (*cluster.Cluster, error) {
	NewWithT(e.t).Expect(ref).To(Equal(corev1.SecretReference{Namespace: namespace, Name: "cloudprovider"}))
	NewWithT(e.t).Expect(technicalID).To(Equal(namespace))
	e.sent = append(e.sent, "get Secret")
	if e.notFound != nil {
		return nil, e.notFound
	}
	return &cluster.Cluster{Client: e.observe(e.machines, e.remote), Namespace: e.machineNamespace, Remote: e.remote}, nil
}

type clusters struct{ env *env }

func (c clusters) Get(_ context.Context, ref corev1.SecretReference, technicalID string) (*cluster.Cluster, error) {
	return c.env.find(ref, technicalID)
}

func testScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, networkingv1.AddToScheme, extensionsv1alpha1.AddToScheme} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	return scheme
}

func newBastion(change ...func(*extensionsv1alpha1.Bastion)) *extensionsv1alpha1.Bastion {
	bastion := &extensionsv1alpha1.Bastion{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1},
		Spec: extensionsv1alpha1.BastionSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
			UserData:    []byte("#!/bin/bash\n"),
			Ingress:     []extensionsv1alpha1.BastionIngressPolicy{from("192.0.2.0/24")},
		},
	}
	for _, change := range change {
		change(bastion)
	}
	return bastion
}

func newShoot() *gardencorev1beta1.Shoot {
	return &gardencorev1beta1.Shoot{
		TypeMeta:   metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: "Shoot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden-local", Name: "foo"},
	}
}

func newCluster(t *testing.T, profile *gardencorev1beta1.CloudProfile) *extensionsv1alpha1.Cluster {
	t.Helper()
	g := NewWithT(t)
	cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	var err error
	if profile != nil {
		cluster.Spec.CloudProfile.Raw, err = json.Marshal(profile)
		g.Expect(err).NotTo(HaveOccurred())
	}
	cluster.Spec.Shoot.Raw, err = json.Marshal(newShoot())
	g.Expect(err).NotTo(HaveOccurred())
	return cluster
}

func testProfile() *gardencorev1beta1.CloudProfile {
	return newProfile(localv1alpha1.MachineImageVersion{Version: "2.0", Image: "node:2"})
}

// quietly makes a new reconciler that does not say what it waits for as long as that does not take long.
func (e *env) quietly() {
	e.isQuiet = true
	e.restart(Options{})
}

// newEnv has a Bastion, and machines in the seed.
func newEnv(t *testing.T, objects ...client.Object) *env {
	t.Helper()
	e := &env{t: t, machineNamespace: namespace}
	e.WithWatch = newFake(t, objects...)
	e.machines = e.WithWatch
	e.restart(Options{})
	return e
}

// newRemoteEnv has its machines in another cluster.
func newRemoteEnv(t *testing.T, objects ...client.Object) *env {
	t.Helper()
	e := newEnv(t, objects...)
	e.machines, e.machineNamespace, e.remote = newFake(t), "infra-"+namespace, true
	return e
}

func newFake(t *testing.T, objects ...client.Object) client.WithWatch {
	return fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).WithTypeConverters(requests.TypeConverters()...).
		WithStatusSubresource(&extensionsv1alpha1.Bastion{}, &corev1.Pod{}, &corev1.Service{}).Build()
}

// restart makes a new reconciler, as a new process would.
func (e *env) restart(opts Options) {
	opts.Clusters = clusters{e}
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"shoot"}, "shoot")
	NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
	opts.Classes = classes
	c := e.observe(e.WithWatch, false)
	r := newReconciler(c, e.observe(e.WithWatch, true), e.WithWatch, opts)
	r.Quiet = -1
	if e.isQuiet {
		r.Quiet = time.Hour
	}
	e.reconciler = r
}

// observe notes down requests. A client that is not live reads from a cache, which has nothing of a Service that it leaves out.
func (e *env) observe(inner client.WithWatch, live bool) client.WithWatch {
	do := func(verb string, obj client.Object, do func() error) error {
		gvk, err := inner.GroupVersionKindFor(obj)
		if err != nil {
			return err
		}
		if live || verb != "get" {
			e.sent = append(e.sent, verb+" "+gvk.Kind)
		}
		if verb != "get" && verb != "patch status of" {
			e.written = append(e.written, verb+" "+gvk.Kind)
		}
		if e.fail != nil {
			if err := e.fail(verb, obj); err != nil {
				return err
			}
		}
		return do()
	}
	return interceptor.NewClient(inner, interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			switch obj.(type) {
			case *corev1.Secret, *networkingv1.NetworkPolicy:
				NewWithT(e.t).Expect(live).To(BeTrue(), "%T is not cached", obj)
			}
			return do("get", obj, func() error { return inner.Get(ctx, key, obj, opts...) })
		},
		Create: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return do("create", obj, func() error { return inner.Create(ctx, obj, opts...) })
		},
		Apply: func(ctx context.Context, inner client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			applied := obj.(client.Object)
			typed, err := inner.Scheme().New(applied.GetObjectKind().GroupVersionKind())
			NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
			return do("apply", typed.(client.Object), func() error { return inner.Apply(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, inner client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return do("patch", obj, func() error { return inner.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return do("delete", obj, func() error { return inner.Delete(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, _ client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return do("patch "+sub+" of", obj, func() error { return inner.SubResource(sub).Patch(ctx, obj, patch, opts...) })
		},
	})
}

func (e *env) reconcile() (reconcile.Result, error) {
	e.sent, e.written = nil, nil
	return e.reconciler.Reconcile(e.t.Context(), reconcile.Request{NamespacedName: bastionKey})
}

func (e *env) mustReconcile() reconcile.Result {
	e.t.Helper()
	result, err := e.reconcile()
	NewWithT(e.t).Expect(err).NotTo(HaveOccurred())
	return result
}

// lastError reconciles and returns the error on the Bastion.
func (e *env) lastError() *gardencorev1beta1.LastError {
	e.t.Helper()
	e.mustReconcile()
	lastError := e.bastion().Status.LastError
	NewWithT(e.t).Expect(lastError).NotTo(BeNil())
	return lastError
}

// waitsFor reconciles and returns what the Bastion waits for.
func (e *env) waitsFor() string {
	e.t.Helper()
	g := NewWithT(e.t)
	g.Expect(e.mustReconcile().RequeueAfter).NotTo(BeZero())
	status := e.bastion().Status
	g.Expect(status.LastError).To(BeNil())
	g.Expect(status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateProcessing))
	return status.LastOperation.Description
}

func (e *env) bastion() *extensionsv1alpha1.Bastion {
	e.t.Helper()
	bastion := &extensionsv1alpha1.Bastion{}
	NewWithT(e.t).Expect(e.Get(e.t.Context(), bastionKey, bastion)).To(Succeed())
	return bastion
}

func (e *env) state() gardencorev1beta1.LastOperationState {
	e.t.Helper()
	return e.bastion().Status.LastOperation.State
}

func (e *env) isGone() bool {
	e.t.Helper()
	return apierrors.IsNotFound(e.Get(e.t.Context(), bastionKey, &extensionsv1alpha1.Bastion{}))
}

// change changes the Bastion and asks for a reconcile, as gardenlet does.
func (e *env) change(change func(*extensionsv1alpha1.Bastion)) {
	e.t.Helper()
	bastion := e.bastion()
	change(bastion)
	for key, value := range requests.Asking("reconcile", time.Now().Add(time.Minute)) {
		metav1.SetMetaDataAnnotation(&bastion.ObjectMeta, key, value)
	}
	NewWithT(e.t).Expect(e.Update(e.t.Context(), bastion)).To(Succeed())
}

// left returns the kinds of the objects that there are.
func (e *env) left() []string {
	e.t.Helper()
	var left []string
	for kind, object := range map[string]client.Object{
		"NetworkPolicy": &networkingv1.NetworkPolicy{}, "Secret": &corev1.Secret{}, "Pod": &corev1.Pod{}, "Service": &corev1.Service{},
	} {
		if err := e.machines.Get(e.t.Context(), keyOf(e.machineNamespace, name), object); err == nil {
			left = append(left, kind)
		}
	}
	return left
}

// get returns an object of the Bastion.
func get[T client.Object](e *env, object T) T {
	e.t.Helper()
	NewWithT(e.t).Expect(e.machines.Get(e.t.Context(), keyOf(e.machineNamespace, name), object)).To(Succeed())
	return object
}

func (e *env) pod() *corev1.Pod         { return get(e, &corev1.Pod{}) }
func (e *env) service() *corev1.Service { return get(e, &corev1.Service{}) }

// run has the pod run, as a kubelet does.
func (e *env) run() {
	e.t.Helper()
	pod := e.pod()
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}
	NewWithT(e.t).Expect(e.machines.Status().Update(e.t.Context(), pod)).To(Succeed())
}

// setAddress gives the Service an address.
func (e *env) setAddress(ip string) {
	e.t.Helper()
	service := e.service()
	service.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: ip, IPMode: new(corev1.LoadBalancerIPModeVIP)}}
	NewWithT(e.t).Expect(e.machines.Status().Update(e.t.Context(), service)).To(Succeed())
}

// hold keeps the pod there when it is deleted, as a kubelet does.
func (e *env) hold() {
	e.t.Helper()
	pod := e.pod()
	pod.Finalizers = []string{holder}
	NewWithT(e.t).Expect(e.machines.Update(e.t.Context(), pod)).To(Succeed())
}

func (e *env) release() {
	e.t.Helper()
	pod := e.pod()
	pod.Finalizers = nil
	NewWithT(e.t).Expect(e.machines.Update(e.t.Context(), pod)).To(Succeed())
}

// ready brings the Bastion to where people can connect.
func (e *env) ready() *env {
	e.t.Helper()
	e.mustReconcile()
	e.run()
	e.setAddress("172.18.255.130")
	e.mustReconcile()
	NewWithT(e.t).Expect(e.state()).To(Equal(gardencorev1beta1.LastOperationStateSucceeded))
	return e
}
