// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/admission"
)

func raw(kind, fields string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: []byte(`{"apiVersion": "local.provider.extensions.gardener.cloud/v1alpha1", "kind": "` + kind + `"` + fields + `}`)}
}

func machineImage(name, version string) gardencorev1beta1.MachineImage {
	strategy := gardencorev1beta1.UpdateStrategyMajor
	return gardencorev1beta1.MachineImage{Name: name, UpdateStrategy: &strategy, Versions: []gardencorev1beta1.MachineImageVersion{{
		ExpirableVersion: gardencorev1beta1.ExpirableVersion{Version: version}, CRI: []gardencorev1beta1.CRI{{Name: gardencorev1beta1.CRINameContainerD}},
		Architectures: []string{"amd64"},
	}}}
}

func cloudProfile(name string) *gardencorev1beta1.CloudProfile {
	return &gardencorev1beta1.CloudProfile{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: gardencorev1beta1.CloudProfileSpec{
			Type:           "local",
			Kubernetes:     gardencorev1beta1.KubernetesSettings{Versions: []gardencorev1beta1.ExpirableVersion{{Version: "1.36.3"}}},
			Regions:        []gardencorev1beta1.Region{{Name: "local"}},
			MachineTypes:   []gardencorev1beta1.MachineType{{Name: "small", CPU: resource.MustParse("1"), GPU: resource.MustParse("0"), Memory: resource.MustParse("1Gi")}},
			MachineImages:  []gardencorev1beta1.MachineImage{machineImage("local", "1.0.0")},
			ProviderConfig: raw("CloudProfileConfig", `, "machineImages": [{"name": "local", "versions": [{"version": "1.0.0", "image": "machine:v1"}]}]`),
		},
	}
}

func shoot(name string) *gardencorev1beta1.Shoot {
	return &gardencorev1beta1.Shoot{
		ObjectMeta: metav1.ObjectMeta{Namespace: project, Name: name},
		Spec: gardencorev1beta1.ShootSpec{
			CloudProfile:           &gardencorev1beta1.CloudProfileReference{Kind: "CloudProfile", Name: "local"},
			CredentialsBindingName: new("local"),
			Region:                 "local",
			Kubernetes:             gardencorev1beta1.Kubernetes{Version: "1.36.3"},
			Networking:             &gardencorev1beta1.Networking{Type: new("calico"), Nodes: new("10.0.0.0/16"), Pods: new("10.3.0.0/16"), Services: new("10.4.0.0/16")},
			Provider: gardencorev1beta1.Provider{Type: "local", Workers: []gardencorev1beta1.Worker{{
				Name: "a", Minimum: 1, Maximum: 1,
				Machine: gardencorev1beta1.Machine{Type: "small", Architecture: new("amd64"), Image: &gardencorev1beta1.ShootMachineImage{Name: "local", Version: new("1.0.0")}},
			}}},
		},
	}
}

func workerless(name string) *gardencorev1beta1.Shoot {
	s := shoot(name)
	s.Spec.CredentialsBindingName, s.Spec.Networking, s.Spec.Provider.Workers = nil, nil, nil
	return s
}

func seed(name string) *gardencorev1beta1.Seed {
	ref := corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: gardenNamespace, Name: "seed"}
	return &gardencorev1beta1.Seed{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: gardencorev1beta1.SeedSpec{
			Provider: gardencorev1beta1.SeedProvider{Type: "local", Region: "local", Zones: []string{"0"}},
			Backup:   &gardencorev1beta1.Backup{Provider: "local", Region: new("local"), CredentialsRef: &ref},
			DNS: gardencorev1beta1.SeedDNS{
				Provider: &gardencorev1beta1.SeedDNSProvider{Type: "local", CredentialsRef: &ref},
				Internal: &gardencorev1beta1.SeedDNSProviderConfig{Type: "local", Domain: "internal.local.gardener.cloud", CredentialsRef: ref},
			},
			Ingress:  &gardencorev1beta1.Ingress{Domain: "ingress.local.seed.local.gardener.cloud", Controller: gardencorev1beta1.IngressController{Kind: "nginx"}},
			Networks: gardencorev1beta1.SeedNetworks{Nodes: new("172.18.0.0/24"), Pods: "10.1.0.0/16", Services: "10.2.0.0/16"},
		},
	}
}

// credentials are a Secret, with Gardener's label if a binding refers to it.
func credentials(name string, data map[string][]byte, bound bool) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: project, Name: name}, Data: data}
	if bound {
		secret.Labels = map[string]string{"provider.shoot.gardener.cloud/local": "true"}
	}
	return secret
}

