// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package charts_test holds the tests of the chart provider-local: what it renders in both places, with the values that
// gardener-operator and gardenlet really inject, and that no permission in it is wider than it must be.
package charts_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

const (
	chartDirectory = "provider-local"
	digest         = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// gardenValues are what gardener-operator v1.149 renders with: the Extension's runtimeClusterValues below what it
// injects (pkg/operator/controller/extension/extension/runtime).
func gardenValues() map[string]any {
	return map[string]any{
		"gardener": map[string]any{
			"runtimeCluster": map[string]any{
				"enabled":           "true",
				"priorityClassName": "gardener-garden-system-200",
			},
		},
		"image": "registry.local.gardener.cloud:5001/operator-extension" + digest,
		"dns":   map[string]any{"coreDNS": map[string]any{"image": "registry.local.gardener.cloud:5001/coredns" + digest}},
	}
}

// seedValues are what gardenlet v1.149 renders with: the ControllerDeployment's values below what it injects
// (pkg/gardenlet/controller/controllerinstallation/controllerinstallation).
func seedValues() map[string]any {
	networks := map[string]any{
		"pods": "10.1.0.0/16", "services": "10.2.0.0/16", "nodes": "172.18.0.0/24", "ipFamilies": []any{"IPv4"},
		"shootDefaults": map[string]any{"pods": "10.3.0.0/16", "services": "10.4.0.0/16"}, "blockCIDRs": nil,
	}
	return map[string]any{
		"gardener": map[string]any{
			"version": "v1.149.3",
			"garden": map[string]any{
				"clusterIdentity":             "garden-cluster-identity",
				"genericKubeconfigSecretName": "generic-garden-kubeconfig-1234",
			},
			"gardenlet": map[string]any{"featureGates": map[string]any{"DefaultSeccompProfile": true, "IstioTLSTermination": false}},
			"seed": map[string]any{
				"name":            "local",
				"clusterIdentity": "local-cluster-identity",
				"annotations":     nil,
				"labels":          map[string]any{"foo": "bar"},
				"provider":        "local",
				"region":          "local",
				"volumeProvider":  "",
				"volumeProviders": nil,
				"protected":       false,
				"visible":         true,
				"taints":          nil,
				"networks":        networks,
				"blockCIDRs":      nil,
				"ingressDomain":   "ingress.local.seed.local.gardener.cloud",
				"spec":            map[string]any{"networks": networks, "provider": map[string]any{"type": "local", "region": "local"}},
			},
		},
		"image": "registry.local.gardener.cloud:5001/gardenlet-extension" + digest,
		"dns":   map[string]any{"coreDNS": map[string]any{"image": "registry.local.gardener.cloud:5001/coredns" + digest}},
		"controlPlane": map[string]any{
			"localPathProvisioner": map[string]any{"image": "registry.local.gardener.cloud:5001/local-path-provisioner" + digest},
		},
	}
}

// selfHostedValues are what gardenlet renders with on the control plane node of a self-hosted shoot.
func selfHostedValues() map[string]any {
	values := seedValues()
	values["gardener"] = map[string]any{
		"version":                "v1.149.3",
		"garden":                 map[string]any{"clusterIdentity": "garden-cluster-identity"},
		"gardenlet":              map[string]any{"featureGates": map[string]any{}},
		"selfHostedShootCluster": true,
		"shoot":                  map[string]any{"name": "root", "namespace": "garden", "labels": nil, "annotations": nil, "spec": map[string]any{}},
	}
	values["usablePorts"] = []any{10001, 10002, 10003, 10004, 10005}
	return values
}

// with returns values with the value at the given path replaced.
func with(values map[string]any, value any, path ...string) map[string]any {
	inner := values
	for _, key := range path[:len(path)-1] {
		next, ok := inner[key].(map[string]any)
		if !ok {
			next = map[string]any{}
			inner[key] = next
		}
		inner = next
	}
	inner[path[len(path)-1]] = value
	return values
}

// render renders the chart like Gardener does: the values go through JSON, the schema is checked, NOTES.txt is dropped.
// It returns the manifests one after the other, sorted by file.
func render(namespace string, values map[string]any) ([]byte, error) {
	chart, err := loader.LoadDir(chartDirectory)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(values)
	if err != nil {
		return nil, err
	}
	decoded, err := chartutil.ReadValues(data)
	if err != nil {
		return nil, err
	}

	release := chartutil.ReleaseOptions{Name: "provider-local", Namespace: namespace, Revision: 1, IsInstall: true}
	renderValues, err := chartutil.ToRenderValues(chart, decoded, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(chart, renderValues)
	if err != nil {
		return nil, err
	}

	var out bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(files)) {
		content := strings.TrimSpace(files[name])
		if content == "" || strings.HasSuffix(name, "NOTES.txt") {
			continue
		}
		out.WriteString("---\n# Source: " + name + "\n" + content + "\n")
	}
	return out.Bytes(), nil
}

func objects(t *testing.T, namespace string, values map[string]any) []*unstructured.Unstructured {
	t.Helper()
	g := NewWithT(t)

	manifests, err := render(namespace, values)
	g.Expect(err).NotTo(HaveOccurred())

	var (
		out     []*unstructured.Unstructured
		decoder = yaml.NewYAMLOrJSONDecoder(bytes.NewReader(manifests), 4096)
	)
	for {
		obj := &unstructured.Unstructured{}
		if err := decoder.Decode(obj); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatalf("decoding manifest: %v", err)
		}
		if len(obj.Object) > 0 {
			out = append(out, obj)
		}
	}
}

