// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package machines_test holds the end-to-end tests of machines. They run against a landscape that is up (`make up`), with
// KUBECONFIG naming its runtime cluster, and leave it as they found it.
//
// Real are the seed's instance of the extension with the chart that the landscape pushed; machine-controller-manager with
// our driver beside it, deployed by Gardener's own code; the machines; and a control plane of a shoot of its own: etcd,
// kube-apiserver, kube-controller-manager, kube-scheduler, gardener-resource-manager, cloud-controller. Machines become
// Nodes of it.
//
// The suite is what stands in for gardenlet: it makes namespace, Cluster, certificates, the control plane and the objects
// of the extensions, by Gardener's own components where these do with a seed alone. Two things differ from a shoot. There
// is no gateway, so that kube-apiserver is a Service of type LoadBalancer. And there is no gardener-node-agent, so that the
// OperatingSystemConfig with purpose provision brings and starts kubelet and kube-proxy itself. As there is no network
// plugin for a whole cluster, pods that others talk to are in the network of their machine.
package machines_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

var (
	l *landscape.Landscape
	// probeImage is the image of test/probe, by digest.
	probeImage string
)

func TestMachines(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Machines, end to end", Label("machines"))
}

var _ = JustAfterEach(landscape.ExplainFailure)

var _ = BeforeSuite(func(ctx SpecContext) {
	l = landscape.Connect()
	l.RequireGardenOnly(ctx)
	By("bringing what gardenlet brings into a seed")
	l.PrepareSeed(ctx)
	By("installing the chart as gardenlet does")
	l.Install(ctx)
	By("pushing the image of the probe")
	probeImage = l.PushProbe(ctx)
})
