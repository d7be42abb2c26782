// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package statuscontroller

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const provisioner = "test/folder"

func claim() *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "main-etcd", UID: "uid"},
		Spec: corev1.PersistentVolumeClaimSpec{
			StorageClassName: ptr.To("standard"),
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

func TestProvision(t *testing.T) {
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "standard"}, Provisioner: provisioner}
	foreign := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "standard"}, Provisioner: "somebody/else"}
	for _, test := range []struct {
		name   string
		class  *storagev1.StorageClass
		change func(*corev1.PersistentVolumeClaim)
		node   string
		want   bool
	}{
		{name: "makes a volume for a claim of its class", class: class, want: true},
		{name: "makes a volume for a claim of its node", class: class, node: "a", want: true, change: func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{selectedNode: "a"}
		}},
		{name: "leaves a claim of another node alone", class: class, node: "b", change: func(c *corev1.PersistentVolumeClaim) {
			c.Annotations = map[string]string{selectedNode: "a"}
		}},
		{name: "leaves a claim alone whose node is not known yet", class: class, node: "b"},
		{name: "leaves another provisioner's claims alone", class: foreign},
		{name: "leaves a bound claim alone", class: class, change: func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName = "x" }},
		{name: "leaves a claim of an unknown class alone", class: class, change: func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("x") }},
		{name: "leaves a claim without class alone", class: class, change: func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			c := fake.NewClientBuilder().WithObjects(test.class).Build()
			v := &volumes{client: c, opts: Options{Volumes: t.TempDir(), Provisioner: provisioner, Node: test.node}}
			pvc := claim()
			if test.change != nil {
				test.change(pvc)
			}
			for range 2 {
				_, err := v.provision(t.Context(), pvc)
				g.Expect(err).NotTo(HaveOccurred())
			}
			list := &corev1.PersistentVolumeList{}
			g.Expect(c.List(t.Context(), list)).To(Succeed())
			if !test.want {
				g.Expect(list.Items).To(BeEmpty())
				return
			}
			g.Expect(list.Items).To(HaveLen(1))
			spec := list.Items[0].Spec
			g.Expect(spec.ClaimRef.UID).To(Equal(pvc.UID))
			where := corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpExists}
			if test.node != "" {
				where.Operator, where.Values = corev1.NodeSelectorOpIn, []string{test.node}
			}
			g.Expect(spec.NodeAffinity.Required.NodeSelectorTerms).To(HaveExactElements(HaveField("MatchExpressions", HaveExactElements(where))), "its Pod can't move to another node")
			g.Expect(spec.Capacity.Storage().String()).To(Equal("1Gi"))
			info, err := os.Stat(spec.Local.Path)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(info.Mode().Perm()).To(Equal(os.FileMode(0o777)), "pods run as any user")
		})
	}
}

func TestReclaim(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*corev1.PersistentVolume)
		removed bool
	}{
		{name: "removes a released volume with its data", change: func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeReleased }, removed: true},
		{name: "keeps a bound volume", change: func(v *corev1.PersistentVolume) { v.Status.Phase = corev1.VolumeBound }},
		{name: "keeps another provisioner's volume", change: func(v *corev1.PersistentVolume) {
			v.Status.Phase, v.Annotations = corev1.VolumeReleased, nil
		}},
		{name: "keeps another node's volume", change: func(v *corev1.PersistentVolume) {
			v.Status.Phase, v.Annotations[selectedNode] = corev1.VolumeReleased, "a"
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			root := t.TempDir()
			folder := filepath.Join(root, "data")
			g.Expect(os.MkdirAll(filepath.Join(folder, "member"), 0o700)).To(Succeed())
			volume := &corev1.PersistentVolume{
				ObjectMeta: metav1.ObjectMeta{Name: "v", Annotations: map[string]string{provisionedBy: provisioner}},
				Spec:       corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: folder}}},
			}
			test.change(volume)
			c := fake.NewClientBuilder().WithObjects(volume).Build()
			v := &volumes{client: c, opts: Options{Volumes: root, Provisioner: provisioner}}
			_, err := v.reclaim(t.Context(), volume)
			g.Expect(err).NotTo(HaveOccurred())
			_, statErr := os.Stat(folder)
			getErr := c.Get(t.Context(), client.ObjectKeyFromObject(volume), &corev1.PersistentVolume{})
			g.Expect(statErr != nil).To(Equal(test.removed))
			g.Expect(getErr != nil).To(Equal(test.removed))
		})
	}
}

func TestReclaimRemovesNothingOutsideOfItsFolder(t *testing.T) {
	g := NewWithT(t)
	outside := filepath.Join(t.TempDir(), "precious")
	g.Expect(os.Mkdir(outside, 0o700)).To(Succeed())
	v := &volumes{opts: Options{Volumes: t.TempDir()}}
	for _, path := range []string{outside, "/", ".."} {
		volume := &corev1.PersistentVolume{Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: corev1.PersistentVolumeSource{
			Local: &corev1.LocalVolumeSource{Path: path},
		}}}
		_ = v.removeFolder(volume)
	}
	g.Expect(outside).To(BeADirectory())
}

