// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
)

// equip returns what each program needs: a kubeconfig, free ports, and folders of the given names.
func (w *World) equip(opts StartOptions, numPorts int, names ...string) (kubeconfig string, free []int, folders []string, err error) {
	if free, err = ports(numPorts); err != nil {
		return "", nil, nil, err
	}
	folders = make([]string, len(names))
	for i, name := range names {
		if folders[i], err = w.folder(name); err != nil {
			return "", nil, nil, err
		}
	}
	kubeconfig, err = w.kubeconfig(opts.Program, opts.Place)
	return kubeconfig, free, folders, err
}

// launchOurs configures an instance of this extension as its chart does, but for ports and folders.
func (w *World) launchOurs(ctx context.Context, opts StartOptions, namespace string) (*launch, error) {
	kubeconfig, free, folders, err := w.equip(opts, 4, "buckets-"+namespace, "charts-"+namespace)
	if err != nil {
		return nil, err
	}

	values := map[string]any{"image": "ours:bench", "dns": map[string]any{"coreDNS": map[string]any{"image": "coredns:bench"}}}
	if opts.Place == Garden {
		values["gardener"] = map[string]any{"runtimeCluster": map[string]any{"enabled": "true", "priorityClassName": "gardener-garden-system-200"}}
	} else {
		values["controlPlane"] = map[string]any{"localPathProvisioner": map[string]any{"image": "local-path-provisioner:bench"}}
	}
	release, err := w.env.InstallChart(ctx, namespace, values)
	if err != nil {
		return nil, err
	}
	config := release.Config
	config.ClientConnection.Kubeconfig = kubeconfig
	config.Backup.Directory, config.Charts.Cache.Directory = folders[0], folders[1]
	config.Server = configv1alpha1.ServerConfiguration{
		HealthProbes: &configv1alpha1.Server{BindAddress: "127.0.0.1", Port: free[0]},
		Metrics:      &configv1alpha1.Server{BindAddress: "127.0.0.1", Port: free[1]},
		Webhooks:     &configv1alpha1.Server{BindAddress: "127.0.0.1", Port: free[2]},
	}
	config.Webhooks.ServicePort = &free[2]
	config.Controllers.HealthCheck.Disabled = !opts.HealthChecks
	if err := w.configureDNS(ctx, opts, config); err != nil {
		return nil, err
	}
	config.Mock.Enabled = opts.Mock
	config.Mock.Nodes.KubeletPort = &free[3]
	if opts.Place == Seed {
		if err := client.IgnoreAlreadyExists(w.Client.Create(ctx, localService(namespace, account(opts.Program, opts.Place)))); err != nil {
			return nil, err
		}
	}

	data, err := yaml.Marshal(config)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(w.dir, namespace, "config.yaml")
	if err := os.WriteFile(path, data, 0o600); err != nil {
		return nil, err
	}
	name := map[Place]string{Garden: "operator-extension", Seed: "gardenlet-extension"}[opts.Place]
	return &launch{
		binary: filepath.Join(w.Programs, name),
		args:   []string{"--config", path},
		env:    []string{"LEADER_ELECTION_NAMESPACE=" + namespace},
		health: free[0],
	}, nil
}

func (w *World) configureDNS(ctx context.Context, opts StartOptions, config *configv1alpha1.ExtensionConfiguration) error {
	switch opts.DNSProvider {
	case "":
		config.Controllers.DNSRecord.Disabled = true
	case string(configv1alpha1.DNSProviderCoreDNS):
		address, err := w.coreDNS(ctx, config)
		if err != nil {
			return err
		}
		config.DNS.CoreDNS.Servers = []string{address}
		config.DNS.CoreDNS.Deploy = new(false)
	case string(configv1alpha1.DNSProviderRFC2136):
		bind, err := w.Bind(ctx)
		if err != nil {
			return err
		}
		config.DNS.Provider = configv1alpha1.DNSProviderRFC2136
		config.DNS.RFC2136.Server = bind.Address
		config.DNS.CoreDNS.Deploy = new(false)
	default:
		return fmt.Errorf("there is no DNS provider %q", opts.DNSProvider)
	}
	return nil
}

