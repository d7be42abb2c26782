// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package instance

import (
	"context"
	"errors"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// at is an API server at a resource version.
func at(version string, err error) toolscache.ListerWithContext {
	return &toolscache.ListWatch{ListWithContextFunc: func(_ context.Context, options metav1.ListOptions) (runtime.Object, error) {
		if options.ResourceVersion != "" || options.Limit != 1 {
			return nil, errors.New("it must be asked for its newest state, and for little of it")
		}
		return &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: version}}, err
	}}
}

func TestAnInstanceEndsWhenTheAPIServerHasAnOlderState(t *testing.T) {
	for name, test := range map[string]struct {
		current string
		err     error
		options metav1.ListOptions
		ends    bool
	}{
		"an older one":       {current: "99", options: metav1.ListOptions{ResourceVersion: "100"}, ends: true},
		"the same":           {current: "100", options: metav1.ListOptions{ResourceVersion: "100"}},
		"a newer one":        {current: "1000", options: metav1.ListOptions{ResourceVersion: "999"}},
		"one to list anew":   {current: "99", options: metav1.ListOptions{ResourceVersion: "100", SendInitialEvents: new(true)}, ends: true},
		"the first":          {current: "99", options: metav1.ListOptions{SendInitialEvents: new(true)}},
		"any":                {current: "99", options: metav1.ListOptions{ResourceVersion: "0"}},
		"none that is known": {current: "99", err: errors.New("it is away"), options: metav1.ListOptions{ResourceVersion: "100"}},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := NewWatches(0)
			// Many informers find out.
			for range 2 {
				g.Expect(w.isRestored(t.Context(), at(test.current, test.err), test.options)).To(Equal(test.ends))
			}
			ctx, cancel := context.WithCancel(t.Context())
			if !test.ends {
				cancel()
				g.Expect(w.Start(ctx)).To(Succeed())
				return
			}
			defer cancel()
			g.Expect(w.Start(ctx)).To(MatchError(errRestored))
		})
	}
}

func TestAnInformerListsAnewWhenTheAPIServerHasAnOlderState(t *testing.T) {
	g := NewWithT(t)
	w, lists, watches := NewWatches(0), 0, make(chan struct{}, 10)
	informer := w.NewInformer(&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			lists++
			if lists == 1 {
				return &corev1.SecretList{ListMeta: metav1.ListMeta{ResourceVersion: "100"}}, nil
			}
			return &corev1.SecretList{
				ListMeta: metav1.ListMeta{ResourceVersion: "10"},
				Items:    []corev1.Secret{{ObjectMeta: metav1.ObjectMeta{Name: "restored", ResourceVersion: "9"}}},
			}, nil
		},
		WatchFuncWithContext: func(_ context.Context, options metav1.ListOptions) (watch.Interface, error) {
			if options.SendInitialEvents != nil {
				return nil, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
			}
			g.Expect(options.ResourceVersion).To(Equal("10"), "nothing is watched that is not there yet")
			watches <- struct{}{}
			return watch.NewFake(), nil
		},
	}, &corev1.Secret{}, 0, nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		informer.RunWithContext(ctx)
	}()
	g.Eventually(watches, "20s").Should(Receive())
	g.Eventually(informer.GetStore().ListKeys, "20s").Should(ConsistOf("restored"))
	g.Expect(w.Start(ctx)).To(MatchError(errRestored))
	cancel()
	g.Eventually(ended).Should(BeClosed())
}

func TestAWatchEndsInTime(t *testing.T) {
	g := NewWithT(t)
	const timeout = time.Minute
	hanging := watch.NewFake()
	var ofWatch context.Context
	started, err := NewWatches(timeout).watch(t.Context(), &toolscache.ListWatch{WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
		ofWatch = ctx
		g.Expect(options.TimeoutSeconds).To(HaveValue(And(BeNumerically(">=", timeout.Seconds()), BeNumerically("<=", 2*timeout.Seconds()))), "the server is told")
		return hanging, nil
	}}, metav1.ListOptions{ResourceVersion: "1"})
	g.Expect(err).NotTo(HaveOccurred())
	deadline, ok := ofWatch.Deadline()
	g.Expect(ok).To(BeTrue())
	g.Expect(deadline).To(BeTemporally("<=", time.Now().Add(2*timeout+watchGrace)))
	g.Expect(deadline).To(BeTemporally(">", time.Now().Add(timeout)))

	started.Stop()
	g.Expect(ofWatch.Err()).To(HaveOccurred(), "nothing is left of it")
}
