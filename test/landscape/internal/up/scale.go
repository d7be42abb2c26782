// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/measurement"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/usage"
)

const (
	// scaleLabel is on the Shoots of Scale, and on nobody else's.
	scaleLabel = "landscape.provider-local/scale"
	// scaleNamespace is where example/mock/91-shoot.yaml has its Shoot.
	scaleNamespace = "garden-local"
	// sampleInterval is how often Scale notes memory and finished Shoots.
	sampleInterval = 10 * time.Second
)

var (
	configMaps              = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	controllerRegistrations = schema.GroupVersionKind{Group: "core.gardener.cloud", Version: "v1beta1", Kind: "ControllerRegistration"}
	seedInstanceLabels      = client.MatchingLabels{"app.kubernetes.io/component": "seed"}
)

// metered are the programs whose requests Scale counts, by the labels of their pods, and the ports of their metrics.
var metered = []struct {
	name   string
	labels client.MatchingLabels
	port   int
}{
	{"gardenlet", client.MatchingLabels{"app": "gardener", "role": "gardenlet"}, 2729},
	{"gardener-controller-manager", client.MatchingLabels{"app": "gardener", "role": "controller-manager"}, 2719},
	{"gardener-scheduler", client.MatchingLabels{"app": "gardener", "role": "scheduler"}, 19251},
	{"provider-local in the seed", seedInstanceLabels, 8080},
}

// mockEnabled is in the configuration of an instance that has the mock provider.
const mockEnabled = "mock:\n  enabled: true"

// scale creates, changes and deletes Shoots of the mock provider.
type scale struct {
	Landscape
	runtime, garden client.WithWatch
	shoots, nodes   int
	result          *measurement.Scale
	// ready is the number of Shoots that are done in the phase; while they are deleted, of those that are left.
	ready atomic.Int64
}

