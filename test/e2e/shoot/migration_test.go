// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strconv"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

// migrationSpecs move the control plane of a Shoot to another seed and back again. That seed must be in a cluster of its own,
// as both give the same name to the namespace of the shoot, and have the same backups.
func migrationSpecs(destination string) {
	const name = "e2e-moves"
	var (
		shoot     *gardencorev1beta1.Shoot
		authority []*x509.Certificate
	)

	BeforeAll(func() {
		shoot = exampleNamed(exampleWorkerless, name)
		shoot.Spec.SeedName = new(seedName)
		DeferCleanup(remove, shoot)
	})

	It("lets a Shoot be created in the other seed that is to move", specPatience, func(ctx SpecContext) {
		createHealthy(ctx, shoot)
		authority = authorities(ctx, shoot)
		writeNote(ctx, shoot)
	})

	for _, back := range []bool{false, true} {
		text := map[bool]string{false: "has that Shoot move there", true: "has it move back"}[back]
		It(text, specPatience, func(ctx SpecContext) {
			from, to := seedName, destination
			if back {
				from, to = to, from
			}
			var left traces
			if from == seedName {
				left = trace(ctx, shoot)
			}
			timed(name, text, func() {
				bind(ctx, shoot, to)
				g.EventuallyHealthy(ctx, shoot, patience)
			})
			Expect(shoot.Status.SeedName).To(HaveValue(Equal(to)))
			Expect(authorities(ctx, shoot)).To(Equal(authority), "its clients need not know")
			expectNote(ctx, shoot)
			if from == seedName {
				Eventually(func() ([]string, error) { return left.inSeed(ctx) }).WithContext(ctx).Should(BeEmpty(), "the seed forgets it")
			}
		})
	}

	It("has nothing left of that Shoot once it is deleted", specPatience, func(ctx SpecContext) {
		left := trace(ctx, shoot)
		timed(name, "delete", func() { remove(ctx, shoot) })
		left.expectNothingLeft(ctx)
	})
}

// machineMigrationSpecs move the control plane of a Shoot with a machine to another seed and back again. The machine stays: the
// Shoot's credentials have a kubeconfig for the cluster of the first seed, so that it is not part of the control plane there.
func machineMigrationSpecs(destination string) {
	const (
		name       = "e2e-roams"
		file, text = "/data/note", "it is still there"
	)
	var (
		shoot    *gardencorev1beta1.Shoot
		workload *corev1.Pod
		before   member
		// forget takes back what the first seed was told about names.
		forget func(context.Context)
	)

	BeforeAll(func(ctx SpecContext) {
		shoot = exampleNamed(exampleMachines, name)
		shoot.Spec.SeedName = new(seedName)
		shoot.Spec.CredentialsBindingName = new("first-seed")
		// That of the example is the range of the nodes of the other seed.
		shoot.Spec.Networking.Nodes = new("10.249.0.0/16")
		pool := &shoot.Spec.Provider.Workers[0]
		pool.Minimum, pool.Maximum = 1, 1
		leadToFirstSeed(ctx, shoot)
		DeferCleanup(remove, shoot)
		DeferCleanup(func(ctx SpecContext) {
			if forget != nil {
				forget(ctx)
			}
		})
	})

	It("lets a Shoot with a machine be created that is to move", specPatience, func(ctx SpecContext) {
		createHealthy(ctx, shoot)
		before = memberOf(ctx, shoot)

		cluster := access(ctx, shoot)
		workload = landscape.ProbePod(metav1.NamespaceDefault, "workload", l.PushProbe(ctx), "serve", "-name", "workload", "-http", ":8080")
		workload.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		workload.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
		// It is not to be evicted while the Node has no API server.
		workload.Spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
		Expect(cluster.Client.Create(ctx, workload)).To(Succeed())
		landscape.EventuallyPodReady(ctx, cluster.Client, workload)
		_, err := landscape.Execute(ctx, cluster.Config, workload, "/probe", "write", "-file", file, "-text", text)
		Expect(err).NotTo(HaveOccurred())
	})

	for _, back := range []bool{false, true} {
		what := map[bool]string{false: "has that Shoot move there without its machine", true: "has it move back to its machine"}[back]
		It(what, specPatience, func(ctx SpecContext) {
			timed(name, what, func() {
				if back {
					forget(ctx)
					forget = nil
					bind(ctx, shoot, seedName)
				} else {
					bind(ctx, shoot, destination)
					forget = leadNames(ctx, shoot, gatewayOf(ctx, destination))
				}
				g.EventuallyHealthy(ctx, shoot, patience)
			})
			Expect(memberOf(ctx, shoot)).To(Equal(before), "the machine, its pod and its Node are the same")

			cluster, pod := access(ctx, shoot), workload.DeepCopy()
			Expect(cluster.Client.Get(ctx, client.ObjectKeyFromObject(workload), pod)).To(Succeed())
			Expect(pod.UID).To(Equal(workload.UID))
			Expect(pod.Status.ContainerStatuses).To(HaveEach(HaveField("RestartCount", BeZero())), "it ran all the time")
			Eventually(func() (string, error) {
				return landscape.Execute(ctx, cluster.Config, pod, "/probe", "read", "-file", file)
			}).WithContext(ctx).Should(Equal(text))
		})
	}

	It("has nothing left of that Shoot and of its machine once it is deleted", specPatience, func(ctx SpecContext) {
		left := trace(ctx, shoot)
		timed(name, "delete", func() { remove(ctx, shoot) })
		left.expectNothingLeft(ctx)
		landscape.EventuallyGone(ctx, l.Client, landscape.Named[*corev1.Namespace]("", machine.RemoteNamespace(shoot.Status.TechnicalID)))
	})
}

