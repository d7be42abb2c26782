// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package example_test

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	corevalidation "github.com/gardener/gardener/pkg/api/core/validation"
	operationsvalidation "github.com/gardener/gardener/pkg/api/operations/validation"
	seedmanagementvalidation "github.com/gardener/gardener/pkg/api/seedmanagement/validation"
	gardenletconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/gardenlet/v1alpha1"
	gardencore "github.com/gardener/gardener/pkg/apis/core"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/gardener/gardener/pkg/apis/operations"
	operationsinstall "github.com/gardener/gardener/pkg/apis/operations/install"
	operationsv1alpha1 "github.com/gardener/gardener/pkg/apis/operations/v1alpha1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"
	"github.com/gardener/gardener/pkg/apis/seedmanagement"
	seedmanagementinstall "github.com/gardener/gardener/pkg/apis/seedmanagement/install"
	seedmanagementv1alpha1 "github.com/gardener/gardener/pkg/apis/seedmanagement/v1alpha1"
	apiserverfeatures "github.com/gardener/gardener/pkg/apiserver/features"
	"github.com/gardener/gardener/pkg/client/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/pkg/admission"
	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
)

// shoots are the examples with a Shoot, and what each of them shows.
func shoots() map[string]func(Gomega, gardencorev1beta1.ShootSpec) {
	return map[string]func(Gomega, gardencorev1beta1.ShootSpec){
		"90-shoot-workerless.yaml": func(g Gomega, spec gardencorev1beta1.ShootSpec) {
			g.Expect(spec.Provider.Workers).To(BeEmpty())
		},
		"91-shoot.yaml": func(g Gomega, spec gardencorev1beta1.ShootSpec) {
			g.Expect(spec.Provider.Workers).To(HaveLen(1))
		},
		"92-shoot-hibernated.yaml": func(g Gomega, spec gardencorev1beta1.ShootSpec) {
			g.Expect(spec.Hibernation.Enabled).To(HaveValue(BeTrue()))
			g.Expect(spec.Hibernation.Schedules).To(HaveExactElements(And(HaveField("Start", Not(BeNil())), HaveField("End", BeNil()))),
				"it does not wake up while somebody looks at it")
		},
		"93-shoot-ha-node.yaml": func(g Gomega, spec gardencorev1beta1.ShootSpec) {
			g.Expect(spec.ControlPlane.HighAvailability.FailureTolerance.Type).To(Equal(gardencorev1beta1.FailureToleranceTypeNode))
		},
		"94-shoot-ha-zone.yaml": func(g Gomega, spec gardencorev1beta1.ShootSpec) {
			g.Expect(spec.ControlPlane.HighAvailability.FailureTolerance.Type).To(Equal(gardencorev1beta1.FailureToleranceTypeZone))
			g.Expect(spec.Provider.Workers).To(HaveExactElements(And(HaveField("Zones", HaveLen(3)), HaveField("Minimum", BeEquivalentTo(3)))))
		},
		"95-shoot-migration.yaml": func(g Gomega, spec gardencorev1beta1.ShootSpec) {
			g.Expect(spec.SeedName).To(HaveValue(Equal("local")))
		},
		"97-shoot-managedseed.yaml": func(g Gomega, spec gardencorev1beta1.ShootSpec) {
			g.Expect(spec.Kubernetes.VerticalPodAutoscaler).To(HaveValue(HaveField("Enabled", BeTrue())))
			g.Expect(spec.Provider.Workers).To(HaveExactElements(HaveField("Machine.Type", "local-large")))
		},
	}
}

// readShoot reads a Shoot and the credentials that it names: those beside it, or else those of all.
func readShoot(t *testing.T, name string) (*gardencorev1beta1.Shoot, *corev1.Secret, *securityv1alpha1.CredentialsBinding) {
	t.Helper()
	secret, binding := &corev1.Secret{}, &securityv1alpha1.CredentialsBinding{}
	readAll(t, "52-credentials.yaml", secret, binding)
	shoot := &gardencorev1beta1.Shoot{}
	if name == "97-shoot-managedseed.yaml" {
		binding = &securityv1alpha1.CredentialsBinding{}
		readAll(t, name, binding, shoot)
	} else {
		readAll(t, name, shoot)
	}
	return shoot, secret, binding
}

