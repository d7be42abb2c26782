// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
)

const (
	mcmFinalizer = "machine.sapcloud.io/machine-controller-manager"
	mcFinalizer  = "machine.sapcloud.io/machine-controller"
)

// shoot is one that has a Worker of its name in a namespace of its name.
type shoot struct {
	name string
	// object is what is in its Cluster.
	object *gardencorev1beta1.Shoot
}

// newShoot creates what gardenlet creates before a Worker.
func newShoot(ctx context.Context, name string) *shoot {
	GinkgoHelper()
	s := &shoot{name: name, object: &gardencorev1beta1.Shoot{
		TypeMeta:   metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden-local", Name: name},
		Spec:       gardencorev1beta1.ShootSpec{Kubernetes: gardencorev1beta1.Kubernetes{Version: "1.34.1"}},
	}}
	Expect(env.CreateNamespaces(ctx, name)).To(Succeed())
	profile := &gardencorev1beta1.CloudProfile{
		TypeMeta:   metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "CloudProfile"},
		ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Spec: gardencorev1beta1.CloudProfileSpec{
			MachineTypes: []gardencorev1beta1.MachineType{
				{Name: "small", CPU: resource.MustParse("2"), Memory: resource.MustParse("4Gi")},
				{Name: "large", CPU: resource.MustParse("8"), Memory: resource.MustParse("32Gi")},
			},
			ProviderConfig: &runtime.RawExtension{Raw: []byte(`{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"CloudProfileConfig",` +
				`"machineImages":[{"name":"local","versions":[{"version":"1.0.0","image":"registry.local/machine:1"}]}]}`)},
		},
	}
	Expect(seed.Create(ctx, &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       extensionsv1alpha1.ClusterSpec{CloudProfile: raw(profile), Shoot: raw(s.object), Seed: &runtime.RawExtension{Raw: []byte(`{"apiVersion":"core.gardener.cloud/v1beta1","kind":"Seed"}`)}},
	})).To(Succeed())
	Expect(seed.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "cloudprovider"}})).To(Succeed())
	for _, pool := range []string{"a", "b"} {
		Expect(seed.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "user-data-" + pool}, Data: map[string][]byte{"cloud_config": []byte("#!/bin/bash")}})).To(Succeed())
	}
	labels := map[string]string{"role": "machine-controller-manager"}
	Expect(seed.Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "machine-controller-manager"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}},
		},
	})).To(Succeed())
	return s
}

func raw(obj any) runtime.RawExtension {
	GinkgoHelper()
	data, err := json.Marshal(obj)
	Expect(err).NotTo(HaveOccurred())
	return runtime.RawExtension{Raw: data}
}

// newWorker has up to four machines in two zones, and one in a third pool and zone.
func (s *shoot) newWorker() *extensionsv1alpha1.Worker {
	pool := func(name, machineType string, minimum, maximum int32, zones ...string) extensionsv1alpha1.WorkerPool {
		return extensionsv1alpha1.WorkerPool{
			Name: name, MachineType: machineType, Minimum: minimum, Maximum: maximum, Zones: zones,
			MaxSurge: intstr.FromInt32(1), MaxUnavailable: intstr.FromInt32(0),
			MachineImage:        extensionsv1alpha1.MachineImage{Name: "local", Version: "1.0.0"},
			NodeAgentSecretName: new("gardener-node-agent-" + name),
			UserDataSecretRef:   corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "user-data-" + name}, Key: "cloud_config"},
			KubernetesVersion:   new("1.34.1"),
			Taints:              []corev1.Taint{{Key: "dedicated", Effect: corev1.TaintEffectNoSchedule}},
		}
	}
	return &extensionsv1alpha1.Worker{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.name, Name: s.name},
		Spec: extensionsv1alpha1.WorkerSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
			Region:      "local",
			SecretRef:   corev1.SecretReference{Namespace: s.name, Name: "cloudprovider"},
			Pools:       []extensionsv1alpha1.WorkerPool{pool("a", "small", 2, 4, "0", "1"), pool("b", "large", 1, 1, "0")},
		},
	}
}

// worker reads the Worker.
func (s *shoot) worker(ctx context.Context) (*extensionsv1alpha1.Worker, error) {
	w := &extensionsv1alpha1.Worker{}
	return w, seed.Get(ctx, client.ObjectKey{Namespace: s.name, Name: s.name}, w)
}

