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
	"regexp"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

var machines = schema.GroupVersionKind{Group: "machine.sapcloud.io", Version: "v1alpha1", Kind: "Machine"}

// depth orders causes: what has the smaller one makes what has a greater one fail.
type depth int

const (
	ofProcess depth = iota
	ofNode
	ofVolume
	// ofWorkload is a Deployment or StatefulSet without pods.
	ofWorkload
	ofPod
	// ofShootNode is a Node of the Shoot's own cluster, whose Machine says the same later.
	ofShootNode
	ofMachine
	ofExtension
	// inShoot is what the Shoot's own cluster has, of which a ManagedResource reports only that it is not healthy.
	inShoot
	ofManagedResource
	ofTarget
)

// grace is how long something may take before it is a cause.
const grace = 30 * time.Second

// finding is something that is not as it should be.
type finding struct {
	depth depth
	// since is when it began, zero if nobody knows.
	since time.Time
	// kind, namespace and name are those of the object; a process has only a name.
	kind, namespace, name string
	what                  string
	// in is the cluster, whose kubeconfig is named in a command.
	in *explained
	// container has the log that says more, previous that of its former run; none if empty.
	container string
	previous  bool
}

// explained is a cluster in which causes are looked for.
type explained struct {
	client client.Client
	// clientset reads logs; nil without.
	clientset  kubernetes.Interface
	kubeconfig string
}

// explainer looks for causes.
type explainer struct {
	now      func() time.Time
	findings []finding
	// unread is what could not be looked at.
	unread []error
}

func (e *explainer) add(f finding) { e.findings = append(e.findings, f) }

// list returns the objects of a kind, and notes an error.
func (e *explainer) list(ctx context.Context, in *explained, kind schema.GroupVersionKind, options ...client.ListOption) []unstructured.Unstructured {
	items, err := cluster.List(ctx, in.client, kind, options...)
	e.note(err)
	return items
}

// note notes what could not be looked at, if there is an error, and reports whether there is none.
func (e *explainer) note(err error) bool {
	if err != nil {
		e.unread = append(e.unread, err)
	}
	return err == nil
}

// systemNamespace matches the namespaces of Garden and seed, of their extensions and gateways.
var systemNamespace = regexp.MustCompile(`^(garden|kube-system|(runtime-|gardener-)?extension-.+|(virtual-garden-)?istio-.+)$`)

// within are the findings without namespace, and those in system namespaces and in this one. BackupEntries have no namespace, but the name of
// one in theirs.
func (e *explainer) within(namespace string) (found []finding) {
	for _, f := range e.findings {
		owner := strings.TrimPrefix(f.name, "source-")
		owner = owner[:max(0, strings.LastIndex(owner, "--"))]
		if f.kind == "BackupEntry" && strings.HasPrefix(owner, "shoot--") && owner != namespace {
			continue
		}
		if f.namespace == "" || f.namespace == namespace || systemNamespace.MatchString(f.namespace) {
			found = append(found, f)
		}
	}
	return found
}

// Explain prints why a target is not healthy: garden, seed, seed/NAME, shoot/NAME in project local, or shoot/NAMESPACE/NAME; without one,
// everything that is not healthy. It changes nothing. The error says how many targets are not healthy.
func (l Landscape) Explain(ctx context.Context, target string) error {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	e := &explainer{now: l.Now}
	if err := l.brokenProcesses(ctx, e); err != nil {
		return err
	}
	runtime, err := connect(l.Layout.Kubeconfig())
	if err != nil {
		return err
	}
	// Everything depends on these.
	if err := runtime.client.List(ctx, &corev1.NodeList{}); err != nil {
		if len(e.findings) == 0 {
			return fmt.Errorf("asking the runtime cluster: %w", err)
		}
		e.print(ctx, l.Out, "The runtime cluster does not answer: "+err.Error())
		return errors.New("1 target is not healthy")
	}
	e.nodes(ctx, runtime, ofNode)
	e.causes(ctx, runtime, ofPod)
	targets, answers, err := l.targets(ctx, runtime, target)
	if err != nil {
		return err
	}
	unhealthy := 0
	for _, t := range targets {
		verdict, detail := judge(t.object)
		each := &explainer{now: l.Now, findings: e.within(controlPlaneOf(t.object)), unread: slices.Clone(e.unread)}
		if verdict != good {
			each.target(t.object, t.in)
			each.installations(ctx, t.object, t.in)
		}
		l.insideShoot(ctx, each, t.object)
		if verdict == good && len(each.findings) == 0 && len(each.unread) == 0 {
			_, _ = fmt.Fprintf(l.Out, "%s %s is healthy.\n", t.object.GetKind(), nameOf(t.object))
			continue
		}
		headline := fmt.Sprintf("%s %s is not healthy: %s", t.object.GetKind(), nameOf(t.object), detail)
		if verdict == good {
			headline = fmt.Sprintf("%s %s reports no problem yet.", t.object.GetKind(), nameOf(t.object))
		}
		each.print(ctx, l.Out, headline)
		unhealthy++
	}
	if unhealthy > 0 {
		return fmt.Errorf("%d of %d targets are not healthy", unhealthy, len(targets))
	}
	if !answers {
		return errors.New("the virtual garden does not answer: if its credentials have ended, 'landscape kubeconfig virtual-garden' renews them")
	}
	return nil
}

