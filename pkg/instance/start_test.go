// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"net/http"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
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
	go func() { ended <- Start(ctx, mgr) }()
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

func TestQueuesForgetNoFailuresOfOthers(t *testing.T) {
	g := NewWithT(t)
	g.Expect(ControllerOptions(configv1alpha1.ControllerConfiguration{ConcurrentSyncs: new(1)}).NewQueue).NotTo(BeNil())
	shared := workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]()
	one, other := newQueue("one", shared), newQueue("other", shared)
	t.Cleanup(one.ShutDown)
	t.Cleanup(other.ShutDown)
	local := reconcile.Request{NamespacedName: types.NamespacedName{Name: "local"}}

	one.AddRateLimited(local)
	one.AddRateLimited(local)
	g.Expect(one.NumRequeues(local)).To(Equal(2))
	g.Expect(other.NumRequeues(local)).To(BeZero(), "another kind of the same name has not failed")
	other.Forget(local)
	g.Expect(one.NumRequeues(local)).To(Equal(2))
}
