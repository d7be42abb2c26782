// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"encoding/base64"
	"flag"
	"os"
	"path/filepath"
	"testing"

	"github.com/BurntSushi/toml"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/original/components"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/original/components/kubelet"
	oscutils "github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/utils"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files anew")

const (
	kubeletFile = "/var/lib/kubelet/config/kubelet"
	b64         = string(extensionsv1alpha1.B64FileCodecID)
)

func labelsOf(obj client.Object) labels.Set { return obj.GetLabels() }

func testMirrors() []configv1alpha1.RegistryMirror {
	return []configv1alpha1.RegistryMirror{
		{Upstream: "registry.k8s.io", Server: "https://registry.k8s.io", Hosts: []string{"http://registry.local.gardener.cloud:5001"}},
		{Upstream: "registry.local.gardener.cloud:5001", Server: "http://registry.local.gardener.cloud:5001", Hosts: []string{"http://10.0.0.1:5001", "https://mirror.example.com/v2/local"}},
	}
}

// reconcileOSC is an OperatingSystemConfig with the kubelet configuration that Gardener writes for a Shoot that wants the
// kubelet to fail on swap.
func reconcileOSC(t *testing.T, encoding string) *extensionsv1alpha1.OperatingSystemConfig {
	t.Helper()
	config := kubelet.Config([]string{"10.4.0.10"}, "cluster.local", nil, components.ConfigurableKubeletConfigParameters{
		FailSwapOn:   new(true),
		KubeReserved: map[string]string{"cpu": "80m", "memory": "1Gi"},
	})
	content, err := kubelet.NewConfigCodec(oscutils.NewFileContentInlineCodec()).Encode(config, encoding)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())

	return &extensionsv1alpha1.OperatingSystemConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "gardener-node-agent-worker"},
		Spec: extensionsv1alpha1.OperatingSystemConfigSpec{
			Purpose: extensionsv1alpha1.OperatingSystemConfigPurposeReconcile,
			Files: []extensionsv1alpha1.File{
				{Path: kubeletFile, Permissions: new(uint32(0o600)), Content: extensionsv1alpha1.FileContent{Inline: content}},
				{Path: "/etc/other", Content: extensionsv1alpha1.FileContent{Inline: &extensionsv1alpha1.FileContentInline{Data: "failSwapOn: true"}}},
			},
			CRIConfig: &extensionsv1alpha1.CRIConfig{
				Name:       extensionsv1alpha1.CRINameContainerD,
				Containerd: &extensionsv1alpha1.ContainerdConfig{SandboxImage: "pause:3.10"},
			},
		},
	}
}

