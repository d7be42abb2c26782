// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package suite

import (
	"cmp"
	"context"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/integration/environment"
)

// stopTimeout is more than the half a minute that a manager gives to its parts to end.
const stopTimeout = time.Minute

// Running is a function that runs beside the specs until it is told to end.
type Running struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
}

// Run runs a function until Stop. If it returns an error, then or earlier, the spec that runs at that time fails. The
// name is for messages.
func Run(name string, run func(context.Context) error) *Running {
	ctx, cancel := context.WithCancel(context.Background())
	r := &Running{name: name, cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(r.done)
		defer GinkgoRecover()
		Expect(run(ctx)).To(Succeed(), "%s ends without an error", name)
	}()
	return r
}

// Background is Run until the end of the spec, or of the suite if that is being set up.
func Background(name string, run func(context.Context) error) *Running {
	GinkgoHelper()
	r := Run(name, run)
	DeferCleanup(r.Stop)
	return r
}

// Stop ends the function as a signal would and waits until it has returned. Afterwards it does nothing.
func (r *Running) Stop() {
	GinkgoHelper()
	r.cancel()
	Eventually(r.done).WithTimeout(stopTimeout).Should(BeClosed(), "%s ends when it is told to", r.name)
}

// Done is closed when the function has returned.
func (r *Running) Done() <-chan struct{} {
	return r.done
}

// DeployedCorefile waits until an instance has deployed CoreDNS into a namespace and returns its Corefile.
func DeployedCorefile(ctx context.Context, c client.Client, namespace string) string {
	GinkgoHelper()
	var corefile string
	Eventually(func(g Gomega) {
		list := &corev1.ConfigMapList{}
		g.Expect(c.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		for _, configMap := range list.Items {
			corefile = cmp.Or(configMap.Data["Corefile"], corefile)
		}
		g.Expect(corefile).NotTo(BeEmpty())
	}).Should(Succeed(), "an instance deploys CoreDNS by a ManagedResource")
	return corefile
}

// StartCoreDNS starts our CoreDNS on a port as the ServiceAccount coredns of a namespace, whose ConfigMaps it serves, and
// waits until answers has no error. The caller kills it, and may do so after the spec that has started it.
func StartCoreDNS(env *environment.Environment, namespace, corefile string, port int, answers func(*environment.CoreDNS) error) *environment.CoreDNS {
	GinkgoHelper()
	dir, err := env.TempDir()
	Expect(err).NotTo(HaveOccurred())
	kubeconfig, err := env.ServiceAccountKubeconfig(dir, namespace, "coredns")
	Expect(err).NotTo(HaveOccurred())
	logs, err := os.Create(filepath.Join(dir, "log"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(logs.Close)
	server, err := environment.StartCoreDNS(corefile, kubeconfig, namespace, dir, port, logs)
	Expect(err).NotTo(HaveOccurred())
	Eventually(func() error {
		select {
		case <-server.Done():
			log, err := os.ReadFile(logs.Name())
			return StopTrying("CoreDNS has ended: " + string(log)).Wrap(err)
		default:
			return answers(server)
		}
	}).Should(Succeed(), "CoreDNS answers")
	return server
}