func binding(name string) *securityv1alpha1.CredentialsBinding {
	return &securityv1alpha1.CredentialsBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: project, Name: name}, Provider: securityv1alpha1.CredentialsBindingProvider{Type: "local"},
		CredentialsRef: corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: project, Name: name},
	}
}

// create creates an object that goes when the spec ends.
func create(ctx context.Context, obj client.Object) {
	GinkgoHelper()
	Expect(c.Create(ctx, obj)).To(Succeed())
	DeferCleanup(func(ctx SpecContext) {
		obj.SetFinalizers(nil)
		Expect(client.IgnoreNotFound(c.Delete(ctx, obj))).To(Succeed())
	})
}

// refuse expects that an object is refused by the webhook and for these reasons.
func refuse(ctx context.Context, obj client.Object, reasons ...string) {
	GinkgoHelper()
	err := c.Create(ctx, obj)
	Expect(err).To(MatchError(ContainSubstring("admission webhook")))
	Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
	for _, reason := range reasons {
		Expect(err).To(MatchError(ContainSubstring(reason)))
	}
}

var _ = Describe("CloudProfiles", func() {
	It("lets through what is complete, and what is of another type", func(ctx SpecContext) {
		create(ctx, cloudProfile("good"))
		other := cloudProfile("other")
		other.Spec.Type, other.Spec.ProviderConfig = "other", nil
		create(ctx, other)
	})

	It("tells all mistakes with the paths of their fields", func(ctx SpecContext) {
		bad := cloudProfile("bad")
		bad.Spec.MachineImages = append(bad.Spec.MachineImages, machineImage("second", "7.0.0"))
		bad.Spec.MachineTypes[0].Memory = resource.MustParse("0")
		bad.Spec.ProviderConfig = raw("CloudProfileConfig", `, "machineImages": [{"name": "local", "versions": [{"version": "1.0.0", "image": "Not An Image"}]}]`)
		refuse(ctx, bad, `spec.providerConfig.machineImages[0].versions[0].image: Invalid value: "Not An Image"`,
			`spec.machineImages[1].versions[0].version: Invalid value: "7.0.0": no container image is known for it`, "spec.machineTypes[0].memory: Invalid value")
	})

	It("decodes strictly", func(ctx SpecContext) {
		bad := cloudProfile("bad")
		bad.Spec.ProviderConfig = raw("CloudProfileConfig", `, "machineImage": []`)
		refuse(ctx, bad, `spec.providerConfig: Invalid value: strict decoding error: unknown field "machineImage"`)
	})

	It("refuses a change for the worse", func(ctx SpecContext) {
		profile := cloudProfile("changing")
		create(ctx, profile)
		before := profile.DeepCopy()
		profile.Spec.ProviderConfig = raw("CloudProfileConfig", `, "machineImages": []`)
		Expect(c.Patch(ctx, profile, client.MergeFrom(before))).To(MatchError(ContainSubstring("spec.machineImages[0].versions[0].version")))
	})
})

var _ = Describe("NamespacedCloudProfiles", func() {
	namespaced := func(name, image string) *gardencorev1beta1.NamespacedCloudProfile {
		return &gardencorev1beta1.NamespacedCloudProfile{
			ObjectMeta: metav1.ObjectMeta{Namespace: project, Name: name},
			Spec: gardencorev1beta1.NamespacedCloudProfileSpec{
				Parent:         gardencorev1beta1.CloudProfileReference{Kind: "CloudProfile", Name: "parent"},
				MachineImages:  []gardencorev1beta1.MachineImage{machineImage(image, "1.1.0")},
				ProviderConfig: raw("CloudProfileConfig", `, "machineImages": [{"name": "local", "versions": [{"version": "1.1.0", "image": "machine:v1.1"}]}]`),
			},
		}
	}

	It("merges the machine images when gardener-controller-manager writes the status", func(ctx SpecContext) {
		parent := cloudProfile("parent")
		create(ctx, parent)
		profile := namespaced("own", "local")
		Eventually(func() error { return c.Create(ctx, profile) }).Should(Succeed(), "gardener-apiserver learns of the parent by a watch")
		DeferCleanup(func(ctx SpecContext) { Expect(c.Delete(ctx, profile)).To(Succeed()) })

		before := profile.DeepCopy()
		profile.Status.CloudProfileSpec = parent.Spec
		Expect(c.Status().Patch(ctx, profile, client.MergeFrom(before))).To(Succeed())
		Expect(c.Get(ctx, client.ObjectKeyFromObject(profile), profile)).To(Succeed())
		Expect(profile.Status.CloudProfileSpec.ProviderConfig.Raw).To(MatchJSON(raw("CloudProfileConfig",
			`, "machineImages": [{"name": "local", "versions": [{"version": "1.0.0", "image": "machine:v1"}, {"version": "1.1.0", "image": "machine:v1.1"}]}]`).Raw))

		bad := namespaced("bad", "other")
		refuse(ctx, bad, `spec.machineImages[0].versions[0].version: Invalid value: "1.1.0"`,
			`spec.providerConfig.machineImages[0].versions[0].version: Invalid value: "1.1.0": the machine image "local" does not have this version in spec.machineImages`)
	})
})

