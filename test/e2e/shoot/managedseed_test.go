// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"bufio"
	"context"
	"net"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"
	seedmanagementv1alpha1 "github.com/gardener/gardener/pkg/apis/seedmanagement/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
	"github.com/gardener/gardener-extension-provider-local/test/probe"
)

// managedSeedSpecs make a Shoot a seed, and move another Shoot there and back.
func managedSeedSpecs() {
	const name = "e2e-seed"
	var (
		credentials *securityv1alpha1.CredentialsBinding
		shoot       *gardencorev1beta1.Shoot
		managedSeed *seedmanagementv1alpha1.ManagedSeed
		seed        *gardencorev1beta1.Seed
	)

	BeforeAll(func(ctx SpecContext) {
		if !landscape.Chosen("managedseed") && !landscape.Chosen("migration") {
			Skip("it takes more memory than every machine has; ask for it by LABELS=managedseed")
		}
		credentials, shoot, managedSeed = seedExamples(name)
		seed = landscape.Named[*gardencorev1beta1.Seed]("", name)
		Expect(client.IgnoreAlreadyExists(g.Client.Create(ctx, credentials))).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { landscape.DeleteAndWait(ctx, g.Client, credentials) })
		DeferCleanup(remove, shoot)
		DeferCleanup(removeManagedSeed, managedSeed)
		makeRoom(ctx)
	})

	It("begins as a Shoot in the garden's namespace", specPatience, func(ctx SpecContext) {
		createHealthy(ctx, shoot)
	})

	It("is registered by a gardenlet that runs in it", specPatience, func(ctx SpecContext) {
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

	innerShootSpecs(name)
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

// innerShootSpecs create a Shoot whose machine is a pod on the machine of another one.
func innerShootSpecs(seed string) {
	const name = "e2e-inner"
	var (
		shoot   *gardencorev1beta1.Shoot
		cluster *landscape.Cluster
	)

	BeforeAll(func() {
		shoot = exampleNamed(exampleMachines, name)
		shoot.Spec.SeedName = new(seed)
		// That of the example is the range of the nodes of the seed.
		shoot.Spec.Networking.Nodes = new("10.248.0.0/16")
		pool := &shoot.Spec.Provider.Workers[0]
		pool.Minimum, pool.Maximum = 1, 1
		DeferCleanup(remove, shoot)
	})

	It("has a Shoot with a machine", specPatience, func(ctx SpecContext) {
		createHealthy(ctx, shoot)
		cluster = access(ctx, shoot)
	})

	It("has load balancers of that Shoot that the host reaches", specPatience, func(ctx SpecContext) {
		server := landscape.ProbePod(metav1.NamespaceDefault, "server", l.PushProbe(ctx), "serve", "-name", "server", "-http", ":8080")
		Expect(cluster.Client.Create(ctx, server)).To(Succeed())
		service := &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "server"},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, Selector: server.Labels,
				Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(landscape.ProbePort)}},
			},
		}
		Expect(cluster.Client.Create(ctx, service)).To(Succeed())
		landscape.EventuallyPodReady(ctx, cluster.Client, server)
		Eventually(landscape.Get(ctx, cluster.Client, service)).WithContext(ctx).Should(HaveField("Status.LoadBalancer.Ingress", HaveLen(1)))
		Eventually(func() (probe.Answer, error) {
			return probe.Fetch(ctx, "http://"+service.Status.LoadBalancer.Ingress[0].IP+"/", "")
		}).WithContext(ctx).Should(HaveField("Name", "server"))
	})

	It("has a Bastion of that Shoot that the host reaches", specPatience, func(ctx SpecContext) {
		bastion := exampleOfBastion()
		bastion.Name, bastion.Spec.ShootRef.Name = name, name
		bastion.Spec.Ingress[0].IPBlock.CIDR = "0.0.0.0/0"
		eventuallyReady(ctx, bastion)
		Eventually(func() (string, error) {
			conn, err := net.DialTimeout("tcp", net.JoinHostPort(bastion.Status.Ingress.IP, "22"), 5*time.Second)
			if err != nil {
				return "", err
			}
			defer func() { _ = conn.Close() }()
			if err := conn.SetDeadline(time.Now().Add(5 * time.Second)); err != nil {
				return "", err
			}
			return bufio.NewReader(conn).ReadString('\n')
		}).WithContext(ctx).Should(HavePrefix("SSH-2.0-"))
	})

	It("loses that Shoot", specPatience, func(ctx SpecContext) {
		timed(name, "delete", func() { remove(ctx, shoot) })
	})
}

// seedExamples are the Shoot and the ManagedSeed of the examples, with another name, and the credentials of the Shoot.
func seedExamples(name string) (*securityv1alpha1.CredentialsBinding, *gardencorev1beta1.Shoot, *seedmanagementv1alpha1.ManagedSeed) {
	GinkgoHelper()
	credentials, shoot, managedSeed := &securityv1alpha1.CredentialsBinding{}, &gardencorev1beta1.Shoot{}, &seedmanagementv1alpha1.ManagedSeed{}
	first, second, _ := strings.Cut(string(readExample("97-shoot-managedseed.yaml").content), "\n---\n")
	Expect(yaml.UnmarshalStrict([]byte(first), credentials)).To(Succeed())
	Expect(yaml.UnmarshalStrict([]byte(second), shoot)).To(Succeed())
	Expect(yaml.UnmarshalStrict(readExample("98-managedseed.yaml").content, managedSeed)).To(Succeed())
	credentials.Name, managedSeed.Name, managedSeed.Spec.Shoot.Name = name, name, name
	shoot.Spec.CredentialsBindingName = new(name)
	return credentials, named(shoot, name), managedSeed
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
