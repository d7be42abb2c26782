// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
)

const namespace = "shoot--local--foo"

// seed is a fake seed with one Worker and a test of what the controller does to it.
type seed struct {
	client.WithWatch
	t     testing.TB
	clock *testclock.FakeClock
	opts  Options
	// fail may return an error for a request.
	fail func(verb string, obj client.Object) error
	// behind tells which MachineDeployments the cache does not have yet.
	behind func(machinev1alpha1.MachineDeployment) bool
	// former are the MachineDeployments that the cache has still.
	former []machinev1alpha1.MachineDeployment
	// requests are those that would reach an API server, in the form "VERB KIND". Some are sent in parallel.
	requests []string
	lock     sync.Mutex

	reconciler reconcile.Reconciler
}

// fakeManager is as much of a manager as the extension library's reconciler asks for.
type fakeManager struct {
	manager.Manager
	client client.Client
	reader client.Reader
}

func (m *fakeManager) GetClient() client.Client    { return m.client }
func (m *fakeManager) GetAPIReader() client.Reader { return m.reader }
func (m *fakeManager) GetLogger() logr.Logger      { return logr.Discard() }

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		corev1.AddToScheme, appsv1.AddToScheme, rbacv1.AddToScheme, machinev1alpha1.AddToScheme, extensionsv1alpha1.AddToScheme,
	} {
		NewWithT(t).Expect(add(scheme)).To(Succeed())
	}
	return scheme
}

func raw(t testing.TB, obj any) runtime.RawExtension {
	t.Helper()
	data, err := json.Marshal(obj)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return runtime.RawExtension{Raw: data}
}

const cloudProfileConfig = `{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"CloudProfileConfig",
"machineImages":[{"name":"local","versions":[{"version":"1.0.0","image":"registry.local/machine:1"},{"version":"2.0.0","image":"registry.local/machine:2"}]}]}`

func newCloudProfile() *gardencorev1beta1.CloudProfile {
	return &gardencorev1beta1.CloudProfile{
		TypeMeta:   metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "CloudProfile"},
		ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Spec: gardencorev1beta1.CloudProfileSpec{
			ProviderConfig: &runtime.RawExtension{Raw: []byte(cloudProfileConfig)},
			MachineTypes: []gardencorev1beta1.MachineType{
				{Name: "small", CPU: resource.MustParse("2"), Memory: resource.MustParse("4Gi")},
				{Name: "large", CPU: resource.MustParse("8"), Memory: resource.MustParse("32Gi"), GPU: resource.MustParse("1")},
			},
		},
	}
}

func newShoot() *gardencorev1beta1.Shoot {
	return &gardencorev1beta1.Shoot{
		TypeMeta:   metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden-local", Name: "foo"},
		Spec:       gardencorev1beta1.ShootSpec{Kubernetes: gardencorev1beta1.Kubernetes{Version: "1.34.1"}},
	}
}

func newCluster(t testing.TB, shoot *gardencorev1beta1.Shoot, profile *gardencorev1beta1.CloudProfile) *extensionsv1alpha1.Cluster {
	t.Helper()
	out := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	if shoot != nil {
		out.Spec.Shoot = raw(t, shoot)
	}
	if profile != nil {
		out.Spec.CloudProfile = raw(t, profile)
	}
	return out
}

// newWorker has a pool with up to five machines in two zones and one with just one machine.
func newWorker() *extensionsv1alpha1.Worker {
	pool := func(name, machineType string, minimum, maximum int32, zones ...string) extensionsv1alpha1.WorkerPool {
		return extensionsv1alpha1.WorkerPool{
			Name: name, MachineType: machineType, Minimum: minimum, Maximum: maximum, Zones: zones,
			MaxSurge: intstr.FromInt32(1), MaxUnavailable: intstr.FromString("50%"),
			MachineImage:        extensionsv1alpha1.MachineImage{Name: "local", Version: "1.0.0"},
			NodeAgentSecretName: new("gardener-node-agent-" + name),
			UserDataSecretRef:   corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "user-data-" + name}, Key: "cloud_config"},
			KubernetesVersion:   new("1.34.1"),
			Labels:              map[string]string{"worker.gardener.cloud/pool": name},
			Architecture:        new("amd64"),
		}
	}
	return &extensionsv1alpha1.Worker{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foo", Generation: 1},
		Spec: extensionsv1alpha1.WorkerSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
			Region:      "local",
			SecretRef:   corev1.SecretReference{Namespace: namespace, Name: "cloudprovider"},
			Pools:       []extensionsv1alpha1.WorkerPool{pool("a", "small", 3, 5, "0", "1"), pool("b", "large", 1, 1, "0")},
		},
	}
}