// find returns the object of the kind and name as its own type.
func find[T any](t *testing.T, objs []*unstructured.Unstructured, kind, name string) *T {
	t.Helper()
	for _, obj := range objs {
		if obj.GetKind() == kind && obj.GetName() == name {
			typed := new(T)
			NewWithT(t).Expect(runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(obj.Object, typed, true)).To(Succeed())
			return typed
		}
	}
	t.Fatalf("there is no %s %s", kind, name)
	return nil
}

func names(objs []*unstructured.Unstructured) []string {
	var out []string
	for _, obj := range objs {
		out = append(out, strings.Join([]string{obj.GroupVersionKind().GroupKind().String(), obj.GetNamespace(), obj.GetName()}, "/"))
	}
	return out
}

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

			golden := filepath.Join("testdata", "provider-local-"+name+".golden.yaml")
			if *update {
				g.Expect(os.WriteFile(golden, manifests, 0o600)).To(Succeed())
			}
			expected, err := os.ReadFile(golden) // #nosec G304 -- a golden file
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(string(manifests)).To(Equal(string(expected)), "refresh with: go test ./charts -update")
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

func TestTheConfigurationIsWhatTheProgramReads(t *testing.T) {
	t.Run("without values the defaults hold, and the chart's own copies of them are the same", func(t *testing.T) {
		g := NewWithT(t)
		decoded := config(t, "garden", gardenValues())
		g.Expect(decoded.ExtensionClasses).To(HaveExactElements(BeEquivalentTo("garden")))
		g.Expect(decoded.LeaderElection.ResourceName).To(Equal("gardener-extension-provider-local-garden-leader-election"))
		g.Expect(decoded.LeaderElection.ResourceNamespace).To(Equal("here"))
		g.Expect(*decoded.LeaderElection.LeaderElect).To(BeTrue())
		g.Expect(decoded.DNS.CoreDNS.Image).To(HavePrefix("registry.local.gardener.cloud:5001/coredns@sha256:"))

		pod := find[appsv1.Deployment](t, objects(t, "here", gardenValues()), "Deployment", "gardener-extension-provider-local-garden").Spec.Template.Spec
		g.Expect(pod.Containers[0].VolumeMounts[1].MountPath).To(Equal(decoded.Backup.Directory))
		g.Expect(pod.Volumes[1].HostPath.Path).To(Equal(decoded.Backup.HostPath))
		g.Expect(pod.Containers[0].Ports[0].ContainerPort).To(BeEquivalentTo(decoded.Server.HealthProbes.Port))
		g.Expect(pod.Containers[0].Ports[1].ContainerPort).To(BeEquivalentTo(decoded.Server.Metrics.Port))

		policy, err := render("here", gardenValues())
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(policy)).To(ContainSubstring("kubernetes.io/metadata.name: " + decoded.DNS.CoreDNS.Namespace + "\n"))
	})

	t.Run("each value reaches the program", func(t *testing.T) {
		g := NewWithT(t)
		values := gardenValues()
		maps.Copy(values, map[string]any{
			"logLevel":         "debug",
			"logFormat":        "text",
			"clientConnection": map[string]any{"qps": 7, "burst": 9},
			"leaderElection":   map[string]any{"leaderElect": false, "leaseDuration": "20s", "renewDeadline": "12s", "retryPeriod": "3s"},
			"server":           map[string]any{"healthProbes": map[string]any{"port": 9081}, "metrics": map[string]any{"port": 9080}},
			"controllers": map[string]any{
				"ignoreOperationAnnotation": true,
				"dnsRecord":                 map[string]any{"concurrentSyncs": 3},
				"backupBucket":              map[string]any{"disabled": true},
			},
			"dns": map[string]any{
				"zones": []any{"example.com"}, "defaultTTL": 60,
				"coreDNS": map[string]any{
					"image": map[string]any{"repository": "host/coredns", "tag": "v1"}, "deploy": false, "namespace": "dns", "replicas": 2,
					"clusterIP": "10.2.0.99", "clusterDomain": "cluster.test", "servers": []any{"10.2.0.99:53", "[fd00::1]:53"}, "batchWindow": "10ms", "confirmTimeout": "3s",
				},
			},
			"backup":    map[string]any{"hostPath": "/buckets", "directory": "/mnt/buckets"},
			"heartbeat": map[string]any{"renewIntervalSeconds": 11},
		})
		decoded := config(t, "garden", values)
		g.Expect(decoded.LogLevel).To(Equal("debug"))
		g.Expect(decoded.LogFormat).To(Equal("text"))
		g.Expect(decoded.ClientConnection.Burst).To(BeEquivalentTo(9))
		g.Expect(*decoded.LeaderElection.LeaderElect).To(BeFalse())
		g.Expect(decoded.LeaderElection.RenewDeadline.Duration.String()).To(Equal("12s"))
		g.Expect(decoded.Controllers.IgnoreOperationAnnotation).To(BeTrue())
		g.Expect(*decoded.Controllers.DNSRecord.ConcurrentSyncs).To(Equal(3))
		g.Expect(decoded.Controllers.BackupBucket.Disabled).To(BeTrue())
		g.Expect(decoded.DNS.Zones).To(ConsistOf("example.com"))
		g.Expect(*decoded.DNS.DefaultTTL).To(BeEquivalentTo(60))
		g.Expect(decoded.DNS.CoreDNS.Image).To(Equal("host/coredns:v1"))
		g.Expect(*decoded.DNS.CoreDNS.Deploy).To(BeFalse())
		g.Expect(*decoded.DNS.CoreDNS.Replicas).To(BeEquivalentTo(2))
		g.Expect(decoded.DNS.CoreDNS.Servers).To(ConsistOf("10.2.0.99:53", "[fd00::1]:53"))
		g.Expect(decoded.DNS.CoreDNS.BatchWindow.Duration.String()).To(Equal("10ms"))
		g.Expect(decoded.Backup.Directory).To(Equal("/mnt/buckets"))
		g.Expect(*decoded.Heartbeat.RenewIntervalSeconds).To(BeEquivalentTo(11))

		rendered, err := render("here", values)
		g.Expect(err).NotTo(HaveOccurred())
		manifests := string(rendered)
		for _, expected := range []string{
			"containerPort: 9081", "containerPort: 9080", `prometheus.io/port: "9080"`, `"port":9080`,
			"mountPath: /mnt/buckets", "--directory=/mnt/buckets", "path: /buckets",
			"kubernetes.io/metadata.name: dns\n", "cidr: 10.2.0.99/32", "cidr: fd00::1/128",
		} {
			g.Expect(manifests).To(ContainSubstring(expected))
		}
	})
}

