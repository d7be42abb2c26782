// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package seed_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/component"
	extensioncrds "github.com/gardener/gardener/pkg/component/extensions/crds"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	"github.com/gardener/gardener/pkg/utils"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart/oci"
	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

const (
	// installation is the name of the ControllerInstallation, and so of its ManagedResource.
	installation = "provider-local-e2e"
	// registration is the name of the Extension, and so of the ControllerRegistration.
	registration = "provider-local"
	seedName     = "e2e"
)

// prepareSeed installs what the instance finds in every seed: the CRDs, of which gardener-operator brings only some, and the
// PriorityClass of its pods.
func prepareSeed(ctx context.Context) {
	GinkgoHelper()
	extensions, err := extensioncrds.NewCRD(c, false, true)
	Expect(err).NotTo(HaveOccurred())
	machines, err := machinecontrollermanager.NewCRD(c)
	Expect(err).NotTo(HaveOccurred())
	for _, crds := range []component.DeployWaiter{extensions, machines} {
		DeferCleanup(func(ctx SpecContext) {
			Expect(crds.Destroy(ctx)).To(Succeed())
			Expect(crds.WaitCleanup(ctx)).To(Succeed())
		})
		Expect(crds.Deploy(ctx)).To(Succeed())
		Expect(crds.Wait(ctx)).To(Succeed())
	}

	priority := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: v1beta1constants.PriorityClassNameSeedSystem900}, Value: 999998900}
	Expect(client.IgnoreAlreadyExists(c.Create(ctx, priority))).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { deleteAndWait(ctx, priority) })
}

// install does what gardenlet does for a ControllerInstallation (pkg/gardenlet/controller/controllerinstallation), and has it
// undone in the same order. It returns the folder of all buckets.
func install(ctx context.Context) string {
	GinkgoHelper()
	extension, values := registered(ctx)
	hostPath, _, err := unstructured.NestedString(values, "backup", "hostPath")
	Expect(err).NotTo(HaveOccurred())
	Expect(hostPath).To(HavePrefix("/"), "the landscape says where buckets are")

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: seedInstanceNamespace,
		Labels: map[string]string{
			v1beta1constants.GardenRole:                              v1beta1constants.GardenRoleExtension,
			v1beta1constants.LabelControllerRegistrationName:         registration,
			v1beta1constants.LabelNetworkPolicyAccessTargetAPIServer: "allowed",
			resourcesv1alpha1.HighAvailabilityConfigConsider:         "true",
			"pod-security.kubernetes.io/enforce":                     extension.Annotations[v1beta1constants.AnnotationPodSecurityEnforce],
		},
		Annotations: map[string]string{resourcesv1alpha1.HighAvailabilityConfigZones: "0"},
	}}
	Expect(client.IgnoreAlreadyExists(c.Create(ctx, namespace))).To(Succeed())
	DeferCleanup(uninstall)
	deploy(ctx, "0")
	return hostPath
}

// registered is the Extension of the landscape, with the values that it has for seeds and what this suite adds.
func registered(ctx context.Context) (*operatorv1alpha1.Extension, map[string]any) {
	GinkgoHelper()
	extension := &operatorv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: registration}}
	Expect(c.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
	values := map[string]any{}
	Expect(json.Unmarshal(extension.Spec.Deployment.ExtensionDeployment.Values.Raw, &values)).To(Succeed())
	values["nodes"] = map[string]any{"capacity": map[string]any{"cpu": seedCPU, "memory": seedMemory}}
	return extension, values
}

// deploy writes the ManagedResource of the instance in a seed with these zones, and waits until that is rolled out.
func deploy(ctx context.Context, zones ...any) {
	GinkgoHelper()
	extension, values := registered(ctx)
	deployment := extension.Spec.Deployment.ExtensionDeployment
	Expect(writer.Apply(ctx, resources.ManagedResource{
		Namespace: gardenNamespace,
		Name:      installation,
		Class:     v1beta1constants.SeedResourceManagerClass,
		Labels:    map[string]string{"controllerinstallation-name": installation, "controllerregistration-name": registration},
		Objects:   render(ctx, deployment.Helm.OCIRepository.GetURL(), utils.MergeMaps(values, injectedValues(zones...))),
	})).To(Succeed())
	mr := named[*resourcesv1alpha1.ManagedResource](gardenNamespace, installation)
	Eventually(get(ctx, mr)).Should(WithTransform(health.CheckManagedResourceApplied, Succeed()))
	eventuallyReady(ctx, named[*appsv1.Deployment](seedInstanceNamespace, seedInstance))
}

