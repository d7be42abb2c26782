// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

// patience is how long the milestones of a step together may take on a slow machine.
const patience = 15 * time.Minute

// place is a cluster in which milestones are looked for.
type place string

const (
	// runtimeCluster is the one that `up` makes.
	runtimeCluster place = ""
	// virtualGarden is the one that gardener-operator makes in it.
	virtualGarden place = "virtual garden"
)

// milestone is a state of some objects of one kind that the landscape has to reach. A new one is a literal in the step that
// has to wait for it: its objects are watched, it is reported when it is reached, and its time goes into the summary of `up`.
type milestone struct {
	// title is what the summary calls it; no two milestones have the same.
	title string
	// on is where the objects are.
	on   place
	kind schema.GroupVersionKind
	// options select the objects.
	options []client.ListOption
	// reached looks at all of them and says how far they are.
	reached func(objects []unstructured.Unstructured) (bool, string)
	// goal is when it should be reached, counted from the beginning of `up`; 0: whenever.
	goal time.Duration
	// then is called when it is reached; what takes long there must not hold the caller.
	then func(ctx context.Context)
}

// available reports whether there is a Deployment whose name has the fragment, and whether all of these are available.
func available(objects []unstructured.Unstructured, fragment string) (bool, string) {
	found := 0
	for _, object := range objects {
		if !strings.Contains(object.GetName(), fragment) || strings.HasSuffix(object.GetName(), "coredns") {
			continue
		}
		found++
		want, exists, _ := unstructured.NestedInt64(object.Object, "spec", "replicas")
		if !exists {
			want = 1
		}
		have, _, _ := unstructured.NestedInt64(object.Object, "status", "availableReplicas")
		if have < want {
			return false, fmt.Sprintf("Deployment %s/%s has %d of %d replicas", object.GetNamespace(), object.GetName(), have, want)
		}
	}
	return found > 0, fmt.Sprintf("%d Deployments whose name has %s", found, fragment)
}

// succeeded wants at least that many objects of class garden, and all of them Succeeded.
func succeeded(atLeast int) func([]unstructured.Unstructured) (bool, string) {
	return func(objects []unstructured.Unstructured) (bool, string) {
		count := 0
		for i := range objects {
			o := cluster.Summarize(&objects[i])
			if o.Class != "garden" {
				continue
			}
			if !o.Succeeded() {
				return false, strings.TrimSpace(fmt.Sprintf("%s %s is %s %s", o.Kind, o.Name, o.State, o.Error))
			}
			count++
		}
		return count >= atLeast, fmt.Sprintf("%d of at least %d", count, atLeast)
	}
}

// client connects with a cluster of the landscape.
func (l Landscape) client(on place) (client.WithWatch, error) {
	if on == virtualGarden {
		return cluster.Client(l.Layout.VirtualKubeconfig())
	}
	return cluster.Client(l.Layout.Kubeconfig())
}

// wait waits for all milestones at once and reports each as it is reached.
func (l Landscape) wait(ctx context.Context, progress step.Progress, all []milestone) (string, error) {
	clients := map[place]client.WithWatch{}
	for _, m := range all {
		if clients[m.on] != nil {
			continue
		}
		c, err := l.client(m.on)
		if err != nil {
			return "", err
		}
		clients[m.on] = c
	}
	return l.waitWith(ctx, progress, clients, all)
}

func (l Landscape) waitWith(ctx context.Context, progress step.Progress, clients map[place]client.WithWatch, all []milestone) (string, error) {
	// What a milestone begins may go on when all are reached.
	parent := ctx
	ctx, cancel := context.WithTimeout(parent, patience)
	defer cancel()
	type outcome struct {
		milestone
		last string
		err  error
	}
	pending := newBoard()
	outcomes := make(chan outcome)
	for _, m := range all {
		go func() {
			last, err := m.wait(ctx, clients[m.on], func(state string) { pending.set(m.title, state) })
			outcomes <- outcome{m, last, err}
		}()
	}
	stop := l.heartbeat(ctx, func(time.Duration) {
		for _, line := range pending.lines() {
			progress("waiting: %s", line)
		}
	})
	defer stop()
	var errs []error
	for range all {
		o := <-outcomes
		pending.remove(o.title)
		if o.err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", o.title, o.last, o.err))
			continue
		}
		l.times.reach(o.title, o.goal)
		if o.then != nil {
			o.then(parent)
		}
		progress("%s (%s)", o.title, o.last)
	}
	return fmt.Sprintf("%d milestones", len(all)), errors.Join(errs...)
}

// board has what the milestones that are not reached yet wait for.
type board struct {
	mu     sync.Mutex
	states map[string]string
}

func newBoard() *board { return &board{states: map[string]string{}} }

func (b *board) set(title, state string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.states[title] = state
}

func (b *board) remove(title string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.states, title)
}

func (b *board) lines() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var lines []string
	for title, state := range b.states {
		lines = append(lines, title+": "+state)
	}
	slices.Sort(lines)
	return lines
}

// wait calls report with what is seen, and returns what was seen last. The kind may not be there yet: gardener-operator
// brings most of them.
func (m milestone) wait(ctx context.Context, c client.WithWatch, report func(string)) (string, error) {
	last := "nothing seen yet"
	see := func(objects []unstructured.Unstructured) bool {
		var done bool
		done, last = m.reached(objects)
		report(last)
		return done
	}
	err := wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(m.kind.GroupVersion().WithKind(m.kind.Kind + "List"))
		if err := c.List(ctx, list, m.options...); err != nil {
			last = err.Error()
			if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
				last = "the API server doesn't know the kind yet"
			}
			report(last)
			return false, nil
		}
		if see(list.Items) {
			return true, nil
		}
		// From here on it is watched; a watch that ends is begun anew by the next round.
		return m.follow(ctx, c, list, see), nil
	})
	return last, err
}

func (m milestone) follow(ctx context.Context, c client.WithWatch, list *unstructured.UnstructuredList, see func([]unstructured.Unstructured) bool) bool {
	items := list.Items
	events, err := c.Watch(ctx, list, append(slices.Clone(m.options), &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: list.GetResourceVersion()},
	})...)
	if err != nil {
		return false
	}
	defer events.Stop()
	for {
		var event watch.Event
		select {
		case <-ctx.Done():
			return false
		case event = <-events.ResultChan():
		}
		// A watch that has ended yields events without an object.
		object, isObject := event.Object.(*unstructured.Unstructured)
		if !isObject || event.Type == watch.Error || event.Type == watch.Bookmark {
			return false
		}
		items = slices.DeleteFunc(items, func(u unstructured.Unstructured) bool { return u.GetUID() == object.GetUID() })
		if event.Type != watch.Deleted {
			items = append(items, *object)
		}
		if see(items) {
			return true
		}
	}
}
