// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"maps"
	"testing"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

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
				"zones": []any{"example.com"}, "reservedDomains": []any{"garden.example.com"}, "defaultTTL": 60,
				"coreDNS": map[string]any{
					"image": map[string]any{"repository": "host/coredns", "tag": "v1"}, "deploy": false, "namespace": "dns", "replicas": 2,
					"clusterIP": "10.2.0.99", "clusterDomain": "cluster.test", "servers": []any{"10.2.0.99:53", "[fd00::1]:53"}, "batchWindow": "10ms", "confirmTimeout": "3s",
				},
			},
			"backup": map[string]any{"hostPath": "/buckets", "directory": "/mnt/buckets"},
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
		g.Expect(decoded.DNS.ReservedDomains).To(HaveExactElements("garden.example.com"))
		g.Expect(decoded.DNS.CoreDNS.Image).To(Equal("host/coredns:v1"))
		g.Expect(*decoded.DNS.CoreDNS.Deploy).To(BeFalse())
		g.Expect(*decoded.DNS.CoreDNS.Replicas).To(BeEquivalentTo(2))
		g.Expect(decoded.DNS.CoreDNS.Servers).To(ConsistOf("10.2.0.99:53", "[fd00::1]:53"))
		g.Expect(decoded.DNS.CoreDNS.BatchWindow.Duration.String()).To(Equal("10ms"))
		g.Expect(decoded.Backup.Directory).To(Equal("/mnt/buckets"))

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
			"controllers": map[string]any{"forceDeleteTest": true, "controlPlane": map[string]any{"concurrentSyncs": 4}, "healthCheck": map[string]any{"syncPeriod": "2m", "disabled": true}},
			"webhooks":    map[string]any{"servicePort": 8443, "node": map[string]any{"disabled": true}},
			"charts": map[string]any{
				"sources": map[string]any{"coredns": map[string]any{"ref": "example.com/charts/coredns:v1", "pullSecretRef": map[string]any{"name": "pull"}}},
				"cache":   map[string]any{"directory": "/var/cache/here", "maxBytes": "8Mi", "sizeLimit": "16Mi"},
			},
			"controlPlane": map[string]any{
				"localPathProvisioner": map[string]any{"image": map[string]any{"repository": "host/lpp", "tag": "v1"}},
				"cloudController":      map[string]any{"deploy": true, "image": "host/cloud:v1"},
			},
			"machines": map[string]any{"controllerImage": "host/mcm:v1", "allowedSizings": []any{"Exact", "Unlimited"}, "nodeCIDRs": []any{"198.51.100.0/24"}, "remote": map[string]any{"allowedCIDRs": []any{"10.0.0.0/8"}}, "registryMirrors": []any{map[string]any{"upstream": "quay.io", "hosts": []any{"http://mirror:5001"}}}},
			"nodes":    map[string]any{"capacity": map[string]any{"cpu": 8, "memory": "16Gi"}},
		})
		decoded := config(t, "seed", values)
		g.Expect(decoded.Server.Webhooks.Port).To(Equal(9443))
		g.Expect(decoded.Controllers.ForceDeleteTest).To(BeTrue())
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
		g.Expect(decoded.Machines.Remote.AllowedCIDRs).To(Equal([]string{"10.0.0.0/8"}))
		g.Expect(decoded.Machines.AllowedSizings).To(HaveExactElements(BeEquivalentTo("Exact"), BeEquivalentTo("Unlimited")))
		g.Expect(decoded.Machines.NodeCIDRs).To(Equal([]string{"198.51.100.0/24"}))
		g.Expect(decoded.Machines.RegistryMirrors[0].Server).To(Equal("https://quay.io"))
		g.Expect(decoded.Nodes.Capacity.CPU.String()).To(Equal("8"))
		g.Expect(decoded.Nodes.Capacity.Memory.String()).To(Equal("16Gi"))

		pod := find[appsv1.Deployment](t, objects(t, "here", values), "Deployment", "gardener-extension-provider-local-seed").Spec.Template.Spec
		g.Expect(pod.Containers[0].VolumeMounts[2].MountPath).To(Equal(decoded.Charts.Cache.Directory))
		g.Expect(pod.Volumes[2].EmptyDir.SizeLimit.String()).To(Equal("16Mi"))
	})

	t.Run("on a self-hosted control plane the free ports of the host are used", func(t *testing.T) {
		g := NewWithT(t)
		decoded := config(t, "seed", with(selfHostedValues(), "10.96.0.53", "dns", "coreDNS", "clusterIP"))
		g.Expect(decoded.SelfHostedShootCluster).To(BeTrue())
		g.Expect(decoded.DNS.CoreDNS.ServiceNetwork).To(Equal("100.64.0.0/16"), "the address is for the clusters that have it")
		g.Expect(decoded.Server.HealthProbes.Port).To(Equal(10001))
		g.Expect(decoded.Server.Metrics.Port).To(Equal(10002))
		g.Expect(decoded.Server.Webhooks.Port).To(Equal(10003))
		pod := find[appsv1.Deployment](t, objects(t, "here", selfHostedValues()), "Deployment", "gardener-extension-provider-local-seed").Spec.Template.Spec
		g.Expect(pod.Containers[0].Ports[2].ContainerPort).To(BeEquivalentTo(10003))
	})
}

func TestASeedMayHaveLoadBalancersOfItsOwn(t *testing.T) {
	g := NewWithT(t)
	values := with(seedValues(), map[string]any{"pools": []any{"10.0.1.0/24"}}, "loadBalancers")
	values = with(values, map[string]any{"other": map[string]any{"pools": []any{"10.0.2.0/24"}}}, "seedLoadBalancers")
	for seed, pool := range map[string]string{"one": "10.0.1.0/24", "other": "10.0.2.0/24"} {
		decoded := config(t, "seed", with(values, seed, "gardener", "seed", "name"))
		g.Expect(decoded.LoadBalancers.Pools).To(HaveExactElements(pool), seed)
	}
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