func TestKubeletConfig(t *testing.T) {
	codec := kubelet.NewConfigCodec(oscutils.NewFileContentInlineCodec())

	for _, encoding := range []string{"", b64} {
		t.Run("gets what it needs in a pod and keeps all else, with encoding '"+encoding+"'", func(t *testing.T) {
			g := NewWithT(t)
			osc := reconcileOSC(t, encoding)
			expected, err := codec.Decode(osc.Spec.Files[0].Content.Inline)
			g.Expect(err).NotTo(HaveOccurred())
			expected.FailSwapOn, expected.FailCgroupV1 = new(false), new(false)
			for _, thresholds := range []map[string]string{expected.EvictionHard, expected.EvictionSoft} {
				for _, signal := range []string{"imagefs.available", "imagefs.inodesFree", "nodefs.available", "nodefs.inodesFree"} {
					g.Expect(thresholds).To(HaveKey(signal))
					thresholds[signal] = "0%"
				}
				g.Expect(thresholds["memory.available"]).NotTo(Equal("0%"))
			}
			g.Expect(*expected.ImageGCHighThresholdPercent).To(BeEquivalentTo(50))
			expected.ImageGCHighThresholdPercent = new(int32(100))
			other := osc.Spec.Files[1].DeepCopy()

			m := newMutator(t, nil)
			g.Expect(m.Mutate(t.Context(), osc, nil)).To(Succeed())
			g.Expect(osc.Spec.Files[0].Content.Inline.Encoding).To(Equal(encoding))
			g.Expect(codec.Decode(osc.Spec.Files[0].Content.Inline)).To(Equal(expected), "as Gardener's codec reads it")
			g.Expect(osc.Spec.Files[1]).To(Equal(*other))

			once := osc.DeepCopy()
			g.Expect(m.Mutate(t.Context(), osc, once)).To(Succeed())
			g.Expect(osc).To(Equal(once))
		})
	}

	header := "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"
	for _, test := range []struct{ name, before, after string }{
		{"keeps fields that are not known yet, and large numbers", header + "future: {a: [1]}\nmaxOpenFiles: 1000000\n",
			"apiVersion: kubelet.config.k8s.io/v1beta1\nfailCgroupV1: false\nfailSwapOn: false\nfuture:\n  a:\n  - 1\nkind: KubeletConfiguration\nmaxOpenFiles: 1000000\n"},
		{"keeps the thresholds that a Shoot sets",
			header + "failSwapOn: false\nfailCgroupV1: false\nevictionHard: {nodefs.available: 2Gi, imagefs.available: 10%}\nevictionSoft: {nodefs.available: 5%}\nimageGCHighThresholdPercent: 70\n",
			header + "failSwapOn: false\nfailCgroupV1: false\nevictionHard: {nodefs.available: 2Gi, imagefs.available: 10%}\nevictionSoft: {nodefs.available: 5%}\nimageGCHighThresholdPercent: 70\n"},
		{"keeps the text if nothing is to be set", header + "# a comment\nfailSwapOn:   false\nfailCgroupV1: false\n", header + "# a comment\nfailSwapOn:   false\nfailCgroupV1: false\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			osc := reconcileOSC(t, "")
			osc.Spec.Files[0].Content.Inline.Data = test.before
			g.Expect(newMutator(t, nil).Mutate(t.Context(), osc, nil)).To(Succeed())
			g.Expect(osc.Spec.Files[0].Content.Inline.Data).To(Equal(test.after))
		})
	}

	for _, test := range []struct{ name, data, encoding, message string }{
		{"refuses what is no YAML", "a: [", "", "yaml"},
		{"refuses another kind", "apiVersion: v1\nkind: Pod\n", "", "is not a KubeletConfiguration"},
		{"refuses another version", "apiVersion: kubelet.config.k8s.io/v1\nkind: KubeletConfiguration\n", "", "kubelet.config.k8s.io/v1beta1"},
		{"refuses an empty file", "", "", "is not a KubeletConfiguration"},
		{"refuses a list", "[1]", "", "cannot unmarshal"},
		{"refuses what is not base64", "%%%", b64, "illegal base64"},
		{"refuses an unknown encoding", header, "rot13", "rot13"},
		{"refuses nonsense behind base64", base64.StdEncoding.EncodeToString([]byte("x")), b64, "cannot unmarshal"},
	} {
		t.Run(test.name, func(t *testing.T) {
			osc := reconcileOSC(t, "")
			osc.Spec.Files[0].Content.Inline = &extensionsv1alpha1.FileContentInline{Data: test.data, Encoding: test.encoding}
			NewWithT(t).Expect(newMutator(t, nil).Mutate(t.Context(), osc, nil)).To(MatchError(And(
				ContainSubstring("OperatingSystemConfig "+namespace+"/gardener-node-agent-worker"), ContainSubstring(kubeletFile), ContainSubstring(test.message))))
		})
	}

	t.Run("is not missed where there is none", func(t *testing.T) {
		g := NewWithT(t)
		osc := reconcileOSC(t, "")
		osc.Spec.Files = osc.Spec.Files[1:]
		osc.Spec.CRIConfig = nil
		before := osc.DeepCopy()
		g.Expect(newMutator(t, testMirrors()).Mutate(t.Context(), osc, nil)).To(Succeed())
		g.Expect(osc).To(Equal(before))
	})
}

func TestRegistries(t *testing.T) {
	capabilities := []extensionsv1alpha1.RegistryCapability{"pull", "resolve"}
	first := extensionsv1alpha1.RegistryConfig{Upstream: "registry.k8s.io", Server: new("https://registry.k8s.io"),
		Hosts: []extensionsv1alpha1.RegistryHost{{URL: "http://registry.local.gardener.cloud:5001", Capabilities: capabilities}}}
	second := extensionsv1alpha1.RegistryConfig{Upstream: "registry.local.gardener.cloud:5001", Server: new("http://registry.local.gardener.cloud:5001"),
		Hosts: []extensionsv1alpha1.RegistryHost{{URL: "http://10.0.0.1:5001", Capabilities: capabilities}, {URL: "https://mirror.example.com/v2/local", Capabilities: capabilities}}}

	cache := extensionsv1alpha1.RegistryConfig{Upstream: "registry.k8s.io", Server: new("https://cached.example.com"), ReadinessProbe: new(true),
		Hosts: []extensionsv1alpha1.RegistryHost{{URL: "https://10.4.0.20:5000", CACerts: []string{"ca.crt"}}}}
	merged := *cache.DeepCopy()
	merged.Hosts = append(merged.Hosts, first.Hosts...)
	foreign := extensionsv1alpha1.RegistryConfig{Upstream: "quay.io", Hosts: []extensionsv1alpha1.RegistryHost{{URL: "https://10.4.0.21:5000"}}}

	for _, test := range []struct {
		name             string
		before, expected []extensionsv1alpha1.RegistryConfig
	}{
		{"are all of the configuration, in its order", nil, []extensionsv1alpha1.RegistryConfig{first, second}},
		{"come after the shoot's own hosts of the same upstream, whose settings stay", []extensionsv1alpha1.RegistryConfig{cache}, []extensionsv1alpha1.RegistryConfig{merged, second}},
		{"leave other upstreams alone", []extensionsv1alpha1.RegistryConfig{foreign}, []extensionsv1alpha1.RegistryConfig{foreign, first, second}},
		{"are not added twice", []extensionsv1alpha1.RegistryConfig{second, first}, []extensionsv1alpha1.RegistryConfig{second, first}},
		{"complete an entry without settings", []extensionsv1alpha1.RegistryConfig{{Upstream: "registry.k8s.io"}}, []extensionsv1alpha1.RegistryConfig{first, second}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			m := newMutator(t, testMirrors())
			osc := reconcileOSC(t, "")
			osc.Spec.CRIConfig.Containerd.Registries = test.before
			osc = osc.DeepCopy()
			g.Expect(m.Mutate(t.Context(), osc, nil)).To(Succeed())
			g.Expect(osc.Spec.CRIConfig.Containerd.Registries).To(Equal(test.expected))
			g.Expect(osc.Spec.CRIConfig.Containerd.SandboxImage).To(Equal("pause:3.10"))

			once := osc.DeepCopy()
			g.Expect(m.Mutate(t.Context(), osc, once)).To(Succeed())
			g.Expect(osc).To(Equal(once))
		})
	}

	t.Run("are not written where containerd is not configured", func(t *testing.T) {
		g := NewWithT(t)
		for _, config := range []*extensionsv1alpha1.CRIConfig{nil, {Name: extensionsv1alpha1.CRINameContainerD}, {Name: "other", Containerd: &extensionsv1alpha1.ContainerdConfig{}}} {
			before := config.DeepCopy()
			ensureRegistries(config, testMirrors())
			g.Expect(config).To(Equal(before))
		}
	})
}

