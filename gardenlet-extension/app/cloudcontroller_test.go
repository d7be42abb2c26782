// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/instance"
	"github.com/gardener/gardener-extension-provider-local/pkg/loadbalancer/shoot"
)

func writeKubeconfig(t *testing.T, path string, user *clientcmdapi.AuthInfo) {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://192.0.2.1"}
	config.AuthInfos["u"] = user
	config.Contexts["x"] = &clientcmdapi.Context{Cluster: "c", AuthInfo: "u"}
	config.CurrentContext = "x"
	NewWithT(t).Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
}

func TestCloudControllerTrustsNoKubeconfigOfAUser(t *testing.T) {
	for name, user := range map[string]*clientcmdapi.AuthInfo{
		"with the file of a token":    {TokenFile: "/var/run/secrets/kubernetes.io/serviceaccount/token"},
		"with a command":              {Exec: &clientcmdapi.ExecConfig{Command: "id", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}},
		"with the file of a key":      {ClientCertificate: "/cert", ClientKey: "/key"},
		"that acts for somebody else": {Token: "t", Impersonate: "admin"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "kubeconfig")
			writeKubeconfig(t, path, user)
			_, _, err := newMachineClusterConfig(path, nil)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring("not supported")))
		})
	}
	for name, test := range map[string]struct{ cluster, message string }{
		"with the file of an authority": {"{server: https://192.0.2.1, certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt}", "files are not read"},
		"without TLS":                   {"{server: http://192.0.2.1}", "https"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			path := filepath.Join(t.TempDir(), "kubeconfig")
			g.Expect(os.WriteFile(path, []byte("apiVersion: v1\nkind: Config\nclusters: [{name: c, cluster: "+test.cluster+"}]\n"+
				"contexts: [{name: x, context: {cluster: c, user: u}}]\ncurrent-context: x\nusers: [{name: u, user: {token: t}}]\n"), 0o600)).To(Succeed())
			_, _, err := newMachineClusterConfig(path, nil)
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}

func TestCloudControllerConnectsToAddressesOnlyThatTheOperatorAllows(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, path, &clientcmdapi.AuthInfo{Token: "t"})
	config, _, err := newMachineClusterConfig(path, []string{"198.51.100.0/24"})
	g.Expect(err).NotTo(HaveOccurred())
	_, err = kubernetes.NewForConfigOrDie(config).Discovery().ServerVersion()
	g.Expect(err).To(MatchError(ContainSubstring("the address 192.0.2.1 is in none of the ranges that the operator allows")))

	_, _, err = newMachineClusterConfig(path, []string{"198.51.100.1"})
	g.Expect(err).To(MatchError(ContainSubstring("is no CIDR")))
}

func TestCloudControllerIsUnhealthyOnceItsKubeconfigIsAnother(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, path, &clientcmdapi.AuthInfo{Token: "first"})
	_, unchanged, err := newMachineClusterConfig(path, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(unchanged(nil)).To(Succeed())

	writeKubeconfig(t, path, &clientcmdapi.AuthInfo{Token: "second"})
	g.Expect(unchanged(nil)).To(MatchError(ContainSubstring("has changed")))
	g.Expect(os.Remove(path)).To(Succeed())
	g.Expect(unchanged(nil)).To(MatchError(os.ErrNotExist))
}

func TestCloudControllerReadsTheKubeconfigOfAShootWithItsTokenFile(t *testing.T) {
	g := NewWithT(t)
	directory := t.TempDir()
	g.Expect(os.WriteFile(filepath.Join(directory, "token"), []byte("t"), 0o600)).To(Succeed())
	writeKubeconfig(t, filepath.Join(directory, "kubeconfig"), &clientcmdapi.AuthInfo{TokenFile: filepath.Join(directory, "token")})
	_, err := newShootConfig(filepath.Join(directory, "kubeconfig"))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = newShootConfig(filepath.Join(directory, "none"))
	g.Expect(err).To(MatchError(os.ErrNotExist))
}

// writeCertificate writes a new certificate and returns it.
func writeCertificate(t *testing.T, directory string) []byte {
	t.Helper()
	g := NewWithT(t)
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(directory, "tls.key"), key, 0o600)).To(Succeed())
	g.Expect(os.WriteFile(filepath.Join(directory, "tls.crt"), certificate, 0o600)).To(Succeed())
	pair, err := tls.X509KeyPair(certificate, key)
	g.Expect(err).NotTo(HaveOccurred())
	return pair.Certificate[0]
}

