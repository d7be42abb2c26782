// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package outage_test runs the garden instance against a real kube-apiserver and etcd through a proxy that fails. It is
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

	"github.com/gardener/gardener-extension-provider-local/operator-extension/app"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const (
	gardenNamespace   = "garden"
	instanceNamespace = "runtime-extension-provider-local"

	// The Lease is short, so that an outage that is longer than it is short, too.
	leaseDuration = 4 * time.Second
	renewDeadline = 3 * time.Second
	retryPeriod   = 500 * time.Millisecond
	// restartPause is that between two runs of the instance.
	restartPause = 200 * time.Millisecond
)

var (
	c       client.Client
	proxy   *environment.Proxy
	buckets string
	// ends counts how often the instance has ended.
	ends atomic.Int32
)

func TestOutage(t *testing.T) {
	// A connection that has died is found after these seconds, rather than after 30 and 15.
	t.Setenv("HTTP2_READ_IDLE_TIMEOUT_SECONDS", "2")
	t.Setenv("HTTP2_PING_TIMEOUT_SECONDS", "1")
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
	Expect(env.CreateNamespaces(ctx, gardenNamespace, instanceNamespace)).To(Succeed())
	Expect(c.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: gardenNamespace, Name: "backup"}})).To(Succeed())

	By("running the instance with the permissions of the chart, through the proxy")
	values := suite.GardenValues()
	values["mock"] = map[string]any{"enabled": true}
	release, err := env.InstallChart(ctx, instanceNamespace, values)
	Expect(err).NotTo(HaveOccurred())
	access, err := env.ServiceAccountConfig(instanceNamespace, app.Name)
	Expect(err).NotTo(HaveOccurred())
	proxy, access, err = environment.NewProxy(access)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(func() { Expect(proxy.Close()).To(Succeed()) })

	buckets = GinkgoT().TempDir()
	config := release.Config
	config.Backup.Directory, config.Charts.Cache.Directory = buckets, GinkgoT().TempDir()
	config.LeaderElection.LeaseDuration.Duration = leaseDuration
	config.LeaderElection.RenewDeadline.Duration = renewDeadline
	config.LeaderElection.RetryPeriod.Duration = retryPeriod
	for _, controller := range []*configv1alpha1.ControllerConfiguration{&config.Controllers.BackupEntry, &config.Controllers.DNSRecord, &config.Controllers.Extension} {
		controller.Disabled = true
	}
	suite.OwnPorts(config)
	suite.Background("the instance", func(ctx context.Context) error {
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			err := app.Run(ctx, app.Options{Log: logf.Log, Config: config.DeepCopy(), RESTConfig: rest.CopyConfig(access), Namespace: instanceNamespace, AllowRestart: true})
			logf.Log.Info("The instance has ended", "reason", err)
			ends.Add(1)
		}, restartPause)
		return nil
	})
})
