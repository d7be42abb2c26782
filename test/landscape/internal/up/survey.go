// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
)

var (
	daemonSets              = schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}
	operatorExtensions      = schema.GroupVersionKind{Group: "operator.gardener.cloud", Version: "v1alpha1", Kind: "Extension"}
	etcds                   = schema.GroupVersionKind{Group: "druid.gardener.cloud", Version: "v1alpha1", Kind: "Etcd"}
	managedResources        = schema.GroupVersionKind{Group: "resources.gardener.cloud", Version: "v1alpha1", Kind: "ManagedResource"}
	gardenlets              = schema.GroupVersionKind{Group: "seedmanagement.gardener.cloud", Version: "v1alpha1", Kind: "Gardenlet"}
	controllerInstallations = schema.GroupVersionKind{Group: "core.gardener.cloud", Version: "v1beta1", Kind: "ControllerInstallation"}
)

// survey looks at the clusters of a landscape and fills a report.
type survey struct {
	report *report
	// table is empty where nothing is stubbed.
	table   images.Table
	runtime client.Reader
	// virtual is nil until there is a virtual garden.
	virtual client.Reader
	active  activity
}

func nameOf(o client.Object) string { return strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/") }

// objectOf is an object of which no more is known.
func objectOf(kind schema.GroupVersionKind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// show adds a row for each object of the kinds, with what is found out about it after it was judged, and one if there are none.
func show(ctx context.Context, s *section, c client.Reader, none string, kinds []schema.GroupVersionKind,
	find func(o *unstructured.Unstructured, kind schema.GroupVersionKind, verdict mark, detail string) (mark, string),
) error {
	for _, kind := range kinds {
		objects, err := cluster.List(ctx, c, kind)
		if err != nil {
			return err
		}
		for i := range objects {
			verdict, detail := judge(&objects[i])
			verdict, detail = find(&objects[i], kind, verdict, detail)
			s.add(verdict, kind.Kind, nameOf(&objects[i]), detail)
		}
	}
	if len(s.rows) == 0 {
		s.add(note, "", "", none)
	}
	return nil
}

// garden shows what makes up the Garden, and notes whether it is on its way.
func (s *survey) garden(ctx context.Context) error {
	return show(ctx, s.report.section("GARDEN"), s.runtime, "is not deployed yet", []schema.GroupVersionKind{gardens, operatorExtensions},
		func(_ *unstructured.Unstructured, kind schema.GroupVersionKind, verdict mark, detail string) (mark, string) {
			if kind == gardens {
				s.active.landscape = s.active.landscape || verdict == busy
			} else if verdict == bad {
				verdict = s.active.mark("", "")
			}
			return verdict, detail
		})
}

// virtualGarden shows what Gardener's API server has, and notes which Seeds and Shoots are on their way.
func (s *survey) virtualGarden(ctx context.Context) error {
	section := s.report.section("VIRTUAL GARDEN")
	if s.virtual == nil {
		section.add(note, "", "", "is not brought up yet")
		return nil
	}
	s.active.shoots = map[string]bool{}
	activeSeeds := map[string]bool{}
	err := show(ctx, section, s.virtual, "has no Seeds and Shoots yet", []schema.GroupVersionKind{seeds, gardenlets, shoots, controllerInstallations},
		func(o *unstructured.Unstructured, kind schema.GroupVersionKind, verdict mark, detail string) (mark, string) {
			switch kind {
			case seeds:
				activeSeeds[o.GetName()] = verdict == busy
				s.active.landscape = s.active.landscape || verdict == busy
			case shoots:
				status := cluster.StatusOf(o)
				s.active.shoots[status.TechnicalID] = verdict == busy || status.Hibernated
			case controllerInstallations:
				seed, _, _ := unstructured.NestedString(o.Object, "spec", "seedRef", "name")
				extension, _, _ := unstructured.NestedString(o.Object, "spec", "registrationRef", "name")
				if verdict == bad && activeSeeds[seed] {
					verdict = busy
				}
				detail = extension + " for " + seed + ": " + detail
			}
			return verdict, detail
		})
	delete(s.active.shoots, "")
	return err
}

// extensions shows the extension objects by class.
func (s *survey) extensions(ctx context.Context) error {
	byClass := map[string][]*unstructured.Unstructured{}
	for _, kind := range cluster.ExtensionKinds() {
		objects, err := cluster.List(ctx, s.runtime, cluster.ExtensionKind(kind))
		if err != nil {
			return err
		}
		for i := range objects {
			class := cluster.ClassOf(&objects[i])
			byClass[class] = append(byClass[class], &objects[i])
		}
	}
	for _, class := range slices.Sorted(maps.Keys(byClass)) {
		section := s.report.section("EXTENSION OBJECTS OF CLASS " + class)
		for _, o := range byClass[class] {
			verdict, detail := s.active.judge(o)
			kind, _, _ := unstructured.NestedString(o.Object, "spec", "type")
			section.add(verdict, o.GetKind(), nameOf(o), kind+" "+detail)
		}
	}
	return nil
}

// workloads shows the node, and counts what runs; only what isn't as it should be has a row of its own.
func (s *survey) workloads(ctx context.Context) error {
	section := s.report.section("RUNTIME CLUSTER")
	nodes, err := cluster.List(ctx, s.runtime, corev1.SchemeGroupVersion.WithKind("Node"))
	if err != nil {
		return err
	}
	for _, n := range nodes {
		verdict, detail := bad, "not Ready"
		if ready, _ := nodesReady([]unstructured.Unstructured{n}); ready {
			verdict, detail = good, "Ready"
		}
		section.add(verdict, "Node", n.GetName(), detail)
	}
	counted := []struct {
		kind   schema.GroupVersionKind
		plural string
		judge  func(*unstructured.Unstructured) (mark, string)
	}{
		{deployments, "available", enough},
		{statefulSets, "available", enough},
		{daemonSets, "available", enough},
		{etcds, "ready", judge},
		{managedResources, "healthy", judge},
	}
	for _, c := range counted {
		objects, err := cluster.List(ctx, s.runtime, c.kind)
		if err != nil {
			return err
		}
		fine := 0
		for i := range objects {
			o := &objects[i]
			verdict, detail := c.judge(o)
			if verdict == good {
				fine++
				continue
			}
			if verdict == bad {
				verdict = s.active.mark(o.GetNamespace(), o.GetName())
			}
			section.add(verdict, c.kind.Kind, nameOf(o), detail)
		}
		if len(objects) > 0 {
			section.add(note, c.kind.Kind, fmt.Sprintf("%d of %d", fine, len(objects)), c.plural)
		}
	}
	return nil
}

// enough judges a Deployment, StatefulSet or DaemonSet by the number of its pods.
func enough(o *unstructured.Unstructured) (mark, string) {
	want, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
	if !found {
		want = 1
	}
	have, _, _ := unstructured.NestedInt64(o.Object, "status", "availableReplicas")
	if o.GetKind() == daemonSets.Kind {
		want, _, _ = unstructured.NestedInt64(o.Object, "status", "desiredNumberScheduled")
		have, _, _ = unstructured.NestedInt64(o.Object, "status", "numberAvailable")
	}
	if have < want {
		return bad, fmt.Sprintf("%d of %d available", have, want)
	}
	return good, ""
}

// pods shows which containers are what they say to be and which are stood in for, names those that don't start, and returns
// the pods' names by UID.
func (s *survey) pods(ctx context.Context) (map[string]string, error) {
	pods := &corev1.PodList{}
	if err := s.runtime.List(ctx, pods); err != nil {
		return nil, fmt.Errorf("listing the pods: %w", err)
	}
	section := s.report.section("CONTAINERS")
	names, found := map[string]string{}, map[images.Kind][]string{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		names[string(pod.UID)] = nameOf(pod)
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			kind, name := s.image(c.Image)
			found[kind] = append(found[kind], name)
		}
		if why := stuck(pod); why != "" {
			section.add(s.active.mark(pod.Namespace, ""), "Pod", nameOf(pod), why)
		}
	}
	for _, kind := range []images.Kind{images.KindReal, images.KindFunctional, images.KindStandIn} {
		if different := slices.Compact(slices.Sorted(slices.Values(found[kind]))); len(different) > 0 {
			count := fmt.Sprintf("%d containers, %d images", len(found[kind]), len(different))
			section.rows = append(section.rows, row{note, string(kind), count, strings.Join(different, " ")})
		}
	}
	return names, nil
}

// stuck says why a container of the pod doesn't start; "" if all do, or may.
func stuck(pod *corev1.Pod) string {
	for _, c := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if w := c.State.Waiting; w != nil && w.Reason != "PodInitializing" && w.Reason != "ContainerCreating" && w.Reason != "" {
			return fmt.Sprintf("container %s: %s after %d restarts: %s", c.Name, w.Reason, c.RestartCount, w.Message)
		}
	}
	return ""
}

