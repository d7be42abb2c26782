// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package coredns

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	yamlserializer "k8s.io/apimachinery/pkg/runtime/serializer/yaml"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/managedresources"

	"github.com/gardener/gardener-extension-provider-local/charts/components"
	configv1alpha1 "github.com/gardener/gardener-extension-provider-local/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-provider-local/pkg/chart"
	"github.com/gardener/gardener-extension-provider-local/pkg/resources"
)

const (
	gardenNamespace = "runtime-extension-provider-local"
	seedNamespace   = "extension-provider-local"
)

func namespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name + "-uid")}}
}

func ownedBy(names ...string) []metav1.OwnerReference {
	var references []metav1.OwnerReference
	for _, name := range names {
		references = append(references, metav1.OwnerReference{APIVersion: "v1", Kind: "Namespace", Name: name, UID: types.UID(name + "-uid")})
	}
	return references
}

func newServer(t *testing.T, c client.Client, instance, home, image string) *Server {
	t.Helper()
	g := NewWithT(t)
	renderer, err := chart.NewRenderer("1.34.1")
	g.Expect(err).NotTo(HaveOccurred())
	return &Server{Options{
		SetupOptions: SetupOptions{
			DNS: configv1alpha1.DNSConfiguration{Zones: []string{testZone}, CoreDNS: configv1alpha1.CoreDNSConfiguration{
				Namespace: "gardener-extension-provider-local-coredns", Image: image, Replicas: new(int32(2)), ClusterIP: "10.4.0.53", PriorityClassName: "gardener-garden-system-200",
				Deploy: new(true),
			}},
			Place: instance, ServiceAccount: types.NamespacedName{Namespace: home, Name: "gardener-extension-provider-local-" + instance},
			Renderer: renderer, Writer: resources.New(c), Chart: chart.Embedded(components.FS, components.CoreDNS), VPA: true,
		},
		Client: c, Reader: c, Log: logr.Discard(),
	}}
}

func shared(g Gomega, c client.Client) *resourcesv1alpha1.ManagedResource {
	mr := &resourcesv1alpha1.ManagedResource{}
	g.Expect(c.Get(ctx, client.ObjectKey{Namespace: "garden", Name: ManagedResourceName}, mr)).To(Succeed())
	return mr
}

func image(g Gomega, c client.Client) string {
	secret := &corev1.Secret{}
	g.Expect(c.Get(ctx, client.ObjectKey{Namespace: "garden", Name: shared(g, c).Spec.SecretRefs[0].Name}, secret)).To(Succeed())
	g.Expect(secret.Data).To(HaveKey("data.yaml.br"))
	objects, err := managedresources.ExtractObjectsFromSecret(yamlserializer.NewDecodingSerializer(unstructured.UnstructuredJSONScheme), secret)
	g.Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		if object.GetObjectKind().GroupVersionKind().Kind == "Deployment" {
			data, err := yaml.Marshal(object)
			g.Expect(err).NotTo(HaveOccurred())
			_, rest, _ := bytes.Cut(data, []byte("image: "))
			line, _, _ := bytes.Cut(rest, []byte("\n"))
			return string(line)
		}
	}
	return ""
}

