// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command forward makes the load balancers of a kind cluster reachable from a machine whose container engine runs in a virtual machine.
// The machine is not connected to the network of the nodes there; it reaches only published ports.
//
//	forward proxy --listen :5002 --to CIDR...
//
// runs in a node, on a published port, and connects to load balancers on behalf of
//
//	forward listen --kubeconfig PATH --proxy 127.0.0.1:5002 --add-address COMMAND --added PATH
//
// which runs on the machine, as root because of ports below 1024. It watches the Services, and listens on their addresses.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// retryInterval is how long an address that something else uses is left alone.
const retryInterval = 5 * time.Second

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "forward:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to do
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || args[0] != "proxy" && args[0] != "listen" {
		return errors.New("expected 'proxy' or 'listen'")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	address := flags.String("listen", ":5002", "address of the proxy, in the node")
	var to []netip.Prefix
	flags.Func("to", "addresses that the proxy connects to", func(value string) error {
		prefix, err := netip.ParsePrefix(value)
		to = append(to, prefix)
		return err
	})
	kubeconfig := flags.String("kubeconfig", "", "kubeconfig of the cluster")
	proxy := flags.String("proxy", "127.0.0.1:5002", "address of the proxy, on the machine")
	command := flags.String("add-address", "", "program that gives the machine an address")
	added := flags.String("added", "", "file with the addresses that it gave")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == "proxy" {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *address)
		if err != nil {
			return err
		}
		return serve(ctx, listener, newProxy(to, (&net.Dialer{Timeout: 10 * time.Second}).DialContext))
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	f := newForwarder(*proxy, func(ctx context.Context, address string) error {
		return addAddress(ctx, *command, *added, address)
	})
	return watch(ctx, client, f)
}

func serve(ctx context.Context, listener net.Listener, handler http.Handler) error {
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	defer context.AfterFunc(ctx, func() { _ = server.Close() })()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// addAddress has skaffold/kind/loadbalancers give the machine an address, and notes it if the machine did not have it: `make kind-down`
// takes these back.
func addAddress(ctx context.Context, command, added, address string) error {
	out, err := exec.CommandContext(ctx, command, "addresses", "add", "--address", address).Output() // #nosec G204 G702 -- of this repository
	if err != nil {
		return fmt.Errorf("adding %s to the loopback device: %w", address, err)
	}
	file, err := os.OpenFile(added, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) // #nosec G302 G304 G703 -- holds nothing secret
	if err != nil {
		return err
	}
	_, err = file.Write(out)
	return errors.Join(err, file.Close())
}

// watch keeps the forwarder's listeners those of the cluster's Services until ctx ends.
func watch(ctx context.Context, client kubernetes.Interface, f *forwarder) error {
	defer f.close()
	factory := informers.NewSharedInformerFactory(client, 0)
	services := factory.Core().V1().Services()
	changed := make(chan struct{}, 1)
	notify := func(any) {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	if _, err := services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: notify, UpdateFunc: func(_, service any) { notify(service) }, DeleteFunc: notify,
	}); err != nil {
		return err
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-retry.C:
		}
		all, err := services.Lister().List(labels.Everything())
		if err != nil {
			return err
		}
		if err := f.sync(ctx, endpoints(all)); err != nil {
			log.Print(err)
			retry.Reset(retryInterval)
		}
	}
}

// endpoint is a port of a load balancer.
type endpoint struct {
	address  netip.AddrPort
	protocol corev1.Protocol
}

// endpoints are what load balancers have. Where the mode is Proxy, something else than kube-proxy forwards packets.
func endpoints(services []*corev1.Service) map[endpoint]bool {
	all := map[endpoint]bool{}
	for _, service := range services {
		if service.Spec.Type != corev1.ServiceTypeLoadBalancer {
			continue
		}
		for _, ingress := range service.Status.LoadBalancer.Ingress {
			address, err := netip.ParseAddr(ingress.IP)
			if err != nil || ingress.IPMode != nil && *ingress.IPMode == corev1.LoadBalancerIPModeProxy {
				continue
			}
			for _, port := range service.Spec.Ports {
				all[endpoint{netip.AddrPortFrom(address, uint16(port.Port)), port.Protocol}] = true // #nosec G115 -- a port
			}
		}
	}
	return all
}