// launchPeer has the flags that the chart of the in-tree extension gives it, but for ports and folders.
func (w *World) launchPeer(ctx context.Context, opts StartOptions, namespace string) (*launch, error) {
	kubeconfig, free, folders, err := w.equip(opts, 3, "buckets-"+namespace, "certs-"+namespace)
	if err != nil {
		return nil, err
	}
	l := &launch{binary: filepath.Join(w.Programs, map[Program]string{Peer: "peer", PeerUncapped: "peer-uncapped"}[opts.Program]), health: free[0]}
	if opts.DNSProvider != "" {
		bind, err := w.Bind(ctx)
		if err != nil {
			return nil, err
		}
		l.hosts = bind.hosts
	}

	l.args = []string{
		"--kubeconfig=" + kubeconfig,
		"--bastion-max-concurrent-reconciles=5", "--controlplane-max-concurrent-reconciles=5", "--dnsrecord-max-concurrent-reconciles=5",
		"--healthcheck-max-concurrent-reconciles=5", "--infrastructure-max-concurrent-reconciles=5", "--worker-max-concurrent-reconciles=5",
		"--operatingsystemconfig-max-concurrent-reconciles=5", "--ignore-operation-annotation=false",
		"--backupbucket-local-dir=" + folders[0], "--backupbucket-container-mount-path=/etc/gardener/local-backupbuckets",
		"--heartbeat-namespace=" + namespace, "--heartbeat-renew-interval-seconds=30",
		"--webhook-config-mode=url", "--webhook-config-url=127.0.0.1:" + strconv.Itoa(free[2]),
		"--webhook-config-server-port=" + strconv.Itoa(free[2]), "--webhook-config-cert-dir=" + folders[1],
		"--metrics-bind-address=127.0.0.1:" + strconv.Itoa(free[1]), "--health-bind-address=127.0.0.1:" + strconv.Itoa(free[0]),
		"--gardener-version=v1.149.3", "--log-level=info", "--log-format=json",
	}
	if opts.Place == Garden {
		l.args = append(l.args, "--disable-webhooks=controlplane,networkpolicy,shoot", "--controllers=backupbucket,backupentry,dnsrecord,local-ext-shoot", "--extension-classes=garden")
	} else {
		l.args = append(l.args, "--extension-classes=seed,shoot", "--disable-webhooks=rollout-speedup")
		if !opts.HealthChecks {
			l.args = append(l.args, "--disable-controllers=healthcheck")
		}
	}
	l.env = []string{"LEADER_ELECTION_NAMESPACE=" + namespace, "WEBHOOK_CONFIG_NAMESPACE=" + namespace}
	return l, nil
}

// launchKwok has kwok care for all Nodes, with Leases as ours have.
func (w *World) launchKwok(ctx context.Context, opts StartOptions) (*launch, error) {
	kubeconfig, free, _, err := w.equip(opts, 1)
	if err != nil {
		return nil, err
	}
	stages, err := w.kwokStages(ctx)
	if err != nil {
		return nil, err
	}
	return &launch{
		binary: filepath.Join(w.Programs, "kwok"),
		args: []string{
			"--kubeconfig=" + kubeconfig, "--config=" + stages, "--manage-all-nodes=true", "--node-lease-duration-seconds=40",
			"--server-address=127.0.0.1:" + strconv.Itoa(free[0]),
		},
		health: free[0], ready: "/healthz",
	}, nil
}

// kwokStages writes the stages that kwok comes with for Nodes which are ready at once and have Leases.
func (w *World) kwokStages(ctx context.Context) (string, error) {
	list := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kwok")
	list.Dir = filepath.Join("modules", "kwok")
	dir, err := list.Output()
	if err != nil {
		return "", fmt.Errorf("finding kwok's module, from the folder test/bench: %w", err)
	}
	var stages []string
	for _, pattern := range []string{"node/fast", "node/heartbeat-with-lease", "pod/fast"} {
		files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(dir)), "kustomize", "stage", pattern, "*.yaml"))
		if err != nil {
			return "", err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return "", err
			}
			if strings.Contains(string(data), "kind: Stage") {
				stages = append(stages, string(data))
			}
		}
	}
	path := filepath.Join(w.dir, "kwok.yaml")
	return path, os.WriteFile(path, []byte(strings.Join(stages, "\n---\n")), 0o600)
}

func newNamespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}
