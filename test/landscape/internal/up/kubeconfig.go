// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

// shootKubeconfigLifetime is how long a kubeconfig of a Shoot is valid.
const shootKubeconfigLifetime = 24 * time.Hour

// PrintKubeconfig writes a kubeconfig to Out that works on this machine: of the runtime cluster, of the virtual garden for
// "virtual-garden", or of the Shoot NAME or NAMESPACE/NAME.
func (l Landscape) PrintKubeconfig(ctx context.Context, of string) error {
	var content []byte
	var err error
	switch of {
	case "":
		content, err = os.ReadFile(l.Layout.Kubeconfig())
	case "virtual-garden":
		// A new one, as its token ends, and its CA does after a rotation of the Garden's credentials.
		if _, err = os.Stat(l.Layout.VirtualKubeconfig()); err == nil {
			err = l.virtualKubeconfig(ctx)
		}
		if err == nil {
			content, err = os.ReadFile(l.Layout.VirtualKubeconfig())
		}
	default:
		if _, err = os.Stat(l.Layout.VirtualKubeconfig()); err == nil {
			content, err = l.shootKubeconfig(ctx, of)
		}
	}
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("there is no such cluster yet: %w; bring it up with %s", err, l.make("up"))
	}
	if err != nil {
		return err
	}
	_, err = l.Out.Write(content)
	return err
}

// shootKubeconfig asks Gardener for an admin's kubeconfig of a Shoot (subresource shoots/adminkubeconfig).
func (l Landscape) shootKubeconfig(ctx context.Context, of string) ([]byte, error) {
	namespace, name, found := strings.Cut(of, "/")
	if !found {
		namespace, name = "garden-local", of
	}
	c, err := l.client(virtualGarden)
	if err != nil {
		return nil, err
	}
	shoot := objectOf(shoots, namespace, name)
	request := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "authentication.gardener.cloud/v1alpha1", "kind": "AdminKubeconfigRequest",
		"spec": map[string]any{"expirationSeconds": int64(shootKubeconfigLifetime.Seconds())},
	}}
	if err := c.SubResource("adminkubeconfig").Create(ctx, shoot, request); apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("there is no Shoot %s/%s; list them with: %s --kubeconfig %s get shoots -A", namespace, name, l.Layout.Kubectl(), l.Layout.VirtualKubeconfig())
	} else if err != nil {
		return nil, fmt.Errorf("requesting a kubeconfig of Shoot %s/%s: %w", namespace, name, err)
	}
	encoded, _, _ := unstructured.NestedString(request.Object, "status", "kubeconfig")
	config := &clientcmdapi.Config{}
	content, err := base64.StdEncoding.DecodeString(encoded)
	if err == nil {
		config, err = loadFromHere(content, func(host string) string {
			gateway := l.Layout.SeedGateway()
			if l.hasSecond() {
				gateway = lookup(ctx, net.JoinHostPort(layout.SecondHostDNS, "53"), host, gateway)
			}
			return lookup(ctx, net.JoinHostPort(l.Layout.HostDNS(), "53"), host, gateway)
		})
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig of Shoot %s/%s: %w", namespace, name, err)
	}
	return clientcmd.Write(*config)
}

// saveShootKubeconfigs writes kubeconfigs of the Shoots that `up` creates to fixed places.
func (l Landscape) saveShootKubeconfigs(ctx context.Context, shoots []*unstructured.Unstructured) error {
	for _, shoot := range shoots {
		content, err := l.shootKubeconfig(ctx, shoot.GetNamespace()+"/"+shoot.GetName())
		if err != nil {
			return err
		}
		path := l.Layout.ShootKubeconfig(shoot.GetName())
		if err = os.MkdirAll(filepath.Dir(path), 0o700); err == nil {
			err = layout.WriteFile(path, content, 0o600)
		}
		if err != nil {
			return fmt.Errorf("writing the kubeconfig of Shoot %s: %w", shoot.GetName(), err)
		}
	}
	return l.handOver()
}

// make is the command for the landscape, up or down, of its target.
func (l Landscape) make(direction string) string {
	switch {
	case l.Layout.Kind == "":
		return "make " + direction
	case direction == "up":
		return "make gardener-up"
	}
	return "make kind-down"
}

