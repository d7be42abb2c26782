// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines_test

import (
	"context"
	"encoding/json"
	"net"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/component"
	"github.com/gardener/gardener/pkg/component/extensions/controlplane"
	"github.com/gardener/gardener/pkg/component/extensions/infrastructure"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	"github.com/gardener/gardener/pkg/utils/gardener/tokenrequest"
	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

const (
	kubernetesVersion = "1.36.3"
	etcdVersion       = "v3.6.8"
	machinesVersion   = "v0.62.1"

	namespace   = "shoot--e2e--machines"
	shootName   = "machines"
	podCIDR     = "10.3.0.0/16"
	serviceCIDR = "10.112.0.0/16"
)

var nodeCIDR = landscape.CurrentNetwork().ShootNodes

// shoot is the cluster that the machines belong to.
type shoot struct {
	// client and clientset are an administrator's. The client does not cache.
	client    client.Client
	clientset kubernetes.Interface

	// address is where kube-apiserver is reached from machines, and secrets are its certificates and kubeconfigs.
	address string
	secrets secretsmanager.Interface
	ca      *corev1.Secret
	// proxy is the kubeconfig of kube-proxy.
	proxy []byte
	mcm   machinecontrollermanager.Interface

	infrastructure       infrastructure.Interface
	controlPlane         controlplane.Interface
	infrastructureStatus *runtime.RawExtension
	configs              map[string]*operatingsystemconfig.OperatingSystemConfigs
}

// secretNames are the Secrets of a control plane, for templates.
type secretNames struct {
	CA, Server, KubeletClient, ServiceAccountKey, ControllerManager, Scheduler, Admin string
}

// All are those that are mounted together.
func (s secretNames) All() []string {
	return []string{s.CA, s.Server, s.KubeletClient, s.ServiceAccountKey, s.ControllerManager}
}

// createShoot does what gardenlet does before there are machines.
func createShoot(ctx context.Context) *shoot {
	GinkgoHelper()
	s := &shoot{}
	s.createNamespace(ctx)
	s.expose(ctx)
	s.deployControlPlane(ctx, s.generateSecrets(ctx))
	return s
}

// createNamespace makes the namespace, the credentials, of which this provider needs none, and the Cluster.
func (s *shoot) createNamespace(ctx context.Context) {
	GinkgoHelper()
	landscape.Create(ctx, l.Client, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{
		v1beta1constants.GardenRole:                     v1beta1constants.GardenRoleShoot,
		v1beta1constants.LabelSeedProvider:              "local",
		v1beta1constants.LabelShootProvider:             "local",
		v1beta1constants.LabelNetworkingProvider:        "calico",
		v1beta1constants.LabelBackupProvider:            "local",
		v1beta1constants.LabelExtensionPrefix + "local": "true",
		"pod-security.kubernetes.io/enforce":            "privileged",
	}}})
	Expect(l.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1beta1constants.SecretNameCloudProvider}})).To(Succeed())

	var err error
	s.secrets, err = secretsmanager.New(ctx, GinkgoLogr, clock.RealClock{}, l.Client, "gardenlet", secretsmanager.WithNamespaces(namespace))
	Expect(err).NotTo(HaveOccurred())
	s.ca, err = s.secrets.Generate(ctx, &secretsutils.CertificateSecretConfig{
		Name: v1beta1constants.SecretNameCACluster, CommonName: "kubernetes", CertType: secretsutils.CACert,
	}, secretsmanager.Persist())
	Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := tokenrequest.GenerateGenericTokenKubeconfig(ctx, s.secrets, namespace, "https://"+v1beta1constants.DeploymentNameKubeAPIServer)
	Expect(err).NotTo(HaveOccurred())

	landscape.Create(ctx, l.Client, &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: namespace, Annotations: map[string]string{
			v1beta1constants.AnnotationKeyGenericTokenKubeconfigSecretName: kubeconfig.Name,
		}},
		Spec: clusterSpec(ctx, pools()),
	})
}