func connect(kubeconfig string) (*explained, error) {
	config, err := cluster.Config(kubeconfig)
	if err != nil {
		return nil, err
	}
	return connectWith(config, kubeconfig, virtualTimeout/2)
}

// connectWith takes a timeout, as a cluster that does not answer must not take the time of all others.
func connectWith(config *rest.Config, kubeconfig string, timeout time.Duration) (*explained, error) {
	config.Timeout = timeout
	c, err := client.New(config, client.Options{})
	if err != nil {
		return nil, fmt.Errorf("connecting with %s: %w", kubeconfig, err)
	}
	clientset, err := kubernetes.NewForConfig(config)
	return &explained{client: c, clientset: clientset, kubeconfig: kubeconfig}, err
}

// explainedTarget is what a user asks about.
type explainedTarget struct {
	object *unstructured.Unstructured
	in     *explained
}

// targets finds the objects. The virtual garden may be the problem itself, and not answer; then the Garden is the target.
func (l Landscape) targets(ctx context.Context, runtime *explained, target string) (found []explainedTarget, answers bool, err error) {
	kind, name, _ := strings.Cut(target, "/")
	if !slices.Contains([]string{"", "garden", "seed", "shoot"}, kind) || (kind == "shoot" && name == "") {
		return nil, false, fmt.Errorf("%q is no target: choose garden, seed, seed/NAME, shoot/NAME or shoot/NAMESPACE/NAME", target)
	}
	list := func(in *explained, kind schema.GroupVersionKind, wanted func(*unstructured.Unstructured) bool) error {
		objects, err := cluster.List(ctx, in.client, kind)
		for i := range objects {
			if o := &objects[i]; wanted(o) {
				found = append(found, explainedTarget{object: o, in: in})
			}
		}
		return err
	}
	all := func(*unstructured.Unstructured) bool { return true }
	if err := list(runtime, gardens, all); err != nil {
		return nil, false, err
	}
	if len(found) == 0 {
		return nil, false, errors.New("there is no Garden yet; continue with " + l.make("up"))
	}
	if kind == "garden" || !exists(l.Layout.VirtualKubeconfig()) {
		return found, true, nil
	}
	garden := found
	virtual, err := connect(l.Layout.VirtualKubeconfig())
	if err == nil {
		found = nil
		switch kind {
		case "":
			found = garden
			err = errors.Join(list(virtual, seeds, all), list(virtual, shoots, all))
		case "seed":
			err = list(virtual, seeds, func(o *unstructured.Unstructured) bool { return name == "" || o.GetName() == name })
		case "shoot":
			if !strings.Contains(name, "/") {
				name = "garden-local/" + name
			}
			err = list(virtual, shoots, func(o *unstructured.Unstructured) bool { return nameOf(o) == name })
		}
	}
	if err != nil {
		_, _ = fmt.Fprintf(l.Out, "The virtual garden does not answer (%v), so the Garden is explained.\n\n", err)
		return garden, false, nil
	}
	if len(found) == 0 {
		return nil, false, fmt.Errorf("there is no %s; list them with: %s --kubeconfig %s get seeds,shoots -A", target, l.Layout.Kubectl(), l.Layout.VirtualKubeconfig())
	}
	return found, true, nil
}

// controlPlaneOf is the namespace of a Shoot's control plane in the runtime cluster, "" if it has none that is awake.
func controlPlaneOf(target *unstructured.Unstructured) string {
	status := cluster.StatusOf(target)
	if verdict, _ := judge(target); status.Hibernated && verdict == good {
		return ""
	}
	return status.TechnicalID
}

// brokenProcesses looks at the processes of a bare landscape.
func (l Landscape) brokenProcesses(ctx context.Context, e *explainer) error {
	if l.Layout.Kind != "" {
		return nil
	}
	s := &section{}
	if err := l.statusProcesses(ctx, s); err != nil {
		return err
	}
	for _, row := range s.rows {
		if row.mark == bad {
			e.add(finding{depth: ofProcess, kind: "process", name: row.Name, what: row.Detail})
		}
	}
	return nil
}

