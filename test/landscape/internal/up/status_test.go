// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package up

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/cluster"
	"github.com/gardener/gardener-extension-provider-local/test/landscape/internal/images"
)

func with(o *unstructured.Unstructured, value any, fields ...string) *unstructured.Unstructured {
	if err := unstructured.SetNestedField(o.Object, value, fields...); err != nil {
		panic(err)
	}
	return o
}

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		name   string
		object *unstructured.Unstructured
		want   mark
		detail string
	}{
		{name: "an object without a word of its controller is on its way", object: object(shoots, "x", ""), want: busy, detail: "nothing is reported yet"},
		{name: "an object at work is on its way, whatever its conditions are", want: busy, detail: "Reconcile Processing 42%: Waiting; A is False: because",
			object: with(with(object(shoots, "x", "Processing", condition("A", "False")), int64(42), "status", "lastOperation", "progress"), "Waiting", "status", "lastOperation", "description")},
		{name: "a failed object is not healthy, and the last error says why", want: bad, detail: "Reconcile Error: quota; 1 conditions as they should be",
			object: with(object(shoots, "x", "Error", condition("A", "True")), []any{map[string]any{"description": "quota"}}, "status", "lastErrors")},
		{name: "a reconciled object with a False condition is not healthy", want: bad, detail: "Reconcile Succeeded; A is False: because",
			object: object(seeds, "x", "Succeeded", condition("A", "False"), condition("B", "True"))},
		{name: "a reconciled object with an Unknown condition is not healthy", want: bad, detail: "Unknown",
			object: object(seeds, "x", "Succeeded", condition("A", "Unknown"))},
		{name: "what is False comes before what is Unknown", want: bad, detail: "; B is False: because, A is Unknown: because",
			object: object(seeds, "x", "Succeeded", condition("A", "Unknown"), condition("B", "False"))},
		{name: "a condition that may become True soon is on its way", want: busy, detail: "A is Progressing",
			object: object(seeds, "x", "Succeeded", condition("A", "Progressing"))},
		{name: "one bad condition outweighs one that is on its way", want: bad, detail: "B is False",
			object: object(seeds, "x", "Succeeded", condition("A", "Progressing"), condition("B", "False"), condition("C", "Progressing"))},
		{name: "what an Etcd doesn't know yet is on its way", object: object(etcds, "x", "Succeeded", condition("BackupReady", "Unknown")), want: busy},
		{name: "no cluster IDs of an Etcd need to differ", object: object(etcds, "x", "Succeeded", condition("ClusterIDMismatch", "False")), want: good},
		{name: "a ControllerInstallation need not be required, nor progressing", want: good, detail: "2 conditions as they should be",
			object: object(controllerInstallations, "x", "", condition("Required", "False"), condition("Progressing", "False"), condition("Healthy", "True"))},
		{name: "a ControllerInstallation that progresses is on its way", want: busy,
			object: object(controllerInstallations, "x", "", condition("Progressing", "True"), condition("Healthy", "True"))},
		{name: "a generation that nobody has seen is on its way", want: busy, detail: "newest generation",
			object: with(with(object(shoots, "x", "Succeeded"), int64(2), "metadata", "generation"), int64(1), "status", "observedGeneration")},
		{name: "a request for an operation is on its way", want: busy, detail: "asked for",
			object: with(object(seeds, "x", "Succeeded"), "reconcile", "metadata", "annotations", "gardener.cloud/operation")},
		{name: "an error after success is bad", want: bad, object: with(object(seeds, "x", "Succeeded"), "refused", "status", "lastError", "description")},
		{name: "a healthy object is fine", object: object(seeds, "x", "Succeeded", condition("A", "True")), want: good},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			got, detail := judge(test.object)
			g.Expect(got).To(Equal(test.want), detail)
			g.Expect(detail).To(ContainSubstring(test.detail))
		})
	}
}