var _ = Describe("Shoots", func() {
	BeforeEach(func(ctx SpecContext) {
		create(ctx, cloudProfile("local"))
	})

	BeforeEach(func(ctx SpecContext) {
		create(ctx, credentials("local", nil, false))
		create(ctx, binding("local"))
	})

	It("lets through what can be made, and lets it be deleted", func(ctx SpecContext) {
		create(ctx, shoot("good"))
		create(ctx, workerless("workerless"))
	})

	It("refuses what the controllers would refuse or ignore", func(ctx SpecContext) {
		bad := shoot("bad")
		bad.Spec.Provider.InfrastructureConfig, bad.Spec.Provider.ControlPlaneConfig = raw("InfrastructureConfig", ""), raw("ControlPlaneConfig", "")
		pool := &bad.Spec.Provider.Workers[0]
		pool.ProviderConfig = raw("WorkerConfig", `, "sizing": "huge"`)
		pool.Volume = &gardencorev1beta1.Volume{VolumeSize: "10Gi"}
		pool.DataVolumes = []gardencorev1beta1.DataVolume{{Name: "data", VolumeSize: "1Gi"}}
		pool.Machine.Image.Version = new("9.9.9")
		bad.Spec.Networking.Nodes = new("10.0.0.0/28")
		refuse(ctx, bad,
			"spec.provider.infrastructureConfig: Forbidden", "spec.provider.controlPlaneConfig: Forbidden",
			`spec.provider.workers[0].providerConfig.sizing: Unsupported value: "huge": supported values: "Exact", "Overcommit", "Unlimited"`,
			"spec.provider.workers[0].dataVolumes: Forbidden: machines have no data volumes",
			`spec.provider.workers[0].machine.image.version: Invalid value: "9.9.9": the CloudProfile local has no container image for this version`,
			`spec.networking.nodes: Invalid value: "10.0.0.0/28": it is too small`)
	})

	It("lets changes through that have nothing to do with it", func(ctx SpecContext) {
		good := shoot("labelled")
		create(ctx, good)
		before := good.DeepCopy()
		good.Labels["a"] = "b"
		Expect(c.Patch(ctx, good, client.MergeFrom(before))).To(Succeed())
	})

	It("refuses addresses of the seed for machines in it", func(ctx SpecContext) {
		create(ctx, credentialsOfSeed())
		create(ctx, seed("local"))
		bad := shoot("in-seed")
		bad.Spec.SeedName, bad.Spec.Networking.Nodes = new("local"), new("10.1.0.0/24")
		refuse(ctx, bad, `spec.networking.nodes: Invalid value: "10.1.0.0/24": it overlaps spec.networks.pods of the Seed local (10.1.0.0/16)`)

		By("refusing them when a scheduler chooses the Seed, too")
		scheduled := shoot("scheduled")
		scheduled.Spec.Networking.Nodes = new("10.1.0.0/24")
		create(ctx, scheduled)
		scheduled.Spec.SeedName = new("local")
		Expect(c.SubResource("binding").Update(ctx, scheduled)).To(MatchError(ContainSubstring("it overlaps spec.networks.pods of the Seed local")))
	})
})

func credentialsOfSeed() *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: "seed"}}
}

var _ = Describe("Seeds", func() {
	It("refuses what has no meaning", func(ctx SpecContext) {
		create(ctx, credentialsOfSeed())
		bad := seed("bad")
		bad.Spec.Backup.ProviderConfig, bad.Spec.Networks.Nodes = raw("X", ""), nil
		refuse(ctx, bad, "spec.backup.providerConfig: Forbidden", "spec.networks.nodes: Required value")
	})
})