func TestTheShootsAreMadeOfWhatTheOtherExamplesOffer(t *testing.T) {
	// The validation asks for them.
	apiserverfeatures.RegisterFeatureGates()
	profile := read[gardencorev1beta1.CloudProfile](t, "50-cloudprofile.yaml")

	names := map[string]string{}
	for name, shows := range shoots() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			shoot, secret, binding := readShoot(t, name)
			shows(g, shoot.Spec)
			g.Expect(names).NotTo(HaveKey(shoot.Namespace+"/"+shoot.Name), "all of them can be there")
			names[shoot.Namespace+"/"+shoot.Name] = name

			g.Expect(shoot.Namespace).To(Equal(binding.Namespace))
			g.Expect(shoot.Spec.CloudProfile.Name).To(Equal(profile.Name))
			g.Expect(profile.Spec.Kubernetes.Versions).To(ContainElement(HaveField("Version", shoot.Spec.Kubernetes.Version)))
			for _, pool := range shoot.Spec.Provider.Workers {
				g.Expect(profile.Spec.MachineTypes).To(ContainElement(HaveField("Name", pool.Machine.Type)))
				g.Expect(profile.Spec.MachineImages).To(ContainElement(And(
					HaveField("Name", pool.Machine.Image.Name),
					HaveField("Versions", ContainElement(HaveField("Version", *pool.Machine.Image.Version))))))
				for _, zone := range pool.Zones {
					g.Expect(profile.Spec.Regions[0].Zones).To(ContainElement(HaveField("Name", zone)))
				}
				g.Expect(*shoot.Spec.CredentialsBindingName).To(Equal(binding.Name))
				g.Expect(binding.CredentialsRef.Name).To(Equal(secret.Name))
				g.Expect(binding.CredentialsRef.Namespace).To(Equal(secret.Namespace))
			}
			if v1beta1helper.IsWorkerless(shoot) {
				g.Expect(shoot.Spec.CredentialsBindingName).To(BeNil())
			}

			converted := &gardencore.Shoot{}
			internal(t, shoot, converted)
			g.Expect(corevalidation.ValidateShoot(converted)).To(BeEmpty())
			converted.Spec.Region = ""
			g.Expect(corevalidation.ValidateShoot(converted)).NotTo(BeEmpty(), "the validation can refuse something")
		})
	}
}

// reader reads the examples that the admission asks for, and the Seed that a Garden of theirs has.
func reader(t *testing.T) client.Client {
	t.Helper()
	secret, binding := &corev1.Secret{}, &securityv1alpha1.CredentialsBinding{}
	readAll(t, "52-credentials.yaml", secret, binding)
	_, _, ofSeed := readShoot(t, "97-shoot-managedseed.yaml")
	networks := gardencorev1beta1.SeedNetworks{Nodes: new("172.18.0.0/24"), Pods: "10.1.0.0/16", Services: "10.2.0.0/16"}
	seed := &gardencorev1beta1.Seed{Spec: gardencorev1beta1.SeedSpec{Provider: gardencorev1beta1.SeedProvider{Type: "local"}, Networks: networks}}
	seed.Name = "local"
	return fake.NewClientBuilder().WithScheme(kubernetes.GardenScheme).
		WithObjects(read[gardencorev1beta1.CloudProfile](t, "50-cloudprofile.yaml"), secret, binding, ofSeed, seed).Build()
}

func TestTheAdmissionTakesTheExamples(t *testing.T) {
	c := reader(t)
	for name := range shoots() {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			shoot, _, _ := readShoot(t, name)
			shoot.Spec.SeedName = new("local")
			g.Expect(admission.NewShoot(c).Validate(t.Context(), shoot, nil)).To(Succeed())

			shoot.Spec.Provider.ControlPlaneConfig = &runtime.RawExtension{Raw: []byte(`{"is":"not empty"}`)}
			g.Expect(admission.NewShoot(c).Validate(t.Context(), shoot, nil)).To(MatchError(ContainSubstring("controlPlaneConfig")))
		})
	}
	t.Run("50-cloudprofile.yaml", func(t *testing.T) {
		g := NewWithT(t)
		profile := read[gardencorev1beta1.CloudProfile](t, "50-cloudprofile.yaml")
		g.Expect(admission.NewCloudProfile().Validate(t.Context(), profile, nil)).To(Succeed())
		profile.Spec.ProviderConfig = nil
		g.Expect(admission.NewCloudProfile().Validate(t.Context(), profile, nil)).To(MatchError(ContainSubstring("spec.providerConfig")))
	})
}

