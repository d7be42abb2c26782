// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"encoding/json"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardenletconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/gardenlet/v1alpha1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"
	seedmanagementv1alpha1 "github.com/gardener/gardener/pkg/apis/seedmanagement/v1alpha1"

	localv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/local/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// managedSeedSpecs make a Shoot a seed, and move another Shoot there and back.
func managedSeedSpecs() {
	const (
		name = "e2e-seed"
		// machineType is large enough for the requests of all system components.
		machineType = "e2e-seed"
	)
	var (
		shoot       *gardencorev1beta1.Shoot
		managedSeed *seedmanagementv1alpha1.ManagedSeed
		seed        *gardencorev1beta1.Seed
	)

	BeforeAll(func(ctx SpecContext) {
		if !chosen("managedseed") && !chosen("migration") {
			Skip("it takes more memory than every machine has; ask for it by LABELS=managedseed")
		}
		shoot = seedShoot(ctx, name, machineType)
		managedSeed = &seedmanagementv1alpha1.ManagedSeed{ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: name}}
		seed = landscape.Named[*gardencorev1beta1.Seed]("", name)
		withMachineType(ctx, machineType)
		DeferCleanup(remove, shoot)
		DeferCleanup(removeManagedSeed, managedSeed)
		makeRoom(ctx)
	})

	It("begins as a Shoot in the garden's namespace", specPatience, func(ctx SpecContext) {
		timed(name, "create", func() {
			create(ctx, shoot)
			g.EventuallyHealthy(ctx, shoot, patience)
		})
	})

	It("is registered by a gardenlet that runs in it", specPatience, func(ctx SpecContext) {
		managedSeed.Spec = managedSeedSpec(ctx, name)
		timed(name, "register", func() {
			Expect(g.Client.Create(ctx, managedSeed)).To(Succeed())
			Eventually(func() ([]gardencorev1beta1.Condition, error) {
				fresh := &seedmanagementv1alpha1.ManagedSeed{}
				err := g.Client.Get(ctx, client.ObjectKeyFromObject(managedSeed), fresh)
				return fresh.Status.Conditions, err
			}).WithContext(ctx).WithTimeout(patience).Should(And(
				ContainElement(And(HaveField("Type", seedmanagementv1alpha1.ManagedSeedShootReconciled), HaveField("Status", gardencorev1beta1.ConditionTrue))),
				ContainElement(And(HaveField("Type", seedmanagementv1alpha1.SeedRegistered), HaveField("Status", gardencorev1beta1.ConditionTrue))),
			))
		})
		landscape.EventuallyReady(ctx, access(ctx, shoot).Client, gardenletDeployment())
		Eventually(seedConditions(ctx, seed)).WithContext(ctx).Should(ContainElement(And(
			HaveField("Type", gardencorev1beta1.GardenletReady), HaveField("Status", gardencorev1beta1.ConditionTrue))))
	})

	It("has the extension in it", specPatience, func(ctx SpecContext) {
		timed(name, "extension", func() {
			cluster := access(ctx, shoot)
			var namespace string
			Eventually(func() (err error) {
				namespace, err = extensionNamespace(ctx, name)
				return err
			}).WithContext(ctx).WithTimeout(patience).Should(Succeed())
			Eventually(func() ([]appsv1.Deployment, error) {
				list := &appsv1.DeploymentList{}
				err := cluster.Client.List(ctx, list, client.InNamespace(namespace))
				return list.Items, err
			}).WithContext(ctx).WithTimeout(patience).Should(ContainElement(HaveField("Status.ReadyReplicas", BeNumerically(">", 0))))
		})
		Eventually(seedConditions(ctx, seed)).WithContext(ctx).WithTimeout(patience).Should(ContainElement(And(
			HaveField("Type", gardencorev1beta1.SeedExtensionsReady), HaveField("Status", gardencorev1beta1.ConditionTrue))))
	})

	It("is ready", specPatience, func(ctx SpecContext) {
		timed(name, "ready", func() {
			Eventually(seedProblem(ctx, seed)).WithContext(ctx).WithTimeout(patience).Should(BeEmpty())
		})
	})

	migrationSpecs(name)
	machineMigrationSpecs(name)

	It("goes before its Shoot does", specPatience, func(ctx SpecContext) {
		timed(name, "unregister", func() { removeManagedSeed(ctx, managedSeed) })
		landscape.EventuallyGone(ctx, g.Client, seed)
		left := trace(ctx, shoot)
		timed(name, "delete", func() { remove(ctx, shoot) })
		left.expectNothingLeft(ctx)
	})
}