func newOptions(t testing.TB) Options {
	t.Helper()
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{"seed", "shoot"}, "seed", "shoot")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return Options{
		Shared: reconciler.Shared{Classes: classes}, Sizing: localv1alpha1.MachineSizingExact,
		AllowedSizings: localv1alpha1.DefaultAllowedSizings(localv1alpha1.MachineSizingExact), GPUResourceName: "nvidia.com/gpu",
	}
}

// newSeed has the Worker, its Cluster, the Secrets, and machine-controller-manager's Deployment.
func newSeed(t testing.TB, w *extensionsv1alpha1.Worker, objects ...client.Object) *seed {
	t.Helper()
	manager := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-controller-manager"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(1))}}
	objects = append(objects, manager,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "cloudprovider", Finalizers: []string{driverFinalizer}}})
	if w != nil {
		objects = append(objects, w)
		for _, p := range w.Spec.Pools {
			objects = append(objects, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: p.UserDataSecretRef.Name},
				Data:       map[string][]byte{p.UserDataSecretRef.Key: []byte("#!/bin/bash\necho " + p.Name)},
			})
		}
	}
	if !slices.ContainsFunc(objects, func(obj client.Object) bool { _, ok := obj.(*extensionsv1alpha1.Cluster); return ok }) {
		objects = append(objects, newCluster(t, newShoot(), newCloudProfile()))
	}

	c := &seed{t: t, clock: testclock.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)), opts: newOptions(t)}
	c.WithWatch = fake.NewClientBuilder().WithScheme(testScheme(t)).WithObjects(objects...).
		WithStatusSubresource(&extensionsv1alpha1.Worker{}, &machinev1alpha1.MachineDeployment{}, &machinev1alpha1.MachineSet{}, &machinev1alpha1.Machine{}, &appsv1.Deployment{}).Build()
	c.restart()
	return c
}