// insideShoot looks into the cluster of a Shoot with machines, or of a Seed that is one.
func (l Landscape) insideShoot(ctx context.Context, e *explainer, target *unstructured.Unstructured) {
	name := nameOf(target)
	switch target.GetKind() {
	case "Shoot":
		if !hasNodes(target) {
			return
		}
	case "Seed":
		if name == layout.SeedName || name == layout.SecondSeedName {
			return
		}
		name = "garden/" + name
	default:
		return
	}
	content, err := l.shootKubeconfig(ctx, name)
	if !e.note(err) {
		return
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	if !e.note(err) {
		return
	}
	in, err := connectWith(config, fmt.Sprintf("<(%s kubeconfig %s)", l.Layout.Binary("landscape"), name), virtualTimeout/4)
	if !e.note(err) {
		return
	}
	inside := &explainer{now: e.now}
	inside.nodes(ctx, in, ofShootNode)
	inside.causes(ctx, in, inShoot)
	e.findings = append(e.findings, inside.within("")...)
	e.unread = append(e.unread, inside.unread...)
}

// target adds what the target itself says, which is the cause if nothing else is found.
func (e *explainer) target(o *unstructured.Unstructured, in *explained) {
	_, detail := judge(o)
	since := cluster.StatusOf(o).LastOperation.LastUpdateTime.Time
	e.add(finding{depth: ofTarget, since: since, kind: o.GetKind(), namespace: o.GetNamespace(), name: o.GetName(), what: detail, in: in})
}

// installations adds the extensions that are not healthy in the Seed that is the target, or has it.
func (e *explainer) installations(ctx context.Context, target *unstructured.Unstructured, in *explained) {
	seed, found, _ := unstructured.NestedString(target.Object, "status", "seedName")
	if !found {
		seed = target.GetName()
	}
	e.objects(ctx, in, controllerInstallations, ofExtension, client.MatchingFields{"spec.seedRef.name": seed})
}

func (e *explainer) nodes(ctx context.Context, in *explained, at depth) {
	list := &corev1.NodeList{}
	e.note(in.client.List(ctx, list))
	for _, n := range list.Items {
		for _, c := range n.Status.Conditions {
			// Others may mean either, as they are not Kubernetes' own.
			pressure := slices.Contains([]corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable}, c.Type)
			if (c.Type == corev1.NodeReady && c.Status != corev1.ConditionTrue) || (pressure && c.Status == corev1.ConditionTrue) {
				e.add(finding{depth: at, since: c.LastTransitionTime.Time, kind: "Node", name: n.Name, in: in, what: fmt.Sprintf("%s is %s: %s", c.Type, c.Status, c.Message)})
			}
		}
	}
}

// causes looks for causes in all namespaces of a cluster. at is the depth of its pods.
func (e *explainer) causes(ctx context.Context, in *explained, at depth) {
	claims, pods := &corev1.PersistentVolumeClaimList{}, &corev1.PodList{}
	if e.note(in.client.List(ctx, claims)) {
		for _, c := range claims.Items {
			if c.Status.Phase == corev1.ClaimPending && e.now().Sub(c.CreationTimestamp.Time) > grace {
				e.add(finding{depth: min(at, ofVolume), since: c.CreationTimestamp.Time, kind: "PersistentVolumeClaim", namespace: c.Namespace, name: c.Name, in: in, what: "has no volume"})
			}
		}
	}
	if e.note(in.client.List(ctx, pods)) {
		for i := range pods.Items {
			e.pod(&pods.Items[i], in, at)
		}
	}
	e.workloads(ctx, in, min(at, ofWorkload))
	if at == inShoot {
		return
	}
	for _, kind := range cluster.ExtensionKinds() {
		e.objects(ctx, in, cluster.ExtensionKind(kind), ofExtension)
	}
	e.objects(ctx, in, etcds, ofExtension)
	// An Extension repeats what its ControllerInstallations say.
	e.objects(ctx, in, operatorExtensions, ofManagedResource)
	e.objects(ctx, in, managedResources, ofManagedResource)
	e.machines(ctx, in)
}