// expose gives kube-apiserver its address.
func (s *shoot) expose(ctx context.Context) {
	GinkgoHelper()
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1beta1constants.DeploymentNameKubeAPIServer},
		Spec: corev1.ServiceSpec{
			Type:     corev1.ServiceTypeLoadBalancer,
			Selector: map[string]string{v1beta1constants.LabelApp: v1beta1constants.LabelKubernetes, v1beta1constants.LabelRole: v1beta1constants.LabelAPIServer},
			Ports:    []corev1.ServicePort{{Name: "kube-apiserver", Port: 443}},
		},
	}
	Expect(l.Client.Create(ctx, service)).To(Succeed())
	Eventually(landscape.Get(ctx, l.Client, service)).Should(HaveField("Status.LoadBalancer.Ingress", HaveLen(1)))
	s.address = service.Status.LoadBalancer.Ingress[0].IP
}

func (s *shoot) generateSecrets(ctx context.Context) secretNames {
	GinkgoHelper()
	generate := func(config secretsutils.ConfigInterface, opts ...secretsmanager.GenerateOption) *corev1.Secret {
		GinkgoHelper()
		secret, err := s.secrets.Generate(ctx, config, append(opts, secretsmanager.Rotate(secretsmanager.InPlace))...)
		Expect(err).NotTo(HaveOccurred())
		return secret
	}
	signed := secretsmanager.SignedByCA(v1beta1constants.SecretNameCACluster)
	access := func(name, user, host string, groups ...string) *corev1.Secret {
		GinkgoHelper()
		return generate(&secretsutils.ControlPlaneSecretConfig{
			Name: name,
			CertificateSecretConfig: &secretsutils.CertificateSecretConfig{
				CommonName: user, Organization: groups, CertType: secretsutils.ClientCert,
			},
			KubeConfigRequests: []secretsutils.KubeConfigRequest{{
				ClusterName: namespace, APIServerHost: host, CAData: s.ca.Data[secretsutils.DataKeyCertificateCA],
			}},
		}, signed)
	}

	const inside = v1beta1constants.DeploymentNameKubeAPIServer
	admin := access("admin", "e2e", s.address, "system:masters")
	s.connect(admin.Data[secretsutils.DataKeyKubeconfig])
	// The access of gardenlet.
	gardener := access("gardener-access", "e2e", inside+"."+namespace+".svc", "system:masters")
	Expect(l.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: v1beta1constants.SecretNameGardener}, Data: gardener.Data,
	})).To(Succeed())
	s.proxy = access("kube-proxy", "system:kube-proxy", s.address).Data[secretsutils.DataKeyKubeconfig]
	return secretNames{
		CA: s.ca.Name,
		Server: generate(&secretsutils.CertificateSecretConfig{
			Name: "kube-apiserver", CommonName: "kube-apiserver", CertType: secretsutils.ServerCert,
			DNSNames:    []string{inside, inside + "." + namespace, inside + "." + namespace + ".svc", "kubernetes.default.svc", "localhost"},
			IPAddresses: []net.IP{net.ParseIP(s.address), net.ParseIP("10.112.0.1")},
		}, signed).Name,
		KubeletClient: generate(&secretsutils.CertificateSecretConfig{
			Name: "kube-apiserver-kubelet", CommonName: "system:kube-apiserver:kubelet", Organization: []string{"system:masters"}, CertType: secretsutils.ClientCert,
		}, signed).Name,
		ServiceAccountKey: generate(&secretsutils.RSASecretConfig{Name: "service-account-key", Bits: 2048}).Name,
		ControllerManager: access("kube-controller-manager-access", "system:kube-controller-manager", inside).Name,
		Scheduler:         access("kube-scheduler-access", "system:kube-scheduler", inside).Name,
		Admin:             access("admin-inside", "e2e", inside, "system:masters").Name,
	}
}

// connect gets an administrator's access for the suite.
func (s *shoot) connect(kubeconfig []byte) {
	GinkgoHelper()
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	config.QPS, config.Burst = 200, 400
	s.clientset, err = kubernetes.NewForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	s.client, err = client.New(config, client.Options{Scheme: l.Client.Scheme()})
	Expect(err).NotTo(HaveOccurred())
}

