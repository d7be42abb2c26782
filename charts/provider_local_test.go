// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gardener/gardener/pkg/client/kubernetes"
	gardenerprometheus "github.com/gardener/gardener/pkg/component/observability/monitoring/prometheus"
	"github.com/gardener/gardener/pkg/utils/managedresources"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

func TestWhatEachPlaceDeploysIsInTheGoldenFile(t *testing.T) {
	for name, tc := range map[string]struct {
		namespace string
		values    map[string]any
	}{
		"garden": {"runtime-extension-provider-local", gardenValues()},
		"seed":   {"extension-provider-local-abcde", seedValues()},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			manifests, err := render(tc.namespace, tc.values)
			g.Expect(err).NotTo(HaveOccurred())
			expectGolden(t, "provider-local-"+name, manifests)
		})
	}
}

func TestThePlaceIsToldByWhatGardenerInjects(t *testing.T) {
	for name, tc := range map[string]struct {
		values map[string]any
		garden bool
	}{
		"gardener-operator's string makes it the garden":          {gardenValues(), true},
		"a boolean makes it the garden":                           {with(gardenValues(), true, "gardener", "runtimeCluster", "enabled"), true},
		"the string false does not":                               {with(seedValues(), "false", "gardener", "runtimeCluster", "enabled"), false},
		"clusterTypes alone makes it the garden":                  {with(gardenValues(), map[string]any{"clusterTypes": map[string]any{"gardenRuntimeCluster": true}}, "gardener"), true},
		"clusterTypes of a seed does not":                         {with(seedValues(), map[string]any{"gardenRuntimeCluster": false, "seed": true}, "gardener", "clusterTypes"), false},
		"gardenlet makes it a seed":                               {seedValues(), false},
		"gardenlet of a self-hosted shoot makes it a seed":        {selfHostedValues(), false},
		"runtimeCluster without a value is no garden runtime one": {with(seedValues(), nil, "gardener", "runtimeCluster"), false},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			all := names(objects(t, "somewhere", tc.values))
			garden := ContainElement("Deployment.apps/somewhere/gardener-extension-provider-local-garden")
			seed := ContainElement("Deployment.apps/somewhere/gardener-extension-provider-local-seed")
			if tc.garden {
				g.Expect(all).To(And(garden, Not(seed)))
			} else {
				g.Expect(all).To(And(seed, Not(garden)))
			}
		})
	}
}

func TestBothReleasesCanStandInOneNamespaceOfOneCluster(t *testing.T) {
	g := NewWithT(t)

	garden, seed := names(objects(t, "same", gardenValues())), names(objects(t, "same", seedValues()))
	g.Expect(garden).NotTo(BeEmpty())
	g.Expect(seed).NotTo(BeEmpty())

	all := slices.Sorted(slices.Values(append(garden, seed...)))
	g.Expect(slices.Compact(slices.Clone(all))).To(Equal(all), "no object may be named twice, be it by one release or by both")

	for _, name := range all {
		g.Expect(name).To(Or(
			ContainSubstring("/gardener-extension-provider-local-garden"),
			ContainSubstring("/gardener-extension-provider-local-seed"),
		))
		g.Expect(strings.ToLower(name)).NotTo(ContainSubstring("namespace/"), "a release must not own the namespace that CoreDNS shares")
	}
	g.Expect(strings.Join(all, "\n")).NotTo(MatchRegexp("(?i)deployment.*coredns"), "CoreDNS belongs to no release")
}

func TestTheGardensOwnNamespaceCanHoldTheRelease(t *testing.T) {
	g := NewWithT(t)
	all := slices.Sorted(slices.Values(names(objects(t, "garden", gardenValues()))))
	g.Expect(slices.Compact(slices.Clone(all))).To(Equal(all))
}

