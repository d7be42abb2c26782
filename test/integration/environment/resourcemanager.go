// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	componentbaseconfigv1alpha1 "k8s.io/component-base/config/v1alpha1"
	"sigs.k8s.io/yaml"

	resourcemanagerconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/resourcemanager/v1alpha1"
)

const (
	// envResourceManager names the variable with the path of gardener-resource-manager.
	envResourceManager = "TEST_ASSET_RESOURCE_MANAGER"
	// shortestSync is the shortest period that its configuration allows.
	shortestSync = 15 * time.Second
)

// ResourceManagerOptions are what a gardener-resource-manager is told.
type ResourceManagerOptions struct {
	// Class is the class of the ManagedResources that it applies: "seed", or empty for those without class, as the
	// gardener-resource-manager of a shoot has it.
	Class string
	// Namespaces are where the ManagedResources are; none for all namespaces.
	Namespaces []string
	// Target is the cluster to which it applies; nil for the one in which the ManagedResources are.
	Target *rest.Config
	// Logs takes its output; nil for nobody.
	Logs io.Writer
}

// RunResourceManager runs a real gardener-resource-manager, with the administrator's access, until ctx ends; then it
// returns nil. It has its controllers for ManagedResources, their health and the garbage of their Secrets, and no webhook.
// Several may run at the same time. After it is gone, ManagedResources that it served keep their finalizer.
func (e *Environment) RunResourceManager(ctx context.Context, opts ResourceManagerOptions) error {
	binary := os.Getenv(envResourceManager)
	if binary == "" {
		return fmt.Errorf("%s does not name gardener-resource-manager: `make test` builds it", envResourceManager)
	}
	dir, err := os.MkdirTemp("", "resource-manager-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	config, err := e.writeResourceManagerConfig(dir, opts)
	if err != nil {
		return fmt.Errorf("configuring gardener-resource-manager: %w", err)
	}

	// The kernel ends the process with the thread that started it, which must therefore not end before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	tail := &lastBytes{max: 4 << 10}
	cmd := exec.CommandContext(ctx, binary, "--config="+config) // #nosec G204 -- built by this repository
	cmd.Env = []string{"HOME=" + dir}                           // no KUBECONFIG
	cmd.Stdout, cmd.Stderr = tail, tail
	if opts.Logs != nil {
		cmd.Stdout = io.MultiWriter(tail, opts.Logs)
		cmd.Stderr = cmd.Stdout
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second

	err = cmd.Run()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("gardener-resource-manager has ended: %w: %s", err, tail)
}

// writeResourceManagerConfig writes the configuration and what it refers to into dir.
func (e *Environment) writeResourceManagerConfig(dir string, opts ResourceManagerOptions) (string, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	if err != nil {
		return "", err
	}
	target := opts.Target
	if target == nil {
		target = e.Config
	}
	source, err := kubeconfig(e.Config)
	if err != nil {
		return "", err
	}
	targetKubeconfig, err := kubeconfig(target)
	if err != nil {
		return "", err
	}
	config, err := resourceManagerConfig(dir, opts)
	if err != nil {
		return "", err
	}

	for name, content := range map[string][]byte{
		"tls.crt": certificate, "tls.key": key, "source": source, "target": targetKubeconfig, "config.yaml": config,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "config.yaml"), nil
}

func resourceManagerConfig(dir string, opts ResourceManagerOptions) ([]byte, error) {
	var ports [3]resourcemanagerconfigv1alpha1.Server
	for i := range ports {
		port, err := FreePort()
		if err != nil {
			return nil, err
		}
		ports[i] = resourcemanagerconfigv1alpha1.Server{BindAddress: "127.0.0.1", Port: port}
	}
	connection := func(name string) resourcemanagerconfigv1alpha1.ClientConnection {
		return resourcemanagerconfigv1alpha1.ClientConnection{ClientConnectionConfiguration: componentbaseconfigv1alpha1.ClientConnectionConfiguration{
			Kubeconfig: filepath.Join(dir, name), QPS: 1000, Burst: 2000,
		}}
	}
	source, target := connection("source"), connection("target")
	source.Namespaces = opts.Namespaces
	period := &metav1.Duration{Duration: shortestSync}

	config := &resourcemanagerconfigv1alpha1.ResourceManagerConfiguration{
		TypeMeta:               metav1.TypeMeta{APIVersion: resourcemanagerconfigv1alpha1.SchemeGroupVersion.String(), Kind: "ResourceManagerConfiguration"},
		SourceClientConnection: source,
		TargetClientConnection: &target,
		LeaderElection:         componentbaseconfigv1alpha1.LeaderElectionConfiguration{LeaderElect: new(false), ResourceNamespace: metav1.NamespaceDefault},
		Server: resourcemanagerconfigv1alpha1.ServerConfiguration{
			Webhooks:     resourcemanagerconfigv1alpha1.HTTPSServer{Server: ports[0], TLS: resourcemanagerconfigv1alpha1.TLSServer{ServerCertDir: dir}},
			HealthProbes: &ports[1],
			Metrics:      &ports[2],
		},
		Controllers: resourcemanagerconfigv1alpha1.ResourceManagerControllerConfiguration{
			ClusterID:        new("test"),
			GarbageCollector: resourcemanagerconfigv1alpha1.GarbageCollectorControllerConfig{Enabled: true, SyncPeriod: period},
			Health:           resourcemanagerconfigv1alpha1.HealthControllerConfig{ConcurrentSyncs: new(10), SyncPeriod: period},
			ManagedResource:  resourcemanagerconfigv1alpha1.ManagedResourceControllerConfig{ConcurrentSyncs: new(20), SyncPeriod: period},
		},
	}
	if opts.Class != "" {
		config.Controllers.ResourceClass = &opts.Class
	}
	return yaml.Marshal(config)
}

// kubeconfig returns the access as a file that another process can use.
func kubeconfig(config *rest.Config) ([]byte, error) {
	const name = "test"
	return clientcmd.Write(clientcmdapi.Config{
		CurrentContext: name,
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		Clusters:       map[string]*clientcmdapi.Cluster{name: {Server: config.Host, CertificateAuthorityData: config.CAData}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{name: {
			ClientCertificateData: config.CertData,
			ClientKeyData:         config.KeyData,
			Token:                 config.BearerToken,
		}},
	})
}

// lastBytes keeps the end of what is written to it.
type lastBytes struct {
	max int
	buf bytes.Buffer
}

// Write implements io.Writer.
func (l *lastBytes) Write(p []byte) (int, error) {
	l.buf.Write(p)
	l.buf.Next(l.buf.Len() - min(l.buf.Len(), l.max))
	return len(p), nil
}

// String returns what is kept.
func (l *lastBytes) String() string {
	return l.buf.String()
}