func (s *shoot) deployControlPlane(ctx context.Context, names secretNames) {
	GinkgoHelper()
	ofTheSeed := landscape.Named[*appsv1.Deployment](landscape.GardenNamespace, v1beta1constants.DeploymentNameGardenerResourceManager)
	Expect(l.Client.Get(ctx, client.ObjectKeyFromObject(ofTheSeed), ofTheSeed)).To(Succeed())
	values := map[string]any{
		"Namespace": namespace, "Address": s.address, "PodCIDR": podCIDR, "ServiceCIDR": serviceCIDR, "Secrets": names,
		"KubernetesVersion": "v" + kubernetesVersion, "EtcdVersion": etcdVersion,
		"ResourceManagerImage": ofTheSeed.Spec.Template.Spec.Containers[0].Image,
	}
	apply(ctx, l.Client, namespace, render("controlplane.yaml.tpl", values))
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		landscape.EventuallyReady(ctx, l.Client, landscape.Named[*appsv1.Deployment](namespace, name))
	}
	Eventually(func() error {
		_, err := s.clientset.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx)
		return err
	}).Should(Succeed())

	apply(ctx, s.client, "", render("bootstrap.yaml", nil))
	apply(ctx, l.Client, namespace, render("resourcemanager.yaml.tpl", values))
	landscape.EventuallyReady(ctx, l.Client, landscape.Named[*appsv1.Deployment](namespace, v1beta1constants.DeploymentNameGardenerResourceManager))
}

// deployMachineControllerManager deploys it by the code of gardenlet; the extension's webhooks add what is this provider's.
func (s *shoot) deployMachineControllerManager(ctx context.Context) {
	GinkgoHelper()
	s.mcm = machinecontrollermanager.New(l.Client, namespace, s.secrets, machinecontrollermanager.Values{
		Image: "gardener/machine-controller-manager:" + machinesVersion, Replicas: 1,
	})
	Expect(s.mcm.Deploy(ctx)).To(Succeed())
	landscape.EventuallyReady(ctx, l.Client, landscape.Named[*appsv1.Deployment](namespace, v1beta1constants.DeploymentNameMachineControllerManager))
}

// clusterSpec is what gardenlet writes about the shoot, its seed and its CloudProfile.
func clusterSpec(ctx context.Context, workers []gardencorev1beta1.Worker) extensionsv1alpha1.ClusterSpec {
	GinkgoHelper()
	raw := func(obj runtime.Object) runtime.RawExtension {
		data, err := json.Marshal(obj)
		Expect(err).NotTo(HaveOccurred())
		return runtime.RawExtension{Raw: data}
	}
	typeMeta := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: kind}
	}
	return extensionsv1alpha1.ClusterSpec{
		CloudProfile: raw(&gardencorev1beta1.CloudProfile{
			TypeMeta: typeMeta("CloudProfile"), ObjectMeta: metav1.ObjectMeta{Name: "local"}, Spec: cloudProfileSpec(ctx),
		}),
		Seed: new(raw(&gardencorev1beta1.Seed{TypeMeta: typeMeta("Seed"), ObjectMeta: metav1.ObjectMeta{Name: landscape.SeedName}})),
		Shoot: raw(&gardencorev1beta1.Shoot{
			TypeMeta:   typeMeta("Shoot"),
			ObjectMeta: metav1.ObjectMeta{Namespace: "garden-e2e", Name: shootName},
			Spec: gardencorev1beta1.ShootSpec{
				Region:     "local",
				Kubernetes: gardencorev1beta1.Kubernetes{Version: kubernetesVersion},
				Networking: &gardencorev1beta1.Networking{
					Type: new("calico"), Pods: new(podCIDR), Services: new(serviceCIDR), Nodes: new(nodeCIDR),
					IPFamilies: []gardencorev1beta1.IPFamily{gardencorev1beta1.IPFamilyIPv4},
				},
				Provider: gardencorev1beta1.Provider{Type: "local", Workers: workers},
			},
			Status: gardencorev1beta1.ShootStatus{TechnicalID: namespace},
		}),
	}
}