// next ends an `up` that succeeded with what to type next.
func (l Landscape) next() {
	kubectl := l.Layout.Kubectl()
	_, _ = fmt.Fprintf(l.Out, "\nThe landscape is up to step %s. What to type next:\n", l.until)
	lines := [][2]string{
		{"make status", "what runs, and how it is"},
		{fmt.Sprintf("%s --kubeconfig %s get pods -A", kubectl, l.Layout.Kubeconfig()), "the runtime cluster, which is the seed as well"},
	}
	if exists(l.Layout.VirtualKubeconfig()) {
		lines = append(lines, [2]string{fmt.Sprintf("%s --kubeconfig %s get seeds,shoots -A", kubectl, l.Layout.VirtualKubeconfig()), "the virtual garden"})
	}
	if local := l.Layout.ShootKubeconfig("local"); l.until == lastStep {
		lines = append(lines, [2]string{fmt.Sprintf("%s --kubeconfig %s get nodes", kubectl, local), "the Shoot local; its kubeconfig is valid for a day"})
	}
	guide := "quick-start"
	if l.Layout.Kind != "" {
		guide = "quick-start-docker"
		if l.until == lastStep {
			lines = append(lines, [2]string{"make dns-setup", "have this machine resolve the names of the landscape"})
		}
	}
	lines = append(lines, [2]string{l.make("down"), "take everything away"})
	for _, line := range lines {
		_, _ = fmt.Fprintf(l.Out, "  # %s\n  %s\n", line[1], line[0])
	}
	_, _ = fmt.Fprintf(l.Out, "More: docs/usage/%s.md\n", guide)
}

// tokenLifetime is as long as Gardener's kube-apiserver issues tokens for.
const tokenLifetime = 30 * 24 * time.Hour

// virtualKubeconfig writes a kubeconfig for the virtual garden, made of the one that gardener-operator keeps for the
// garden's own components: with an address that this machine knows, and a token that lives longer.
func (l Landscape) virtualKubeconfig(ctx context.Context) error {
	c, err := l.client(runtimeCluster)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: "garden", Name: "gardener"}, secret); err != nil {
		return fmt.Errorf("reading the kubeconfig of the virtual garden: %w", err)
	}
	var restConfig *rest.Config
	config, err := loadFromHere(secret.Data["kubeconfig"], func(string) string { return l.Layout.VirtualGarden() })
	if err == nil {
		restConfig, err = clientcmd.NewDefaultClientConfig(*config, nil).ClientConfig()
	}
	if err != nil {
		return fmt.Errorf("reading the kubeconfig of the virtual garden: %w", err)
	}
	virtual, err := client.New(restConfig, client.Options{})
	if err != nil {
		return fmt.Errorf("connecting with the virtual garden: %w", err)
	}
	account := &corev1.ServiceAccount{}
	account.Namespace, account.Name = "kube-system", "gardener"
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenLifetime.Seconds()))}}
	if err := virtual.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("requesting a token of the virtual garden: %w", err)
	}
	for _, user := range config.AuthInfos {
		user.Token = request.Status.Token
	}
	content, err := clientcmd.Write(*config)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(l.Layout.VirtualKubeconfig()), 0o700)
	}
	if err == nil {
		err = layout.WriteFile(l.Layout.VirtualKubeconfig(), content, 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing the kubeconfig of the virtual garden: %w", err)
	}
	return l.handOver()
}

// loadFromHere reads a kubeconfig, and has it reach its cluster from here.
func loadFromHere(kubeconfig []byte, gateway func(host string) string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.Load(kubeconfig)
	if err != nil {
		return nil, err
	}
	return config, reachFromHere(config, gateway)
}

// reachFromHere puts the gateway's address in the place of the server's name, which this machine may not resolve.
func reachFromHere(config *clientcmdapi.Config, gateway func(host string) string) error {
	for _, c := range config.Clusters {
		host := strings.TrimPrefix(c.Server, "https://")
		if host == "" || host == c.Server {
			return errors.New("it names no https server")
		}
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		c.TLSServerName, c.Server = host, "https://"+strings.TrimSuffix(net.JoinHostPort(gateway(host), "443"), ":443")
	}
	return nil
}

// lookup asks a name server for the address of a name: each zone of a seed may have a gateway of its own. A name that the server
// does not have, such as one of a Shoot's own domain, gets the other address.
func lookup(ctx context.Context, server, name, otherwise string) string {
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, server)
	}}
	addresses, err := resolver.LookupHost(ctx, name+".")
	if err != nil {
		return otherwise
	}
	return addresses[0]
}