// Scale creates Shoots of the mock provider with nodes that are spread over them, reconciles, changes and deletes them, and measures
// each phase. As many at a time are in the works as the machine has cores: more take longer in all, as they time out and begin anew. It
// writes the result to bin/scale, and to docs if asked. Without Shoots it only deletes what an interrupted run left.
func (l Landscape) Scale(ctx context.Context, count, nodes int, docs bool) error {
	if !exists(l.Layout.VirtualKubeconfig()) {
		return errors.New("there is no Garden: run make up UNTIL=seed first")
	}
	if count > 0 && nodes < count {
		return fmt.Errorf("%d Shoots have at least one Node each: NODES=%d is too few", count, nodes)
	}
	machine, err := measurement.ThisMachine(usage.Root)
	if err != nil {
		return err
	}
	machine.ReadTime = measurement.ReadTime()
	date := l.Now().UTC().Truncate(time.Second)
	runtimeClient, err := l.client(runtimeCluster)
	if err != nil {
		return err
	}
	garden, err := l.client(virtualGarden)
	if err != nil {
		return err
	}
	s := &scale{Landscape: l, runtime: runtimeClient, garden: garden, shoots: count, nodes: nodes, result: &measurement.Scale{Machine: machine, Date: date, Commit: l.commit(ctx), Shoots: count, Nodes: nodes}}

	const remedy = "read above; make scale SHOOTS=0 deletes what was made"
	remove := step.Step{Name: "delete", Title: "all Shoots are gone", Execute: s.phase("delete", s.delete), Remedy: remedy}
	disable := step.Step{Name: "disable", Title: "the mock provider is as it was", Execute: s.disable, Remedy: remedy}
	steps := []step.Step{remove, disable}
	if count > 0 {
		steps = []step.Step{
			{Name: "enable", Title: "the mock provider is there", Execute: s.enable, Remedy: remedy},
			{Name: "create", Title: "all Shoots are created and healthy", Execute: s.phase("create", s.create), Remedy: remedy},
			{Name: "reconcile", Title: "all Shoots are reconciled", Execute: s.phase("reconcile", s.reconcile), Remedy: remedy},
			{Name: "update", Title: "all Nodes have a new label", Execute: s.phase("update", s.update), Remedy: remedy},
			remove, disable,
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sampling sync.WaitGroup
	sampling.Go(func() { wait.UntilWithContext(ctx, s.sample, sampleInterval) })
	if err := (step.Runner{Out: l.Out, Now: l.Now}).Run(ctx, steps); err != nil || count == 0 {
		return err
	}
	cancel()
	sampling.Wait()
	path, err := l.keep("scale", date, s.result)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintf(l.Out, "\n%s\nkept in %s\n", s.result.Table(), path)
	if !docs {
		return nil
	}
	page := filepath.Join(l.Layout.Root, "docs", "development", "scale.md")
	return errors.Join(s.result.WritePage(page), l.Invoker.Own(page))
}

// example reads the objects of a file of the mock provider's examples.
func (s *scale) example(file string) ([]*unstructured.Unstructured, error) {
	return cluster.Read(filepath.Join(s.Layout.Root, "example", "mock", file))
}

// enabled is a file that is there while the mock provider is enabled by Scale.
func (s *scale) enabled() string { return s.Layout.State("scale") }

func (s *scale) enable(ctx context.Context, progress step.Progress) (string, error) {
	registered := milestone{title: "type mock is registered", client: s.garden, kind: controllerRegistrations, reached: registers("mockos")}
	all, err := cluster.List(ctx, s.garden, seeds)
	if err != nil {
		return "", err
	}
	if len(all) == 0 {
		return "", errors.New("there is no Seed: run make up UNTIL=seed first")
	}
	if all, err = cluster.List(ctx, s.garden, controllerRegistrations); err != nil {
		return "", err
	}
	if done, _ := registered.reached(all); !done {
		if err := os.WriteFile(s.enabled(), nil, 0o600); err != nil {
			return "", err
		}
		if err := s.patchExtension(ctx, s.runtime, "20-operator-extension.patch.yaml"); err != nil {
			// There is nothing to revert.
			return "", errors.Join(err, os.Remove(s.enabled()))
		}
	}
	configured := milestone{title: "the seed instance's configuration has it", kind: configMaps, options: []client.ListOption{seedInstanceLabels}, reached: configures(mockEnabled)}
	runs := milestone{title: "the seed instance runs with it", kind: deployments, options: []client.ListOption{seedInstanceLabels}, reached: rolledOut}
	for _, m := range []milestone{registered, configured, runs} {
		if _, err := s.wait(ctx, progress, []milestone{m}); err != nil {
			return "", err
		}
	}
	for _, file := range []string{"50-cloudprofile.yaml", "52-credentials.yaml"} {
		objects, err := s.example(file)
		if err == nil {
			err = cluster.Apply(ctx, s.garden, objects)
		}
		if err != nil {
			return "", err
		}
	}
	return "CloudProfile mock", nil
}

// registers wants a ControllerRegistration of the type.
func registers(extensionType string) func([]unstructured.Unstructured) (bool, string) {
	return func(objects []unstructured.Unstructured) (bool, string) {
		for _, o := range objects {
			resources, _, _ := unstructured.NestedSlice(o.Object, "spec", "resources")
			if slices.ContainsFunc(resources, func(r any) bool { m, _ := r.(map[string]any); return m["type"] == extensionType }) {
				return true, o.GetName()
			}
		}
		return false, "none has it"
	}
}

// configures wants a ConfigMap with the text.
func configures(text string) func([]unstructured.Unstructured) (bool, string) {
	return func(objects []unstructured.Unstructured) (bool, string) {
		for _, o := range objects {
			data, _, _ := unstructured.NestedStringMap(o.Object, "data")
			for _, content := range data {
				if strings.Contains(content, text) {
					return true, nameOf(&o)
				}
			}
		}
		return false, "none has it"
	}
}

// rolledOut wants at least one Deployment, and all pods of all of them new and available.
func rolledOut(objects []unstructured.Unstructured) (bool, string) {
	for _, o := range objects {
		if done, state := isRolledOut(as[appsv1.Deployment](o)); !done {
			return false, state
		}
	}
	return len(objects) > 0, fmt.Sprintf("%d Deployments", len(objects))
}

func (s *scale) patchExtension(ctx context.Context, c client.Client, file string) error {
	path := filepath.Join(s.Layout.Root, "example", "mock", file)
	content, err := os.ReadFile(path) // #nosec G304 -- a file of this repository.
	if err == nil {
		content, err = yaml.YAMLToJSON(content)
	}
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	extension := objectOf(operatorExtensions, "", "provider-local")
	if err := c.Patch(ctx, extension, client.RawPatch(types.JSONPatchType, content)); err != nil {
		return fmt.Errorf("patching Extension provider-local with %s: %w", path, err)
	}
	return nil
}

// disable reverts enable, unless the mock provider was enabled by somebody else.
func (s *scale) disable(ctx context.Context, progress step.Progress) (string, error) {
	if !exists(s.enabled()) {
		return "somebody else enabled it", nil
	}
	for _, file := range []string{"52-credentials.yaml", "50-cloudprofile.yaml"} {
		objects, err := s.example(file)
		if err != nil {
			return "", err
		}
		for _, o := range slices.Backward(objects) {
			if err := s.garden.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
				return "", fmt.Errorf("deleting %s %s: %w", o.GetKind(), nameOf(o), err)
			}
		}
	}
	// An earlier attempt, or make up, may have reverted it.
	extension := objectOf(operatorExtensions, "", "provider-local")
	if err := s.runtime.Get(ctx, client.ObjectKeyFromObject(extension), extension); err != nil {
		return "", err
	}
	if done, _ := registers("mockos")([]unstructured.Unstructured{*extension}); done {
		if err := s.patchExtension(ctx, s.runtime, "99-operator-extension.patch.yaml"); err != nil {
			return "", err
		}
	}
	configured := configures(mockEnabled)
	without := func(objects []unstructured.Unstructured) (bool, string) {
		found, which := configured(objects)
		return !found, which
	}
	if _, err := s.wait(ctx, progress, []milestone{
		{title: "the seed instance's configuration is as it was", kind: configMaps, options: []client.ListOption{seedInstanceLabels}, reached: without},
	}); err != nil {
		return "", err
	}
	return "disabled", os.Remove(s.enabled())
}

// nameOfShoot is the name of a Shoot of Scale, counted from 0.
func nameOfShoot(i int) string { return fmt.Sprintf("scale-%03d", i) }

func (s *scale) create(ctx context.Context, c client.Client, i int) error {
	examples, err := s.example("91-shoot.yaml")
	if err != nil {
		return err
	}
	shoot := examples[0]
	shoot.SetName(nameOfShoot(i))
	shoot.SetLabels(map[string]string{scaleLabel: ""})
	// The first ones take what is left over.
	nodes := int64(s.nodes / s.shoots)
	if i < s.nodes%s.shoots {
		nodes++
	}
	pools, _, _ := unstructured.NestedSlice(shoot.Object, "spec", "provider", "workers")
	pool, _ := pools[0].(map[string]any)
	pool["minimum"], pool["maximum"] = nodes, nodes
	if err := errors.Join(
		unstructured.SetNestedSlice(shoot.Object, pools, "spec", "provider", "workers"),
		// Shoots for tests have no monitoring.
		unstructured.SetNestedField(shoot.Object, "testing", "spec", "purpose"),
	); err != nil {
		return err
	}
	return client.IgnoreAlreadyExists(c.Create(ctx, shoot))
}

func (s *scale) reconcile(ctx context.Context, c client.Client, i int) error {
	return patchShoot(ctx, c, i, types.MergePatchType, `{"metadata":{"annotations":{"gardener.cloud/operation":"reconcile"}}}`)
}

func (s *scale) update(ctx context.Context, c client.Client, i int) error {
	return patchShoot(ctx, c, i, types.JSONPatchType, `[{"op":"add","path":"/spec/provider/workers/0/labels","value":{"scale":"updated"}}]`)
}

func (s *scale) delete(ctx context.Context, c client.Client, i int) error {
	if err := patchShoot(ctx, c, i, types.MergePatchType, `{"metadata":{"annotations":{"confirmation.gardener.cloud/deletion":"true"}}}`); err != nil {
		return client.IgnoreNotFound(err)
	}
	return client.IgnoreNotFound(c.Delete(ctx, shootNamed(i)))
}

func shootNamed(i int) *unstructured.Unstructured {
	return objectOf(shoots, scaleNamespace, nameOfShoot(i))
}

func patchShoot(ctx context.Context, c client.Client, i int, kind types.PatchType, patch string) error {
	return c.Patch(ctx, shootNamed(i), client.RawPatch(kind, []byte(patch)))
}

// left is the number of Shoots that an interrupted run has left, counted from the first to the last.
func (s *scale) left(ctx context.Context, c client.Client) (int, error) {
	all, err := cluster.List(ctx, c, shoots, client.HasLabels{scaleLabel})
	count := 0
	for _, o := range all {
		if i, err := strconv.Atoi(strings.TrimPrefix(o.GetName(), "scale-")); err == nil {
			count = max(count, i+1)
		}
	}
	return count, err
}

// phase does something to all Shoots, as many at a time as there are cores, waits until each is done, and measures that.
func (s *scale) phase(title string, do func(context.Context, client.Client, int) error) func(context.Context, step.Progress) (string, error) {
	return func(ctx context.Context, progress step.Progress) (string, error) {
		before, err := s.read(ctx, s.runtime)
		if err != nil {
			return "", err
		}
		count, reached, change := s.shoots, reconciledSince, int64(1)
		s.ready.Store(0)
		if title == "delete" {
			if count, err = s.left(ctx, s.garden); err != nil {
				return "", err
			}
			reached, change = gone, -1
			s.ready.Store(int64(count))
		}
		phase := measurement.ScalePhase{Title: title, Shoots: make([]float64, count), Requests: map[string]float64{}}
		begin := s.Now()
		group, each := errgroup.WithContext(ctx)
		group.SetLimit(runtime.NumCPU())
		for i := range count {
			group.Go(func() error {
				began := s.Now()
				if err := do(each, s.garden, i); err != nil {
					return fmt.Errorf("at Shoot %s: %w", nameOfShoot(i), err)
				}
				_, err := s.wait(each, progress, []milestone{{
					title: title + " " + nameOfShoot(i), client: s.garden, kind: shoots,
					options: []client.ListOption{client.InNamespace(scaleNamespace), client.MatchingFields{"metadata.name": nameOfShoot(i)}},
					reached: func(objects []unstructured.Unstructured) (bool, string) { return reached(began, objects) },
				}})
				phase.Shoots[i] = s.Now().Sub(began).Seconds()
				s.ready.Add(change)
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return "", err
		}
		elapsed := s.Now().Sub(begin)
		after, err := s.read(ctx, s.runtime)
		if err != nil {
			return "", err
		}
		phase.Seconds = elapsed.Seconds()
		slices.Sort(phase.Shoots)
		for name, count := range after.requests {
			// A program that has started anew counts from zero.
			phase.Requests[name] = max(0, count-before.requests[name])
		}
		phase.Programs = usage.Groups(before.processes, after.processes, elapsed, func(p usage.Process) string { return p.Program })
		s.result.Phases = append(s.result.Phases, phase)
		return fmt.Sprintf("%d Shoots, %.1f GB in use", count, float64(usage.Memory(after.processes))/1e9), nil
	}
}

// reconciledSince wants the Shoot healthy, and reconciled since its turn began.
func reconciledSince(began time.Time, objects []unstructured.Unstructured) (bool, string) {
	if done, state := reconciled(objects); !done {
		return false, state
	}
	shoot := &objects[0]
	updated := cluster.StatusOf(shoot).LastOperation.LastUpdateTime
	if shoot.GetAnnotations()["gardener.cloud/operation"] != "" || updated.Time.Before(began.Truncate(time.Second)) {
		return false, "it is not reconciled again yet"
	}
	return healthy(objects)
}

// gone wants no objects.
func gone(_ time.Time, objects []unstructured.Unstructured) (bool, string) {
	return len(objects) == 0, fmt.Sprintf("%d are left", len(objects))
}

// scaleReading is what is compared at both ends of a phase.
type scaleReading struct {
	processes []usage.Process
	requests  map[string]float64
}

func (s *scale) read(ctx context.Context, c client.Client) (scaleReading, error) {
	processes, err := usage.Read(usage.Root, s.Layout.State())
	if err != nil {
		return scaleReading{}, err
	}
	// A pod may be on its way out, as that of the seed instance is once it is configured anew.
	var requests map[string]float64
	var last error
	err = wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, true, func(ctx context.Context) (bool, error) {
		requests, last = s.requests(ctx, c)
		return last == nil, nil
	})
	if err != nil {
		return scaleReading{}, errors.Join(err, last)
	}
	return scaleReading{processes, requests}, nil
}

// requests are the counters of the programs, and of the seed's API server.
func (s *scale) requests(ctx context.Context, c client.Client) (map[string]float64, error) {
	in, err := connect(s.Layout.Kubeconfig())
	if err != nil {
		return nil, err
	}
	get := func(path, metric string) (float64, error) {
		content, err := in.clientset.CoreV1().RESTClient().Get().AbsPath(path).DoRaw(ctx)
		if err != nil {
			return 0, fmt.Errorf("reading %s: %w", path, err)
		}
		return sumOf(string(content), metric), nil
	}
	requests := map[string]float64{}
	if requests["the seed's API server"], err = get("/metrics", "apiserver_request_total"); err != nil {
		return nil, err
	}
	for _, program := range metered {
		pods := &corev1.PodList{}
		if err := c.List(ctx, pods, program.labels); err != nil {
			return nil, fmt.Errorf("listing pods: %w", err)
		}
		for _, pod := range pods.Items {
			count, err := get(fmt.Sprintf("/api/v1/namespaces/%s/pods/%s:%d/proxy/metrics", pod.Namespace, pod.Name, program.port), "rest_client_requests_total")
			if err != nil {
				return nil, err
			}
			requests[program.name] += count
		}
	}
	return requests, nil
}

// sumOf adds up a counter over all its labels, without watches, in the text format of Prometheus.
func sumOf(content, metric string) float64 {
	var sum float64
	for line := range strings.Lines(content) {
		if !strings.HasPrefix(line, metric+"{") || strings.Contains(line, `verb="WATCH"`) {
			continue
		}
		value, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndex(line, " ")+1:]), 64)
		if err == nil {
			sum += value
		}
	}
	return sum
}

// sample notes how far it is.
func (s *scale) sample(context.Context) {
	used, err := measurement.MemoryInUse(usage.Root)
	if err == nil {
		s.result.Samples = append(s.result.Samples, measurement.ScaleSample{
			Seconds: s.Now().Sub(s.result.Date).Seconds(), Shoots: int(s.ready.Load()), Memory: used,
		})
	}
}
