// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/layout"
)

func adds(t *testing.T, e Extension) *adding {
	t.Helper()
	e.Name = "foo"
	return &adding{Landscape: Landscape{Layout: layout.Layout{Root: t.TempDir()}}, Extension: e}
}

func file(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file.yaml")
	NewWithT(t).Expect(os.WriteFile(path, []byte(content), 0o600)).To(Succeed())
	return path
}

const manifest = `apiVersion: v1
kind: ConfigMap
metadata: {name: a}
---
apiVersion: operator.gardener.cloud/v1alpha1
kind: Extension
metadata: {name: other, annotations: {a: b}}
spec:
  resources: [{kind: Extension, type: foo}]
  deployment: {extension: {values: {a: {b: 1, c: 2}, d: 3}}}
status: {observedGeneration: 1}
`

func TestTheManifestIsTakenWithAnotherName(t *testing.T) {
	g := NewWithT(t)
	a := adds(t, Extension{Manifest: file(t, manifest), Values: file(t, "a: {b: 4}\nd: null\n")})
	a.given = []string{"x", "y/z"}
	object, err := a.manifest(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(a.setValues(object)).To(Succeed())
	g.Expect(object.Object).To(Equal(map[string]any{
		"apiVersion": "operator.gardener.cloud/v1alpha1", "kind": "Extension",
		"metadata": map[string]any{"name": "foo", "annotations": map[string]any{"a": "b", givenAnnotation: "x,y/z"}},
		"spec": map[string]any{
			"resources":  []any{map[string]any{"kind": "Extension", "type": "foo"}},
			"deployment": map[string]any{"extension": map[string]any{"values": map[string]any{"a": map[string]any{"b": float64(4), "c": float64(2)}}}},
		},
	}))
}

func TestAnExtensionIsMadeOfResources(t *testing.T) {
	g := NewWithT(t)
	object, err := adds(t, Extension{Resources: []string{"Extension/foo", "DNSRecord/foo"}, Chart: "x"}).manifest(t.Context())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(object.Object["spec"]).To(Equal(map[string]any{
		"resources":  []any{map[string]any{"kind": "Extension", "type": "foo"}, map[string]any{"kind": "DNSRecord", "type": "foo"}},
		"deployment": map[string]any{"extension": map[string]any{"policy": "Always"}},
	}))
}

func TestWhatCannotBeAddedIsRefusedFirst(t *testing.T) {
	for _, test := range []struct {
		name      string
		extension Extension
		want      string
	}{
		{name: "nothing", want: "Give --manifest, or --resource and --chart"},
		{name: "no chart", extension: Extension{Resources: []string{"a/b"}}, want: "--resource and --chart"},
		{name: "a resource without type", extension: Extension{Resources: []string{"Extension"}, Chart: "x"}, want: "--resource Extension: expected KIND/TYPE"},
		{name: "a manifest of something else", extension: Extension{Manifest: file(t, "apiVersion: v1\nkind: Secret\nmetadata: {name: a}\n")}, want: "has no Extension of operator.gardener.cloud/v1alpha1"},
		{name: "a manifest that is not there", extension: Extension{Manifest: "no-such-file"}, want: "no such file"},
		{name: "an image without source", extension: Extension{Images: []string{"foo"}}, want: "expected NAME=SOURCE"},
		{name: "an image with a tag", extension: Extension{Images: []string{"foo:v1=x"}}, want: "a repository without host and tag"},
		{name: "an image twice", extension: Extension{Images: []string{"foo=x", "foo=y"}}, want: "--image foo is given twice"},
		{name: "an image that the landscape has", extension: Extension{Images: []string{"kube-apiserver=x"}}, want: "the landscape has that image itself"},
		{name: "no Garden", extension: Extension{Manifest: file(t, manifest)}, want: cmp.Or(map[bool]string{true: "there is no Garden yet"}[os.Geteuid() == 0], "run it with sudo")},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := adds(t, test.extension).prepare(t.Context())
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.want)))
		})
	}
	a := adds(t, Extension{})
	a.Name = "../foo"
	_, err := a.prepare(t.Context())
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("no Extension can have that name")))
}