// pod adds what keeps a pod from being ready.
func (e *explainer) pod(pod *corev1.Pod, in *explained, at depth) {
	f := finding{depth: at, kind: "Pod", namespace: pod.Namespace, name: pod.Name, in: in}
	if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded {
		return
	}
	for _, c := range pod.Status.Conditions {
		switch {
		case c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue:
			return
		case c.Type == corev1.PodReady:
			f.since = cmp.Or(f.since, c.LastTransitionTime.Time)
		case c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse:
			f.since, f.what = c.LastTransitionTime.Time, "is not scheduled: "+c.Message
		}
	}
	f.since = cmp.Or(f.since, pod.CreationTimestamp.Time)
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		w, last := c.State.Waiting, c.LastTerminationState.Terminated
		switch {
		case w != nil && !slices.Contains([]string{"", "PodInitializing", "ContainerCreating", "CrashLoopBackOff"}, w.Reason):
			f.what = fmt.Sprintf("container %s: %s: %s", c.Name, w.Reason, w.Message)
		case last != nil && !c.Ready && e.now().Sub(last.FinishedAt.Time) < 10*time.Minute:
			f.what = fmt.Sprintf("container %s has ended %d times, the last time with exit code %d (%s)", c.Name, c.RestartCount, last.ExitCode, strings.TrimSuffix(last.Reason+": "+last.Message, ": "))
			f.container, f.previous = c.Name, true
		case c.State.Running != nil && !c.Ready && f.what == "" && e.now().Sub(c.State.Running.StartedAt.Time) > grace:
			f.what, f.container = fmt.Sprintf("container %s runs, but is not ready", c.Name), c.Name
		}
	}
	if f.what == "" && e.now().Sub(f.since) > 2*grace {
		f.what = cmp.Or(pod.Status.Message, "is "+string(pod.Status.Phase)+", but not ready")
	}
	if f.what != "" {
		e.add(f)
	}
}

// indispensable are Deployments and StatefulSets of a Shoot that is awake. Others may be scaled to zero.
var indispensable = []string{
	"etcd-main", "etcd-events", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "gardener-resource-manager", "machine-controller-manager",
}

// workloads adds Deployments and StatefulSets that have no pods.
func (e *explainer) workloads(ctx context.Context, in *explained, at depth) {
	for _, kind := range []schema.GroupVersionKind{deployments, statefulSets} {
		for _, o := range e.list(ctx, in, kind) {
			f := finding{depth: at, kind: kind.Kind, namespace: o.GetNamespace(), name: o.GetName(), in: in}
			replicas, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
			if found && replicas == 0 && (!strings.HasPrefix(f.namespace, "shoot--") || slices.Contains(indispensable, o.GetName())) {
				f.what = "is scaled to 0 replicas"
				e.add(f)
				continue
			}
			for _, c := range cluster.StatusOf(&o).Conditions {
				if c.Type == string(appsv1.DeploymentReplicaFailure) && c.Status == "True" {
					f.what, f.since = "cannot create pods: "+c.Message, c.LastTransitionTime.Time
					e.add(f)
				}
			}
		}
	}
}

// objects adds objects that report what Gardener's kinds report, and those that do not go.
func (e *explainer) objects(ctx context.Context, in *explained, kind schema.GroupVersionKind, at depth, options ...client.ListOption) {
	items := e.list(ctx, in, kind, options...)
	for i := range items {
		o := &items[i]
		verdict, detail := judge(o)
		since := cluster.StatusOf(o).LastOperation.LastUpdateTime.Time
		f := finding{depth: at, since: since, kind: kind.Kind, namespace: o.GetNamespace(), name: o.GetName(), what: detail, in: in}
		if deleted := o.GetDeletionTimestamp(); deleted != nil {
			if e.now().Sub(deleted.Time) > grace {
				f.since, f.what = deleted.Time, fmt.Sprintf("is being deleted, and has finalizers %s; %s", strings.Join(o.GetFinalizers(), ", "), detail)
				e.add(f)
			}
			continue
		}
		if verdict == bad || (verdict == busy && e.now().Sub(cmp.Or(f.since, o.GetCreationTimestamp().Time)) > 2*time.Minute) {
			e.add(f)
		}
	}
}

// machines adds Machines that do not run.
func (e *explainer) machines(ctx context.Context, in *explained) {
	for _, o := range e.list(ctx, in, machines) {
		phase, _, _ := unstructured.NestedString(o.Object, "status", "currentStatus", "phase")
		description, _, _ := unstructured.NestedString(o.Object, "status", "lastOperation", "description")
		if phase == "Running" || e.now().Sub(o.GetCreationTimestamp().Time) < 2*time.Minute {
			continue
		}
		f := finding{depth: ofMachine, kind: "Machine", namespace: o.GetNamespace(), name: o.GetName(), what: strings.TrimSpace("is " + cmp.Or(phase, "not created") + ": " + description), in: in}
		since, _, _ := unstructured.NestedString(o.Object, "status", "currentStatus", "lastUpdateTime")
		f.since, _ = time.Parse(time.RFC3339, since)
		e.add(f)
	}
}

