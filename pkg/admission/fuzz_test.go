// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	"github.com/gardener/gardener-extension-provider-local/test/limitstest"
)

const (
	core     = "core.gardener.cloud/v1beta1"
	security = "security.gardener.cloud/v1alpha1"
)

func object(apiVersion, kind, rest string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":{"namespace":"garden-local","name":"a"},%s}`, apiVersion, kind, rest)
}

// fuzz sends objects of a kind to the webhook of a path, in a garden that has the CloudProfile "parent" of type local.
func fuzz(f *testing.F, path, apiVersion, kind string, rests ...string) {
	f.Helper()
	g := NewWithT(f)
	c := newFake(f, interceptor.Funcs{})
	g.Expect(c.Create(f.Context(), &gardencorev1beta1.CloudProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "parent"},
		Spec: gardencorev1beta1.CloudProfileSpec{Type: "local", ProviderConfig: &runtime.RawExtension{
			Raw: []byte(`{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"CloudProfileConfig"}`),
		}},
	})).To(Succeed())
	webhooks, err := newWebhooks(fakeManager{client: c}, c)
	g.Expect(err).NotTo(HaveOccurred())

	group, version, _ := strings.Cut(apiVersion, "/")
	if version == "" {
		group, version = "", apiVersion
	}
	var seeds []any
	for _, rest := range rests {
		seeds = append(seeds, object(apiVersion, kind, rest))
	}
	request := admissionv1.AdmissionRequest{UID: "1", Kind: metav1.GroupVersionKind{Group: group, Version: version, Kind: kind}, Namespace: "garden-local", Name: "a"}
	limitstest.Fuzz(f, named(g, webhooks, path).Webhook.Handler, request, seeds...)
}

func named(g Gomega, webhooks []*extensionswebhook.Webhook, path string) *extensionswebhook.Webhook {
	for _, webhook := range webhooks {
		if webhook.Path == path {
			return webhook
		}
	}
	g.Expect(webhooks).To(ContainElement(HaveField("Path", path)))
	return nil
}

// elements returns elements of a JSON list, in which the format gets the number of each.
func elements(length int, format string) string {
	list := make([]string, length)
	for i := range list {
		list[i] = fmt.Sprintf(format, i)
	}
	return strings.Join(list, ",")
}

// profiles are the specs of CloudProfiles and, with a parent, of NamespacedCloudProfiles.
func profiles() []string {
	const config = `"providerConfig":{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"CloudProfileConfig","machineImages":[{"name":"local","versions":[%s]}]}`
	const head = `"parent":{"kind":"CloudProfile","name":"parent"},"type":"local",`
	specs := []string{
		head + fmt.Sprintf(config, `{"version":"1.0.0","image":"a:b"}`) + `,"machineImages":[{"name":"local","versions":[{"version":"1.0.0"}]}]`,
		head + fmt.Sprintf(config, elements(4000, `{"version":"1.0.%d","image":"a:b"}`)) + `,"machineImages":[{"name":"local","versions":[` + elements(4000, `{"version":"1.0.%d"}`) + `]}]`,
		head + fmt.Sprintf(config, `{"version":"1.0.0","capabilityFlavors":[`+elements(1000, `{"image":"a:b","capabilities":{"c":["%d"]}}`)+`]}`) +
			`,"machineCapabilities":[{"name":"c","values":["1","2"]}],"machineImages":[{"name":"local","versions":[{"version":"1.0.0","capabilityFlavors":[` + elements(1000, `{"c":["%d"]}`) + `]}]}]`,
	}
	for _, quantity := range limitstest.Quantities() {
		specs = append(specs, head+fmt.Sprintf(`"machineTypes":[{"name":"a","cpu":%[1]s,"gpu":%[1]s,"memory":%[1]s,"storage":{"size":%[1]s}}],"volumeTypes":[{"name":"a","minSize":%[1]s}]`, quantity),
			head+`"providerConfig":`+machineProviderSpec(quantity))
	}
	return specs
}