func TestActivityExcusesOnlyWhatBelongsToIt(t *testing.T) {
	g := NewWithT(t)
	a := activity{shoots: map[string]bool{"shoot--local--new": true, "shoot--local--old": false}}
	at := func(namespace, name, state string) mark {
		o := object(cluster.ExtensionKind("Worker"), name, state)
		o.SetNamespace(namespace)
		verdict, _ := a.judge(o)
		return verdict
	}
	g.Expect(at("shoot--local--new", "x", "Processing")).To(Equal(busy))
	g.Expect(at("shoot--local--new", "x", "Error")).To(Equal(bad))
	g.Expect(at("shoot--local--new", "x", "Succeeded")).To(Equal(good))
	g.Expect(at("shoot--local--old", "x", "")).To(Equal(bad))
	g.Expect(at("", "shoot--local--new--0123", "")).To(Equal(busy))
	g.Expect(at("garden", "x", "Processing")).To(Equal(bad))
	a.landscape = true
	g.Expect(at("garden", "x", "Processing")).To(Equal(busy))
	g.Expect(at("shoot--local--old", "x", "")).To(Equal(bad))
}

func TestReportPutsProblemsFirst(t *testing.T) {
	g := NewWithT(t)
	r := &report{}
	r.section("A").add(good, "Seed", "local", "fine")
	r.section("EMPTY")
	s := r.section("B")
	s.add(busy, "Shoot", "new", "Create Processing")
	s.add(bad, "Shoot", "old", "line\n\tbreak "+strings.Repeat("ö", 200))
	var out bytes.Buffer
	g.Expect(r.print(&out)).To(Succeed())
	g.Expect(out.String()).To(Equal("NOT HEALTHY\n  BAD  Shoot  old  line break " + strings.Repeat("ö", 149) + "...\n\n" +
		"ON THEIR WAY\n  busy  Shoot  new  Create Processing\n\n" +
		"A\n  ok  Seed  local  fine\n\n" +
		"B\n  busy  Shoot  new  Create Processing\n  BAD   Shoot  old  line break " + strings.Repeat("ö", 149) + "...\n\n"))
	g.Expect(r.err()).To(MatchError("1 things are not healthy"))
	g.Expect((&report{}).err()).To(Succeed())
}

// reader is a client for objects of any kind.
func reader(objects ...client.Object) client.Reader {
	return fakeclient.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).Build()
}

func workload(kind schema.GroupVersionKind, namespace, name string, status map[string]any) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}, "status": status}}
	o.SetGroupVersionKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

func surveyed(t *testing.T, runtime, virtual client.Reader) (*report, map[string]string) {
	t.Helper()
	table, err := images.Load(nil)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	s := &survey{report: &report{}, table: table, runtime: runtime, virtual: virtual}
	return s.report, s.run(t.Context(), s.report.section("API SERVERS"))
}

func node1() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "node1"},
		Status:     corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

func TestSurveyOfABareClusterIsHealthy(t *testing.T) {
	g := NewWithT(t)
	r, _ := surveyed(t, reader(node1()), nil)
	g.Expect(r.err()).To(Succeed())
	g.Expect(r.marked(good)).To(ConsistOf(row{good, "Node", "node1", "Ready"}))
	g.Expect(r.marked(note)).To(ContainElements(row{note, "", "", "is not deployed yet"}, row{note, "", "", "is not brought up yet"}))
}

func TestSurveyExcusesAGardenOnItsWay(t *testing.T) {
	g := NewWithT(t)
	record := workload(cluster.ExtensionKind("DNSRecord"), "garden", "api", map[string]any{})
	_ = unstructured.SetNestedField(record.Object, "garden", "spec", "class")
	r, _ := surveyed(t, reader(node1(), object(gardens, "local", "Processing"), record,
		workload(deployments, "garden", "virtual-garden-kube-apiserver", map[string]any{}),
	), nil)
	g.Expect(r.err()).To(Succeed())
	g.Expect(r.marked(busy)).To(ConsistOf(
		HaveField("Kind", "Garden"), HaveField("Name", "garden/api"), HaveField("Name", "garden/virtual-garden-kube-apiserver"),
	))
}