// restart runs the controller in a new process.
func (c *seed) restart() {
	c.t.Helper()
	observed := interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return c.request("get", obj, func() error { return inner.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if metadata, ok := list.(*metav1.PartialObjectMetadataList); ok {
				c.note("list " + strings.TrimSuffix(metadata.Kind, "List"))
			}
			err := inner.List(ctx, list, opts...)
			if deployments, ok := list.(*machinev1alpha1.MachineDeploymentList); ok && c.behind != nil {
				deployments.Items = slices.DeleteFunc(deployments.Items, c.behind)
			} else if ok && c.former != nil {
				deployments.Items = c.former
			}
			return err
		},
		Create: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return c.request("create", obj, func() error {
				obj.SetCreationTimestamp(metav1.NewTime(c.clock.Now()))
				obj.SetUID(types.UID("uid-of-" + obj.GetName()))
				return inner.Create(ctx, obj, opts...)
			})
		},
		Apply: func(ctx context.Context, inner client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return c.request("apply", obj.(client.Object), func() error { return inner.Apply(ctx, obj, opts...) })
		},
		DeleteAllOf: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteAllOfOption) error {
			return c.request("delete all", obj, func() error { return inner.DeleteAllOf(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, inner client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return c.request("patch", obj, func() error { return inner.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, inner client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return c.request("delete", obj, func() error { return inner.Delete(ctx, obj, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, inner client.Client, sub string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return c.request(sub, obj, func() error {
				if sub != "scale" {
					return inner.SubResource(sub).Patch(ctx, obj, patch, opts...)
				}
				data, err := patch.Data(obj)
				if err != nil {
					return err
				}
				return inner.Patch(ctx, obj, client.RawPatch(patch.Type(), data))
			})
		},
	})
	live := interceptor.NewClient(c.WithWatch, interceptor.Funcs{
		Get: func(ctx context.Context, inner client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			return c.request("live", obj, func() error { return inner.Get(ctx, key, obj, opts...) })
		},
		List: func(ctx context.Context, inner client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			c.note("live list " + fmt.Sprintf("%T", list))
			return inner.List(ctx, list, opts...)
		},
	})

	opts := c.opts
	opts.Clock = c.clock
	opts.ShootClusters = reconciler.NewClusters(observed)
	c.reconciler = newReconciler(&fakeManager{client: observed, reader: live}, opts)
}

// request notes what is not answered by the manager's cache, where Secrets and Deployments are not.
func (c *seed) request(verb string, obj client.Object, do func() error) error {
	_, isSecret := obj.(*corev1.Secret)
	_, isDeployment := obj.(*appsv1.Deployment)
	if verb != "get" || isSecret || isDeployment {
		kind := obj.GetObjectKind().GroupVersionKind().Kind
		if gvk, err := c.GroupVersionKindFor(obj); err == nil {
			kind = gvk.Kind
		}
		c.note(verb + " " + kind)
	}
	if c.fail != nil {
		if err := c.fail(verb, obj); err != nil {
			return err
		}
	}
	return do()
}

func (c *seed) note(request string) {
	c.lock.Lock()
	defer c.lock.Unlock()
	c.requests = append(c.requests, request)
}

func (c *seed) reconcile() (reconcile.Result, error) {
	c.requests = nil
	return c.reconciler.Reconcile(c.t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace, Name: "foo"}})
}

func (c *seed) mustReconcile() reconcile.Result {
	c.t.Helper()
	result, err := c.reconcile()
	NewWithT(c.t).Expect(err).NotTo(HaveOccurred())
	return result
}

func (c *seed) worker() *extensionsv1alpha1.Worker {
	c.t.Helper()
	w := &extensionsv1alpha1.Worker{}
	NewWithT(c.t).Expect(c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: "foo"}, w)).To(Succeed())
	return w
}

func (c *seed) isGone() bool {
	c.t.Helper()
	return apierrors.IsNotFound(c.Get(c.t.Context(), client.ObjectKey{Namespace: namespace, Name: "foo"}, &extensionsv1alpha1.Worker{}))
}

// outcome is what lastOperation and lastError say.
func (c *seed) outcome() string {
	c.t.Helper()
	status := c.worker().Status
	if status.LastOperation == nil {
		return "nothing"
	}
	out := string(status.LastOperation.State) + ": " + status.LastOperation.Description
	if status.LastError != nil {
		out += fmt.Sprint(" ", status.LastError.Codes)
	}
	return out
}

func (c *seed) ask(operation string) {
	c.t.Helper()
	w := c.worker()
	if w.Annotations == nil {
		w.Annotations = map[string]string{}
	}
	w.Annotations["gardener.cloud/operation"] = operation
	w.Annotations["gardener.cloud/timestamp"] = c.clock.Now().Format(time.RFC3339Nano)
	c.update(w)
}

func (c *seed) update(obj client.Object) {
	c.t.Helper()
	NewWithT(c.t).Expect(c.Update(c.t.Context(), obj)).To(Succeed())
}

func (c *seed) create(obj client.Object) {
	c.t.Helper()
	NewWithT(c.t).Expect(c.Create(c.t.Context(), obj)).To(Succeed())
}

func (c *seed) change(change func(*extensionsv1alpha1.Worker)) {
	c.t.Helper()
	w := c.worker()
	change(w)
	w.Generation++
	c.update(w)
}

func (c *seed) shoot(change func(*gardencorev1beta1.Shoot)) {
	c.t.Helper()
	shoot := newShoot()
	change(shoot)
	cluster := newCluster(c.t, shoot, newCloudProfile())
	old := &extensionsv1alpha1.Cluster{}
	NewWithT(c.t).Expect(c.Get(c.t.Context(), client.ObjectKey{Name: namespace}, old)).To(Succeed())
	cluster.ResourceVersion = old.ResourceVersion
	c.update(cluster)
}

// list returns all objects of a kind by name.
func list[L client.ObjectList, T any](c *seed, into L, items func(L) []T, name func(T) string) map[string]T {
	c.t.Helper()
	NewWithT(c.t).Expect(c.List(c.t.Context(), into, client.InNamespace(namespace))).To(Succeed())
	out := map[string]T{}
	for _, item := range items(into) {
		out[name(item)] = item
	}
	return out
}

func (c *seed) deployments() map[string]machinev1alpha1.MachineDeployment {
	return list(c, &machinev1alpha1.MachineDeploymentList{}, func(l *machinev1alpha1.MachineDeploymentList) []machinev1alpha1.MachineDeployment { return l.Items },
		func(d machinev1alpha1.MachineDeployment) string { return d.Name })
}

func (c *seed) classes() map[string]machinev1alpha1.MachineClass {
	return list(c, &machinev1alpha1.MachineClassList{}, func(l *machinev1alpha1.MachineClassList) []machinev1alpha1.MachineClass { return l.Items },
		func(m machinev1alpha1.MachineClass) string { return m.Name })
}

func (c *seed) sets() map[string]machinev1alpha1.MachineSet {
	return list(c, &machinev1alpha1.MachineSetList{}, func(l *machinev1alpha1.MachineSetList) []machinev1alpha1.MachineSet { return l.Items },
		func(s machinev1alpha1.MachineSet) string { return s.Name })
}

func (c *seed) machines() map[string]machinev1alpha1.Machine {
	return list(c, &machinev1alpha1.MachineList{}, func(l *machinev1alpha1.MachineList) []machinev1alpha1.Machine { return l.Items },
		func(m machinev1alpha1.Machine) string { return m.Name })
}

// classSecrets are the Secrets of classes.
func (c *seed) classSecrets() map[string]corev1.Secret {
	secrets := list(c, &corev1.SecretList{}, func(l *corev1.SecretList) []corev1.Secret { return l.Items }, func(s corev1.Secret) string { return s.Name })
	maps.DeleteFunc(secrets, func(_ string, s corev1.Secret) bool { return s.Labels["gardener.cloud/purpose"] != "machineclass" })
	return secrets
}

func (c *seed) replicas() map[string]int32 {
	out := map[string]int32{}
	for name, d := range c.deployments() {
		out[name[len(namespace)+1:]] = d.Spec.Replicas
	}
	return out
}

// finish does what machine-controller-manager does until all machines are there: one set for each deployment with its
// class, and one machine for each replica.
func (c *seed) finish() {
	c.t.Helper()
	g := NewWithT(c.t)
	ctx := c.t.Context()
	for name, d := range c.deployments() {
		for setName, set := range c.sets() {
			if set.Labels["name"] == name && set.Spec.Template.Spec.Class.Name != d.Spec.Template.Spec.Class.Name {
				g.Expect(c.Delete(ctx, &machinev1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: setName}})).To(Succeed())
			}
		}
		c.ensureSet(d, d.Spec.Template.Spec.Class.Name)
		d.Status = machinev1alpha1.MachineDeploymentStatus{
			ObservedGeneration: d.Generation, Replicas: d.Spec.Replicas, UpdatedReplicas: d.Spec.Replicas, AvailableReplicas: d.Spec.Replicas,
			Conditions: []machinev1alpha1.MachineDeploymentCondition{{Type: machinev1alpha1.MachineDeploymentAvailable, Status: machinev1alpha1.ConditionTrue}},
		}
		g.Expect(c.Status().Update(ctx, &d)).To(Succeed())
	}
}

