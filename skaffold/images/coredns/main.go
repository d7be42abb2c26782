// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Command coredns is CoreDNS with the few plugins that this extension and its local landscape need, and one of its own.
//
// One binary serves both: as the component of the extension it gets CONFIG_NAMESPACE and serves the DNSRecords by the
// plugin "custom"; as the cluster's own name server of the landscape it gets neither that variable nor that directive
// and is an ordinary CoreDNS with the plugins kubernetes, hosts and template, and as that of the landscape's shoots it has
// what Gardener configures there (loop). Binaries of their own would differ by a plugin each and cost further builds of the
// same 70 MB.
//
// Environment:
//
//	CONFIG_NAMESPACE  the namespace whose ConfigMaps coredns-custom-* are served; empty for none
//	CONFIG_DIR        where the served state is kept for the next start of the container; optional
//	KUBECONFIG        how to reach the API server from outside of a cluster; optional
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/cache"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/file"
	_ "github.com/coredns/coredns/plugin/forward"
	_ "github.com/coredns/coredns/plugin/health"
	_ "github.com/coredns/coredns/plugin/hosts"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	_ "github.com/coredns/coredns/plugin/loadbalance"
	_ "github.com/coredns/coredns/plugin/log"
	_ "github.com/coredns/coredns/plugin/loop"
	_ "github.com/coredns/coredns/plugin/metrics"
	_ "github.com/coredns/coredns/plugin/ready"
	_ "github.com/coredns/coredns/plugin/reload"
	_ "github.com/coredns/coredns/plugin/rewrite"
	_ "github.com/coredns/coredns/plugin/template"
	_ "github.com/coredns/coredns/plugin/view"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gardener/gardener-extension-provider-local/skaffold/images/coredns/custom"
)

func main() {
	if err := prepare(context.Background(), os.Getenv); err != nil {
		log.Fatal(err)
	}
	coremain.Run()
}

// prepare registers the plugin "custom" and, if there is a namespace to watch, starts to fill what it serves.
func prepare(ctx context.Context, getenv func(string) string) error {
	store := custom.NewStore(prometheus.DefaultRegisterer)
	if err := custom.Register(store); err != nil {
		return err
	}

	namespace := getenv("CONFIG_NAMESPACE")
	if namespace == "" {
		store.SetReady()
		return nil
	}

	// Without a KUBECONFIG this is the configuration of the pod's ServiceAccount.
	config, err := clientcmd.BuildConfigFromFlags("", getenv("KUBECONFIG"))
	if err != nil {
		return fmt.Errorf("reading how to reach the API server: %w", err)
	}
	config.UserAgent = "provider-local-coredns"
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("making a client for the API server: %w", err)
	}
	return custom.Watch(ctx, store, client, namespace, getenv("CONFIG_DIR"))
}