// image tells what an image is by the table, and its short name. What has no entry there is what its name says.
func (s *survey) image(reference string) (images.Kind, string) {
	repository := repositoryOf(reference)
	match, _ := s.table.Lookup(repository)
	return cmp.Or(match.Kind, images.KindReal), path.Base(repository)
}

// judge reads last operation and conditions, in the shape that all of Gardener's kinds share, of an object that reports them.
func judge(o *unstructured.Unstructured) (mark, string) {
	status := cluster.StatusOf(o)
	operation, observed := status.LastOperation.State, status.ObservedGeneration
	verdict, wrong := judgeConditions(status.Conditions, o.GetKind() == "Etcd")
	detail := strings.TrimPrefix(operationOf(status)+"; "+strings.Join(wrong, ", "), "; ")
	switch {
	case hasFailed(operation) || operation == "Succeeded" && status.LastError.Description != "":
		return bad, detail
	case operation == "Processing" || operation == "Pending":
		return busy, detail
	case o.GetDeletionTimestamp() != nil:
		return busy, "is being deleted; " + detail
	case operation == "" && len(status.Conditions) == 0:
		return busy, "nothing is reported yet"
	case observed != nil && *observed < o.GetGeneration():
		return busy, "the newest generation isn't seen yet; " + detail
	case o.GetAnnotations()["gardener.cloud/operation"] != "":
		return busy, "an operation is asked for; " + detail
	}
	return verdict, detail
}

