// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/usage"
)

// patience is how long the milestones of a step together may take on a slow machine, and kindPatience where images of others come
// from their registries.
const (
	patience     = 30 * time.Minute
	kindPatience = 45 * time.Minute
)

// place is a cluster in which milestones are looked for.
type place string

const (
	// runtimeCluster is the one that `up` makes.
	runtimeCluster place = ""
	// virtualGarden is the one that gardener-operator makes in it.
	virtualGarden place = "virtual garden"
	// secondCluster is the second kind cluster.
	secondCluster place = "second cluster"
)

// milestone is a state of some objects of one kind that the landscape has to reach. A new one is a literal in the step that
// has to wait for it: its objects are watched, it is reported when it is reached, and its time goes into the summary of `up`.
type milestone struct {
	// title is what the summary calls it; no two milestones have the same.
	title string
	// on is where the objects are, unless there is a client.
	on     place
	client client.WithWatch
	kind   schema.GroupVersionKind
	// options select the objects.
	options []client.ListOption
	// reached looks at all of them and says how far they are.
	reached func(objects []unstructured.Unstructured) (bool, string)
	// phase is whether it ends a phase, whose CPU time is measured.
	phase bool
	// then is called when it is reached; what takes long there must not hold the caller.
	then func(ctx context.Context)
}

// runs wants Deployments of all these images, references by digest, and no Pod of another version of them. Those of Shoots
// don't count: each follows when its Shoot is reconciled.
func runs(references ...string) func([]unstructured.Unstructured) (bool, string) {
	return func(objects []unstructured.Unstructured) (bool, string) {
		found := map[string]bool{}
		for _, object := range objects {
			deployment := as[appsv1.Deployment](object)
			if strings.HasPrefix(deployment.Namespace, "shoot--") {
				continue
			}
			for _, container := range deployment.Spec.Template.Spec.Containers {
				for _, reference := range references {
					if repositoryOf(container.Image) != repositoryOf(reference) {
						continue
					}
					if container.Image != reference {
						return false, fmt.Sprintf("Deployment %s has %s", nameOf(deployment), container.Image)
					}
					if done, state := isRolledOut(deployment); !done {
						return false, state
					}
					found[reference] = true
				}
			}
		}
		for _, reference := range references {
			if !found[reference] {
				return false, "no Deployment has " + reference
			}
		}
		return true, fmt.Sprintf("%d images", len(found))
	}
}

// as converts what an API server has answered.
func as[T any](object unstructured.Unstructured) *T {
	converted := new(T)
	_ = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, converted)
	return converted
}

// isRolledOut wants all pods of a Deployment new and available.
func isRolledOut(deployment *appsv1.Deployment) (bool, string) {
	status, want := deployment.Status, ptr.Deref(deployment.Spec.Replicas, 1)
	done := status.ObservedGeneration >= deployment.Generation && status.UpdatedReplicas == want && status.Replicas == want && status.AvailableReplicas == want
	return done, fmt.Sprintf("Deployment %s has %d of %d new replicas available, and %d in all",
		nameOf(deployment), min(status.UpdatedReplicas, status.AvailableReplicas), want, status.Replicas)
}

// repositoryOf returns a reference's part before tag and digest.
func repositoryOf(reference string) string {
	repository, _, _ := strings.Cut(reference, "@")
	if colon := strings.LastIndex(repository, ":"); colon > strings.LastIndex(repository, "/") {
		repository = repository[:colon]
	}
	return repository
}

// succeeded wants at least that many objects of class garden, and all of them Succeeded.
func succeeded(atLeast int) func([]unstructured.Unstructured) (bool, string) {
	return func(objects []unstructured.Unstructured) (bool, string) {
		count := 0
		for i := range objects {
			o := &objects[i]
			if cluster.ClassOf(o) != "garden" {
				continue
			}
			if verdict, detail := judge(o); verdict != good {
				return false, fmt.Sprintf("%s %s: %s", o.GetKind(), o.GetName(), detail)
			}
			count++
		}
		return count >= atLeast, fmt.Sprintf("%d of at least %d", count, atLeast)
	}
}

// kubeconfig is the admin's kubeconfig of a cluster of the landscape.
func (l Landscape) kubeconfig(on place) string {
	switch on {
	case virtualGarden:
		return l.Layout.VirtualKubeconfig()
	case secondCluster:
		return l.Layout.Second("kubeconfig")
	}
	return l.Layout.Kubeconfig()
}

// client connects with a cluster of the landscape.
func (l Landscape) client(on place) (client.WithWatch, error) {
	return cluster.Client(l.kubeconfig(on))
}