// seedShoot is the example with machines, in the garden's namespace and as Gardener wants it of a seed.
func seedShoot(ctx context.Context, name, machineType string) *gardencorev1beta1.Shoot {
	GinkgoHelper()
	shoot := exampleNamed(exampleMachines, name)
	credentials := landscape.Named[*securityv1alpha1.CredentialsBinding](shoot.Namespace, *shoot.Spec.CredentialsBindingName)
	Expect(g.Client.Get(ctx, client.ObjectKeyFromObject(credentials), credentials)).To(Succeed())
	own := &securityv1alpha1.CredentialsBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: name},
		Provider:   credentials.Provider, CredentialsRef: credentials.CredentialsRef,
	}
	Expect(client.IgnoreAlreadyExists(g.Client.Create(ctx, own))).To(Succeed())
	DeferCleanup(func(ctx SpecContext) { landscape.DeleteAndWait(ctx, g.Client, own) })

	config, err := json.Marshal(&localv1alpha1.WorkerConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: "WorkerConfig"},
		Sizing:   localv1alpha1.MachineSizingOvercommit,
		// Control planes can move if both seeds have the same backups.
		SharedBackupBuckets: true,
	})
	Expect(err).NotTo(HaveOccurred())
	shoot.Namespace = gardenNamespace
	shoot.Spec.CredentialsBindingName = new(name)
	shoot.Spec.Kubernetes.VerticalPodAutoscaler = &gardencorev1beta1.VerticalPodAutoscaler{Enabled: true}
	pool := &shoot.Spec.Provider.Workers[0]
	pool.Machine.Type, pool.ProviderConfig = machineType, &runtime.RawExtension{Raw: config}
	return shoot
}

// withMachineType adds a machine type to the CloudProfile as long as the container runs.
func withMachineType(ctx context.Context, name string) {
	GinkgoHelper()
	change := func(ctx context.Context, edit func(*gardencorev1beta1.CloudProfile)) {
		GinkgoHelper()
		profile := landscape.Named[*gardencorev1beta1.CloudProfile]("", cloudProfile)
		Expect(g.Client.Get(ctx, client.ObjectKeyFromObject(profile), profile)).To(Succeed())
		patch := client.MergeFrom(profile.DeepCopy())
		edit(profile)
		Expect(g.Client.Patch(ctx, profile, patch)).To(Succeed())
	}
	without := func(profile *gardencorev1beta1.CloudProfile) {
		var types []gardencorev1beta1.MachineType
		for _, machineType := range profile.Spec.MachineTypes {
			if machineType.Name != name {
				types = append(types, machineType)
			}
		}
		profile.Spec.MachineTypes = types
	}
	DeferCleanup(func(ctx SpecContext) { change(ctx, without) })
	change(ctx, func(profile *gardencorev1beta1.CloudProfile) {
		without(profile)
		profile.Spec.MachineTypes = append(profile.Spec.MachineTypes, gardencorev1beta1.MachineType{
			Name: name, CPU: resource.MustParse("8"), GPU: resource.MustParse("0"), Memory: resource.MustParse("16Gi"),
			Usable: new(true), Architecture: new("amd64"),
			// The machines of its shoots have 20Gi each.
			Storage: &gardencorev1beta1.MachineTypeStorage{Class: "standard", Type: "default", StorageSize: new(resource.MustParse("60Gi"))},
		})
	})
}

// managedSeedSpec registers a Shoot as a seed that has the DNS of the first one, for nobody's shoots.
func managedSeedSpec(ctx context.Context, name string) seedmanagementv1alpha1.ManagedSeedSpec {
	GinkgoHelper()
	first := landscape.Named[*gardencorev1beta1.Seed]("", seedName)
	Expect(g.Client.Get(ctx, client.ObjectKeyFromObject(first), first)).To(Succeed())
	config, err := json.Marshal(&gardenletconfigv1alpha1.GardenletConfiguration{
		TypeMeta: metav1.TypeMeta{APIVersion: gardenletconfigv1alpha1.SchemeGroupVersion.String(), Kind: "GardenletConfiguration"},
		SeedConfig: &gardenletconfigv1alpha1.SeedConfig{SeedTemplate: gardencorev1beta1.SeedTemplate{Spec: gardencorev1beta1.SeedSpec{
			Backup: first.Spec.Backup,
			DNS:    gardencorev1beta1.SeedDNS{Internal: first.Spec.DNS.Internal, Defaults: first.Spec.DNS.Defaults},
			Settings: &gardencorev1beta1.SeedSettings{
				ExcessCapacityReservation: &gardencorev1beta1.SeedSettingExcessCapacityReservation{Enabled: new(false)},
				Scheduling:                &gardencorev1beta1.SeedSettingScheduling{Visible: false},
				VerticalPodAutoscaler:     &gardencorev1beta1.SeedSettingVerticalPodAutoscaler{Enabled: false},
			},
		}}},
	})
	Expect(err).NotTo(HaveOccurred())
	return seedmanagementv1alpha1.ManagedSeedSpec{
		Shoot: &seedmanagementv1alpha1.Shoot{Name: name},
		Gardenlet: seedmanagementv1alpha1.GardenletConfig{
			Config:     runtime.RawExtension{Raw: config},
			Deployment: &seedmanagementv1alpha1.GardenletDeployment{ReplicaCount: new(int32(1))},
		},
	}
}

func removeManagedSeed(ctx context.Context, managedSeed *seedmanagementv1alpha1.ManagedSeed) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(g.Client.Delete(ctx, managedSeed))).To(Succeed())
	Eventually(landscape.IsGone(ctx, g.Client, managedSeed)).WithContext(ctx).WithTimeout(patience).Should(BeTrue(), "the ManagedSeed goes")
}

// seedConditions reads those of a Seed for Eventually.
func seedConditions(ctx context.Context, seed *gardencorev1beta1.Seed) func() ([]gardencorev1beta1.Condition, error) {
	return func() ([]gardencorev1beta1.Condition, error) {
		fresh := &gardencorev1beta1.Seed{}
		err := g.Client.Get(ctx, client.ObjectKeyFromObject(seed), fresh)
		return fresh.Status.Conditions, err
	}
}
