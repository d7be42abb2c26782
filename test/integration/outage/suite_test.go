// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package outage_test runs both instances against a real kube-apiserver and etcd through proxies that fail. An instance is
// started again when it ends, as a kubelet would. Gardener's part, which creates, changes and deletes objects meanwhile, is
// not disturbed.
package outage_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	logzap "sigs.k8s.io/controller-runtime/pkg/log/zap"

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

	// The Lease is short, so that an outage that is longer than it is short, too.
	leaseDuration = 4 * time.Second
	renewDeadline = 3 * time.Second
	retryPeriod   = 500 * time.Millisecond
	// restartPause is that between two runs of an instance.
	restartPause = 200 * time.Millisecond
	// watchTimeout is short, so that a watch that hangs is found in the time of a test.
	watchTimeout = 8 * time.Second
)

var (
	c         client.Client
	instances []*instance
)

// instance is one that runs again when it has ended.
type instance struct {
	class   extensionsv1alpha1.ExtensionClass
	buckets string
	// proxy is between the instance and http, which is before the API server.
	proxy *environment.Proxy
	http  *environment.HTTPProxy
	// ends counts how often it has ended.
	ends atomic.Int32
}

func TestOutage(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(time.Minute)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	RunSpecs(t, "An instance whose API server is away")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText, logzap.WriteTo(GinkgoWriter)))

	By("starting the API server")
	env, err := environment.Start(suite.NewScheme(extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	c = env.Client
	Expect(env.CreateNamespaces(ctx, gardenNamespace)).To(Succeed())
	Expect(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: "backup"}})).To(Succeed())

	// A connection that has died is found after these seconds, rather than after 30 and 15. This is not for the client of the test:
	// on a busy machine, the API server may take longer to answer.
	GinkgoT().Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "2")
	GinkgoT().Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")

	By("running the instances with the permissions of the chart, through the proxies")
	start(ctx, env, extensionsv1alpha1.ExtensionClassGarden, "runtime-extension-provider-local", gardenapp.Name, suite.GardenValues(),
		func(ctx context.Context, config *configv1alpha1.ExtensionConfiguration, access *rest.Config, namespace string) error {
			return gardenapp.Run(ctx, gardenapp.Options{Log: logf.Log, Config: config, RESTConfig: access, Namespace: namespace, AllowRestart: true, WatchTimeout: watchTimeout})
		})
	start(ctx, env, extensionsv1alpha1.ExtensionClassSeed, "extension-provider-local", seedapp.Name, suite.SeedValues(),
		func(ctx context.Context, config *configv1alpha1.ExtensionConfiguration, access *rest.Config, namespace string) error {
			return seedapp.Run(ctx, seedapp.Options{Log: logf.Log, Config: config, RESTConfig: access, Namespace: namespace, AllowRestart: true, WatchTimeout: watchTimeout})
		})
})

func start(ctx context.Context, env *environment.Environment, class extensionsv1alpha1.ExtensionClass, namespace, name string, values map[string]any,
	run func(context.Context, *configv1alpha1.ExtensionConfiguration, *rest.Config, string) error) {
	GinkgoHelper()
	Expect(env.CreateNamespaces(ctx, namespace)).To(Succeed())
	values["mock"] = map[string]any{"enabled": true, "nodes": map[string]any{"disabled": true}}
	release, err := env.InstallChart(ctx, namespace, values)
	Expect(err).NotTo(HaveOccurred())
	access, err := env.ServiceAccountConfig(namespace, name)
	Expect(err).NotTo(HaveOccurred())

	i := &instance{class: class, buckets: GinkgoT().TempDir()}
	i.http, access, err = environment.NewHTTPProxy(access)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(i.http.Close)
	i.proxy, access, err = environment.NewProxy(access)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(i.proxy.Close()).To(Succeed()) })

	config := release.Config
	config.Backup.Directory, config.Charts.Cache.Directory = i.buckets, GinkgoT().TempDir()
	config.LeaderElection.LeaseDuration.Duration = leaseDuration
	config.LeaderElection.RenewDeadline.Duration = renewDeadline
	config.LeaderElection.RetryPeriod.Duration = retryPeriod
	suite.DisableWebhooks(config)
	suite.DisableControllers(config, &config.Controllers.BackupBucket)
	suite.OwnPorts(config)
	suite.Background("the instance of class "+string(class), func(ctx context.Context) error {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			err := run(ctx, config.DeepCopy(), rest.CopyConfig(access), namespace)
			logf.Log.Info("The instance has ended", "class", class, "reason", err)
			i.ends.Add(1)
		}, restartPause)
		return nil
	})
	instances = append(instances, i)
}
