// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// TestAnEventOfAnotherKindIsAnError has a server of a user's that sends a Secret for a Pod.
func TestAnEventOfAnotherKindIsAnError(t *testing.T) {
	g := NewWithT(t)
	c := interceptor.NewClient(newClient(run), interceptor.Funcs{Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
		watcher := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 2})
		watcher.Action(watch.Bookmark, &corev1.Pod{})
		watcher.Add(&corev1.Secret{})
		return watcher, nil
	}})
	calls := 0
	_, err := watchOnce(t.Context(), c, client.ObjectKey{Namespace: "a", Name: "b"}, &corev1.PodList{}, func(*corev1.Pod) bool { calls++; return false })
	g.Expect(err).To(MatchError(ContainSubstring("the server sent a *v1.Secret")))
	g.Expect(calls).To(Equal(1), "for what is there before the watch")
}