func (c *seed) ensureSet(d machinev1alpha1.MachineDeployment, class string) {
	c.t.Helper()
	set := &machinev1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: class, Labels: map[string]string{"name": d.Name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "machine.sapcloud.io/v1alpha1", Kind: "MachineDeployment", Name: d.Name, UID: d.UID}},
	}}
	set.Spec.Template.Spec.Class.Name = class
	NewWithT(c.t).Expect(client.IgnoreAlreadyExists(c.Create(c.t.Context(), set))).To(Succeed())
}

// changeDeployment changes the status of a deployment, named without the namespace.
func (c *seed) changeDeployment(name string, change func(*machinev1alpha1.MachineDeployment)) {
	c.t.Helper()
	d := c.deployments()[namespace+"-"+name]
	change(&d)
	NewWithT(c.t).Expect(c.Status().Update(c.t.Context(), &d)).To(Succeed())
}

// succeed brings the Worker to where all machines are there.
func (c *seed) succeed() *seed {
	c.t.Helper()
	c.mustReconcile()
	c.finish()
	c.mustReconcile()
	NewWithT(c.t).Expect(c.outcome()).To(HavePrefix("Succeeded: "))
	return c
}

func hibernate(shoot *gardencorev1beta1.Shoot) {
	shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)}
}