// wait waits for all milestones at once and reports each as it is reached.
func (l Landscape) wait(ctx context.Context, progress step.Progress, all []milestone) (string, error) {
	clients := map[place]client.WithWatch{}
	for _, m := range all {
		if m.client != nil || clients[m.on] != nil {
			continue
		}
		c, err := l.client(m.on)
		if err != nil {
			return "", err
		}
		clients[m.on] = c
	}
	// What a milestone begins may go on when all are reached.
	parent := ctx
	limit := patience
	if l.Layout.Kind != "" {
		limit = kindPatience
	}
	ctx, cancel := context.WithTimeout(parent, limit)
	defer cancel()
	type outcome struct {
		milestone
		last string
		err  error
	}
	// pending has by the titles of the milestones that are not reached yet how far they are.
	var pending sync.Map
	outcomes := make(chan outcome)
	for _, m := range all {
		go func() {
			last, err := m.wait(ctx, cmp.Or(m.client, clients[m.on]), func(state string) { pending.Store(m.title, state) })
			outcomes <- outcome{m, last, err}
		}()
	}
	stop := l.heartbeat(ctx, func(time.Duration) {
		for _, m := range all {
			if state, found := pending.Load(m.title); found {
				progress("waiting: %s: %s", m.title, state)
			}
		}
	})
	defer stop()
	var errs []error
	for range all {
		o := <-outcomes
		pending.Delete(o.title)
		if o.err != nil {
			errs = append(errs, fmt.Errorf("%s: %s: %w", o.title, o.last, o.err))
			continue
		}
		l.times.reach(o.title)
		if l.reached != nil && o.phase {
			l.reached(o.title)
		}
		if o.then != nil {
			o.then(parent)
		}
		progress("%s (%s)", o.title, o.last)
	}
	return fmt.Sprintf("%d milestones", len(all)), errors.Join(errs...)
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

// Milestones that end no phase, and whose times Measure wants.
const (
	imagesReady = "Programs and images ready"
	nodeReady   = "Node Ready"
)

// reachedMilestone is a milestone and when it was reached. Times are in seconds since the `up` began that reached it.
type reachedMilestone struct {
	Title   string  `json:"title"`
	Seconds float64 `json:"seconds"`
}

// times keeps when what was reached, in a file that lives as long as the landscape: a milestone has the time of the `up` that
// brought it, and running `up` again doesn't make it look faster. A nil one keeps nothing.
type times struct {
	path string
	now  func() time.Time

	mu      sync.Mutex
	started time.Time
	content timesFile
	err     error
}

// timesFile is the content of milestones.json.
type timesFile struct {
	Milestones []reachedMilestone `json:"milestones"`
	// Steps are the ends of the steps, by name.
	Steps map[string]float64 `json:"steps"`
}

// begin starts the clock.
func (t *times) begin() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started = t.now()
	if err := layout.ReadJSON(t.path, &t.content); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if t.content.Steps == nil {
		t.content.Steps = map[string]float64{}
	}
	t.save()
	return t.err
}

func readTimes(path string) (file timesFile, err error) {
	err = layout.ReadJSON(path, &file)
	return file, err
}

// reach notes that a milestone is reached now.
func (t *times) reach(title string) {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if slices.ContainsFunc(t.content.Milestones, func(m reachedMilestone) bool { return m.Title == title }) {
		return
	}
	t.content.Milestones = append(t.content.Milestones, reachedMilestone{Title: title, Seconds: t.seconds()})
	t.save()
}

// seconds is the time since begin, to a tenth: more is noise.
func (t *times) seconds() float64 {
	return t.now().Sub(t.started).Round(100 * time.Millisecond).Seconds()
}

// end notes that a step has ended.
func (t *times) end(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.content.Steps[name]; !known {
		t.content.Steps[name] = t.seconds()
		t.save()
	}
}

// save is called with the lock held. A failure doesn't stop `up`; finish returns it.
func (t *times) save() {
	if err := layout.WriteJSON(t.path, t.content, 0o644); err != nil && t.err == nil {
		t.err = fmt.Errorf("writing the milestones: %w", err)
	}
}

// finish prints all milestones, and the memory unless it is unknown (0).
func (t *times) finish(out io.Writer, memory uint64) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	table := tabwriter.NewWriter(out, 0, 4, 2, ' ', 0)
	_, _ = fmt.Fprint(table, "\nMILESTONE\t SECONDS\n")
	for _, m := range t.content.Milestones {
		_, _ = fmt.Fprintf(table, "%s\t%8.1f\n", m.Title, m.Seconds)
	}
	if memory > 0 {
		_, _ = fmt.Fprintf(table, "memory in use\t%5.1f GB\n", float64(memory)/1e9)
	}
	return errors.Join(table.Flush(), t.err)
}

// summary ends an `up`, also one that failed.
func (l Landscape) summary() error {
	if l.Layout.Kind != "" {
		// Its processes are in containers, which are none of ours.
		return l.times.finish(l.Out, 0)
	}
	processes, err := usage.Read(usage.Root, l.Layout.State())
	if err != nil {
		return err
	}
	return l.times.finish(l.Out, usage.Memory(processes))
}