func TestHostsFiles(t *testing.T) {
	provision := func() *extensionsv1alpha1.OperatingSystemConfig {
		return &extensionsv1alpha1.OperatingSystemConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "init"},
			Spec: extensionsv1alpha1.OperatingSystemConfigSpec{
				Purpose: extensionsv1alpha1.OperatingSystemConfigPurposeProvision,
				Files:   []extensionsv1alpha1.File{{Path: "/var/lib/gardener-node-agent/init.sh"}},
			},
		}
	}

	t.Run("are there before gardener-node-agent is pulled", func(t *testing.T) {
		g := NewWithT(t)
		m := newMutator(t, testMirrors())
		osc := provision()
		g.Expect(m.Mutate(t.Context(), osc, nil)).To(Succeed())
		g.Expect(osc.Spec.Files).To(HaveLen(3))
		g.Expect(osc.Spec.Files[0]).To(Equal(provision().Spec.Files[0]))
		g.Expect(osc.Spec.Files[1].Path).To(Equal("/etc/containerd/certs.d/registry.k8s.io/hosts.toml"))
		g.Expect(osc.Spec.Files[2].Path).To(Equal("/etc/containerd/certs.d/registry.local.gardener.cloud:5001/hosts.toml"))
		golden(g, "hosts.toml", osc.Spec.Files[2].Content.Inline.Data)

		var parsed struct {
			Server string
			Host   map[string]struct{ Capabilities []string }
		}
		g.Expect(toml.Unmarshal([]byte(osc.Spec.Files[2].Content.Inline.Data), &parsed)).To(Succeed())
		g.Expect(parsed.Server).To(Equal("http://registry.local.gardener.cloud:5001"))
		g.Expect(parsed.Host).To(HaveLen(2))
		g.Expect(parsed.Host).To(HaveKeyWithValue("http://10.0.0.1:5001", HaveField("Capabilities", []string{"pull", "resolve"})))

		once := osc.DeepCopy()
		g.Expect(m.Mutate(t.Context(), osc, once)).To(Succeed())
		g.Expect(osc).To(Equal(once))
	})

	t.Run("do not replace what is there", func(t *testing.T) {
		g := NewWithT(t)
		osc := provision()
		osc.Spec.Files = append(osc.Spec.Files, extensionsv1alpha1.File{
			Path: "/etc/containerd/certs.d/registry.k8s.io/hosts.toml", Content: extensionsv1alpha1.FileContent{Inline: &extensionsv1alpha1.FileContentInline{Data: "own"}},
		})
		g.Expect(newMutator(t, testMirrors()).Mutate(t.Context(), osc, nil)).To(Succeed())
		g.Expect(osc.Spec.Files).To(HaveLen(3))
		g.Expect(osc.Spec.Files[1].Content.Inline.Data).To(Equal("own"))
	})

	t.Run("are none without mirrors", func(t *testing.T) {
		g := NewWithT(t)
		osc := provision()
		g.Expect(newMutator(t, nil).Mutate(t.Context(), osc, nil)).To(Succeed())
		g.Expect(osc).To(Equal(provision()))
	})
}

func golden(g Gomega, name, content string) {
	path := filepath.Join("testdata", name)
	if *update {
		g.Expect(os.MkdirAll("testdata", 0o755)).To(Succeed())
		g.Expect(os.WriteFile(path, []byte(content), 0o644)).To(Succeed())
	}
	expected, err := os.ReadFile(path)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(content).To(Equal(string(expected)), "refresh with -update if this is intended")
}