func TestSurveyFindsWhatIsNotHealthy(t *testing.T) {
	g := NewWithT(t)
	shoot := with(object(shoots, "local", "Succeeded", condition("APIServerAvailable", "True")), "shoot--local--local", "status", "technicalID")
	shoot.SetNamespace("garden-local")
	infrastructure := workload(cluster.ExtensionKind("Infrastructure"), "shoot--local--local", "local", map[string]any{})
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--local--local", Name: "machine", UID: "0123"},
		Spec: corev1.PodSpec{Containers: []corev1.Container{
			{Name: "a", Image: "172.18.255.1:5001/local-skaffold/gardenlet-extension:v1@sha256:00"}, {Name: "b", Image: "example.com/calico/typha:v1"},
			{Name: "c", Image: "europe-docker.pkg.dev/gardener-project/releases/gardener/etcd-wrapper:v0.1"},
		}},
		Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "a", RestartCount: 7, State: corev1.ContainerState{
			Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff", Message: "back-off"}}}}},
	}
	r, pods := surveyed(t,
		reader(node1(), object(gardens, "local", "Succeeded", condition("A", "True")), infrastructure, pod,
			workload(daemonSets, "kube-system", "x", map[string]any{"desiredNumberScheduled": int64(1), "numberAvailable": int64(1)}),
			workload(statefulSets, "garden", "prometheus", map[string]any{"availableReplicas": int64(0)})),
		reader(object(seeds, "local", "Processing"), shoot,
			with(object(controllerInstallations, "local-x", "", condition("Healthy", "False")), "local", "spec", "seedRef", "name")),
	)
	g.Expect(pods).To(Equal(map[string]string{"0123": "shoot--local--local/machine"}))
	g.Expect(r.marked(bad)).To(ConsistOf(
		row{bad, "Infrastructure", "shoot--local--local/local", "nothing is reported yet"},
		row{bad, "Pod", "shoot--local--local/machine", "container a: CrashLoopBackOff after 7 restarts: back-off"},
	), "the Shoot is reconciled, so nothing of it may be unhealthy")
	g.Expect(r.marked(busy)).To(ConsistOf(
		HaveField("Kind", "Seed"), HaveField("Kind", "ControllerInstallation"), HaveField("Name", "garden/prometheus"),
	), "the Seed is on its way")
	g.Expect(r.marked(note)).To(ContainElements(
		row{note, "real", "1 containers, 1 images", "gardenlet-extension"},
		row{note, "functional", "1 containers, 1 images", "etcd-wrapper"},
		row{note, "stand-in", "1 containers, 1 images", "typha"},
		row{note, "DaemonSet", "1 of 1", "available"},
	))
}

func TestSurveyExcusesAHibernatedShoot(t *testing.T) {
	g := NewWithT(t)
	shoot := with(object(shoots, "local", "Succeeded"), "shoot--local--local", "status", "technicalID")
	coreDNS := workload(managedResources, "shoot--local--local", "shoot-core-coredns", map[string]any{
		"conditions": []any{map[string]any{"type": "ResourcesHealthy", "status": "False"}},
	})
	r, _ := surveyed(t, reader(node1(), coreDNS), reader(shoot))
	g.Expect(r.err()).To(MatchError("1 things are not healthy"))
	r, _ = surveyed(t, reader(node1(), coreDNS), reader(with(shoot, true, "status", "hibernated")))
	g.Expect(r.err()).To(Succeed(), "its nodes are gone, and with them all that runs there")
}

func TestSurveyShowsTheRestIfAnAPIServerFails(t *testing.T) {
	g := NewWithT(t)
	broken := fakeclient.NewClientBuilder().WithInterceptorFuncs(interceptor.Funcs{
		List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("cut off")
		},
	}).Build()
	r, _ := surveyed(t, reader(node1()), broken)
	g.Expect(r.marked(bad)).To(ConsistOf(row{bad, "cluster", "virtual garden", "listing the objects of kind Seed: cut off"}))
	g.Expect(r.marked(good)).To(ConsistOf(HaveField("Kind", "Node")))
}

func TestOneLineHasNothingThatATerminalObeys(t *testing.T) {
	NewWithT(t).Expect(oneLine("a\x1b[2J\r\nb\u009bc", 80)).To(Equal("a [2J b c"))
}
