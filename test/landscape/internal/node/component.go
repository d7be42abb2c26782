// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"time"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/process"
)

// Component is a process of the landscape.
type Component struct {
	process.Spec
	// Configs are the templates it reads; they are written before it starts.
	Configs []string
	// Ready succeeds once the component serves.
	Ready func(ctx context.Context) error
}

// preferred is the nice value of those without which nobody gets on: if they don't answer within ten seconds while all that
// Gardener runs is busy, its controllers lose their leases, start anew, and have even more to do.
const preferred = -10

// Names of the components, which are those of their programs.
const (
	Registry          = "registry"
	Etcd              = "etcd"
	Containerd        = "containerd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
	Scheduler         = "kube-scheduler"
	Kubelet           = "kubelet"
	Proxy             = "kube-proxy"
	DNS               = "coredns"
	StatusController  = "status-controller"
)

// Components returns all processes in the order of their start.
func Components(l layout.Layout) []Component {
	return []Component{
		registry(l), etcd(l), containerd(l), apiServer(l), controllerManager(l), scheduler(l), kubelet(l), proxy(l), dns(l), statusController(l),
	}
}

func registry(l layout.Layout) Component {
	addresses := []string{
		fmt.Sprintf("127.0.0.1:%d", layout.RegistryPort),
		l.Network.Registry(),
	}
	return Component{
		Spec: process.Spec{
			Name:    Registry,
			Sockets: tcp(addresses...),
			Command: []string{l.Binary("landscape"), "registry", "--dir", l.Registry(), "--listen", addresses[0], "--listen", addresses[1]},
			// Uploads pass through memory; this makes the garbage collector give it back.
			Env: []string{"GOMEMLIMIT=256MiB"},
		},
		Ready: httpOK("http://"+addresses[0]+"/v2/", nil),
	}
}

func etcd(l layout.Layout) Component {
	return Component{
		Spec: process.Spec{
			Name:    Etcd,
			Sockets: tcp("127.0.0.1:2379", "127.0.0.1:2380"),
			Command: []string{
				l.Binary("etcd"), "--name=landscape", "--data-dir=" + l.State("etcd"), "--log-level=warn",
				"--listen-client-urls=http://127.0.0.1:2379", "--advertise-client-urls=http://127.0.0.1:2379",
				"--listen-peer-urls=http://127.0.0.1:2380", "--initial-advertise-peer-urls=http://127.0.0.1:2380",
				"--initial-cluster=landscape=http://127.0.0.1:2380",
				// Nothing in here must survive a power cut, and a laptop's disk is what everything else waits for.
				"--unsafe-no-fsync",
			},
			Nice: preferred,
		},
		Ready: httpOK("http://127.0.0.1:2379/health", nil),
	}
}

func containerd(l layout.Layout) Component {
	return Component{
		Spec: process.Spec{
			Name:    Containerd,
			Command: []string{program("containerd"), "--config", l.State("etc", "containerd.toml")},
			Inputs:  []string{l.State("etc", "containerd.toml"), l.State("etc", "cni", "10-landscape.conflist")},
		},
		Configs: []string{"containerd.toml", "hosts.toml", "cni.conflist"},
		Ready: func(ctx context.Context) error {
			connection, err := (&net.Dialer{}).DialContext(ctx, "unix", l.ContainerdSocket())
			if err != nil {
				return err
			}
			return connection.Close()
		},
	}
}

func apiServer(l layout.Layout) Component {
	pki := func(name string) string { return l.State("pki", name) }
	policy := l.State("etc", "audit-policy.yaml")
	return Component{
		Spec: process.Spec{
			Name:    APIServer,
			Sockets: tcp(l.Network.NodeIP() + ":6443"),
			Command: []string{
				l.Binary("kube-apiserver"), "--etcd-servers=http://127.0.0.1:2379",
				"--bind-address=" + l.Network.NodeIP(), "--advertise-address=" + l.Network.NodeIP(), "--secure-port=6443",
				"--tls-cert-file=" + pki("kube-apiserver.crt"), "--tls-private-key-file=" + pki("kube-apiserver.key"),
				"--client-ca-file=" + pki("ca.crt"),
				"--kubelet-certificate-authority=" + pki("ca.crt"),
				"--kubelet-client-certificate=" + pki("kube-apiserver-kubelet.crt"),
				"--kubelet-client-key=" + pki("kube-apiserver-kubelet.key"),
				"--kubelet-preferred-address-types=InternalIP",
				"--service-account-issuer=https://kubernetes.default.svc",
				"--service-account-key-file=" + pki("sa.key"), "--service-account-signing-key-file=" + pki("sa.key"),
				"--service-cluster-ip-range=" + l.Network.ServiceCIDR(),
				"--authorization-mode=Node,RBAC", "--allow-privileged=true",
				"--audit-policy-file=" + policy, "--audit-log-path=" + l.AuditLog(),
				// Megabytes. Rotated files are compressed and kept as long as the landscape is.
				"--audit-log-maxsize=64", "--audit-log-compress", "--audit-log-maxbackup=0", "--audit-log-maxage=0",
			},
			// Some 450 MB live on its heap with the whole of Gardener and two Shoots, and more with a third. Collected at twice as much
			// again instead of at as much, a Garden takes 10 % less time. A limit near to what lives would have it collect without end.
			Env:    []string{"GOGC=200", "GOMEMLIMIT=4GiB"},
			Inputs: []string{pki("ca.crt"), pki("kube-apiserver.crt"), pki("kube-apiserver-kubelet.crt"), pki("sa.key"), policy},
			Nice:   preferred,
		},
		Configs: []string{"audit-policy.yaml"},
		Ready:   httpOK("https://"+l.Network.NodeIP()+":6443/readyz", insecure()),
	}
}