// outcome is for Eventually: what the Worker says of its operation, once the request for it has been taken.
func (s *shoot) outcome(ctx context.Context) func() (string, error) {
	return func() (string, error) {
		w, err := s.worker(ctx)
		if err != nil {
			return "", err
		}
		if w.Status.LastOperation == nil || w.Annotations["gardener.cloud/operation"] != "" {
			return "not taken yet", nil
		}
		out := fmt.Sprintf("%s: %s", w.Status.LastOperation.State, w.Status.LastOperation.Description)
		if w.Status.LastError != nil {
			out += fmt.Sprint(" ", w.Status.LastError.Codes)
		}
		return out, nil
	}
}

// change changes the Worker and asks for an operation, as gardenlet does.
func (s *shoot) change(ctx context.Context, operation string, change func(*extensionsv1alpha1.Worker)) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		w, err := s.worker(ctx)
		g.Expect(err).NotTo(HaveOccurred())
		change(w)
		metav1.SetMetaDataAnnotation(&w.ObjectMeta, "gardener.cloud/operation", operation)
		metav1.SetMetaDataAnnotation(&w.ObjectMeta, "gardener.cloud/timestamp", time.Now().UTC().Format(time.RFC3339Nano))
		g.Expect(seed.Update(ctx, w)).To(Succeed())
	}).Should(Succeed())
}

func nothing(*extensionsv1alpha1.Worker) {}

// changeShoot changes the shoot in the Cluster.
func (s *shoot) changeShoot(ctx context.Context, change func(*gardencorev1beta1.Shoot)) {
	GinkgoHelper()
	change(s.object)
	c := &extensionsv1alpha1.Cluster{}
	Expect(seed.Get(ctx, client.ObjectKey{Name: s.name}, c)).To(Succeed())
	c.Spec.Shoot = raw(s.object)
	Expect(seed.Update(ctx, c)).To(Succeed())
}

func (s *shoot) deployments(ctx context.Context) map[string]machinev1alpha1.MachineDeployment {
	GinkgoHelper()
	list := &machinev1alpha1.MachineDeploymentList{}
	Expect(seed.List(ctx, list, client.InNamespace(s.name))).To(Succeed())
	out := map[string]machinev1alpha1.MachineDeployment{}
	for _, d := range list.Items {
		out[strings.TrimPrefix(d.Name, s.name+"-")] = d
	}
	return out
}

func (s *shoot) replicas(ctx context.Context) map[string]int32 {
	GinkgoHelper()
	out := map[string]int32{}
	for name, d := range s.deployments(ctx) {
		out[name] = d.Spec.Replicas
	}
	return out
}

// isDeployed waits until the MachineDeployments have these replicas.
func (s *shoot) isDeployed(ctx context.Context, replicas map[string]int32) {
	GinkgoHelper()
	Eventually(ctx, func() map[string]int32 { return s.replicas(ctx) }).Should(Equal(replicas))
}

// finish does what machine-controller-manager does until all machines are there.
func (s *shoot) finish(ctx context.Context) {
	GinkgoHelper()
	for _, d := range s.deployments(ctx) {
		s.observe(ctx, &d, d.Spec.Replicas)
	}
}

// observe has a MachineDeployment be up to date, with a machine set for its class and this many machines.
func (s *shoot) observe(ctx context.Context, d *machinev1alpha1.MachineDeployment, available int32) {
	GinkgoHelper()
	class := d.Spec.Template.Spec.Class.Name
	set := &machinev1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{
		Namespace: s.name, Name: class, Labels: map[string]string{"name": d.Name},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "machine.sapcloud.io/v1alpha1", Kind: "MachineDeployment", Name: d.Name, UID: d.UID}},
	}}
	set.Spec.Template.Spec.Class = machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: class}
	Expect(client.IgnoreAlreadyExists(seed.Create(ctx, set))).To(Succeed())

	before := d.DeepCopy()
	d.Status = machinev1alpha1.MachineDeploymentStatus{
		ObservedGeneration: d.Generation, Replicas: d.Spec.Replicas, UpdatedReplicas: d.Spec.Replicas,
		AvailableReplicas: available, UnavailableReplicas: d.Spec.Replicas - available,
		Conditions: []machinev1alpha1.MachineDeploymentCondition{{Type: machinev1alpha1.MachineDeploymentAvailable, Status: machinev1alpha1.ConditionTrue, LastUpdateTime: metav1.Now(), LastTransitionTime: metav1.Now()}},
	}
	Expect(seed.Status().Patch(ctx, d, client.MergeFrom(before))).To(Succeed())
}

