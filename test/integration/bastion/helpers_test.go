// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package bastion_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// labelIdle on a Pod has the kubelet leave it alone until it is taken off.
const labelIdle = "example.org/idle"

// idle has the kubelet leave all Pods alone.
var idle atomic.Bool

// kubelet takes Pods of bastions to its node, where they are ready at once, and ends those that are deleted.
func kubelet(ctx context.Context) error {
	for ctx.Err() == nil {
		pods := &corev1.PodList{}
		if err := seed.List(ctx, pods, client.MatchingLabels{"app": "bastion"}); err != nil {
			continue
		}
		for i := range pods.Items {
			if _, isIdle := pods.Items[i].Labels[labelIdle]; !idle.Load() && !isIdle {
				// The API server may be faster, and has another version then. There is a next round.
				_ = sync(ctx, &pods.Items[i])
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func sync(ctx context.Context, pod *corev1.Pod) error {
	switch {
	case pod.Spec.NodeName == "":
		return seed.SubResource("binding").Create(ctx, pod, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: "node"}})
	case pod.DeletionTimestamp != nil:
		return seed.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID})
	case pod.Status.Phase == corev1.PodPending:
		pod.Status.Phase = corev1.PodRunning
		pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
		return seed.Status().Update(ctx, pod)
	}
	return nil
}

// shoot is one that has a namespace, a Cluster and credentials.
type shoot struct {
	namespace string
	// machines is the namespace of the machines.
	machines string
}

var shoots atomic.Int32

// newShoot makes a shoot whose machines are in the seed.
func newShoot(ctx context.Context, credentials map[string][]byte) shoot {
	GinkgoHelper()
	s := shoot{namespace: fmt.Sprintf("shoot--local--s%d", shoots.Add(1))}
	s.machines = s.namespace
	Expect(env.CreateNamespaces(ctx, s.namespace)).To(Succeed())
	Expect(seed.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: "cloudprovider"}, Data: credentials})).To(Succeed())
	Expect(seed.Create(ctx, &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: s.namespace},
		Spec: extensionsv1alpha1.ClusterSpec{
			CloudProfile: raw(cloudProfile()),
			Shoot:        raw(&gardencorev1beta1.Shoot{TypeMeta: core("Shoot"), ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "garden-local"}}),
		},
	})).To(Succeed())
	return s
}

// newRemoteShoot makes one whose machines are in another cluster. It is the seed again, but the controller does not know.
func newRemoteShoot(ctx context.Context) shoot {
	GinkgoHelper()
	path, err := env.ServiceAccountKubeconfig(GinkgoT().TempDir(), instanceNamespace, another)
	Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())
	s := newShoot(ctx, map[string][]byte{"kubeconfig": kubeconfig})
	s.machines = "infra-" + s.namespace
	return s
}

func core(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: kind}
}

func raw(obj any) runtime.RawExtension {
	GinkgoHelper()
	data, err := json.Marshal(obj)
	Expect(err).NotTo(HaveOccurred())
	return runtime.RawExtension{Raw: data}
}

func cloudProfile() *gardencorev1beta1.CloudProfile {
	config := raw(&localv1alpha1.CloudProfileConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: localv1alpha1.CloudProfileConfigKind},
		MachineImages: []localv1alpha1.MachineImages{{Name: "local", Versions: []localv1alpha1.MachineImageVersion{
			{Version: "1.0.0", Image: "registry.example/machine:1"},
		}}},
	})
	return &gardencorev1beta1.CloudProfile{
		TypeMeta: core("CloudProfile"), ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Spec: gardencorev1beta1.CloudProfileSpec{
			ProviderConfig: &config,
			MachineTypes:   []gardencorev1beta1.MachineType{{Name: "local", CPU: resource.MustParse("4"), Architecture: new("amd64")}},
			MachineImages: []gardencorev1beta1.MachineImage{{Name: "local", Versions: []gardencorev1beta1.MachineImageVersion{{
				ExpirableVersion: gardencorev1beta1.ExpirableVersion{Version: "1.0.0", Classification: new(gardencorev1beta1.ClassificationSupported)},
				Architectures:    []string{"amd64"},
			}}}},
		},
	}
}

