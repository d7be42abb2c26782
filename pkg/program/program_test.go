// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func TestWhatReconcilesNeedRunsUntilTheyHaveEnded(t *testing.T) {
	g := NewWithT(t)
	mgr, err := manager.New(&rest.Config{Host: "https://127.0.0.1:1"}, manager.Options{Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}})
	g.Expect(err).NotTo(HaveOccurred())
	needed, cutOff := make(chan struct{}), make(chan struct{})
	g.Expect(mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		close(needed)
		<-ctx.Done()
		close(cutOff)
		return nil
	}))).To(Succeed())
	ctx, stop := context.WithCancel(t.Context())
	p, ended := &Program{Manager: mgr}, make(chan error, 1)
	go func() { ended <- p.run(ctx) }()
	g.Eventually(needed, "10s").Should(BeClosed(), "the manager has started")

	p.working.RLock()
	stop()
	g.Consistently(cutOff, "300ms").ShouldNot(BeClosed(), "a reconcile is under way")
	p.working.RUnlock()
	g.Eventually(cutOff, "10s").Should(BeClosed())
	g.Eventually(ended, "10s").Should(Receive(BeNil()))
}
