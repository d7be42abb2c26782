// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package garden_test holds the end-to-end tests of the garden instance. They run against a landscape that is up
// (`make up` or `make gardener-up`), with KUBECONFIG naming its runtime cluster, and leave it as they found it.
package garden_test

import (
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	operatorv1alpha1 "github.com/gardener/gardener/pkg/apis/operator/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
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
	SetDefaultEventuallyPollingInterval(500 * time.Millisecond)
	RunSpecs(t, "Garden instance, end to end", Label("garden"))
}

var _ = BeforeSuite(func() {
	kubeconfig := os.Getenv("KUBECONFIG")
	Expect(kubeconfig).NotTo(BeEmpty(), "KUBECONFIG names the runtime cluster; `make e2e` sets it")

	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		kubernetesscheme.AddToScheme,
		extensionsv1alpha1.AddToScheme,
		operatorv1alpha1.AddToScheme,
		resourcesv1alpha1.AddToScheme,
	} {
		Expect(add(scheme)).To(Succeed())
	}

	var err error
	restConfig, err = clientcmd.BuildConfigFromFlags("", kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	restConfig.QPS, restConfig.Burst = 200, 400
	c, err = client.New(restConfig, client.Options{Scheme: scheme})
	Expect(err).NotTo(HaveOccurred())
	clientset, err = kubernetes.NewForConfig(restConfig)
	Expect(err).NotTo(HaveOccurred())
})
