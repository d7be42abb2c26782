// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package mock_test runs the mock provider of both instances in one cluster, as the programs run it, against a real
// kube-apiserver and etcd, each with no more permissions than the chart gives to it. It counts what an object costs.
package mock_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	logzap "sigs.k8s.io/controller-runtime/pkg/log/zap"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"

	seedapp "github.com/gardener/gardener-extension-provider-local/gardenlet-extension/app"
	gardenapp "github.com/gardener/gardener-extension-provider-local/operator-extension/app"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const (
	gardenNamespace = "garden"
	shootNamespace  = "shoot--local--mock"
	failedNamespace = "shoot--local--failed"
	// gardenPlace and seedPlace are the namespaces of the instances.
	gardenPlace = "runtime-extension-provider-local"
	seedPlace   = "extension-provider-local"

	gardenUser = "system:serviceaccount:" + gardenPlace + ":" + gardenapp.Name
	seedUser   = "system:serviceaccount:" + seedPlace + ":" + seedapp.Name
)

var (
	env *environment.Environment
	c   client.Client
	// inGarden and inSeed are the instances.
	inGarden, inSeed *instance
)

// instance is one that can be stopped and started.
type instance struct {
	*suite.Running
	requests *suite.Recorder
	run      func(context.Context) error
}

func (i *instance) start() { i.Running = suite.Run("an instance", i.run) }

func TestMock(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	RunSpecs(t, "The mock provider")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText, logzap.WriteTo(GinkgoWriter)))

	By("starting the API server")
	var err error
	env, err = environment.Start(suite.NewScheme(extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme), environment.WithAuditLog())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	c = env.Client
	Expect(env.CreateNamespaces(ctx, gardenNamespace, gardenPlace, seedPlace)).To(Succeed())
	suite.CreateShoot(ctx, c, newCluster(shootNamespace, nil))
	suite.CreateShoot(ctx, c, newCluster(failedNamespace, hasFailed))

	By("running both instances with the permissions of the chart")
	inGarden = newInstance(ctx, gardenPlace, gardenapp.Name, suite.GardenValues(), func(ctx context.Context, config *configv1alpha1.ExtensionConfiguration, access *rest.Config) error {
		return gardenapp.Run(ctx, gardenapp.Options{Log: logf.Log, Config: config, RESTConfig: access, Namespace: gardenPlace, AllowRestart: true})
	})
	inSeed = newInstance(ctx, seedPlace, seedapp.Name, suite.SeedValues(), func(ctx context.Context, config *configv1alpha1.ExtensionConfiguration, access *rest.Config) error {
		return seedapp.Run(ctx, seedapp.Options{Log: logf.Log, Config: config, RESTConfig: access, Namespace: seedPlace, AllowRestart: true})
	})
})

// behaviours are those of both instances.
func behaviours() []any {
	return []any{
		map[string]any{
			"kind": "Bastion", "operation": "Create", "failures": 2, "retryAfter": "1s",
			"error": map[string]any{"message": "no machine left", "codes": []any{"ERR_INFRA_RESOURCES_DEPLETED"}},
		},
		map[string]any{"kind": "ContainerRuntime", "operation": "Create", "delay": "3s"},
		map[string]any{"kind": "SelfHostedShootExposure", "operation": "Delete", "errorRate": 1, "retryAfter": "500ms"},
	}
}

func newInstance(ctx context.Context, place, name string, values map[string]any, run func(context.Context, *configv1alpha1.ExtensionConfiguration, *rest.Config) error) *instance {
	GinkgoHelper()
	values["mock"] = map[string]any{"enabled": true, "seed": 1, "behaviours": behaviours(), "nodes": map[string]any{"disabled": true}}
	release, err := env.InstallChart(ctx, place, values)
	Expect(err).NotTo(HaveOccurred())
	access, err := env.ServiceAccountConfig(place, name)
	Expect(err).NotTo(HaveOccurred())
	access.QPS = release.Config.ClientConnection.QPS

	config := release.Config
	config.Backup.Directory, config.Charts.Cache.Directory = GinkgoT().TempDir(), GinkgoT().TempDir()
	suite.OwnPorts(config)
	suite.DisableControllers(config)
	// The API server can't reach them.
	suite.DisableWebhooks(config)
	i := &instance{requests: &suite.Recorder{}}
	access.Wrap(i.requests.Wrap)
	i.run = func(ctx context.Context) error { return run(ctx, config.DeepCopy(), rest.CopyConfig(access)) }
	i.start()
	DeferCleanup(func() { i.Stop() })
	return i
}

func newCluster(namespace string, change func(*gardencorev1beta1.Shoot)) *extensionsv1alpha1.Cluster {
	GinkgoHelper()
	return suite.NewCluster(namespace, func(shoot *gardencorev1beta1.Shoot) {
		shoot.Spec.Networking = &gardencorev1beta1.Networking{Nodes: new("10.5.0.0/16")}
		if change != nil {
			change(shoot)
		}
	})
}

// setShoot writes another shoot into a Cluster.
func setShoot(ctx context.Context, namespace string, change func(*gardencorev1beta1.Shoot)) {
	GinkgoHelper()
	cluster := &extensionsv1alpha1.Cluster{}
	Expect(c.Get(ctx, client.ObjectKey{Name: namespace}, cluster)).To(Succeed())
	cluster.Spec.Shoot = newCluster(namespace, change).Spec.Shoot
	Expect(c.Update(ctx, cluster)).To(Succeed())
}

func hasFailed(shoot *gardencorev1beta1.Shoot) {
	shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{State: gardencorev1beta1.LastOperationStateFailed}
}
