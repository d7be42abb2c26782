// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

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
	// Installation is the name of the ControllerInstallation, and so of its ManagedResource.
	Installation = "provider-local-e2e"
	// registration is the name of the Extension, and so of the ControllerRegistration.
	registration = "provider-local"
	// SeedName is the name of the seed.
	SeedName = "e2e"

	// Instance is the name of the seed's instance.
	Instance = "gardener-extension-provider-local-seed"
	// InstanceNamespace is where it is.
	InstanceNamespace = "extension-" + Installation
	// GardenInstanceNamespace is where that of the garden is.
	GardenInstanceNamespace = "runtime-extension-provider-local"
)

// RequireGardenOnly fails if the landscape has a seed already, which belongs to its gardenlet: a suite that plays gardenlet
// would take its CRDs away at the end.
func (l *Landscape) RequireGardenOnly(ctx context.Context) {
	GinkgoHelper()
	gardenlet := Named[*appsv1.Deployment](GardenNamespace, "gardenlet")
	err := l.Client.Get(ctx, client.ObjectKeyFromObject(gardenlet), gardenlet)
	Expect(client.IgnoreNotFound(err)).To(Succeed())
	Expect(err).To(HaveOccurred(), "this suite plays gardenlet, and the landscape has one: run it on one of `make up UNTIL=garden`")
}

// PrepareSeed installs what the instance finds in every seed: the CRDs, of which gardener-operator brings only some, and the
// PriorityClasses of its pods and of those of shoots.
func (l *Landscape) PrepareSeed(ctx context.Context) {
	GinkgoHelper()
	extensions, err := extensioncrds.NewCRD(l.Client, false, true)
	Expect(err).NotTo(HaveOccurred())
	machines, err := machinecontrollermanager.NewCRD(l.Client)
	Expect(err).NotTo(HaveOccurred())
	for _, crds := range []component.DeployWaiter{extensions, machines} {
		DeferCleanup(func(ctx SpecContext) {
			Expect(crds.Destroy(ctx)).To(Succeed())
			Expect(crds.WaitCleanup(ctx)).To(Succeed())
		})
		Expect(crds.Deploy(ctx)).To(Succeed())
		Expect(crds.Wait(ctx)).To(Succeed())
	}

	for name, value := range map[string]int32{
		v1beta1constants.PriorityClassNameSeedSystem900:        999998900,
		v1beta1constants.PriorityClassNameShootControlPlane300: 999998300,
	} {
		priority := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		Expect(client.IgnoreAlreadyExists(l.Client.Create(ctx, priority))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { DeleteAndWait(ctx, l.Client, priority) })
	}
}

// Install does what gardenlet does for a ControllerInstallation (pkg/gardenlet/controller/controllerinstallation), and has it
// undone in the same order. It returns the folder of all buckets.
func (l *Landscape) Install(ctx context.Context) string {
	GinkgoHelper()
	extension, values := l.Registered(ctx)
	hostPath, _, err := unstructured.NestedString(values, "backup", "hostPath")
	Expect(err).NotTo(HaveOccurred())
	Expect(hostPath).To(HavePrefix("/"), "the landscape says where buckets are")

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: InstanceNamespace,
		Labels: map[string]string{
			v1beta1constants.GardenRole:                              v1beta1constants.GardenRoleExtension,
			v1beta1constants.LabelControllerRegistrationName:         registration,
			v1beta1constants.LabelNetworkPolicyAccessTargetAPIServer: "allowed",
			resourcesv1alpha1.HighAvailabilityConfigConsider:         "true",
			"pod-security.kubernetes.io/enforce":                     extension.Annotations[v1beta1constants.AnnotationPodSecurityEnforce],
		},
		Annotations: map[string]string{resourcesv1alpha1.HighAvailabilityConfigZones: "0"},
	}}
	Expect(client.IgnoreAlreadyExists(l.Client.Create(ctx, namespace))).To(Succeed())
	DeferCleanup(l.uninstall)
	l.Deploy(ctx, "0")
	return hostPath
}

// Registered is the Extension of the landscape, with the values that it has for seeds and Values.
func (l *Landscape) Registered(ctx context.Context) (*operatorv1alpha1.Extension, map[string]any) {
	GinkgoHelper()
	extension := &operatorv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: registration}}
	Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
	values := map[string]any{}
	Expect(json.Unmarshal(extension.Spec.Deployment.ExtensionDeployment.Values.Raw, &values)).To(Succeed())
	return extension, utils.MergeMaps(values, l.Values)
}

