// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package infrastructure_test runs the controller for Infrastructures against two real API servers, that of a seed and
// that of a cluster for machines, with no more permissions than it says it needs in each. Its hand is that of gardenlet,
// and of kube-controller-manager where a namespace is deleted.
package infrastructure_test

import (
	"context"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/class"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/infrastructure"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine/cluster"
	"github.com/gardener/gardener-extension-provider-local/pkg/reconciler"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const instanceNamespace = "extension-provider-local"

var (
	seedEnv, otherEnv *environment.Environment
	seed, other       client.Client
	instanceConfig    *rest.Config
	requests          = &suite.Recorder{}
	instance          *suite.Running
	// kubeconfig is that of a user of the other cluster.
	kubeconfig []byte
)

func TestInfrastructure(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(30 * time.Second)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Infrastructures in real API servers")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText))
	scheme := suite.NewScheme(extensionsv1alpha1.AddToScheme, apiextensionsv1.AddToScheme)

	By("starting the API server of the seed")
	var err error
	seedEnv, err = environment.Start(scheme)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(seedEnv.Stop)
	seed = seedEnv.Client

	By("starting the API server of the machines")
	otherEnv, err = environment.StartShoot(scheme, environment.OffLoopback())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(otherEnv.Stop)
	other = otherEnv.Client
	_, err = envtest.InstallCRDs(otherEnv.Config, envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{ipPools()}})
	Expect(err).NotTo(HaveOccurred())

	namespaces := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get", "create", "patch", "delete"}}
	suite.Grant(ctx, other, "kube-system", "provider-local", append(common(), namespaces)...)
	path, err := otherEnv.ServiceAccountKubeconfig(GinkgoT().TempDir(), "kube-system", "provider-local")
	Expect(err).NotTo(HaveOccurred())
	kubeconfig, err = os.ReadFile(path)
	Expect(err).NotTo(HaveOccurred())

	By("running the controller with the permissions that it names")
	Expect(seedEnv.CreateNamespaces(ctx, instanceNamespace)).To(Succeed())
	instanceConfig = suite.Account(ctx, seedEnv, instanceNamespace, "instance", append(common(), library()...)...)
	instanceConfig.Wrap(requests.Wrap)
	start()
	DeferCleanup(func() { instance.Stop() })
})

// common are the permissions that AddToManager documents for any cluster with machines.
func common() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		{APIGroups: []string{"networking.k8s.io"}, Resources: []string{"networkpolicies"}, Verbs: []string{"create", "patch", "delete", "deletecollection"}},
		{APIGroups: []string{"crd.projectcalico.org"}, Resources: []string{"ippools"}, Verbs: []string{"list", "create", "patch", "delete"}},
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"get"}},
	}
}

// library are those of the extension library, and of the package that reads the credentials.
func library() []rbacv1.PolicyRule {
	extensions := []string{extensionsv1alpha1.SchemeGroupVersion.Group}
	return []rbacv1.PolicyRule{
		{APIGroups: extensions, Resources: []string{"infrastructures"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: extensions, Resources: []string{"infrastructures/status"}, Verbs: []string{"patch"}},
		{APIGroups: extensions, Resources: []string{"clusters"}, Verbs: []string{"get", "list", "watch"}},
		{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get"}},
		// Its predicates look whether a namespace is that of a shoot.
		{APIGroups: []string{""}, Resources: []string{"namespaces"}, Verbs: []string{"list", "watch"}},
	}
}

// start runs a manager with the controller until instance is stopped, be it by a spec.
func start() {
	GinkgoHelper()
	mgr, err := manager.New(instanceConfig, manager.Options{
		Scheme:     suite.NewScheme(extensionsv1alpha1.AddToScheme),
		Controller: suite.Controllers(),
		NewClient:  suite.NewClient,
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Client:     client.Options{Cache: &client.CacheOptions{DisableFor: []client.Object{&corev1.Secret{}}}},
	})
	Expect(err).NotTo(HaveOccurred())
	classes, err := class.New([]extensionsv1alpha1.ExtensionClass{extensionsv1alpha1.ExtensionClassShoot}, extensionsv1alpha1.ExtensionClassShoot)
	Expect(err).NotTo(HaveOccurred())

	opts := infrastructure.Options{
		Shared:           reconciler.Shared{Classes: classes},
		Clusters:         cluster.New(mgr.GetClient(), mgr.GetConfig()),
		ResolvConf:       os.DevNull, // The DNS servers of this machine may be anywhere.
		EgressCIDRs:      []string{"192.168.7.0/24"},
		LoadBalancers:    configv1alpha1.LoadBalancersConfiguration{HostAddresses: []string{"172.18.255.1"}},
		CoreDNSNamespace: "coredns",
	}
	opts.Controller.MaxConcurrentReconciles = 5
	// There is one after the other.
	Expect(infrastructure.AddToManager(mgr, opts)).To(Succeed())
	instance = suite.Run("the manager", mgr.Start)
}

// ipPools is as much of Calico's CRD as the API server needs to know.
func ipPools() *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "ippools.crd.projectcalico.org"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "crd.projectcalico.org",
			Scope: apiextensionsv1.ClusterScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Kind: "IPPool", ListKind: "IPPoolList", Plural: "ippools", Singular: "ippool"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object",
					Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": {
						Type: "object", Required: []string{"cidr"},
						Properties: map[string]apiextensionsv1.JSONSchemaProps{
							"cidr": text, "nodeSelector": text, "ipipMode": text, "vxlanMode": text,
							"natOutgoing": {Type: "boolean"}, "disabled": {Type: "boolean"}, "blockSize": {Type: "integer"},
							"allowedUses": {Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &text}},
						},
					}},
				}},
			}},
		},
	}
}

// finish does what kube-controller-manager does: it empties a namespace that is being deleted, and lets it go.
func finish(ctx context.Context, c client.Client, name string) {
	GinkgoHelper()
	namespace := &corev1.Namespace{}
	Expect(c.Get(ctx, client.ObjectKey{Name: name}, namespace)).To(Succeed())
	Expect(namespace.DeletionTimestamp).NotTo(BeNil())
	namespace.Spec.Finalizers = nil
	Expect(c.SubResource("finalize").Update(ctx, namespace)).To(Succeed())
}
