// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance_test

import (
	"context"
	"slices"
	"strings"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/dns/coredns"
	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

const (
	gardenProgram = "operator-extension"
	seedProgram   = "gardenlet-extension"
)

var _ = Describe("Both instances in one cluster", func() {
	It("run, each with a Lease of its own, pinned by digest and without rights on the node", func(ctx SpecContext) {
		for namespace, name := range map[string]string{gardenInstanceNamespace: gardenInstance, seedInstanceNamespace: seedInstance} {
			deployment := named[*appsv1.Deployment](namespace, name)
			Expect(c.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
			Expect(deployment.Status.ReadyReplicas).To(BeNumerically(">=", 1), name)
			for _, container := range deployment.Spec.Template.Spec.Containers {
				Expect(container.Image).To(ContainSubstring("@sha256:"), name)
				Expect(container.SecurityContext.ReadOnlyRootFilesystem).To(HaveValue(BeTrue()), name)
			}
			for _, lease := range []string{"gardener-extension-heartbeat", name + "-leader-election"} {
				Eventually(get(ctx, named[*coordinationv1.Lease](namespace, lease))).Should(HaveField("Spec.HolderIdentity", HaveValue(ContainSubstring(name))), lease)
			}
		}
	})

	It("the seed's is healthy for gardenlet", func(ctx SpecContext) {
		mr := named[*resourcesv1alpha1.ManagedResource](gardenNamespace, installation)
		for _, condition := range []gardencorev1beta1.ConditionType{resourcesv1alpha1.ResourcesApplied, resourcesv1alpha1.ResourcesHealthy} {
			Eventually(get(ctx, mr)).Should(HaveField("Status.Conditions", ContainElement(And(
				HaveField("Type", condition), HaveField("Status", gardencorev1beta1.ConditionTrue),
			))), string(condition))
		}
	})

	It("share one CoreDNS, which the first of them deployed", func(ctx SpecContext) {
		shared := named[*resourcesv1alpha1.ManagedResource](gardenNamespace, coredns.ManagedResourceName)
		Eventually(get(ctx, shared)).Should(HaveField("OwnerReferences", ConsistOf(
			HaveField("Name", gardenInstanceNamespace), HaveField("Name", seedInstanceNamespace))))
		Expect(shared.Labels).To(HaveKeyWithValue(coredns.LabelDeployedBy, gardenInstanceNamespace))

		list := &appsv1.DeploymentList{}
		Expect(c.List(ctx, list, client.InNamespace(coreDNSNamespace))).To(Succeed())
		Expect(list.Items).To(HaveLen(1))
	})

	It("write DNSRecords of their own classes only, and both resolve", func(ctx SpecContext) {
		ofGarden := create(ctx, newRecord(gardenNamespace, "e2e-seed-garden", "garden.seed-e2e.local.gardener.cloud", extensionsv1alpha1.ExtensionClassGarden, "192.0.2.1"))
		ofSeed := create(ctx, newRecord(gardenNamespace, "e2e-seed-seed", "seed.seed-e2e.local.gardener.cloud", extensionsv1alpha1.ExtensionClassSeed, "192.0.2.2"))
		ofShoot := create(ctx, newRecord(shootNamespace, "e2e-seed-shoot", "shoot.seed-e2e.local.gardener.cloud", extensionsv1alpha1.ExtensionClassShoot, "192.0.2.3"))
		withoutClass := newRecord(shootNamespace, "e2e-seed-none", "none.seed-e2e.local.gardener.cloud", "", "192.0.2.4")
		withoutClass.Spec.Class = nil
		create(ctx, withoutClass)

		server := coreDNSAddress(ctx)
		for record, program := range map[*extensionsv1alpha1.DNSRecord]string{ofGarden: gardenProgram, ofSeed: seedProgram, ofShoot: seedProgram, withoutClass: seedProgram} {
			eventuallySucceeded(ctx, record)
			Expect(matchers.Resolve(ctx, "tcp", server, record.Spec.Name, dns.TypeA)).To(Equal(record.Spec.Values), record.Name)
			Expect(programs(record)).To(ConsistOf(program), record.Name)
		}
		Expect(configured(ctx, "seed")).NotTo(ContainSubstring(ofGarden.Spec.Name))
		Expect(configured(ctx, "garden")).To(And(ContainSubstring(ofGarden.Spec.Name),
			Not(ContainSubstring(ofSeed.Spec.Name)), Not(ContainSubstring(ofShoot.Spec.Name))))
	})
})

// programs are those of ours that have written an object.
func programs(obj client.Object) []string {
	var out []string
	for _, entry := range obj.GetManagedFields() {
		if entry.Manager == gardenProgram || entry.Manager == seedProgram {
			out = append(out, entry.Manager)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// configured is all that an instance has told CoreDNS.
func configured(ctx context.Context, instance string) string {
	GinkgoHelper()
	list := &corev1.ConfigMapList{}
	Expect(c.List(ctx, list, client.InNamespace(coreDNSNamespace))).To(Succeed())
	var out strings.Builder
	for _, configMap := range list.Items {
		if strings.HasPrefix(configMap.Name, coredns.ConfigMapPrefix+instance+"-") {
			for key, value := range configMap.Data {
				out.WriteString(key + "\n" + value + "\n")
			}
		}
	}
	return out.String()
}

func newRecord(namespace, name, dnsName string, class extensionsv1alpha1.ExtensionClass, values ...string) *extensionsv1alpha1.DNSRecord {
	return &extensionsv1alpha1.DNSRecord{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: extensionsv1alpha1.DNSRecordSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local", Class: &class},
			SecretRef:   corev1.SecretReference{Name: "garden-dns-local", Namespace: gardenNamespace},
			Name:        dnsName,
			RecordType:  extensionsv1alpha1.DNSRecordTypeA,
			Values:      values,
		},
	}
}