// kubeconfig writes an access to the API server at the shoot's address.
func (s *shoot) kubeconfig(auth clientcmdv1.AuthInfo) []byte {
	GinkgoHelper()
	config := &secretsutils.KubeconfigSecretConfig{
		ContextName: namespace,
		Cluster: clientcmdv1.Cluster{
			Server: "https://" + s.address, CertificateAuthorityData: s.ca.Data[secretsutils.DataKeyCertificateCA],
		},
		AuthInfo: auth,
	}
	data, err := config.Generate()
	Expect(err).NotTo(HaveOccurred())
	return data.SecretData()[secretsutils.DataKeyKubeconfig]
}

// patience is how often and how long Gardener's components look whether an object of an extension is ready.
const (
	interval = 250 * time.Millisecond
	severe   = 90 * time.Second
	timeout  = 3 * time.Minute
)

// deployExtensions makes what machines need of the extension, in gardenlet's order.
func (s *shoot) deployExtensions(ctx context.Context) {
	GinkgoHelper()
	s.infrastructure = infrastructure.New(GinkgoLogr, l.Client, &infrastructure.Values{
		Namespace: namespace, Name: shootName, Type: "local", Region: "local", AnnotateOperation: true,
	}, interval, severe, timeout)
	Expect(s.infrastructure.Deploy(ctx)).To(Succeed())
	Expect(s.infrastructure.Wait(ctx)).To(Succeed())
	s.infrastructureStatus = s.infrastructure.ProviderStatus()

	s.controlPlane = controlplane.New(GinkgoLogr, l.Client, &controlplane.Values{
		Namespace: namespace, Name: shootName, Type: "local", Region: "local", InfrastructureProviderStatus: s.infrastructureStatus,
	}, interval, severe, timeout)
	Expect(s.controlPlane.Deploy(ctx)).To(Succeed())
	Expect(s.controlPlane.Wait(ctx)).To(Succeed())

	s.configs = map[string]*operatingsystemconfig.OperatingSystemConfigs{}
	for _, pool := range pools() {
		s.configs[pool.Name] = s.provision(ctx, pool.Name)
	}
	s.deployMachineControllerManager(ctx)
}

// deleteWorker deletes the machines.
func (s *shoot) deleteWorker(ctx context.Context) {
	GinkgoHelper()
	if s.infrastructureStatus != nil {
		destroy(ctx, s.worker(s.infrastructureStatus, s.configs, nil))
	}
}

// deleteExtensions deletes what machines needed, in gardenlet's order.
func (s *shoot) deleteExtensions(ctx context.Context) {
	GinkgoHelper()
	if s.controlPlane != nil {
		destroy(ctx, s.controlPlane)
	}
	if s.infrastructure != nil {
		destroy(ctx, s.infrastructure)
	}
	for _, config := range s.configs {
		landscape.DeleteAndWait(ctx, l.Client, config.Init.Object)
	}
}

func destroy(ctx context.Context, step component.DeployWaiter) {
	GinkgoHelper()
	Expect(step.Destroy(ctx)).To(Succeed())
	Expect(step.WaitCleanup(ctx)).To(Succeed())
}

// delete deletes what is left of the shoot but for its namespace and Cluster. Without its machines nobody drains anymore
// what is in the cluster.
func (s *shoot) delete(ctx context.Context) {
	GinkgoHelper()
	for _, list := range []client.ObjectList{&corev1.ServiceList{}, &appsv1.DaemonSetList{}} {
		Expect(s.client.List(ctx, list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
		Expect(eachItem(list, func(obj client.Object) {
			if obj.GetName() == echo {
				landscape.DeleteAndWait(ctx, s.client, obj)
			}
		})).To(Succeed())
	}
	s.deleteWorker(ctx)
	// A machine that is deleted before it is a Node may become one nevertheless, which nobody removes.
	Expect(s.client.DeleteAllOf(ctx, &corev1.Node{})).To(Succeed())
	Expect(s.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(metav1.NamespaceSystem), client.GracePeriodSeconds(0))).To(Succeed())
	s.deleteExtensions(ctx)
	resources := &resourcesv1alpha1.ManagedResourceList{}
	if s.mcm != nil {
		Expect(s.mcm.Destroy(ctx)).To(Succeed())
	}
	Eventually(func() ([]resourcesv1alpha1.ManagedResource, error) {
		return resources.Items, l.Client.List(ctx, resources, client.InNamespace(namespace))
	}).Should(BeEmpty(), "gardener-resource-manager takes away what it has applied")
}