// newBastion makes a Bastion as gardenlet does.
func (s shoot) newBastion(ctx context.Context, name string, cidrs ...string) *extensionsv1alpha1.Bastion {
	GinkgoHelper()
	b := &extensionsv1alpha1.Bastion{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.namespace, Name: name, Annotations: map[string]string{
			"gardener.cloud/operation": "reconcile", "gardener.cloud/timestamp": time.Now().UTC().Format(time.RFC3339Nano),
		}},
		Spec: extensionsv1alpha1.BastionSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"}, UserData: []byte("#!/bin/bash -eu\n"), Ingress: ingress(cidrs...),
		},
	}
	Expect(seed.Create(ctx, b)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		idle.Store(false)
		Expect(client.IgnoreNotFound(seed.Delete(ctx, b))).To(Succeed())
		Eventually(ctx, isGone(ctx, b)).Should(BeTrue())
	})
	return b
}

func ingress(cidrs ...string) []extensionsv1alpha1.BastionIngressPolicy {
	out := []extensionsv1alpha1.BastionIngressPolicy{}
	for _, cidr := range cidrs {
		out = append(out, extensionsv1alpha1.BastionIngressPolicy{IPBlock: networkingv1.IPBlock{CIDR: cidr}})
	}
	return out
}

// change changes a Bastion and asks for a reconcile, as gardenlet does.
func change(ctx context.Context, b *extensionsv1alpha1.Bastion, change func(*extensionsv1alpha1.Bastion)) {
	GinkgoHelper()
	Eventually(ctx, func(g Gomega) {
		g.Expect(seed.Get(ctx, client.ObjectKeyFromObject(b), b)).To(Succeed())
		before := b.DeepCopy()
		change(b)
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, "gardener.cloud/operation", "reconcile")
		metav1.SetMetaDataAnnotation(&b.ObjectMeta, "gardener.cloud/timestamp", time.Now().UTC().Format(time.RFC3339Nano))
		g.Expect(seed.Patch(ctx, b, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))).To(Succeed())
	}).Should(Succeed())
}

// status reads what is said of a Bastion for Eventually, as "STATE ADDRESS" or, if it is not done, "STATE: DESCRIPTION".
// While an operation is still asked for, it is that.
func status(ctx context.Context, b *extensionsv1alpha1.Bastion) func() (string, error) {
	return func() (string, error) {
		if err := seed.Get(ctx, client.ObjectKeyFromObject(b), b); err != nil {
			return "", err
		}
		last, asked := b.Status.LastOperation, b.Annotations["gardener.cloud/operation"]
		switch {
		case asked != "":
			return "asked for " + asked, nil
		case last == nil || last.State == gardencorev1beta1.LastOperationStateSucceeded && b.Status.ObservedGeneration != b.Generation:
			return "not looked at yet", nil
		case last.State == gardencorev1beta1.LastOperationStateSucceeded && b.Status.Ingress != nil:
			return fmt.Sprintf("%s %s", last.State, b.Status.Ingress.IP), nil
		default:
			return fmt.Sprintf("%s: %s", last.State, last.Description), nil
		}
	}
}

func isGone(ctx context.Context, obj client.Object) func() (bool, error) {
	return func() (bool, error) {
		err := seed.Get(ctx, client.ObjectKeyFromObject(obj), obj)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
}

// get reads an object of a Bastion.
func get[T client.Object](ctx context.Context, s shoot, name string, obj T) T {
	GinkgoHelper()
	Expect(seed.Get(ctx, client.ObjectKey{Namespace: s.machines, Name: "bastion-" + name}, obj)).To(Succeed())
	return obj
}

// left returns the kinds of the objects of a Bastion that there are, for Eventually.
func left(ctx context.Context, s shoot, name string) func() ([]string, error) {
	return func() ([]string, error) {
		kinds := []string{}
		for kind, obj := range map[string]client.Object{
			"NetworkPolicy": &networkingv1.NetworkPolicy{}, "Secret": &corev1.Secret{}, "Service": &corev1.Service{}, "Pod": &corev1.Pod{},
		} {
			err := seed.Get(ctx, client.ObjectKey{Namespace: s.machines, Name: "bastion-" + name}, obj)
			if err == nil {
				kinds = append(kinds, kind)
			} else if !apierrors.IsNotFound(err) {
				return nil, err
			}
		}
		return kinds, nil
	}
}

// requestsIn returns those that were recorded in the namespace of a shoot, as "METHOD PATH CODE".
func requestsIn(s shoot) func() []string {
	return func() []string {
		var out []string
		for _, request := range requests.List() {
			if strings.Contains(request.Path, "/"+s.namespace+"/") {
				out = append(out, fmt.Sprintf("%s %s %d", request.Method, request.Path, request.Code))
			}
		}
		return out
	}
}