func TestSetAvailable(t *testing.T) {
	for _, test := range []struct {
		name     string
		spec     map[string]any
		replicas int64
	}{
		{name: "reports the replicas that are asked for", spec: map[string]any{"replicas": int64(2)}, replicas: 2},
		{name: "reports one replica by default", spec: map[string]any{}, replicas: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			u := &unstructured.Unstructured{Object: map[string]any{"spec": test.spec}}
			u.SetGeneration(3)
			g.Expect(upToDate(u)).To(BeFalse())
			g.Expect(setAvailable(u)).To(Succeed())
			g.Expect(upToDate(u)).To(BeTrue())
			available, _, err := unstructured.NestedInt64(u.Object, "status", "availableReplicas")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(available).To(Equal(test.replicas))
			selector, _, _ := unstructured.NestedString(u.Object, "status", "selector")
			g.Expect(selector).NotTo(BeEmpty(), "VerticalPodAutoscaler reports an error without it")
			u.SetGeneration(4)
			g.Expect(upToDate(u)).To(BeFalse(), "the conditions are about an older generation")
		})
	}
}

func clusterOf(name, operation string, deleted bool) *unstructured.Unstructured {
	shoot := map[string]any{"metadata": map[string]any{}, "status": map[string]any{}}
	if operation != "" {
		shoot["status"] = map[string]any{"lastOperation": map[string]any{"type": operation}}
	}
	if deleted {
		shoot["metadata"] = map[string]any{"deletionTimestamp": "2026-01-02T03:04:05Z"}
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"shoot": shoot}}}
	u.SetGroupVersionKind(clusterKind())
	u.SetName(name)
	return u
}

func TestShootsGetThePoliciesWhileTheyAreInTheSeed(t *testing.T) {
	const name = "shoot--local--test"
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"gardener.cloud/role": "shoot"}}}
	other := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, test := range []struct {
		name    string
		objects []client.Object
		want    bool
	}{
		{name: "a shoot that is being created", objects: []client.Object{namespace, clusterOf(name, "Create", false)}, want: true},
		{name: "a shoot that is being reconciled", objects: []client.Object{namespace, clusterOf(name, "Reconcile", false)}, want: true},
		{name: "a shoot that has come from another seed", objects: []client.Object{namespace, clusterOf(name, "Restore", false)}, want: true},
		{name: "no shoot that goes to another seed", objects: []client.Object{namespace, clusterOf(name, "Migrate", false)}},
		{name: "no shoot that is to be deleted", objects: []client.Object{namespace, clusterOf(name, "Reconcile", true)}},
		{name: "no shoot that is being deleted", objects: []client.Object{namespace, clusterOf(name, "Delete", true)}},
		{name: "no Cluster of a test", objects: []client.Object{namespace, clusterOf(name, "", false)}},
		{name: "no namespace of something else", objects: []client.Object{other, clusterOf(name, "Create", false)}},
		{name: "no namespace without Cluster", objects: []client.Object{namespace}},
		{name: "no Cluster without namespace", objects: []client.Object{clusterOf(name, "Create", false)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			c := fake.NewClientBuilder().WithObjects(test.objects...).Build()
			s := &shoots{client: c, opts: Options{ShootManifest: []byte("a: b")}}
			for range 2 {
				_, err := s.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
				g.Expect(err).NotTo(HaveOccurred())
			}

			secret := &corev1.Secret{}
			getErr := c.Get(t.Context(), client.ObjectKey{Namespace: name, Name: shootSecret}, secret)
			managedResource := &unstructured.Unstructured{}
			managedResource.SetAPIVersion("resources.gardener.cloud/v1alpha1")
			managedResource.SetKind("ManagedResource")
			mrErr := c.Get(t.Context(), client.ObjectKey{Namespace: name, Name: shootResource}, managedResource)
			if !test.want {
				g.Expect(getErr).To(HaveOccurred())
				g.Expect(mrErr).To(HaveOccurred())
				return
			}
			g.Expect(getErr).NotTo(HaveOccurred())
			g.Expect(secret.Data).To(HaveKeyWithValue("policies.yaml", []byte("a: b")))
			g.Expect(mrErr).NotTo(HaveOccurred())
			g.Expect(managedResource.GetLabels()).To(HaveKeyWithValue("origin", "gardener"), "gardenlet deletes it with its own")
			g.Expect(managedResource.Object["spec"]).To(HaveKeyWithValue("secretRefs", ConsistOf(HaveKeyWithValue("name", shootSecret))))
			g.Expect(managedResource.Object["spec"]).To(HaveKeyWithValue("injectLabels", HaveKeyWithValue("shoot.gardener.cloud/no-cleanup", "true")), "gardenlet would delete the objects, which come back")
			g.Expect(managedResource.Object["spec"]).NotTo(HaveKey("class"), "the shoot's gardener-resource-manager applies it")
		})
	}
}

