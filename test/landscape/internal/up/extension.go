// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	imagename "github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/binaries"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/registry"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/step"
)

// Extension is an extension that somebody else wrote.
type Extension struct {
	// Name is that of the operator.gardener.cloud Extension.
	Name string
	// Manifest is a file with that Extension. Without one, Resources are what it serves, each as KIND/TYPE.
	Manifest  string
	Resources []string
	// Chart, AdmissionRuntime and AdmissionApplication are its charts: a folder, go:MODULE/FOLDER@VERSION, or a reference to a registry
	// that gardener-operator reaches. What is empty stays as the manifest has it.
	Chart, AdmissionRuntime, AdmissionApplication string
	// Values is a file with values of the extension's chart in seeds. They win over the manifest's.
	Values string
	// Images are NAME=SOURCE. An image reference stands for NAME if its repository is that, or ends in it after a slash. SOURCE is
	// go:FOLDER or go:MODULE/PACKAGE@VERSION, which are built, or what images.Read reads.
	Images []string
}

// givenAnnotation is on the Extensions that were added. Its value has the images that came along and that pods have been made to run, as
// NAME@DIGEST, with commas.
const givenAnnotation = "landscape.provider-local/images"

// remindedAnnotation is on ControllerRegistrations that were changed so that gardenlet looks again.
const remindedAnnotation = "landscape.provider-local/reminded"