func TestAChartIsAFolderOrAWholeReference(t *testing.T) {
	a := adds(t, Extension{})
	a.Chart = "charts/mistyped"
	_, err := a.charts(t.Context(), silent, &unstructured.Unstructured{})
	NewWithT(t).Expect(err).To(MatchError(ContainSubstring("the chart charts/mistyped is neither a folder nor the whole reference")))
	a.Chart = "oci://registry.example/charts/mine:v1"
	object := &unstructured.Unstructured{Object: map[string]any{}}
	_, err = a.charts(t.Context(), silent, object)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	reference, _, _ := unstructured.NestedString(object.Object, "spec", "deployment", "extension", "helm", "ociRepository", "ref")
	NewWithT(t).Expect(reference).To(Equal("registry.example/charts/mine:v1"))
}

func TestAFolderOfACheckoutIsFoundWithItsModule(t *testing.T) {
	g := NewWithT(t)
	root := t.TempDir()
	g.Expect(os.MkdirAll(filepath.Join(root, "cmd", "foo"), 0o700)).To(Succeed())
	l := Landscape{}
	_, _, err := l.goFolder(t.Context(), filepath.Join(root, "cmd", "foo"))
	g.Expect(err).To(MatchError(ContainSubstring("is in no Go module")))
	g.Expect(os.WriteFile(filepath.Join(root, "go.mod"), []byte("module foo\n"), 0o600)).To(Succeed())
	module, folder, err := l.goFolder(t.Context(), filepath.Join(root, "cmd", "foo"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect([]string{module, folder}).To(Equal([]string{root, "cmd/foo"}))
}

func TestAFolderOfAModuleIsFound(t *testing.T) {
	g := NewWithT(t)
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}}
	// Modules of this module's, so that they are there already.
	for what, want := range map[string][]string{
		"github.com/spf13/cobra/doc@v1.10.2": {"github.com/spf13/cobra@v1.10.2", "doc"},
		"sigs.k8s.io/yaml/kyaml@v1.6.0":      {"sigs.k8s.io/yaml@v1.6.0", "kyaml"},
	} {
		module, folder, err := l.goFolder(t.Context(), what)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(module).To(HaveSuffix(want[0]))
		g.Expect(folder).To(Equal(want[1]))
	}
	_, _, err := l.goFolder(t.Context(), "github.com/spf13/cobra/no-such-folder@v1.10.2")
	g.Expect(err).To(MatchError(ContainSubstring("no module of that version has the folder")))
}

func objects(t *testing.T, content string) (all []unstructured.Unstructured) {
	t.Helper()
	for _, o := range parse(t, content) {
		// As an API server's answers are, whose numbers are integers.
		content, err := o.MarshalJSON()
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
		NewWithT(t).Expect(o.UnmarshalJSON(content)).To(Succeed())
		all = append(all, *o)
	}
	return all
}

func TestWhatRunsInTheGarden(t *testing.T) {
	for _, test := range []struct {
		name, content string
		runs          bool
		tells         string
	}{
		{name: "nothing", tells: "it is not there"},
		{name: "one that nobody has seen", content: "metadata: {generation: 1}", tells: "gardener-operator has not seen it yet"},
		{name: "one that changed since", content: "metadata: {generation: 2}\nstatus: {observedGeneration: 1}", tells: "has not seen it yet"},
		{name: "one without a report", content: "metadata: {generation: 1}\nstatus: {observedGeneration: 1}", tells: "Installed is not reported yet"},
		{name: "a failed one", content: "metadata: {generation: 1}\nstatus: {observedGeneration: 1, conditions: [{type: Installed, status: 'False', message: no chart}]}", tells: "Installed is False: no chart"},
		{name: "one that is not needed", content: "metadata: {generation: 1}\nstatus: {observedGeneration: 1, conditions: [{type: Installed, status: 'True'}, {type: RequiredRuntime, status: 'False'}]}", runs: true, tells: "Installed"},
		{name: "one that does not run in the garden", content: "metadata: {generation: 1}\nstatus: {observedGeneration: 1, conditions: [{type: Installed, status: 'True'}, {type: RequiredRuntime, status: 'True'}, {type: RuntimeHealthy, status: 'False', message: no pod}]}", tells: "RuntimeHealthy is False: no pod"},
		{name: "one without its admission", content: "metadata: {generation: 1}\nspec: {deployment: {admission: {}}}\nstatus: {observedGeneration: 1, conditions: [{type: Installed, status: 'True'}]}", tells: "AdmissionHealthy is not reported yet"},
		{name: "one with its admission", content: "metadata: {generation: 1}\nspec: {deployment: {admission: {}}}\nstatus: {observedGeneration: 1, conditions: [{type: Installed, status: 'True'}, {type: AdmissionHealthy, status: 'True'}]}", runs: true, tells: "Installed, AdmissionHealthy"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			var all []unstructured.Unstructured
			if test.content != "" {
				all = objects(t, "apiVersion: operator.gardener.cloud/v1alpha1\nkind: Extension\n"+test.content)
			}
			runs, tells := runsInTheGarden(all)
			g.Expect(runs).To(Equal(test.runs))
			g.Expect(tells).To(ContainSubstring(test.tells))
		})
	}
}

