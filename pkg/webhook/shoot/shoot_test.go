// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"encoding/json"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"

	"github.com/gardener/gardener-extension-provider-local/pkg/webhook/shoot"
)

// config is what gardenlet v1.149.3 writes, in full, as its codec knows no defaults.
const config = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
bindAddress: ""
bindAddressHardFail: false
clientConnection:
  acceptContentTypes: ""
  burst: 0
  contentType: ""
  kubeconfig: /var/lib/kube-proxy-kubeconfig/kubeconfig
  qps: 0
clusterCIDR: 10.1.0.0/16,2001:db8:1::/48
configSyncPeriod: 0s
conntrack:
  maxPerCore: 524288
  min: null
  tcpBeLiberal: false
  tcpCloseWaitTimeout: null
  tcpEstablishedTimeout: null
  udpStreamTimeout: 0s
  udpTimeout: 0s
detectLocal:
  bridgeInterface: ""
  interfaceNamePrefix: ""
detectLocalMode: ""
enableProfiling: false
featureGates:
  Bar: false
  Foo: true
healthzBindAddress: ""
hostnameOverride: ""
iptables:
  localhostNodePorts: null
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
ipvs:
  excludeCIDRs: null
  minSyncPeriod: 0s
  scheduler: ""
  strictARP: false
  syncPeriod: 0s
  tcpFinTimeout: 0s
  tcpTimeout: 0s
  udpTimeout: 0s
kind: KubeProxyConfiguration
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
metricsBindAddress: 0.0.0.0:10249
mode: iptables
nftables:
  masqueradeAll: false
  masqueradeBit: null
  minSyncPeriod: 0s
  syncPeriod: 0s
nodePortAddresses: null
oomScoreAdj: null
portRange: ""
showHiddenMetricsForVersion: ""
winkernel:
  enableDSR: false
  forwardHealthCheckVip: false
  networkName: ""
  rootHnsEndpointName: ""
  sourceVip: ""