func controllerManager(l layout.Layout) Component {
	kubeconfig := l.State("pki", "kube-controller-manager.kubeconfig")
	return Component{
		Spec: process.Spec{
			Name:    ControllerManager,
			Sockets: tcp("127.0.0.1:10257"),
			Command: []string{
				l.Binary("kube-controller-manager"), "--kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1", "--leader-elect=false",
				"--use-service-account-credentials", "--service-account-private-key-file=" + l.State("pki", "sa.key"),
				"--root-ca-file=" + l.State("pki", "ca.crt"),
				"--allocate-node-cidrs=true", "--cluster-cidr=" + l.Network.PodCIDR(), "--service-cluster-ip-range=" + l.Network.ServiceCIDR(),
			},
			Inputs: []string{kubeconfig, l.State("pki", "sa.key")},
		},
		Ready: httpOK("https://127.0.0.1:10257/healthz", insecure()),
	}
}

func scheduler(l layout.Layout) Component {
	kubeconfig := l.State("pki", "kube-scheduler.kubeconfig")
	return Component{
		Spec: process.Spec{
			Name:    Scheduler,
			Sockets: tcp("127.0.0.1:10259"),
			Command: []string{l.Binary("kube-scheduler"), "--kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1", "--leader-elect=false"},
			Inputs:  []string{kubeconfig},
		},
		Ready: httpOK("https://127.0.0.1:10259/healthz", insecure()),
	}
}

func kubelet(l layout.Layout) Component {
	kubeconfig := l.State("pki", "kubelet.kubeconfig")
	return Component{
		Spec: process.Spec{
			Name:    Kubelet,
			Sockets: tcp(l.Network.NodeIP()+":10250", "127.0.0.1:10248"),
			Command: []string{
				l.Binary("kubelet"), "--config=" + l.State("etc", "kubelet.yaml"), "--kubeconfig=" + kubeconfig,
				"--hostname-override=" + layout.NodeName, "--node-ip=" + l.Network.NodeIP(),
				"--node-labels=topology.kubernetes.io/region=local,topology.kubernetes.io/zone=0",
				"--root-dir=" + l.State("kubelet"), "--cert-dir=" + l.State("kubelet", "pki"),
			},
			Inputs: []string{l.State("etc", "kubelet.yaml"), kubeconfig},
		},
		Configs: []string{"kubelet.yaml", "resolv.conf"},
		Ready:   httpOK("http://127.0.0.1:10248/healthz", nil),
	}
}

func proxy(l layout.Layout) Component {
	config := l.State("etc", "kube-proxy.yaml")
	return Component{
		Spec: process.Spec{
			Name:    Proxy,
			Sockets: tcp("127.0.0.1:10249", "127.0.0.1:10256"),
			Command: []string{l.Binary("kube-proxy"), "--config=" + config},
			Inputs:  []string{config, l.State("pki", "kube-proxy.kubeconfig")},
		},
		Configs: []string{"kube-proxy.yaml"},
		Ready:   httpOK("http://127.0.0.1:10256/healthz", nil),
	}
}

func dns(l layout.Layout) Component {
	config := l.State("etc", "Corefile")
	return Component{
		Spec: process.Spec{
			Name:    DNS,
			Sockets: append(tcp(l.Network.NodeIP()+":8080"), udpAndTCP(fmt.Sprintf("%s:%d", l.Network.NodeIP(), layout.ClusterDNSPort), l.Network.HostDNSIP()+":53")...),
			Command: []string{l.Binary("coredns"), "-conf", config},
			Inputs:  []string{config, l.State("pki", "coredns.kubeconfig")},
		},
		Configs: []string{"Corefile"},
		Ready:   httpOK("http://"+l.Network.NodeIP()+":8080/health", nil),
	}
}

func statusController(l layout.Layout) Component {
	kubeconfig := l.State("pki", "status-controller.kubeconfig")
	health := l.Network.NodeIP() + ":8081"
	return Component{
		Spec: process.Spec{
			Name:    StatusController,
			Sockets: tcp(health),
			Command: []string{
				l.Binary("landscape"), "status-controller", "--kubeconfig", kubeconfig, "--volumes", l.Volumes(), "--health", health,
				"--network", l.Network.String(),
			},
			Inputs: []string{kubeconfig},
		},
		Ready: httpOK("http://"+health+"/readyz", nil),
	}
}

// program finds a program of the machine, which Debian and Docker have in different folders.
func program(name string) string {
	path, err := exec.LookPath(name)
	if err != nil {
		return name
	}
	return path
}

func tcp(addresses ...string) []process.Socket {
	var sockets []process.Socket
	for _, address := range addresses {
		sockets = append(sockets, process.Socket{Network: "tcp", Address: netip.MustParseAddrPort(address)})
	}
	return sockets
}

func udpAndTCP(addresses ...string) []process.Socket {
	sockets := tcp(addresses...)
	for _, socket := range slices.Clone(sockets) {
		sockets = append(sockets, process.Socket{Network: "udp", Address: socket.Address})
	}
	return sockets
}

// httpOK asks a health endpoint.
func httpOK(url string, config *tls.Config) func(context.Context) error {
	client := &http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	return func(ctx context.Context) error {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer func() { _ = response.Body.Close() }()
		if response.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(io.LimitReader(response.Body, 512))
			return fmt.Errorf("%s answers %s: %s", url, response.Status, body)
		}
		return nil
	}
}

// insecure is for health endpoints on this machine whose certificate the component made for itself, and which tell nothing
// that would have to be kept secret.
func insecure() *tls.Config {
	return &tls.Config{InsecureSkipVerify: true} // #nosec G402 -- see above.
}
