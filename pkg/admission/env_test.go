// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"errors"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"
)

const namespace = "garden-local"

// reader has these objects.
func reader(objects ...client.Object) client.Client {
	return builder().WithObjects(objects...).Build()
}

// silent answers nothing.
func silent() client.Client {
	return builder().WithInterceptorFuncs(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
		return errors.New("no answer")
	}}).Build()
}

func builder() *fakeclient.ClientBuilder {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, gardencorev1beta1.AddToScheme, securityv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	return fakeclient.NewClientBuilder().WithScheme(scheme)
}

// test is one request. If there are no errs, it is let through.
type test[T client.Object] struct {
	validator extensionswebhook.Validator
	obj, old  T
	errs      []string
}

func run[T interface {
	client.Object
	comparable
}](t *testing.T, tests map[string]test[T]) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			expect(t, validate(t, test.validator, test.obj, test.old), test.errs)
		})
	}
}

func expect(t *testing.T, err error, parts []string) {
	t.Helper()
	g := NewWithT(t)
	if len(parts) == 0 {
		g.Expect(err).NotTo(HaveOccurred())
		return
	}
	for _, part := range parts {
		g.Expect(err).To(MatchError(ContainSubstring(part)))
	}
}

// changed returns a copy of an object with changes.
func changed[T client.Object](obj T, change func(T)) T {
	copied := obj.DeepCopyObject().(T)
	change(copied)
	return copied
}

func deleted[T client.Object](obj T) T {
	return changed(obj, func(obj T) { obj.SetDeletionTimestamp(&metav1.Time{}) })
}

func raw(kind, fields string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "` + kind + `"` + fields + `}`)}
}

func cloudProfile() *gardencorev1beta1.CloudProfile {
	return &gardencorev1beta1.CloudProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Spec: gardencorev1beta1.CloudProfileSpec{
			Type:           "local",
			MachineTypes:   []gardencorev1beta1.MachineType{{Name: "small", CPU: resource.MustParse("1"), Memory: resource.MustParse("1Gi")}},
			MachineImages:  []gardencorev1beta1.MachineImage{machineImage("local", "1.0.0")},
			ProviderConfig: raw("CloudProfileConfig", `, "machineImages": [{"name": "local", "versions": [{"version": "1.0.0", "image": "machine:v1"}]}]`),
		},
	}
}

func machineImage(name string, versions ...string) gardencorev1beta1.MachineImage {
	image := gardencorev1beta1.MachineImage{Name: name}
	for _, version := range versions {
		image.Versions = append(image.Versions, gardencorev1beta1.MachineImageVersion{
			ExpirableVersion: gardencorev1beta1.ExpirableVersion{Version: version}, Architectures: []string{"amd64"},
		})
	}
	return image
}

func credentialsSecret(data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "credentials"}, Data: data}
}

// kubeconfig returns one with a token for a server.
func kubeconfig(server string) []byte {
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: server}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{Token: "secret-token"}
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	out, err := clientcmd.Write(*config)
	if err != nil {
		panic(err)
	}
	return out
}

// validate returns what a validator says. old may be nil.
func validate[T interface {
	client.Object
	comparable
}](t *testing.T, v extensionswebhook.Validator, obj, old T) error {
	t.Helper()
	var none T
	if old == none {
		return v.Validate(t.Context(), obj, nil)
	}
	return v.Validate(t.Context(), obj, old)
}