func TestOneCoreDNSServesAllInstancesOfACluster(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(namespace(gardenNamespace), namespace(seedNamespace)).Build()
	garden, seed := newServer(t, c, "garden", gardenNamespace, "coredns:1"), newServer(t, c, "seed", seedNamespace, "coredns:2")

	g.Expect(garden.Deploy(ctx)).To(Succeed())
	g.Expect(shared(g, c)).To(And(
		HaveField("OwnerReferences", ConsistOf(ownedBy(gardenNamespace))),
		HaveField("Labels", HaveKeyWithValue(LabelDeployedBy, gardenNamespace)),
		HaveField("Spec.Class", HaveValue(Equal("seed"))),
	))

	// The second one joins and leaves the rest as it is.
	before := shared(g, c).Spec
	g.Expect(seed.Deploy(ctx)).To(Succeed())
	g.Expect(shared(g, c).OwnerReferences).To(ConsistOf(ownedBy(gardenNamespace, seedNamespace)))
	g.Expect(shared(g, c).Spec).To(Equal(before))
	g.Expect(image(g, c)).To(Equal("coredns:1"))

	// Once all is as it should be nobody writes any more.
	g.Expect(garden.Deploy(ctx)).To(Succeed())
	version := shared(g, c).ResourceVersion
	g.Expect(garden.Deploy(ctx)).To(Succeed())
	g.Expect(seed.Deploy(ctx)).To(Succeed())
	g.Expect(shared(g, c).ResourceVersion).To(Equal(version))

	// The one that deployed it goes: the other takes over.
	g.Expect(c.Delete(ctx, namespace(gardenNamespace))).To(Succeed())
	mr := shared(g, c)
	mr.OwnerReferences = ownedBy(seedNamespace) // This is the garbage collector's.
	g.Expect(c.Update(ctx, mr)).To(Succeed())
	g.Expect(seed.Deploy(ctx)).To(Succeed())
	g.Expect(shared(g, c)).To(And(
		HaveField("OwnerReferences", ConsistOf(ownedBy(seedNamespace))),
		HaveField("Labels", HaveKeyWithValue(LabelDeployedBy, seedNamespace)),
	))
	g.Expect(image(g, c)).To(Equal("coredns:2"))
}

func TestAnInstanceThatDeploysNoCoreDNSAnyMoreLeavesItToAnother(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(namespace(gardenNamespace), namespace(seedNamespace)).Build()
	garden, seed := newServer(t, c, "garden", gardenNamespace, "coredns:1"), newServer(t, c, "seed", seedNamespace, "coredns:2")
	g.Expect(garden.Deploy(ctx)).To(Succeed())
	g.Expect(seed.Deploy(ctx)).To(Succeed())

	*garden.DNS.CoreDNS.Deploy = false
	g.Expect(garden.Deploy(ctx)).To(Succeed())
	g.Expect(seed.Deploy(ctx)).To(Succeed())
	g.Expect(garden.Deploy(ctx)).To(Succeed())
	g.Expect(shared(g, c)).To(And(
		HaveField("OwnerReferences", ConsistOf(ownedBy(gardenNamespace, seedNamespace))),
		HaveField("Labels", HaveKeyWithValue(LabelDeployedBy, seedNamespace)),
	))
	g.Expect(image(g, c)).To(Equal("coredns:2"))
}

func TestAnInstanceMayWriteToTheCoreDNSThatOthersDeploy(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(namespace(seedNamespace)).Build()
	s := newServer(t, c, "seed", seedNamespace, "")
	*s.DNS.CoreDNS.Deploy = false
	g.Expect(s.Deploy(ctx)).To(Succeed())
	list := &resourcesv1alpha1.ManagedResourceList{}
	g.Expect(c.List(ctx, list)).To(Succeed())
	g.Expect(list.Items).To(HaveExactElements(HaveField("Name", s.ownName())))
}

func TestANewVersionOfTheDeployerIsRolledOut(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(namespace(gardenNamespace), namespace(seedNamespace)).Build()
	g.Expect(newServer(t, c, "garden", gardenNamespace, "coredns:1").Deploy(ctx)).To(Succeed())
	g.Expect(newServer(t, c, "seed", seedNamespace, "coredns:1").Deploy(ctx)).To(Succeed())
	g.Expect(newServer(t, c, "garden", gardenNamespace, "coredns:3").Deploy(ctx)).To(Succeed())
	g.Expect(image(g, c)).To(Equal("coredns:3"))
	g.Expect(shared(g, c).OwnerReferences).To(ConsistOf(ownedBy(gardenNamespace, seedNamespace)))
}