func TestGardenerTakesTheBastionOfTheShootWithMachines(t *testing.T) {
	g := NewWithT(t)
	bastion, shoot := read[operationsv1alpha1.Bastion](t, "96-bastion.yaml"), read[gardencorev1beta1.Shoot](t, "91-shoot.yaml")
	g.Expect(bastion.Namespace).To(Equal(shoot.Namespace))
	g.Expect(bastion.Spec.ShootRef.Name).To(Equal(shoot.Name))

	scheme := runtime.NewScheme()
	operationsinstall.Install(scheme)
	scheme.Default(bastion)
	converted := &operations.Bastion{}
	g.Expect(scheme.Convert(bastion, converted, nil)).To(Succeed())
	g.Expect(operationsvalidation.ValidateBastion(converted)).To(BeEmpty())
	converted.Spec.SSHPublicKey = "no key"
	g.Expect(operationsvalidation.ValidateBastion(converted)).NotTo(BeEmpty(), "the validation can refuse something")
}

func TestGardenerTakesTheManagedSeedOfTheShootInTheNamespaceGarden(t *testing.T) {
	g := NewWithT(t)
	managedSeed := read[seedmanagementv1alpha1.ManagedSeed](t, "98-managedseed.yaml")
	shoot, _, _ := readShoot(t, "97-shoot-managedseed.yaml")
	g.Expect(managedSeed.Namespace).To(Equal(shoot.Namespace))
	g.Expect(managedSeed.Spec.Shoot.Name).To(Equal(shoot.Name))

	scheme := runtime.NewScheme()
	seedmanagementinstall.Install(scheme)
	scheme.Default(managedSeed)
	converted := &seedmanagement.ManagedSeed{}
	g.Expect(scheme.Convert(managedSeed, converted, nil)).To(Succeed())
	config, ok := converted.Spec.Gardenlet.Config.(*gardenletconfigv1alpha1.GardenletConfiguration)
	g.Expect(ok).To(BeTrue())
	completeSeed(&config.SeedConfig.Spec, shoot)
	g.Expect(seedmanagementvalidation.ValidateManagedSeed(converted)).To(BeEmpty())
	config.SeedConfig.Spec.Networks.Pods = "no range"
	g.Expect(seedmanagementvalidation.ValidateManagedSeed(converted)).NotTo(BeEmpty(), "the validation can refuse something")

	backup, dns := &corev1.Secret{}, &corev1.Secret{}
	readAll(t, "60-seed-secrets.yaml", backup, dns)
	g.Expect(config.SeedConfig.Spec.Backup.CredentialsRef.Name).To(Equal(backup.Name))
	workers, problem := localv1alpha1.WorkerConfigAt(shoot.Spec.Provider.Workers[0].ProviderConfig, nil)
	g.Expect(problem).NotTo(HaveOccurred())
	g.Expect(workers.SharedBackupBuckets).To(BeTrue(), "the buckets would go with the machine")
	g.Expect(config.SeedConfig.Spec.DNS.Internal.CredentialsRef.Name).To(Equal(dns.Name))
	g.Expect(config.SeedConfig.Spec.DNS.Defaults).To(HaveExactElements(HaveField("CredentialsRef.Name", dns.Name)))
}

// completeSeed does what Gardener's admission does: what a ManagedSeed does not say, its Shoot does.
func completeSeed(seed *gardencorev1beta1.SeedSpec, shoot *gardencorev1beta1.Shoot) {
	const domain = "local-seed.garden.external.local.gardener.cloud"
	seed.Provider = gardencorev1beta1.SeedProvider{Type: shoot.Spec.Provider.Type, Region: shoot.Spec.Region}
	seed.Networks = gardencorev1beta1.SeedNetworks{Nodes: shoot.Spec.Networking.Nodes, Pods: "10.3.0.0/16", Services: "10.4.0.0/16"}
	seed.Ingress = &gardencorev1beta1.Ingress{Domain: "ingress." + domain, Controller: gardencorev1beta1.IngressController{Kind: "nginx"}}
	seed.DNS.Provider = &gardencorev1beta1.SeedDNSProvider{Type: seed.DNS.Defaults[0].Type, CredentialsRef: &seed.DNS.Defaults[0].CredentialsRef}
}
