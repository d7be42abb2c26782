// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
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
			_, _, err := newMachineClusterClient(path)
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
			_, _, err := newMachineClusterClient(path)
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}

func TestCloudControllerIsUnhealthyOnceItsKubeconfigIsAnother(t *testing.T) {
	g := NewWithT(t)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	writeKubeconfig(t, path, &clientcmdapi.AuthInfo{Token: "first"})
	_, unchanged, err := newMachineClusterClient(path)
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
	_, err := newShootClient(filepath.Join(directory, "kubeconfig"))
	g.Expect(err).NotTo(HaveOccurred())
	_, err = newShootClient(filepath.Join(directory, "none"))
	g.Expect(err).To(MatchError(os.ErrNotExist))
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
		_, _, err := newMachineClusterClient("")
		NewWithT(t).Expect(err).To(MatchError(rest.ErrNotInCluster))
	})
}