func TestAnInstanceMayWriteToCoreDNSOnly(t *testing.T) {
	g := NewWithT(t)
	c := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(namespace(gardenNamespace)).Build()
	server := newServer(t, c, "garden", gardenNamespace, "coredns:1")
	g.Expect(server.Deploy(ctx)).To(Succeed())
	mr := &resourcesv1alpha1.ManagedResource{}
	g.Expect(c.Get(ctx, client.ObjectKey{Namespace: "garden", Name: ManagedResourceName + "-garden"}, mr)).To(Succeed())
	g.Expect(mr.OwnerReferences).To(ConsistOf(ownedBy(gardenNamespace)))
	g.Expect(server.permissions()).To(ConsistOf(
		And(BeAssignableToTypeOf(&rbacv1.Role{}), HaveField("Namespace", "gardener-extension-provider-local-coredns"), HaveField("Rules", HaveEach(HaveField("Resources", HaveLen(1))))),
		And(BeAssignableToTypeOf(&rbacv1.RoleBinding{}), HaveField("Subjects", ConsistOf(rbacv1.Subject{Kind: "ServiceAccount", Namespace: gardenNamespace, Name: "gardener-extension-provider-local-garden"}))),
	))
}

func TestJoiningSaysWhenAnotherOneWasFaster(t *testing.T) {
	g := NewWithT(t)
	conflicts := 1
	c := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(namespace(gardenNamespace), namespace(seedNamespace)).WithInterceptorFuncs(interceptor.Funcs{
		Patch: func(ctx context.Context, w client.WithWatch, object client.Object, patch client.Patch, options ...client.PatchOption) error {
			if conflicts > 0 {
				conflicts--
				return apierrors.NewConflict(resourcesv1alpha1.Resource("managedresources"), object.GetName(), errAPI)
			}
			return w.Patch(ctx, object, patch, options...)
		},
	}).Build()
	g.Expect(newServer(t, c, "garden", gardenNamespace, "coredns:1").Deploy(ctx)).To(Succeed())
	seed := newServer(t, c, "seed", seedNamespace, "coredns:1")
	g.Expect(seed.Deploy(ctx)).To(MatchError(ContainSubstring("joining the owners")))
	g.Expect(seed.Deploy(ctx)).To(Succeed())
	g.Expect(shared(g, c).OwnerReferences).To(HaveLen(2))
}

func TestNothingIsWrittenToACoreDNSThatIsBeingDeleted(t *testing.T) {
	g := NewWithT(t)
	going := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{
		Namespace: "garden", Name: ManagedResourceName, Finalizers: []string{"x"}, DeletionTimestamp: new(metav1.Now()),
	}}
	c := fake.NewClientBuilder().WithScheme(newScheme()).WithObjects(namespace(gardenNamespace), going).Build()
	g.Expect(newServer(t, c, "garden", gardenNamespace, "coredns:1").Deploy(ctx)).To(Succeed())
	g.Expect(shared(g, c).Spec.SecretRefs).To(BeEmpty())
}

func TestTheChartRendersToTheGoldenFile(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, fake.NewFakeClient(), "garden", gardenNamespace, "registry.example.org/coredns@sha256:0123")
	objects, err := server.Renderer.Render(ctx, server.Chart, chart.Release{Name: "coredns", Namespace: server.DNS.CoreDNS.Namespace}, server.values())
	g.Expect(err).NotTo(HaveOccurred())
	var out bytes.Buffer
	for _, object := range objects {
		data, err := yaml.Marshal(object)
		g.Expect(err).NotTo(HaveOccurred())
		out.WriteString("---\n")
		out.Write(data)
	}
	golden(g, "coredns.yaml", out.Bytes())
}