func TestPoliciesHaveTheVersionThatTheShootServes(t *testing.T) {
	g := NewWithT(t)
	manifest := []byte("apiVersion: admissionregistration.k8s.io/v1\nkind: A\n---\napiVersion: rbac.authorization.k8s.io/v1\n---\napiVersion: admissionregistration.k8s.io/v1\n")
	for kubernetes, version := range map[string]string{"1.36.3": "v1", "1.35.4": "v1beta1", "1.34.4": "v1beta1", "1.33.13": "v1alpha1", "": "v1"} {
		cluster := clusterOf("x", "Create", false)
		g.Expect(unstructured.SetNestedField(cluster.Object, kubernetes, "spec", "shoot", "spec", "kubernetes", "version")).To(Succeed())
		g.Expect(string(manifestFor(cluster, Options{ShootManifest: manifest}))).To(Equal(strings.ReplaceAll(string(manifest), "admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/"+version)), kubernetes)
	}
}

func TestSeedsHaveAStatusController(t *testing.T) {
	for _, test := range []struct {
		name, namespace string
		workers         []any
		want            string
	}{
		{name: "a shoot with machines in the garden's namespace", namespace: "garden", workers: []any{map[string]any{"name": "a"}}, want: "a: b\nc: d\n"},
		{name: "a workerless shoot, which is no seed", namespace: "garden", want: "a: b\n"},
		{name: "a shoot of a project", namespace: "garden-local", workers: []any{map[string]any{"name": "a"}}, want: "a: b\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			cluster := clusterOf("x", "Create", false)
			g.Expect(unstructured.SetNestedField(cluster.Object, test.namespace, "spec", "shoot", "metadata", "namespace")).To(Succeed())
			g.Expect(unstructured.SetNestedSlice(cluster.Object, test.workers, "spec", "shoot", "spec", "provider", "workers")).To(Succeed())
			g.Expect(string(manifestFor(cluster, Options{ShootManifest: []byte("a: b\n"), SeedManifest: []byte("c: d\n")}))).To(Equal(test.want))
		})
	}
}

func TestACollectorHasAScaleWithASelector(t *testing.T) {
	g := NewWithT(t)
	kind := schema.GroupVersionKind{Group: "opentelemetry.io", Version: "v1beta1", Kind: "OpenTelemetryCollector"}
	collector := objectOf(kind)
	collector.SetNamespace("garden")
	collector.SetName("opentelemetry-collector")
	scheme := runtime.NewScheme()
	scheme.AddKnownTypeWithName(kind, &unstructured.Unstructured{})
	c := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(collector).WithObjects(collector).Build()
	o := &operator{client: c, kind: kind, set: setScale}
	var versions []string
	for range 2 {
		_, err := o.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(collector)})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(collector), collector)).To(Succeed())
		versions = append(versions, collector.GetResourceVersion())
	}
	selector, _, _ := unstructured.NestedString(collector.Object, "status", "scale", "selector")
	g.Expect(selector).NotTo(BeEmpty())
	g.Expect(versions[1]).To(Equal(versions[0]), "it is written once")
}

func TestPrometheusOperatorReportsItsObjectsItself(t *testing.T) {
	g := NewWithT(t)
	g.Expect(lateKinds(nil, Options{})).To(And(HaveLen(4), HaveKey("prometheuses.monitoring.coreos.com"), HaveKey("alertmanagers.monitoring.coreos.com")))
	g.Expect(lateKinds(nil, Options{Observability: true})).To(And(HaveLen(2), HaveKey("clusters.extensions.gardener.cloud"), HaveKey("opentelemetrycollectors.opentelemetry.io")))
}

func TestLateKindsAreWatchedOnceTheyAreEstablished(t *testing.T) {
	g := NewWithT(t)
	var started int
	l := &late{added: map[string]bool{}, add: map[string]func() error{
		"prometheuses.monitoring.coreos.com":  func() error { started++; return nil },
		"alertmanagers.monitoring.coreos.com": func() error { return errors.New("refused") },
	}}
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "prometheuses.monitoring.coreos.com"}}
	watch := func() {
		t.Helper()
		_, err := l.reconcile(t.Context(), crd)
		g.Expect(err).NotTo(HaveOccurred())
	}
	watch()
	g.Expect(started).To(BeZero(), "a watch would fail")
	crd.Status.Conditions = []apiextensionsv1.CustomResourceDefinitionCondition{{Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue}}
	watch()
	watch()
	g.Expect(started).To(Equal(1))

	crd.Name = "alertmanagers.monitoring.coreos.com"
	_, err := l.reconcile(t.Context(), crd)
	g.Expect(err).To(MatchError(ContainSubstring("refused")))
	g.Expect(l.added).To(HaveLen(1), "it is tried again")
}