var _ = Describe("Credentials", func() {
	broken := map[string][]byte{"kubeconfig": []byte("apiVersion: v1\nkind: Config\n")}

	It("lets through bindings to Secrets that can be used", func(ctx SpecContext) {
		create(ctx, credentials("good", nil, false))
		create(ctx, binding("good"))
	})

	It("refuses bindings to Secrets that can't be used", func(ctx SpecContext) {
		create(ctx, credentials("broken", broken, false))
		unusable := MatchError(ContainSubstring("data[kubeconfig]: Invalid value: it can't be used"))
		Expect(c.Create(ctx, binding("broken"))).To(unusable, "Gardener asks for a copy of the Secret")
		old := &gardencorev1beta1.SecretBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: project, Name: "broken"}, Provider: &gardencorev1beta1.SecretBindingProvider{Type: "local"},
			SecretRef: corev1.SecretReference{Namespace: project, Name: "broken"},
		}
		Expect(c.Create(ctx, old)).To(unusable)
	})

	It("sees to Secrets once a binding refers to them, and to no others", func(ctx SpecContext) {
		secret := credentials("bound", nil, true)
		create(ctx, secret)
		before := secret.DeepCopy()
		secret.Data = broken
		Expect(c.Patch(ctx, secret, client.MergeFrom(before))).To(MatchError(ContainSubstring("data[kubeconfig]: Invalid value: it can't be used")))

		create(ctx, credentials("of-others", broken, false))
	})

	It("refuses configurations of WorkloadIdentities", func(ctx SpecContext) {
		refuse(ctx, &securityv1alpha1.WorkloadIdentity{
			ObjectMeta: metav1.ObjectMeta{Namespace: project, Name: "bad"},
			Spec:       securityv1alpha1.WorkloadIdentitySpec{Audiences: []string{"a"}, TargetSystem: securityv1alpha1.TargetSystem{Type: "local", ProviderConfig: raw("X", "")}},
		}, "spec.targetSystem.providerConfig: Forbidden: there is nothing to configure for type local: take it out")
	})
})

var _ = Describe("The registration", Serial, func() {
	registration := func(g Gomega, ctx context.Context) *admissionregistrationv1.ValidatingWebhookConfiguration {
		config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		g.Expect(c.Get(ctx, client.ObjectKey{Name: admission.Name}, config)).To(Succeed())
		return config
	}

	It("is for objects of type local only, fails closed, and goes with its namespace", func(ctx SpecContext) {
		config := registration(Default, ctx)
		Expect(config.OwnerReferences).To(HaveExactElements(And(HaveField("Kind", "Namespace"), HaveField("Name", ownerNamespace))))
		Expect(config.Webhooks).To(HaveLen(7))
		for _, webhook := range config.Webhooks {
			Expect(*webhook.FailurePolicy).To(Equal(admissionregistrationv1.Fail))
			Expect(webhook.ObjectSelector.MatchLabels).To(Or(
				Equal(map[string]string{"provider.extensions.gardener.cloud/local": "true"}), Equal(map[string]string{"provider.shoot.gardener.cloud/local": "true"})))
			Expect(webhook.Rules).To(And(Not(BeEmpty()), HaveEach(HaveField("Operations", Not(ContainElement(admissionregistrationv1.Delete))))))
		}
	})

	It("has its certificates in a namespace that has nothing else", func(ctx SpecContext) {
		list := &corev1.SecretList{}
		Expect(c.List(ctx, list, client.InNamespace(config.Webhooks.CertificateNamespace))).To(Succeed())
		Expect(list.Items).NotTo(BeEmpty())
		Expect(c.List(ctx, list, client.InNamespace(gardenNamespace))).To(Succeed())
		Expect(list.Items).To(BeEmpty())
	})

	It("is put right when somebody changes it", func(ctx SpecContext) {
		config := registration(Default, ctx)
		uid := config.UID
		config.Webhooks = config.Webhooks[1:]
		Expect(c.Update(ctx, config)).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(registration(g, ctx).Webhooks).To(HaveLen(7)) }).Should(Succeed())

		Expect(c.Delete(ctx, registration(Default, ctx))).To(Succeed())
		Eventually(func(g Gomega) { g.Expect(registration(g, ctx).UID).NotTo(Equal(uid)) }).Should(Succeed())
		waitUntilCalled(ctx)
	})

	It("lets nothing of type local through while the program is down, but all else", func(ctx SpecContext) {
		running.Stop()
		DeferCleanup(func(ctx SpecContext) {
			running = start()
			waitUntilCalled(ctx)
		})
		err := c.Create(ctx, cloudProfile("closed"))
		Expect(err).To(MatchError(ContainSubstring("failed calling webhook")))
		other := cloudProfile("open")
		other.Spec.Type = "other"
		create(ctx, other)
	})
})
