// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package mock_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	extensionsutils "github.com/gardener/gardener/pkg/extensions"

	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

const (
	garden = extensionsv1alpha1.ExtensionClassGarden
	seed   = extensionsv1alpha1.ExtensionClassSeed
	shoot  = extensionsv1alpha1.ExtensionClassShoot
)

var secretRef = corev1.SecretReference{Namespace: gardenNamespace, Name: "any"}

func spec(class extensionsv1alpha1.ExtensionClass) extensionsv1alpha1.DefaultSpec {
	return extensionsv1alpha1.DefaultSpec{Type: "mock", Class: &class}
}

// forAll are objects of the kinds that all classes have.
func forAll(namespace, name string, class extensionsv1alpha1.ExtensionClass) []extensionsv1alpha1.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	return []extensionsv1alpha1.Object{
		&extensionsv1alpha1.BackupBucket{
			ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name},
			Spec:       extensionsv1alpha1.BackupBucketSpec{DefaultSpec: spec(class), Region: "mock", SecretRef: secretRef},
		},
		&extensionsv1alpha1.BackupEntry{
			ObjectMeta: metav1.ObjectMeta{Name: namespace + "--" + name},
			Spec:       extensionsv1alpha1.BackupEntrySpec{DefaultSpec: spec(class), Region: "mock", SecretRef: secretRef, BucketName: "bucket"},
		},
		&extensionsv1alpha1.DNSRecord{ObjectMeta: meta, Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: spec(class), SecretRef: secretRef, Name: name + ".example.com", RecordType: "A", Values: []string{"192.0.2.1"},
		}},
		&extensionsv1alpha1.Extension{ObjectMeta: meta, Spec: extensionsv1alpha1.ExtensionSpec{DefaultSpec: spec(class)}},
	}
}

// forShoot are objects of the kinds that only shoots have.
func forShoot(namespace, name string) []extensionsv1alpha1.Object {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	return []extensionsv1alpha1.Object{
		&extensionsv1alpha1.Bastion{ObjectMeta: meta, Spec: extensionsv1alpha1.BastionSpec{
			DefaultSpec: spec(shoot), UserData: []byte("x"), Ingress: []extensionsv1alpha1.BastionIngressPolicy{{IPBlock: networkingv1.IPBlock{CIDR: "0.0.0.0/0"}}},
		}},
		&extensionsv1alpha1.ContainerRuntime{ObjectMeta: meta, Spec: extensionsv1alpha1.ContainerRuntimeSpec{
			DefaultSpec: spec(shoot), BinaryPath: "/", WorkerPool: extensionsv1alpha1.ContainerRuntimeWorkerPool{Name: "pool"},
		}},
		&extensionsv1alpha1.ControlPlane{ObjectMeta: meta, Spec: extensionsv1alpha1.ControlPlaneSpec{DefaultSpec: spec(shoot), Region: "mock", SecretRef: secretRef}},
		&extensionsv1alpha1.Infrastructure{ObjectMeta: meta, Spec: extensionsv1alpha1.InfrastructureSpec{DefaultSpec: spec(shoot), Region: "mock", SecretRef: secretRef}},
		&extensionsv1alpha1.Network{ObjectMeta: meta, Spec: extensionsv1alpha1.NetworkSpec{DefaultSpec: spec(shoot), PodCIDR: "100.96.0.0/11", ServiceCIDR: "100.64.0.0/13"}},
		&extensionsv1alpha1.OperatingSystemConfig{ObjectMeta: meta, Spec: extensionsv1alpha1.OperatingSystemConfigSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "mockos"}, Purpose: extensionsv1alpha1.OperatingSystemConfigPurposeProvision,
		}},
		&extensionsv1alpha1.SelfHostedShootExposure{ObjectMeta: meta, Spec: extensionsv1alpha1.SelfHostedShootExposureSpec{
			DefaultSpec: spec(shoot), Port: 443, Endpoints: []extensionsv1alpha1.ControlPlaneEndpoint{},
		}},
		&extensionsv1alpha1.Worker{ObjectMeta: meta, Spec: extensionsv1alpha1.WorkerSpec{
			DefaultSpec: spec(shoot), Region: "mock", SecretRef: secretRef,
			Pools: []extensionsv1alpha1.WorkerPool{{
				Name: "pool", MachineType: "mock", Minimum: 1, Maximum: 3, Zones: []string{"a", "b"}, MaxSurge: intstr.FromInt32(1), MaxUnavailable: intstr.FromInt32(0),
				MachineImage:      extensionsv1alpha1.MachineImage{Name: "mockos", Version: "1.0.0"},
				UserDataSecretRef: corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "x"}, Key: "x"},
			}},
		}},
	}
}

