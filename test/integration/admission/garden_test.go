// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"encoding/base64"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	gardencorev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/secrets"

	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

// envGardenerAPIServer names the variable with the path of gardener-apiserver.
const envGardenerAPIServer = "TEST_ASSET_GARDENER_APISERVER"

// Plugins of gardener-apiserver that ask for controllers and objects which a Garden has and this one has not. What labels
// objects and what calls webhooks stays.
var withoutPlugins = []string{
	"DeletionConfirmation", "ExtensionValidator", "SeedMutator", "SeedValidator", "ShootDNS", "ShootExposureClass", "ShootMutator",
	"ShootQuotaValidator", "ShootTolerationRestriction", "ShootValidator",
}

// startGarden starts etcd, a kube-apiserver and, behind it, gardener-apiserver.
func startGarden(ctx SpecContext) *envtest.Environment {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	garden := &envtest.Environment{}
	flags := garden.ControlPlane.GetAPIServer().Configure()
	flags.Set("requestheader-extra-headers-prefix", "X-Remote-Extra-").Set("requestheader-group-headers", "X-Remote-Group").Set("requestheader-username-headers", "X-Remote-User")
	for flag, path := range frontProxyCertificates(dir) {
		flags.Set(flag, path)
	}
	config, err := garden.Start()
	Expect(err).NotTo(HaveOccurred(), "TEST_ASSET_ETCD and TEST_ASSET_KUBE_APISERVER name what `make test` builds")
	DeferCleanup(garden.Stop)
	config.QPS, config.Burst = 1000, 2000

	runGardenerAPIServer(ctx, garden, config, dir)
	return garden
}

// frontProxyCertificates are those by which kube-apiserver tells gardener-apiserver who asks.
func frontProxyCertificates(dir string) map[string]string {
	GinkgoHelper()
	ca, err := (&secrets.CertificateSecretConfig{Name: "front-proxy", CommonName: "front-proxy", CertType: secrets.CACert}).GenerateCertificate()
	Expect(err).NotTo(HaveOccurred())
	proxy, err := (&secrets.CertificateSecretConfig{Name: "front-proxy", CommonName: "front-proxy", CertType: secrets.ClientCert, SigningCA: ca}).GenerateCertificate()
	Expect(err).NotTo(HaveOccurred())
	paths := map[string]string{}
	for flag, content := range map[string][]byte{
		"requestheader-client-ca-file": ca.CertificatePEM, "proxy-client-cert-file": proxy.CertificatePEM, "proxy-client-key-file": proxy.PrivateKeyPEM,
	} {
		paths[flag] = filepath.Join(dir, flag)
		Expect(os.WriteFile(paths[flag], content, 0o600)).To(Succeed())
	}
	return paths
}

func runGardenerAPIServer(ctx SpecContext, garden *envtest.Environment, config *rest.Config, dir string) {
	GinkgoHelper()
	binary := os.Getenv(envGardenerAPIServer)
	Expect(binary).NotTo(BeEmpty(), "%s names what `make test` builds", envGardenerAPIServer)

	user, err := garden.AddUser(envtest.User{Name: "gardener-apiserver", Groups: []string{"system:masters"}}, config)
	Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := user.KubeConfig()
	Expect(err).NotTo(HaveOccurred())
	path := filepath.Join(dir, "kubeconfig")
	Expect(os.WriteFile(path, kubeconfig, 0o600)).To(Succeed())
	_, ca, certificates, err := secrets.SelfGenerateTLSServerCertificate("gardener-apiserver",
		[]string{"localhost", "gardener-apiserver.kube-system.svc"}, []net.IP{net.IPv4(127, 0, 0, 1)})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(os.RemoveAll, certificates)

	port := suite.FreePort()
	server := exec.Command(binary, // #nosec G204 -- what make has built
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(port), "--etcd-servers="+etcdURL(garden), "--cluster-identity=test",
		"--tls-cert-file="+filepath.Join(certificates, secrets.DataKeyCertificate), "--tls-private-key-file="+filepath.Join(certificates, secrets.DataKeyPrivateKey),
		"--authentication-kubeconfig="+path, "--authorization-kubeconfig="+path, "--kubeconfig="+path,
		"--disable-admission-plugins="+strings.Join(withoutPlugins, ","))
	logs, err := os.Create(filepath.Join(dir, "gardener-apiserver.log"))
	Expect(err).NotTo(HaveOccurred())
	server.Stdout, server.Stderr = logs, logs
	Expect(server.Start()).To(Succeed())
	DeferCleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		content, _ := os.ReadFile(logs.Name())
		AddReportEntry("log of gardener-apiserver", string(content), ReportEntryVisibilityFailureOrVerbose)
	})
	register(ctx, config, port, ca.CertificatePEM)
}

func etcdURL(garden *envtest.Environment) string {
	address := garden.ControlPlane.Etcd.URL
	return (&url.URL{Scheme: address.Scheme, Host: address.Host}).String()
}

// register has kube-apiserver ask gardener-apiserver for Gardener's kinds, and waits until it does.
func register(ctx SpecContext, config *rest.Config, port int, ca []byte) {
	GinkgoHelper()
	c, err := client.New(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	Expect(c.Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "gardener-apiserver"},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"},
	})).To(Succeed())

	versions := []schema.GroupVersion{gardencorev1.SchemeGroupVersion, gardencorev1beta1.SchemeGroupVersion, securityv1alpha1.SchemeGroupVersion}
	for _, version := range versions {
		service := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
			"group": version.Group, "version": version.Version, "groupPriorityMinimum": int64(100), "versionPriority": int64(100),
			"caBundle": base64.StdEncoding.EncodeToString(ca),
			"service":  map[string]any{"namespace": metav1.NamespaceSystem, "name": "gardener-apiserver", "port": int64(port)},
		}}}
		service.SetGroupVersionKind(schema.GroupVersionKind{Group: "apiregistration.k8s.io", Version: "v1", Kind: "APIService"})
		service.SetName(version.Version + "." + version.Group)
		Expect(c.Create(ctx, service)).To(Succeed())
	}

	resources, err := discovery.NewDiscoveryClientForConfig(config)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func(g Gomega) {
		for _, version := range versions {
			list, err := resources.ServerResourcesForGroupVersion(version.String())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(list.APIResources).NotTo(BeEmpty())
		}
	}).WithTimeout(2*time.Minute).WithPolling(200*time.Millisecond).Should(Succeed(), "gardener-apiserver serves")
}
