// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"

	"github.com/miekg/dns"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	authenticationv1alpha1 "github.com/gardener/gardener/pkg/apis/authentication/v1alpha1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	gardenerkubernetes "github.com/gardener/gardener/pkg/client/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/test/matchers"
)

// HostDNS is the address of the name server that the landscape has for programs on this machine, which knows all names of the landscape.
func HostDNS() string { return CurrentNetwork().Translate("172.18.255.53:53") }

// adminSeconds is how long access to a shoot lasts: longer than any spec.
const adminSeconds = int64(2 * 60 * 60)

// Garden is access to the virtual garden, where Gardener's own API is.
type Garden struct {
	// Client does not cache. Its scheme has Gardener's APIs.
	Client client.Client
	// Config is what it is made of.
	Config *rest.Config
}

// Cluster is access to a shoot, such as its owner has.
type Cluster struct {
	// Client does not cache. Its scheme is that of a shoot and that of a seed, which a shoot may be.
	Client client.Client
	// Clientset is for what Client does not do: logs, proxies.
	Clientset kubernetes.Interface
	// Config is what both are made of.
	Config *rest.Config
}

// State is a path below the folder of the landscape's state, which is where the kubeconfig is.
func State(elem ...string) string {
	return filepath.Join(append([]string{filepath.Dir(os.Getenv("KUBECONFIG"))}, elem...)...)
}

// ConnectGarden gets access to the virtual garden that VIRTUAL_GARDEN_KUBECONFIG names, or else to the one of the landscape.
func ConnectGarden() *Garden {
	GinkgoHelper()
	kubeconfig := cmp.Or(os.Getenv("VIRTUAL_GARDEN_KUBECONFIG"), State("virtual-garden", "kubeconfig"))
	Expect(kubeconfig).To(BeARegularFile(), "the landscape has a virtual garden once `make up` or `make gardener-up` is through")

	scheme := runtime.NewScheme()
	Expect(gardenerkubernetes.AddGardenSchemeToScheme(scheme)).To(Succeed())
	Expect(authenticationv1alpha1.AddToScheme(scheme)).To(Succeed())
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	config.QPS, config.Burst = 200, 400
	c, err := client.New(config, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	return &Garden{Client: c, Config: config}
}

// RenewGarden gets access to the virtual garden anew: its CA is another one after a rotation.
func RenewGarden(ctx context.Context) *Garden {
	GinkgoHelper()
	// What it prints is secret.
	Expect(program(ctx, "kubeconfig", "--target", Target(), "virtual-garden").Run()).To(Succeed())
	return ConnectGarden()
}

// Access asks the sub-resource adminkubeconfig for access to a shoot. After a rotation of credentials it must be asked anew.
// address is that of the shoot's API server; if it is empty, the landscape's name server is asked, which knows the shoots of
// the first seed only.
func (g *Garden) Access(ctx context.Context, shoot *gardencorev1beta1.Shoot, address string) (*Cluster, error) {
	request := &authenticationv1alpha1.AdminKubeconfigRequest{
		Spec: authenticationv1alpha1.AdminKubeconfigRequestSpec{ExpirationSeconds: new(adminSeconds)},
	}
	if err := g.Client.SubResource("adminkubeconfig").Create(ctx, shoot, request); err != nil {
		return nil, fmt.Errorf("asking for the kubeconfig of shoot %s: %w", client.ObjectKeyFromObject(shoot), err)
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(request.Status.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of shoot %s: %w", client.ObjectKeyFromObject(shoot), err)
	}
	if err := resolve(ctx, config, address); err != nil {
		return nil, fmt.Errorf("reaching shoot %s: %w", client.ObjectKeyFromObject(shoot), err)
	}
	config.QPS, config.Burst = 100, 200

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{gardenerkubernetes.AddShootSchemeToScheme, gardenerkubernetes.AddSeedSchemeToScheme} {
		if err := add(scheme); err != nil {
			return nil, err
		}
	}
	cluster := &Cluster{Config: config}
	if cluster.Client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("making a client of shoot %s: %w", client.ObjectKeyFromObject(shoot), err)
	}
	if cluster.Clientset, err = kubernetes.NewForConfig(config); err != nil {
		return nil, fmt.Errorf("making a client of shoot %s: %w", client.ObjectKeyFromObject(shoot), err)
	}
	return cluster, nil
}

// resolve has a config lead to an address, or else to that of its host, as this machine need not ask the landscape's name
// server. The name stays that of the TLS handshake, by which the gateway knows which shoot is meant.
func resolve(ctx context.Context, config *rest.Config, address string) error {
	target, err := url.Parse(config.Host)
	if err != nil {
		return err
	}
	if address == "" {
		addresses, err := matchers.Resolve(ctx, "tcp", HostDNS(), target.Hostname(), dns.TypeA)
		if err != nil {
			return fmt.Errorf("asking %s for %s: %w", HostDNS(), target.Hostname(), err)
		}
		if len(addresses) == 0 || net.ParseIP(addresses[0]) == nil {
			return fmt.Errorf("asking %s for %s: no address but %v", HostDNS(), target.Hostname(), addresses)
		}
		address = addresses[0]
	}
	config.ServerName = target.Hostname()
	target.Host = net.JoinHostPort(address, cmp.Or(target.Port(), "443"))
	config.Host = target.String()
	return nil
}