// member is the only machine of a shoot: the names and UIDs of its Node and its pod, and the name of its Machine, which is another
// object in each seed.
type member struct {
	node, pod, machine string
	nodeUID, podUID    types.UID
}

// memberOf waits until a shoot whose machines are in the cluster of the first seed has a single one, which is ready.
func memberOf(ctx context.Context, shoot *gardencorev1beta1.Shoot) (found member) {
	GinkgoHelper()
	cluster, seed := access(ctx, shoot), l.Client
	if name := *shoot.Status.SeedName; name != seedName {
		seed = access(ctx, landscape.Named[*gardencorev1beta1.Shoot](gardenNamespace, name)).Client
	}
	Eventually(func(g Gomega) {
		nodes := &corev1.NodeList{}
		g.Expect(cluster.Client.List(ctx, nodes)).To(Succeed())
		g.Expect(nodes.Items).To(HaveLen(1))
		g.Expect(nodes.Items[0].Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeReady), HaveField("Status", corev1.ConditionTrue))))
		pods := &corev1.PodList{}
		g.Expect(l.Client.List(ctx, pods, client.InNamespace(machine.RemoteNamespace(shoot.Status.TechnicalID)), client.MatchingLabels(machine.Selector()))).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(1))
		machines := &metav1.PartialObjectMetadataList{}
		machines.SetGroupVersionKind(machinev1alpha1.SchemeGroupVersion.WithKind("MachineList"))
		g.Expect(seed.List(ctx, machines, client.InNamespace(shoot.Status.TechnicalID))).To(Succeed())
		g.Expect(machines.Items).To(HaveLen(1))
		found = member{
			node: nodes.Items[0].Name, nodeUID: nodes.Items[0].UID, pod: pods.Items[0].Name, podUID: pods.Items[0].UID, machine: machines.Items[0].Name,
		}
	}).WithContext(ctx).Should(Succeed())
	Expect([]string{found.node, found.pod}).To(HaveEach(machine.PodName(found.machine)))
	return found
}

