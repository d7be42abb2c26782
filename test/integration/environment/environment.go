// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package environment is what the integration suites stand on: a real kube-apiserver and etcd with Gardener's CRDs, the
// release chart's own RBAC and a client that has just that, a real CoreDNS, a real gardener-resource-manager, and the
// audit log, which tells who wrote what. There is no kubelet, so no pod ever runs. The binaries come from `make test`,
// which builds them from the Go module proxy.
package environment

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

const (
	// envCoreDNS names the variable with the path of our CoreDNS.
	envCoreDNS = "TEST_ASSET_COREDNS"
	// gardenerModule is where the CRDs are.
	gardenerModule = "github.com/gardener/gardener"
	// startTimeout is how long etcd or the API server may take to start, or to stop.
	startTimeout = 2 * time.Minute
)

// Environment is a running API server.
type Environment struct {
	// Config is the administrator's access.
	Config *rest.Config
	// Client is the administrator's client; it does not cache.
	Client client.Client

	scheme *runtime.Scheme
	envs   *envtest.Environment
	// dir is for the files of this environment.
	dir string
}

// Option changes what is started.
type Option func(*options)

type options struct {
	audit bool
	crds  []string
	flags map[string]string
	// restartable has the API server and etcd keep their state when they stop.
	restartable bool
	// routable has the API server listen on an address of this machine that is not of the loopback.
	routable bool
}

// OffLoopback has the API server listen on an address of this machine's network, as kubeconfigs of users may not lead to the
// loopback.
func OffLoopback() Option {
	return func(o *options) { o.routable = true }
}

// WithAuditLog makes the API server log each request before the client learns its end, for AuditEvents.
func WithAuditLog() Option {
	return func(o *options) { o.audit = true }
}

// WithAPIServerFlag sets a flag of the API server, named without dashes.
func WithAPIServerFlag(name, value string) Option {
	return func(o *options) {
		if o.flags == nil {
			o.flags = map[string]string{}
		}
		o.flags[name] = value
	}
}

// Start starts etcd and the API server of a cluster that is a seed or the garden runtime cluster, and installs the CRDs
// that Gardener has in one. Stop it after use. A second one may run beside it.
func Start(scheme *runtime.Scheme, opts ...Option) (*Environment, error) {
	module, err := moduleDir(gardenerModule)
	if err != nil {
		return nil, err
	}
	o := &options{crds: []string{filepath.Join(module, "example", "resource-manager", "10-crd-resources.gardener.cloud_managedresources.yaml")}}
	for _, opt := range opts {
		opt(o)
	}
	for _, group := range []string{"extensions.gardener.cloud", "machine.sapcloud.io", "autoscaling.k8s.io"} {
		files, err := filepath.Glob(filepath.Join(module, "example", "seed-crds", "10-crd-"+group+"_*.yaml"))
		if err != nil {
			return nil, err
		}
		o.crds = append(o.crds, files...)
	}
	return start(scheme, o)
}

// StartShoot starts etcd and the API server of a cluster that is a shoot: it has no CRDs.
func StartShoot(scheme *runtime.Scheme, opts ...Option) (*Environment, error) {
	o := &options{}
	for _, opt := range opts {
		opt(o)
	}
	return start(scheme, o)
}

func start(scheme *runtime.Scheme, o *options) (_ *Environment, err error) {
	dir, err := os.MkdirTemp("", "environment-")
	if err != nil {
		return nil, err
	}

	e := &Environment{
		scheme: scheme,
		envs: &envtest.Environment{
			CRDInstallOptions: envtest.CRDInstallOptions{Paths: o.crds, ErrorIfPathMissing: true},
			// A busy machine needs longer than the default of 20 seconds.
			ControlPlaneStartTimeout: startTimeout, ControlPlaneStopTimeout: startTimeout,
		},
		dir: dir,
	}
	for name, value := range o.flags {
		e.envs.ControlPlane.GetAPIServer().Configure().Set(name, value)
	}
	if o.restartable {
		if err := e.makeRestartable(); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	if o.routable {
		if err := e.leaveLoopback(); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	if o.audit {
		if err := e.configureAudit(); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	if e.Config, err = e.envs.Start(); err != nil {
		err = fmt.Errorf("starting etcd and kube-apiserver (TEST_ASSET_ETCD and TEST_ASSET_KUBE_APISERVER name them; `make test` builds them): %w", err)
		return nil, errors.Join(err, e.Stop())
	}
	// The tests are not what is to be slowed down.
	e.Config.QPS, e.Config.Burst = 1000, 2000

	if e.Client, err = client.New(e.Config, client.Options{Scheme: scheme}); err != nil {
		return nil, errors.Join(err, e.Stop())
	}
	return e, nil
}

func (e *Environment) leaveLoopback() error {
	addresses, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, address := range addresses {
		network, ok := address.(*net.IPNet)
		if !ok || network.IP.To4() == nil || !network.IP.IsGlobalUnicast() {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(network.IP.String(), "0"))
		if err != nil {
			return err
		}
		serving := &e.envs.ControlPlane.GetAPIServer().SecureServing
		serving.Address, serving.Port, err = net.SplitHostPort(listener.Addr().String())
		return errors.Join(err, listener.Close())
	}
	return errors.New("this machine has no IPv4 address but those of the loopback, to which kubeconfigs of users may not lead")
}

// TempDir makes a folder that Stop removes.
func (e *Environment) TempDir() (string, error) { return os.MkdirTemp(e.dir, "") }

// Stop stops the API server and etcd, and removes the audit log and all of TempDir.
func (e *Environment) Stop() error {
	return errors.Join(e.envs.Stop(), os.RemoveAll(e.dir))
}

// CreateNamespaces creates namespaces by name.
func (e *Environment) CreateNamespaces(ctx context.Context, names ...string) error {
	for _, name := range names {
		if err := client.IgnoreAlreadyExists(e.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})); err != nil {
			return fmt.Errorf("creating namespace %s: %w", name, err)
		}
	}
	return nil
}

// ServiceAccountConfig returns the access of a ServiceAccount: nothing but what RBAC gives to it.
func (e *Environment) ServiceAccountConfig(namespace, name string) (*rest.Config, error) {
	user, err := e.envs.AddUser(serviceAccountUser(namespace, name), rest.CopyConfig(e.Config))
	if err != nil {
		return nil, fmt.Errorf("making access for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	return user.Config(), nil
}

// ServiceAccountKubeconfig writes the access of a ServiceAccount to a file in dir and returns its path.
func (e *Environment) ServiceAccountKubeconfig(dir, namespace, name string) (string, error) {
	user, err := e.envs.AddUser(serviceAccountUser(namespace, name), rest.CopyConfig(e.Config))
	if err != nil {
		return "", fmt.Errorf("making access for ServiceAccount %s/%s: %w", namespace, name, err)
	}
	kubeconfig, err := user.KubeConfig()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, name+".kubeconfig")
	return path, os.WriteFile(path, kubeconfig, 0o600)
}

func serviceAccountUser(namespace, name string) envtest.User {
	return envtest.User{
		Name:   "system:serviceaccount:" + namespace + ":" + name,
		Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
	}
}

func moduleDir(module string) (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output() // #nosec G204 -- a constant
	if err != nil {
		return "", fmt.Errorf("finding module %s: %w", module, err)
	}
	return strings.TrimSpace(string(out)), nil
}