func TestWhatRunsInSeeds(t *testing.T) {
	installation := func(healthy string) string {
		return "apiVersion: core.gardener.cloud/v1beta1\nkind: ControllerInstallation\nmetadata: {name: foo-abcde}\nspec: {registrationRef: {name: foo}, seedRef: {name: local}}\nstatus: {conditions: [{type: Required, status: 'False'}, {type: Valid, status: 'True'}, {type: Installed, status: 'True'}, {type: Healthy, status: '" + healthy + "', message: m}]}"
	}
	g := NewWithT(t)
	seeds := servedSeeds(objects(t, `
apiVersion: core.gardener.cloud/v1beta1
kind: Seed
metadata: {name: local}
status: {clientCertificateExpirationTimestamp: "2026-01-01T00:00:00Z"}
---
apiVersion: core.gardener.cloud/v1beta1
kind: Seed
metadata: {name: states}
status: {gardener: {name: states}}
`))
	g.Expect(seeds.UnsortedList()).To(ConsistOf("local"))
	for _, test := range []struct {
		content, name string
		always, runs  bool
		tells         string
	}{
		{content: installation("False"), name: "other", runs: true, tells: "no Seed and no Shoot needs it yet"},
		{content: installation("False"), name: "other", always: true, tells: "there is none yet"},
		{content: installation("False"), name: "foo", tells: "foo-abcde: Healthy is False: m"},
		{content: installation("True"), name: "foo", always: true, runs: true, tells: "1 instances"},
		{content: strings.Replace(installation("True"), "type: Valid", "type: Other", 1), name: "foo", always: true, tells: "Valid is not reported yet"},
		{content: strings.Replace(installation("False"), "{name: local}", "{name: states}", 1), name: "foo", runs: true, tells: "no Seed and no Shoot needs it yet"},
	} {
		runs, tells := runsInSeeds(test.name, seeds, test.always, objects(t, test.content))
		g.Expect(runs).To(Equal(test.runs), test.tells)
		g.Expect(tells).To(ContainSubstring(test.tells))
	}
}

const pods = `
apiVersion: v1
kind: Pod
metadata: {namespace: extension-foo-abcde, name: new, uid: new}
spec: {containers: [{name: a, image: "example.com:5000/extensions/foo:v1"}]}
status: {conditions: [{type: Ready, status: "True"}]}
---
apiVersion: v1
kind: Pod
metadata: {namespace: shoot--a--b, name: other, uid: other}
spec: {containers: [{name: a, image: "example.com/not-foo"}]}
status: {containerStatuses: [{name: a, image: "example.com/not-foo", state: {waiting: {reason: ErrImagePull}}}]}
`