func TestThePodRunsWithAsLittleAsItCan(t *testing.T) {
	for place, values := range places() {
		t.Run(place, func(t *testing.T) {
			g := NewWithT(t)
			name := "gardener-extension-provider-local-" + place
			pod := find[appsv1.Deployment](t, objects(t, "here", values()), "Deployment", name).Spec.Template.Spec

			g.Expect(*pod.SecurityContext.RunAsNonRoot).To(BeTrue())
			g.Expect(*pod.SecurityContext.RunAsUser).To(BeEquivalentTo(65532))
			g.Expect(pod.PriorityClassName).To(Equal(map[string]string{"garden": "gardener-garden-system-200", "seed": "gardener-system-900"}[place]))
			g.Expect(pod.HostNetwork).To(BeFalse())
			for _, container := range append(slices.Clone(pod.InitContainers), pod.Containers...) {
				security := container.SecurityContext
				g.Expect(*security.ReadOnlyRootFilesystem).To(BeTrue(), container.Name)
				g.Expect(*security.AllowPrivilegeEscalation).To(BeFalse(), container.Name)
				g.Expect(security.Privileged).To(BeNil(), container.Name)
				g.Expect(security.Capabilities.Drop).To(HaveExactElements(BeEquivalentTo("ALL")), container.Name)
			}
			g.Expect(pod.Containers[0].SecurityContext.Capabilities.Add).To(BeEmpty())
			g.Expect(pod.InitContainers).To(HaveLen(1))
			for _, volume := range pod.Volumes {
				if volume.Name != "backup" {
					g.Expect(volume.HostPath).To(BeNil(), "only the buckets are on the node")
				}
			}

			withoutInit := find[appsv1.Deployment](t, objects(t, "here", with(values(), false, "backup", "prepareDirectory")), "Deployment", name)
			g.Expect(withoutInit.Spec.Template.Spec.InitContainers).To(BeEmpty())
		})
	}
}

func TestADebuggerMayStopThePod(t *testing.T) {
	g := NewWithT(t)
	for _, debug := range []bool{false, true} {
		deployment := find[appsv1.Deployment](t, objects(t, "here", with(seedValues(), debug, "debug")), "Deployment", "gardener-extension-provider-local-seed")
		container := deployment.Spec.Template.Spec.Containers[0]
		g.Expect(container.LivenessProbe == nil).To(Equal(debug))
		g.Expect(container.ReadinessProbe).NotTo(BeNil())
	}
}

func TestPermissionsAreNoWiderThanTheyMustBe(t *testing.T) {
	// What a ClusterRole may not hold at all, and where it may create or delete: namespaces of shoots come and go.
	forbidden := map[string][]string{
		"garden": {"secrets", "configmaps", "pods", "leases", "managedresources", "nodes"},
		"seed":   {"configmaps", "leases", "clusterrolebindings", "roles", "serviceaccounts"},
	}
	mayCreate := map[string][]string{"garden": {"events"}, "seed": {
		"secrets", "managedresources", "mutatingwebhookconfigurations", "networkpolicies", "dnsrecords", "events",
		"machineclasses", "machinedeployments", "machines", "machinesets", "pods", "services", "ippools", "rolebindings",
	}}
	// Of these only objects of some names may be seen or changed.
	onlyNamed := []string{"deployments", "deployments/scale", "rolebindings"}
	roles := map[string]int{"garden": 4, "seed": 4}

	for place, values := range places() {
		t.Run(place, func(t *testing.T) {
			g := NewWithT(t)
			var seen int
			for _, obj := range objects(t, "here", values()) {
				if kind := obj.GetKind(); kind != "ClusterRole" && kind != "Role" {
					continue
				}
				seen++
				role := &rbacv1.ClusterRole{}
				g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(obj.Object, role)).To(Succeed())
				for _, rule := range role.Rules {
					all := slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.NonResourceURLs)
					g.Expect(strings.Join(all, " ")).NotTo(ContainSubstring("*"), "%s %s", obj.GetKind(), obj.GetName())
					g.Expect(rule.Verbs).NotTo(ContainElement(BeElementOf("impersonate", "bind", "escalate")))
					if slices.Contains(rule.Verbs, "deletecollection") {
						g.Expect(rule.Resources).To(HaveEach(BeElementOf(
							"secrets", "networkpolicies", "machineclasses", "machinedeployments", "machines", "machinesets",
						)), "of these, all of a shoot are deleted")
						g.Expect(obj.GetName()).To(Equal("gardener-extension-provider-local-seed"))
					}
					if slices.Contains(rule.Verbs, "update") {
						g.Expect(rule.Resources).To(HaveEach(Or(Equal("leases"), HaveSuffix("/finalizers"))), "all else is written by patches")
					}
					if obj.GetKind() != "ClusterRole" {
						continue
					}
					for _, resource := range rule.Resources {
						g.Expect(forbidden[place]).NotTo(ContainElement(resource))
						g.Expect(!slices.Contains(onlyNamed, resource) || len(rule.ResourceNames) > 0).To(BeTrue(), resource)
						if place == "garden" && strings.HasPrefix(resource, "services") && slices.Contains(rule.Verbs, "patch") {
							g.Expect(rule.ResourceNames).To(ConsistOf(gardenServiceNames()), "the load balancers that a garden needs")
						}
						if !slices.Contains(mayCreate[place], resource) {
							g.Expect(rule.Verbs).NotTo(ContainElement(BeElementOf("create", "delete")), resource)
						}
					}
				}
			}
			g.Expect(seen).To(Equal(roles[place]))
		})
	}
}

