// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package shoot_test holds the end-to-end tests of the life of shoots. They run against a landscape that is up (`make up`),
// with KUBECONFIG naming its runtime cluster, which is also the seed, and leave it as they found it. Everything is asked for
// at Gardener's own API in the virtual garden, as a user does it; the seed is looked at only for what becomes of it there.
//
// Each container has a label beside "shoot", so that it can be run alone. That with the labels migration and managedseed
// takes more memory than every machine has, and so runs only if the filter names one of them; those with the labels observability,
// autoscaling, dependency-watchdog and gardenadm need what make up builds with these COMPONENTS.
//
// A shoot of a spec is an example with another name. One at a time is made, and the example with machines hibernates as long
// as there is one, so that two control planes run at most; KEEP_EXAMPLES=true leaves it awake where there is memory for it.
package shoot_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

const (
	gardenNamespace = landscape.GardenNamespace
	seedName        = "local"
	cloudProfile    = "local"
	// registration is the name of the ControllerRegistration of this extension.
	registration = "provider-local"

	// The examples, which `make up` creates.
	exampleWorkerless = "90-shoot-workerless.yaml"
	exampleMachines   = "91-shoot.yaml"

	// How long operations may take at most, on two busy cores.
	patience     = 15 * time.Minute
	specPatience = SpecTimeout(40 * time.Minute)
)

var (
	l *landscape.Landscape
	g *landscape.Garden
)

func TestShoot(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(3 * time.Minute)
	EnforceDefaultTimeoutsWhenUsingContexts()
	suite, reporter := GinkgoConfiguration()
	// All specs together take longer than the hour that ginkgo grants.
	suite.Timeout = max(suite.Timeout, 6*time.Hour)
	RunSpecs(t, "Life of shoots, end to end", suite, reporter, Label("shoot"))
}

// In this order, so that the examples need not be woken up in between.
var _ = Describe("Shoots", Serial, func() {
	Describe("The examples", Label("examples"), Ordered, exampleSpecs)
	Describe("The files of the examples", Label("examples", "files"), Ordered, exampleFileSpecs)
	Describe("The example that is asleep", Label("examples", "asleep"), sleepingSpecs)
	Describe("gardenlet", Label("seed", "gardenlet"), gardenletSpecs)
	Describe("A workerless one", Label("workerless"), Ordered, func() {
		lifeSpecs("e2e-life", func(context.Context, *gardencorev1beta1.Shoot) {})
	})
	Describe("One in each phase of which the extension and gardenlet are killed", Label("faults"), Ordered, func() {
		lifeSpecs("e2e-faults", disturb)
	})
	Describe("One with machines", Label("pools"), Ordered, poolSpecs)
	Describe("An etcd that loses its volume", Label("restore"), Ordered, restoreSpecs)
	Describe("What is broken", Label("explain"), Ordered, explainSpecs)
	Describe("Force-deletion", Label("force-delete"), forceDeleteSpecs)
	Describe("Prometheus", Label("observability"), observabilitySpecs)
	Describe("VerticalPodAutoscaler", Label("autoscaling"), autoscalingSpecs)
	Describe("dependency-watchdog", Label("dependency-watchdog"), watchdogSpecs)
	Describe("One that hosts itself", Label("gardenadm"), gardenadmSpecs)
	Describe("One that is a seed", Label("seed", "managedseed", "migration"), Ordered, managedSeedSpecs)
})

var _ = JustAfterEach(landscape.ExplainFailure)

var _ = BeforeSuite(func(ctx SpecContext) {
	l, g = landscape.Connect(), landscape.ConnectGarden()
	seed := landscape.Named[*gardencorev1beta1.Seed]("", seedName)
	Eventually(seedProblem(ctx, seed)).Should(BeEmpty(), "the seed is ready")
	DeferCleanup(func(ctx SpecContext) {
		By("waking the examples up again")
		wakeExamples(ctx)
		writeTimings()
	})
})