`

type fakeManager struct {
	manager.Manager
	scheme *runtime.Scheme
}

func (m fakeManager) GetScheme() *runtime.Scheme { return m.scheme }
func (fakeManager) GetClient() client.Client     { return nil }

func newWebhook(t testing.TB) *extensionswebhook.Webhook {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(corev1.AddToScheme(scheme)).To(Succeed())
	webhook, err := shoot.New(fakeManager{scheme: scheme})
	g.Expect(err).NotTo(HaveOccurred())
	return webhook
}

func configMap(config string) *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "kube-proxy-config-c3039bb4", Namespace: "kube-system",
			Labels: map[string]string{"app": "kubernetes", "role": "proxy", "origin": "gardener", "gardener.cloud/role": "system-component"},
		},
		Immutable: new(true),
		Data:      map[string]string{"config.yaml": config},
	}
}

// create sends a new ConfigMap to the webhook and returns the patch as JSON, empty for none.
func create(t *testing.T, obj *corev1.ConfigMap) (patch string, response admission.Response) {
	t.Helper()
	raw, err := json.Marshal(obj)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	response = newWebhook(t).Webhook.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Create, Name: obj.Name, Namespace: obj.Namespace,
		Kind:   metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Object: runtime.RawExtension{Raw: raw},
	}})
	return string(response.Patch), response
}

func replaced(t *testing.T, config string) string {
	t.Helper()
	patch, err := json.Marshal([]map[string]string{{"op": "replace", "path": "/data/config.yaml", "value": config}})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return string(patch)
}

func TestTheWebhookIsForTheConfigMapsOfKubeProxyOnly(t *testing.T) {
	g := NewWithT(t)
	webhook := newWebhook(t)

	g.Expect(webhook.Target).To(Equal(extensionswebhook.TargetShoot))
	g.Expect(webhook.Action).To(Equal(extensionswebhook.ActionMutating))
	g.Expect(webhook.Types).To(ConsistOf(extensionswebhook.Type{Obj: &corev1.ConfigMap{}}))
	g.Expect(*webhook.FailurePolicy).To(Equal(admissionregistrationv1.Fail), "an immutable ConfigMap that got past it would stay wrong")
	g.Expect(*webhook.TimeoutSeconds).To(BeNumerically("<=", 15), "Gardener calls a shoot's webhook problematic that takes longer")

	selects := func(selector *metav1.LabelSelector, set map[string]string) bool {
		s, err := metav1.LabelSelectorAsSelector(selector)
		g.Expect(err).NotTo(HaveOccurred())
		return s.Matches(labels.Set(set))
	}
	g.Expect(selects(webhook.NamespaceSelector, map[string]string{"kubernetes.io/metadata.name": "kube-system"})).To(BeTrue())
	g.Expect(selects(webhook.NamespaceSelector, map[string]string{"kubernetes.io/metadata.name": "default"})).To(BeFalse())
	g.Expect(selects(webhook.ObjectSelector, configMap(config).Labels)).To(BeTrue())
	g.Expect(selects(webhook.ObjectSelector, map[string]string{"app": "kubernetes", "role": "apiserver"})).To(BeFalse())
	g.Expect(selects(webhook.ObjectSelector, nil)).To(BeFalse())
}

func TestMaxPerCoreBecomesZeroAndNothingElseChanges(t *testing.T) {
	without := func(lines string) string { return strings.Replace(config, lines, "", 1) }
	for name, test := range map[string]struct{ config, want string }{
		"what gardenlet writes": {config, strings.Replace(config, "maxPerCore: 524288", "maxPerCore: 0", 1)},
		"no limit for each core": {
			strings.Replace(config, "maxPerCore: 524288", "maxPerCore: null", 1), strings.Replace(config, "maxPerCore: 524288", "maxPerCore: 0", 1),
		},
		"a field that a later version of kube-proxy has": {
			config + "xFuture:\n- a: 1000000\n", strings.Replace(config, "maxPerCore: 524288", "maxPerCore: 0", 1) + "xFuture:\n- a: 1000000\n",
		},
		"nothing about conntrack": {"kind: KubeProxyConfiguration\n", "conntrack:\n  maxPerCore: 0\nkind: KubeProxyConfiguration\n"},
		"conntrack without a value": {
			"conntrack:\nkind: KubeProxyConfiguration\n", "conntrack:\n  maxPerCore: 0\nkind: KubeProxyConfiguration\n",
		},
		"other fields of conntrack":  {"conntrack:\n  min: 131072\n", "conntrack:\n  maxPerCore: 0\n  min: 131072\n"},
		"the configuration as JSON":  {`{"conntrack":{"maxPerCore":1},"mode":"ipvs"}`, "conntrack:\n  maxPerCore: 0\nmode: ipvs\n"},
		"a number that is a string":  {"conntrack:\n  maxPerCore: \"0\"\n", "conntrack:\n  maxPerCore: 0\n"},
		"gardenlet's without a mode": {without("mode: iptables\n"), strings.Replace(without("mode: iptables\n"), "maxPerCore: 524288", "maxPerCore: 0", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			patch, response := create(t, configMap(test.config))
			g.Expect(response.Allowed).To(BeTrue())
			g.Expect(patch).To(MatchJSON(replaced(t, test.want)))

			again, response := create(t, configMap(test.want))
			g.Expect(response.Allowed).To(BeTrue())
			g.Expect(again).To(BeEmpty(), "once is enough")
		})
	}
}

func TestAConfigThatIsRightKeepsItsForm(t *testing.T) {
	patch, response := create(t, configMap("# written by hand\nmode: ipvs\nconntrack: {maxPerCore: 0} # in a container\n"))
	NewWithT(t).Expect(response.Allowed).To(BeTrue())
	NewWithT(t).Expect(patch).To(BeEmpty())
}

func TestOtherConfigMapsAreLeftAlone(t *testing.T) {
	for name, change := range map[string]func(*corev1.ConfigMap){
		"another ConfigMap of kube-proxy":          func(c *corev1.ConfigMap) { c.Name = "kube-proxy-conntrack-fix-script-ebff3d39" },
		"a ConfigMap of that name somewhere else":  func(c *corev1.ConfigMap) { c.Namespace = "default" },
		"a ConfigMap without the configuration":    func(c *corev1.ConfigMap) { c.Data = map[string]string{"other": "maxPerCore: 5"} },
		"a ConfigMap without anything":             func(c *corev1.ConfigMap) { c.Data = nil },
		"a ConfigMap that is being deleted":        func(c *corev1.ConfigMap) { c.DeletionTimestamp = new(metav1.Now()) },
		"a broken ConfigMap that is being deleted": func(c *corev1.ConfigMap) { c.DeletionTimestamp, c.Data["config.yaml"] = new(metav1.Now()), "{" },
	} {
		t.Run(name, func(t *testing.T) {
			obj := configMap(config)
			change(obj)
			patch, response := create(t, obj)
			NewWithT(t).Expect(response.Allowed).To(BeTrue())
			NewWithT(t).Expect(patch).To(BeEmpty())
		})
	}
}

func TestWhatIsNoConfigurationIsRefusedWithTheReason(t *testing.T) {
	for name, test := range map[string]struct{ config, reason string }{
		"no YAML":                 {"a: [", "yaml"},
		"nothing":                 {"", "it is empty"},
		"a list":                  {"- conntrack", "cannot unmarshal array"},
		"conntrack of wrong type": {"conntrack: 5\n", "conntrack is float64, not an object"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			patch, response := create(t, configMap(test.config))
			g.Expect(response.Allowed).To(BeFalse())
			g.Expect(patch).To(BeEmpty())
			g.Expect(response.Result.Message).To(HavePrefix("config.yaml of ConfigMap kube-system/kube-proxy-config-c3039bb4 is no configuration of kube-proxy: "))
			g.Expect(response.Result.Message).To(ContainSubstring(test.reason))
		})
	}
}

func TestAnUpdateByGardenerResourceManagerIsMadeTheSameAgain(t *testing.T) {
	g := NewWithT(t)
	stored := configMap(strings.Replace(config, "maxPerCore: 524288", "maxPerCore: 0", 1))
	desired, err := json.Marshal(configMap(config))
	g.Expect(err).NotTo(HaveOccurred())
	old, err := json.Marshal(stored)
	g.Expect(err).NotTo(HaveOccurred())

	response := newWebhook(t).Webhook.Handle(t.Context(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
		UID: "1", Operation: admissionv1.Update, Kind: metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		Object: runtime.RawExtension{Raw: desired}, OldObject: runtime.RawExtension{Raw: old},
	}})
	g.Expect(response.Allowed).To(BeTrue())
	g.Expect(string(response.Patch)).To(MatchJSON(replaced(t, stored.Data["config.yaml"])), "byte for byte, as the ConfigMap is immutable")
}
