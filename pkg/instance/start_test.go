// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"net/http"
	"testing"
	"time"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// unreachable returns a manager whose API server does not answer.
func unreachable(t *testing.T) manager.Manager {
	t.Helper()
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Service"), meta.RESTScopeNamespace)
	mgr, err := manager.New(&rest.Config{Host: "https://127.0.0.1:1"}, manager.Options{
		Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"},
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return mapper, nil },
	})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return mgr
}

func start(t *testing.T, mgr manager.Manager) (stop func(), ended chan error) {
	ctx, stop := context.WithCancel(t.Context())
	ended = make(chan error, 1)
	instance := &Instance{Manager: mgr, drain: newDrain(), drainTimeout: time.Minute}
	go func() { ended <- instance.Run(ctx) }()
	return stop, ended
}

func TestAnInstanceWhoseAPIServerDoesNotAnswerStops(t *testing.T) {
	g := NewWithT(t)
	mgr := unreachable(t)
	_, err := mgr.GetCache().GetInformer(t.Context(), &corev1.Service{}, cache.BlockUntilSynced(false))
	g.Expect(err).NotTo(HaveOccurred())
	stop, ended := start(t, mgr)
	g.Consistently(ended, "500ms").ShouldNot(Receive())
	stop()
	g.Eventually(ended, "10s").Should(Receive(BeNil()))
}

func TestAStopWaitsForWhatHasBegunToWork(t *testing.T) {
	g := NewWithT(t)
	mgr := unreachable(t)
	working, finish := make(chan struct{}), make(chan struct{})
	g.Expect(mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		close(working)
		<-ctx.Done()
		<-finish
		return nil
	}))).To(Succeed())
	stop, ended := start(t, mgr)
	g.Eventually(working, "10s").Should(BeClosed())
	stop()
	g.Consistently(ended, "500ms").ShouldNot(Receive())
	close(finish)
	g.Eventually(ended, "10s").Should(Receive(BeNil()))
}
