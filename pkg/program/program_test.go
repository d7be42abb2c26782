// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package program

import (
	"context"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// start runs a program of one runnable, which what reconciles need stands for. cutOff is closed when the manager ends it.
func start(t *testing.T, timeout time.Duration) (p *Program, stop func(), cutOff chan struct{}, ended chan error) {
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
	p, ended = &Program{Manager: mgr}, make(chan error, 1)
	go func() { ended <- p.run(ctx, timeout) }()
	g.Eventually(needed, "10s").Should(BeClosed(), "the manager has started")
	return p, stop, cutOff, ended
}

func TestWhatReconcilesNeedRunsUntilTheyHaveEnded(t *testing.T) {
	g := NewWithT(t)
	p, stop, cutOff, ended := start(t, time.Minute)
	p.working.RLock()
	stop()
	g.Consistently(cutOff, "300ms").ShouldNot(BeClosed(), "a reconcile is under way")
	g.Expect(p.working.TryRLock()).To(BeFalse(), "no other begins")
	p.working.RUnlock()
	g.Eventually(cutOff, "10s").Should(BeClosed())
	g.Eventually(ended, "10s").Should(Receive(BeNil()))
}

func TestAStopGivesUpOnAReconcileThatDoesNotEnd(t *testing.T) {
	g := NewWithT(t)
	p, stop, _, ended := start(t, 50*time.Millisecond)
	p.working.RLock()
	defer p.working.RUnlock()
	stop()
	g.Eventually(ended, "10s").Should(Receive(BeNil()))
}