// leadToFirstSeed makes the credentials that a Shoot names: a kubeconfig for the cluster of the first seed, by an address of its
// API server that works in the other one as well.
func leadToFirstSeed(ctx context.Context, shoot *gardencorev1beta1.Shoot) {
	GinkgoHelper()
	endpoints := &discoveryv1.EndpointSliceList{}
	Expect(l.Client.List(ctx, endpoints, client.InNamespace(metav1.NamespaceDefault), client.MatchingLabels{discoveryv1.LabelServiceName: "kubernetes"})).To(Succeed())
	Expect(endpoints.Items).NotTo(BeEmpty())
	first := endpoints.Items[0]
	Expect(first.Endpoints).NotTo(BeEmpty())
	Expect(first.Ports).NotTo(BeEmpty())

	config, err := clientcmd.LoadFromFile(os.Getenv("KUBECONFIG"))
	Expect(err).NotTo(HaveOccurred())
	Expect(clientcmdapi.FlattenConfig(config)).To(Succeed(), "it must not name files")
	for _, cluster := range config.Clusters {
		cluster.Server = "https://" + net.JoinHostPort(first.Endpoints[0].Addresses[0], strconv.Itoa(int(*first.Ports[0].Port)))
		cluster.TLSServerName = "kubernetes.default.svc"
	}
	kubeconfig, err := clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())

	name := *shoot.Spec.CredentialsBindingName
	landscape.Create(ctx, g.Client, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: shoot.Namespace, Name: name}, Data: map[string][]byte{"kubeconfig": kubeconfig},
	})
	landscape.Create(ctx, g.Client, &securityv1alpha1.CredentialsBinding{
		ObjectMeta:     metav1.ObjectMeta{Namespace: shoot.Namespace, Name: name},
		Provider:       securityv1alpha1.CredentialsBindingProvider{Type: "local"},
		CredentialsRef: corev1.ObjectReference{APIVersion: "v1", Kind: "Secret", Namespace: shoot.Namespace, Name: name},
	})
}

// leadNames has the CoreDNS of the first seed, which the machines ask, lead to the API server of a Shoot in another seed, until what
// it returns is called. Seeds with a common name server would need nothing like it (docs/usage/managedseeds.md).
func leadNames(ctx context.Context, shoot *gardencorev1beta1.Shoot, address string) (forget func(context.Context)) {
	GinkgoHelper()
	var records []*extensionsv1alpha1.DNSRecord
	for i, name := range apiServerNames(shoot) {
		record := &extensionsv1alpha1.DNSRecord{
			ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: fmt.Sprintf("%s-%d", shoot.Name, i)},
			Spec: extensionsv1alpha1.DNSRecordSpec{
				// A name of a seed goes before that of a shoot, which the first seed still has for a moment.
				DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local", Class: new(extensionsv1alpha1.ExtensionClassSeed)},
				SecretRef:   corev1.SecretReference{Namespace: gardenNamespace, Name: shoot.Name},
				Name:        name, RecordType: extensionsv1alpha1.DNSRecordTypeA, Values: []string{address},
			},
		}
		Expect(l.Client.Create(ctx, record)).To(Succeed())
		records = append(records, record)
	}
	for _, record := range records {
		landscape.EventuallySucceeded(ctx, l.Client, record)
	}
	return func(ctx context.Context) {
		GinkgoHelper()
		for _, record := range records {
			landscape.DeleteAndWait(ctx, l.Client, record)
		}
	}
}

// bind asks for another seed, which only the sub-resource allows.
func bind(ctx context.Context, shoot *gardencorev1beta1.Shoot, seed string) {
	GinkgoHelper()
	Expect(g.Refresh(ctx, shoot)).To(Succeed())
	patch := client.MergeFrom(shoot.DeepCopy())
	shoot.Spec.SeedName = new(seed)
	Expect(g.Client.SubResource("binding").Patch(ctx, shoot, patch)).To(Succeed())
}