// Deploy writes the ManagedResource of the instance in a seed with these zones, and waits until that is rolled out.
func (l *Landscape) Deploy(ctx context.Context, zones ...any) {
	GinkgoHelper()
	extension, values := l.Registered(ctx)
	deployment := extension.Spec.Deployment.ExtensionDeployment
	Expect(l.writer.Apply(ctx, resources.ManagedResource{
		Namespace: GardenNamespace,
		Name:      Installation,
		Class:     v1beta1constants.SeedResourceManagerClass,
		Labels:    map[string]string{"controllerinstallation-name": Installation, "controllerregistration-name": registration},
		Objects:   l.render(ctx, deployment.Helm.OCIRepository.GetURL(), utils.MergeMaps(values, injectedValues(zones...))),
	})).To(Succeed())
	mr := Named[*resourcesv1alpha1.ManagedResource](GardenNamespace, Installation)
	Eventually(Get(ctx, l.Client, mr)).Should(WithTransform(health.CheckManagedResourceApplied, Succeed()))
	EventuallyReady(ctx, l.Client, Named[*appsv1.Deployment](InstanceNamespace, Instance))
}

// injectedValues are what gardenlet v1.149 puts over those of the ControllerDeployment.
func injectedValues(zones ...any) map[string]any {
	network := CurrentNetwork()
	networks := map[string]any{"pods": network.Pods, "services": network.Services, "nodes": network.Translate("172.18.0.0/24"), "ipFamilies": []any{"IPv4"}}
	return map[string]any{"gardener": map[string]any{
		"version":   "v1.149.3",
		"garden":    map[string]any{"clusterIdentity": "garden-local"},
		"gardenlet": map[string]any{"featureGates": map[string]any{"DefaultSeccompProfile": true}},
		"seed": map[string]any{
			"name":            SeedName,
			"clusterIdentity": "garden-local-" + SeedName,
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
			"ingressDomain":   "ingress." + SeedName + ".seed.local.gardener.cloud",
			"spec":            map[string]any{"networks": networks, "provider": map[string]any{"type": "local", "region": "local", "zones": zones}},
		},
	}}
}

// render pulls the chart and renders it. The containers are told the name of the seed.
func (l *Landscape) render(ctx context.Context, ref string, values map[string]any) []client.Object {
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

	version, err := l.Clientset.Discovery().ServerVersion()
	Expect(err).NotTo(HaveOccurred())
	renderer, err := chart.NewRenderer(version.GitVersion)
	Expect(err).NotTo(HaveOccurred())
	objects, err := renderer.Render(ctx, source, chart.Release{Name: registration, Namespace: InstanceNamespace}, values)
	Expect(err).NotTo(HaveOccurred())

	for i, obj := range objects {
		if obj.GetObjectKind().GroupVersionKind().Kind != "Deployment" {
			continue
		}
		deployment := &appsv1.Deployment{}
		Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(obj.(*unstructured.Unstructured).Object, deployment)).To(Succeed())
		kubernetesutils.VisitContainers(&deployment.Spec.Template.Spec, func(container *corev1.Container) {
			kubernetesutils.AddEnvVar(container, corev1.EnvVar{Name: v1beta1constants.EnvSeedName, Value: SeedName}, true)
		})
		objects[i] = deployment
	}
	return objects
}

// uninstall takes the instance away and expects that nothing is left of it, and that the garden's instance still has its
// CoreDNS.
func (l *Landscape) uninstall(ctx SpecContext) {
	key := client.ObjectKey{Namespace: GardenNamespace, Name: Installation}
	Eventually(func() (bool, error) { return l.writer.Delete(ctx, key) }).Should(BeTrue(), "the objects of the chart go")
	DeleteAndWait(ctx, l.Client, Named[*corev1.Namespace]("", InstanceNamespace))

	EventuallyGone(ctx, l.Client, Named[*admissionregistrationv1.MutatingWebhookConfiguration]("", Instance))
	EventuallyGone(ctx, l.Client, Named[*resourcesv1alpha1.ManagedResource](GardenNamespace, coredns.ManagedResourceName+"-seed"))
	EventuallyGone(ctx, l.Client, Named[*rbacv1.ClusterRole]("", Instance))
	EventuallyGone(ctx, l.Client, Named[*rbacv1.ClusterRoleBinding]("", Instance))
	EventuallyGone(ctx, l.Client, Named[*rbacv1.Role](CoreDNSNamespace, Instance))

	shared := Named[*resourcesv1alpha1.ManagedResource](GardenNamespace, coredns.ManagedResourceName)
	Eventually(Get(ctx, l.Client, shared)).Should(HaveField("OwnerReferences", ConsistOf(HaveField("Name", GardenInstanceNamespace))), "CoreDNS stays for the garden's instance")
	Eventually(func() []string {
		list := &corev1.ConfigMapList{}
		Expect(l.Client.List(ctx, list, client.InNamespace(CoreDNSNamespace))).To(Succeed())
		var left []string
		for _, configMap := range list.Items {
			if strings.HasPrefix(configMap.Name, coredns.ConfigMapPrefix+"seed-") {
				left = append(left, configMap.Name)
			}
		}
		return left
	}).Should(BeEmpty())
}
