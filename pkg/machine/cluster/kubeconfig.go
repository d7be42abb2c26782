// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gardener/gardener/pkg/client/kubernetes"

	"github.com/gardener/gardener-extension-provider-local/pkg/bounds"
)

const dialTimeout = 10 * time.Second

// Parse returns what a kubeconfig says. It is written by a user and read by this program with the program's own files
// and credentials around: what it needs has to be in the kubeconfig itself. Whatever would read a file, run a command or
// act for somebody else is refused before clientcmd gets to see it, which opens files only to check them.
//
// What is returned is for a server that nobody trusts: it uses no proxy, connects to no address that the kubeconfig must not
// lead to, bounds answers in size and time, follows no redirects, and keeps the server's texts out of errors. allowed are the
// ranges that the server's addresses may be in; if there are none, these are all but those of the node and its network (see
// guard).
func Parse(kubeconfig []byte, allowed ...netip.Prefix) (*rest.Config, error) {
	return parse(kubeconfig, guard{allowed: allowed})
}

func parse(kubeconfig []byte, guard guard) (*rest.Config, error) {
	if len(kubeconfig) == 0 {
		return nil, errors.New("it is empty")
	}
	if err := bounds.CheckYAML(kubeconfig); err != nil {
		return nil, err
	}
	raw, err := clientcmd.Load(kubeconfig)
	if err != nil {
		// The error has tokens and keys of a kubeconfig with two users of one name.
		return nil, errors.New("it is not YAML with apiVersion v1 and kind Config, or two of its clusters, users or contexts have one name")
	}
	if err := validate(raw); err != nil {
		return nil, err
	}
	config, err := kubernetes.RESTConfigFromKubeconfig(kubeconfig)
	if err != nil {
		return nil, err
	}
	// Nil would mean the proxy that the environment names.
	config.Proxy = func(*http.Request) (*url.URL, error) { return nil, nil }
	// The address of each connection is looked at when its name has been resolved, so that no name can be resolved to another
	// address after the check.
	dialer := &net.Dialer{Timeout: dialTimeout, KeepAlive: 30 * time.Second, Control: func(_, address string, _ syscall.RawConn) error {
		parsed, err := netip.ParseAddrPort(address)
		if err != nil {
			return err
		}
		return guard.check(parsed.Addr())
	}}
	config.Dial = dialer.DialContext
	config.WarningHandler = rest.NoWarnings{}
	config.ContentType = runtime.ContentTypeJSON // of which bounded can tell what is in it
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return &bounded{next} })
	return config, nil
}

// validate looks at all clusters and users, not only those of the current context.
func validate(config *clientcmdapi.Config) error {
	for name, cluster := range config.Clusters {
		if cluster.CertificateAuthority != "" {
			return fmt.Errorf("cluster %q has a certificate-authority: put it into certificate-authority-data, files are not read", name)
		}
		if cluster.ProxyURL != "" {
			return fmt.Errorf("cluster %q has a proxy-url: take it out, proxies are not used", name)
		}
		server, err := url.Parse(cluster.Server)
		if err != nil || server.Scheme != "https" || server.Host == "" {
			return fmt.Errorf("cluster %q has no server that is a URL with https", name)
		}
	}
	for name, user := range config.AuthInfos {
		if user.AuthProvider != nil {
			return fmt.Errorf("auth provider configurations are not supported (user %q)", name)
		}
		if user.ImpersonateUID != "" || len(user.ImpersonateUserExtra) > 0 {
			return fmt.Errorf("impersonation is not supported (user %q)", name)
		}
	}
	// The rest is what Gardener itself asks of kubeconfigs.
	return kubernetes.ValidateConfig(*config)
}

// guard knows which addresses a kubeconfig may lead to.
type guard struct {
	// allowed are the ranges of servers. Without any, a server may have each address that is not forbidden.
	allowed []netip.Prefix
	// loopback lets servers of tests be on the loopback.
	loopback bool
}

// check returns a configuration problem if a server must not have an address. The loopback is the instance itself, link-local
// addresses are those of the node's network, with the metadata of data centers, and all others that are forbidden whatever the
// operator allows are no addresses of servers.
func (g guard) check(address netip.Addr) error {
	address = address.WithZone("").Unmap()
	switch {
	case address.IsLoopback() && g.loopback:
		return nil
	case !address.IsGlobalUnicast(), netip.MustParsePrefix("0.0.0.0/8").Contains(address):
		return mistake(fmt.Errorf("the address %s is a loopback, link-local, multicast or unspecified one: use a server with another address", address))
	case len(g.allowed) > 0 && !slices.ContainsFunc(g.allowed, func(p netip.Prefix) bool { return p.Contains(address) }):
		return mistake(fmt.Errorf("the address %s is in none of the ranges that the operator allows: use another server, or have its range added to machines.remote.allowedCIDRs", address))
	}
	return nil
}