// gardenServiceNames are the names of the Services that the garden instance serves.
func gardenServiceNames() []string {
	var out []string
	for _, service := range configv1alpha1.GardenServices(configv1alpha1.DefaultCoreDNSNamespace) {
		out = append(out, service.Name)
	}
	return out
}

func TestMemoryIsLimitedAndGoKnows(t *testing.T) {
	limit := func(value any) map[string]any { return map[string]any{"limits": map[string]any{"memory": value}} }
	for name, test := range map[string]struct {
		resources  map[string]any
		limit, aim string
	}{
		"by default":              {nil, "1Gi", "966367641"},
		"another limit":           {limit("512Mi"), "512Mi", "483183820"},
		"bytes":                   {limit("1000000000"), "1G", "900000000"},
		"a unit that is not read": {limit("1.5Gi"), "1536Mi", ""},
		"none":                    {map[string]any{"limits": nil}, "0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for chart, objs := range map[string][]*unstructured.Unstructured{
				"gardener-extension-provider-local-garden": objects(t, "here", withResources(gardenValues(), test.resources)),
				"gardener-extension-provider-local-seed":   objects(t, "here", withResources(seedValues(), test.resources)),
				"gardener-extension-admission-local":       admissionObjects(t, "runtime", "here", withResources(admissionRuntimeValues(), test.resources)),
			} {
				g := NewWithT(t)
				container := find[appsv1.Deployment](t, objs, "Deployment", chart).Spec.Template.Spec.Containers[0]
				g.Expect(container.Resources.Limits.Memory().Cmp(resource.MustParse(test.limit))).To(BeZero(), chart)
				aim := HaveField("Name", "GOMEMLIMIT")
				if test.aim == "" {
					g.Expect(container.Env).NotTo(ContainElement(aim), chart)
				} else {
					g.Expect(container.Env).To(ContainElement(And(aim, HaveField("Value", test.aim))), chart)
				}
				vpa := find[vpaautoscalingv1.VerticalPodAutoscaler](t, objs, "VerticalPodAutoscaler", chart)
				g.Expect(*vpa.Spec.ResourcePolicy.ContainerPolicies[0].ControlledValues).To(Equal(vpaautoscalingv1.ContainerControlledValuesRequestsOnly), "the limit stays")
			}
		})
	}
}