// injectedValues are what gardenlet v1.149 puts over those of the ControllerDeployment.
func injectedValues(zones ...any) map[string]any {
	networks := map[string]any{"pods": "10.244.0.0/16", "services": "10.96.0.0/16", "nodes": "172.18.0.0/24", "ipFamilies": []any{"IPv4"}}
	return map[string]any{"gardener": map[string]any{
		"version":   "v1.149.3",
		"garden":    map[string]any{"clusterIdentity": "garden-local"},
		"gardenlet": map[string]any{"featureGates": map[string]any{"DefaultSeccompProfile": true}},
		"seed": map[string]any{
			"name":            seedName,
			"clusterIdentity": "garden-local-" + seedName,
			"annotations":     nil,
			"labels":          nil,
			"provider":        "local",
			"region":          "local",
			"volumeProvider":  "",
			"volumeProviders": nil,
			"protected":       false,
			"visible":         true,
			"taints":          nil,
			"networks":        networks,
			"blockCIDRs":      nil,
			"ingressDomain":   "ingress." + seedName + ".seed.local.gardener.cloud",
			"spec":            map[string]any{"networks": networks, "provider": map[string]any{"type": "local", "region": "local", "zones": zones}},
		},
	}}
}

// render pulls the chart and renders it. The containers are told the name of the seed.
func render(ctx context.Context, ref string, values map[string]any) []client.Object {
	GinkgoHelper()
	Expect(ref).To(ContainSubstring("@sha256:"), "the chart is pinned")
	// Not GinkgoT's, as this is called by cleanups as well.
	folder, err := os.MkdirTemp("", "charts")
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(os.RemoveAll(folder)).To(Succeed()) }()
	puller, err := oci.New(oci.Options{Directory: folder, Log: GinkgoLogr})
	Expect(err).NotTo(HaveOccurred())
	defer func() { Expect(puller.Close()).To(Succeed()) }()
	source, err := puller.Source(configv1alpha1.OCIChart{Ref: ref, PlainHTTP: true})
	Expect(err).NotTo(HaveOccurred())

	version, err := clientset.Discovery().ServerVersion()
	Expect(err).NotTo(HaveOccurred())
	renderer, err := chart.NewRenderer(chart.Capabilities{KubeVersion: version.GitVersion})
	Expect(err).NotTo(HaveOccurred())
	rendered, err := renderer.Render(ctx, source, chart.Release{Name: registration, Namespace: seedInstanceNamespace}, values)
	Expect(err).NotTo(HaveOccurred())

	for i, obj := range rendered.Objects {
		if obj.GetObjectKind().GroupVersionKind().Kind != "Deployment" {
			continue
		}
		deployment := &appsv1.Deployment{}
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(obj.(*unstructured.Unstructured).Object, deployment)).To(Succeed())
		kubernetesutils.VisitContainers(&deployment.Spec.Template.Spec, func(container *corev1.Container) {
			kubernetesutils.AddEnvVar(container, corev1.EnvVar{Name: v1beta1constants.EnvSeedName, Value: seedName}, true)
		})
		rendered.Objects[i] = deployment
	}
	return rendered.Objects
}

// uninstall takes the instance away and expects that nothing is left of it, and that the garden's instance still has its
// CoreDNS.
func uninstall(ctx SpecContext) {
	key := client.ObjectKey{Namespace: gardenNamespace, Name: installation}
	Eventually(func() (bool, error) { return writer.Delete(ctx, key) }).Should(BeTrue(), "the objects of the chart go")
	deleteAndWait(ctx, named[*corev1.Namespace]("", seedInstanceNamespace))

	eventuallyGone(ctx, named[*admissionregistrationv1.MutatingWebhookConfiguration]("", seedInstance))
	eventuallyGone(ctx, named[*resourcesv1alpha1.ManagedResource](gardenNamespace, coredns.ManagedResourceName+"-seed"))
	eventuallyGone(ctx, named[*rbacv1.ClusterRole]("", seedInstance))
	eventuallyGone(ctx, named[*rbacv1.ClusterRoleBinding]("", seedInstance))
	eventuallyGone(ctx, named[*rbacv1.Role](coreDNSNamespace, seedInstance))

	shared := named[*resourcesv1alpha1.ManagedResource](gardenNamespace, coredns.ManagedResourceName)
	Eventually(get(ctx, shared)).Should(HaveField("OwnerReferences", ConsistOf(HaveField("Name", gardenInstanceNamespace))), "CoreDNS stays for the garden's instance")
	Eventually(func() []string {
		list := &corev1.ConfigMapList{}
		Expect(c.List(ctx, list, client.InNamespace(coreDNSNamespace))).To(Succeed())
		var left []string
		for _, configMap := range list.Items {
			if strings.HasPrefix(configMap.Name, coredns.ConfigMapPrefix+"seed-") {
				left = append(left, configMap.Name)
			}
		}
		return left
	}).Should(BeEmpty())
}