func TestGardenletIsRemindedOfWhatItDropped(t *testing.T) {
	g := NewWithT(t)
	c := explainedIn(parse(t, `
apiVersion: core.gardener.cloud/v1beta1
kind: ControllerRegistration
metadata: {name: foo}
---
apiVersion: core.gardener.cloud/v1beta1
kind: ControllerRegistration
metadata: {name: bar}
---
apiVersion: core.gardener.cloud/v1beta1
kind: ControllerInstallation
metadata: {name: dropped, creationTimestamp: "2026-01-02T02:59:00Z"}
spec: {registrationRef: {name: foo}}
---
apiVersion: core.gardener.cloud/v1beta1
kind: ControllerInstallation
metadata: {name: seen, creationTimestamp: "2026-01-02T02:59:00Z"}
spec: {registrationRef: {name: bar}}
status: {conditions: [{type: Valid, status: "True"}]}
`)).client
	reminded := func(name string) string {
		a := adds(t, Extension{})
		a.Name, a.Now = name, func() time.Time { return explainedAt }
		a.remind(t.Context(), c)
		o := &unstructured.Unstructured{}
		o.SetGroupVersionKind(controllerRegistrations)
		g.Expect(c.Get(t.Context(), client.ObjectKey{Name: name}, o)).To(Succeed())
		return o.GetAnnotations()[remindedAnnotation]
	}
	g.Expect(reminded("foo")).NotTo(BeEmpty())
	g.Expect(reminded("bar")).To(BeEmpty())
}

func TestTheNextLandscapeHasNoImagesOfExtensions(t *testing.T) {
	g := NewWithT(t)
	l := Landscape{Layout: layout.Layout{Root: t.TempDir()}}
	g.Expect(l.forgetGiven()).To(Succeed(), "there is no registry yet")
	g.Expect(os.MkdirAll(l.Layout.Registry(), 0o700)).To(Succeed())
	journal := filepath.Join(l.Layout.Registry(), "manifests.jsonl")
	var lines string
	for _, repository := range []string{"given/foo", "real/foo", "extensions/foo/extension"} {
		lines += `{"repository":"` + repository + `","reference":"latest","mediaType":"m","body":"e30="}` + "\n"
	}
	g.Expect(os.WriteFile(journal, []byte(lines), 0o600)).To(Succeed())
	g.Expect(l.forgetGiven()).To(Succeed())
	left, err := os.ReadFile(journal) // #nosec G304 -- of the test
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(string(left)).To(And(ContainSubstring("real/foo"), Not(ContainSubstring("given/")), Not(ContainSubstring("extensions/"))))
}

func TestNewPodsAreWaitedFor(t *testing.T) {
	g := NewWithT(t)
	a := &adding{given: []string{"foo"}, replaced: []types.UID{"old"}}
	all := objects(t, pods)
	done, _ := a.renewed(all)
	g.Expect(done).To(BeTrue())
	all[0].SetUID("old")
	_, tells := a.renewed(all)
	g.Expect(tells).To(Equal("waiting for pod extension-foo-abcde/new"))
	all[0].SetUID("newer")
	g.Expect(unstructured.SetNestedSlice(all[0].Object, nil, "status", "conditions")).To(Succeed())
	done, _ = a.renewed(all)
	g.Expect(done).To(BeFalse())
}

func TestAnImageThatNobodyGaveIsNamed(t *testing.T) {
	g := NewWithT(t)
	all, a := objects(t, pods), adds(t, Extension{})
	g.Expect(a.missingImage(all)).To(BeEmpty(), "that of somebody else does not count")
	all[1].SetNamespace("runtime-extension-foo")
	g.Expect(a.missingImage(all)).To(Equal("example.com/not-foo"))
	a.given = []string{"not-foo"}
	g.Expect(a.missingImage(all)).To(BeEmpty(), "it has been given meanwhile")
	a.given, a.began, a.stuck = nil, time.Unix(0, 0), sets.New(all[1].GetUID())
	a.Now = func() time.Time { return time.Unix(60, 0) }
	g.Expect(a.missingImage(all)).To(BeEmpty(), "another one may take the place of this pod")
	a.Now = func() time.Time { return time.Unix(180, 0) }
	g.Expect(a.missingImage(all)).NotTo(BeEmpty())
	all[1].SetNamespace("garden")
	g.Expect(a.missingImage(all)).To(BeEmpty(), "it may be of another extension")
	for reference, name := range map[string]string{
		"example.com/a/b:v1":              "a/b",
		"localhost:5000/a@sha256:0123":    "a",
		"library/a":                       "library/a",
		"europe-docker.pkg.dev/x/y/z:1.0": "x/y/z",
	} {
		g.Expect(nameWithoutHost(reference)).To(Equal(name))
		g.Expect(imageName.MatchString(name)).To(BeTrue())
	}
}