// create creates objects as Gardener does.
func create(ctx context.Context, objects ...extensionsv1alpha1.Object) {
	GinkgoHelper()
	for _, obj := range objects {
		obj.SetAnnotations(map[string]string{"gardener.cloud/operation": "reconcile", "gardener.cloud/timestamp": time.Now().UTC().Format(time.RFC3339Nano)})
		Expect(c.Create(ctx, obj)).To(Succeed(), "%s", describe(obj))
	}
}

// annotate asks for an operation as Gardener does.
func annotate(ctx context.Context, operation string, objects ...extensionsv1alpha1.Object) {
	GinkgoHelper()
	for _, obj := range objects {
		Expect(c.Get(ctx, client.ObjectKeyFromObject(obj), obj)).To(Succeed())
		Expect(extensionsutils.AnnotateObjectWithOperation(ctx, c, obj, operation)).To(Succeed())
	}
}

func remove(ctx context.Context, objects ...extensionsv1alpha1.Object) {
	GinkgoHelper()
	for _, obj := range objects {
		Expect(client.IgnoreNotFound(c.Delete(ctx, obj))).To(Succeed())
	}
}

func eventuallySucceed(ctx context.Context, objects ...extensionsv1alpha1.Object) {
	GinkgoHelper()
	for _, obj := range objects {
		Eventually(get(ctx, obj)).Should(matchers.HaveSucceeded(), "%s", describe(obj))
	}
}

func eventuallyGone(ctx context.Context, objects ...extensionsv1alpha1.Object) {
	GinkgoHelper()
	for _, obj := range objects {
		Eventually(func() bool { return apierrors.IsNotFound(c.Get(ctx, client.ObjectKeyFromObject(obj), obj)) }).Should(BeTrue(), "%s goes", describe(obj))
	}
}

func get(ctx context.Context, obj extensionsv1alpha1.Object) func() (extensionsv1alpha1.Object, error) {
	return func() (extensionsv1alpha1.Object, error) {
		obj.GetExtensionStatus().SetLastError(nil)
		obj.SetAnnotations(nil)
		return obj, c.Get(ctx, client.ObjectKeyFromObject(obj), obj)
	}
}

func describe(obj extensionsv1alpha1.Object) string {
	return fmt.Sprintf("%s %s/%s of class %s", extensionscontroller.UnsafeGuessKind(obj), obj.GetNamespace(), obj.GetName(), classOf(obj))
}

func classOf(obj extensionsv1alpha1.Object) extensionsv1alpha1.ExtensionClass {
	if class := obj.GetExtensionSpec().GetExtensionClass(); class != nil {
		return *class
	}
	return shoot
}

// costs returns the requests for an object and for what is made for it, as METHOD RESOURCE[/status].
func costs(requests []suite.Request, name string) []string {
	var out []string
	for _, request := range requests {
		// /apis/GROUP/VERSION[/namespaces/NAMESPACE]/RESOURCE/NAME[/status]
		_, path, isExtension := strings.Cut(request.Path, "/extensions.gardener.cloud/v1alpha1/")
		if !isExtension {
			continue
		}
		if rest, ok := strings.CutPrefix(path, "namespaces/"); ok {
			_, path, _ = strings.Cut(rest, "/")
		}
		resource, rest, _ := strings.Cut(path, "/")
		if rest == name || strings.HasSuffix(rest, "-"+name) {
			out = append(out, request.Method+" "+resource)
		} else if rest == name+"/status" || strings.HasSuffix(rest, "-"+name+"/status") {
			out = append(out, request.Method+" "+resource+"/status")
		}
	}
	return out
}

// refused are the requests that were answered with a conflict or as forbidden. Gardener's heartbeat is left out: every 30 seconds it
// begins with the creation of its Lease, which is there.
func refused(requests []suite.Request) []suite.Request {
	var out []suite.Request
	for _, request := range requests {
		isHeartbeat := request.Method == http.MethodPost && strings.HasSuffix(request.Path, "/leases") && request.Code == http.StatusConflict
		if (request.Code == http.StatusConflict || request.Code == http.StatusForbidden) && !isHeartbeat {
			out = append(out, request)
		}
	}
	return out
}