// imageName is a repository without its host, as registries allow it.
var imageName = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+)*(/[a-z0-9]+([._-]+[a-z0-9]+)*)*$`)

// adding is an Extension on its way into the landscape.
type adding struct {
	Landscape
	Extension
	client client.WithWatch
	// given are the names of the images, dropped those that were given before and are not now. always is whether instances are deployed even
	// where nobody needs them.
	given, dropped []string
	always         bool
	// had are the images that pods run, and has those that they are to run, both as in givenAnnotation.
	had, has []string
	// changed are the names of images that are others than before, and replaced the pods that ran them.
	changed  []string
	replaced []types.UID
	// stuck are pods that could not get an image before, at the time began, when the Extension was changed.
	stuck sets.Set[types.UID]
	began time.Time
}

// AddExtension adds an extension, or changes it to what is given now, and waits until it runs.
func (l Landscape) AddExtension(ctx context.Context, e Extension) error {
	a := &adding{Landscape: l, Extension: e}
	object, err := a.prepare(ctx)
	if err != nil {
		return fmt.Errorf("adding extension %s: %w", e.Name, err)
	}
	const remedy = "mend what is named above and run it again"
	err = step.Runner{Out: l.Out, Now: l.Now}.Run(ctx, []step.Step{
		{Name: "images", Title: "its images are in the registry", Remedy: remedy, Execute: a.images},
		{Name: "charts", Title: "its charts are in the registry", Remedy: remedy, Execute: func(ctx context.Context, progress step.Progress) (string, error) {
			return a.charts(ctx, progress, object)
		}},
		{Name: "extension", Title: "the Extension is there", Remedy: remedy, Execute: func(ctx context.Context, _ step.Progress) (string, error) {
			return a.apply(ctx, object)
		}},
		{Name: "installed", Title: "the extension runs", Remedy: remedy, Execute: a.installed},
	})
	return errors.Join(err, l.handOver())
}

// prepare makes the Extension but for its charts, and refuses what can't be right before anything is built.
func (a *adding) prepare(ctx context.Context) (*unstructured.Unstructured, error) {
	if wrong := validation.IsDNS1123Subdomain(a.Name); len(wrong) > 0 {
		return nil, fmt.Errorf("no Extension can have that name: %s", wrong[0])
	}
	for _, image := range a.Images {
		name, source, found := strings.Cut(image, "=")
		if !found || source == "" || !imageName.MatchString(name) {
			return nil, fmt.Errorf("--image %s: expected NAME=SOURCE, where NAME is a repository without host and tag, such as extensions/foo", image)
		}
		if slices.Contains(a.given, name) {
			return nil, fmt.Errorf("--image %s is given twice", name)
		}
		table, err := images.Load(a.Layout.Optional())
		if err != nil {
			return nil, err
		}
		if _, listed := table.Lookup(name); listed {
			return nil, fmt.Errorf("--image %s: the landscape has that image itself (test/landscape/internal/images/images.yaml)", name)
		}
		a.given = append(a.given, name)
	}
	object, err := a.manifest(ctx)
	if err != nil {
		return nil, err
	}
	policy, _, _ := unstructured.NestedString(object.Object, "spec", "deployment", "extension", "policy")
	a.always = policy == "Always"
	if a.client, err = a.gardenClient(); err != nil {
		return nil, err
	}
	all, err := cluster.List(ctx, a.client, operatorExtensions)
	if err != nil {
		return nil, err
	}
	for i := range all {
		if all[i].GetName() == a.Name {
			if !isGiven(&all[i]) {
				return nil, errors.New("it belongs to the landscape, or somebody else made it: choose another name")
			}
			a.had = strings.Split(all[i].GetAnnotations()[givenAnnotation], ",")
			a.dropped = slices.DeleteFunc(givenImages(&all[i]), func(name string) bool { return slices.Contains(a.given, name) })
			continue
		}
		for _, name := range givenImages(&all[i]) {
			if slices.Contains(a.given, name) {
				return nil, fmt.Errorf("--image %s: that image came along with extension %s; give a longer name", name, all[i].GetName())
			}
		}
	}
	if a.Values != "" {
		if err := a.setValues(object); err != nil {
			return nil, fmt.Errorf("setting values of %s: %w", a.Values, err)
		}
	}
	return object, nil
}

// manifest reads the Extension, or makes one of the resources.
func (a *adding) manifest(ctx context.Context) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if a.Manifest != "" {
		file, err := a.file(ctx, a.Manifest)
		if err != nil {
			return nil, err
		}
		objects, err := cluster.Read(file)
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GroupVersionKind() == operatorExtensions })
		if i < 0 {
			return nil, fmt.Errorf("%s has no Extension of operator.gardener.cloud/v1alpha1", a.Manifest)
		}
		object = objects[i]
		unstructured.RemoveNestedField(object.Object, "status")
	} else {
		if len(a.Resources) == 0 || a.Chart == "" {
			return nil, errors.New("what does it serve, with which chart? Give --manifest, or --resource and --chart")
		}
		var resources []any
		for _, resource := range a.Resources {
			kind, kindOfType, found := strings.Cut(resource, "/")
			if !found || kind == "" || kindOfType == "" {
				return nil, fmt.Errorf("--resource %s: expected KIND/TYPE, such as Extension/foo", resource)
			}
			resources = append(resources, map[string]any{"kind": kind, "type": kindOfType})
		}
		// Not only when a Shoot asks for it, so that a mistake shows here.
		object.Object["spec"] = map[string]any{"resources": resources, "deployment": map[string]any{"extension": map[string]any{"policy": "Always"}}}
	}
	object.SetGroupVersionKind(operatorExtensions)
	object.SetName(a.Name)
	object.SetAnnotations(labels.Merge(object.GetAnnotations(), labels.Set{givenAnnotation: strings.Join(a.given, ",")}))
	return object, nil
}

// setValues merges the file of values into those of the Extension, as Helm merges them.
func (a *adding) setValues(object *unstructured.Unstructured) error {
	fields := []string{"spec", "deployment", "extension", "values"}
	before, _, err := unstructured.NestedMap(object.Object, fields...)
	if err != nil {
		return err
	}
	old, errOld := json.Marshal(before)
	content, errRead := os.ReadFile(a.Values) // #nosec G304 -- the user's file.
	over, errYAML := yaml.YAMLToJSON(content)
	if err := errors.Join(errOld, errRead, errYAML); err != nil {
		return err
	}
	if before == nil {
		old = []byte("{}")
	}
	values := map[string]any{}
	all, err := jsonpatch.MergePatch(old, over)
	if err == nil {
		err = json.Unmarshal(all, &values)
	}
	if err != nil {
		return err
	}
	return unstructured.SetNestedMap(object.Object, values, fields...)
}

// gardenClient connects with the runtime cluster of a landscape that has a Garden.
func (l Landscape) gardenClient() (client.WithWatch, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("the images of the node are root's: run it with sudo")
	}
	if !exists(l.Layout.VirtualKubeconfig()) {
		return nil, errors.New("there is no Garden yet: run make up, or make up UNTIL=seed")
	}
	return l.client(runtimeCluster)
}

func isGiven(object *unstructured.Unstructured) bool {
	_, given := object.GetAnnotations()[givenAnnotation]
	return given
}

// givenImages are the names of the images that came along with an Extension.
func givenImages(object *unstructured.Unstructured) []string {
	names := strings.FieldsFunc(object.GetAnnotations()[givenAnnotation], func(r rune) bool { return r == ',' })
	for i := range names {
		names[i], _, _ = strings.Cut(names[i], "@")
	}
	return names
}

// tag is where an image is kept that stands for a name.
func (l Landscape) tag(name string) string {
	return l.Layout.RegistryAddress() + "/" + registry.Given + name + ":latest"
}

// chartsFolder is the folder of repositories with charts that came along with extensions.
const chartsFolder = "extensions/"

// chartTag is where such a chart is kept.
func (l Landscape) chartTag(extension, chart string) string {
	return l.Layout.RegistryAddress() + "/" + chartsFolder + extension + "/" + chart + ":latest"
}

// images pushes the images that are given, and deletes those that were given before and no longer are.
func (a *adding) images(ctx context.Context, progress step.Progress) (string, error) {
	count := 0
	for _, image := range a.Images {
		name, source, _ := strings.Cut(image, "=")
		made, err := a.image(ctx, progress, source)
		if err != nil {
			return "", err
		}
		digest, pushed, err := images.PushTag(ctx, a.tag(name), made)
		if err != nil {
			return "", err
		}
		if pushed {
			progress("pushed %s", name)
			count++
		}
		// Not what was pushed: an attempt that failed may have done that.
		if a.has = append(a.has, name+"@"+digest); !slices.Contains(a.had, name+"@"+digest) {
			a.changed = append(a.changed, name)
		}
	}
	result := fmt.Sprintf("%d pushed, %d up to date", count, len(a.Images)-count)
	for _, name := range a.dropped {
		if err := images.DeleteTag(ctx, a.tag(name)); err != nil {
			return "", err
		}
		a.changed = append(a.changed, name)
	}
	return result, nil
}

// image builds or reads an image.
func (a *adding) image(ctx context.Context, progress step.Progress, source string) (v1.Image, error) {
	program, isProgram := strings.CutPrefix(source, "go:")
	if !isProgram {
		return images.Read(ctx, source)
	}
	module, folder, err := a.goFolder(ctx, program)
	if err != nil {
		return nil, err
	}
	out := a.Layout.Binary(filepath.Join("extensions", a.Name))
	if err := errors.Join(os.MkdirAll(out, 0o755), a.Invoker.Own(filepath.Dir(out), out)); err != nil { // #nosec G301 -- build output.
		return nil, fmt.Errorf("building %s: %w", source, err)
	}
	name, _, _ := strings.Cut(filepath.Base(filepath.Join(module, folder)), "@")
	progress("building %s", source)
	if _, err := (binaries.Builder{Out: out, Invoker: a.Invoker}).Build(ctx, binaries.Program{Name: name, Dir: module, Package: "./" + folder, Downloaded: strings.Contains(program, "@")}); err != nil {
		return nil, err
	}
	return images.FromProgram(ctx, filepath.Join(out, name))
}

// file is a path, or that of go:MODULE/PATH@VERSION.
func (l Landscape) file(ctx context.Context, source string) (string, error) {
	inModule, is := strings.CutPrefix(source, "go:")
	if !is {
		return source, nil
	}
	module, inner, err := l.goFolder(ctx, inModule)
	return filepath.Join(module, inner), err
}

// goFolder finds a folder, or a file, of a Go module: in a checkout, or of MODULE/FOLDER@VERSION, which it downloads. It returns the module's
// folder, and the path below it.
func (l Landscape) goFolder(ctx context.Context, what string) (module, folder string, err error) {
	whole, version, isVersion := strings.Cut(what, "@")
	if !isVersion {
		absolute, err := filepath.Abs(what)
		if err != nil {
			return "", "", err
		}
		for module = absolute; !exists(filepath.Join(module, "go.mod")); module = filepath.Dir(module) {
			if module == filepath.Dir(module) {
				return "", "", fmt.Errorf("%s is in no Go module: there is no go.mod in it or above it", absolute)
			}
		}
		folder, err = filepath.Rel(module, absolute)
		return module, folder, err
	}
	// Nothing tells which part of the path is the module's.
	parts := strings.Split(whole, "/")
	var errs []error
	for i := min(2, len(parts)); i <= len(parts); i++ {
		folder = path.Join(parts[i:]...)
		downloaded, err := l.download(ctx, strings.Join(parts[:i], "/")+"@"+version)
		if err != nil {
			errs = append(errs, err)
		} else if exists(filepath.Join(downloaded, folder)) {
			return downloaded, folder, nil
		}
	}
	return "", "", fmt.Errorf("finding %s: no module of that version has the folder %w", what, errors.Join(errs...))
}

// download returns the folder of a module.
func (l Landscape) download(ctx context.Context, module string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", module) // #nosec G204 -- what the user asks for.
	cmd.Dir, cmd.Env = l.Layout.Root, append(os.Environ(), "GOWORK=off", "GOFLAGS=-mod=mod")
	out, err := l.Invoker.Run(cmd).Output()
	var answer struct{ Dir, Error string }
	if json.Unmarshal(out, &answer) == nil && answer.Error != "" {
		return "", errors.New(answer.Error)
	}
	if err != nil {
		return "", fmt.Errorf("downloading %s: %w", module, err)
	}
	return answer.Dir, nil
}

// charts pushes the charts that are folders, and has the Extension name them.
func (a *adding) charts(ctx context.Context, progress step.Progress, object *unstructured.Unstructured) (string, error) {
	pushed := 0
	for _, chart := range []struct{ name, source, part, cluster string }{
		{"extension", a.Chart, "extension", ""},
		{"admission-runtime", a.AdmissionRuntime, "admission", "runtimeCluster"},
		{"admission-application", a.AdmissionApplication, "admission", "virtualCluster"},
	} {
		if chart.source == "" {
			continue
		}
		reference := strings.TrimPrefix(chart.source, "oci://")
		folder, err := a.file(ctx, chart.source)
		if err != nil {
			return "", err
		}
		if info, err := os.Stat(folder); err == nil && info.IsDir() {
			if reference, err = a.pushChart(ctx, folder, chart.name); err != nil {
				return "", err
			}
			progress("pushed %s", chart.source)
			pushed++
		} else if _, err := imagename.ParseReference(reference, imagename.StrictValidation); err != nil {
			return "", fmt.Errorf("the chart %s is neither a folder nor the whole reference of an OCI artifact, such as registry.example/charts/name:v1: %w", folder, err)
		}
		fields := slices.DeleteFunc([]string{"spec", "deployment", chart.part, chart.cluster, "helm"}, func(field string) bool { return field == "" })
		if err := unstructured.SetNestedMap(object.Object, map[string]any{"ociRepository": map[string]any{"ref": reference}}, fields...); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d charts", pushed), nil
}

// pushChart has the chart in a folder pushed, and returns its reference by digest.
func (a *adding) pushChart(ctx context.Context, folder, name string) (string, error) {
	absolute, err := filepath.Abs(folder)
	if err != nil {
		return "", err
	}
	reference := a.chartTag(a.Name, name)
	// The flags are those of skaffold.yaml: with others, Go compiles all dependencies once more.
	cmd := exec.CommandContext(ctx, "go", "run", "-trimpath", "./skaffold/publish", "chart", absolute, reference) // #nosec G204 -- a program of this repository.
	cmd.Dir, cmd.Env = a.Layout.Root, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var output bytes.Buffer
	cmd.Stderr = &output
	pinned, err := a.Invoker.Run(cmd).Output()
	if err != nil {
		return "", fmt.Errorf("pushing the chart %s: %w\n%s", folder, err, output.String())
	}
	return strings.TrimSpace(string(pinned)), nil
}

// apply has pods take the images that changed, and creates or changes the Extension.
func (a *adding) apply(ctx context.Context, object *unstructured.Unstructured) (string, error) {
	var err error
	if a.replaced, err = a.renew(ctx, a.client, a.changed); err != nil {
		return "", err
	}
	pods := &corev1.PodList{}
	if err := a.client.List(ctx, pods); err != nil {
		return "", fmt.Errorf("listing pods: %w", err)
	}
	a.stuck, a.began = sets.New[types.UID](), a.Now()
	for i := range pods.Items {
		if lackingImage(&pods.Items[i], nil) != "" {
			a.stuck.Insert(pods.Items[i].UID)
		}
	}
	object.SetAnnotations(labels.Merge(object.GetAnnotations(), labels.Set{givenAnnotation: strings.Join(a.has, ",")}))
	err = cluster.Apply(ctx, a.client, []*unstructured.Unstructured{object})
	return fmt.Sprintf("%d pods are replaced, as their image is another", len(a.replaced)), err
}

// renew has the node forget images that stand for the names, and deletes the pods that run them, whose UIDs it returns.
func (l Landscape) renew(ctx context.Context, c client.Client, names []string) (deleted []types.UID, err error) {
	if len(names) == 0 {
		return nil, nil
	}
	ctr := func(arguments ...string) ([]byte, error) {
		cmd := exec.CommandContext(ctx, "ctr", append([]string{"--address", l.Layout.ContainerdSocket(), "--namespace", "k8s.io", "images"}, arguments...)...) // #nosec G204 -- the node's own images.
		out, err := cmd.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("ctr images %s: %w\n%s", strings.Join(arguments, " "), err, out)
		}
		return out, nil
	}
	listed, err := ctr("list", "--quiet")
	if err != nil {
		return nil, err
	}
	if old := slices.DeleteFunc(strings.Fields(string(listed)), func(reference string) bool { return !standsForAny(names, reference) }); len(old) > 0 {
		if _, err := ctr(append([]string{"remove"}, old...)...); err != nil {
			return nil, err
		}
	}
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if !runsAny(names, pod) {
			continue
		}
		if err := c.Delete(ctx, pod); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("deleting pod %s: %w", nameOf(pod), err)
		}
		deleted = append(deleted, pod.UID)
	}
	return deleted, nil
}

// standsForAny reports whether an image reference is one of the images of these names.
func standsForAny(names []string, reference string) bool {
	return slices.ContainsFunc(names, func(name string) bool { return images.StandsFor(name, repositoryOf(reference)) })
}

// runsAny reports whether a pod has a container of one of the images.
func runsAny(names []string, pod *corev1.Pod) bool {
	return slices.ContainsFunc(slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers), func(container corev1.Container) bool {
		return standsForAny(names, container.Image)
	})
}

// installed waits until the Extension reports that all of it runs, or a pod of it has an image that nobody gave.
func (a *adding) installed(ctx context.Context, progress step.Progress) (string, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	missing := milestone{kind: corev1.SchemeGroupVersion.WithKind("Pod"), reached: func(objects []unstructured.Unstructured) (bool, string) {
		reference := a.missingImage(objects)
		return reference != "", reference
	}}
	go func() {
		if reference, err := missing.wait(ctx, a.client, func(string) {}); err == nil {
			cancel(fmt.Errorf("nobody gave the image %s: give --image %s=SOURCE, or another reference by the chart's values", reference, nameWithoutHost(reference)))
		}
	}()
	garden, err := a.Landscape.client(virtualGarden)
	if err != nil {
		return "", err
	}
	go wait.UntilWithContext(ctx, func(ctx context.Context) { a.remind(ctx, garden) }, remindInterval)
	all, err := cluster.List(ctx, garden, seeds)
	if err != nil {
		return "", err
	}
	served := servedSeeds(all)
	always := a.always && len(served) > 0
	_, err = a.wait(ctx, progress, []milestone{
		{
			title: "Extension " + a.Name + " is installed", kind: operatorExtensions,
			options: []client.ListOption{client.MatchingFields{"metadata.name": a.Name}}, reached: runsInTheGarden,
		},
		{title: "its instances in seeds are healthy", on: virtualGarden, kind: controllerInstallations, reached: func(objects []unstructured.Unstructured) (bool, string) {
			return runsInSeeds(a.Name, served, always, objects)
		}},
		{title: "pods have its images", kind: corev1.SchemeGroupVersion.WithKind("Pod"), reached: a.renewed},
	})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return "", cause
	}
	return "installed, and healthy where it is needed", err
}

// remindInterval is how often gardenlet is reminded. It takes half a minute until it can see what it missed.
const remindInterval = 20 * time.Second

// remind has gardenlet look again at ControllerInstallations of the extension that it dropped: where an extension of the same name was removed
// minutes ago, it does not see the new ControllerDeployment at first, and nothing but a change makes it look again.
func (a *adding) remind(ctx context.Context, garden client.Client) {
	all, err := cluster.List(ctx, garden, controllerInstallations)
	if err != nil {
		return
	}
	for i := range all {
		registration, _, _ := unstructured.NestedString(all[i].Object, "spec", "registrationRef", "name")
		isSeen := slices.ContainsFunc(cluster.StatusOf(&all[i]).Conditions, func(c cluster.Condition) bool { return c.Type == "Valid" })
		if registration != a.Name || isSeen || a.Now().Sub(all[i].GetCreationTimestamp().Time) < remindInterval {
			continue
		}
		object := objectOf(controllerRegistrations, "", registration)
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, remindedAnnotation, a.Now().UTC().Format(time.RFC3339))
		_ = garden.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	}
}

// runsInTheGarden wants an Extension that is installed, and whose admission and instance in the garden runtime cluster are healthy as far as
// there have to be any.
func runsInTheGarden(objects []unstructured.Unstructured) (bool, string) {
	if len(objects) == 0 {
		return false, "it is not there"
	}
	status := cluster.StatusOf(&objects[0])
	if status.ObservedGeneration == nil || *status.ObservedGeneration < objects[0].GetGeneration() {
		return false, "gardener-operator has not seen it yet"
	}
	wanted := []string{"Installed"}
	if slices.ContainsFunc(status.Conditions, func(c cluster.Condition) bool { return c.Type == "RequiredRuntime" && c.Status == "True" }) {
		wanted = append(wanted, "RuntimeHealthy")
	}
	if _, found, _ := unstructured.NestedMap(objects[0].Object, "spec", "deployment", "admission"); found {
		wanted = append(wanted, "AdmissionHealthy")
	}
	if missing := notTrue(status.Conditions, wanted...); missing != "" {
		return false, missing
	}
	return true, strings.Join(wanted, ", ")
}

// servedSeeds returns the names of the Seeds that have a gardenlet, which reports when its certificate expires. Those of example/states have none.
func servedSeeds(all []unstructured.Unstructured) sets.Set[string] {
	names := sets.New[string]()
	for _, seed := range all {
		if _, found, _ := unstructured.NestedString(seed.Object, "status", "clientCertificateExpirationTimestamp"); found {
			names.Insert(seed.GetName())
		}
	}
	return names
}

// runsInSeeds wants the ControllerInstallations of the extension in these Seeds to be healthy, and one at least if it is always deployed.
func runsInSeeds(name string, seeds sets.Set[string], always bool, objects []unstructured.Unstructured) (bool, string) {
	count := 0
	for i := range objects {
		registration, _, _ := unstructured.NestedString(objects[i].Object, "spec", "registrationRef", "name")
		seed, _, _ := unstructured.NestedString(objects[i].Object, "spec", "seedRef", "name")
		if registration != name || !seeds.Has(seed) {
			continue
		}
		count++
		conditions := cluster.StatusOf(&objects[i]).Conditions
		if missing := notTrue(conditions, "Valid", "Installed", "Healthy"); missing != "" {
			return false, nameOf(&objects[i]) + ": " + missing
		}
		if slices.ContainsFunc(conditions, func(c cluster.Condition) bool { return c.Type == "Progressing" && c.Status == "True" }) {
			return false, nameOf(&objects[i]) + " is Progressing"
		}
	}
	switch {
	case count == 0 && always:
		return false, "there is none yet"
	case count == 0:
		return true, "there is none: no Seed and no Shoot needs it yet"
	}
	return true, fmt.Sprintf("%d instances", count)
}

// renewed wants new pods, and ready ones, in the place of those that had former images.
func (a *adding) renewed(objects []unstructured.Unstructured) (bool, string) {
	for _, object := range objects {
		pod := as[corev1.Pod](object)
		if !runsAny(a.given, pod) {
			continue
		}
		if slices.Contains(a.replaced, pod.UID) || !isReady(pod) && !hasEnded(pod) {
			return false, "waiting for pod " + nameOf(pod)
		}
	}
	return true, fmt.Sprintf("%d replaced", len(a.replaced))
}

// stuckPatience is how long pods that could not get an image before have to be replaced by others.
const stuckPatience = 2 * time.Minute

// missingImage is the reference of an image that a pod of the extension can't get, or "". Those that were given are there by now. In the
// namespace garden are pods of others' admissions, too: of these only new ones count.
func (a *adding) missingImage(objects []unstructured.Unstructured) string {
	own := regexp.MustCompile("^(runtime-extension-" + regexp.QuoteMeta(a.Name) + "|extension-" + regexp.QuoteMeta(a.Name) + "-[a-z0-9]{5})$")
	for _, object := range objects {
		pod := as[corev1.Pod](object)
		isOwn := own.MatchString(pod.Namespace)
		if !isOwn && pod.Namespace != "garden" || a.stuck.Has(pod.UID) && (!isOwn || a.Now().Sub(a.began) < stuckPatience) {
			continue
		}
		if image := lackingImage(pod, a.given); image != "" {
			return image
		}
	}
	return ""
}

// lackingImage is the reference of an image that a pod can't get, other than those that were given, or "".
func lackingImage(pod *corev1.Pod, given []string) string {
	for _, container := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		if waiting := container.State.Waiting; waiting != nil && !standsForAny(given, container.Image) && slices.Contains([]string{"ErrImagePull", "ImagePullBackOff", "InvalidImageName"}, waiting.Reason) {
			return container.Image
		}
	}
	return ""
}

// nameWithoutHost is what --image would call an image.
func nameWithoutHost(reference string) string {
	repository := repositoryOf(reference)
	if host, rest, found := strings.Cut(repository, "/"); found && strings.ContainsAny(host, ".:") {
		return rest
	}
	return repository
}

// RemoveExtension deletes an extension that was added, with its images. It waits until Gardener has removed it everywhere.
func (l Landscape) RemoveExtension(ctx context.Context, name string) error {
	c, err := l.gardenClient()
	if err != nil {
		return fmt.Errorf("removing extension %s: %w", name, err)
	}
	object := objectOf(operatorExtensions, "", name)
	err = c.Get(ctx, client.ObjectKeyFromObject(object), object)
	if apierrors.IsNotFound(err) {
		_, err := fmt.Fprintf(l.Out, "there is no Extension %s\n", name)
		return err
	}
	if err != nil {
		return fmt.Errorf("removing extension %s: %w", name, err)
	}
	if !isGiven(object) {
		return fmt.Errorf("removing extension %s: it was not added by 'landscape extension add'", name)
	}
	names := givenImages(object)
	return step.Runner{Out: l.Out, Now: l.Now}.Run(ctx, []step.Step{
		{Name: "removed", Title: "Gardener has removed it", Remedy: "delete what uses it, and run it again", Execute: func(ctx context.Context, progress step.Progress) (string, error) {
			// Gardener refuses what is used, and sees seconds later that it no longer is.
			var refused error
			err := wait.PollUntilContextTimeout(ctx, time.Second, time.Minute, true, func(ctx context.Context) (bool, error) {
				refused = client.IgnoreNotFound(c.Delete(ctx, object))
				return !apierrors.IsForbidden(refused), nil
			})
			if refused != nil || err != nil {
				return "", errors.Join(refused, err)
			}
			// While the Extension is there: it is what tells their names if this is interrupted.
			var errs []error
			for _, image := range names {
				errs = append(errs, images.DeleteTag(ctx, l.tag(image)))
			}
			for _, chart := range []string{"extension", "admission-runtime", "admission-application"} {
				errs = append(errs, images.DeleteTag(ctx, l.chartTag(name, chart)))
			}
			if err := errors.Join(errs...); err != nil {
				return "", err
			}
			return l.wait(ctx, progress, []milestone{{
				title: "Extension " + name + " is gone", kind: operatorExtensions, options: []client.ListOption{client.MatchingFields{"metadata.name": name}},
				reached: func(objects []unstructured.Unstructured) (bool, string) {
					if len(objects) == 0 {
						return true, "gone"
					}
					return false, whyThere(&objects[0])
				},
			}})
		}},
		{Name: "images", Title: "its images are gone", Remedy: "run it again", Execute: func(ctx context.Context, _ step.Progress) (string, error) {
			_, err := l.renew(ctx, c, names)
			return fmt.Sprintf("%d images", len(names)), errors.Join(err, os.RemoveAll(l.Layout.Binary(filepath.Join("extensions", name))))
		}},
	})
}

// forgetGiven removes what came along with extensions from the registry, which outlives the landscape: in the next one it would stand for
// images that nobody gave there.
func (l Landscape) forgetGiven() error {
	if !exists(l.Layout.Registry()) {
		return nil
	}
	return registry.Prune(l.Layout.Registry(), func(repository, _ string) bool {
		return !strings.HasPrefix(repository, registry.Given) && !strings.HasPrefix(repository, chartsFolder)
	})
}

// whyThere tells why an object is still there.
func whyThere(object *unstructured.Unstructured) string {
	verdict, wrong := judgeConditions(cluster.StatusOf(object).Conditions, false)
	if verdict == good {
		return "Gardener is removing it"
	}
	return strings.Join(wrong, ", ")
}