func hasFailed(operation string) bool {
	return operation == "Error" || operation == "Failed" || operation == "Aborted"
}

// operationOf is the last operation with what went wrong in it.
func operationOf(status cluster.Status) string {
	last := status.LastOperation
	described := strings.TrimSpace(last.Type + " " + last.State)
	if last.State == "" || last.State == "Succeeded" {
		return described
	}
	if last.Progress != nil {
		described += fmt.Sprintf(" %d%%", *last.Progress)
	}
	why := cmp.Or(status.LastError.Description, last.Description)
	if len(status.LastErrors) > 0 {
		why = cmp.Or(status.LastErrors[0].Description, last.Description)
	}
	return strings.TrimSuffix(described+": "+why, ": ")
}

// judgeConditions names the conditions that are not as they should be, or how many there are. What is False comes first, as it is why
// others are Unknown. fresh is for kinds whose conditions are Unknown for minutes after their creation.
func judgeConditions(conditions []cluster.Condition, fresh bool) (mark, []string) {
	verdict, count := good, 0
	var wrong, unknown []string
	for _, c := range conditions {
		want, otherwise := "True", bad
		switch c.Type {
		case "Required", "RequiredRuntime", "RequiredVirtual":
			continue // either is fine
		case "Progressing", "ResourcesProgressing":
			want, otherwise = "False", busy
		case "ClusterIDMismatch", "EmergencyStopShootReconciliations":
			want = "False"
		}
		count++
		if c.Status == want {
			continue
		}
		if c.Status == "Progressing" || (fresh && c.Status == "Unknown") {
			otherwise = busy
		}
		if verdict != bad {
			verdict = otherwise
		}
		list := &wrong
		if c.Status == "Unknown" {
			list = &unknown
		}
		*list = append(*list, fmt.Sprintf("%s is %s: %s", c.Type, c.Status, c.Message))
	}
	if wrong = append(wrong, unknown...); len(wrong) == 0 && count > 0 {
		wrong = []string{fmt.Sprintf("%d conditions as they should be", count)}
	}
	return verdict, wrong
}

// activity is what is on its way: what belongs to it may be unhealthy for a while.
type activity struct {
	// landscape says that the Garden or a Seed is on its way.
	landscape bool
	// shoots says it of the shoots, by the name of their namespace in the seed. It includes hibernated ones, which have no nodes.
	shoots map[string]bool
}

// of reports whether what has that namespace, or that name without a namespace, belongs to something on its way.
func (a activity) of(namespace, name string) bool {
	for shoot, active := range a.shoots {
		if namespace == shoot || (namespace == "" && strings.HasPrefix(name, shoot+"--")) {
			return active
		}
	}
	return a.landscape
}

// mark is the one for what isn't healthy.
func (a activity) mark(namespace, name string) mark {
	if a.of(namespace, name) {
		return busy
	}
	return bad
}

// judge judges an extension object. One that is not ready though nobody works on its shoot is as bad as a failed one.
func (a activity) judge(o *unstructured.Unstructured) (mark, string) {
	verdict, detail := judge(o)
	if verdict != good && !hasFailed(cluster.StatusOf(o).LastOperation.State) {
		verdict = a.mark(o.GetNamespace(), o.GetName())
	}
	return verdict, detail
}