func TestAVPACanBeOff(t *testing.T) {
	for chart, objs := range map[string][]*unstructured.Unstructured{
		"gardener-extension-provider-local-seed": objects(t, "here", with(seedValues(), "Off", "vpa", "updateMode")),
		"gardener-extension-admission-local":     admissionObjects(t, "runtime", "here", with(admissionRuntimeValues(), "Off", "vpa", "updateMode")),
	} {
		vpa := find[vpaautoscalingv1.VerticalPodAutoscaler](t, objs, "VerticalPodAutoscaler", chart)
		NewWithT(t).Expect(*vpa.Spec.UpdatePolicy.UpdateMode).To(Equal(vpaautoscalingv1.UpdateModeOff), "which is no boolean")
	}
}

func withResources(values, resources map[string]any) map[string]any {
	if resources == nil {
		return values
	}
	return with(values, resources, "resources")
}

func TestMetricsCanBeForThoseOnlyWhoMayGetThem(t *testing.T) {
	g := NewWithT(t)
	for place, values := range map[string]map[string]any{"garden": gardenValues(), "seed": seedValues()} {
		name := "gardener-extension-provider-local-" + place
		g.Expect(names(objects(t, "here", values))).NotTo(ContainElement(HaveSuffix("-metrics")), place)

		secure := with(values, true, "server", "secureMetrics")
		g.Expect(config(t, place, secure).Server.SecureMetrics).To(BeTrue())
		objs := objects(t, "here", secure)
		expectReviews(t, objs, name+"-metrics")
		pod := find[appsv1.Deployment](t, objs, "Deployment", name).Spec.Template
		g.Expect(pod.Annotations).NotTo(HaveKey("prometheus.io/scrape"), "who goes by it shows no token")

		i := slices.IndexFunc(objs, func(obj *unstructured.Unstructured) bool { return obj.GetKind() == "ServiceMonitor" })
		g.Expect(i).NotTo(Equal(-1), place)
		monitor := objs[i]
		g.Expect(monitor.GetLabels()).To(HaveKeyWithValue("prometheus", place))
		endpoints, _, err := unstructured.NestedSlice(monitor.Object, "spec", "endpoints")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(endpoints[0]).To(And(HaveKeyWithValue("scheme", "https"), HaveKeyWithValue("bearerTokenFile", "/var/run/secrets/kubernetes.io/serviceaccount/token")))
	}

	g.Expect(names(admissionObjects(t, "runtime", "here", admissionRuntimeValues()))).NotTo(ContainElement(HaveSuffix("-metrics")))
	expectReviews(t, admissionObjects(t, "runtime", "here", with(admissionRuntimeValues(), true, "server", "secureMetrics")), "gardener-extension-admission-local-metrics")
}

func TestGardenersPrometheusReadsTheTokenThatAServiceMonitorNames(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithScheme(kubernetes.SeedScheme).Build()
	g.Expect(gardenerprometheus.New(logr.Discard(), c, "garden", gardenerprometheus.Values{Name: "seed", Replicas: 1}).Deploy(t.Context())).To(Succeed())
	objs, err := managedresources.GetObjects(t.Context(), c, "garden", "prometheus-seed")
	g.Expect(err).NotTo(HaveOccurred())
	i := slices.IndexFunc(objs, func(obj client.Object) bool { return obj.GetObjectKind().GroupVersionKind().Kind == "Prometheus" })
	g.Expect(i).NotTo(Equal(-1))
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(objs[i])
	g.Expect(err).NotTo(HaveOccurred())
	spec := object["spec"].(map[string]any)
	g.Expect(spec).To(HaveKeyWithValue("serviceAccountName", "prometheus-seed"))
	g.Expect(spec).NotTo(HaveKeyWithValue("arbitraryFSAccessThroughSMs", HaveKey("deny")), "then the ServiceMonitor has to name a Secret")
}

