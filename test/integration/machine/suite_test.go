// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

// Package machine_test runs the command machine-controller of gardenlet-extension beside a real machine-controller-manager,
// against the real API servers of a seed and a shoot. Both have the Role that gardenlet writes and the ClusterRole of our chart, and
// nothing else in the seed. There is no kubelet: the suite runs pods in name only, and makes the Nodes.
package machine_test

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gardener/gardener/pkg/client/kubernetes"
	gardenermcm "github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager/fake"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-provider-local/gardenlet-extension/app"
	"github.com/gardener/gardener-extension-provider-local/pkg/controller/worker"
	"github.com/gardener/gardener-extension-provider-local/pkg/machine"
	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
	"github.com/gardener/gardener-extension-provider-local/test/integration/suite"
)

const (
	// namespace is that of the shoot in the seed, and its technical ID.
	namespace = "shoot--local--local"
	account   = "machine-controller-manager"
	// instanceNamespace is that of the seed's instance, whose chart has the driver's ClusterRole.
	instanceNamespace = "extension-provider-local"

	// envBinary names the variable with the path of machine-controller-manager.
	envBinary = "TEST_ASSET_MACHINE_CONTROLLER_MANAGER"
	// envCommand makes the program of this suite be gardenlet-extension.
	envCommand = "RUN_GARDENLET_EXTENSION"
)

var (
	env, shootEnv *environment.Environment
	seed, shoot   client.Client
	scheme        *runtime.Scheme
	kubelet       *node
	mcm, driver   *program
)

func TestMain(m *testing.M) {
	if os.Getenv(envCommand) == "" {
		os.Exit(m.Run())
	}
	cmd := app.NewCommand()
	cmd.SetArgs(os.Args[1:])
	if err := cmd.ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func TestMachine(t *testing.T) {
	RegisterFailHandler(Fail)
	SetDefaultEventuallyTimeout(2 * time.Minute)
	SetDefaultEventuallyPollingInterval(50 * time.Millisecond)
	EnforceDefaultTimeoutsWhenUsingContexts()
	RunSpecs(t, "The machine driver beside machine-controller-manager")
}

var _ = BeforeSuite(func(ctx SpecContext) {
	binary := os.Getenv(envBinary)
	Expect(binary).NotTo(BeEmpty(), "%s names machine-controller-manager: `make test` builds it", envBinary)
	scheme = suite.NewScheme(machinev1alpha1.AddToScheme)

	var err error
	env, err = environment.Start(scheme, environment.OffLoopback())
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(env.Stop)
	seed = env.Client
	shootEnv, err = environment.StartShoot(scheme)
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(shootEnv.Stop)
	shoot = shootEnv.Client

	Expect(env.CreateNamespaces(ctx, instanceNamespace, namespace, machine.RemoteNamespace(namespace), "shoot--local--other")).To(Succeed())
	grantRoles(ctx)
	suite.Grant(ctx, shoot, namespace, account, rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}})

	kubelet = newNode()
	suite.Background("kubelet", kubelet.run)

	dir := GinkgoT().TempDir()
	control, err := env.ServiceAccountKubeconfig(dir, namespace, account)
	Expect(err).NotTo(HaveOccurred())
	target, err := shootEnv.ServiceAccountKubeconfig(GinkgoT().TempDir(), namespace, account)
	Expect(err).NotTo(HaveOccurred())
	flags := func(more ...string) []string {
		return append(more, "--control-kubeconfig="+control, "--target-kubeconfig="+target, "--namespace="+namespace,
			fmt.Sprintf("--port=%d", suite.FreePort()), "--kube-api-qps=100", "--kube-api-burst=200", "--v=3")
	}
	mcm = newProgram(binary, nil, flags("--safety-up=2", "--safety-down=1", "--machine-safety-overshooting-period=1m")...)
	mcm.start()
	DeferCleanup(func() { mcm.stop() })

	executable, err := os.Executable()
	Expect(err).NotTo(HaveOccurred())
	driver = newProgram(executable, []string{envCommand + "=true"}, flags("machine-controller", "--"+machine.AllowedCIDRsFlag+"="+address(env.Config.Host)+"/32", "--machine-health-timeout=10s", "--machine-safety-orphan-vms-period=10s")...)
	driver.start()
	DeferCleanup(func() { driver.stop() })
	DeferCleanup(expectNothing)
})

// address returns the IP address in the URL of a server.
func address(server string) string {
	GinkgoHelper()
	parsed, err := url.Parse(server)
	Expect(err).NotTo(HaveOccurred())
	return parsed.Hostname()
}

// grantRoles gives the programs the Role that gardenlet writes, and the driver's from the chart, as a Worker binds it.
func grantRoles(ctx context.Context) {
	GinkgoHelper()
	c := fake.NewClientBuilder().WithScheme(kubernetes.SeedScheme).WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "generic-token-kubeconfig"}},
	).Build()
	Expect(gardenermcm.New(c, namespace, secretsmanager.New(c, namespace), gardenermcm.Values{Image: "mcm", Replicas: 1}).Deploy(ctx)).To(Succeed())
	role := &rbacv1.Role{}
	Expect(c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: account}, role)).To(Succeed())
	role.ResourceVersion = ""
	Expect(seed.Create(ctx, role)).To(Succeed())
	_, err := env.InstallChart(ctx, instanceNamespace, suite.SeedValues())
	Expect(err).NotTo(HaveOccurred())

	for _, ref := range []rbacv1.RoleRef{{Kind: "Role", Name: role.Name}, {Kind: "ClusterRole", Name: worker.DriverRole}} {
		ref.APIGroup = rbacv1.GroupName
		Expect(seed.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: ref.Name},
			RoleRef:    ref,
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: account}},
		})).To(Succeed())
	}
}
