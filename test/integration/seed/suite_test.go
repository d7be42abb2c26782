// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package seed_test runs the seed instance, as the program runs it, against a real kube-apiserver and etcd in the role of
// a seed and a second pair in that of a shoot, with real gardener-resource-managers between them, and with no more
// permissions than those of the chart. Both API servers call the instance's webhooks.
package seed_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	logzap "sigs.k8s.io/controller-runtime/pkg/log/zap"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"

	"github.com/gardener/gardener-extension-provider-local/gardenlet-extension/app"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const (
	gardenNamespace   = "garden"
	instanceNamespace = "extension-provider-local"
	// shootNamespace is the one of the shoot whose API server and gardener-resource-manager run.
	shootNamespace = "shoot--local--one"
	// lostNamespace is the one of a shoot of which nothing runs.
	lostNamespace = "shoot--local--lost"
	// oldNode is a Node of the seed from before the instance.
	oldNode = "old"
)

var (
	seedEnv, shootEnv *environment.Environment
	// seed and shoot are the administrator's clients.
	seed, shoot client.Client
	seedScheme  *runtime.Scheme
	instance    *runner
)

func TestSeed(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "The seed instance")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText, logzap.WriteTo(GinkgoWriter)))

	seedScheme = suite.NewScheme(extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme, vpaautoscalingv1.AddToScheme)

	By("starting the API servers of the seed and of a shoot")
	var err error
	seedEnv, err = environment.Start(seedScheme)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(seedEnv.Stop)
	seed = seedEnv.Client
	shootEnv, err = environment.StartShoot(seedScheme)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(shootEnv.Stop)
	shoot = shootEnv.Client

	Expect(seedEnv.CreateNamespaces(ctx, gardenNamespace, instanceNamespace)).To(Succeed())
	createShoot(ctx, shootNamespace)
	createShoot(ctx, lostNamespace)
	Expect(seed.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: oldNode}})).To(Succeed())
	Expect(seed.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "backup", Namespace: gardenNamespace}})).To(Succeed())

	By("running gardener-resource-manager for the seed and for the shoot")
	suite.Background("gardener-resource-manager of the seed", func(ctx context.Context) error {
		return seedEnv.RunResourceManager(ctx, environment.ResourceManagerOptions{Class: "seed"})
	})
	suite.Background("gardener-resource-manager of the shoot", func(ctx context.Context) error {
		return seedEnv.RunResourceManager(ctx, environment.ResourceManagerOptions{Namespaces: []string{shootNamespace}, Target: shootEnv.Config})
	})

	for name, config := range map[string]*rest.Config{"seed": seedEnv.Config, "shoot": shootEnv.Config} {
		watching, err := client.NewWithWatch(config, client.Options{Scheme: seedScheme})
		Expect(err).NotTo(HaveOccurred())
		suite.Background("garbage collection in the "+name, func(ctx context.Context) error { return collectGarbage(ctx, watching) })
	}

	By("running the instance with the permissions of the chart")
	instance = newRunner(ctx)
	instance.start()
	DeferCleanup(func() { instance.Stop() })
})

// runner runs the instance, and again.
type runner struct {
	*suite.Running

	config     *configv1alpha1.ExtensionConfiguration
	restConfig *rest.Config
}

func newRunner(ctx context.Context) *runner {
	GinkgoHelper()
	values := suite.SeedValues()
	values["controllers"] = map[string]any{"dnsRecord": map[string]any{"disabled": true}}
	values["machines"] = map[string]any{"registryMirrors": []any{map[string]any{"upstream": "registry.k8s.io", "hosts": []any{"http://mirror:5001"}}}}
	release, err := seedEnv.InstallChart(ctx, instanceNamespace, values)
	Expect(err).NotTo(HaveOccurred())
	restConfig, err := seedEnv.ServiceAccountConfig(instanceNamespace, app.Name)
	Expect(err).NotTo(HaveOccurred())

	config := release.Config
	config.Backup.Directory, config.Backup.HostPath = GinkgoT().TempDir(), "/on/the/node"
	suite.OwnPorts(config)
	return &runner{config: config, restConfig: restConfig}
}

func (r *runner) start() {
	GinkgoHelper()
	r.Running = suite.Run("the instance", func(ctx context.Context) error {
		return app.Run(ctx, app.Options{
			Log:          logf.Log,
			Config:       r.config.DeepCopy(),
			RESTConfig:   rest.CopyConfig(r.restConfig),
			Namespace:    instanceNamespace,
			WebhookURL:   fmt.Sprintf("127.0.0.1:%d", r.config.Server.Webhooks.Port),
			AllowRestart: true,
		})
	})
}
