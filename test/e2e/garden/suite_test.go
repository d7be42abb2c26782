// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package garden_test holds the end-to-end tests of the garden instance. They run against a landscape that is up
// (`make up` or `make gardener-up`), with KUBECONFIG naming its runtime cluster, and leave it as they found it. Those with the label
// observability need what `make up COMPONENTS=observability` builds; alerts may be pending for an hour after them.
package garden_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/e2e/landscape"
)

const (
	gardenNamespace   = "garden"
	instanceNamespace = "runtime-extension-provider-local"
	instanceName      = "gardener-extension-provider-local-garden"
	coreDNSNamespace  = "gardener-extension-provider-local-coredns"
	apiDomain         = "api.virtual-garden.local.gardener.cloud"
)

var (
	restConfig *rest.Config
	c          client.Client
	clientset  kubernetes.Interface
)

func TestGarden(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Garden instance, end to end", Label("garden"))
}

var _ = JustAfterEach(landscape.ExplainFailure)

var _ = BeforeSuite(func() {
	l := landscape.Connect()
	restConfig, c, clientset = l.Config, l.Client, l.Clientset
})
