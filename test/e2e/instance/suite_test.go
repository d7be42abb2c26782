// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package instance_test holds the end-to-end tests of the seed instance. They run against a landscape that has a Garden and no
// seed (`make up UNTIL=garden`), with KUBECONFIG naming its runtime cluster, and leave it as they found it.
//
// What gardenlet does the suite does itself, so that it can do it in every order, and wrongly: it installs the
// chart which the Extension names as a ControllerInstallation would be, and makes the namespace of a shoot with its
// gardener-resource-manager. The runtime cluster plays all three: it is the garden's, it is a seed, and the shoot is the
// same cluster once more. A program of the tests stands in for the ingress gateways and the ingress controller (test/probe),
// whose images there are none of. Everything else is real.
package instance_test

import (
	"maps"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

const (
	gardenNamespace  = landscape.GardenNamespace
	coreDNSNamespace = landscape.CoreDNSNamespace

	gardenInstance          = "gardener-extension-provider-local-garden"
	gardenInstanceNamespace = landscape.GardenInstanceNamespace
	seedInstance            = landscape.Instance
	seedInstanceNamespace   = landscape.InstanceNamespace
	installation            = landscape.Installation
	seedName                = landscape.SeedName

	// seedCPU and seedMemory are what the instance is told to give to Nodes. The landscape gives them more by itself.
	seedCPU, seedMemory = "90", "90Gi"
)

var (
	l *landscape.Landscape
	// c does not cache.
	c         client.Client
	clientset kubernetes.Interface
	// backups is the folder of all buckets, which the landscape has on this machine.
	backups string
	// balancersBefore are the Services of type LoadBalancer without a seed.
	balancersBefore map[string]placement
)

func TestInstance(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Seed instance, end to end", Label("instance"))
}

var _ = JustAfterEach(landscape.ExplainFailure)

var _ = BeforeSuite(func(ctx SpecContext) {
	l = landscape.Connect()
	l.RequireGardenOnly(ctx)
	l.Values = map[string]any{
		"nodes": map[string]any{"capacity": map[string]any{"cpu": seedCPU, "memory": seedMemory}},
		// There is no API server of a shoot for it; the suite of machines has one.
		"controlPlane": map[string]any{"cloudController": map[string]any{"deploy": false}},
	}
	c, clientset = l.Client, l.Clientset
	asItWas := nodes(ctx)
	DeferCleanup(func(ctx SpecContext) {
		Eventually(func() map[string]string { return nodes(ctx) }).Should(Equal(asItWas), "Nodes have again what they had")
	})

	balancersBefore = balancers(ctx)
	DeferCleanup(func(ctx SpecContext) {
		after := balancers(ctx)
		Expect(slices.Sorted(maps.Keys(after))).To(Equal(slices.Sorted(maps.Keys(balancersBefore))), "there are no others than before")
		for name, before := range balancersBefore {
			Expect(after[name]).To(Satisfy(before.isKeptBy), "%s has what it had", name)
		}
	})

	By("bringing what gardenlet brings into a seed")
	l.PrepareSeed(ctx)
	By("installing the chart as gardenlet does")
	backups = l.Install(ctx)
	By("making a shoot's namespace with a gardener-resource-manager")
	createShoot(ctx)
	By("running a pod that asks what pods ask")
	prepareNetwork(ctx)
})