// first orders the findings: the cause first, and of the same depth what began first.
func (e *explainer) first() []finding {
	return slices.SortedStableFunc(slices.Values(e.findings), func(a, b finding) int {
		if a.depth == b.depth && a.since.IsZero() != b.since.IsZero() {
			// What nobody knows the time of comes last.
			return b.since.Compare(a.since)
		}
		return cmp.Or(cmp.Compare(a.depth, b.depth), a.since.Compare(b.since))
	})
}

// also is how many further findings are printed.
const also = 8

// print writes the headline, the cause with its event, log and command, and further findings.
func (e *explainer) print(ctx context.Context, out io.Writer, headline string) {
	line := func(title, text string) {
		_, _ = fmt.Fprintf(out, "  %-7s %s\n", title, oneLine(text, 3*maxDetail))
	}
	_, _ = fmt.Fprintln(out, headline)
	sorted := e.first()
	if len(sorted) == 0 {
		line("cause", "none found; it may just take longer. Look again in a minute.")
	}
	for i, f := range sorted[:min(len(sorted), 1+also)] {
		described := strings.TrimSpace(fmt.Sprintf("%s %s", f.kind, strings.TrimPrefix(f.namespace+"/"+f.name, "/")))
		if !f.since.IsZero() {
			described += ", for " + e.now().Sub(f.since).Round(time.Second).String()
		}
		if i > 0 {
			line("also", described+": "+f.what)
			continue
		}
		line("cause", described+": "+f.what)
		for _, more := range f.more(ctx) {
			line(more[0], more[1])
		}
		line("look", f.command())
	}
	if len(e.unread) > 0 {
		line("unread", fmt.Sprintf("%d lists, so the cause may be another one: %v", len(e.unread), e.unread[0]))
	}
	_, _ = fmt.Fprintln(out)
}

// seen is when an event was seen last; newer recorders leave LastTimestamp out.
func seen(event *corev1.Event) time.Time {
	if event.Series != nil {
		return event.Series.LastObservedTime.Time
	}
	return cmp.Or(event.LastTimestamp.Time, event.EventTime.Time)
}

// more is the newest warning about the object, and the end of its log.
func (f finding) more(ctx context.Context) (lines [][2]string) {
	if f.in == nil {
		return nil
	}
	events := &corev1.EventList{}
	if f.in.client.List(ctx, events, client.InNamespace(cmp.Or(f.namespace, "default"))) == nil {
		warnings := slices.DeleteFunc(events.Items, func(event corev1.Event) bool {
			return event.InvolvedObject.Name != f.name || event.InvolvedObject.Kind != f.kind || event.Type != corev1.EventTypeWarning
		})
		if len(warnings) > 0 {
			newest := slices.MaxFunc(warnings, func(a, b corev1.Event) int { return seen(&a).Compare(seen(&b)) })
			lines = append(lines, [2]string{"event", newest.Reason + ": " + newest.Message})
		}
	}
	if f.container == "" || f.in.clientset == nil {
		return lines
	}
	content, err := f.in.clientset.CoreV1().Pods(f.namespace).GetLogs(f.name, &corev1.PodLogOptions{Container: f.container, Previous: f.previous, TailLines: ptr.To[int64](3)}).DoRaw(ctx)
	if err == nil {
		for text := range strings.Lines(string(content)) {
			lines = append(lines, [2]string{"log", text})
		}
	} else if !apierrors.IsNotFound(err) && !apierrors.IsBadRequest(err) {
		lines = append(lines, [2]string{"log", "cannot be read: " + err.Error()})
	}
	return lines
}

// command shows more of the object.
func (f finding) command() string {
	if f.in == nil {
		return "landscape logs " + f.name
	}
	verb := "get -o yaml"
	if slices.Contains([]string{"Node", "Pod", "PersistentVolumeClaim", "Deployment", "StatefulSet"}, f.kind) {
		verb = "describe"
	}
	words, resource := []string{"kubectl --kubeconfig", f.in.kubeconfig}, strings.ToLower(f.kind)
	if f.namespace != "" {
		words = append(words, "-n", f.namespace)
	} else if f.kind == operatorExtensions.Kind {
		// There is another kind of this name, which has a namespace.
		resource += "." + operatorExtensions.Group
	}
	return strings.Join(append(words, verb, resource, f.name), " ")
}