// succeed creates the Worker and brings it to where all machines are there.
func (s *shoot) succeed(ctx context.Context) {
	GinkgoHelper()
	Expect(seed.Create(ctx, s.newWorker())).To(Succeed())
	s.isDeployed(ctx, map[string]int32{"a-z1": 1, "a-z2": 1, "b-z1": 1})
	s.finishes(ctx)
}

// finishes waits until the operation waits, whose request is gone then, and brings it to its end.
func (s *shoot) finishes(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, s.outcome(ctx)).Should(HavePrefix("Processing: waiting for machines"))
	s.finish(ctx)
	s.succeeds(ctx)
}

// succeeds waits for the end of an operation. Only an event ends it so soon: without one, the next attempt is a minute away.
func (s *shoot) succeeds(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, s.outcome(ctx)).WithTimeout(4 * time.Second).Should(HavePrefix("Succeeded: "))
}

// kinds are all that machines are made of.
func kinds() []client.ObjectList {
	return []client.ObjectList{
		&machinev1alpha1.MachineDeploymentList{}, &machinev1alpha1.MachineSetList{}, &machinev1alpha1.MachineList{}, &machinev1alpha1.MachineClassList{}, &corev1.SecretList{},
	}
}

// objects lists the objects of a kind; of Secrets those of classes.
func (s *shoot) objects(ctx context.Context, list client.ObjectList) []client.Object {
	GinkgoHelper()
	opts := []client.ListOption{client.InNamespace(s.name)}
	if _, ok := list.(*corev1.SecretList); ok {
		opts = append(opts, client.MatchingLabels{"gardener.cloud/purpose": "machineclass"})
	}
	Expect(seed.List(ctx, list, opts...)).To(Succeed())
	var out []client.Object
	Expect(meta.EachListItem(list, func(obj runtime.Object) error {
		out = append(out, obj.(client.Object))
		return nil
	})).To(Succeed())
	return out
}

// setFinalizers has machine-controller-manager hold, or let go of, all objects of a kind.
func (s *shoot) setFinalizers(ctx context.Context, list client.ObjectList, finalizers ...string) {
	GinkgoHelper()
	for _, obj := range s.objects(ctx, list) {
		before := obj.DeepCopyObject().(client.Object)
		obj.SetFinalizers(finalizers)
		Expect(client.IgnoreNotFound(seed.Patch(ctx, obj, client.MergeFrom(before)))).To(Succeed())
	}
}

// isEmpty waits until nothing is left of the Worker and its machines.
func (s *shoot) isEmpty(ctx context.Context) {
	GinkgoHelper()
	Eventually(ctx, func() bool {
		_, err := s.worker(ctx)
		return apierrors.IsNotFound(err)
	}).Should(BeTrue())
	for _, list := range kinds() {
		Expect(s.objects(ctx, list)).To(BeEmpty())
	}
}

// credentials sets the finalizers of the Secret with the credentials.
func (s *shoot) credentials(ctx context.Context, finalizers ...string) {
	GinkgoHelper()
	secret := &corev1.Secret{}
	Expect(seed.Get(ctx, client.ObjectKey{Namespace: s.name, Name: "cloudprovider"}, secret)).To(Succeed())
	secret.Finalizers = finalizers
	Expect(seed.Update(ctx, secret)).To(Succeed())
}

// writes are the requests of the controller that may have changed something in the shoot's namespace, as "METHOD RESOURCE".
func (s *shoot) writes() []string {
	var out []string
	for _, request := range requests.Writes() {
		if _, path, ok := strings.Cut(request.Path, "/namespaces/"+s.name+"/"); ok {
			parts := strings.Split(path, "/")
			resource := parts[0]
			if len(parts) == 3 {
				resource += "/" + parts[2]
			}
			out = append(out, request.Method+" "+resource)
		}
	}
	return out
}