func FuzzCloudProfile(f *testing.F) {
	var rests []string
	for _, spec := range profiles() {
		rests = append(rests, `"spec":{`+spec+`}`)
	}
	fuzz(f, "validate/cloudprofiles", core, "CloudProfile", rests...)
}

func FuzzNamespacedCloudProfile(f *testing.F) {
	var rests []string
	for _, spec := range profiles() {
		rests = append(rests, `"spec":{`+spec+`}`)
	}
	fuzz(f, "validate/namespacedcloudprofiles", core, "NamespacedCloudProfile", rests...)
}

func FuzzMergeNamespacedCloudProfile(f *testing.F) {
	var rests []string
	for _, spec := range profiles() {
		rests = append(rests, `"spec":{`+spec+`},"status":{"cloudProfileSpec":{`+spec+`}}`)
	}
	fuzz(f, "mutate/namespacedcloudprofiles", core, "NamespacedCloudProfile", rests...)
}

// machineProviderSpec is a document of a kind of ours that has a quantity, and that is no user's.
func machineProviderSpec(quantity string) string {
	return `{"apiVersion":"local.provider.extensions.gardener.cloud/v1alpha1","kind":"MachineProviderSpec","image":"a/b:c","resources":{"requests":{"cpu":` + quantity + `}}}`
}

func FuzzShoot(f *testing.F) {
	const spec = `"spec":{"cloudProfile":{"kind":"CloudProfile","name":"parent"},"networking":{"nodes":"10.0.0.0/16"},"provider":{"type":"local","workers":[%s]}%s}`
	const worker = `{"name":"w%d","machine":{"type":"a","image":{"name":"local","version":"1.0.0"}}}`
	const config = `{"name":"w","machine":{"type":"a","image":{"name":"local","version":"1.0.0"}},"providerConfig":%s}`
	rests := []string{fmt.Sprintf(spec, elements(1, worker), ""), fmt.Sprintf(spec, elements(4000, worker), "")}
	for _, quantity := range limitstest.Quantities() {
		rests = append(rests, fmt.Sprintf(spec, elements(1, worker), `,"kubernetes":{"kubelet":{"kubeReserved":{"cpu":`+quantity+`}}}`),
			fmt.Sprintf(spec, fmt.Sprintf(config, machineProviderSpec(quantity)), ""))
	}
	fuzz(f, "validate/shoots", core, "Shoot", rests...)
}

func FuzzSeed(f *testing.F) {
	rests := []string{`"spec":{"provider":{"type":"local"}}`}
	for _, quantity := range limitstest.Quantities() {
		rests = append(rests, `"spec":{"provider":{"type":"local"},"volume":{"minimumSize":`+quantity+`}},"status":{"capacity":{"shoots":`+quantity+`},"allocatable":{"shoots":"1"}}`)
	}
	fuzz(f, "validate/seeds", core, "Seed", rests...)
}

func FuzzWorkloadIdentity(f *testing.F) {
	fuzz(f, "validate/workloadidentities", security, "WorkloadIdentity", `"spec":{"targetSystem":{"type":"local"}}`)
}

// secrets are the data of Secrets: a kubeconfig can be YAML.
func secrets() []string {
	data := func(key, text string) string {
		return fmt.Sprintf(`"data":{%q:%q}`, key, base64.StdEncoding.EncodeToString([]byte(text)))
	}
	return []string{
		data("kubeconfig", "apiVersion: v1\nkind: Config\n"), data("KUBE-CONFIG", ""),
		data("kubeconfig", "apiVersion: v1\nkind: Config\na: &a "+strings.Repeat("x", 1<<16)+"\nb: ["+strings.Repeat("*a,", 50000)+"]\n"),
		data("kubeconfig", "a: "+strings.Repeat("[", 20000)),
		`"data":{` + elements(10000, `"k%d":"a"`) + `}`,
	}
}

func FuzzSecret(f *testing.F) {
	fuzz(f, "validate/secrets", "v1", "Secret", secrets()...)
}

func FuzzInternalSecret(f *testing.F) {
	fuzz(f, "validate/internalsecrets", core, "InternalSecret", secrets()...)
}