func TestTheConfigurationOfTheSeedIsWhatTheProgramReads(t *testing.T) {
	t.Run("without values the defaults hold, and the chart's own copies of them are the same", func(t *testing.T) {
		g := NewWithT(t)
		decoded := config(t, "seed", seedValues())
		g.Expect(decoded.ExtensionClasses).To(HaveExactElements(BeEquivalentTo("seed"), BeEquivalentTo("shoot")))
		g.Expect(decoded.LeaderElection.ResourceName).To(Equal("gardener-extension-provider-local-seed-leader-election"))
		g.Expect(decoded.Machines.ControllerImage).To(Equal("registry.local.gardener.cloud:5001/gardenlet-extension" + digest))
		g.Expect(decoded.ControlPlane.CloudController.Image).To(Equal(decoded.Machines.ControllerImage))
		g.Expect(decoded.ControlPlane.LocalPathProvisioner.Image).To(HavePrefix("registry.local.gardener.cloud:5001/local-path-provisioner@sha256:"))

		pod := find[appsv1.Deployment](t, objects(t, "here", seedValues()), "Deployment", "gardener-extension-provider-local-seed").Spec.Template.Spec
		g.Expect(pod.Containers[0].Command).To(HaveExactElements("/gardenlet-extension"))
		g.Expect(pod.Containers[0].Ports[2].ContainerPort).To(BeEquivalentTo(decoded.Server.Webhooks.Port))

		service := find[corev1.Service](t, objects(t, "here", seedValues()), "Service", "gardener-extension-provider-local-seed")
		g.Expect(service.Spec.ClusterIP).NotTo(Equal("None"), "the API server calls it by its address")
		g.Expect(service.Spec.Ports[1].Port).To(BeEquivalentTo(*decoded.Webhooks.ServicePort))
		g.Expect(service.Spec.Ports[1].TargetPort.IntValue()).To(Equal(decoded.Server.Webhooks.Port))
	})

	t.Run("each value reaches the program", func(t *testing.T) {
		g := NewWithT(t)
		values := seedValues()
		maps.Copy(values, map[string]any{
			"server":      map[string]any{"webhooks": map[string]any{"port": 9443}},
			"controllers": map[string]any{"controlPlane": map[string]any{"concurrentSyncs": 4}, "healthCheck": map[string]any{"syncPeriod": "2m", "disabled": true}},
			"webhooks":    map[string]any{"servicePort": 8443, "node": map[string]any{"disabled": true}},
			"charts": map[string]any{
				"sources": map[string]any{"coredns": map[string]any{"ref": "example.com/charts/coredns:v1", "pullSecretRef": map[string]any{"name": "pull"}}},
				"cache":   map[string]any{"directory": "/var/cache/here", "maxBytes": "8Mi", "sizeLimit": "16Mi"},
			},
			"controlPlane": map[string]any{
				"localPathProvisioner": map[string]any{"image": map[string]any{"repository": "host/lpp", "tag": "v1"}},
				"cloudController":      map[string]any{"deploy": true, "image": "host/cloud:v1"},
			},
			"machines": map[string]any{"controllerImage": "host/mcm:v1", "registryMirrors": []any{map[string]any{"upstream": "quay.io", "hosts": []any{"http://mirror:5001"}}}},
			"nodes":    map[string]any{"capacity": map[string]any{"cpu": 8, "memory": "16Gi"}},
		})
		decoded := config(t, "seed", values)
		g.Expect(decoded.Server.Webhooks.Port).To(Equal(9443))
		g.Expect(*decoded.Controllers.ControlPlane.ConcurrentSyncs).To(Equal(4))
		g.Expect(decoded.Controllers.HealthCheck.Disabled).To(BeTrue())
		g.Expect(decoded.Controllers.HealthCheck.SyncPeriod.Duration.String()).To(Equal("2m0s"))
		g.Expect(*decoded.Webhooks.ServicePort).To(Equal(8443))
		g.Expect(decoded.Webhooks.Node.Disabled).To(BeTrue())
		g.Expect(decoded.Charts.Sources["coredns"].PullSecretRef.Name).To(Equal("pull"))
		g.Expect(decoded.Charts.Cache.MaxBytes.String()).To(Equal("8Mi"))
		g.Expect(decoded.ControlPlane.LocalPathProvisioner.Image).To(Equal("host/lpp:v1"))
		g.Expect(*decoded.ControlPlane.CloudController.Deploy).To(BeTrue())
		g.Expect(decoded.ControlPlane.CloudController.Image).To(Equal("host/cloud:v1"))
		g.Expect(decoded.Machines.ControllerImage).To(Equal("host/mcm:v1"))
		g.Expect(decoded.Machines.RegistryMirrors[0].Server).To(Equal("https://quay.io"))
		g.Expect(decoded.Nodes.Capacity.CPU.String()).To(Equal("8"))
		g.Expect(decoded.Nodes.Capacity.Memory.String()).To(Equal("16Gi"))

		pod := find[appsv1.Deployment](t, objects(t, "here", values), "Deployment", "gardener-extension-provider-local-seed").Spec.Template.Spec
		g.Expect(pod.Containers[0].VolumeMounts[2].MountPath).To(Equal(decoded.Charts.Cache.Directory))
		g.Expect(pod.Volumes[2].EmptyDir.SizeLimit.String()).To(Equal("16Mi"))
	})

	t.Run("on a self-hosted control plane the free ports of the host are used", func(t *testing.T) {
		g := NewWithT(t)
		decoded := config(t, "seed", selfHostedValues())
		g.Expect(decoded.Server.HealthProbes.Port).To(Equal(10001))
		g.Expect(decoded.Server.Metrics.Port).To(Equal(10002))
		g.Expect(decoded.Server.Webhooks.Port).To(Equal(10003))
		pod := find[appsv1.Deployment](t, objects(t, "here", selfHostedValues()), "Deployment", "gardener-extension-provider-local-seed").Spec.Template.Spec
		g.Expect(pod.Containers[0].Ports[2].ContainerPort).To(BeEquivalentTo(10003))
	})
}

