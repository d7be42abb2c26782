// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package suite has what the integration suites set up in the same way: schemes, accounts with just some permissions,
// the configuration of an instance, programs that run beside the specs, and a record of requests. Its functions are for
// suites alone, as they end a spec that they cannot help; what may also be used without Ginkgo is in package environment.
package suite

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
)

// NewScheme returns a scheme with the kinds of Kubernetes and those that add brings.
func NewScheme(add ...func(*runtime.Scheme) error) *runtime.Scheme {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	Expect(kubernetesscheme.AddToScheme(scheme)).To(Succeed())
	for _, add := range add {
		Expect(add(scheme)).To(Succeed())
	}
	return scheme
}

// Grant gives rules to a ServiceAccount in all of the cluster, by a ClusterRole NAMESPACE:NAME. The ServiceAccount need
// not exist.
func Grant(ctx context.Context, c client.Client, namespace, name string, rules ...rbacv1.PolicyRule) {
	GinkgoHelper()
	meta := metav1.ObjectMeta{Name: namespace + ":" + name}
	Expect(c.Create(ctx, &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules})).To(Succeed())
	Expect(c.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}},
	})).To(Succeed())
}

// Account returns the access of a ServiceAccount that may do what the rules say in all of the cluster, and nothing else.
func Account(ctx context.Context, env *environment.Environment, namespace, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	GinkgoHelper()
	Grant(ctx, env.Client, namespace, name, rules...)
	config, err := env.ServiceAccountConfig(namespace, name)
	Expect(err).NotTo(HaveOccurred())
	return config
}

// Controllers are the settings of a manager's controllers as package instance has them: without the priority queue, which
// may never end when it is shut. A suite may run several managers one after the other.
func Controllers() config.Controller {
	return config.Controller{SkipNameValidation: new(true), UsePriorityQueue: new(false)}
}

// NewClient makes the client of a manager as package instance does.
var NewClient client.NewClientFunc = instance.NewClient

// OwnPorts makes the servers of an instance listen on free ports of the loopback, so that several may run.
func OwnPorts(config *configv1alpha1.ExtensionConfiguration) {
	GinkgoHelper()
	for _, server := range []**configv1alpha1.Server{&config.Server.HealthProbes, &config.Server.Metrics, &config.Server.Webhooks} {
		*server = &configv1alpha1.Server{BindAddress: "127.0.0.1", Port: FreePort()}
	}
}

// FreePort returns a port of the loopback that is free for UDP and TCP.
func FreePort() int {
	GinkgoHelper()
	port, err := environment.FreePort()
	Expect(err).NotTo(HaveOccurred())
	return port
}

// GardenValues are the values that the release chart needs for a garden instance. The images are never pulled.
func GardenValues() map[string]any {
	return map[string]any{
		"gardener": map[string]any{"runtimeCluster": map[string]any{"enabled": "true", "priorityClassName": "gardener-garden-system-200"}},
		"image":    "operator-extension:test",
		"dns":      map[string]any{"coreDNS": map[string]any{"image": "coredns:test"}},
	}
}

// SeedValues are the values that the release chart needs for a seed instance. The images are never pulled.
func SeedValues() map[string]any {
	return map[string]any{
		"image":        "gardenlet-extension:test",
		"dns":          map[string]any{"coreDNS": map[string]any{"image": "coredns:test"}},
		"controlPlane": map[string]any{"localPathProvisioner": map[string]any{"image": "local-path-provisioner:test"}},
	}
}