// The informers of a manager that cannot stop go on. The commands that other tests run would set klog's logger below them, so
// this test has a process of its own.
func TestCloudControllerServesHealthAndMetricsBeforeItReachesAnAPIServer(t *testing.T) {
	g := NewWithT(t)
	const own = "TEST_HAS_ITS_OWN_PROCESS"
	if os.Getenv(own) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$") // #nosec G204 G702 -- the test itself
		cmd.Env = append(os.Environ(), own+"=true")
		out, err := cmd.CombinedOutput()
		g.Expect(err).NotTo(HaveOccurred(), string(out))
		return
	}
	directory := t.TempDir()
	first := writeCertificate(t, directory)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	g.Expect(err).NotTo(HaveOccurred())
	address := listener.Addr().(*net.TCPAddr)
	g.Expect(listener.Close()).To(Succeed())
	server, err := newCloudControllerServer(configv1alpha1.CloudControllerServer{BindAddress: "127.0.0.1", Port: address.Port, CertificateDirectory: directory})
	g.Expect(err).NotTo(HaveOccurred())
	var changed atomic.Bool
	nowhere := &rest.Config{Host: "https://127.0.0.1:1"}
	mgr, err := shoot.New(shoot.Options{Log: logr.Discard(), Shoot: nowhere, Seed: nowhere, Namespace: "shoot--local--foo", Server: server, Healthy: func(*http.Request) error {
		if changed.Load() {
			return errors.New("changed")
		}
		return nil
	}})
	g.Expect(err).NotTo(HaveOccurred())
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- instance.Start(ctx, mgr) }()

	var seen []byte
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, // #nosec G402 -- the test reads the certificate itself
		VerifyConnection: func(state tls.ConnectionState) error {
			seen = state.PeerCertificates[0].Raw
			return nil
		},
	}}}
	get := func(path string) func() (int, error) {
		return func() (int, error) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address.String()+path, nil)
			if err != nil {
				return 0, err
			}
			response, err := client.Do(request)
			if err != nil {
				return 0, err
			}
			return response.StatusCode, response.Body.Close()
		}
	}
	const timeout = 30 * time.Second // More than a loaded machine needs.
	g.Eventually(get("/healthz")).WithTimeout(timeout).Should(Equal(http.StatusOK))
	g.Expect(seen).To(Equal(first))
	g.Expect(get("/metrics")()).To(Equal(http.StatusOK))
	g.Expect(get("/readyz")()).To(Equal(http.StatusInternalServerError), "the caches are empty")
	changed.Store(true)
	g.Expect(get("/healthz")()).To(Equal(http.StatusInternalServerError))

	second := writeCertificate(t, directory)
	g.Eventually(func() ([]byte, error) {
		_, err := get("/healthz")()
		return seen, err
	}).WithTimeout(timeout).Should(Equal(second))

	stop()
	g.Eventually(ended).WithTimeout(timeout).Should(Receive(BeNil()))
}

func TestCloudControllerServesNothingWithoutItsCertificate(t *testing.T) {
	_, err := newCloudControllerServer(configv1alpha1.CloudControllerServer{CertificateDirectory: t.TempDir()})
	NewWithT(t).Expect(err).To(MatchError(os.ErrNotExist))
}

func TestTheCommandCloudControllerRefusesToRunWithoutWhatItNeeds(t *testing.T) {
	const head = "apiVersion: config.local.provider.extensions.gardener.cloud/v1alpha1\nkind: CloudControllerConfiguration\n"
	for name, test := range map[string]struct{ config, message string }{
		"a configuration that makes sense": {head, "seed.namespace"},
		"the shoot":                        {head + "seed: {namespace: a}\nshoot: {kubeconfig: /none}\n", "finding the shoot"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			path := filepath.Join(t.TempDir(), "config.yaml")
			g.Expect(os.WriteFile(path, []byte(test.config), 0o600)).To(Succeed())
			cmd := newCloudControllerCommand()
			cmd.SetArgs([]string{"--config", path})
			g.Expect(cmd.ExecuteContext(t.Context())).To(MatchError(ContainSubstring(test.message)))
		})
	}

	t.Run("the cluster of the machines", func(t *testing.T) {
		_, _, err := newMachineClusterConfig("", nil)
		NewWithT(t).Expect(err).To(MatchError(rest.ErrNotInCluster))
	})
}