func TestAChangedConfigurationRollsThePods(t *testing.T) {
	for place, values := range places() {
		t.Run(place, func(t *testing.T) {
			g := NewWithT(t)
			checksum := func(values map[string]any) string {
				deployment := find[appsv1.Deployment](t, objects(t, "here", values), "Deployment", "gardener-extension-provider-local-"+place)
				return deployment.Spec.Template.Annotations["checksum/config"]
			}
			g.Expect(checksum(values())).To(HaveLen(64))
			g.Expect(checksum(values())).To(Equal(checksum(values())))
			g.Expect(checksum(with(values(), "debug", "logLevel"))).NotTo(Equal(checksum(values())))
		})
	}
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

func TestPermissionsAreNoWiderThanTheyMustBe(t *testing.T) {
	// What a ClusterRole may not hold at all, and where it may create or delete: namespaces of shoots come and go.
	forbidden := map[string][]string{
		"garden": {"secrets", "configmaps", "pods", "leases", "managedresources", "nodes"},
		"seed":   {"configmaps", "leases", "clusterrolebindings", "rolebindings", "serviceaccounts"},
	}
	mayCreate := map[string][]string{"garden": nil, "seed": {
		"secrets", "managedresources", "mutatingwebhookconfigurations", "networkpolicies", "dnsrecords", "events",
		"machineclasses", "machinedeployments", "machines", "machinesets", "pods", "services", "ippools",
	}}
	// Of these only objects of some names may be seen or changed.
	onlyNamed := []string{"deployments", "deployments/scale", "roles", "clusterroles"}
	roles := map[string]int{"garden": 3, "seed": 2}

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
					g.Expect(rule.Verbs).NotTo(ContainElement(BeElementOf("deletecollection", "impersonate", "bind")))
					if slices.Contains(rule.Verbs, "escalate") {
						g.Expect(rule.Resources).To(HaveExactElements("roles"), "in a ClusterRole it would give away the cluster")
						g.Expect(rule.ResourceNames).To(HaveExactElements("machine-controller-manager"))
					}
					if obj.GetKind() != "ClusterRole" {
						continue
					}
					for _, resource := range rule.Resources {
						g.Expect(forbidden[place]).NotTo(ContainElement(resource))
						g.Expect(!slices.Contains(onlyNamed, resource) || len(rule.ResourceNames) > 0).To(BeTrue(), resource)
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

// config is the configuration of the program that the chart renders for a place.
func config(t *testing.T, place string, values map[string]any) *configv1alpha1.ExtensionConfiguration {
	t.Helper()
	configMap := find[corev1.ConfigMap](t, objects(t, "here", values), "ConfigMap", "gardener-extension-provider-local-"+place+"-config")
	decoded, err := configv1alpha1.Decode([]byte(configMap.Data["config.yaml"]))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return decoded
}

// places are the values of both places.
func places() map[string]func() map[string]any {
	return map[string]func() map[string]any{"garden": gardenValues, "seed": seedValues}
}

func TestTheSchemaAcceptsOnlyWhatThereIs(t *testing.T) {
	for name, tc := range map[string]struct {
		values map[string]any
		says   string
	}{
		"a misspelt section":                 {with(gardenValues(), "x", "imagge"), "imagge"},
		"a misspelt controller":              {with(gardenValues(), map[string]any{}, "controllers", "dnsRecords"), "dnsRecords"},
		"a misspelt field of a controller":   {with(gardenValues(), 5, "controllers", "dnsRecord", "concurrentSync"), "concurrentSync"},
		"a misspelt field of CoreDNS":        {with(gardenValues(), "10.2.0.9", "dns", "coreDNS", "clusterIp"), "clusterIp"},
		"the Lease's name, which is fixed":   {with(gardenValues(), "mine", "leaderElection", "resourceName"), "resourceName"},
		"a class, which is fixed":            {with(gardenValues(), []any{"shoot"}, "extensionClasses"), "extensionClasses"},
		"a relative folder":                  {with(gardenValues(), "buckets", "backup", "hostPath"), "hostPath"},
		"no replicas but a word":             {with(gardenValues(), "many", "replicas"), "replicas"},
		"a digest that is none":              {with(gardenValues(), map[string]any{"repository": "a", "digest": "sha256:1"}, "image"), "digest"},
		"an unknown log level":               {with(gardenValues(), "chatty", "logLevel"), "logLevel"},
		"a garden that is neither nor":       {with(gardenValues(), "yes", "gardener", "runtimeCluster", "enabled"), "enabled"},
		"no image in a seed":                 {with(seedValues(), "", "image"), "spec.deployment.extension.values"},
		"no image for volumes in a seed":     {with(seedValues(), map[string]any{}, "controlPlane"), "controlPlane.localPathProvisioner.image is needed"},
		"a component that isn't there":       {with(seedValues(), 5, "charts", "source"), "source"},
		"a webhook that isn't there":         {with(seedValues(), map[string]any{}, "webhooks", "nodes"), "nodes"},
		"no image in the garden":             {with(gardenValues(), "", "image"), "image is needed"},
		"no image for CoreDNS in the garden": {with(gardenValues(), "", "dns", "coreDNS", "image"), "dns.coreDNS.image is needed"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := render("here", tc.values)
			g.Expect(err).To(MatchError(ContainSubstring(tc.says)))
		})
	}
}

func TestTheSchemaHasEveryFieldOfTheConfiguration(t *testing.T) {
	g := NewWithT(t)
	content, err := os.ReadFile(filepath.Join(chartDirectory, "values.schema.json"))
	g.Expect(err).NotTo(HaveOccurred())
	schema := map[string]any{}
	g.Expect(json.Unmarshal(content, &schema)).To(Succeed())

	configuration := reflect.TypeFor[configv1alpha1.ExtensionConfiguration]()
	for _, section := range []string{"Server", "Controllers", "DNS", "Backup", "Heartbeat", "Webhooks", "Charts", "ControlPlane", "Machines", "Nodes", "LoadBalancers", "Ingress"} {
		field, ok := configuration.FieldByName(section)
		g.Expect(ok).To(BeTrue())
		expectFields(t, schema, schema, field)
	}
}

// expectFields expects the field of a struct, and all that it has itself, among the properties of a schema.
func expectFields(t *testing.T, root, schema map[string]any, field reflect.StructField) {
	t.Helper()
	g := NewWithT(t)

	name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
	properties, _ := schema["properties"].(map[string]any)
	g.Expect(properties).To(HaveKey(name), "values.schema.json lacks a field of the configuration")

	property, _ := properties[name].(map[string]any)
	if ref, ok := property["$ref"].(string); ok {
		definitions, _ := root["definitions"].(map[string]any)
		property, _ = definitions[strings.TrimPrefix(ref, "#/definitions/")].(map[string]any)
	}
	fieldType := field.Type
	if fieldType.Kind() == reflect.Pointer {
		fieldType = fieldType.Elem()
	}
	if fieldType.Kind() == reflect.Struct && fieldType.PkgPath() == reflect.TypeFor[configv1alpha1.ExtensionConfiguration]().PkgPath() {
		for i := range fieldType.NumField() {
			if inner := fieldType.Field(i); inner.Anonymous {
				for j := range inner.Type.NumField() {
					expectFields(t, root, property, inner.Type.Field(j))
				}
				continue
			}
			expectFields(t, root, property, fieldType.Field(i))
		}
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