// expectReviews looks for the permission to ask who somebody is and what they may do, and for nothing else.
func expectReviews(t *testing.T, objs []*unstructured.Unstructured, name string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(find[rbacv1.ClusterRole](t, objs, "ClusterRole", name).Rules).To(HaveExactElements(
		rbacv1.PolicyRule{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"tokenreviews"}, Verbs: []string{"create"}},
		rbacv1.PolicyRule{APIGroups: []string{"authorization.k8s.io"}, Resources: []string{"subjectaccessreviews"}, Verbs: []string{"create"}},
	))
	g.Expect(find[rbacv1.ClusterRoleBinding](t, objs, "ClusterRoleBinding", name).RoleRef.Name).To(Equal(name))
}

func TestAFixedAddressOfCoreDNSIsMeantForTheRangeOfTheSeed(t *testing.T) {
	g := NewWithT(t)
	values := seedValues()
	g.Expect(config(t, "seed", values).DNS.CoreDNS.ServiceNetwork).To(BeEmpty(), "there is no fixed address")
	values["dns"].(map[string]any)["coreDNS"].(map[string]any)["clusterIP"] = "10.96.0.53"
	coreDNS := config(t, "seed", values).DNS.CoreDNS
	g.Expect(coreDNS.ClusterIP).To(Equal("10.96.0.53"))
	g.Expect(coreDNS.ServiceNetwork).To(Equal("10.2.0.0/16"), "which gardenlet tells")
}

func TestChartsFromARegistryNeedARoomAndAWayThere(t *testing.T) {
	source := map[string]any{"coredns": map[string]any{"ref": "example.com/charts/coredns:v1"}}
	for place, values := range places() {
		t.Run(place, func(t *testing.T) {
			g := NewWithT(t)
			name := "gardener-extension-provider-local-" + place
			secretsOf := func(objs []*unstructured.Unstructured) []string {
				var verbs []string
				for _, rule := range find[rbacv1.Role](t, objs, "Role", name+"-instance").Rules {
					if slices.Contains(rule.Resources, "secrets") {
						verbs = append(verbs, rule.Verbs...)
					}
				}
				return verbs
			}
			without, with := objects(t, "here", values()), objects(t, "here", with(values(), source, "charts", "sources"))
			g.Expect(secretsOf(without)).To(BeEmpty())
			if place == "garden" {
				g.Expect(secretsOf(with)).To(HaveExactElements("get"), "the credentials of the registry; in a seed the ClusterRole has them")
			}

			pod := find[appsv1.Deployment](t, with, "Deployment", name).Spec.Template
			g.Expect(pod.Labels).To(HaveKeyWithValue("networking.gardener.cloud/to-public-networks", "allowed"))
			g.Expect(pod.Spec.Volumes).To(ContainElement(HaveField("Name", "charts")))
			pod = find[appsv1.Deployment](t, without, "Deployment", name).Spec.Template
			if place == "garden" {
				g.Expect(pod.Labels).NotTo(HaveKey("networking.gardener.cloud/to-public-networks"))
			}
			g.Expect(pod.Spec.Volumes).NotTo(ContainElement(HaveField("Name", "charts")))
		})
	}
}

func TestASeedsInstanceReachesTheClustersOfMachinesElsewhere(t *testing.T) {
	g := NewWithT(t)
	pod := find[appsv1.Deployment](t, objects(t, "here", places()["seed"]()), "Deployment", "gardener-extension-provider-local-seed").Spec.Template
	for _, network := range []string{"public", "private"} {
		g.Expect(pod.Labels).To(HaveKeyWithValue("networking.gardener.cloud/to-"+network+"-networks", "allowed"))
	}
}

func TestHelmLintFindsNothing(t *testing.T) {
	for name, values := range map[string]map[string]any{"garden": gardenValues(), "seed": seedValues()} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			version, err := chartutil.ParseKubeVersion("v1.36.0")
			g.Expect(err).NotTo(HaveOccurred())
			for _, message := range lint.AllWithKubeVersion(chartDirectory, values, "here", version).Messages {
				g.Expect(message.Severity).To(BeNumerically("<", support.WarningSev), message.Error())
			}
		})
	}
}
