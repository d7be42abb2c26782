// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package mocknodes_test runs a Fleet of fake Nodes against the API server, the controllers and the scheduler of a real
// shoot. There is no kubelet: whatever runs, runs because the Fleet says so. Gardener's own checks look at the result.
package mocknodes_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/logger"

	"github.com/gardener/gardener-extension-provider-local/pkg/mock/nodes/kubelet"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const (
	// kubeletHost is a name, not an address, so that Nodes have it as ExternalDNS.
	kubeletHost = "localhost"

	envControllerManager = "TEST_ASSET_KUBE_CONTROLLER_MANAGER"
	envScheduler         = "TEST_ASSET_KUBE_SCHEDULER"
)

var (
	env         *environment.Environment
	access      *rest.Config
	kubeletPort int
)

func TestMockNodes(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(90 * time.Second)
	SetDefaultEventuallyPollingInterval(100 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "Fake nodes in a real shoot")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logger.MustNewZapLogger(logger.InfoLevel, logger.FormatText))
	var err error
	env, err = environment.StartShoot(
		suite.NewScheme(extensionsv1alpha1.AddToScheme),
		environment.WithAPIServerFlag("kubelet-preferred-address-types", "ExternalDNS,InternalIP,Hostname,ExternalIP"),
	)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)

	// What gardenlet's credentials for extensions may do in a shoot.
	everything := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
	access = suite.Account(ctx, env, "kube-system", "gardener", everything)
	suite.Grant(ctx, env.Client, "kube-system", "control-plane", everything)
	kubeconfig, err := env.ServiceAccountKubeconfig(GinkgoT().TempDir(), "kube-system", "control-plane")
	Expect(err).NotTo(HaveOccurred())
	runBinary(envControllerManager, "kube-controller-manager", "--kubeconfig="+kubeconfig, "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(suite.FreePort()), "--allocate-node-cidrs", "--cluster-cidr=10.64.0.0/16",
		"--node-cidr-mask-size=26", "--node-monitor-period=1s", "--node-monitor-grace-period=20s", "--node-eviction-rate=100", "--kube-api-qps=500", "--kube-api-burst=1000")
	runBinary(envScheduler, "kube-scheduler", "--kubeconfig="+kubeconfig, "--leader-elect=false",
		"--bind-address=127.0.0.1", "--secure-port="+strconv.Itoa(suite.FreePort()), "--kube-api-qps=500", "--kube-api-burst=1000")

	kubeletPort = suite.FreePort()
	server, err := kubelet.New("127.0.0.1:" + strconv.Itoa(kubeletPort))
	Expect(err).NotTo(HaveOccurred())
	suite.Background("the stand-in for kubelets", server.Start)
})

// runBinary runs a program of Kubernetes until the suite ends.
func runBinary(variable, name string, args ...string) {
	GinkgoHelper()
	binary := os.Getenv(variable)
	Expect(binary).NotTo(BeEmpty(), "%s does not name %s: `make test` builds it", variable, name)
	logs, err := os.Create(filepath.Join(GinkgoT().TempDir(), name+".log"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(logs.Close)

	suite.Background(name, func(ctx context.Context) error {
		// The kernel ends the process with the thread that started it, which must therefore not end before.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		cmd := exec.CommandContext(ctx, binary, args...)
		cmd.Stdout, cmd.Stderr = logs, logs
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		err := cmd.Run()
		if ctx.Err() != nil {
			return nil
		}
		text, readErr := os.ReadFile(logs.Name())
		Expect(readErr).NotTo(HaveOccurred())
		_, writeErr := GinkgoWriter.Write(text)
		Expect(writeErr).NotTo(HaveOccurred())
		return err
	})
}