func TestTheCorefileOfSeveralZones(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, fake.NewFakeClient(), "garden", gardenNamespace, "coredns:1")
	server.DNS.Zones = []string{testZone, "other.example"}
	objects, err := server.Renderer.Render(ctx, server.Chart, chart.Release{Name: "coredns", Namespace: server.DNS.CoreDNS.Namespace}, server.values())
	g.Expect(err).NotTo(HaveOccurred())

	blocks := map[string][]string{}
	for _, object := range objects {
		corefile, _, err := unstructured.NestedString(object.(*unstructured.Unstructured).Object, "data", "Corefile")
		g.Expect(err).NotTo(HaveOccurred())
		for block := range strings.SplitSeq(corefile, "\n}") {
			name, body, _ := strings.Cut(strings.TrimSpace(block), " {\n")
			if name != "" {
				blocks[name] = append(blocks[name], body)
			}
		}
	}
	clients := ContainSubstring("expr incidr(client_ip(), '10.0.0.0/8') || incidr(client_ip(), '172.16.0.0/12') || ")
	external, ready := ContainSubstring("view external"), ContainSubstring("ready :8181")
	literal, rewrite, forward := ContainSubstring("custom literal"), ContainSubstring("custom rewrite"), ContainSubstring("forward")
	g.Expect(slices.Collect(maps.Keys(blocks))).To(ConsistOf("local.gardener.cloud:9053", "other.example:9053", ".:9053",
		"local.gardener.cloud:9054", "other.example:9054"), "port 9054 has no block for other names")
	g.Expect(blocks["local.gardener.cloud:9053"]).To(HaveExactElements(And(external, literal, Not(ready)), And(Not(external), rewrite, ready)), "readiness is that of the records")
	g.Expect(blocks["other.example:9053"]).To(HaveExactElements(And(external, literal, Not(ready)), And(Not(external), rewrite, Not(ready))), "one server for readiness")
	for _, host := range []string{"local.gardener.cloud:9054", "other.example:9054"} {
		g.Expect(blocks[host]).To(HaveExactElements(And(Not(external), literal, Not(forward))))
	}
	g.Expect(blocks[".:9053"]).To(HaveExactElements(And(forward, clients, Not(ready))), "it is no open resolver")
}

func TestAnInstanceMayChangeItsOwnConfigMapsOnly(t *testing.T) {
	g := NewWithT(t)
	server := newServer(t, fake.NewFakeClient(), "seed", gardenNamespace, "coredns:1")
	role := server.permissions()[0].(*rbacv1.Role)
	for _, rule := range role.Rules {
		if !slices.Contains(rule.Resources, "configmaps") {
			continue
		}
		if len(rule.ResourceNames) == 0 {
			g.Expect(rule.Verbs).To(ConsistOf("list", "watch", "create"), "for these there can be no names")
			continue
		}
		g.Expect(rule.ResourceNames).To(And(HaveLen(maxShards), HaveEach(HavePrefix("coredns-custom-seed-")), ContainElement("coredns-custom-seed-0")))
		g.Expect(rule.Verbs).To(ConsistOf("update", "delete"))
	}
}

func TestTheChartRefusesValuesThatDoNotBelongIntoACorefile(t *testing.T) {
	g := NewWithT(t)
	renderer, err := chart.NewRenderer("1.34.1")
	g.Expect(err).NotTo(HaveOccurred())
	for name, change := range map[string]func(map[string]any){
		"a zone":        func(v map[string]any) { v["zones"] = []string{"local {\nforward"} },
		"an expression": func(v map[string]any) { v["externalExpression"] = "true\n}\nforward . 192.0.2.1" },
		"a network":     func(v map[string]any) { v["clientNetworks"] = []string{"0.0.0.0/0') || true"} },
		"no image":      func(v map[string]any) { v["image"] = "" },
	} {
		values := newServer(t, fake.NewFakeClient(), "garden", gardenNamespace, "x").values()
		change(values)
		_, err := renderer.Render(ctx, chart.Embedded(components.FS, components.CoreDNS), chart.Release{Name: "coredns", Namespace: "x"}, values)
		var refused *chart.ValuesError
		g.Expect(errors.As(err, &refused)).To(BeTrue(), name)
	}
}
