// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
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
	report  *report
	table   images.Table
	network layout.Network
	runtime client.Reader
	// virtual is nil until there is a virtual garden.
	virtual client.Reader
	active  activity
}

// list returns all objects of a kind, in order; none if the API server doesn't know the kind (yet).
func list(ctx context.Context, c client.Reader, kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	all := &unstructured.UnstructuredList{}
	all.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := c.List(ctx, all); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("listing the objects of kind %s: %w", kind.Kind, err)
	}
	slices.SortFunc(all.Items, func(a, b unstructured.Unstructured) int { return strings.Compare(nameOf(&a), nameOf(&b)) })
	return all.Items, nil
}

func nameOf(o client.Object) string { return strings.TrimPrefix(o.GetNamespace()+"/"+o.GetName(), "/") }

// garden shows what makes up the Garden, and notes whether it is on its way.
func (s *survey) garden(ctx context.Context) error {
	section := s.report.section("GARDEN")
	for _, kind := range []schema.GroupVersionKind{gardens, operatorExtensions} {
		objects, err := list(ctx, s.runtime, kind)
		if err != nil {
			return err
		}
		for i := range objects {
			verdict, detail := judge(&objects[i])
			if kind == gardens {
				s.active.landscape = s.active.landscape || verdict == busy
			} else if verdict == bad {
				verdict = s.active.mark("", "")
			}
			section.add(verdict, kind.Kind, nameOf(&objects[i]), detail)
		}
	}
	if len(section.rows) == 0 {
		section.add(note, "", "", "is not deployed yet")
	}
	return nil
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
	for _, kind := range []schema.GroupVersionKind{seeds, gardenlets, shoots, controllerInstallations} {
		objects, err := list(ctx, s.virtual, kind)
		if err != nil {
			return err
		}
		for i := range objects {
			o := &objects[i]
			verdict, detail := judge(o)
			seed, _, _ := unstructured.NestedString(o.Object, "spec", "seedRef", "name")
			switch kind {
			case seeds:
				activeSeeds[o.GetName()] = verdict == busy
				s.active.landscape = s.active.landscape || verdict == busy
			case shoots:
				hibernated, _, _ := unstructured.NestedBool(o.Object, "status", "hibernated")
				s.active.shoots[text(o, "technicalID")] = verdict == busy || hibernated
			case controllerInstallations:
				if verdict == bad && activeSeeds[seed] {
					verdict = busy
				}
				extension, _, _ := unstructured.NestedString(o.Object, "spec", "registrationRef", "name")
				detail = extension + " for " + seed + ": " + detail
			}
			section.add(verdict, kind.Kind, nameOf(o), detail)
		}
	}
	delete(s.active.shoots, "")
	if len(section.rows) == 0 {
		section.add(note, "", "", "has no Seeds and Shoots yet")
	}
	return nil
}

// extensions shows the extension objects by class.
func (s *survey) extensions(ctx context.Context) error {
	byClass := map[string][]cluster.ExtensionObject{}
	for _, kind := range cluster.ExtensionKinds() {
		objects, err := cluster.ExtensionObjects(ctx, s.runtime, kind)
		if err != nil {
			return err
		}
		for _, o := range objects {
			byClass[o.Class] = append(byClass[o.Class], o)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(byClass)) {
		section := s.report.section("EXTENSION OBJECTS OF CLASS " + class)
		for _, o := range byClass[class] {
			section.add(s.active.markExtension(o), o.Kind, strings.TrimPrefix(o.Namespace+"/"+o.Name, "/"), o.Type+" "+o.State+" "+o.Error)
		}
	}
	return nil
}

// workloads shows the node, and counts what runs; only what isn't as it should be has a row of its own.
func (s *survey) workloads(ctx context.Context) error {
	section := s.report.section("RUNTIME CLUSTER")
	nodes := &corev1.NodeList{}
	if err := s.runtime.List(ctx, nodes); err != nil {
		return fmt.Errorf("listing the nodes: %w", err)
	}
	for _, n := range nodes.Items {
		verdict, detail := bad, "not Ready"
		if slices.ContainsFunc(n.Status.Conditions, func(condition corev1.NodeCondition) bool {
			return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
		}) {
			verdict, detail = good, "Ready"
		}
		section.add(verdict, "Node", n.Name, detail)
	}
	counted := []struct {
		kind   schema.GroupVersionKind
		plural string
		judge  func(*unstructured.Unstructured) (mark, string)
	}{
		{deployments, "available", replicas("availableReplicas")},
		{statefulSets, "available", replicas("availableReplicas")},
		{daemonSets, "available", daemons},
		{etcds, "ready", judge},
		{managedResources, "healthy", judge},
	}
	for _, c := range counted {
		objects, err := list(ctx, s.runtime, c.kind)
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

// replicas judges by a field of the status that counts pods.
func replicas(field string) func(*unstructured.Unstructured) (mark, string) {
	return func(o *unstructured.Unstructured) (mark, string) {
		want, found, _ := unstructured.NestedInt64(o.Object, "spec", "replicas")
		if !found {
			want = 1
		}
		have, _, _ := unstructured.NestedInt64(o.Object, "status", field)
		return enough(have, want)
	}
}

func daemons(o *unstructured.Unstructured) (mark, string) {
	want, _, _ := unstructured.NestedInt64(o.Object, "status", "desiredNumberScheduled")
	have, _, _ := unstructured.NestedInt64(o.Object, "status", "numberAvailable")
	return enough(have, want)
}

func enough(have, want int64) (mark, string) {
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
	names, found := map[string]string{}, map[images.Kind]map[string]int{}
	for i := range pods.Items {
		pod := &pods.Items[i]
		names[string(pod.UID)] = nameOf(pod)
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			kind, name := s.image(c.Image)
			if found[kind] == nil {
				found[kind] = map[string]int{}
			}
			found[kind][name]++
		}
		if why := stuck(pod); why != "" {
			section.add(s.active.mark(pod.Namespace, ""), "Pod", nameOf(pod), why)
		}
	}
	for _, kind := range []images.Kind{images.KindReal, images.KindFunctional, images.KindStandIn} {
		count := 0
		for _, n := range found[kind] {
			count += n
		}
		section.rows = append(section.rows, row{note, string(kind), fmt.Sprintf("%d containers, %d images", count, len(found[kind])),
			strings.Join(slices.Sorted(maps.Keys(found[kind])), " ")})
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

// image tells what an image is by the table, and its short name. What this repository pushed itself needs no entry there.
func (s *survey) image(reference string) (images.Kind, string) {
	repository, _, _ := strings.Cut(reference, "@")
	if i := strings.LastIndex(repository, ":"); i > strings.LastIndex(repository, "/") {
		repository = repository[:i]
	}
	match := s.table.Lookup(repository)
	host, _, _ := strings.Cut(repository, "/")
	host, _, _ = strings.Cut(host, ":")
	address, err := netip.ParseAddr(host)
	if own := host == layout.RegistryHost || (err == nil && (address.IsLoopback() || host == s.network.HostServicesIP())); own && !match.Listed {
		return images.KindReal, path.Base(repository)
	}
	return match.Kind, path.Base(repository)
}
